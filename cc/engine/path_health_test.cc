#include "cc/engine/path_health.h"

#include <functional>
#include <limits>
#include <vector>

#include "cc/engine/path_health_table.h"
#include "cc/engine/testing/row_test.h"
#include "gtest/gtest.h"

namespace railhop::engine {
namespace {

using Kind = PathEvent::Kind;
using Probe = PathStep::Probe;
using enum PathState;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kS = 1'000 * kMs;

class PathRow : public RowTest {
 protected:
  PathStep At(int64_t now_ns, Kind kind, bool earns = true) {
    now_ = now_ns;
    const PathStep step = path_.Step({.kind = kind, .earns_hold_down = earns}, now_ns);
    Took(path_.row());
    return step;
  }
  // Used at 0 and proved at 1 ms.
  void MakeGood() {
    At(0, Kind::kUse);
    At(kMs, Kind::kAnswered);
    ASSERT_EQ(path_.state(), kGood);
  }
  // Good, then the port goes down at this time.
  void MakeDown(int64_t at, bool earns = true) {
    MakeGood();
    At(at, Kind::kLocalDown, earns);
    ASSERT_EQ(path_.state(), kDown);
  }
  // Down at 2 ms; answers at 1003 ms, so it is held until 2003 ms.
  void MakeHeld() {
    MakeDown(2 * kMs);
    ASSERT_EQ(At(path_.next_due(), Kind::kTick).probe, Probe::kSend);
    ASSERT_EQ(now_, 1002 * kMs);
    At(1003 * kMs, Kind::kAnswered);
    ASSERT_EQ(path_.state(), kHeld);
  }

