// Two Failover machines against each other, with what is around them: sessions that break and lose
// what is under way, fences that end when the test says so, new lanes.
//
// Asserted in every step: epochs grow; a lane is fenced once at each end, after posts to it have
// stopped; a record comes after the fence; an episode is resumed only after both ends have fenced
// all its lanes, and both name the same lanes for it. Settle() then lets everything come to an end
// without faults, and asserts that both ends run, in the same episode, and that every lane that was
// suspected or retired is fenced at both.
#ifndef RAILHOP_CC_ENGINE_TESTING_TWO_ENDS_H_
#define RAILHOP_CC_ENGINE_TESTING_TWO_ENDS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "cc/engine/failover.h"

namespace railhop::engine {

// All of a machine, for keys of states.
class FailoverState {
 public:
  static std::string Text(const Failover& m);
};

struct Wire {
  enum class Kind { kAsk, kFence, kRecord, kQuiet, kOffer, kAnswer };
  Kind kind;
  uint32_t epoch;
  LaneIds lanes;
  Cause cause;
};

struct Side {
  explicit Side(End end) : machine(end, 1) {}
  Failover machine;
  std::set<LaneId> live;  // exist at this end
  std::set<LaneId> stopped;
  std::set<LaneId> fencing;  // asked for, not done
  std::set<LaneId> fenced;
  std::set<LaneId> draining;
  std::map<uint32_t, LaneIds> resumed;
  std::deque<Wire> out;  // to the other end
  uint32_t last_epoch = 1;
  uint32_t last_episode = 1;
};

class TwoEnds {
 public:
  explicit TwoEnds(int places) : places_(places) {
    for (int i = 0; i < places; ++i) {
      for (Side* side : {&sender_, &receiver_}) {
        side->live.insert({static_cast<uint8_t>(i), 1});
      }
    }
  }

  // What was found wrong; empty so far.
  const std::string& error() const { return error_; }
  int places() const { return places_; }
  Side& sender() { return sender_; }
  Side& receiver() { return receiver_; }
  bool is_up() const { return up_; }
  // Two runs with the same key have the same future.
  std::string Key() const;

  Side& Other(const Side& side) { return &side == &sender_ ? receiver_ : sender_; }
  const char* Name(const Side& side) { return &side == &sender_ ? "sender" : "receiver"; }
  void Fail(const std::string& text) {
    if (error_.empty()) error_ = text;
  }
  void Step(Side* side, FailoverEvent event) {
    const auto actions = side->machine.Step(event);
    if (side->machine.epoch() < side->last_epoch || side->machine.episode() < side->last_episode) {
      Fail(std::string("epoch shrank at ") + Name(*side));
    }
    side->last_epoch = side->machine.epoch();
    side->last_episode = side->machine.episode();
    for (const FailoverAction& action : actions) Carry(side, action);
  }

  void Say(Side* side, Wire wire) {
    if (up_) side->out.push_back(std::move(wire));
  }

  void Carry(Side* side, const FailoverAction& action) {
    using Kind = FailoverAction::Kind;
    switch (action.kind) {
      case Kind::kStopPosting:
        side->stopped.insert(action.lanes.begin(), action.lanes.end());
        break;
      case Kind::kFence:
        for (const LaneId& lane : action.lanes) {
          if (side->stopped.count(lane) == 0) Fail("fenced before posts stopped");
          if (side->fencing.count(lane) + side->fenced.count(lane) > 0) Fail("fenced twice");
          side->fencing.insert(lane);
          must_go_.insert(lane);
        }
        break;
      case Kind::kSendAsk:
        Say(side, {Wire::Kind::kAsk, action.epoch, action.lanes, action.cause});
        break;
      case Kind::kSendFence:
        Say(side, {Wire::Kind::kFence, action.epoch, action.lanes, action.cause});
        break;
      case Kind::kSendRecord:
        for (const LaneId& lane : action.lanes) {
          if (side->fenced.count(lane) == 0) Fail("record before the fence");
        }
        Say(side, {Wire::Kind::kRecord, action.epoch, action.lanes, action.cause});
        break;
      case Kind::kResume:
        Resume(side, action);
        break;
      case Kind::kRetire:
        side->draining.insert(action.lanes.begin(), action.lanes.end());
        break;
      case Kind::kSendQuiet:
        Say(side, {Wire::Kind::kQuiet, action.epoch, action.lanes, action.cause});
        break;
      case Kind::kFail:
        Fail("nobody gave up");
        break;
    }
  }

