#include "cc/rdma_model/responder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace railhop::rdma {
namespace {

constexpr uint32_t kMtu = 256;
constexpr uint32_t kRkey = 77;
constexpr uint32_t kLkey = 78;
constexpr uint64_t kTarget = 0x1000;  // remote address of memory[0]
constexpr uint32_t kPsn = 0xfffffe;   // so that every test crosses the wrap

// One queue pair in RTS with 4 KiB of memory, and messages from its peer.
class ResponderTest : public testing::Test, public ResponderEnv {
 protected:
  ResponderTest() : memory(4096, 0), ring_bytes(8 * RecvWqeBytes(4)), peer(4096) {
    std::iota(peer.begin(), peer.end(), 1);
    ring.capacity = 8;
    ring.max_sge = 4;
    state.state = static_cast<uint8_t>(QpState::kRts);
    state.type = QpType::kRc;
    state.qpn = 5;
    state.dest_qpn = 9;
    state.access = kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
    state.pd = 3;
    state.expected_psn = kPsn;
    state.mtu = kMtu;
    state.min_rnr_timer = 12;
    regions = {{kRkey, 15, 3, kTarget, 4096, 0}, {kLkey, 1, 3, kTarget, 4096, 0}};
  }

  const MemoryRegion* FindRegion(uint32_t key) override {
    for (const MemoryRegion& region : regions) {
      if (region.key == key) return &region;
    }
    return nullptr;
  }
  bool CopyIn(uint64_t va, uint32_t offset, uint32_t length) override {
    if (memory_gone) return false;
    std::memcpy(memory.data() + va, peer.data() + payload_offset + offset, length);
    copied += length;
    return true;
  }
  bool Atomic(const Train& train, uint64_t va, uint64_t* original) override {
    std::memcpy(original, memory.data() + va, 8);
    const bool add = train.opcode == Opcode::kFetchAdd;
    uint64_t value = add ? *original + train.compare_add : train.swap;
    if (add || *original == train.compare_add) std::memcpy(memory.data() + va, &value, 8);
    return true;
  }
  bool CompleteReceive(const Completion& completion, uint64_t) override {
    if (cq_full) return false;
    completions.push_back(completion);
    return true;
  }
  bool ReceiveReported(uint64_t) override { return reported; }
  void RaiseEvent(AsyncEvent event) override { events.push_back(event); }
  void EnteredError() override { ++errors; }

  // A message of `length` bytes from the start of the peer's memory, as one train.
  Train Message(Opcode opcode, uint32_t length, uint32_t psn) {
    Train t;
    t.src_qpn = 9;
    t.dst_qpn = 5;
    t.type = state.type;
    t.opcode = opcode;
    t.psn = psn & kPsnMask;
    t.mtu = kMtu;
    t.length = t.message_length = length;
    t.count = opcode == Opcode::kRead ? 1 : PacketCount(length, kMtu);
    t.rkey = kRkey;
    t.remote_addr = kTarget;
    t.imm_data = 4711;
    return t;
  }
  Response Take(const Train& train) {
    payload_offset = train.offset;
    return Responder(&state, RecvRing(&ring, ring_bytes.data()), this).OnTrain(train);
  }
  void PostReceive(uint64_t wr_id, std::vector<Sge> sges) {
    RecvRing view(&ring, ring_bytes.data());
    view.Back()->wr_id = wr_id;
    view.Back()->sge_count = static_cast<uint32_t>(sges.size());
    std::copy(sges.begin(), sges.end(), view.Back()->sges());
    view.Publish();
  }
  bool Holds(uint32_t bytes) const { return std::memcmp(memory.data(), peer.data(), bytes) == 0; }
  QpState qp_state() const { return static_cast<QpState>(state.state.load()); }

