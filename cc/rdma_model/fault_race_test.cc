// Rules change while threads judge, as processes of a fabric do. Run under the thread sanitizer
// too.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "cc/rdma_model/fault_test_util.h"

namespace railhop::rdma {
namespace {

constexpr int kReaders = 4;

TEST(FaultRace, WriterChangesRules_ReadersSeeWholeOnes) {
  FaultTable tx;
  FaultTable rx;
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> judged = 0;
  std::atomic<uint64_t> wrong = 0;
  std::vector<std::thread> readers;
  readers.reserve(kReaders);
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] {
      FlowState flow = InitFlow(1, 0, r, FlowDirection::kRequests);
      Train train;
      for (uint64_t id = 0; !stop; ++id) {
        train.count = 1 + id % 64;
        train.length = train.count * train.mtu;
        train.message_id = id;
        const Verdict v = Judge(tx, rx, train, flow, 1000 + id);
        // Only these rules exist: a torn one would show as another value.
        const bool whole =
            v.packets >= 1 && v.packets <= train.count &&
            (v.delay_ns == 0 || v.delay_ns == 111'000 || v.delay_ns == 222'000) &&
            (v.fate == Fate::kDeliver || v.fate == Fate::kDrop ||
             (v.fate == Fate::kFail && v.status == WcStatus::kRetryExcErr && v.vendor_err == 129));
        if (!whole) ++wrong;
        ++judged;
      }
    });
  }
  const char* kRules[] = {"delay 111us", "delay 222us count 100", "loss 10% count 50",
                          "complete status 12 vendor 129", "down after 20 messages"};
  for (int i = 0; i < 1000 || judged < 2000; ++i) {
    Apply(tx, kRules[i % std::size(kRules)], 1000);
    FaultAction action;
    while (NextAction(tx, 1'000'000'000, &action)) FinishAction(tx, action);
    if (i % 3 == 0) std::this_thread::yield();
    Apply(tx, "clear", 1000);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GE(judged, 2000u);
}

TEST(FaultRace, CountOfManyProcesses_IsExact) {
  for (int round = 0; round < 5; ++round) {
    FaultTable tx;
    FaultTable rx;
    Apply(tx, "loss count 1000");
    std::atomic<uint64_t> lost = 0;
    std::vector<std::thread> senders;
    senders.reserve(kReaders);
    for (int s = 0; s < kReaders; ++s) {
      senders.emplace_back([&, s] {
        FlowState flow = InitFlow(1, 0, s, FlowDirection::kRequests);
        Train train;
        for (train.message_id = 0; train.message_id < 200; ++train.message_id) {
          train.count = 1 + train.message_id % 7;
          const Verdict v = Judge(tx, rx, train, flow, 2000);
          if (v.fate == Fate::kDrop) lost += v.packets;
        }
      });
    }
    for (std::thread& sender : senders) sender.join();
    EXPECT_EQ(lost, 1000u);
  }
}

TEST(FaultRace, PortFallsBehindExactlyNMessages) {
  for (int round = 0; round < 5; ++round) {
    FaultTable tx;
    FaultTable rx[kReaders];
    Apply(tx, "down after 500 messages");
    std::mutex control;
    std::atomic<uint64_t> passed = 0;
    std::atomic<bool> down = false;
    std::atomic<int> falls = 0;
    std::vector<std::thread> senders;
    senders.reserve(kReaders);
    for (int s = 0; s < kReaders; ++s) {
      senders.emplace_back([&, s] {
        FlowState flow = InitFlow(1, 0, s, FlowDirection::kRequests);
        Train train;
        for (train.message_id = 0; train.message_id < 400; ++train.message_id) {
          const Verdict v = Judge(tx, rx[s], train, flow, 2000);
          // As a world does: what was let through before the fall arrives, later ones find the port
          // down.
          if (v.fate == Fate::kDeliver && (v.before_fall || !down)) ++passed;
          if ((v.actions & kActionsTx) != 0) {
            const std::lock_guard<std::mutex> lock(control);
            FaultAction action;
            while (NextAction(tx, 2000, &action)) {
              ++falls;
              down = true;
              FinishAction(tx, action);
            }
          }
        }
      });
    }
    for (std::thread& sender : senders) sender.join();
    EXPECT_EQ(falls, 1);
    EXPECT_EQ(passed, 500u);
  }
}

}  // namespace
}  // namespace railhop::rdma
