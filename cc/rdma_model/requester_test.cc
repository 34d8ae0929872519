#include "cc/rdma_model/requester.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

namespace railhop::rdma {
namespace {

constexpr uint32_t kMtu = 256;
constexpr uint32_t kPsn = 0xfffffd;  // so that every test crosses the wrap
constexpr uint64_t kStart = 1'000'000'000;

// A requester in RTS; time moves by hand, and what it sends is looked at and answered by hand.
class RequesterTest : public testing::Test, public RequesterEnv {
 protected:
  RequesterTest() : requester(this) {
    config.qpn = 5;
    config.dest_qpn = 9;
    config.mtu = kMtu;
    config.timeout = 1;  // 8,192 ns
    config.retry_cnt = 2;
    config.rnr_retry = 2;
    config.max_rd_atomic = 4;
    requester.Allocate(16, 0);
    Start();
  }
  void Start() {
    requester.Configure(config);
    requester.SetNextPsn(kPsn);
    requester.SetState(QpState::kRts);
  }

  bool LocalAccessAllowed(const Sge* sges, uint32_t, bool) override { return sges[0].lkey != 666; }
  bool CopyReadData(const SendWqe& wqe, uint32_t offset, uint64_t, uint32_t length) override {
    read.push_back({wqe.wr_id, offset, length});
    return !read_fails && !read_lost;
  }
  bool ReadDataLost() const override { return read_lost; }
  bool StoreAtomicResult(const SendWqe&, uint64_t original) override {
    atomic_result = original;
    return true;
  }
  void CompleteSend(const Completion& completion) override {
    done.push_back({completion.wr_id, completion.status});
  }
  void SendFailed(WcStatus status) override { failed = status; }
  void SendQueueDrained() override { ++drained; }

  void Post(uint64_t wr_id, Opcode opcode, uint32_t length, uint32_t flags = kSendSignaled,
            uint32_t lkey = 1) {
    SendWqe* wqe = requester.Reserve();
    ASSERT_NE(wqe, nullptr);
    wqe->wr_id = wr_id;
    wqe->opcode = opcode;
    wqe->length = length;
    wqe->flags = flags;
    wqe->sge_count = 1;
    wqe->sges[0] = {0x1000, length, lkey};
    requester.Commit();
  }
  // All that goes out now.
  std::vector<Train> Send(uint32_t max_packets = 1000) {
    std::vector<Train> sent;
    Train train;
    while (requester.NextTrain(now, max_packets, &train)) {
      sent.push_back(train);
      requester.AfterSend(train);
    }
    return sent;
  }
  void Answer(ResponseKind kind, uint32_t psn, uint32_t count = 1, uint32_t length = 0) {
    Response r;
    r.kind = kind;
    r.psn = psn & kPsnMask;
    r.count = count;
    r.length = length;
    r.rnr_timer = 1;  // 10,000 ns
    requester.OnResponse(r, now);
  }
  void Ack(uint32_t psn) { Answer(ResponseKind::kAck, psn); }
  bool Timeout() {
    const uint64_t due = requester.deadline_ns();
    if (due == 0) return false;
    now = due;
    requester.OnDeadline(now);
    return true;
  }

  using Done = std::pair<uint64_t, WcStatus>;
  struct Piece {
    uint64_t wr_id;
    uint32_t offset, length;
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  static constexpr WcStatus kOk = WcStatus::kSuccess;
  static constexpr WcStatus kFlushed = WcStatus::kWrFlushErr;