  HealthTimes times_;
  PathHealth path_{times_, 0};
  int64_t now_ = 0;
};

TEST_F(PathRow, P01_FirstUse_Probes) {
  EXPECT_EQ(path_.next_due(), std::numeric_limits<int64_t>::max());
  const PathStep step = At(5 * kMs, Kind::kUse);
  EXPECT_EQ(step.probe, Probe::kSend);
  EXPECT_EQ(step.probe_deadline, 255 * kMs);
  EXPECT_FALSE(path_.MayEnter());
}

TEST_F(PathRow, P02_Use_Noted) {
  MakeGood();
  EXPECT_EQ(At(2 * kMs, Kind::kUse).probe, Probe::kNone);
}

TEST_F(PathRow, P03_Answered_Good) {
  At(0, Kind::kUse);
  EXPECT_TRUE(At(kMs, Kind::kAnswered).became_good);
  EXPECT_TRUE(path_.MayEnter());
  At(2 * kMs, Kind::kLaneError);
  EXPECT_FALSE(path_.MayEnter());
  EXPECT_TRUE(At(3 * kMs, Kind::kAnswered).became_good);
  EXPECT_EQ(path_.flaps(), 0u) << "a lane's error alone does not condemn the path";
}

TEST_F(PathRow, P04_AnsweredGood_Stays) {
  MakeGood();
  EXPECT_EQ(At(path_.next_due(), Kind::kTick).probe, Probe::kSend);
  EXPECT_FALSE(At(1002 * kMs, Kind::kAnswered).became_good);
  EXPECT_EQ(path_.last_answer(), 1002 * kMs);
  EXPECT_EQ(path_.next_due(), 2002 * kMs);
}

TEST_F(PathRow, P05_AnsweredDownNoneOut_Nothing) {
  MakeGood();
  At(1001 * kMs, Kind::kTick);
  At(1002 * kMs, Kind::kLocalDown);
  At(1003 * kMs, Kind::kAnswered);
  EXPECT_EQ(path_.state(), kDown) << "that probe was sent before the fault";
}

TEST_F(PathRow, P06_AnsweredDown_Held) {
  MakeHeld();
  EXPECT_FALSE(path_.MayEnter());
  EXPECT_EQ(path_.held_until(), 2003 * kMs);
  EXPECT_EQ(path_.flaps(), 1u);
}

TEST_F(PathRow, P07_AnsweredDownUnearned_Good) {
  MakeDown(2 * kMs, /*earns=*/false);
  At(1002 * kMs, Kind::kTick);
  EXPECT_TRUE(At(1003 * kMs, Kind::kAnswered).became_good);
  EXPECT_EQ(path_.flaps(), 0u);
}

TEST_F(PathRow, P08_AnsweredHeldOut_Good) {
  MakeHeld();
  int64_t now = path_.next_due();
  while (now < 1990 * kMs) {
    ASSERT_EQ(At(now, Kind::kTick).probe, Probe::kSend);
    At(now + 10 * kMs, Kind::kAnswered);
    now = path_.next_due();
    if (now == 2003 * kMs) now = 1999 * kMs;
  }
  // The last probe is under way when the hold-down ends.
  path_.Step({.kind = Kind::kLaneError}, 1999 * kMs);
  EXPECT_EQ(path_.state(), kHeld);
  EXPECT_FALSE(At(2003 * kMs, Kind::kTick).became_good) << "its answer counts";
  EXPECT_TRUE(At(2004 * kMs, Kind::kAnswered).became_good);
}

TEST_F(PathRow, P09_AnsweredHeld_Stays) {
  MakeHeld();
  EXPECT_EQ(At(path_.next_due(), Kind::kTick).probe, Probe::kSend);
  EXPECT_EQ(now_, 1253 * kMs) << "a quarter of the hold-down";
  EXPECT_FALSE(At(now_ + kMs, Kind::kAnswered).became_good);
  EXPECT_EQ(path_.next_due(), 1503 * kMs);
}

TEST_F(PathRow, P10_UnansweredNoneOut_Nothing) {
  MakeGood();
  EXPECT_EQ(At(2 * kMs, Kind::kUnanswered).probe, Probe::kNone);
  EXPECT_EQ(path_.state(), kGood);
}

TEST_F(PathRow, P11_UnansweredUnknown_Waits) {
  At(0, Kind::kUse);
  EXPECT_FALSE(At(250 * kMs, Kind::kUnanswered).went_down);
  EXPECT_EQ(path_.state(), kUnknown);
  EXPECT_EQ(path_.next_due(), kS);
}

TEST_F(PathRow, P12_UnansweredGood_Doubt) {
  MakeGood();
  At(1001 * kMs, Kind::kTick);
  const PathStep step = At(1251 * kMs, Kind::kUnanswered);
  EXPECT_EQ(step.probe, Probe::kSendFresh);
  EXPECT_EQ(step.probe_deadline, 1501 * kMs);
  EXPECT_EQ(path_.state(), kDoubtful);
  EXPECT_TRUE(At(1501 * kMs, Kind::kUnanswered).went_down);
}

TEST_F(PathRow, P13_UnansweredFresh_Down) {
  MakeGood();
  At(500 * kMs, Kind::kStalled);
  At(750 * kMs, Kind::kUnanswered);
  EXPECT_TRUE(At(1000 * kMs, Kind::kUnanswered).went_down);
  EXPECT_EQ(path_.state(), kDown);
  EXPECT_EQ(path_.flaps(), 1u);
}

TEST_F(PathRow, P14_UnansweredDoubt_Fresh) {
  MakeGood();
  At(10 * kMs, Kind::kLaneError);
  const PathStep step = At(135 * kMs, Kind::kUnanswered);
  EXPECT_EQ(step.probe, Probe::kSendFresh);
  EXPECT_EQ(step.probe_deadline, 260 * kMs);
  EXPECT_FALSE(step.went_down);
}

TEST_F(PathRow, P15_UnansweredDown_Waits) {
  MakeDown(2 * kMs);
  At(1002 * kMs, Kind::kTick);
  At(1252 * kMs, Kind::kUnanswered);
  EXPECT_EQ(path_.next_due(), 2002 * kMs) << "every probe_interval, from send to send";
}

TEST_F(PathRow, P16_UnansweredHeld_Down) {
  MakeHeld();
  At(path_.next_due(), Kind::kTick);
  EXPECT_TRUE(At(now_ + 250 * kMs, Kind::kUnanswered).went_down);
  EXPECT_EQ(path_.flaps(), 2u);
  At(path_.next_due(), Kind::kTick);
  At(now_ + kMs, Kind::kAnswered);
  EXPECT_EQ(path_.held_until(), now_ + 2 * kS) << "twice as long";
}

TEST_F(PathRow, P17_LaneError_Doubt) {
  MakeGood();
  const PathStep step = At(10 * kMs, Kind::kLaneError);
  EXPECT_EQ(step.probe, Probe::kSend);
  EXPECT_EQ(step.probe_deadline, 135 * kMs);
  EXPECT_FALSE(step.went_down);
  EXPECT_EQ(path_.state(), kDoubtful);
}

TEST_F(PathRow, P18_Stalled_Doubt) {
  MakeGood();
  const PathStep step = At(500 * kMs, Kind::kStalled);
  EXPECT_EQ(step.probe, Probe::kSend);
  EXPECT_EQ(step.probe_deadline, 750 * kMs);
}

TEST_F(PathRow, P19_SignDoubtful_Nothing) {
  MakeGood();
  At(10 * kMs, Kind::kLaneError);
  EXPECT_EQ(At(11 * kMs, Kind::kLaneError).probe, Probe::kNone);
  EXPECT_EQ(At(12 * kMs, Kind::kStalled).probe, Probe::kNone);
}

TEST_F(PathRow, P20_SignDown_Leave) {
  MakeDown(2 * kMs);
  EXPECT_TRUE(At(3 * kMs, Kind::kLaneError).went_down);
  EXPECT_TRUE(At(3 * kMs, Kind::kStalled).went_down);
  EXPECT_EQ(path_.flaps(), 1u);
}

TEST_F(PathRow, P21_SignHeld_Probes) {
  MakeHeld();
  EXPECT_EQ(At(1010 * kMs, Kind::kStalled).probe, Probe::kSend);
}

TEST_F(PathRow, P22_SignHeld_Nothing) {
  MakeHeld();
  At(1010 * kMs, Kind::kLaneError);
  EXPECT_EQ(At(1011 * kMs, Kind::kLaneError).probe, Probe::kNone);
}

TEST_F(PathRow, P23_PortDown_Down) {
  MakeGood();
  EXPECT_TRUE(At(2 * kMs, Kind::kRemoteDown).went_down);
  EXPECT_EQ(path_.state(), kDown);
  PathHealth fresh(times_, 0);
  EXPECT_TRUE(fresh.Step({.kind = Kind::kLocalDown}, 1).went_down);
}

TEST_F(PathRow, P24_PortDownDown_Leave) {
  MakeDown(2 * kMs, /*earns=*/false);
  const int64_t due = path_.next_due();
  EXPECT_TRUE(At(3 * kMs, Kind::kLocalDown).went_down);
  EXPECT_EQ(path_.flaps(), 1u) << "now it is more than a pause";
  At(4 * kMs, Kind::kRemoteDown);
  EXPECT_EQ(path_.flaps(), 1u) << "one fault, counted once";
  EXPECT_EQ(path_.next_due(), due) << "and the next probe is not put off";
}

TEST_F(PathRow, P25_PortDownHeld_Down) {
  MakeHeld();
  EXPECT_TRUE(At(1010 * kMs, Kind::kLocalDown).went_down);
  EXPECT_EQ(path_.state(), kDown);
  EXPECT_EQ(path_.flaps(), 2u);
}

TEST_F(PathRow, P26_MaybeUp_Probes) {
  MakeDown(2 * kMs);
  EXPECT_EQ(At(10 * kMs, Kind::kMaybeUp).probe, Probe::kSendFresh);
  At(11 * kMs, Kind::kAnswered);
  EXPECT_EQ(path_.state(), kHeld);
}

TEST_F(PathRow, P27_MaybeUpHeld_Nothing) {
  MakeHeld();
  EXPECT_EQ(At(1010 * kMs, Kind::kMaybeUp).probe, Probe::kNone);
}

TEST_F(PathRow, P32_WantedHeld_Good) {
  MakeHeld();
  EXPECT_TRUE(At(1010 * kMs, Kind::kWanted).became_good);
  EXPECT_TRUE(path_.MayEnter());
}

TEST_F(PathRow, P33_WantedDoubtful_Nothing) {
  MakeGood();
  At(500 * kMs, Kind::kStalled);
  EXPECT_EQ(path_.state(), PathState::kDoubtful);
  EXPECT_EQ(At(501 * kMs, Kind::kWanted).probe, Probe::kNone);
  EXPECT_EQ(path_.state(), PathState::kDoubtful);
}

TEST_F(PathRow, P28_TickHeldOut_Good) {
  MakeHeld();
  while (path_.next_due() < 2003 * kMs) {
    At(path_.next_due(), Kind::kTick);
    At(now_ + kMs, Kind::kAnswered);
  }
  EXPECT_EQ(path_.next_due(), 2003 * kMs) << "in time";
  EXPECT_TRUE(At(2003 * kMs, Kind::kTick).became_good);
  EXPECT_TRUE(path_.MayEnter());
}

TEST_F(PathRow, P29_TickDue_Probes) {
  MakeGood();
  EXPECT_EQ(path_.next_due(), 1001 * kMs);
  const PathStep step = At(1001 * kMs, Kind::kTick);
  EXPECT_EQ(step.probe, Probe::kSend);
  EXPECT_EQ(step.probe_deadline, 1251 * kMs);
}

TEST_F(PathRow, P30_TickDueDown_Probes) {
  MakeDown(2 * kMs);
  std::vector<Probe> probes;
  for (int i = 0; i < 8; ++i) {
    probes.push_back(At(path_.next_due(), Kind::kTick).probe);
    At(now_ + 250 * kMs, Kind::kUnanswered);
  }
  EXPECT_EQ(probes[0], Probe::kSend);
  EXPECT_EQ(probes[3], Probe::kSendFresh) << "a queue pair may be stuck without an error";
  EXPECT_EQ(probes[7], Probe::kSendFresh);
}

TEST_F(PathRow, P31_Tick_Nothing) {
  MakeGood();
  EXPECT_EQ(At(2 * kMs, Kind::kTick).probe, Probe::kNone);
  EXPECT_EQ(At(1001 * kMs, Kind::kTick).probe, Probe::kSend);
  EXPECT_EQ(At(1002 * kMs, Kind::kTick).probe, Probe::kNone) << "one is out";
}

TEST(PathTable, EachRow_HasItsTest) { EXPECT_EQ(RowsWithoutTest("PathRow", path::kRows), ""); }

// A path whose link is up when `up` says so: every probe is answered after 1 ms or at its deadline
// not at all. Ticks come when they are due, as from the driver.
class Link {
 public:
  Link(const HealthTimes& times, std::function<bool(int64_t)> up)
      : path(times, 0), up_(std::move(up)) {}