  ResponderState state{};
  RecvRingState ring{};
  std::vector<uint8_t> memory;
  std::vector<char> ring_bytes;
  std::vector<uint8_t> peer;
  std::vector<MemoryRegion> regions;
  std::vector<Completion> completions;
  std::vector<AsyncEvent> events;
  uint32_t payload_offset = 0, copied = 0;
  int errors = 0;
  bool cq_full = false, reported = false, memory_gone = false;
};

using K = ResponseKind;

TEST_F(ResponderTest, Write_LandsAndIsAcknowledgedAtItsLastPacket) {
  const Response r = Take(Message(Opcode::kWrite, 700, kPsn));
  EXPECT_EQ(r.kind, K::kAck);
  EXPECT_EQ(r.psn, 0u);  // fffffe, ffffff, 0
  EXPECT_EQ(r.dst_qpn, 9u);
  EXPECT_TRUE(Holds(700));
  EXPECT_TRUE(completions.empty());
}

TEST_F(ResponderTest, UnwrittenMessage_IsAcknowledgedAndSoAreAllBehindIt) {
  PostReceive(1, {});
  PostReceive(2, {});
  Train lost = Message(Opcode::kWriteImm, 700, kPsn);
  lost.unwritten = true;
  EXPECT_EQ(Take(lost).kind, K::kAck);
  const Response r = Take(Message(Opcode::kWriteImm, 100, kPsn + 3));
  EXPECT_EQ(r.kind, K::kAck);
  EXPECT_EQ(r.psn, 1u);
  EXPECT_EQ(copied, 0u);
  EXPECT_TRUE(completions.empty());
}

TEST_F(ResponderTest, DuplicateWrite_IsAcknowledgedNotExecuted) {
  Take(Message(Opcode::kWrite, 700, kPsn));
  memory[0] = 99;
  const Response r = Take(Message(Opcode::kWrite, 700, kPsn));
  EXPECT_EQ(r.kind, K::kAck);
  EXPECT_EQ(r.psn, 0u);
  EXPECT_EQ(memory[0], 99);
}

TEST_F(ResponderTest, PartlyDuplicateTrain_ExecutesOnlyTheNewEnd) {
  Train whole = Message(Opcode::kWrite, 1024, kPsn);
  const Train resent = whole;
  Take(whole.TakeFront(2));
  memory[0] = 99;
  copied = 0;
  const Response r = Take(resent);
  EXPECT_EQ(r.kind, K::kAck);
  EXPECT_EQ(r.psn, PsnAdd(kPsn, 3));
  EXPECT_EQ(copied, 512u);
  EXPECT_EQ(memory[0], 99);
  memory[0] = peer[0];
  EXPECT_TRUE(Holds(1024)) << "bytes of the new end are taken from the right place of the train";
}

TEST_F(ResponderTest, PartlyDuplicateSend_ScattersTheNewEndBehindTheOld) {
  PostReceive(1, {{kTarget, 300, kLkey}, {kTarget + 300, 900, kLkey}});
  Train whole = Message(Opcode::kSend, 1000, kPsn);
  const Train resent = whole;
  Take(whole.TakeFront(1));
  EXPECT_EQ(Take(resent).kind, K::kAck);
  EXPECT_TRUE(Holds(1000));
  EXPECT_EQ(memory[1000], 0);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].byte_len, 1000u);
}

TEST_F(ResponderTest, Gap_IsRefusedOnceUntilTheExpectedPacketComes) {
  Response r = Take(Message(Opcode::kWrite, 10, kPsn + 1));
  EXPECT_EQ(r.kind, K::kNakSequence);
  EXPECT_EQ(r.psn, kPsn);
  EXPECT_EQ(Take(Message(Opcode::kWrite, 10, kPsn + 2)).kind, K::kNone);
  EXPECT_EQ(copied, 0u);
  EXPECT_EQ(Take(Message(Opcode::kWrite, 10, kPsn)).kind, K::kAck);
  EXPECT_EQ(Take(Message(Opcode::kWrite, 10, kPsn + 3)).kind, K::kNakSequence);
}

TEST_F(ResponderTest, SendWithoutReceive_IsNotReadyAndNothingBehindIsRefused) {
  Response r = Take(Message(Opcode::kSend, 600, kPsn));
  EXPECT_EQ(r.kind, K::kRnrNak);
  EXPECT_EQ(r.psn, kPsn);
  EXPECT_EQ(r.rnr_timer, 12u);
  EXPECT_EQ(Take(Message(Opcode::kWrite, 10, kPsn + 3)).kind, K::kNone);
  PostReceive(1, {{kTarget, 600, kLkey}});
  EXPECT_EQ(Take(Message(Opcode::kSend, 600, kPsn)).kind, K::kAck);
  EXPECT_EQ(completions.size(), 1u);
}