  RequesterConfig config;
  Requester requester;
  uint64_t now = kStart;
  std::vector<Done> done;
  std::vector<Piece> read;
  std::optional<WcStatus> failed;
  uint64_t atomic_result = 0;
  int drained = 0;
  bool read_fails = false, read_lost = false;
};

using K = ResponseKind;
using Dones = std::vector<std::pair<uint64_t, WcStatus>>;

TEST_F(RequesterTest, Acknowledged_CompletesInOrderAcrossTheWrap) {
  Post(1, Opcode::kWrite, 700);  // 3 packets: fffffd..ffffff
  Post(2, Opcode::kSend, 0);     // 0
  const auto sent = Send();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].count, 3u);
  EXPECT_EQ(sent[1].psn, 0u);
  EXPECT_EQ(requester.Outstanding(), 4u);
  Ack(0);
  EXPECT_EQ(done, (Dones{{1, kOk}, {2, kOk}}));
  EXPECT_EQ(requester.deadline_ns(), 0u);
}

TEST_F(RequesterTest, Unsignaled_CompletesInSilenceButFailsAloud) {
  Post(1, Opcode::kWrite, 10, 0);
  Post(2, Opcode::kWrite, 10, 0);
  Send();
  Ack(kPsn);
  EXPECT_TRUE(done.empty());
  requester.SetState(QpState::kErr);
  EXPECT_EQ(done, (Dones{{2, kFlushed}}));
}

TEST_F(RequesterTest, SendQueueFull_GivesNoRoomUntilOneCompletes) {
  for (uint64_t i = 0; i < 16; ++i) Post(i, Opcode::kWrite, 1);
  EXPECT_EQ(requester.Reserve(), nullptr);
  Send();
  Ack(kPsn);
  EXPECT_NE(requester.Reserve(), nullptr);
}

TEST_F(RequesterTest, LostAck_IsSentAgainAndTheLateAckStillCounts) {
  Post(1, Opcode::kWrite, 700);
  Post(2, Opcode::kWrite, 10);
  Send();
  ASSERT_TRUE(Timeout());
  EXPECT_EQ(requester.timeouts(), 1u);
  const auto first_again = Send(1);  // the repetition has begun ...
  EXPECT_TRUE(first_again[0].retransmitted);
  Ack(kPsn + 2);  // ... when the answer to the first sending arrives
  EXPECT_EQ(done, (Dones{{1, kOk}}));
  Ack(kPsn + 3);
  EXPECT_EQ(done.size(), 2u);
}

TEST_F(RequesterTest, LateAckBeforeTheRepetitionLeaves_SkipsIt) {
  Post(1, Opcode::kWrite, 700);
  Post(2, Opcode::kWrite, 10);
  Send();
  Timeout();
  Ack(kPsn + 2);
  const auto sent = Send();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].psn, PsnAdd(kPsn, 3));
}

TEST_F(RequesterTest, AckOfAPart_GoesOnBehindIt) {
  Post(1, Opcode::kWrite, 1024);
  Send();
  Ack(kPsn + 1);
  EXPECT_TRUE(done.empty());
  Timeout();
  const auto sent = Send();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].psn, PsnAdd(kPsn, 2));
  EXPECT_EQ(sent[0].offset, 512u);
  EXPECT_EQ(sent[0].count, 2u);
  EXPECT_FALSE(sent[0].first);
}

TEST_F(RequesterTest, NoAnswer_FailsAfterOneSendingAndAllRetries) {
  Post(1, Opcode::kWrite, 10);
  Post(2, Opcode::kWrite, 10);
  for (int sending = 0; sending < 3; ++sending) {
    EXPECT_EQ(Send().size(), 2u);
    EXPECT_TRUE(done.empty());
    ASSERT_TRUE(Timeout());
  }
  EXPECT_EQ(now, kStart + 3 * 8192);
  EXPECT_EQ(done, (Dones{{1, WcStatus::kRetryExcErr}, {2, kFlushed}}));
  EXPECT_EQ(failed, WcStatus::kRetryExcErr);
  EXPECT_EQ(requester.state(), QpState::kErr);
  EXPECT_EQ(requester.deadline_ns(), 0u);
}

TEST_F(RequesterTest, Progress_RefillsTheRetries) {
  for (uint64_t i = 0; i < 8; ++i) Post(i, Opcode::kWrite, 10);
  for (uint32_t i = 0; i < 8; ++i) {
    Send();
    Timeout();
    Send();
    Timeout();
    Send();
    Ack(kPsn + i);
  }
  EXPECT_EQ(done.size(), 8u);
  EXPECT_EQ(failed, std::nullopt);
}