  void Give(Kind kind, int64_t now_ns) { Take(path.Step({.kind = kind}, now_ns), now_ns); }
  void RunUntil(int64_t end_ns) {
    for (;;) {
      const int64_t next = std::min(result_at_, path.next_due());
      if (next > end_ns) return;
      if (next == result_at_) {
        result_at_ = kNever;
        Give(answers_ ? Kind::kAnswered : Kind::kUnanswered, next);
      } else {
        Give(Kind::kTick, next);
      }
    }
  }

  PathHealth path;
  int64_t down_at = 0;
  int64_t good_at = 0;
  int probes = 0;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  void Take(const PathStep& step, int64_t now_ns) {
    if (step.went_down) down_at = now_ns;
    if (step.became_good) good_at = now_ns;
    if (step.probe == Probe::kNone) return;
    ++probes;
    answers_ = up_(now_ns);
    result_at_ = answers_ ? now_ns + 1000 : step.probe_deadline;
  }
  std::function<bool(int64_t)> up_;
  int64_t result_at_ = kNever;
  bool answers_ = false;
};

TEST(PathHealth, StallOfAnyThreshold_DownAtTheThreshold) {
  for (const int64_t stall : {10 * kMs, 100 * kMs, kS, 600 * kS}) {
    HealthTimes times;
    times.stall = stall;
    bool up = true;
    Link link(times, [&up](int64_t) { return up; });
    link.Give(Kind::kUse, 0);
    link.RunUntil(10 * kMs);
    up = false;
    // Between two heartbeats, of which none is out.
    link.Give(Kind::kStalled, 20 * kMs + stall / 2);
    link.RunUntil(20 * kMs + stall - 1);
    EXPECT_EQ(link.path.state(), kDoubtful);
    link.RunUntil(20 * kMs + stall);
    EXPECT_EQ(link.down_at, 20 * kMs + stall) << stall;
    up = true;
    link.RunUntil(link.down_at + times.probe_interval + times.hold_down + kS);
    EXPECT_EQ(link.path.state(), kGood) << stall;
  }
}

TEST(PathHealth, LaneErrorOnDeadPath_DownInAQuarter) {
  HealthTimes times;
  bool up = true;
  Link link(times, [&up](int64_t) { return up; });
  link.Give(Kind::kUse, 0);
  link.RunUntil(10 * kMs);
  up = false;
  link.Give(Kind::kLaneError, 20 * kMs);
  link.RunUntil(kS);
  EXPECT_EQ(link.down_at, 270 * kMs);
}

TEST(PathHealth, IdlePathThatDies_IsFound) {
  HealthTimes times;
  Link link(times, [](int64_t now) { return now < 5 * kS; });
  link.Give(Kind::kUse, 0);
  link.RunUntil(20 * kS);
  EXPECT_GT(link.down_at, 5 * kS);
  EXPECT_LE(link.down_at, 5 * kS + times.probe_interval + times.stall / 2);
}

TEST(PathHealth, DownForDays_IsProbedEverLessOften) {
  HealthTimes times;
  Link link(times, [](int64_t now) { return now < 10 * kMs || now >= 48 * 3600 * kS; });
  link.Give(Kind::kUse, 0);
  link.RunUntil(20 * kMs);
  link.Give(Kind::kLocalDown, 20 * kMs);
  const int before = link.probes;
  link.RunUntil(600 * kS);
  EXPECT_NEAR(link.probes - before, 600, 2);
  const int eager = link.probes;
  link.RunUntil(600 * kS + 3600 * kS);
  EXPECT_NEAR(link.probes - eager, 120, 8) << "every 30 s in an hour";
  link.RunUntil(48 * 3600 * kS + 40 * kS);
  EXPECT_EQ(link.path.state(), kGood);
  EXPECT_LE(link.good_at, 48 * 3600 * kS + times.probe_interval_max + times.hold_down + 10 * kMs);
}

TEST(PathHealth, LinkBackWithEvent_GoodAfterTheHoldDown) {
  HealthTimes times;
  bool up = true;
  Link link(times, [&up](int64_t) { return up; });
  link.Give(Kind::kUse, 0);
  link.RunUntil(10 * kMs);
  up = false;
  link.Give(Kind::kLocalDown, 20 * kMs);
  link.RunUntil(3500 * kMs);
  up = true;
  link.Give(Kind::kMaybeUp, 3500 * kMs);
  link.RunUntil(10 * kS);
  EXPECT_GE(link.good_at, 4500 * kMs);
  EXPECT_LE(link.good_at, 4510 * kMs);
}

TEST(PathHealth, EventBeforeTheLinkWorks_NotEntered) {
  HealthTimes times;
  Link link(times, [](int64_t now) { return now < 10 * kMs || now >= 6 * kS; });
  link.Give(Kind::kUse, 0);
  link.RunUntil(20 * kMs);
  link.Give(Kind::kLocalDown, 20 * kMs);
  link.RunUntil(3 * kS);
  link.Give(Kind::kMaybeUp, 3 * kS);
  link.RunUntil(6 * kS - 1);
  EXPECT_EQ(link.path.state(), kDown);
  link.RunUntil(9 * kS);
  EXPECT_EQ(link.path.state(), kGood);
}

TEST(PathHealth, Flaps_AreHeldLongerEachTimeAndForgiven) {
  HealthTimes times;
  PathHealth path(times, 0);
  int64_t now = 0;
  const auto give = [&](Kind kind) { return path.Step({.kind = kind}, now); };
  const auto flap = [&] {
    give(Kind::kLocalDown);
    now += kMs;
    give(Kind::kMaybeUp);
    give(Kind::kAnswered);
    const int64_t held = path.held_until() - now;
    while (path.state() == kHeld) {
      now = std::max(now + kMs, path.next_due());
      if (give(Kind::kTick).probe != Probe::kNone) give(Kind::kAnswered);
    }
    return held;
  };
  give(Kind::kUse);
  give(Kind::kAnswered);
  for (const int64_t want : {1, 2, 4, 8, 16, 32, 60, 60}) EXPECT_EQ(flap(), want * kS);
  now += 61 * kS;  // halved, then doubled
  EXPECT_EQ(flap(), 60 * kS);
  now += 121 * kS;
  EXPECT_EQ(flap(), 30 * kS);
  now += 3600 * kS;
  EXPECT_EQ(flap(), kS);
}

TEST(PathHealth, FiftyFlapsInAMinute_FewEntries) {
  HealthTimes times;
  Link link(times, [](int64_t now) { return now > 60 * kS || now % (1200 * kMs) < 600 * kMs; });
  link.Give(Kind::kUse, 0);
  int entries = 0;
  int64_t last = 0;
  for (int i = 0; i < 50; ++i) {
    link.RunUntil((i * 1200 + 600) * kMs);
    link.Give(Kind::kLocalDown, (i * 1200 + 600) * kMs);
    link.RunUntil((i * 1200 + 1200) * kMs);
    link.Give(Kind::kMaybeUp, (i * 1200 + 1200) * kMs);
    if (link.good_at != last) ++entries;
    last = link.good_at;
  }
  EXPECT_LE(entries, 1);
  link.RunUntil(200 * kS);
  EXPECT_EQ(link.path.state(), kGood);
}

TEST(PathHealth, ResultThatNeverComes_CountsAsUnanswered) {
  HealthTimes times;
  PathHealth path(times, 0);
  EXPECT_EQ(path.Step({.kind = Kind::kUse}, 0).probe, Probe::kSend);
  EXPECT_EQ(path.next_due(), 1250 * kMs) << "a threshold after the deadline";
  path.Step({.kind = Kind::kTick}, 1250 * kMs);
  EXPECT_STREQ(path.row(), "P11_UnansweredUnknown_Waits");
}

TEST(PathHealth, ProbesAreImpossible_BusyPathIsNotCondemned) {
  HealthTimes times;
  Link link(times, [](int64_t) { return false; });
  link.Give(Kind::kUse, 0);
  link.RunUntil(3600 * kS);
  EXPECT_EQ(link.path.state(), kUnknown);
  EXPECT_LT(link.probes, 800);
  // But a lane's fault is.
  link.Give(Kind::kLaneError, 3600 * kS);
  link.RunUntil(3601 * kS);
  EXPECT_EQ(link.down_at, 3600 * kS + 250 * kMs);
}

}  // namespace
}  // namespace railhop::engine
