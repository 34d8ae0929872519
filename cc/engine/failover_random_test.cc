// Two Failover machines against each other: a session that breaks and loses what is under way,
// suspects at both ends at any time (in an episode too), hand-overs, new lanes, and fences that end
// in any order. A run that fails prints its seed.
//
// What is asserted in every step: epochs grow; a lane is fenced once at each end, after posts to it
// have stopped; an episode is resumed only after both ends have fenced all its lanes, and both name
// the same lanes for it. At the end, when faults have stopped: both run, in the same episode, and
// every lane that was suspected or retired is fenced at both ends.
#include <cstdio>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "cc/engine/failover.h"
#include "gtest/gtest.h"

namespace railhop::engine {
namespace {

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
  std::set<LaneId> must_go;  // suspected or retired by anyone
  std::map<uint32_t, LaneIds> resumed;
  std::deque<Wire> out;  // to the other end
  uint32_t last_epoch = 1;
  uint32_t last_episode = 1;
};

class TwoEnds {
 public:
  // in_order: as sessions are. Else messages overtake each other and come twice, which costs
  // repeats but must not break anything.
  TwoEnds(uint64_t seed, int places, int steps, bool in_order)
      : prng_(seed), places_(places), steps_(steps), in_order_(in_order) {
    for (int i = 0; i < places; ++i) {
      for (Side* side : {&sender_, &receiver_}) {
        side->live.insert({static_cast<uint8_t>(i), 1});
      }
    }
  }

  // Empty: all was well.
  std::string Go() {
    for (int i = 0; i < steps_ && error_.empty(); ++i) Chaos();
    if (error_.empty()) Settle();
    return error_;
  }

 private:
  Side& Other(const Side& side) { return &side == &sender_ ? receiver_ : sender_; }
  const char* Name(const Side& side) { return &side == &sender_ ? "sender" : "receiver"; }
  void Fail(const std::string& text) {
    if (error_.empty()) error_ = text;
  }
  bool Chance(uint32_t percent) { return prng_.Below(100) < percent; }
  Side& Any() { return Chance(50) ? sender_ : receiver_; }

  template <typename Set>
  LaneIds Some(const Set& from, uint32_t percent) {
    LaneIds some;
    for (const LaneId& lane : from) {
      if (Chance(percent)) AddLane(&some, lane);
    }
    return some;
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

  void Deliver(Side* from) {
    if (from->out.empty()) return;
    size_t which = 0;
    if (!in_order_ && !settling_) which = prng_.Below(from->out.size());
    const Wire wire = from->out[which];
    if (in_order_ || settling_ || Chance(70)) {
      from->out.erase(from->out.begin() + static_cast<std::ptrdiff_t>(which));
    }
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
    if (receiver_.live.count(lane) > 0)
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

  void Offer() {
    const auto index = static_cast<uint8_t>(prng_.Below(static_cast<uint32_t>(places_)));
    if (!IsFree(index)) return;
    const LaneId lane{index, sender_.machine.TakeEpoch()};
    offered_.insert(lane);
    SayOffers();
  }
  void SayOffers() {
    for (const LaneId& lane : offered_) {
      Say(&sender_, {Wire::Kind::kOffer, lane.epoch, {lane}, {}});
    }
  }

  void Suspect(Side* side, Cause cause) {
    const LaneIds lanes = Some(side->live, 30);
    if (lanes.empty()) return;
    must_go_.insert(lanes.begin(), lanes.end());
    Step(side, {.kind = FailoverEvent::Kind::kSuspect, .lanes = lanes, .cause = cause});
  }

  void Retire() {
    const LaneIds lanes = Some(sender_.live, 30);
    if (lanes.empty()) return;
    must_go_.insert(lanes.begin(), lanes.end());
    Step(&sender_, {.kind = FailoverEvent::Kind::kRetire, .lanes = lanes, .cause = Cause::kDrain});
    for (const LaneId& lane : sender_.machine.retiring()) sender_.draining.insert(lane);
  }

  void Drained(Side* side, const LaneIds& lanes) {
    if (lanes.empty()) return;
    for (const LaneId& lane : lanes) side->draining.erase(lane);
    Step(side, {.kind = FailoverEvent::Kind::kDrained, .lanes = lanes});
  }

  void Break() {
    up_ = false;
    if (!in_order_ && Chance(50)) return;
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

  void Chaos() {
    switch (prng_.Below(16)) {
      case 0:
        Suspect(&Any(), Cause::kCompletion);
        break;
      case 1:
        if (Chance(30)) Break();
        break;
      case 2:
        Mend();
        break;
      case 3:
        Repeat(&Any());
        break;
      case 4:
        if (Chance(50)) Retire();
        break;
      case 5: {
        Side& side = Any();
        Drained(&side, Some(side.draining, 60));
        break;
      }
      case 6:
      case 7:
        Offer();
        break;
      case 8:
      case 9:
      case 10: {
        Side& side = Any();
        Fenced(&side, Some(side.fencing, 60));
        break;
      }
      default:
        Deliver(&Any());
        break;
    }
  }

  void Settle() {
    settling_ = true;
    Mend();
    for (int round = 0; round < 60 && error_.empty(); ++round) {
      for (Side* side : {&sender_, &receiver_}) {
        Fenced(side, Some(side->fencing, 100));
        Drained(side, Some(side->draining, 100));
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

  Prng prng_;
  const int places_;
  const int steps_;
  const bool in_order_;
  bool settling_ = false;
  Side sender_{End::kSender};
  Side receiver_{End::kReceiver};
  bool up_ = true;
  std::set<LaneId> offered_;
  std::set<uint32_t> seen_;
  std::set<LaneId> must_go_;
  std::string error_;
};

void RunAll(uint64_t first, uint64_t last, bool in_order) {
  for (uint64_t seed = first; seed <= last; ++seed) {
    Prng shape(seed);
    const int places = 1 + static_cast<int>(shape.Below(5));
    const int steps = 1 + static_cast<int>(shape.Below(160));
    TwoEnds run(seed, places, steps, in_order);
    const std::string error = run.Go();
    ASSERT_EQ(error, "") << "seed " << seed << ", " << places << " places, " << steps << " steps";
  }
}

// A sanitizer is ten times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kRuns = 10'000;
#else
constexpr uint64_t kRuns = 100'000;
#endif

TEST(FailoverRandom, TwoEnds_AgreeWhenFaultsStop) { RunAll(1, kRuns, true); }

TEST(FailoverRandom, TwoEndsOutOfOrder_AgreeWhenFaultsStop) {
  RunAll(kRuns + 1, kRuns + kRuns / 4, false);
}

}  // namespace
}  // namespace railhop::engine
