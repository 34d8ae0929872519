#include "cc/base/clock.h"

#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace railhop {
namespace {

TEST(RealClock, Now_IsPositiveAndNeverGoesBack) {
  RealClock clock;
  int64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = clock.NowNs();
    ASSERT_GT(now, 0);
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(VirtualClock, Time_MovesOnlyWhenTold) {
  VirtualClock clock;
  EXPECT_EQ(clock.NowNs(), VirtualClock::kStartNs);
  clock.AdvanceNs(5);
  EXPECT_EQ(clock.NowNs(), VirtualClock::kStartNs + 5);
  clock.AdvanceToNs(VirtualClock::kStartNs + 100);
  EXPECT_EQ(clock.NowNs(), VirtualClock::kStartNs + 100);
}

TEST(VirtualClock, ThePast_IsIgnored) {
  VirtualClock clock(50);
  clock.AdvanceNs(-1);
  clock.AdvanceToNs(49);
  EXPECT_EQ(clock.NowNs(), 50);
}

TEST(VirtualClock, ManyThreads_LoseNoStep) {
  VirtualClock clock(1);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&clock] {
      for (int n = 0; n < 10'000; ++n) clock.AdvanceNs(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clock.NowNs(), 40'001);
}

}  // namespace
}  // namespace railhop
