#include "cc/engine/failover.h"

#include <iterator>
#include <utility>

#include "cc/engine/failover_table.h"

namespace railhop::engine {

namespace {

using failover::Do;
using failover::Guard;
using Kind = FailoverEvent::Kind;

// Places of a connection; an episode names at most one lane of each.
constexpr size_t kPlaces = 128;

LaneIds Minus(const LaneIds& from, const LaneIds& what) {
  LaneIds rest;
  std::set_difference(from.begin(), from.end(), what.begin(), what.end(), std::back_inserter(rest));
  return rest;
}

// A place holds one lane at a time.
bool HasPlace(const LaneIds& lanes, uint8_t index) {
  return std::any_of(lanes.begin(), lanes.end(),
                     [index](LaneId lane) { return lane.index == index; });
}

// Not a fault: both ends say the same reason.
bool IsPlanned(Cause cause) {
  return cause == Cause::kCommand || cause == Cause::kDrain || cause == Cause::kFailBack;
}

}  // namespace

// What the guards and actions ask about an event.
struct Failover::Facts {
  LaneIds named;   // the event's, sorted, of places that can be
  LaneIds fresh;   // of those what this event is about: to be fenced, retired or told as drained
  LaneIds joined;  // the lanes of the episode if it is joined
};

bool Failover::IsUnfinished() const {
  return phase_ == FailoverPhase::kAsking || phase_ == FailoverPhase::kFencing ||
         phase_ == FailoverPhase::kComparing;
}

bool Failover::IsFenced(LaneId lane) const {
  const auto at = std::lower_bound(fenced_.begin(), fenced_.end(), LaneId{lane.index, 0});
  return at != fenced_.end() && at->index == lane.index && at->epoch >= lane.epoch;
}

bool Failover::AreFenced(const LaneIds& lanes) const {
  return std::all_of(lanes.begin(), lanes.end(), [this](LaneId lane) { return IsFenced(lane); });
}

void Failover::NoteFenced(LaneId lane) {
  if (IsFenced(lane)) return;
  const auto at = std::lower_bound(fenced_.begin(), fenced_.end(), LaneId{lane.index, 0});
  if (at != fenced_.end() && at->index == lane.index) {
    at->epoch = lane.epoch;
  } else {
    fenced_.insert(at, lane);
  }
}

// With those of an unfinished episode. A lane that is fenced here is left out when its place has a
// newer one: the other end was through with it, else the place could not have been used again.
LaneIds Failover::Joined(const LaneIds& lanes) const {
  LaneIds all = IsUnfinished() ? lanes_ : LaneIds();
  AddLanes(&all, lanes);
  LaneIds kept;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool has_newer = i + 1 < all.size() && all[i + 1].index == all[i].index;
    if (!has_newer || !IsFenced(all[i])) kept.push_back(all[i]);
  }
  return kept;
}

Failover::Facts Failover::Look(const FailoverEvent& event) const {
  Facts facts;
  for (const LaneId& lane : event.lanes) {
    if (lane.index < kPlaces) AddLane(&facts.named, lane);
  }
  const LaneIds fencing = IsUnfinished() ? lanes_ : LaneIds();
  const auto keep_if = [&facts](auto wanted) {
    for (const LaneId& lane : facts.named) {
      if (wanted(lane)) facts.fresh.push_back(lane);
    }
  };
  switch (event.kind) {
    case Kind::kSuspect:
    case Kind::kPeerAsk:
    case Kind::kPeerFence:
    case Kind::kGiveUp:
      keep_if([&](LaneId lane) { return !IsFenced(lane) && !Contains(fencing, lane); });
      facts.joined = Joined(event.kind == Kind::kSuspect ? facts.fresh : facts.named);
      break;
    case Kind::kRetire:
    case Kind::kPeerQuiet:
      keep_if([&](LaneId lane) {
        return !IsFenced(lane) && !Contains(fencing, lane) && !HasPlace(retiring_, lane.index);
      });
      break;
    case Kind::kDrained:
      keep_if([&](LaneId lane) { return Contains(retiring_, lane) && !Contains(quiet_, lane); });
      facts.joined = facts.fresh;
      break;
    case Kind::kRepeat:
    case Kind::kResumed:
      facts.fresh = quiet_;
      facts.joined = quiet_;
      break;
    case Kind::kFenced:
    case Kind::kPeerRecord:
      break;
  }
  return facts;
}

Cause Failover::CauseOf(const FailoverEvent& event, const Facts& facts) const {
  if (event.kind == Kind::kDrained || event.kind == Kind::kResumed) return hand_over_cause_;
  if (event.kind == Kind::kSuspect) return event.cause;
  if (!facts.named.empty() && ContainsAll(retiring_, facts.named)) return hand_over_cause_;
  return IsPlanned(event.cause) ? event.cause : Cause::kPeer;
}

void Failover::Join(const FailoverEvent& event, const Facts& facts) {
  const Cause cause = CauseOf(event, facts);
  // A fault in a hand-over counts as the fault; of two faults the first is the reason.
  if (!IsUnfinished() || IsPlanned(cause_) || cause_ == Cause::kNone) cause_ = cause;
  lanes_ = facts.joined;
  retiring_ = Minus(retiring_, lanes_);
  quiet_ = Minus(quiet_, lanes_);
  has_record_ = false;
}

bool Failover::AdoptEpoch(uint32_t epoch) {
  if (epoch <= first_epoch_ || epoch < offered_) return false;
  offered_ = epoch;
  epoch_ = std::max(epoch_, epoch);
  return true;
}

