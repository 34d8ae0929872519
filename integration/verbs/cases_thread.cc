// Threads post and poll at will, and many queue pairs live side by side.
#include <atomic>
#include <set>
#include <thread>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

// Several threads post to one queue pair: every request completes once.
void PostersOfOneQp(World& world) {
  // Room for all completions: a device may take back send slots before they are polled.
  Pair pair(world, {.send_wr = 64, .cq_entries = 1024}, {});
  constexpr int kThreads = 4;
  constexpr int kEach = 200;
  Region local = pair.first.NewRegion(64 * kThreads), target = pair.second.NewRegion(64 * kThreads);
  local.buffer->Fill(1);
  std::atomic<bool> broken{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto offset = static_cast<size_t>(t) * 64;
      std::vector<ibv_sge> list = {local.Sge(offset, 64)};
      for (int i = 0; i < kEach && !broken; ++i) {
        const auto id = static_cast<uint64_t>(t) * 1000 + static_cast<uint64_t>(i);
        const ibv_send_wr wr =
            RdmaWr(IBV_WR_RDMA_WRITE, id, list, target.addr() + offset, target.mr->rkey);
        if (!world.WaitUntil([&] { return pair.first.PostSend(wr) == 0; })) broken = true;
      }
    });
  }
  std::set<uint64_t> seen;
  std::vector<uint64_t> next(kThreads);
  bool in_order = true;
  ibv_wc wc = {};
  const bool all = world.WaitUntil(
      [&] {
        if (world.v.poll_cq(pair.first.send_cq, 1, &wc) == 1) {
          seen.insert(wc.wr_id);
          broken = broken || wc.status != IBV_WC_SUCCESS;
          in_order = in_order && wc.wr_id % 1000 == next[wc.wr_id / 1000]++;
        }
        return broken || seen.size() == kThreads * kEach;
      },
      30);
  broken = broken || !all;
  for (std::thread& thread : threads) thread.join();
  ExpectTrue(!broken, "every request succeeds");
  ExpectTrue(in_order, "each thread's requests complete in its order");
  target.buffer->ExpectPattern(0, 64 * kThreads, 1);
}

// Several threads poll one queue: every completion is seen once.
void PollersOfOneCq(World& world) {
  Pair pair(world, {.send_wr = 64}, {});
  Region local = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  constexpr uint64_t kCount = 1000;
  std::vector<std::atomic<int>> seen(kCount);
  std::atomic<uint64_t> total{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        ibv_wc wc[4];
        const int got = world.v.poll_cq(pair.first.send_cq, 4, wc);
        for (int i = 0; i < got; ++i) ++seen[wc[i].wr_id % kCount];
        if (got > 0) total += static_cast<uint64_t>(got);
        if (got == 0) world.v.idle();
      }
    });
  }
  std::vector<ibv_sge> list = {local.Sge(0, 8)};
  bool posted = true;
  for (uint64_t i = 0; i < kCount && posted; ++i) {
    const ibv_send_wr wr = RdmaWr(IBV_WR_RDMA_WRITE, i, list, target.addr(), target.mr->rkey);
    posted = world.WaitUntil([&] { return i - total < 60 && pair.first.PostSend(wr) == 0; });
  }
  const bool all = world.WaitUntil([&] { return total >= kCount; });
  stop = true;
  for (std::thread& thread : threads) thread.join();
  ExpectTrue(posted && all, "every request completes");
  for (uint64_t i = 0; i < kCount; ++i) ExpectEq(seen[i].load(), 1, "how often each was seen");
}

// Each thread with a device, queues and connections of its own.
void ThreadsApart(World& world) {
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      World own(world.v, world.options);
      for (uint32_t round = 0; round < 5; ++round) {
        Pair pair(own);
        Region local = pair.first.NewRegion(5000), target = pair.second.NewRegion(5000);
        std::vector<ibv_sge> list = {local.Sge(0, 5000)};
        for (uint32_t i = 0; i < 20; ++i) {
          local.buffer->Fill(t * 100 + i);
          pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, i, list, target.addr(), target.mr->rkey));
          ExpectCompletion(own, pair.first.send_cq, i, IBV_WC_SUCCESS);
          target.buffer->ExpectPattern(0, 5000, t * 100 + i);
        }
      }
      own.CheckGuards();
      ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectEq(good.load(), 4, "threads that are done");
}

// One thread posts while another takes the queue pair to ERR: each request ends exactly once.
void ErrWhilePosting(World& world) {
  for (int round = 0; round < 20; ++round) {
    Pair pair(world, {.send_wr = 64}, {});
    Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
    std::atomic<uint64_t> posted{0};
    std::thread poster([&] {
      std::vector<ibv_sge> list = {local.Sge(0, 64)};
      for (uint64_t i = 0; i < 60; ++i) {
        if (pair.first.PostSend(
                RdmaWr(IBV_WR_RDMA_WRITE, i, list, target.addr(), target.mr->rkey)) != 0) {
          break;
        }
        ++posted;
      }
    });
    while (posted < static_cast<uint64_t>(round)) world.v.idle();
    pair.first.MoveTo(IBV_QPS_ERR);
    poster.join();
    bool flushing = false;
    for (uint64_t i = 0; i < posted; ++i) {
      const ibv_wc wc = PollOne(world, pair.first.send_cq);
      ExpectEq(wc.wr_id, i, "order");
      ExpectOneOf<int>(wc.status, {IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR}, "status");
      ExpectTrue(!flushing || wc.status == IBV_WC_WR_FLUSH_ERR, "no success behind a flushed one");
      flushing = wc.status == IBV_WC_WR_FLUSH_ERR;
    }
    ExpectQuiet(world, pair.first.send_cq, 0);
  }
}

