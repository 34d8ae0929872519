#include "cc/rdma_model/fault_judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/base/prng.h"
#include "cc/rdma_model/fault_test_util.h"

namespace railhop::rdma {
namespace {

// Sends one message; returns how many of its packets met `fate`.
uint32_t CountFate(Wire& wire, const Train& train, Fate fate, uint64_t now_ns = 2000) {
  uint32_t hits = 0;
  for (uint32_t at = 0; at < train.count;) {
    const Verdict verdict = wire.Send(Front(train, at, train.count - at), now_ns);
    if (verdict.fate == fate) hits += verdict.packets;
    at += verdict.packets;
  }
  return hits;
}

TEST(Judge, NoRules_WholeTrainPasses) {
  Wire wire;
  const Verdict verdict = wire.Send(wire.Message(256));
  EXPECT_EQ(verdict.packets, 256u);
  EXPECT_EQ(verdict.fate, Fate::kDeliver);
  EXPECT_EQ(wire.requests.packets, 256u);
  EXPECT_EQ(wire.requests.bytes, 256u * 1024);
  EXPECT_EQ(wire.requests.messages, 1u);
}

// ---- the same fates however packets are batched

struct EquivalenceCase {
  const char* tx;
  const char* rx;
};

class JudgeBatching : public testing::TestWithParam<EquivalenceCase> {};

TEST_P(JudgeBatching, AnyBatchSize_SamePacketsHit) {
  const std::vector<uint32_t> sizes = {1, 7, 256, 1, 33, 512, 2, 100};
  std::vector<std::vector<std::string>> runs;
  for (const uint32_t batch : {1u, 2u, 5u, 64u, 256u, 4096u, 0u}) {
    Wire wire(99, 3, 4);
    wire.requests.peer_order = 4;
    Apply(*wire.tx, GetParam().tx);
    if (GetParam().rx != nullptr) Apply(*wire.rx, GetParam().rx);
    Prng prng(5);
    std::vector<std::string> packets;
    for (int round = 0; round < 6; ++round) {
      for (const uint32_t size : sizes) {
        const auto limit = batch != 0 ? batch : static_cast<uint32_t>(1 + prng.Below(90));
        SendInBatches(wire, wire.Message(size), limit, &packets);
      }
    }
    runs.push_back(packets);
  }
  for (size_t i = 1; i < runs.size(); ++i) EXPECT_EQ(runs[i], runs[0]) << "batch number " << i;
}

INSTANTIATE_TEST_SUITE_P(
    All, JudgeBatching,
    testing::Values(EquivalenceCase{"loss 1% seed 7", nullptr},
                    EquivalenceCase{"loss 30%", "delay 5us jitter 3us 10%"},
                    EquivalenceCase{"duplicate 2%", "loss 2% seed 3"},
                    EquivalenceCase{"reorder by 4 5%", "loss packet 700"},
                    EquivalenceCase{"hold packet 17", nullptr},
                    EquivalenceCase{"loss packet 300 of qp 4", "duplicate count 12"},
                    EquivalenceCase{"blackhole after 1034 packets count 77", nullptr},
                    EquivalenceCase{"loss 5% after 1000000 bytes", "blackhole after 50 messages"},
                    EquivalenceCase{"loss after 300 packets of qp 4 count 20", "cap 1Gb/s"},
                    EquivalenceCase{"loss 1% count 9", "loss 1% count 9 seed 2"},
                    EquivalenceCase{"loss after 100KiB of qp 4 count 5", "hold 1%"},
                    EquivalenceCase{"down after 37 messages", "loss 0.5%"}));

TEST(Judge, SameSeed_SameHits_OtherSeedOthers) {
  const auto hits = [](uint64_t fabric_seed, uint32_t device, uint32_t order, const char* rule) {
    Wire wire(fabric_seed, device, order);
    Apply(*wire.tx, rule);
    std::vector<std::string> packets;
    SendInBatches(wire, wire.Message(5000), 5000, &packets);
    return packets;
  };
  const auto base = hits(1, 2, 3, "loss 10% seed 4");
  EXPECT_EQ(hits(1, 2, 3, "loss 10% seed 4"), base);
  EXPECT_NE(hits(2, 2, 3, "loss 10% seed 4"), base);
  EXPECT_NE(hits(1, 3, 3, "loss 10% seed 4"), base);
  EXPECT_NE(hits(1, 2, 4, "loss 10% seed 4"), base);
  EXPECT_NE(hits(1, 2, 3, "loss 10% seed 5"), base);
}

// ---- rates

TEST(Judge, Rates_WithinFiveSigma) {
  constexpr double kPackets = 100'000;
  for (const auto& [words, rate] : std::vector<std::pair<std::string, double>>{
           {"0.1%", 0.001}, {"1%", 0.01}, {"10%", 0.1}, {"50%", 0.5}, {"99%", 0.99}}) {
    Wire wire(77);
    Apply(*wire.tx, "loss " + words);
    uint32_t hits = 0;
    for (int i = 0; i < 100; ++i) hits += CountFate(wire, wire.Message(1000), Fate::kDrop);
    const double sigma = std::sqrt(kPackets * rate * (1 - rate));
    EXPECT_NEAR(hits, kPackets * rate, 5 * sigma) << words;
  }
}

TEST(Judge, HundredPercent_HitsAll) {
  Wire wire;
  Apply(*wire.tx, "loss 100%");
  const Verdict verdict = wire.Send(wire.Message(300));
  EXPECT_EQ(verdict.fate, Fate::kDrop);
  EXPECT_EQ(verdict.packets, 300u);
}

TEST(Judge, Jitter_StaysInRangeAndVaries) {
  Wire wire;
  Apply(*wire.tx, "delay 10us jitter 5us");
  std::vector<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const Verdict verdict = wire.Send(wire.Message(1));
    EXPECT_GE(verdict.delay_ns, 10'000u);
    EXPECT_LE(verdict.delay_ns, 15'000u);
    seen.push_back(verdict.delay_ns);
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_LT(seen[100], 11'500u);
  EXPECT_GT(seen[900], 13'500u);
}

// ---- directions and classes

TEST(Judge, BlackholeDirections_HitOnlyTheirs) {
  for (const auto& [words, request_lost, ack_lost] :
       std::vector<std::tuple<const char*, bool, bool>>{{"blackhole", true, true},
                                                        {"blackhole tx", true, false},
                                                        {"blackhole rx", false, true},
                                                        {"blackhole data", true, false},
                                                        {"blackhole acks", false, true},
                                                        {"blackhole tx acks", false, false},
                                                        {"blackhole rx acks", false, true}}) {
    Wire wire;
    Apply(*wire.tx, words);
    EXPECT_EQ(wire.Send(wire.Message(4)).fate == Fate::kDrop, request_lost) << words;
    EXPECT_EQ(wire.Ack().fate == Fate::kDrop, ack_lost) << words;
  }
}

TEST(Judge, ReadData_IsData) {
  Wire wire;
  Apply(*wire.rx, "loss packet 3 data");  // a request: READ's answers are not counted
  Apply(*wire.rx, "blackhole tx data after 10 packets sent");
  Response response;
  response.kind = ResponseKind::kReadData;
  response.count = 16;
  response.length = 16 * 4096;
  const Verdict first = JudgeResponse(*wire.rx, *wire.tx, response, wire.responses, 2000);
  EXPECT_EQ(first.fate, Fate::kDeliver);
  EXPECT_EQ(first.packets, 10u);
  response.count = 6;
  response.length = 6 * 4096;
  const Verdict second = JudgeResponse(*wire.rx, *wire.tx, response, wire.responses, 2000);
  EXPECT_EQ(second.fate, Fate::kDrop);
  EXPECT_EQ(second.packets, 6u);
  EXPECT_EQ(wire.Ack().fate, Fate::kDeliver);
}

TEST(Judge, QueuePairFilter_NamesTheQueuePairOfThatDevice) {
  Wire wire(1, 0, 5);
  wire.requests.peer_order = wire.responses.peer_order = 9;
  Apply(*wire.tx, "blackhole qp 5");
  EXPECT_EQ(wire.Send(wire.Message(1)).fate, Fate::kDrop);
  EXPECT_EQ(wire.Ack().fate, Fate::kDrop);
  Apply(*wire.tx, "clear");
  Apply(*wire.rx, "blackhole qp 5");
  EXPECT_EQ(wire.Send(wire.Message(1)).fate, Fate::kDeliver);
  Apply(*wire.rx, "blackhole qp 9");
  EXPECT_EQ(wire.Send(wire.Message(1)).fate, Fate::kDrop);
  EXPECT_EQ(wire.Ack().fate, Fate::kDrop);
}

// ---- triggers

TEST(Judge, DownAfterMessages_ExactlySoManyPass) {
  Wire wire;
  Apply(*wire.tx, "down after 1000 messages");
  uint32_t passed = 0;
  for (int i = 0; i < 1500; ++i) {
    const Verdict verdict = wire.Send(wire.Message(3));
    if (verdict.fate == Fate::kDeliver) ++passed;
    EXPECT_EQ(verdict.packets, 3u);
    EXPECT_EQ(verdict.before_fall, i < 1000) << i;
    EXPECT_EQ((verdict.actions & kActionsTx) != 0, i >= 999) << i;
    FaultAction action;
    EXPECT_EQ(NextAction(*wire.tx, 2000, &action), i >= 999) << i;
  }
  EXPECT_EQ(passed, 1000u);
  FaultAction action;
  ASSERT_TRUE(NextAction(*wire.tx, 2000, &action));
  EXPECT_EQ(action.spec.kind, FaultKind::kDown);
  FinishAction(*wire.tx, action);
  EXPECT_FALSE(NextAction(*wire.tx, 2000, &action));
  EXPECT_EQ(wire.tx->packet_rules.load(), 0u);
}

TEST(Judge, LostMessageSentAgain_CountsOnce) {
  Wire wire;
  Apply(*wire.tx, "loss packet 2");
  Apply(*wire.tx, "blackhole after 2 messages");
  const Train first = wire.Message(1);
  const Train second = wire.Message(1);
  EXPECT_EQ(wire.Send(first).fate, Fate::kDeliver);
  EXPECT_EQ(wire.Send(second).fate, Fate::kDrop);
  EXPECT_EQ(wire.Send(first).fate, Fate::kDeliver);   // again: already counted
  EXPECT_EQ(wire.Send(second).fate, Fate::kDeliver);  // now it is the second
  EXPECT_EQ(wire.Send(wire.Message(1)).fate, Fate::kDrop);
}

TEST(Judge, AfterPackets_SplitsTheTrain) {
  Wire wire;
  Apply(*wire.rx, "blackhole rx after 100 packets");
  const Verdict verdict = wire.Send(wire.Message(256));
  EXPECT_EQ(verdict.fate, Fate::kDeliver);
  EXPECT_EQ(verdict.packets, 100u);
}

TEST(Judge, AfterBytes_PacketThatReachesItPasses) {
  Wire wire;
  Apply(*wire.tx, "blackhole after 2049 bytes");
  EXPECT_EQ(wire.Send(wire.Message(10)).packets, 3u);  // of 1024 bytes
}

TEST(Judge, AfterReceived_DoesNotCountSent) {
  Wire wire;
  Apply(*wire.tx, "blackhole after 1 messages received");
  Apply(*wire.rx, "blackhole after 3 messages received");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(wire.Send(wire.Message(1)).fate, Fate::kDeliver);
  const Verdict verdict = wire.Send(wire.Message(1));
  EXPECT_EQ(verdict.fate, Fate::kDrop);
  EXPECT_EQ(verdict.side, FaultDirection::kRx);
}

TEST(Judge, TriggerOfQueuePair_CountsFromItsCreation) {
  Wire wire(1, 0, 2);
  for (int i = 0; i < 50; ++i) wire.Send(wire.Message(1));
  Apply(*wire.tx, "blackhole after 60 messages of qp 2");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(wire.Send(wire.Message(1)).fate, Fate::kDeliver);
  EXPECT_EQ(wire.Send(wire.Message(1)).fate, Fate::kDrop);
  // A port's count starts at the command.
  Wire port(1, 0, 2);
  for (int i = 0; i < 50; ++i) port.Send(port.Message(1));
  Apply(*port.tx, "blackhole after 60 messages");
  for (int i = 0; i < 60; ++i) EXPECT_EQ(port.Send(port.Message(1)).fate, Fate::kDeliver);
  EXPECT_EQ(port.Send(port.Message(1)).fate, Fate::kDrop);
}

TEST(Judge, AtAndFor_BoundTheTime) {
  Wire wire;
  Apply(*wire.tx, "blackhole at 5us for 2us", 1000, 100);
  EXPECT_EQ(wire.Send(wire.Message(1), 5099).fate, Fate::kDeliver);
  EXPECT_EQ(wire.Send(wire.Message(1), 5100).fate, Fate::kDrop);
  EXPECT_EQ(wire.Send(wire.Message(1), 7099).fate, Fate::kDrop);
  EXPECT_EQ(wire.Send(wire.Message(1), 7100).fate, Fate::kDeliver);
}

TEST(Judge, AfterThenFor_CountsFromTheTrigger) {
  Wire wire;
  Apply(*wire.tx, "blackhole after 1 messages for 1us");
  EXPECT_EQ(wire.Send(wire.Message(1), 50'000).fate, Fate::kDeliver);
  EXPECT_EQ(wire.Send(wire.Message(1), 50'999).fate, Fate::kDrop);
  EXPECT_EQ(wire.Send(wire.Message(1), 51'000).fate, Fate::kDeliver);
}

TEST(Judge, Count_ExactlySoManyPackets) {
  Wire wire;
  Apply(*wire.tx, "loss count 10");
  EXPECT_EQ(CountFate(wire, wire.Message(64), Fate::kDrop), 10u);
  EXPECT_EQ(CountFate(wire, wire.Message(64), Fate::kDrop), 0u);
  Wire rated;
  Apply(*rated.tx, "loss 50% count 10");
  EXPECT_EQ(CountFate(rated, rated.Message(200), Fate::kDrop), 10u);
}

// ---- fates

TEST(Judge, HoldPacket_ReleasedByCommand) {
  Wire wire(1, 0, 3);
  Apply(*wire.tx, "hold packet 17 of qp 3");
  const Train train = wire.Message(64);
  EXPECT_EQ(wire.Send(train).packets, 16u);
  const Verdict held = wire.Send(Front(train, 16, 48));
  EXPECT_EQ(held.fate, Fate::kHold);
  EXPECT_EQ(held.packets, 1u);
  EXPECT_EQ(wire.Send(Front(train, 17, 47)).packets, 47u);
  EXPECT_FALSE(HoldReleased(*wire.tx, held.hold_ticket, 1'000'000'000));
  EXPECT_EQ(ReapFaults(*wire.tx, 1'000'000'000), 0);
  Apply(*wire.tx, "release");
  EXPECT_TRUE(HoldReleased(*wire.tx, held.hold_ticket, 1'000'000'000));
  Apply(*wire.tx, "hold");  // in the same slot: still released
  EXPECT_TRUE(HoldReleased(*wire.tx, held.hold_ticket, 1'000'000'000));
}

TEST(Judge, HoldNext_OnePacket_ForEndsIt) {
  Wire wire;
  Apply(*wire.tx, "hold next for 1ms", 1000);
  const Verdict held = wire.Send(wire.Message(8));
  EXPECT_EQ(held.fate, Fate::kHold);
  EXPECT_EQ(held.packets, 1u);
  EXPECT_FALSE(HoldReleased(*wire.tx, held.hold_ticket, 1'000'999));
  EXPECT_TRUE(HoldReleased(*wire.tx, held.hold_ticket, 1'001'000));
  EXPECT_EQ(NextFaultDeadline(*wire.tx, 2000), 1'001'000u);
}

TEST(Judge, CompleteAfterMessages_NextOneOnce) {
  Wire wire;
  Apply(*wire.tx, "complete status 12 vendor 129 after 100 messages");
  for (int i = 0; i < 100; ++i) ASSERT_EQ(wire.Send(wire.Message(2)).fate, Fate::kDeliver);
  const Train hit = wire.Message(2);
  const Verdict verdict = wire.Send(hit);
  EXPECT_EQ(verdict.fate, Fate::kFail);
  EXPECT_EQ(verdict.status, WcStatus::kRetryExcErr);
  EXPECT_EQ(verdict.vendor_err, 129u);
  EXPECT_EQ(verdict.victim, Victim::kRequester);
  EXPECT_EQ(wire.Send(hit).fate, Fate::kDeliver);
}

TEST(Judge, VictimFollowsTheSide) {
  for (const auto& [words, on_tx, fate, victim] :
       std::vector<std::tuple<const char*, bool, Fate, Victim>>{
           {"kill", true, Fate::kKill, Victim::kRequester},
           {"kill", false, Fate::kKill, Victim::kResponder},
           {"kill rx", true, Fate::kDeliver, Victim::kRequester},
           {"wedge", true, Fate::kWedge, Victim::kRequester},
           {"wedge rx", false, Fate::kWedge, Victim::kResponder},
           {"complete status 5", false, Fate::kDeliver, Victim::kRequester},
           {"complete status 5 rx", false, Fate::kFail, Victim::kResponder}}) {
    Wire wire;
    Apply(on_tx ? *wire.tx : *wire.rx, words);
    const Verdict verdict = wire.Send(wire.Message(1));
    EXPECT_EQ(verdict.fate, fate) << words;
    EXPECT_EQ(verdict.victim, victim) << words;
  }
}

TEST(Judge, SeveralFaults_WorstWins_DelaysAdd_SmallestCap) {
  Wire wire;
  Apply(*wire.tx, "delay 10us");
  Apply(*wire.rx, "delay 5us");
  Apply(*wire.tx, "cap 10Gb/s");
  Apply(*wire.tx, "cap 1Gb/s");
  Apply(*wire.rx, "cap 2Gb/s");
  Apply(*wire.tx, "duplicate");
  Verdict verdict = wire.Send(wire.Message(4));
  EXPECT_EQ(verdict.delay_ns, 15'000u);
  EXPECT_EQ(verdict.copies, 2u);
  EXPECT_EQ(verdict.tx_cap_bps, 1'000'000'000u);
  EXPECT_EQ(verdict.rx_cap_bps, 2'000'000'000u);
  Apply(*wire.rx, "loss");
  EXPECT_EQ(wire.Send(wire.Message(4)).fate, Fate::kDrop);
  Apply(*wire.tx, "wedge");
  EXPECT_EQ(wire.Send(wire.Message(4)).fate, Fate::kWedge);
}

TEST(Judge, Unwritten_MarksRequestsThatGetThrough) {
  Wire wire;
  Apply(*wire.rx, "unwritten after 1 messages");
  EXPECT_FALSE(wire.Send(wire.Message(1)).unwritten);
  const Verdict verdict = wire.Send(wire.Message(4));
  EXPECT_TRUE(verdict.unwritten);
  EXPECT_EQ(verdict.fate, Fate::kDeliver);
  Apply(*wire.tx, "loss");
  EXPECT_FALSE(wire.Send(wire.Message(4)).unwritten);
}

TEST(Judge, LostPacket_DoesNotUseUpOtherRules) {
  Wire wire;
  Apply(*wire.tx, "duplicate count 1");
  Apply(*wire.rx, "loss count 5");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(wire.Send(wire.Message(1)).fate, Fate::kDrop);
  EXPECT_EQ(wire.Send(wire.Message(1)).copies, 2u);
  EXPECT_EQ(wire.Send(wire.Message(1)).copies, 1u);
}

TEST(Judge, OnePortBothWays_CountsOnce) {
  Wire wire;
  Apply(*wire.tx, "blackhole after 10 messages");
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Judge(*wire.tx, *wire.tx, wire.Message(1), wire.requests, 2000).fate, Fate::kDeliver);
  }
  EXPECT_EQ(Judge(*wire.tx, *wire.tx, wire.Message(1), wire.requests, 2000).fate, Fate::kDrop);
}

TEST(Judge, SixtyFourRules_AllConsulted) {
  Wire wire;
  for (int i = 0; i < 63; ++i) Apply(*wire.tx, "delay 1us");
  Apply(*wire.tx, "loss packet 5");
  EXPECT_EQ(ApplyFault(Spec("loss"), {1000, 0}, *wire.tx), ApplyResult::kFull);
  const Verdict verdict = wire.Send(wire.Message(10));
  EXPECT_EQ(verdict.packets, 4u);
  EXPECT_EQ(verdict.delay_ns, 63'000u);
}

}  // namespace
}  // namespace railhop::rdma
