#include "cc/engine/failover.h"

#include <string>
#include <vector>

#include "cc/engine/failover_table.h"
#include "cc/engine/testing/row_test.h"
#include "gtest/gtest.h"

namespace railhop::engine {
namespace {

using Kind = FailoverEvent::Kind;

std::string Text(const LaneIds& lanes) {
  std::string text;
  for (const LaneId& lane : lanes) {
    text += " " + std::to_string(lane.index) + "." + std::to_string(lane.epoch);
  }
  return text;
}

// "Stop 0.1; Fence 0.1; SendFence(2) 0.1".
std::string Text(const std::vector<FailoverAction>& actions) {
  static constexpr const char* kNames[] = {"Stop",      "Fence",      "SendAsk",
                                           "SendFence", "SendRecord", "Resume",
                                           "Retire",    "SendQuiet",  "Fail"};
  std::string text;
  for (const FailoverAction& action : actions) {
    if (!text.empty()) text += "; ";
    text += kNames[static_cast<int>(action.kind)];
    if (action.kind >= FailoverAction::Kind::kSendAsk &&
        action.kind <= FailoverAction::Kind::kResume) {
      text += "(" + std::to_string(action.epoch) + ")";
    }
    text += Text(action.lanes);
  }
  return text;
}

constexpr LaneId kA{0, 1};
constexpr LaneId kB{1, 1};
constexpr LaneId kC{2, 1};

class FailoverRow : public RowTest {
 protected:
  std::string Step(Failover* machine, const FailoverEvent& event) {
    const std::vector<FailoverAction> actions = machine->Step(event);
    Took(machine->row());
    Took(machine->resumed_row());
    return Text(actions);
  }
  std::string Suspect(Failover* m, LaneIds lanes, Cause cause = Cause::kCompletion) {
    return Step(m, {.kind = Kind::kSuspect, .lanes = lanes, .cause = cause});
  }
  std::string Ask(Failover* m, LaneIds lanes, uint32_t epoch, Cause cause = Cause::kStall) {
    return Step(m, {.kind = Kind::kPeerAsk, .lanes = lanes, .epoch = epoch, .cause = cause});
  }
  std::string Fence(Failover* m, uint32_t epoch, LaneIds lanes, Cause cause = Cause::kStall) {
    return Step(m, {.kind = Kind::kPeerFence, .lanes = lanes, .epoch = epoch, .cause = cause});
  }
  std::string Fenced(Failover* m, LaneIds lanes) {
    return Step(m, {.kind = Kind::kFenced, .lanes = lanes});
  }
  std::string TakeRecord(Failover* m, uint32_t epoch, LaneIds lanes) {
    Record record;
    record.epoch = epoch;
    record.lanes = lanes;
    return Step(m, {.kind = Kind::kPeerRecord, .record = &record});
  }
  std::string Repeat(Failover* m) { return Step(m, {.kind = Kind::kRepeat}); }
  std::string Retire(Failover* m, LaneIds lanes) {
    return Step(m, {.kind = Kind::kRetire, .lanes = lanes, .cause = Cause::kFailBack});
  }
  std::string Drained(Failover* m, LaneIds lanes) {
    return Step(m, {.kind = Kind::kDrained, .lanes = lanes});
  }
  std::string Quiet(Failover* m, LaneIds lanes) {
    return Step(m, {.kind = Kind::kPeerQuiet, .lanes = lanes, .cause = Cause::kFailBack});
  }
  // Through an episode over these lanes.
  void Finish(Failover* m, uint32_t epoch, const LaneIds& lanes) {
    if (m->end() == End::kSender) {
      Suspect(m, lanes);
    } else {
      Fence(m, epoch, lanes);
    }
    Fenced(m, lanes);
    TakeRecord(m, epoch, lanes);
    ASSERT_EQ(m->phase(), FailoverPhase::kRunning);
    ASSERT_EQ(m->episode(), epoch);
  }