// Regions come and go while another connection carries data.
void RegisterWhileSending(World& world) {
  Pair pair(world);
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::thread registrar([&] {
    Buffer buffer(1 << 16);
    while (!stop) {
      ibv_mr* mr = world.v.reg_mr(pair.first.pd, buffer.data(), buffer.size(), kAllAccess);
      if (mr == nullptr || world.v.dereg_mr(mr) != 0) return;
      ++rounds;
    }
  });
  Region local = pair.first.NewRegion(3000), target = pair.second.NewRegion(3000);
  std::vector<ibv_sge> list = {local.Sge(0, 3000)};
  for (uint32_t i = 0; i < 300; ++i) {
    local.buffer->Fill(i);
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, i, list, target.addr(), target.mr->rkey));
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
    target.buffer->ExpectPattern(0, 3000, i);
  }
  world.WaitUntil([&] { return rounds >= 10; });
  stop = true;
  registrar.join();
  ExpectTrue(rounds >= 10, "registrations go on meanwhile");
}

void ManyQps(World& world) {
  constexpr uint32_t kCount = 256;
  Side first(world, world.first_device(), {.cq_entries = 2048});
  Side second(world, world.second_device(), {.cq_entries = 2048});
  const SideOptions small = {.send_wr = 4, .recv_wr = 4, .send_sge = 1, .recv_sge = 1};
  std::vector<std::unique_ptr<Side>> firsts, seconds;
  std::set<uint32_t> numbers;
  for (uint32_t i = 0; i < kCount; ++i) {
    firsts.push_back(std::make_unique<Side>(first, small));
    seconds.push_back(std::make_unique<Side>(second, small));
    Connect(*firsts.back(), *seconds.back());
    numbers.insert(firsts.back()->qp->qp_num);
  }
  ExpectEq(numbers.size(), size_t{kCount}, "different queue pair numbers");
  Region local = first.NewRegion(kCount * 16), sink = second.NewRegion(kCount * 16);
  local.buffer->Fill(1);
  for (uint32_t i = 0; i < kCount; ++i) seconds[i]->MustRecv(i, {sink.Sge(i * 16, 16)});
  for (uint32_t i = 0; i < kCount; ++i) {
    std::vector<ibv_sge> list = {local.Sge(i * 16, 16)};
    firsts[i]->MustSend(SendWr(IBV_WR_SEND, i, list));
  }
  std::set<uint64_t> ids;
  for (const ibv_wc& wc : Poll(world, second.recv_cq, kCount)) {
    ExpectEq(+wc.status, +IBV_WC_SUCCESS, "status");
    ExpectEq(wc.qp_num, seconds[wc.wr_id]->qp->qp_num, "qp_num");
    ids.insert(wc.wr_id);
  }
  Poll(world, first.send_cq, kCount);
  ExpectEq(ids.size(), size_t{kCount}, "messages");
  sink.buffer->ExpectPattern(0, kCount * 16, 1);
}

void ManyRegions(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(64);
  std::vector<Region> targets;
  for (uint32_t i = 0; i < 1000; ++i) targets.push_back(pair.second.NewRegion(64));
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  for (uint32_t i = 0; i < 1000; ++i) {
    local.buffer->Fill(i);
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, i, list, targets[i].addr(), targets[i].mr->rkey));
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
    targets[i].buffer->ExpectPattern(0, 64, i);
  }
}

}  // namespace

std::vector<Case> ThreadCases() {
  const std::vector<std::string> threads = {"threads"};
  const char* const clause = "IBTA 11.1 (thread safety); man ibv_post_send";
  return {
      {"Threads.FourPostToOneQp_EachCompletesOnceInOrder", clause, threads, PostersOfOneQp},
      {"Threads.ThreePollOneCq_EachIsSeenOnce", clause, threads, PollersOfOneCq},
      {"Threads.FourWithTheirOwn_DoNotDisturb", clause, threads, ThreadsApart},
      {"Threads.ErrWhilePosting_EachEndsOnce", "IBTA 10.3.1.7", threads, ErrWhilePosting},
      {"Threads.RegisteringWhileSending_BothGoOn", clause, threads, RegisterWhileSending},
  };
}

std::vector<Case> ScaleCases() {
  const std::vector<std::string> none;
  return {
      {"Scale.256QueuePairs_AllCarry", "IBTA 10.2.4", none, ManyQps},
      {"Scale.1000Regions_AllCarry", "IBTA 10.6.3", none, ManyRegions},
  };
}

}  // namespace railhop::conformance