TEST_F(ResponderTest, WriteImmWithoutReceive_HoldsBackItsLastPacketAlone) {
  Train whole = Message(Opcode::kWriteImm, 600, kPsn);
  Response r = Take(whole);
  EXPECT_EQ(r.kind, K::kRnrNak);
  EXPECT_EQ(r.psn, PsnAdd(kPsn, 2));
  EXPECT_EQ(copied, 512u);
  PostReceive(1, {});
  (void)whole.TakeFront(2);
  EXPECT_EQ(Take(whole).kind, K::kAck);
  EXPECT_TRUE(Holds(600));
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].opcode, WcOpcode::kRecvWriteImm);
  EXPECT_EQ(completions[0].byte_len, 600u);
  EXPECT_EQ(completions[0].imm_data, 4711u);
}

TEST_F(ResponderTest, WriteImmOfOnePacketWithoutReceive_BeginsAnew) {
  EXPECT_EQ(Take(Message(Opcode::kWriteImm, 0, kPsn)).kind, K::kRnrNak);
  PostReceive(1, {});
  EXPECT_EQ(Take(Message(Opcode::kWriteImm, 0, kPsn)).kind, K::kAck);
  EXPECT_EQ(completions.size(), 1u);
}

TEST_F(ResponderTest, Read_IsAnsweredAndAnsweredAgainFromTheMiddle) {
  Response r = Take(Message(Opcode::kRead, 1000, kPsn));
  EXPECT_EQ(r.kind, K::kReadData);
  EXPECT_EQ(r.count, 4u);
  EXPECT_EQ(r.length, 1000u);
  Train middle = Message(Opcode::kRead, 1000, kPsn + 2);
  middle.offset = 512;
  middle.length = 488;
  r = Take(middle);
  EXPECT_EQ(r.kind, K::kReadData);
  EXPECT_EQ(r.psn, PsnAdd(kPsn, 2));
  EXPECT_EQ(r.count, 2u);
  EXPECT_EQ(r.remote_addr, 512u);
  EXPECT_EQ(Take(Message(Opcode::kWrite, 1, kPsn + 4)).kind, K::kAck);
}

TEST_F(ResponderTest, DuplicateReadOfRevokedKey_IsNotAnswered) {
  Take(Message(Opcode::kRead, 100, kPsn));
  regions.clear();
  EXPECT_EQ(Take(Message(Opcode::kRead, 100, kPsn)).kind, K::kNone);
  EXPECT_EQ(qp_state(), QpState::kRts);
}

TEST_F(ResponderTest, DuplicateAtomic_RepeatsTheFirstAnswerAndAddsOnce) {
  Train add = Message(Opcode::kFetchAdd, 8, kPsn);
  add.compare_add = 5;
  EXPECT_EQ(Take(add).atomic_original, 0u);
  const Response again = Take(add);
  EXPECT_EQ(again.kind, K::kAtomicResult);
  EXPECT_EQ(again.atomic_original, 0u);
  EXPECT_EQ(memory[0], 5);
  // The oldest of more answers than are kept is gone: silence, never a wrong answer.
  for (uint32_t i = 1; i <= kAtomicReplays; ++i) {
    add.psn = PsnAdd(kPsn, i);
    EXPECT_EQ(Take(add).atomic_original, uint64_t{i} * 5);
  }
  add.psn = kPsn;
  EXPECT_EQ(Take(add).kind, K::kNone);
}

TEST_F(ResponderTest, CompareSwapThatDiffers_ChangesNothing) {
  Train swap = Message(Opcode::kCompareSwap, 8, kPsn);
  swap.compare_add = 1;
  swap.swap = 2;
  EXPECT_EQ(Take(swap).kind, K::kAtomicResult);
  EXPECT_EQ(memory[0], 0);
}

TEST_F(ResponderTest, DuplicateAtomic_AfterTheNumbersCameRound_RepeatsTheNewestAnswer) {
  Train add = Message(Opcode::kFetchAdd, 8, kPsn);
  add.compare_add = 3;
  const uint64_t first = Take(add).atomic_original;
  state.expected_psn = kPsn;  // 2^24 packets later
  EXPECT_EQ(Take(add).atomic_original, first + 3);
  EXPECT_EQ(Take(add).atomic_original, first + 3);  // a duplicate
}

TEST_F(ResponderTest, ReadInSmallerPackets_IsAnsweredInSuch) {
  state.mtu = 4 * kMtu;
  Train read = Message(Opcode::kRead, 1024, kPsn);
  EXPECT_EQ(Take(read).count, 4u);
  const Response again = Take(read);
  EXPECT_EQ(again.count, 4u);
  EXPECT_EQ(again.mtu, kMtu);  // it is cut by that
}