TEST_F(RequesterTest, TimeoutZero_WaitsForEver) {
  config.timeout = 0;
  Start();
  Post(1, Opcode::kWrite, 10);
  Send();
  EXPECT_EQ(requester.deadline_ns(), 0u);
}

TEST_F(RequesterTest, SevenRetriesQuirk_NeverEnds) {
  config.retry_cnt = 7;
  config.seven_is_forever = true;
  Start();
  Post(1, Opcode::kWrite, 10);
  for (int i = 0; i < 100; ++i) {
    Send();
    Timeout();
  }
  EXPECT_EQ(failed, std::nullopt);
}

TEST_F(RequesterTest, SequenceNak_GoesBackToThatPacket) {
  Post(1, Opcode::kWrite, 256);
  Post(2, Opcode::kWrite, 1024);
  Send();
  Answer(K::kNakSequence, kPsn + 3);
  EXPECT_EQ(done, (Dones{{1, kOk}}));
  Answer(K::kNakSequence, kPsn + 3);  // doubled on its way
  const auto sent = Send();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].psn, PsnAdd(kPsn, 3));
  EXPECT_EQ(sent[0].count, 2u);
  EXPECT_EQ(requester.retransmitted(), 2u);
}

TEST_F(RequesterTest, AnswersOutsideTheWindow_MeanNothing) {
  Post(1, Opcode::kWrite, 700);
  Post(2, Opcode::kWrite, 700);
  Train train;
  ASSERT_TRUE(requester.NextTrain(now, 2, &train));
  for (const K kind : {K::kAck, K::kNakSequence, K::kRnrNak, K::kNakRemoteAccess, K::kReadData}) {
    Answer(kind, kPsn + 2);  // not sent yet
    Answer(kind, kPsn - 1);  // an earlier life's
    Answer(kind, kPsn + 0x7fffff);
  }
  EXPECT_TRUE(done.empty());
  EXPECT_EQ(requester.state(), QpState::kRts);
}

TEST_F(RequesterTest, RnrNak_WaitsThenSendsAgainAndKeepsItsOwnCount) {
  Post(1, Opcode::kWriteImm, 600);
  Post(2, Opcode::kWrite, 10);
  Send();
  Answer(K::kRnrNak, kPsn + 2);  // all but the last packet have landed
  Answer(K::kRnrNak, kPsn + 2);  // doubled on its way
  EXPECT_TRUE(Send().empty());
  ASSERT_TRUE(Timeout());
  EXPECT_EQ(now, kStart + 10'000);
  const auto sent = Send();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].psn, PsnAdd(kPsn, 2));
  EXPECT_TRUE(sent[0].last);
  EXPECT_EQ(requester.timeouts(), 0u);
  Answer(K::kRnrNak, kPsn + 2);
  Timeout();
  Send();
  Answer(K::kRnrNak, kPsn + 2);
  EXPECT_EQ(done, (Dones{{1, WcStatus::kRnrRetryExcErr}, {2, kFlushed}}));
}

TEST_F(RequesterTest, RnrRetrySeven_NeverEnds) {
  config.rnr_retry = 7;
  Start();
  Post(1, Opcode::kSend, 10);
  for (int i = 0; i < 50; ++i) {
    Send();
    Answer(K::kRnrNak, kPsn);
    Timeout();
  }
  Send();
  Ack(kPsn);
  EXPECT_EQ(done, (Dones{{1, kOk}}));
}

TEST_F(RequesterTest, RnrRetryZero_FailsAtOnce) {
  config.rnr_retry = 0;
  Start();
  Post(1, Opcode::kSend, 10);
  Send();
  Answer(K::kRnrNak, kPsn);
  EXPECT_EQ(failed, WcStatus::kRnrRetryExcErr);
}

TEST_F(RequesterTest, Refusals_FailTheRightRequest) {
  const std::pair<K, WcStatus> kinds[] = {{K::kNakInvalidRequest, WcStatus::kRemInvReqErr},
                                          {K::kNakRemoteAccess, WcStatus::kRemAccessErr},
                                          {K::kNakRemoteOperational, WcStatus::kRemOpErr}};
  for (const auto& [kind, status] : kinds) {
    requester.Reset();
    Start();
    done.clear();
    Post(1, Opcode::kWrite, 600);
    Post(2, Opcode::kWrite, 600);
    Post(3, Opcode::kWrite, 600);
    Send();
    Answer(kind, kPsn + 4);
    EXPECT_EQ(done, (Dones{{1, kOk}, {2, status}, {3, kFlushed}}));
  }
}

