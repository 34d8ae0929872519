// One end of one connection: how lanes that have failed are left, by agreement with the other end.
//
//   running --suspect--> [asking (receiver)] --FENCE--> fencing --all fenced--> comparing
//      ^                                                                            |
//      +------------- both RECORDs name the same epoch and lanes: resume -----------+
//
// The sender numbers the epochs; the receiver asks. What is fenced is the union of what both ends
// suspect, and of what an unfinished episode had. Lanes that are not named go on carrying data.
// New lanes are not this machine's business: it only says when what was lost may be sent again.
//
// The rows are in failover_table.h; docs/reference/failover-machine.md is made from them. Pure:
// events in, actions out; whoever carries them out may do so later, in this order. Lanes that never
// were at this end are not to be given to it (but those of an Offer that is not answered are: their
// fence is done at once), since one of a place's newer epochs stands for all before it. Not
// thread-safe.
#ifndef RAILHOP_CC_ENGINE_FAILOVER_H_
#define RAILHOP_CC_ENGINE_FAILOVER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/engine/ids.h"
#include "cc/engine/messages.h"

namespace railhop::engine {

namespace failover {
enum class Do : uint8_t;
}  // namespace failover

enum class FailoverPhase : uint8_t { kRunning, kAsking, kFencing, kComparing, kOver };

struct FailoverEvent {
  enum class Kind : uint8_t {
    kSuspect,     // lanes: this end has a reason (cause) to leave them
    kPeerAsk,     // lanes, epoch, cause: Ask
    kPeerFence,   // lanes, epoch, cause: Fence
    kFenced,      // lanes: fenced at this end (each lane is reported once, in any portions)
    kPeerRecord,  // record
    kRepeat,      // a new session, or the time to say again what has had no answer
    kRetire,      // lanes: are to be left in order; nothing is posted to them any more (sender)
    kDrained,     // lanes: retired ones of this end whose work has completed
    kPeerQuiet,   // lanes, cause: Quiet (receiver)
    kGiveUp,      // nothing more is to be hoped for, or the other end has given up, or a close
    kResumed,     // the machine's own, after each kResume
  };
  Kind kind = Kind::kSuspect;
  LaneIds lanes;
  uint32_t epoch = 0;
  Cause cause = Cause::kNone;
  const Record* record = nullptr;  // kPeerRecord; read during the call
};

struct FailoverAction {
  enum class Kind : uint8_t {
    kStopPosting,  // lanes: post nothing more; completions count
    kFence,        // lanes: ERR, drain, destroy; answer with kFenced
    kSendAsk,      // lanes, epoch, cause
    kSendFence,    // lanes, epoch, cause
    kSendRecord,   // lanes, epoch: with this end's ledger as it is when this is carried out
    kResume,       // lanes: compare with peer_record() and mark what is missing; carried out before
                   // the next event is given
    kRetire,       // lanes: post nothing more; answer with kDrained (receiver, on a Quiet)
    kSendQuiet,    // lanes, epoch, cause
    kFail,         // all lanes are fenced or being fenced: the connection is over
  };
  Kind kind = Kind::kStopPosting;
  LaneIds lanes;
  uint32_t epoch = 0;
  Cause cause = Cause::kNone;
};

class Failover {
 public:
  // epoch: that of the lanes which the handshake made.
  Failover(End end, uint32_t epoch)
      : end_(end), first_epoch_(epoch), epoch_(epoch), episode_(epoch), offered_(epoch) {}

  std::vector<FailoverAction> Step(const FailoverEvent& event);

  End end() const { return end_; }
  FailoverPhase phase() const { return phase_; }
  uint32_t epoch() const { return epoch_; }
  // That of the present episode, or the last: what FENCE and RECORD name. An Offer may have taken a
  // higher one since.
  uint32_t episode() const { return episode_; }
  // The sender takes a new one for an Offer, when nothing is being fenced or not: epochs only grow.
  uint32_t TakeEpoch() { return ++epoch_; }
  // The receiver, on an Offer: false if it is of the past, that is, older than another Offer that
  // was adopted. The newest Offer again is not; nor is one that a FENCE has overtaken.
  bool AdoptEpoch(uint32_t epoch);
  // Of the episode: the present one, or the last.
  const LaneIds& lanes() const { return lanes_; }
  Cause cause() const { return cause_; }
  // Valid when kResume is carried out, until the next event.
  const Record& peer_record() const { return *peer_record_; }
  // Lanes that are retired and not fenced yet.
  const LaneIds& retiring() const { return retiring_; }

  // Ids of the rows that the last event took: its own, and that of the kResumed that followed it
  // (nullptr: none did).
  const char* row() const { return row_; }
  const char* resumed_row() const { return resumed_row_; }

 private:
  friend class FailoverState;  // tests: all of it as text
  struct Facts;

  void Take(const FailoverEvent& event, std::vector<FailoverAction>* actions);
  void Carry(failover::Do action, const FailoverEvent& event, const Facts& facts,
             std::vector<FailoverAction>* actions);
  Facts Look(const FailoverEvent& event) const;
  bool IsUnfinished() const;
  bool IsFenced(LaneId lane) const;
  bool AreFenced(const LaneIds& lanes) const;
  void NoteFenced(LaneId lane);
  void Join(const FailoverEvent& event, const Facts& facts);
  LaneIds Joined(const LaneIds& lanes) const;
  Cause CauseOf(const FailoverEvent& event, const Facts& facts) const;

  const End end_;
  const uint32_t first_epoch_;
  FailoverPhase phase_ = FailoverPhase::kRunning;
  uint32_t epoch_;
  uint32_t episode_;  // <= epoch_
  uint32_t offered_;  // the newest Offer
  LaneIds lanes_;
  LaneIds fenced_;    // for each place the newest lane that was fenced here: older ones were too
  LaneIds retiring_;  // until they are fenced
  LaneIds quiet_;     // of retiring_: drained at this end
  Cause cause_ = Cause::kNone;
  Cause hand_over_cause_ = Cause::kNone;
  std::optional<Record> peer_record_;
  bool has_record_ = false;  // peer_record_ is of this episode
  const char* row_ = nullptr;
  const char* resumed_row_ = nullptr;
};

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_FAILOVER_H_
