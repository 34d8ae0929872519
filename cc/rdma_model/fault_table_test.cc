#include "cc/rdma_model/fault_table.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "cc/rdma_model/fault_test_util.h"

namespace railhop::rdma {
namespace {

// Carries out everything due by `until_ns`, as "kind[!]@due events+delay" (! is an undo, ~ an event
// alone).
std::string Play(FaultTable& table, uint64_t until_ns) {
  std::string text;
  FaultAction action;
  for (int i = 0; i < 100 && NextAction(table, until_ns, &action); ++i) {
    text += (text.empty() ? "" : ", ") + std::string(FaultKindName(action.spec.kind));
    text += action.undo ? "!" : "";
    text += action.change ? "" : "~";
    text += "@" + std::to_string(action.due_ns) + " " + std::to_string(action.events);
    if (action.event_delay_ns != 0) text += "+" + std::to_string(action.event_delay_ns);
    FinishAction(table, action);
  }
  return text;
}

TEST(FaultTable, AllBytesZero_IsEmpty) {
  alignas(FaultTable) static unsigned char bytes[sizeof(FaultTable)];
  auto& table = reinterpret_cast<FaultTable&>(bytes);
  FaultAction action;
  FaultStatus status;
  EXPECT_FALSE(NextAction(table, UINT64_MAX, &action));
  EXPECT_FALSE(ReadFault(table, 0, 1, &status));
  EXPECT_EQ(NextFaultDeadline(table, 1), UINT64_MAX);
  EXPECT_EQ(JudgeVerb(table, VerbCall::kRegMr, 0, 1).error, 0);
  EXPECT_EQ(PlanEvent(table, AsyncEvent::kPortErr, 1).copies, 1);
}

struct PlayCase {
  const char* words;
  const char* steps;
};

class FaultActions : public testing::TestWithParam<PlayCase> {};

TEST_P(FaultActions, Played_StepsInOrder) {
  FaultTable table;
  Apply(table, GetParam().words, 1000, 500);
  EXPECT_EQ(Play(table, 1'000'000), GetParam().steps);
  EXPECT_EQ(table.action_rules.load(), 0u);
  EXPECT_EQ(table.packet_rules.load(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, FaultActions,
    testing::Values(
        PlayCase{"down", "down@1000 1"}, PlayCase{"down event lost", "down@1000 0"},
        PlayCase{"down event doubled", "down@1000 2"},
        PlayCase{"down event late 3us", "down@1000 1+3000"},
        PlayCase{"down event early 3us", "down~@1000 1, down@4000 0"},
        PlayCase{"down for 2us", "down@1000 1, up!@3000 1"},
        PlayCase{"down event early 1us for 5us", "down~@1000 1, down@2000 0, up!@6000 1"},
        PlayCase{"down at 4us", "down@4500 1"}, PlayCase{"down at 100ns", "down@1000 1"},
        PlayCase{"up for 2us", "up@1000 1, down!@3000 1"},
        PlayCase{"lid 5 for 1us", "lid@1000 1, lid!@2000 1"},
        PlayCase{"remove for 1us", "remove@1000 1, return!@2000 1"},
        PlayCase{"flap every 4us for 10us",
                 "down@1000 1, up!@3000 1, down@5000 1, up!@7000 1, down@9000 1, up!@11000 1"},
        PlayCase{"flap every 4us down 1us count 2 event lost",
                 "down@1000 0, up!@2000 0, down@5000 0, up!@6000 0"},
        PlayCase{"quirk no_uc", "quirk@1000 1"}, PlayCase{"event sm_change", "event@1000 1"}));

TEST(FaultTable, ActionNotDue_Waits) {
  FaultTable table;
  Apply(table, "down at 4us", 1000, 500);
  FaultAction action;
  EXPECT_FALSE(NextAction(table, 4499, &action));
  EXPECT_EQ(NextFaultDeadline(table, 1000), 4500u);
  EXPECT_TRUE(NextAction(table, 4500, &action));
  EXPECT_EQ(action.rule, 0u);
}

TEST(FaultTable, ActionNotFinished_HandedOverAgain) {
  FaultTable table;
  Apply(table, "down for 5us");
  FaultAction first;
  FaultAction again;
  ASSERT_TRUE(NextAction(table, 2000, &first));
  ASSERT_TRUE(NextAction(table, 2000, &again));
  EXPECT_EQ(again.phase, first.phase);
  FinishAction(table, first);
  FinishAction(table, again);  // the same step twice counts once
  ASSERT_TRUE(NextAction(table, 10'000, &again));
  EXPECT_TRUE(again.undo);
}

TEST(FaultTable, Saved_ComesBackAtTheUndo) {
  FaultTable table;
  Apply(table, "lid 9 for 5us");
  FaultAction action;
  ASSERT_TRUE(NextAction(table, 2000, &action));
  action.saved[0] = 77;
  action.saved[3] = 88;
  FinishAction(table, action);
  ASSERT_TRUE(NextAction(table, 9000, &action));
  EXPECT_EQ(action.saved[0], 77u);
  EXPECT_EQ(action.saved[3], 88u);
}

TEST(FaultTable, TwoActionsDue_EarlierFirst) {
  FaultTable table;
  Apply(table, "lid 9 at 9us");
  Apply(table, "down at 3us");
  EXPECT_EQ(Play(table, 20'000), "down@3000 1, lid@9000 1");
}

TEST(FaultTable, Clear_UndoesWhatHadAnEnd) {
  FaultTable table;
  Apply(table, "down for 5s");
  Apply(table, "loss 1%");
  EXPECT_EQ(Play(table, 2000), "down@1000 1");
  Apply(table, "clear", 3000);
  EXPECT_EQ(table.packet_rules.load() & 2, 0u);
  EXPECT_EQ(Play(table, 3000), "up!@3000 1");
  EXPECT_EQ(table.action_rules.load(), 0u);
}

TEST(FaultTable, ClearFlapWhileDown_ComesUp) {
  FaultTable table;
  Apply(table, "flap every 1ms");
  EXPECT_EQ(Play(table, 2000), "down@1000 1");
  Apply(table, "clear", 3000);
  EXPECT_EQ(Play(table, 4000), "up!@3000 1");
  EXPECT_EQ(table.action_rules.load(), 0u);
}

TEST(FaultTable, ClearKind_LeavesOthers) {
  FaultTable table;
  Apply(table, "loss 1%");
  Apply(table, "delay 1ms");
  Apply(table, "clear loss");
  FaultStatus status;
  EXPECT_FALSE(ReadFault(table, 0, 2000, &status));
  ASSERT_TRUE(ReadFault(table, 1, 2000, &status));
  EXPECT_EQ(status.spec, Spec("delay 1ms"));
}

TEST(FaultTable, Full_ReapsWhatIsOver) {
  FaultTable table;
  for (int i = 0; i < 63; ++i) Apply(table, "loss 1%");
  Apply(table, "blackhole for 1us", 1000);
  EXPECT_EQ(ApplyFault(Spec("loss"), {1999, 0}, table), ApplyResult::kFull);
  EXPECT_EQ(ApplyFault(Spec("loss"), {2000, 0}, table), ApplyResult::kOk);
}

TEST(FaultTable, ListAndNone_AreNotForTheTable) {
  FaultTable table;
  EXPECT_EQ(ApplyFault(Spec("list"), {1, 0}, table), ApplyResult::kNotForTable);
  EXPECT_EQ(ApplyFault(FaultSpec(), {1, 0}, table), ApplyResult::kNotForTable);
}

TEST(FaultTable, ReadFault_SaysHitsAndEnd) {
  Wire wire;
  Apply(*wire.tx, "loss count 3 after 1 messages");
  FaultStatus status;
  ASSERT_TRUE(ReadFault(*wire.tx, 0, 2000, &status));
  EXPECT_FALSE(status.fired);
  wire.Send(wire.Message(1));
  wire.Send(wire.Message(2));
  ASSERT_TRUE(ReadFault(*wire.tx, 0, 2000, &status));
  EXPECT_TRUE(status.fired);
  EXPECT_EQ(status.hits, 2u);
  EXPECT_FALSE(status.over);
  wire.Send(wire.Message(1));
  ASSERT_TRUE(ReadFault(*wire.tx, 0, 2000, &status));
  EXPECT_TRUE(status.over);
  EXPECT_EQ(NextFaultDeadline(*wire.tx, 2000), 2000u);
  EXPECT_EQ(ReapFaults(*wire.tx, 2000), 1);
  EXPECT_EQ(wire.tx->packet_rules.load(), 0u);
}

TEST(FaultTable, WriterDiedMidRule_SlotIsUsedAgain) {
  Wire wire;
  wire.tx->rules[0].version.store(1);  // odd: it was writing
  wire.tx->packet_rules.store(1);
  EXPECT_EQ(wire.Send(wire.Message(4)).packets, 4u);
  EXPECT_EQ(ReapFaults(*wire.tx, 1), 1);
  Apply(*wire.tx, "loss");
  EXPECT_EQ(wire.Send(wire.Message(4)).fate, Fate::kDrop);
}

TEST(FaultVerbs, FailAfterCalls_CountTimes) {
  FaultTable table;
  Apply(table, "fail reg_mr ENOMEM after 10 count 2");
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(JudgeVerb(table, VerbCall::kCreateQp, 0, 2000).error, 0);
    EXPECT_EQ(JudgeVerb(table, VerbCall::kRegMr, 0, 2000).error, i == 10 || i == 11 ? ENOMEM : 0)
        << i;
  }
}

TEST(FaultVerbs, ModifyState_OnlyThat) {
  FaultTable table;
  Apply(table, "fail modify_qp rtr ETIMEDOUT");
  const auto detail = [](QpState state) { return static_cast<uint32_t>(state) + 1; };
  EXPECT_EQ(JudgeVerb(table, VerbCall::kModifyQp, detail(QpState::kRts), 2000).error, 0);
  EXPECT_EQ(JudgeVerb(table, VerbCall::kModifyQp, detail(QpState::kRtr), 2000).error, ETIMEDOUT);
}

TEST(FaultVerbs, HangAndAny) {
  FaultTable table;
  Apply(table, "hang destroy_qp 60s count 1");
  Apply(table, "fail any EIO for 1ms");
  const VerbVerdict verdict = JudgeVerb(table, VerbCall::kDestroyQp, 0, 2000);
  EXPECT_EQ(verdict.hang_ns, 60'000'000'000u);
  EXPECT_EQ(verdict.error, EIO);
  EXPECT_EQ(JudgeVerb(table, VerbCall::kDestroyQp, 0, 2000).hang_ns, 0u);
  EXPECT_EQ(JudgeVerb(table, VerbCall::kDestroyQp, 0, 2'000'000).error, 0);
}

TEST(FaultEvents, LateLostDoubled) {
  FaultTable table;
  Apply(table, "events port_err late 2s count 1");
  Apply(table, "events gid_change lost");
  Apply(table, "events sm_change doubled");
  EXPECT_EQ(PlanEvent(table, AsyncEvent::kPortErr, 2000).delay_ns, 2'000'000'000u);
  EXPECT_EQ(PlanEvent(table, AsyncEvent::kPortErr, 2000).delay_ns, 0u);
  EXPECT_EQ(PlanEvent(table, AsyncEvent::kGidChange, 2000).copies, 0);
  EXPECT_EQ(PlanEvent(table, AsyncEvent::kSmChange, 2000).copies, 2);
  EXPECT_EQ(PlanEvent(table, AsyncEvent::kLidChange, 2000).copies, 1);
}

}  // namespace
}  // namespace railhop::rdma
