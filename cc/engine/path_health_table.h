// The rows of PathHealth. docs/reference/path-machine.md is made from them, and path_health_test.cc
// has a test named after each.
#ifndef RAILHOP_CC_ENGINE_PATH_HEALTH_TABLE_H_
#define RAILHOP_CC_ENGINE_PATH_HEALTH_TABLE_H_

#include <array>

#include "cc/engine/path_health.h"
#include "cc/engine/table.h"

namespace railhop::engine::path {

inline constexpr std::array<const char*, 5> kStateNames = {"unknown", "good", "doubtful", "down",
                                                           "held"};
inline constexpr int kEvents = static_cast<int>(PathEvent::Kind::kTick) + 1;
inline constexpr std::array<const char*, kEvents> kEventNames = {
    "Use",       "Answered",   "Unanswered", "LaneError", "Stalled",
    "LocalDown", "RemoteDown", "MaybeUp",    "Wanted",    "Tick"};

enum class Guard : uint8_t {
  kAlways,
  kFirstUse,
  kNoneOut,
  kEarned,
  kHeldOut,
  kFreshOut,
  kDue,
};
inline constexpr std::array<const char*, 7> kGuardNames = {
    "",
    "it was not in use, and no probe is out",
    "no probe is out",
    "the fault earned a hold-down",
    "the hold-down is over, and the last probe has answered lately",
    "the fresh probe is out",
    "no probe is out and one is due",
};

enum class Do : uint8_t {
  kNone,
  kUse,
  kAnswer,
  kGood,
  kHold,
  kMiss,
  kDoubtSoon,
  kDoubt,
  kProbe,
  kProbeFresh,
  kProbeAgain,
  kFall,
  kFlap,
  kLeave,
  kEager,
};
inline constexpr std::array<const char*, 15> kDoNames = {
    "",
    "note use",
    "note answer",
    "may be entered",
    "start hold-down",
    "wait longer",
    "probes have an eighth of the stall threshold",
    "probes have a quarter of the stall threshold",
    "probe",
    "probe over a fresh queue pair",
    "probe, now and then over a fresh queue pair",
    "count a flap if it earns one, once",
    "count a flap if it earns one",
    "leave it",
    "wait no longer than at first",
};

using Row = TableRow<Guard, Do>;
using Kind = PathEvent::Kind;
using enum PathState;

inline constexpr uint32_t kAll = In(kUnknown, kGood, kDoubtful, kDown, kHeld);
inline constexpr std::array<BitGroup, 1> kGroups = {{{kAll, "any"}}};
constexpr int To(PathState state) { return static_cast<int>(state); }

// A row reads across: clang-format would set each word on a line.
// clang-format off
inline constexpr std::array kRows = {
    Row{"P01_FirstUse_Probes", In(kUnknown, kGood, kDown, kHeld), In(Kind::kUse), Guard::kFirstUse,
        {Do::kUse, Do::kDoubt, Do::kProbe}, Row::kSame,
        "standby is known to work before it is needed"},
    Row{"P02_Use_Noted", kAll, In(Kind::kUse), Guard::kAlways, {Do::kUse}, Row::kSame, ""},
    Row{"P03_Answered_Good", In(kUnknown, kDoubtful), In(Kind::kAnswered), Guard::kAlways,
        {Do::kAnswer, Do::kGood}, To(kGood), "a round trip proves it"},
    Row{"P04_AnsweredGood_Stays", In(kGood), In(Kind::kAnswered), Guard::kAlways, {Do::kAnswer},
        Row::kSame, ""},
    Row{"P05_AnsweredDownNoneOut_Nothing", In(kDown), In(Kind::kAnswered), Guard::kNoneOut, {},
        Row::kSame, "it was sent before the fault"},
    Row{"P06_AnsweredDown_Held", In(kDown), In(Kind::kAnswered), Guard::kEarned,
        {Do::kAnswer, Do::kHold}, To(kHeld), "one answer is not yet a link"},
    Row{"P07_AnsweredDownUnearned_Good", In(kDown), In(Kind::kAnswered), Guard::kAlways,
        {Do::kAnswer, Do::kGood}, To(kGood), "it was a pause"},
    Row{"P08_AnsweredHeldOut_Good", In(kHeld), In(Kind::kAnswered), Guard::kHeldOut,
        {Do::kAnswer, Do::kGood}, To(kGood), "it has answered for the whole hold-down"},
    Row{"P09_AnsweredHeld_Stays", In(kHeld), In(Kind::kAnswered), Guard::kAlways, {Do::kAnswer},
        Row::kSame, ""},
    Row{"P10_UnansweredNoneOut_Nothing", kAll, In(Kind::kUnanswered), Guard::kNoneOut, {},
        Row::kSame, "late: it was judged before"},
    Row{"P11_UnansweredUnknown_Waits", In(kUnknown), In(Kind::kUnanswered), Guard::kAlways,
        {Do::kMiss}, Row::kSame, "it may carry data, and only probes be impossible"},
    Row{"P12_UnansweredGood_Doubt", In(kGood), In(Kind::kUnanswered), Guard::kAlways,
        {Do::kDoubt, Do::kProbeFresh}, To(kDoubtful), "the probe's own queue pair may be at fault"},
    Row{"P13_UnansweredFresh_Down", In(kDoubtful), In(Kind::kUnanswered), Guard::kFreshOut,
        {Do::kFall, Do::kLeave}, To(kDown), "twice, over two queue pairs"},
    Row{"P14_UnansweredDoubt_Fresh", In(kDoubtful), In(Kind::kUnanswered), Guard::kAlways,
        {Do::kProbeFresh}, Row::kSame, "the probe's own queue pair may be at fault"},
    Row{"P15_UnansweredDown_Waits", In(kDown), In(Kind::kUnanswered), Guard::kAlways, {Do::kMiss},
        Row::kSame, ""},
    Row{"P16_UnansweredHeld_Down", In(kHeld), In(Kind::kUnanswered), Guard::kAlways,
        {Do::kFlap, Do::kLeave}, To(kDown), "it flaps"},
    Row{"P17_LaneError_Doubt", In(kUnknown, kGood), In(Kind::kLaneError), Guard::kAlways,
        {Do::kDoubtSoon, Do::kProbe}, To(kDoubtful),
        "a lane's error alone does not condemn its path"},
    Row{"P18_Stalled_Doubt", In(kUnknown, kGood), In(Kind::kStalled), Guard::kAlways,
        {Do::kDoubt, Do::kProbe}, To(kDoubtful), "two probes decide by the stall threshold"},
    Row{"P19_SignDoubtful_Nothing", In(kDoubtful), In(Kind::kLaneError, Kind::kStalled),
        Guard::kAlways, {}, Row::kSame, "a probe decides already"},
    Row{"P20_SignDown_Leave", In(kDown), In(Kind::kLaneError, Kind::kStalled), Guard::kAlways,
        {Do::kLeave}, Row::kSame, "the other end has put a lane there, and it does not work"},
    Row{"P21_SignHeld_Probes", In(kHeld), In(Kind::kLaneError, Kind::kStalled), Guard::kNoneOut,
        {Do::kProbe}, Row::kSame, ""},
    Row{"P22_SignHeld_Nothing", In(kHeld), In(Kind::kLaneError, Kind::kStalled), Guard::kAlways, {},
        Row::kSame, "a probe decides already"},
    Row{"P23_PortDown_Down", In(kUnknown, kGood, kDoubtful),
        In(Kind::kLocalDown, Kind::kRemoteDown), Guard::kAlways, {Do::kFall, Do::kLeave}, To(kDown),
        "the fence makes it safe to leave"},
    Row{"P24_PortDownDown_Leave", In(kDown), In(Kind::kLocalDown, Kind::kRemoteDown),
        Guard::kAlways, {Do::kFall, Do::kLeave}, Row::kSame,
        "counted once; the other end may have put a lane there"},
    Row{"P25_PortDownHeld_Down", In(kHeld), In(Kind::kLocalDown, Kind::kRemoteDown), Guard::kAlways,
        {Do::kFlap, Do::kLeave}, To(kDown), "it flaps"},
    Row{"P26_MaybeUp_Probes", In(kUnknown, kGood, kDown), In(Kind::kMaybeUp, Kind::kWanted), Guard::kAlways,
        {Do::kEager, Do::kProbeFresh}, Row::kSame, "the event may be early: the probe decides"},
    Row{"P27_MaybeUpHeld_Nothing", In(kDoubtful, kHeld), In(Kind::kMaybeUp), Guard::kAlways, {},
        Row::kSame, "a probe decides already"},
    Row{"P28_TickHeldOut_Good", In(kHeld), In(Kind::kTick), Guard::kHeldOut, {Do::kGood}, To(kGood),
        "it has answered for the whole hold-down"},
    Row{"P29_TickDue_Probes", In(kGood, kDoubtful, kHeld), In(Kind::kTick), Guard::kDue,
        {Do::kProbe}, Row::kSame, "heartbeat"},
    Row{"P30_TickDueDown_Probes", In(kUnknown, kDown), In(Kind::kTick), Guard::kDue,
        {Do::kProbeAgain}, Row::kSame, "for as long as the job lives"},
    Row{"P32_WantedHeld_Good", In(kHeld), In(Kind::kWanted), Guard::kAlways, {Do::kGood}, To(kGood),
        "it answers, and who asks takes the rest of the hold-down on himself"},
    Row{"P33_WantedDoubtful_Nothing", In(kDoubtful), In(Kind::kWanted), Guard::kAlways, {},
        Row::kSame, "a probe decides already"},
    Row{"P31_Tick_Nothing", kAll, In(Kind::kTick), Guard::kAlways, {}, Row::kSame, ""},
};
// clang-format on

static_assert(IdsAreUnique(kRows));
static_assert(IsComplete(kRows, kAll, kEvents));
static_assert(IsWithin(kRows, kAll, kEvents));

}  // namespace railhop::engine::path

#endif  // RAILHOP_CC_ENGINE_PATH_HEALTH_TABLE_H_
