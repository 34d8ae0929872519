// A bad network below: packets get lost, come late, come twice or out of order. A reliable
// connection hides all of it: every byte is right, every receive is taken once and in order, every
// atomic is carried out once.
#include <string.h>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

constexpr size_t kBytes = 2500;  // three packets

// Posts rounds of everything and checks them one by one.
class Traffic {
 public:
  explicit Traffic(World& world)
      : world_(world),
        pair_(world, {}, {.timeout = 14, .retry_count = 6, .rnr_retry = 6}),
        source_(pair_.first.NewRegion(kBytes)),
        back_(pair_.first.NewRegion(kBytes)),
        old_(pair_.first.NewRegion(8)),
        sink_(pair_.second.NewRegion(kBytes)),
        target_(pair_.second.NewRegion(kBytes)),
        word_(pair_.second.NewRegion(8)) {}

  void Round(uint32_t round) {
    source_.buffer->Fill(round);
    pair_.second.MustRecv(round, {sink_.Sge(0, kBytes)});
    std::vector<ibv_sge> out = {source_.Sge(0, kBytes)}, in = {back_.Sge(0, kBytes)};
    std::vector<ibv_sge> result = {old_.Sge(0, 8)};
    const Side& first = pair_.first;
    first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 0, out, target_.addr(), target_.mr->rkey));
    first.MustSend(
        AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, result, word_.addr(), word_.mr->rkey, 1, 0));
    first.MustSend(SendWr(IBV_WR_SEND, 2, out));
    first.MustSend(RdmaWr(IBV_WR_RDMA_READ, 3, in, target_.addr(), target_.mr->rkey));
    for (uint64_t i = 0; i < 4; ++i) {
      ExpectCompletion(world_, first.send_cq, i, IBV_WC_SUCCESS, 20);
    }
    const ibv_wc wc = ExpectCompletion(world_, pair_.second.recv_cq, round, IBV_WC_SUCCESS);
    ExpectEq(wc.byte_len, kBytes, "byte_len");
    for (const Region* region : {&target_, &sink_, &back_}) {
      region->buffer->ExpectPattern(0, kBytes, round);
      memset(region->data(), 0, kBytes);
    }
    ExpectEq(*reinterpret_cast<uint64_t*>(old_.data()), round, "the word before the addition");
    ExpectEq(*reinterpret_cast<uint64_t*>(word_.data()), round + 1, "the word after it");
  }

  // Nothing comes behind the last one.
  void ExpectNothingElse() {
    ExpectQuiet(world_, pair_.second.recv_cq, 0.1);
    ExpectQuiet(world_, pair_.first.send_cq, 0);
    for (const Region* region : {&target_, &sink_}) {
      for (size_t i = 0; i < kBytes; ++i) ExpectEq(region->data()[i], 0, "a byte written late");
    }
  }

 private:
  World& world_;
  Pair pair_;
  Region source_, back_, old_, sink_, target_, word_;
};

// Each word of `faults` is in force at the second device meanwhile.
void Run(World& world, const std::vector<std::string>& faults, uint32_t rounds) {
  Traffic traffic(world);
  for (const std::string& fault : faults) world.Fault(world.second_device(), fault);
  for (uint32_t round = 0; round < rounds; ++round) traffic.Round(round);
  world.Fault(world.second_device(), "clear");
  traffic.ExpectNothingElse();
}

// A long message of which some packets are lost each time still arrives whole.
void LongMessages(World& world) {
  constexpr size_t kLong = 500000;
  Pair pair(world, {}, {.timeout = 14, .retry_count = 6});
  Region source = pair.first.NewRegion(kLong), target = pair.second.NewRegion(kLong);
  std::vector<ibv_sge> list = {source.Sge(0, kLong)};
  world.Fault(world.second_device(), "loss 1%");
  for (uint32_t i = 0; i < 5; ++i) {
    source.buffer->Fill(i);
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, i, list, target.addr(), target.mr->rkey));
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS, 30);
    target.buffer->ExpectPattern(0, kLong, i);
  }
  world.Fault(world.second_device(), "clear");
}

// On an unreliable connection a message arrives whole or not at all, and never out of order.
void UnreliableWholeOrNot(World& world) {
  Pair pair(world, {.type = IBV_QPT_UC, .recv_wr = 128}, {});
  constexpr uint32_t kCount = 100;
  Region source = pair.first.NewRegion(kBytes), sink = pair.second.NewRegion(kBytes * kCount);
  std::vector<ibv_sge> list = {source.Sge(0, kBytes)};
  for (uint32_t i = 0; i < kCount; ++i) pair.second.MustRecv(i, {sink.Sge(i * kBytes, kBytes)});
  world.Fault(world.second_device(), "loss 10%");
  uint64_t next = 0;
  uint32_t after = 0;  // messages below this number have arrived or never will
  for (uint32_t i = 0; i < kCount; ++i) {
    source.buffer->Fill(i);
    ibv_send_wr wr = SendWr(IBV_WR_SEND_WITH_IMM, i, list);
    wr.imm_data = i;
    pair.first.MustSend(wr);
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
    world.Pass(0.002);
    ibv_wc wc = {};
    while (world.v.poll_cq(pair.second.recv_cq, 1, &wc) == 1) {
      ExpectEq(+wc.status, +IBV_WC_SUCCESS, "status of a receive");
      ExpectEq(wc.wr_id, next++, "receives in order");
      ExpectTrue(wc.imm_data >= after && wc.imm_data <= i, "messages in order");
      sink.buffer->ExpectPattern(wc.wr_id * kBytes, kBytes, wc.imm_data);
      after = wc.imm_data + 1;
    }
  }
  world.Fault(world.second_device(), "clear");
  ExpectTrue(next > kCount / 4, "some messages arrive");
  ExpectTrue(next < kCount, "some are lost");
}

}  // namespace

std::vector<Case> LossyCases() {
  const std::vector<std::string> loss = {"fault.loss", "atomics"};
  const std::vector<std::string> disorder = {"fault.disorder", "atomics"};
  const char* const clause = "IBTA 9.7.1, 9.7.5.1 (reliable: exactly once, in order)";
  return {
      {"Lossy.TwoPercentLost_ExactlyOnceInOrder", clause, loss,
       [](World& w) { Run(w, {"loss 2%"}, 60); }},
      {"Lossy.Delay_ExactlyOnceInOrder", clause, loss, [](World& w) { Run(w, {"delay 2ms"}, 30); }},
      {"Lossy.LongMessages_ArriveWhole", clause, {"fault.loss"}, LongMessages},
      {"Lossy.Duplicates_ExactlyOnceInOrder", "IBTA 9.7.1.1 (duplicate requests)", disorder,
       [](World& w) { Run(w, {"duplicate 30%"}, 200); }},
      {"Lossy.Reordering_ExactlyOnceInOrder", "IBTA 9.7.5.2.1", disorder,
       [](World& w) { Run(w, {"reorder 20%"}, 100); }},
      {"Lossy.AllAtOnce_ExactlyOnceInOrder", clause, disorder,
       [](World& w) {
         Run(w, {"loss 2%", "duplicate 10%", "reorder 10%", "delay 100us jitter 300us"}, 60);
       }},
      {"Lossy.UnreliableConnection_WholeOrNotAtAll",
       "IBTA 9.8.2",
       {"fault.loss", "uc"},
       UnreliableWholeOrNot},
  };
}

}  // namespace railhop::conformance