TEST_F(ResponderTest, MisalignedAtomic_IsInvalid) {
  Train add = Message(Opcode::kFetchAdd, 8, kPsn);
  add.remote_addr += 4;
  EXPECT_EQ(Take(add).kind, K::kNakInvalidRequest);
}

TEST_F(ResponderTest, SendLongerThanReceive_FailsBothEnds) {
  PostReceive(1, {{kTarget, 300, kLkey}});
  PostReceive(2, {});
  const Response r = Take(Message(Opcode::kSend, 301, kPsn));
  EXPECT_EQ(r.kind, K::kNakInvalidRequest);
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0].status, WcStatus::kLocLenErr);
  EXPECT_EQ(completions[0].wr_id, 1u);
  EXPECT_EQ(completions[1].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(qp_state(), QpState::kErr);
  EXPECT_EQ(memory[300], 0);
  EXPECT_EQ(errors, 1);
}

TEST_F(ResponderTest, ReceiveIntoForeignMemory_FailsAsRemoteOperational) {
  PostReceive(1, {{kTarget, 300, 12345}});
  EXPECT_EQ(Take(Message(Opcode::kSend, 10, kPsn)).kind, K::kNakRemoteOperational);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, WcStatus::kLocProtErr);
}

TEST_F(ResponderTest, BadKeyRangeOrDomain_IsRefusedWithoutAByte) {
  const auto refused = [&](auto change) {
    state.state = static_cast<uint8_t>(QpState::kRts);
    state.message_open = false;
    Train t = Message(Opcode::kWrite, 600, kPsn);
    change(t);
    return Take(t).kind;
  };
  EXPECT_EQ(refused([](Train& t) { t.rkey = 1; }), K::kNakRemoteAccess);
  EXPECT_EQ(refused([](Train& t) { t.remote_addr += 4096 - 599; }), K::kNakRemoteAccess);
  EXPECT_EQ(refused([](Train& t) { t.remote_addr -= 1; }), K::kNakRemoteAccess);
  EXPECT_EQ(refused([](Train& t) { t.rkey = kLkey; }), K::kNakRemoteAccess);  // no remote right
  EXPECT_EQ(refused([&](Train&) { state.pd = 4; }), K::kNakRemoteAccess);
  EXPECT_EQ(copied, 0u);
  EXPECT_EQ(events.back(), AsyncEvent::kQpAccessErr);
}

TEST_F(ResponderTest, KindOfRequestThatIsNotEnabled_IsInvalid) {
  for (const Opcode opcode : {Opcode::kWrite, Opcode::kRead, Opcode::kFetchAdd}) {
    state.state = static_cast<uint8_t>(QpState::kRts);
    state.message_open = false;
    state.access = 0;
    EXPECT_EQ(Take(Message(opcode, 8, kPsn)).kind, K::kNakInvalidRequest)
        << static_cast<int>(opcode);
    EXPECT_EQ(events.back(), AsyncEvent::kQpReqErr);
  }
}

TEST_F(ResponderTest, EmptyWriteWithJunkKey_IsFine) {
  Train t = Message(Opcode::kWrite, 0, kPsn);
  t.rkey = 1;
  EXPECT_EQ(Take(t).kind, K::kAck);
}

TEST_F(ResponderTest, KeyRevokedInTheMiddle_StopsTheMessage) {
  Train rest = Message(Opcode::kWrite, 1024, kPsn);
  Take(rest.TakeFront(2));
  regions.clear();
  EXPECT_EQ(Take(rest).kind, K::kNakRemoteAccess);
  EXPECT_EQ(copied, 512u);
}

TEST_F(ResponderTest, MessageInsideAnother_IsInvalid) {
  Train rest = Message(Opcode::kWrite, 1024, kPsn);
  Take(rest.TakeFront(2));
  EXPECT_EQ(Take(Message(Opcode::kWrite, 10, kPsn + 2)).kind, K::kNakInvalidRequest);
}

TEST_F(ResponderTest, OtherMtuThanOurs_IsInvalidWhereItCuts) {
  Train t = Message(Opcode::kWrite, 1024, kPsn);
  t.mtu = 512;
  t.count = 2;
  EXPECT_EQ(Take(t).kind, K::kNakInvalidRequest);
}