  Failover s_{End::kSender, 1};
  Failover r_{End::kReceiver, 1};
};

TEST_F(FailoverRow, F01_TooManyLanes_Nothing) {
  // A place may be named twice while the older lane is not fenced: only by who lies.
  LaneIds many;
  for (int i = 0; i < 128; ++i) AddLane(&many, {static_cast<uint8_t>(i), 1});
  AddLane(&many, {5, 2});
  EXPECT_EQ(Fence(&r_, 3, many), "");
  EXPECT_EQ(r_.phase(), FailoverPhase::kRunning);
  EXPECT_EQ(Ask(&s_, many, 1), "");
  EXPECT_EQ(s_.phase(), FailoverPhase::kRunning);
  EXPECT_EQ(s_.epoch(), 1u);
}

TEST_F(FailoverRow, F02_SuspectKnown_Nothing) {
  Suspect(&s_, {kA});
  EXPECT_EQ(Suspect(&s_, {kA}), "");
  Fenced(&s_, {kA});
  TakeRecord(&s_, 2, {kA});
  EXPECT_EQ(Suspect(&s_, {kA}), "");
  EXPECT_EQ(s_.phase(), FailoverPhase::kRunning);
  EXPECT_EQ(s_.epoch(), 2u);
}

TEST_F(FailoverRow, F03_SenderSuspect_Fences) {
  EXPECT_EQ(Suspect(&s_, {kA}), "Stop 0.1; Fence 0.1; SendFence(2) 0.1");
  EXPECT_EQ(s_.phase(), FailoverPhase::kFencing);
  EXPECT_EQ(s_.cause(), Cause::kCompletion);
  Fenced(&s_, {kA});
  EXPECT_EQ(s_.phase(), FailoverPhase::kComparing);
  // A second fault includes the first.
  EXPECT_EQ(Suspect(&s_, {kA, kB}, Cause::kStall), "Stop 1.1; Fence 1.1; SendFence(3) 0.1 1.1");
  EXPECT_EQ(s_.phase(), FailoverPhase::kFencing);
  EXPECT_EQ(s_.cause(), Cause::kCompletion);
}

TEST_F(FailoverRow, F04_ReceiverSuspect_Asks) {
  EXPECT_EQ(Suspect(&r_, {kA}), "Stop 0.1; Fence 0.1; SendAsk(1) 0.1");
  EXPECT_EQ(r_.phase(), FailoverPhase::kAsking);
  EXPECT_EQ(Suspect(&r_, {kB}), "Stop 1.1; Fence 1.1; SendAsk(1) 0.1 1.1");
  Fenced(&r_, {kA, kB});
  Fence(&r_, 2, {kA, kB});
  EXPECT_EQ(r_.phase(), FailoverPhase::kComparing);
  EXPECT_EQ(Suspect(&r_, {kC}), "Stop 2.1; Fence 2.1; SendAsk(2) 0.1 1.1 2.1");
  EXPECT_EQ(r_.phase(), FailoverPhase::kAsking);
}

TEST_F(FailoverRow, F05_AskStale_Nothing) {
  Finish(&s_, 2, {kA});
  EXPECT_EQ(Ask(&s_, {kA}, 1), "");
  EXPECT_EQ(Ask(&s_, {}, 9), "");
  EXPECT_EQ(s_.phase(), FailoverPhase::kRunning);
}

TEST_F(FailoverRow, F06_AskCovered_FenceAgain) {
  Suspect(&s_, {kA, kB});
  EXPECT_EQ(Ask(&s_, {kA}, 1), "SendFence(2) 0.1 1.1");
  Fenced(&s_, {kA, kB});
  EXPECT_EQ(Ask(&s_, {kB}, 1), "SendFence(2) 0.1 1.1");
  EXPECT_EQ(s_.phase(), FailoverPhase::kComparing);
}

TEST_F(FailoverRow, F07_AskFenced_Compares) {
  // The receiver lost our record and has got the FENCE of another episode: it wants both.
  Finish(&s_, 2, {kA});
  Suspect(&s_, {kB});
  Fenced(&s_, {kB});
  EXPECT_EQ(Ask(&s_, {kA, kB}, 3), "SendFence(4) 0.1 1.1; SendRecord(4) 0.1 1.1");
  EXPECT_EQ(s_.phase(), FailoverPhase::kComparing);
  EXPECT_EQ(TakeRecord(&s_, 4, {kA, kB}), "Resume(4) 0.1 1.1");
}

TEST_F(FailoverRow, F08_Ask_Fences) {
  EXPECT_EQ(Ask(&s_, {kA}, 1), "Stop 0.1; Fence 0.1; SendFence(2) 0.1");
  EXPECT_EQ(s_.cause(), Cause::kPeer);
  // It has crossed our FENCE.
  EXPECT_EQ(Ask(&s_, {kB}, 1), "Stop 1.1; Fence 1.1; SendFence(3) 0.1 1.1");
}

TEST_F(FailoverRow, F09_AskAtReceiver_Nothing) {
  EXPECT_EQ(Ask(&r_, {kA}, 1), "");
  EXPECT_EQ(r_.phase(), FailoverPhase::kRunning);
}

TEST_F(FailoverRow, F10_FenceAtSender_Nothing) {
  EXPECT_EQ(Fence(&s_, 7, {kA}), "");
  EXPECT_EQ(s_.epoch(), 1u);
}

TEST_F(FailoverRow, F11_FenceAgain_RecordAgain) {
  Fence(&r_, 2, {kA});
  Fenced(&r_, {kA});
  EXPECT_EQ(Fence(&r_, 2, {kA}), "SendRecord(2) 0.1");
  TakeRecord(&r_, 2, {kA});
  EXPECT_EQ(r_.phase(), FailoverPhase::kRunning);
  EXPECT_EQ(Fence(&r_, 2, {kA}), "SendRecord(2) 0.1");
  EXPECT_EQ(r_.phase(), FailoverPhase::kRunning);
  // Also when an Offer has come since.
  EXPECT_TRUE(r_.AdoptEpoch(5));
  EXPECT_EQ(Fence(&r_, 2, {kA}), "SendRecord(2) 0.1");
}

TEST_F(FailoverRow, F12_FencePast_Nothing) {
  EXPECT_EQ(Fence(&r_, 1, {kA}), "");
  EXPECT_EQ(Fence(&r_, 9, {}), "");
  Fence(&r_, 3, {kA});
  EXPECT_EQ(Fence(&r_, 3, {kA}), "") << "its fence is under way";
  EXPECT_EQ(Fence(&r_, 2, {kB}), "");
  EXPECT_EQ(r_.lanes(), LaneIds({kA}));
  Fenced(&r_, {kA});
  EXPECT_EQ(Fence(&r_, 3, {kB}), "") << "the same epoch, other lanes: a lie";
}

TEST_F(FailoverRow, F13_FenceOfLess_AsksForUnion) {
  Suspect(&r_, {kA});
  EXPECT_EQ(Fence(&r_, 2, {kB}), "Stop 1.1; Fence 1.1; SendAsk(2) 0.1 1.1");
  EXPECT_EQ(r_.phase(), FailoverPhase::kAsking);
  Fenced(&r_, {kA, kB});
  EXPECT_EQ(Fence(&r_, 3, {kA, kB}), "SendRecord(3) 0.1 1.1");
}

TEST_F(FailoverRow, F14_FenceOfFenced_Compares) {
  Suspect(&r_, {kA});
  EXPECT_EQ(Fenced(&r_, {kA}), "");
  EXPECT_EQ(Fence(&r_, 2, {kA}), "SendRecord(2) 0.1");
  EXPECT_EQ(r_.phase(), FailoverPhase::kComparing);
}

TEST_F(FailoverRow, F15_Fence_Fences) {
  EXPECT_EQ(Fence(&r_, 2, {kA}), "Stop 0.1; Fence 0.1");
  EXPECT_EQ(r_.phase(), FailoverPhase::kFencing);
  EXPECT_EQ(r_.cause(), Cause::kPeer);
  EXPECT_EQ(Fence(&r_, 3, {kA, kB}), "Stop 1.1; Fence 1.1");
  EXPECT_EQ(r_.epoch(), 3u);
}

TEST_F(FailoverRow, F16_LastFencedRecordHere_Resumes) {
  Suspect(&s_, {kA, kB});
  Fenced(&s_, {kA});
  EXPECT_EQ(TakeRecord(&s_, 2, {kA, kB}), "");
  EXPECT_EQ(Fenced(&s_, {kB}), "SendRecord(2) 0.1 1.1; Resume(2) 0.1 1.1");
  EXPECT_EQ(s_.phase(), FailoverPhase::kRunning);
  EXPECT_EQ(s_.peer_record().epoch, 2u);
}

TEST_F(FailoverRow, F17_LastFenced_Compares) {
  Fence(&r_, 2, {kA, kB});
  EXPECT_EQ(Fenced(&r_, {kB}), "");
  EXPECT_EQ(Fenced(&r_, {kA}), "SendRecord(2) 0.1 1.1");
  EXPECT_EQ(r_.phase(), FailoverPhase::kComparing);
}

TEST_F(FailoverRow, F18_Fenced_Noted) {
  Suspect(&r_, {kA});
  EXPECT_EQ(Fenced(&r_, {kA}), "");
  EXPECT_EQ(r_.phase(), FailoverPhase::kAsking);
  Step(&r_, {.kind = Kind::kGiveUp, .lanes = {kB}});
  EXPECT_EQ(Fenced(&r_, {kB}), "");
}

TEST_F(FailoverRow, F19_Record_Resumes) {
  Suspect(&s_, {kA});
  Fenced(&s_, {kA});
  EXPECT_EQ(TakeRecord(&s_, 2, {kA}), "Resume(2) 0.1");
  EXPECT_EQ(s_.phase(), FailoverPhase::kRunning);
  EXPECT_EQ(s_.lanes(), LaneIds({kA}));
}

TEST_F(FailoverRow, F20_RecordBeforeFenced_Kept) {
  Fence(&r_, 2, {kA});
  EXPECT_EQ(TakeRecord(&r_, 2, {kA}), "");
  EXPECT_EQ(r_.phase(), FailoverPhase::kFencing);
  // That of an episode that another overtakes is not kept.
  Fence(&r_, 3, {kA, kB});
  EXPECT_EQ(Fenced(&r_, {kA, kB}), "SendRecord(3) 0.1 1.1");
  EXPECT_EQ(r_.phase(), FailoverPhase::kComparing);
}

TEST_F(FailoverRow, F21_RecordAgain_SenderAnswers) {
  Finish(&s_, 2, {kA});
  EXPECT_EQ(TakeRecord(&s_, 2, {kA}), "SendRecord(2) 0.1");
  // An Offer's epoch changes nothing in that.
  EXPECT_EQ(s_.TakeEpoch(), 3u);
  EXPECT_EQ(TakeRecord(&s_, 2, {kA}), "SendRecord(2) 0.1");
}

TEST_F(FailoverRow, F22_RecordOther_Nothing) {
  Finish(&r_, 2, {kA});
  EXPECT_EQ(TakeRecord(&r_, 2, {kA}), "") << "no ping-pong";
  Suspect(&s_, {kA});
  Fenced(&s_, {kA});
  EXPECT_EQ(TakeRecord(&s_, 1, {kA}), "");
  EXPECT_EQ(TakeRecord(&s_, 3, {kA}), "");
  EXPECT_EQ(TakeRecord(&s_, 2, {kB}), "");
  EXPECT_EQ(TakeRecord(&s_, 2, {kA, kB}), "");
  EXPECT_EQ(Step(&s_, {.kind = Kind::kPeerRecord}), "") << "no record at all";
  EXPECT_EQ(s_.phase(), FailoverPhase::kComparing);
}

TEST_F(FailoverRow, F23_RepeatAsking_Ask) {
  Suspect(&r_, {kA});
  EXPECT_EQ(Repeat(&r_), "SendAsk(1) 0.1");
}

TEST_F(FailoverRow, F24_RepeatFencing_Fence) {
  Suspect(&s_, {kA});
  EXPECT_EQ(Repeat(&s_), "SendFence(2) 0.1");
}

TEST_F(FailoverRow, F25_RepeatComparing_FenceRecord) {
  Suspect(&s_, {kA});
  Fenced(&s_, {kA});
  EXPECT_EQ(Repeat(&s_), "SendFence(2) 0.1; SendRecord(2) 0.1");
}

TEST_F(FailoverRow, F26_RepeatComparing_Record) {
  Fence(&r_, 2, {kA});
  Fenced(&r_, {kA});
  EXPECT_EQ(Repeat(&r_), "SendRecord(2) 0.1");
}

TEST_F(FailoverRow, F27_RepeatQuiet_Quiet) {
  Retire(&s_, {kA, kB});
  Drained(&s_, {kA});
  EXPECT_EQ(Repeat(&s_), "SendQuiet 0.1");
  Ask(&s_, {kA}, 1, Cause::kFailBack);
  Fenced(&s_, {kA});
  TakeRecord(&s_, 2, {kA});
  EXPECT_EQ(Repeat(&s_), "");
  EXPECT_EQ(s_.retiring(), LaneIds({kB}));
}

TEST_F(FailoverRow, F28_RepeatNothing_Nothing) {
  EXPECT_EQ(Repeat(&s_), "");
  EXPECT_EQ(Repeat(&r_), "");
  Fence(&r_, 2, {kA});
  EXPECT_EQ(Repeat(&r_), "");
}

TEST_F(FailoverRow, F29_Retire_Noted) {
  EXPECT_EQ(Retire(&s_, {kA}), "");
  EXPECT_EQ(s_.retiring(), LaneIds({kA}));
  Suspect(&s_, {kB});
  EXPECT_EQ(Retire(&s_, {kB, kC}), "");
  EXPECT_EQ(s_.retiring(), LaneIds({kA, kC})) << "what is being fenced is not retired";
}

TEST_F(FailoverRow, F30_RetireAtReceiver_Nothing) {
  EXPECT_EQ(Retire(&r_, {kA}), "");
  EXPECT_TRUE(r_.retiring().empty());
}

TEST_F(FailoverRow, F31_SenderDrained_Quiet) {
  Retire(&s_, {kA, kB});
  EXPECT_EQ(Drained(&s_, {kA}), "SendQuiet 0.1");
  EXPECT_EQ(Drained(&s_, {kB}), "SendQuiet 1.1");
}

TEST_F(FailoverRow, F32_SenderDrainedInEpisode_Kept) {
  Retire(&s_, {kA});
  Suspect(&s_, {kB});
  EXPECT_EQ(Drained(&s_, {kA}), "");
  Fenced(&s_, {kB});
  EXPECT_EQ(TakeRecord(&s_, 2, {kB}), "Resume(2) 1.1; SendQuiet 0.1");
}

TEST_F(FailoverRow, F33_ReceiverDrained_Asks) {
  Quiet(&r_, {kA});
  EXPECT_EQ(Drained(&r_, {kA}), "Stop 0.1; Fence 0.1; SendAsk(1) 0.1");
  EXPECT_EQ(r_.cause(), Cause::kFailBack);
  EXPECT_TRUE(r_.retiring().empty());
}

TEST_F(FailoverRow, F34_ReceiverDrainedInEpisode_Kept) {
  Quiet(&r_, {kA});
  Suspect(&r_, {kB});
  EXPECT_EQ(Drained(&r_, {kA}), "");
  EXPECT_EQ(r_.lanes(), LaneIds({kB}));
  EXPECT_EQ(r_.retiring(), LaneIds({kA}));
}

TEST_F(FailoverRow, F35_DrainedUnknown_Nothing) {
  EXPECT_EQ(Drained(&s_, {kA}), "");
  Retire(&s_, {kA});
  Drained(&s_, {kA});
  EXPECT_EQ(Drained(&s_, {kA}), "") << "no news";
  EXPECT_EQ(Drained(&r_, {kA}), "");
}

TEST_F(FailoverRow, F36_QuietKnown_Nothing) {
  Quiet(&r_, {kA});
  EXPECT_EQ(Quiet(&r_, {kA}), "");
  Finish(&r_, 2, {kB});
  EXPECT_EQ(Quiet(&r_, {kB}), "") << "fenced before";
}

TEST_F(FailoverRow, F37_Quiet_Retires) {
  EXPECT_EQ(Quiet(&r_, {kA}), "Retire 0.1");
  Suspect(&r_, {kB});
  EXPECT_EQ(Quiet(&r_, {kA, kB, kC}), "Retire 2.1");
  EXPECT_EQ(r_.retiring(), LaneIds({kA, kC}));
}

TEST_F(FailoverRow, F38_QuietAtSender_Nothing) {
  EXPECT_EQ(Quiet(&s_, {kA}), "");
  EXPECT_TRUE(s_.retiring().empty());
}

TEST_F(FailoverRow, F39_SenderResumedDrained_Quiet) {
  Retire(&s_, {kA, kB});
  Suspect(&s_, {kB, kC});
  Drained(&s_, {kA, kB});
  Fenced(&s_, {kB});
  Fenced(&s_, {kC});
  EXPECT_EQ(TakeRecord(&s_, 2, {kB, kC}), "Resume(2) 1.1 2.1; SendQuiet 0.1");
}

TEST_F(FailoverRow, F40_ReceiverResumedDrained_Asks) {
  Quiet(&r_, {kA});
  Fence(&r_, 2, {kB});
  Drained(&r_, {kA});
  Fenced(&r_, {kB});
  EXPECT_EQ(TakeRecord(&r_, 2, {kB}), "Resume(2) 1.1; Stop 0.1; Fence 0.1; SendAsk(2) 0.1");
  EXPECT_EQ(r_.phase(), FailoverPhase::kAsking);
  EXPECT_EQ(r_.peer_record().lanes, LaneIds({kB})) << "still there for the resume";
}

TEST_F(FailoverRow, F41_Resumed_Runs) {
  Suspect(&s_, {kA});
  Fenced(&s_, {kA});
  EXPECT_EQ(TakeRecord(&s_, 2, {kA}), "Resume(2) 0.1");
}

TEST_F(FailoverRow, F42_GiveUp_Over) {
  Finish(&s_, 2, {kA});
  Suspect(&s_, {kB});
  EXPECT_EQ(Step(&s_, {.kind = Kind::kGiveUp, .lanes = {kA, kB, kC}}),
            "Stop 0.1 1.1 2.1; Fence 2.1; Fail 0.1 1.1 2.1")
      << "each lane's fence is asked for once";
  EXPECT_EQ(s_.phase(), FailoverPhase::kOver);
}

TEST_F(FailoverRow, F43_Over_Nothing) {
  for (Failover* m : {&s_, &r_}) {
    EXPECT_EQ(Step(m, {.kind = Kind::kGiveUp}), "Fail");
    EXPECT_EQ(Suspect(m, {kA}), "");
    EXPECT_EQ(Ask(m, {kA}, 1), "");
    EXPECT_EQ(Fence(m, 2, {kA}), "");
    EXPECT_EQ(TakeRecord(m, 1, {kA}), "");
    EXPECT_EQ(Repeat(m), "");
    EXPECT_EQ(Retire(m, {kA}), "");
    EXPECT_EQ(Drained(m, {kA}), "");
    EXPECT_EQ(Quiet(m, {kA}), "");
    EXPECT_EQ(Step(m, {.kind = Kind::kGiveUp, .lanes = {kA}}), "");
    EXPECT_EQ(m->phase(), FailoverPhase::kOver);
  }
}

TEST(FailoverTable, EachRow_HasItsTest) {
  EXPECT_EQ(RowsWithoutTest("FailoverRow", failover::kRows), "");
}

TEST(Failover, EpochOfAnOffer_OnlyGrows) {
  Failover receiver(End::kReceiver, 1);
  EXPECT_FALSE(receiver.AdoptEpoch(0));
  EXPECT_FALSE(receiver.AdoptEpoch(1)) << "that of the handshake's lanes";
  EXPECT_TRUE(receiver.AdoptEpoch(4));
  EXPECT_TRUE(receiver.AdoptEpoch(4)) << "again";
  EXPECT_FALSE(receiver.AdoptEpoch(3));
  EXPECT_EQ(receiver.epoch(), 4u);
  // A FENCE that has overtaken an Offer does not make it old.
  receiver.Step({.kind = Kind::kPeerFence, .lanes = {kA}, .epoch = 6});
  EXPECT_TRUE(receiver.AdoptEpoch(5));
  EXPECT_EQ(receiver.epoch(), 6u);
  EXPECT_EQ(receiver.episode(), 6u);
}

TEST(Failover, OfferInAnEpisode_LeavesItsEpoch) {
  Failover sender(End::kSender, 1);
  sender.Step({.kind = Kind::kSuspect, .lanes = {kA}});
  EXPECT_EQ(sender.TakeEpoch(), 3u);
  EXPECT_EQ(Text(sender.Step({.kind = Kind::kRepeat})), "SendFence(2) 0.1");
  EXPECT_EQ(Text(sender.Step({.kind = Kind::kSuspect, .lanes = {kB}})),
            "Stop 1.1; Fence 1.1; SendFence(4) 0.1 1.1");
}

TEST(Failover, PlaceUsedAgain_OlderLaneIsLeftOut) {
  // The receiver has not heard the sender's record, and the place's next lane fails already.
  Failover receiver(End::kReceiver, 1);
  receiver.Step({.kind = Kind::kPeerFence, .lanes = {kA}, .epoch = 2});
  receiver.Step({.kind = Kind::kFenced, .lanes = {kA}});
  EXPECT_TRUE(receiver.AdoptEpoch(3));
  EXPECT_EQ(Text(receiver.Step({.kind = Kind::kPeerFence, .lanes = {{0, 3}}, .epoch = 4})),
            "Stop 0.3; Fence 0.3");
  EXPECT_EQ(receiver.phase(), FailoverPhase::kFencing);
}

TEST(Failover, HandOver_IsSaidToBeOneAtBothEnds) {
  Failover sender(End::kSender, 1);
  sender.Step({.kind = Kind::kRetire, .lanes = {kA}, .cause = Cause::kDrain});
  sender.Step({.kind = Kind::kDrained, .lanes = {kA}});
  const auto actions =
      sender.Step({.kind = Kind::kPeerAsk, .lanes = {kA}, .epoch = 1, .cause = Cause::kDrain});
  EXPECT_EQ(sender.cause(), Cause::kDrain);
  ASSERT_EQ(actions.size(), 3u);
  EXPECT_EQ(actions[2].cause, Cause::kDrain);
  // A fault meanwhile is the reason from then on.
  sender.Step({.kind = Kind::kSuspect, .lanes = {kB}, .cause = Cause::kPortDown});
  EXPECT_EQ(sender.cause(), Cause::kPortDown);
}

TEST(Failover, LyingPeer_CannotMakeItGrow) {
  Failover receiver(End::kReceiver, 1);
  for (uint32_t i = 0; i < 300; ++i) {
    LaneIds lanes;
    for (uint32_t j = 0; j < 200; ++j) AddLane(&lanes, {static_cast<uint8_t>(j), i + j});
    receiver.Step({.kind = Kind::kPeerFence, .lanes = lanes, .epoch = 0xffff0000 + i});
    receiver.Step({.kind = Kind::kPeerQuiet, .lanes = lanes, .epoch = i});
    receiver.Step({.kind = Kind::kPeerAsk, .lanes = lanes, .epoch = i});
    ASSERT_LE(receiver.lanes().size(), 128u);
    ASSERT_LE(receiver.retiring().size(), 128u);
  }
  EXPECT_EQ(receiver.epoch(), 0xffff0000u);
}

}  // namespace
}  // namespace railhop::engine
