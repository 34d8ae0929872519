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
// events in, actions out; whoever carries them out may do so later, in this order. Not thread-safe.
#ifndef RAILHOP_CC_ENGINE_FAILOVER_H_
#define RAILHOP_CC_ENGINE_FAILOVER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/engine/ids.h"
#include "cc/engine/messages.h"

namespace railhop::engine {

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
  Failover(End end, uint32_t epoch) : end_(end), epoch_(epoch) {}

  std::vector<FailoverAction> Step(const FailoverEvent& event);

  End end() const { return end_; }
  FailoverPhase phase() const { return phase_; }
  uint32_t epoch() const { return epoch_; }
  // The sender takes a new one for an Offer, when nothing is being fenced or not: epochs only grow.
  uint32_t TakeEpoch() { return ++epoch_; }
  // The receiver, on an Offer: false if it is of the past.
  bool AdoptEpoch(uint32_t epoch);
  // Of the episode: the present one, or the last.
  const LaneIds& lanes() const { return lanes_; }
  Cause cause() const { return cause_; }
  // Valid when kResume is carried out.
  const Record& peer_record() const { return *peer_record_; }
  // Lanes that are retired and not fenced yet.
  const LaneIds& retiring() const { return retiring_; }

 private:
  const End end_;
  FailoverPhase phase_ = FailoverPhase::kRunning;
  uint32_t epoch_;
  LaneIds lanes_;
  LaneIds fenced_;    // of lanes_
  LaneIds retiring_;  // until they are fenced
  LaneIds quiet_;     // of retiring_: drained at this end
  Cause cause_ = Cause::kNone;
  std::optional<Record> peer_record_;
};

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_FAILOVER_H_
