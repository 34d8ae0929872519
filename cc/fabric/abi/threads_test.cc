// Verbs is thread-safe: many threads on one queue pair and one completion queue, and each request
// completes exactly once.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "cc/fabric/abi/test_fabric.h"

namespace railhop::fabric::abi {
namespace {

constexpr uint64_t kEach = 2000;  // requests of a thread
constexpr uint64_t kThreads = 3;

int PostWrite(const Loopback& loop, uint64_t wr_id) {
  ibv_sge sge = loop.Sge(static_cast<uint32_t>(wr_id % 64) * 8, 8);
  ibv_send_wr wr = {};
  wr.wr_id = wr_id;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma = {loop.Address(2048 + static_cast<uint32_t>(wr_id % 64) * 8), loop.mr->rkey};
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(loop.qp.get(), &wr, &bad);
}

// Threads that post, while others poll and one resizes the completion queue, up to the moment when
// the queue pair is moved to ERR if `fail`.
void Exchange(bool fail) {
  Loopback loop;
  std::atomic<uint64_t> posted{0}, got{0}, twice{0};
  std::vector<std::atomic<int>> seen(kThreads * kEach);
  std::atomic<bool> stop{false};
  const auto poll = [&] {
    while (!stop.load()) {
      ibv_wc wc[4];
      const int n = ibv_poll_cq(loop.cq.get(), 4, wc);
      for (int i = 0; i < n; ++i) {
        if (seen[wc[i].wr_id].fetch_add(1) != 0) twice.fetch_add(1);
        got.fetch_add(1);
      }
      if (n == 0) std::this_thread::yield();
    }
  };
  const auto post = [&](uint64_t thread) {
    for (uint64_t i = 0; i < kEach; ++i) {
      while (posted.load() - got.load() > 16) std::this_thread::yield();
      posted.fetch_add(1);
      int error = PostWrite(loop, thread * kEach + i);
      for (; error == ENOMEM; error = PostWrite(loop, thread * kEach + i)) {
        std::this_thread::yield();
      }
      EXPECT_EQ(error, 0);
    }
  };
  std::vector<std::thread> pollers, posters;
  for (int i = 0; i < 2; ++i) pollers.emplace_back(poll);
  pollers.emplace_back([&] {
    for (int cqe = 64; !stop.load(); cqe = 192 - cqe) {
      EXPECT_EQ(ibv_resize_cq(loop.cq.get(), cqe), 0);
      std::this_thread::yield();
    }
  });
  for (uint64_t thread = 0; thread < kThreads; ++thread) posters.emplace_back(post, thread);
  if (fail) {
    while (got.load() < kEach) std::this_thread::yield();
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(loop.qp.get(), &attr, IBV_QP_STATE), 0);
  }
  for (std::thread& thread : posters) thread.join();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (got.load() < kThreads * kEach && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  stop.store(true);
  for (std::thread& thread : pollers) thread.join();
  EXPECT_EQ(got.load(), kThreads * kEach);
  EXPECT_EQ(twice.load(), 0u);
}

TEST(Threads, OnOneQueuePair_EachRequestCompletesOnce) { Exchange(/*fail=*/false); }

TEST(Threads, OnAQueuePairThatFails_EachRequestCompletesOnce) { Exchange(/*fail=*/true); }

}  // namespace
}  // namespace railhop::fabric::abi