  void Resume(Side* side, const FailoverAction& action) {
    for (const LaneId& lane : action.lanes) {
      if (sender_.fenced.count(lane) == 0) Fail("resumed before the sender's fence");
      if (receiver_.fenced.count(lane) == 0) Fail("resumed before the receiver's fence");
    }
    if (side->machine.peer_record().epoch != action.epoch ||
        side->machine.peer_record().lanes != action.lanes) {
      Fail("resumed with another's record");
    }
    if (!side->resumed.emplace(action.epoch, action.lanes).second) Fail("resumed twice");
    const auto other = Other(*side).resumed.find(action.epoch);
    if (other != Other(*side).resumed.end() && other->second != action.lanes) {
      Fail("resumed with different lanes");
    }
  }

  void Fenced(Side* side, const LaneIds& lanes) {
    if (lanes.empty()) return;
    for (const LaneId& lane : lanes) {
      side->fencing.erase(lane);
      side->draining.erase(lane);
      side->live.erase(lane);
      side->fenced.insert(lane);
    }
    Step(side, {.kind = FailoverEvent::Kind::kFenced, .lanes = lanes});
  }

  // Lanes of an Offer that is not answered: nothing is there to be fenced.
  void FenceUnborn() {
    LaneIds unborn;
    for (const LaneId& lane : sender_.fencing) {
      if (offered_.erase(lane) > 0) AddLane(&unborn, lane);
    }
    Fenced(&sender_, unborn);
  }

  // which, keep: as no session does, but then it is only slower.
  void Deliver(Side* from, size_t which = 0, bool keep = false) {
    if (which >= from->out.size()) return;
    const Wire wire = from->out[which];
    if (!keep) from->out.erase(from->out.begin() + static_cast<std::ptrdiff_t>(which));
    Side* const to = &Other(*from);
    FailoverEvent event{.lanes = wire.lanes, .epoch = wire.epoch, .cause = wire.cause};
    Record record;
    switch (wire.kind) {
      case Wire::Kind::kAsk:
        event.kind = FailoverEvent::Kind::kPeerAsk;
        break;
      case Wire::Kind::kFence:
        event.kind = FailoverEvent::Kind::kPeerFence;
        break;
      case Wire::Kind::kQuiet:
        event.kind = FailoverEvent::Kind::kPeerQuiet;
        break;
      case Wire::Kind::kRecord:
        event.kind = FailoverEvent::Kind::kPeerRecord;
        record.epoch = wire.epoch;
        record.lanes = wire.lanes;
        event.record = &record;
        break;
      case Wire::Kind::kOffer:
        TakeOffer(wire);
        return;
      case Wire::Kind::kAnswer:
        for (const LaneId& lane : wire.lanes) {
          if (offered_.erase(lane) > 0) sender_.live.insert(lane);
        }
        return;
    }
    Step(to, event);
    FenceUnborn();
  }

  void TakeOffer(const Wire& wire) {
    const LaneId lane = wire.lanes[0];
    if (seen_.count(wire.epoch) == 0) {
      if (!receiver_.machine.AdoptEpoch(wire.epoch)) return;
      for (const LaneId& other : receiver_.live) {
        if (other.index == lane.index) Fail("a place is used twice");
      }
      seen_.insert(wire.epoch);
      receiver_.live.insert(lane);
    }
    if (receiver_.live.count(lane) == 0) return;
    Say(&receiver_, {Wire::Kind::kAnswer, wire.epoch, {lane}, {}});
  }

  bool IsFree(uint8_t index) {
    for (const LaneId& lane : sender_.live) {
      if (lane.index == index) return false;
    }
    for (const LaneId& lane : offered_) {
      if (lane.index == index) return false;
    }
    // Both have fenced what was there: the sender knows it once it is through.
    return sender_.machine.phase() == FailoverPhase::kRunning;
  }

  void Offer(uint8_t index) {
    if (!IsFree(index)) return;
    offered_.insert({index, sender_.machine.TakeEpoch()});
    SayOffers();
  }
  void SayOffers() {
    for (const LaneId& lane : offered_) {
      Say(&sender_, {Wire::Kind::kOffer, lane.epoch, {lane}, {}});
    }
  }

  void Suspect(Side* side, const LaneIds& lanes) {
    if (lanes.empty()) return;
    must_go_.insert(lanes.begin(), lanes.end());
    Step(side,
         {.kind = FailoverEvent::Kind::kSuspect, .lanes = lanes, .cause = Cause::kCompletion});
  }