TEST_F(RequesterTest, Read_TakesItsAnswerInPieces) {
  Post(1, Opcode::kRead, 1000);
  const auto sent = Send();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].count, 1u);
  Answer(K::kReadData, kPsn, 2, 512);
  EXPECT_TRUE(done.empty());
  Answer(K::kReadData, kPsn + 2, 2, 488);
  EXPECT_EQ(done, (Dones{{1, kOk}}));
  EXPECT_EQ(read, (std::vector<Piece>{{1, 0, 512}, {1, 512, 488}}));
}

TEST_F(RequesterTest, ReadWithLostTail_AsksForTheRestAlone) {
  Post(1, Opcode::kRead, 1000);
  Send();
  Answer(K::kReadData, kPsn, 1, 256);
  Timeout();
  const auto sent = Send();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].psn, PsnAdd(kPsn, 1));
  EXPECT_EQ(sent[0].offset, 256u);
  EXPECT_EQ(sent[0].length, 744u);
  Answer(K::kReadData, kPsn, 4, 1000);  // the first answer in full, late: its start is known
  EXPECT_EQ(read.size(), 1u);
  Answer(K::kReadData, kPsn + 1, 3, 744);
  EXPECT_EQ(done, (Dones{{1, kOk}}));
}

TEST_F(RequesterTest, ReadAnswerWithAHole_CostsOneRetryHoweverManyPacketsFollow) {
  Post(1, Opcode::kRead, 2560);
  Send();
  Answer(K::kReadData, kPsn, 1, 256);
  for (uint32_t i = 2; i < 10; ++i) Answer(K::kReadData, kPsn + i, 1, 256);  // number 1 is lost
  EXPECT_EQ(failed, std::nullopt);
  const auto sent = Send();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].offset, 256u);
  Answer(K::kReadData, kPsn + 1, 9, 2304);
  EXPECT_EQ(done, (Dones{{1, kOk}}));
}

TEST_F(RequesterTest, AcksBehindALostReadAnswer_DoNotCompleteItAndCostOneRetry) {
  Post(1, Opcode::kRead, 10);
  for (uint64_t i = 2; i < 10; ++i) Post(i, Opcode::kWrite, 10);
  Send();
  for (uint32_t i = 1; i < 9; ++i) Ack(kPsn + i);
  EXPECT_TRUE(done.empty());
  EXPECT_EQ(failed, std::nullopt);
  EXPECT_EQ(Send().size(), 9u);
  Answer(K::kReadData, kPsn, 1, 10);
  Ack(kPsn + 8);
  EXPECT_EQ(done.size(), 9u);
  EXPECT_EQ(done[0].first, 1u);
}

TEST_F(RequesterTest, RepeatedReadLostAsWell_IsLeftToTheTimer) {
  Post(1, Opcode::kRead, 10);
  Post(2, Opcode::kWrite, 10);
  Send();
  Ack(kPsn + 1);  // goes back: the first retry
  Send();
  Ack(kPsn + 1);  // shows nothing new
  EXPECT_TRUE(Send().empty());
  ASSERT_TRUE(Timeout());  // the second
  Send();
  Ack(kPsn + 1);
  EXPECT_EQ(done, (Dones{{1, WcStatus::kRetryExcErr}, {2, kFlushed}}));
}

TEST_F(RequesterTest, AnswerToRead_AcknowledgesWritesBeforeIt) {
  Post(1, Opcode::kWrite, 10);
  Post(2, Opcode::kRead, 10);
  Send();
  Answer(K::kReadData, kPsn + 1, 1, 10);
  EXPECT_EQ(done, (Dones{{1, kOk}, {2, kOk}}));
}