std::vector<FailoverAction> Failover::Step(const FailoverEvent& event) {
  std::vector<FailoverAction> actions;
  resumed_row_ = nullptr;
  Take(event, &actions);
  return actions;
}

namespace {

struct View {
  const FailoverEvent& event;
  const LaneIds& named;
  const LaneIds& fresh;
  const LaneIds& joined;
  const LaneIds& lanes;
  uint32_t episode;
  bool has_record;
  bool joined_fenced;
  bool last_fenced;
};

bool Matches(const View& view) {
  const Record* record = view.event.record;
  return record != nullptr && record->epoch == view.episode && !view.lanes.empty() &&
         record->lanes == view.lanes;
}

bool Holds(Guard guard, const View& view) {
  switch (guard) {
    case Guard::kAlways:
      return true;
    case Guard::kTooMany:
      return view.joined.size() > kPlaces;
    case Guard::kNothingNew:
      return view.fresh.empty();
    case Guard::kStale:
      return view.named.empty() || (view.fresh.empty() && view.event.epoch < view.episode);
    case Guard::kCovered:
      return view.joined == view.lanes;
    case Guard::kAllFenced:
      return view.joined_fenced;
    case Guard::kSameEpisode:
      return view.event.epoch == view.episode && !view.lanes.empty() && view.named == view.lanes;
    case Guard::kPast:
      return view.event.epoch <= view.episode || view.named.empty();
    case Guard::kMore:
      return view.joined != view.named;
    case Guard::kLastFencedAndRecord:
      return view.last_fenced && view.has_record;
    case Guard::kLastFenced:
      return view.last_fenced;
    case Guard::kMatches:
      return Matches(view);
    case Guard::kQuiet:
      return !view.fresh.empty();
  }
  return false;
}

}  // namespace

void Failover::Take(const FailoverEvent& event, std::vector<FailoverAction>* actions) {
  const Facts facts = Look(event);
  const bool is_last =
      event.kind == Kind::kFenced && std::all_of(lanes_.begin(), lanes_.end(), [&](LaneId lane) {
        return IsFenced(lane) || Contains(facts.named, lane);
      });
  const View view{event,  facts.named, facts.fresh, facts.joined,
                  lanes_, episode_,    has_record_, AreFenced(facts.joined),
                  is_last};
  const int state = failover::StateOf(end_, phase_);
  const auto row = std::find_if(
      failover::kRows.begin(), failover::kRows.end(), [&](const failover::Row& candidate) {
        return Fits(candidate, state, static_cast<int>(event.kind)) && Holds(candidate.guard, view);
      });
  if (row == failover::kRows.end()) return;  // never: the table is complete
  (event.kind == Kind::kResumed ? resumed_row_ : row_) = row->id;
  bool resumed = false;
  for (const Do action : row->actions) {
    if (action == Do::kNone) break;
    Carry(action, event, facts, actions);
    resumed = resumed || action == Do::kResume;
  }
  if (row->next != failover::Row::kSame) phase_ = failover::PhaseOf(row->next);
  if (!resumed) return;
  FailoverEvent more;
  more.kind = Kind::kResumed;
  Take(more, actions);
}

void Failover::Carry(failover::Do action, const FailoverEvent& event, const Facts& facts,
                     std::vector<FailoverAction>* actions) {
  using Act = FailoverAction::Kind;
  const auto say = [&](Act kind, const LaneIds& lanes, uint32_t epoch, Cause cause) {
    if (!lanes.empty()) actions->push_back({kind, lanes, epoch, cause});
  };
  switch (action) {
    case Do::kNone:
      break;
    case Do::kNewEpoch:
      episode_ = ++epoch_;
      break;
    case Do::kTakeEpoch:
      episode_ = event.epoch;
      epoch_ = std::max(epoch_, event.epoch);
      break;
    case Do::kJoin:
      Join(event, facts);
      break;
    case Do::kStop:
      say(Act::kStopPosting, event.kind == Kind::kGiveUp ? facts.named : facts.fresh, episode_,
          event.kind == Kind::kGiveUp ? event.cause : cause_);
      break;
    case Do::kFence:
      say(Act::kFence, facts.fresh, episode_, event.kind == Kind::kGiveUp ? event.cause : cause_);
      break;
    case Do::kSendAsk:
      say(Act::kSendAsk, lanes_, episode_, cause_);
      break;
    case Do::kSendFence:
      say(Act::kSendFence, lanes_, episode_, cause_);
      break;
    case Do::kSendRecord:
      say(Act::kSendRecord, lanes_, episode_, cause_);
      break;
    case Do::kNoteFenced:
      for (const LaneId& lane : facts.named) NoteFenced(lane);
      retiring_ = Minus(retiring_, facts.named);
      quiet_ = Minus(quiet_, facts.named);
      break;
    case Do::kKeepRecord:
      peer_record_ = *event.record;
      has_record_ = true;
      break;
    case Do::kResume:
      say(Act::kResume, lanes_, episode_, cause_);
      break;
    case Do::kNoteRetiring:
      AddLanes(&retiring_, facts.fresh);
      if (!facts.fresh.empty()) hand_over_cause_ = event.cause;
      break;
    case Do::kRetire:
      say(Act::kRetire, facts.fresh, episode_, hand_over_cause_);
      break;
    case Do::kNoteQuiet:
      AddLanes(&quiet_, facts.fresh);
      break;
    case Do::kSendQuiet:
      say(Act::kSendQuiet, facts.fresh, epoch_, hand_over_cause_);
      break;
    case Do::kFail:
      actions->push_back({Act::kFail, facts.named, episode_, event.cause});
      break;
  }
}

}  // namespace railhop::engine