  void Retire(const LaneIds& lanes) {
    if (lanes.empty()) return;
    must_go_.insert(lanes.begin(), lanes.end());
    Step(&sender_, {.kind = FailoverEvent::Kind::kRetire, .lanes = lanes, .cause = Cause::kDrain});
    for (const LaneId& lane : lanes) {
      if (Contains(sender_.machine.retiring(), lane)) sender_.draining.insert(lane);
    }
  }

  void Drained(Side* side, const LaneIds& lanes) {
    if (lanes.empty()) return;
    for (const LaneId& lane : lanes) side->draining.erase(lane);
    Step(side, {.kind = FailoverEvent::Kind::kDrained, .lanes = lanes});
  }

  void Break() {
    up_ = false;
    sender_.out.clear();
    receiver_.out.clear();
  }
  void Mend() {
    if (up_) return;
    up_ = true;
    Repeat(&sender_);
    Repeat(&receiver_);
  }
  void Repeat(Side* side) {
    Step(side, {.kind = FailoverEvent::Kind::kRepeat});
    if (side == &sender_) SayOffers();
  }

  void Settle() {
    Mend();
    for (int round = 0; round < 60 && error_.empty(); ++round) {
      for (Side* side : {&sender_, &receiver_}) {
        Fenced(side, LaneIds(side->fencing.begin(), side->fencing.end()));
        Drained(side, LaneIds(side->draining.begin(), side->draining.end()));
        while (!side->out.empty()) Deliver(side);
      }
      if (round % 4 == 3) {
        Repeat(&sender_);
        Repeat(&receiver_);
      }
    }
    if (!error_.empty()) return;
    const Failover& s = sender_.machine;
    const Failover& r = receiver_.machine;
    if (s.phase() != FailoverPhase::kRunning) Fail("the sender does not run");
    if (r.phase() != FailoverPhase::kRunning) Fail("the receiver does not run");
    if (s.episode() != r.episode() || s.lanes() != r.lanes()) Fail("different episodes");
    if (!s.retiring().empty() || !r.retiring().empty()) Fail("a hand-over was dropped");
    for (const LaneId& lane : must_go_) {
      if (sender_.fenced.count(lane) == 0) Fail("not fenced at the sender");
      if (receiver_.fenced.count(lane) == 0) Fail("not fenced at the receiver");
    }
    if (sender_.live != receiver_.live) Fail("different lanes live");
    if (!s.lanes().empty() &&
        (sender_.resumed.count(s.episode()) == 0 || receiver_.resumed.count(s.episode()) == 0)) {
      Fail("not resumed");
    }
  }

 private:
  const int places_;
  Side sender_{End::kSender};
  Side receiver_{End::kReceiver};
  bool up_ = true;
  std::set<LaneId> offered_;
  std::set<uint32_t> seen_;
  std::set<LaneId> must_go_;  // suspected or retired by anyone
  std::string error_;
};

inline std::string LaneText(const auto& lanes) {
  std::string text;
  for (const LaneId& lane : lanes) {
    text += static_cast<char>('a' + lane.index);
    text += std::to_string(lane.epoch);
  }
  return text + ";";
}

inline std::string FailoverState::Text(const Failover& m) {
  std::string text = std::to_string(static_cast<int>(m.phase_)) + "," + std::to_string(m.epoch_) +
                     "," + std::to_string(m.episode_) + "," + std::to_string(m.offered_) + ",";
  text += LaneText(m.lanes_) + LaneText(m.fenced_) + LaneText(m.retiring_) + LaneText(m.quiet_);
  return text + (m.has_record_ ? "r" : "-") + std::to_string(static_cast<int>(m.cause_)) + "|";
}

inline std::string TwoEnds::Key() const {
  std::string key = up_ ? "u" : "d";
  for (const Side* side : {&sender_, &receiver_}) {
    key += FailoverState::Text(side->machine) + LaneText(side->live) + LaneText(side->fencing) +
           LaneText(side->fenced) + LaneText(side->draining);
    for (const Wire& wire : side->out) {
      key += static_cast<char>('A' + static_cast<int>(wire.kind)) + std::to_string(wire.epoch) +
             LaneText(wire.lanes);
    }
    key += "|";
    for (const auto& [epoch, lanes] : side->resumed) key += std::to_string(epoch) + LaneText(lanes);
    key += "|";
  }
  key += LaneText(offered_) + LaneText(must_go_);
  for (const uint32_t epoch : seen_) key += std::to_string(epoch) + ",";
  return key;
}

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_TESTING_TWO_ENDS_H_