TEST_F(RequesterTest, ReadIntoMemoryThatIsGone_Fails) {
  Post(1, Opcode::kRead, 10);
  Send();
  read_fails = true;
  Answer(K::kReadData, kPsn, 1, 10);
  EXPECT_EQ(done, (Dones{{1, WcStatus::kLocProtErr}}));
}

TEST_F(RequesterTest, ReadFromMemoryThatIsGone_CountsAsLost) {
  Post(1, Opcode::kRead, 10);
  Send();
  read_lost = true;
  Answer(K::kReadData, kPsn, 1, 10);
  EXPECT_TRUE(done.empty());
  read_lost = false;
  EXPECT_TRUE(Timeout());
  EXPECT_EQ(Send().size(), 1u);
  Answer(K::kReadData, kPsn, 1, 10);
  EXPECT_EQ(done, (Dones{{1, kOk}}));
}

TEST_F(RequesterTest, LostAtomicAnswer_AsksAgainWithTheSameNumber) {
  Post(1, Opcode::kFetchAdd, 8);
  Post(2, Opcode::kWrite, 10);
  Send();
  Ack(kPsn + 1);
  const auto sent = Send();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].psn, kPsn);
  Response r;
  r.kind = K::kAtomicResult;
  r.psn = kPsn;
  r.atomic_original = 42;
  requester.OnResponse(r, now);
  EXPECT_EQ(atomic_result, 42u);
  EXPECT_EQ(done, (Dones{{1, kOk}}));
}

TEST_F(RequesterTest, MaxRdAtomic_HoldsBackReadsAndWhatIsBehind) {
  config.max_rd_atomic = 1;
  Start();
  Post(1, Opcode::kRead, 10);
  Post(2, Opcode::kRead, 10);
  Post(3, Opcode::kWrite, 10);
  EXPECT_EQ(Send().size(), 1u);
  Answer(K::kReadData, kPsn, 1, 10);
  EXPECT_EQ(Send().size(), 2u);
}

TEST_F(RequesterTest, Fence_WaitsForReadsNotForWrites) {
  Post(1, Opcode::kWrite, 10);
  Post(2, Opcode::kSend, 10, kSendSignaled | kSendFence);
  EXPECT_EQ(Send().size(), 2u);
  Post(3, Opcode::kRead, 10);
  Post(4, Opcode::kSend, 10, kSendSignaled | kSendFence);
  EXPECT_EQ(Send().size(), 1u);
  Answer(K::kReadData, kPsn + 2, 1, 10);
  EXPECT_EQ(Send().size(), 1u);
}

TEST_F(RequesterTest, LocalErrorBehindOthers_LetsThemFinish) {
  Post(1, Opcode::kWrite, 10);
  Post(2, Opcode::kWrite, 10, kSendSignaled, 666);
  Post(3, Opcode::kWrite, 10);
  EXPECT_EQ(Send().size(), 1u);
  EXPECT_TRUE(done.empty());
  Ack(kPsn);
  EXPECT_TRUE(Send().empty());
  EXPECT_EQ(done, (Dones{{1, kOk}, {2, WcStatus::kLocProtErr}, {3, kFlushed}}));
}

TEST_F(RequesterTest, Drain_FinishesWhatHasBegunAndNothingElse) {
  Post(1, Opcode::kWrite, 1024);
  Post(2, Opcode::kWrite, 10);
  Train train;
  ASSERT_TRUE(requester.NextTrain(now, 1, &train));
  requester.SetState(QpState::kSqd);
  EXPECT_EQ(drained, 0);
  const auto rest = Send();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].count, 3u);
  Ack(kPsn + 3);
  EXPECT_EQ(drained, 1);
  EXPECT_EQ(done, (Dones{{1, kOk}}));
  requester.SetState(QpState::kRts);
  EXPECT_EQ(Send().size(), 1u);
  Ack(kPsn + 4);
  requester.SetState(QpState::kSqd);
  EXPECT_EQ(drained, 2) << "an idle queue is drained at once, each time anew";
}

