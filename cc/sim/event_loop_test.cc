#include "cc/sim/event_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace railhop::sim {
namespace {

struct Listener : Actor {
  explicit Listener(EventLoop* loop) : loop(loop) {}
  void OnEvent(uint64_t arg) override {
    args.push_back(arg);
    times.push_back(loop->now_ns());
  }
  EventLoop* loop;
  std::vector<uint64_t> args, times;
};

std::vector<uint64_t> OrderOfTies(uint64_t seed) {
  EventLoop loop(seed);
  Listener listener(&loop);
  for (uint64_t i = 0; i < 20; ++i) loop.At(kStartNs + 5, &listener, i);
  loop.RunUntil(kStartNs + 5);
  return listener.args;
}

TEST(EventLoop, Start_IsNotZero) { EXPECT_GT(EventLoop(1).now_ns(), 0u); }

TEST(EventLoop, DifferentTimes_RunInOrderOfTime) {
  EventLoop loop(1);
  Listener listener(&loop);
  loop.At(kStartNs + 30, &listener, 3);
  loop.At(kStartNs + 10, &listener, 1);
  loop.At(kStartNs + 20, &listener, 2);
  loop.RunUntil(kStartNs + 25);
  EXPECT_EQ(listener.args, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(listener.times, (std::vector<uint64_t>{kStartNs + 10, kStartNs + 20}));
  EXPECT_EQ(loop.now_ns(), kStartNs + 25);
  EXPECT_EQ(loop.next_ns(), kStartNs + 30);
}

TEST(EventLoop, SameTime_OrderComesFromTheSeed) {
  EXPECT_EQ(OrderOfTies(1), OrderOfTies(1));
  EXPECT_NE(OrderOfTies(1), OrderOfTies(2));
  auto sorted = OrderOfTies(3);
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted.size(), 20u);
  EXPECT_EQ(sorted.back(), 19u);
}

TEST(EventLoop, TimeThatHasPassed_MeansNow) {
  EventLoop loop(1);
  Listener listener(&loop);
  loop.RunUntil(kStartNs + 100);
  loop.At(5, &listener, 1);
  EXPECT_TRUE(loop.Step());
  EXPECT_EQ(loop.now_ns(), kStartNs + 100);
  EXPECT_FALSE(loop.Step());
}

TEST(EventLoop, RunUntilTrue_StopsAtTheConditionOrTheLimit) {
  EventLoop loop(1);
  Listener listener(&loop);
  for (uint64_t i = 1; i <= 10; ++i) loop.At(kStartNs + i, &listener, i);
  EXPECT_TRUE(loop.RunUntilTrue(kNeverNs, [&] { return listener.args.size() == 3; }));
  EXPECT_FALSE(loop.RunUntilTrue(kStartNs + 6, [] { return false; }));
  EXPECT_EQ(listener.args.size(), 6u);
}

}  // namespace
}  // namespace railhop::sim
