// The rows of Failover. docs/reference/failover-machine.md is made from them, and failover_test.cc
// has a test named after each.
//
// A state is an end and a phase. "Its lanes" are those of the episode; "the joined lanes" are those
// of the event together with those of an episode that is not finished.
#ifndef RAILHOP_CC_ENGINE_FAILOVER_TABLE_H_
#define RAILHOP_CC_ENGINE_FAILOVER_TABLE_H_

#include <array>

#include "cc/engine/failover.h"
#include "cc/engine/table.h"

namespace railhop::engine::failover {

inline constexpr int kPhases = 5;
constexpr int StateOf(End end, FailoverPhase phase) {
  return static_cast<int>(end) * kPhases + static_cast<int>(phase);
}

enum State : int {
  kSRunning = StateOf(End::kSender, FailoverPhase::kRunning),
  kSFencing = StateOf(End::kSender, FailoverPhase::kFencing),
  kSComparing = StateOf(End::kSender, FailoverPhase::kComparing),
  kSOver = StateOf(End::kSender, FailoverPhase::kOver),
  kRRunning = StateOf(End::kReceiver, FailoverPhase::kRunning),
  kRAsking = StateOf(End::kReceiver, FailoverPhase::kAsking),
  kRFencing = StateOf(End::kReceiver, FailoverPhase::kFencing),
  kRComparing = StateOf(End::kReceiver, FailoverPhase::kComparing),
  kROver = StateOf(End::kReceiver, FailoverPhase::kOver),
};
inline constexpr std::array<const char*, 2 * kPhases> kStateNames = {
    "sender running",     "",
    "sender fencing",     "sender comparing",
    "sender over",        "receiver running",
    "receiver asking",    "receiver fencing",
    "receiver comparing", "receiver over"};

// A row's next state names the phase: both ends keep theirs.
inline constexpr std::array<const char*, 2 * kPhases> kNextNames = {
    "running", "asking", "fencing", "comparing", "over",
    "running", "asking", "fencing", "comparing", "over"};

inline constexpr int kEvents = static_cast<int>(FailoverEvent::Kind::kResumed) + 1;
inline constexpr std::array<const char*, kEvents> kEventNames = {
    "Suspect", "PeerAsk", "PeerFence", "Fenced", "PeerRecord", "Repeat",
    "Retire",  "Drained", "PeerQuiet", "GiveUp", "Resumed"};

enum class Guard : uint8_t {
  kAlways,
  kTooMany,
  kNothingNew,
  kStale,
  kCovered,
  kAllFenced,
  kSameEpisode,
  kPast,
  kMore,
  kLastFencedAndRecord,
  kLastFenced,
  kMatches,
  kQuiet,
};
inline constexpr std::array<const char*, 13> kGuardNames = {
    "",
    "the joined lanes are more than a connection has places",
    "no lane is new",
    "no lane is new and the ask is older than the last episode, or none is named",
    "its lanes cover them",
    "all joined lanes are fenced here",
    "it is this episode's",
    "it is not newer than this episode, or names no lane",
    "an unfinished episode of ours has more lanes",
    "with these all its lanes are fenced, and the peer's record is here",
    "with these all its lanes are fenced",
    "epoch and lanes are its own",
    "retired lanes have drained",
};

enum class Do : uint8_t {
  kNone,
  kNewEpoch,
  kTakeEpoch,
  kJoin,
  kStop,
  kFence,
  kSendAsk,
  kSendFence,
  kSendRecord,
  kNoteFenced,
  kKeepRecord,
  kResume,
  kNoteRetiring,
  kRetire,
  kNoteQuiet,
  kSendQuiet,
  kFail,
};
inline constexpr std::array<const char*, 17> kDoNames = {"",
                                                         "new epoch",
                                                         "take epoch",
                                                         "join",
                                                         "stop posting",
                                                         "fence",
                                                         "send Ask",
                                                         "send Fence",
                                                         "send Record",
                                                         "note fenced",
                                                         "keep record",
                                                         "resume",
                                                         "note retiring",
                                                         "retire",
                                                         "note drained",
                                                         "send Quiet",
                                                         "fail"};

using Row = TableRow<Guard, Do>;
using Kind = FailoverEvent::Kind;

inline constexpr uint32_t kSUnfinished = In(kSFencing, kSComparing);
inline constexpr uint32_t kRUnfinished = In(kRAsking, kRFencing, kRComparing);
inline constexpr uint32_t kSender = In(kSRunning) | kSUnfinished;
inline constexpr uint32_t kReceiver = In(kRRunning) | kRUnfinished;
inline constexpr uint32_t kOver = In(kSOver, kROver);
inline constexpr uint32_t kAll = kSender | kReceiver | kOver;
inline constexpr std::array<BitGroup, 6> kGroups = {{
    {kAll, "any"},
    {kSender | kReceiver, "any but over"},
    {kSender, "sender but over"},
    {kReceiver, "receiver but over"},
    {kSUnfinished, "sender in an episode"},
    {kRUnfinished, "receiver in an episode"},
}};
inline constexpr uint32_t kAnyEvent = (1u << kEvents) - 1;

// `next` counts by its phase; the end stays what it is.
// A row reads across: clang-format would set each word on a line.
// clang-format off
inline constexpr std::array kRows = {
    // ---- this end's own reasons
    Row{"F01_TooManyLanes_Nothing", kSender | kReceiver,
        In(Kind::kSuspect, Kind::kPeerAsk, Kind::kPeerFence), Guard::kTooMany, {}, Row::kSame,
        "no honest end names more: places are used again only when fenced"},
    Row{"F02_SuspectKnown_Nothing", kSender | kReceiver, In(Kind::kSuspect), Guard::kNothingNew, {},
        Row::kSame, "fenced before, or being fenced: no news"},
    Row{"F03_SenderSuspect_Fences", kSender, In(Kind::kSuspect), Guard::kAlways,
        {Do::kNewEpoch, Do::kJoin, Do::kStop, Do::kFence, Do::kSendFence}, kSFencing,
        "a second fault raises the epoch and includes the lanes of the unfinished episode"},
    Row{"F04_ReceiverSuspect_Asks", kReceiver, In(Kind::kSuspect), Guard::kAlways,
        {Do::kJoin, Do::kStop, Do::kFence, Do::kSendAsk}, kRAsking,
        "the sender numbers; fencing at once is safe and saves time"},
    // ---- the receiver asks
    Row{"F05_AskStale_Nothing", In(kSRunning), In(Kind::kPeerAsk), Guard::kStale, {}, Row::kSame,
        "the episode that came of it is over"},
    Row{"F06_AskCovered_FenceAgain", kSUnfinished, In(Kind::kPeerAsk), Guard::kCovered,
        {Do::kSendFence}, Row::kSame, "the first was lost, or has crossed it"},
    Row{"F07_AskFenced_Compares", kSender, In(Kind::kPeerAsk), Guard::kAllFenced,
        {Do::kNewEpoch, Do::kJoin, Do::kSendFence, Do::kSendRecord}, kSComparing,
        "the receiver has not finished what this end has: records again"},
    Row{"F08_Ask_Fences", kSender, In(Kind::kPeerAsk), Guard::kAlways,
        {Do::kNewEpoch, Do::kJoin, Do::kStop, Do::kFence, Do::kSendFence}, kSFencing,
        "the union of what both suspect"},
    Row{"F09_AskAtReceiver_Nothing", kReceiver, In(Kind::kPeerAsk), Guard::kAlways, {}, Row::kSame,
        "senders do not ask: a lie"},
    // ---- the sender's fence
    Row{"F10_FenceAtSender_Nothing", kSender, In(Kind::kPeerFence), Guard::kAlways, {}, Row::kSame,
        "receivers do not number: a lie"},
    Row{"F11_FenceAgain_RecordAgain", In(kRRunning, kRComparing), In(Kind::kPeerFence),
        Guard::kSameEpisode, {Do::kSendRecord}, Row::kSame,
        "the sender lacks it; an end that is through answers too"},
    Row{"F12_FencePast_Nothing", kReceiver, In(Kind::kPeerFence), Guard::kPast, {}, Row::kSame,
        "an old epoch changes nothing; one that is under way is answered when it is fenced"},
    Row{"F13_FenceOfLess_AsksForUnion", kReceiver, In(Kind::kPeerFence), Guard::kMore,
        {Do::kTakeEpoch, Do::kJoin, Do::kStop, Do::kFence, Do::kSendAsk}, kRAsking,
        "both records must name the same lanes"},
    Row{"F14_FenceOfFenced_Compares", kReceiver, In(Kind::kPeerFence), Guard::kAllFenced,
        {Do::kTakeEpoch, Do::kJoin, Do::kSendRecord}, kRComparing,
        "all is fenced already, since this end asked"},
    Row{"F15_Fence_Fences", kReceiver, In(Kind::kPeerFence), Guard::kAlways,
        {Do::kTakeEpoch, Do::kJoin, Do::kStop, Do::kFence}, kRFencing, "as the sender says"},
    // ---- fenced, compared
    Row{"F16_LastFencedRecordHere_Resumes", In(kSFencing, kRFencing), In(Kind::kFenced),
        Guard::kLastFencedAndRecord, {Do::kNoteFenced, Do::kSendRecord, Do::kResume}, kSRunning,
        "the other end was first"},
    Row{"F17_LastFenced_Compares", In(kSFencing, kRFencing), In(Kind::kFenced), Guard::kLastFenced,
        {Do::kNoteFenced, Do::kSendRecord}, kSComparing, ""},
    Row{"F18_Fenced_Noted", kAll, In(Kind::kFenced), Guard::kAlways, {Do::kNoteFenced}, Row::kSame,
        "the rest is still to come, or nobody waits"},
    Row{"F19_Record_Resumes", In(kSComparing, kRComparing), In(Kind::kPeerRecord), Guard::kMatches,
        {Do::kKeepRecord, Do::kResume}, kSRunning,
        "both records name the same epoch and lanes, and both ends have fenced them"},
    Row{"F20_RecordBeforeFenced_Kept", In(kSFencing, kRFencing), In(Kind::kPeerRecord),
        Guard::kMatches, {Do::kKeepRecord}, Row::kSame, "until this end has fenced too"},
    Row{"F21_RecordAgain_SenderAnswers", In(kSRunning), In(Kind::kPeerRecord), Guard::kMatches,
        {Do::kSendRecord}, Row::kSame,
        "the receiver waits for it; a receiver that is through answers FENCE, not RECORD"},
    Row{"F22_RecordOther_Nothing", kSender | kReceiver, In(Kind::kPeerRecord), Guard::kAlways, {},
        Row::kSame, "another epoch, other lanes, or nobody waits"},
    // ---- once more
    Row{"F23_RepeatAsking_Ask", In(kRAsking), In(Kind::kRepeat), Guard::kAlways, {Do::kSendAsk},
        Row::kSame, ""},
    Row{"F24_RepeatFencing_Fence", In(kSFencing), In(Kind::kRepeat), Guard::kAlways,
        {Do::kSendFence}, Row::kSame, ""},
    Row{"F25_RepeatComparing_FenceRecord", In(kSComparing), In(Kind::kRepeat), Guard::kAlways,
        {Do::kSendFence, Do::kSendRecord}, Row::kSame, "FENCE precedes RECORD in a session"},
    Row{"F26_RepeatComparing_Record", In(kRComparing), In(Kind::kRepeat), Guard::kAlways,
        {Do::kSendRecord}, Row::kSame, ""},
    Row{"F27_RepeatQuiet_Quiet", In(kSRunning), In(Kind::kRepeat), Guard::kQuiet, {Do::kSendQuiet},
        Row::kSame, "until the receiver asks"},
    Row{"F28_RepeatNothing_Nothing", In(kSRunning, kRRunning, kRFencing), In(Kind::kRepeat),
        Guard::kAlways, {}, Row::kSame, "there is nothing to say"},
    // ---- hand-over
    Row{"F29_Retire_Noted", kSender, In(Kind::kRetire), Guard::kAlways, {Do::kNoteRetiring},
        Row::kSame, "an episode does not lose it"},
    Row{"F30_RetireAtReceiver_Nothing", kReceiver, In(Kind::kRetire), Guard::kAlways, {},
        Row::kSame, "the sender says when"},
    Row{"F31_SenderDrained_Quiet", In(kSRunning), In(Kind::kDrained), Guard::kQuiet,
        {Do::kNoteQuiet, Do::kSendQuiet}, Row::kSame, "the receiver's turn"},
    Row{"F32_SenderDrainedInEpisode_Kept", kSUnfinished, In(Kind::kDrained), Guard::kAlways,
        {Do::kNoteQuiet}, Row::kSame, "said when running again"},
    Row{"F33_ReceiverDrained_Asks", In(kRRunning), In(Kind::kDrained), Guard::kQuiet,
        {Do::kNoteQuiet, Do::kJoin, Do::kStop, Do::kFence, Do::kSendAsk}, kRAsking,
        "an ordinary episode compares the records: acknowledgements do not suffice"},
    Row{"F34_ReceiverDrainedInEpisode_Kept", kRUnfinished, In(Kind::kDrained), Guard::kAlways,
        {Do::kNoteQuiet}, Row::kSame, "asked for when running again"},
    Row{"F35_DrainedUnknown_Nothing", In(kSRunning, kRRunning), In(Kind::kDrained), Guard::kAlways,
        {}, Row::kSame, "an episode has fenced them meanwhile, or they are no news"},
    Row{"F36_QuietKnown_Nothing", kReceiver, In(Kind::kPeerQuiet), Guard::kNothingNew, {},
        Row::kSame, "said before, or fenced"},
    Row{"F37_Quiet_Retires", kReceiver, In(Kind::kPeerQuiet), Guard::kAlways,
        {Do::kNoteRetiring, Do::kRetire}, Row::kSame, "also in an episode: never dropped"},
    Row{"F38_QuietAtSender_Nothing", kSender, In(Kind::kPeerQuiet), Guard::kAlways, {}, Row::kSame,
        "a lie"},
    Row{"F39_SenderResumedDrained_Quiet", In(kSRunning), In(Kind::kResumed), Guard::kQuiet,
        {Do::kSendQuiet}, Row::kSame, "what the episode has kept"},
    Row{"F40_ReceiverResumedDrained_Asks", In(kRRunning), In(Kind::kResumed), Guard::kQuiet,
        {Do::kJoin, Do::kStop, Do::kFence, Do::kSendAsk}, kRAsking, "what the episode has kept"},
    Row{"F41_Resumed_Runs", kSender | kReceiver, In(Kind::kResumed), Guard::kAlways, {}, Row::kSame,
        ""},
    // ---- the end
    Row{"F42_GiveUp_Over", kSender | kReceiver, In(Kind::kGiveUp), Guard::kAlways,
        {Do::kStop, Do::kFence, Do::kFail}, kSOver, "before the first error all is stopped"},
    Row{"F43_Over_Nothing", kOver, kAnyEvent & ~In(Kind::kFenced), Guard::kAlways, {}, Row::kSame,
        "it is quiet for ever"},
};
// clang-format on

static_assert(IdsAreUnique(kRows));
static_assert(IsComplete(kRows, kAll, kEvents));
static_assert(IsWithin(kRows, kAll, kEvents));

constexpr FailoverPhase PhaseOf(int state) { return static_cast<FailoverPhase>(state % kPhases); }
static_assert(PhaseOf(kRAsking) == FailoverPhase::kAsking);

}  // namespace railhop::engine::failover

#endif  // RAILHOP_CC_ENGINE_FAILOVER_TABLE_H_