TEST_F(ResponderTest, NoRoomForTheCompletion_BreaksTheQueuePair) {
  PostReceive(1, {});
  cq_full = true;
  EXPECT_EQ(Take(Message(Opcode::kSend, 0, kPsn)).kind, K::kNakRemoteOperational);
  EXPECT_EQ(qp_state(), QpState::kErr);
  EXPECT_EQ(events.back(), AsyncEvent::kQpFatal);
}

TEST_F(ResponderTest, StrangersAndWrongStates_GetNoAnswer) {
  Train stranger = Message(Opcode::kWrite, 10, kPsn);
  stranger.src_qpn = 8;
  EXPECT_EQ(Take(stranger).kind, K::kNone);
  for (const QpState s : {QpState::kReset, QpState::kInit, QpState::kErr}) {
    state.state = static_cast<uint8_t>(s);
    EXPECT_EQ(Take(Message(Opcode::kWrite, 10, kPsn)).kind, K::kNone);
  }
  EXPECT_EQ(copied, 0u);
}

TEST_F(ResponderTest, FirstPacketInRtr_EstablishesCommunicationOnce) {
  state.state = static_cast<uint8_t>(QpState::kRtr);
  Take(Message(Opcode::kWrite, 1, kPsn));
  Take(Message(Opcode::kWrite, 1, kPsn + 1));
  EXPECT_EQ(events, (std::vector<AsyncEvent>{AsyncEvent::kCommEst}));
}

TEST_F(ResponderTest, OldIncarnationsPacket_IsADuplicateAtWorst) {
  // A packet from before a RESET, with a number a little behind the new start: acknowledged with
  // what the new requester cannot take for its own, and not executed.
  const Response r = Take(Message(Opcode::kWrite, 10, kPsn - 100));
  EXPECT_EQ(r.kind, K::kAck);
  EXPECT_EQ(r.psn, PsnAdd(kPsn, kPsnMask));
  EXPECT_EQ(copied, 0u);
}

TEST_F(ResponderTest, DeathBetweenReportAndPop_ReportsOnce) {
  PostReceive(1, {});
  PostReceive(2, {});
  reported = true;
  Responder(&state, RecvRing(&ring, ring_bytes.data()), this).Recover();
  EXPECT_EQ(ring.head, 1u);
}

class UcResponderTest : public ResponderTest {
 protected:
  UcResponderTest() { state.type = QpType::kUc; }
};

TEST_F(UcResponderTest, LostMiddle_LosesThatMessageAlone) {
  PostReceive(1, {{kTarget, 2048, kLkey}});
  Train rest = Message(Opcode::kSendImm, 1024, kPsn);
  EXPECT_EQ(Take(rest.TakeFront(1)).kind, K::kNone);
  (void)rest.TakeFront(1);  // lost
  Take(rest);
  EXPECT_TRUE(completions.empty());
  Take(Message(Opcode::kSendImm, 700, kPsn + 4));
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].wr_id, 1u) << "the receive of the lost message is used by the next";
  EXPECT_EQ(completions[0].byte_len, 700u);
  EXPECT_TRUE(Holds(700));
}

TEST_F(UcResponderTest, LostEndThenNewMessage_DoesNotMixThem) {
  Train first = Message(Opcode::kWriteImm, 1024, kPsn);
  PostReceive(1, {});
  Take(first.TakeFront(3));
  Take(Message(Opcode::kWriteImm, 10, kPsn + 4));
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].byte_len, 10u);
  Take(first);  // the late end of the first
  EXPECT_EQ(completions.size(), 1u);
}

TEST_F(UcResponderTest, NoReceive_DropsTheMessage) {
  Take(Message(Opcode::kSend, 10, kPsn));
  EXPECT_EQ(qp_state(), QpState::kRts);
  PostReceive(1, {{kTarget, 100, kLkey}});
  Take(Message(Opcode::kSend, 20, kPsn + 1));
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].byte_len, 20u);
}

TEST_F(UcResponderTest, BadKey_DropsWithoutAnswerOrError) {
  Train t = Message(Opcode::kWrite, 10, kPsn);
  t.rkey = 1;
  EXPECT_EQ(Take(t).kind, K::kNone);
  EXPECT_EQ(qp_state(), QpState::kRts);
  EXPECT_EQ(copied, 0u);
}

}  // namespace
}  // namespace railhop::rdma