TEST_F(RequesterTest, DrainWhileGoneBack_IsNotDrainedYet) {
  Post(1, Opcode::kSend, 10);
  Send();
  Answer(K::kRnrNak, kPsn);
  requester.SetState(QpState::kSqd);
  EXPECT_EQ(drained, 0);
  Timeout();
  EXPECT_EQ(Send().size(), 1u);
  Ack(kPsn);
  EXPECT_EQ(drained, 1);
}

TEST_F(RequesterTest, Error_FlushesInOrderOfPosting) {
  for (uint64_t i = 0; i < 4; ++i) Post(i, Opcode::kWrite, 10);
  Send(2);
  Ack(kPsn);
  requester.SetState(QpState::kErr);
  EXPECT_EQ(done, (Dones{{0, kOk}, {1, kFlushed}, {2, kFlushed}, {3, kFlushed}}));
  Post(9, Opcode::kWrite, 10);
  requester.Flush();
  EXPECT_EQ(done.back(), (std::pair{uint64_t{9}, kFlushed}));
  Ack(kPsn + 1);  // nothing left that it could mean
  EXPECT_EQ(done.size(), 5u);
}

TEST_F(RequesterTest, Reset_DropsAllInSilenceAndForgetsOldAnswers) {
  Post(1, Opcode::kWrite, 10);
  Send();
  requester.Reset();
  EXPECT_TRUE(done.empty());
  requester.SetNextPsn(kPsn + 500);
  requester.SetState(QpState::kRts);
  Post(2, Opcode::kWrite, 10);
  Send();
  Ack(kPsn);
  EXPECT_TRUE(done.empty());
  Ack(kPsn + 500);
  EXPECT_EQ(done, (Dones{{2, kOk}}));
}

TEST_F(RequesterTest, TakeBack_LeavesNoHoleInTheNumbers) {
  Post(1, Opcode::kWrite, 10);
  Post(2, Opcode::kWrite, 1000);
  Post(3, Opcode::kWrite, 10);
  requester.TakeBack(2);
  Post(4, Opcode::kWrite, 10);
  const auto sent = Send();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[1].psn, PsnAdd(kPsn, 1));
  EXPECT_EQ(requester.WqeOf(sent[1])->wr_id, 4u);
  Ack(kPsn + 1);
  EXPECT_EQ(requester.WqeOf(sent[1]), nullptr);
}

TEST_F(RequesterTest, LargestReadInSmallPackets_StaysWithinHalfTheNumbers) {
  Post(1, Opcode::kRead, kMaxMessageBytes);
  Post(2, Opcode::kRead, kMaxMessageBytes);
  EXPECT_EQ(Send().size(), 1u);
  EXPECT_EQ(requester.Outstanding(), 1u << 22);
}

TEST_F(RequesterTest, Unreliable_CompletesWhenSent) {
  config.type = QpType::kUc;
  requester.Reset();
  Start();
  Post(1, Opcode::kWrite, 1000);
  Post(2, Opcode::kWrite, 10);
  Train train;
  ASSERT_TRUE(requester.NextTrain(now, 2, &train));
  requester.AfterSend(train);
  EXPECT_TRUE(done.empty());
  Send();
  EXPECT_EQ(done, (Dones{{1, kOk}, {2, kOk}}));
  EXPECT_EQ(requester.deadline_ns(), 0u);
}

TEST_F(RequesterTest, UnreliableFlushedOnItsWayOut_CompletesOnce) {
  config.type = QpType::kUc;
  requester.Reset();
  Start();
  Post(1, Opcode::kWrite, 10);
  Train train;
  ASSERT_TRUE(requester.NextTrain(now, 1, &train));
  requester.SetState(QpState::kErr);
  requester.AfterSend(train);
  EXPECT_EQ(done, (Dones{{1, kFlushed}}));
  EXPECT_EQ(requester.Backlog(), 0u);
}

TEST_F(RequesterTest, TimeScale_StretchesTimers) {
  requester.set_time_scale_ppm(10'000'000);
  Post(1, Opcode::kWrite, 10);
  Send();
  EXPECT_EQ(requester.deadline_ns(), kStart + 81'920);
}

}  // namespace
}  // namespace railhop::rdma
