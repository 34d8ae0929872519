#include "cc/engine/path_health.h"

#include <algorithm>
#include <limits>

#include "cc/engine/path_health_table.h"

namespace railhop::engine {

namespace {

using path::Do;
using path::Guard;
using Kind = PathEvent::Kind;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kMillisecond = 1'000'000;
// No probe has less: a busy machine takes its time.
constexpr int64_t kWithinMin = kMillisecond;
constexpr int64_t kHeldIntervalMax = 250 * kMillisecond;
// While it is down, each so many-th probe goes over a fresh queue pair: the old one may be stuck
// without an error.
constexpr uint32_t kFreshEvery = 4;

int64_t Twice(int64_t value, int64_t max) { return value > max / 2 ? max : 2 * value; }

}  // namespace

PathHealth::PathHealth(const HealthTimes& times, int64_t now_ns)
    : times_(times),
      probe_at_(kNever),
      wait_(std::max(times.probe_interval, kWithinMin)),
      eager_until_(now_ns + times.probe_eager_for),
      calm_since_(now_ns),
      next_due_(kNever) {}

int64_t PathHealth::Quarter() const { return std::max(times_.stall / 4, kWithinMin); }

int64_t PathHealth::Relaxed() const {
  return std::min(Quarter(), std::max(times_.probe_interval, kWithinMin));
}

int64_t PathHealth::HeldInterval() const {
  return std::clamp(hold_down_ / 4, kMillisecond, kHeldIntervalMax);
}

PathStep PathHealth::Step(const PathEvent& given, int64_t now_ns) {
  PathEvent event = given;
  // Nothing was heard of a probe for long after its deadline: unanswered, whoever should say so.
  if (event.kind == Kind::kTick && probe_out_ && now_ns >= probe_due_ + times_.stall) {
    event.kind = Kind::kUnanswered;
  }
  PathStep step;
  const auto row =
      std::find_if(path::kRows.begin(), path::kRows.end(), [&](const path::Row& candidate) {
        return Fits(candidate, static_cast<int>(state_), static_cast<int>(event.kind)) &&
               Holds(candidate.guard, event, now_ns);
      });
  if (row == path::kRows.end()) return step;  // never: the table is complete
  row_ = row->id;
  if (event.kind == Kind::kAnswered || event.kind == Kind::kUnanswered) probe_out_ = false;
  for (const Do action : row->actions) {
    if (action == Do::kNone) break;
    Carry(action, event, now_ns, &step);
  }
  if (row->next != path::Row::kSame) state_ = static_cast<PathState>(row->next);
  next_due_ = probe_out_ ? probe_due_ + times_.stall : probe_at_;
  if (state_ == PathState::kHeld && !probe_out_ && held_until_ > now_ns) {
    next_due_ = std::min(next_due_, held_until_);
  }
  return step;
}

bool PathHealth::Holds(Guard guard, const PathEvent& event, int64_t now_ns) const {
  switch (guard) {
    case Guard::kAlways:
      return true;
    case Guard::kFirstUse:
      return !in_use_ && !probe_out_;
    case Guard::kNoneOut:
      return !probe_out_;
    case Guard::kEarned:
      return earned_;
    case Guard::kHeldOut:
      return now_ns >= held_until_ &&
             (event.kind == Kind::kAnswered ||
              (!probe_out_ && now_ns - last_answer_ <= 2 * HeldInterval()));
    case Guard::kFreshOut:
      return fresh_out_;
    case Guard::kDue:
      return !probe_out_ && now_ns >= probe_at_;
  }
  return false;
}

void PathHealth::Send(bool fresh, int64_t within, int64_t now_ns, PathStep* step) {
  step->probe = fresh ? PathStep::Probe::kSendFresh : PathStep::Probe::kSend;
  step->probe_deadline = now_ns + within;
  probe_out_ = true;
  fresh_out_ = fresh;
  sent_at_ = now_ns;
  probe_due_ = now_ns + within;
  probe_at_ = kNever;
}

void PathHealth::CountFlap(int64_t now_ns) {
  ++flaps_;
  const int64_t max = std::max(times_.hold_down_max, times_.hold_down);
  int64_t level = hold_down_;
  if (times_.forgive_after > 0) {
    const int64_t forgiven = (now_ns - calm_since_) / times_.forgive_after;
    level = forgiven >= 62 ? 0 : level >> forgiven;
  }
  hold_down_ = std::max(times_.hold_down, Twice(level, max));
  calm_since_ = now_ns;
}

void PathHealth::Carry(Do action, const PathEvent& event, int64_t now_ns, PathStep* step) {
  const int64_t interval = std::max(times_.probe_interval, kWithinMin);
  const bool doubtful = state_ == PathState::kGood || state_ == PathState::kDoubtful;
  switch (action) {
    case Do::kNone:
      break;
    case Do::kUse:
      in_use_ = true;
      break;
    case Do::kAnswer:
      last_answer_ = now_ns;
      if (state_ == PathState::kGood) probe_at_ = in_use_ ? now_ns + interval : kNever;
      if (state_ == PathState::kHeld) probe_at_ = std::max(now_ns, sent_at_ + HeldInterval());
      break;
    case Do::kGood:
      step->became_good = true;
      earned_ = false;
      misses_ = 0;
      wait_ = interval;
      calm_since_ = now_ns;
      within_ = Quarter();
      probe_at_ = in_use_ ? now_ns + interval : kNever;
      break;
    case Do::kHold:
      held_until_ = now_ns + hold_down_;
      probe_at_ = now_ns + HeldInterval();
      break;
    case Do::kMiss:
      ++misses_;
      if (now_ns >= eager_until_)
        wait_ = Twice(wait_, std::max(times_.probe_interval_max, interval));
      probe_at_ = std::max(now_ns, sent_at_ + wait_);
      break;
    case Do::kDoubtSoon:
      within_ = std::max(times_.stall / 8, kWithinMin);
      break;
    case Do::kDoubt:
      within_ = Quarter();
      break;
    case Do::kProbe:
      Send(false, state_ == PathState::kHeld || state_ == PathState::kDown ? Relaxed() : within_,
           now_ns, step);
      break;
    case Do::kProbeFresh:
      Send(true, doubtful ? within_ : Relaxed(), now_ns, step);
      break;
    case Do::kProbeAgain:
      Send(misses_ % kFreshEvery == kFreshEvery - 1, Relaxed(), now_ns, step);
      break;
    case Do::kFall:
    case Do::kFlap:
      if (event.earns_hold_down && (action == Do::kFlap || !earned_)) {
        earned_ = true;
        CountFlap(now_ns);
      }
      if (state_ == PathState::kDown) break;
      misses_ = 0;
      wait_ = interval;
      eager_until_ = now_ns + times_.probe_eager_for;
      probe_out_ = false;
      probe_at_ = now_ns + interval;
      break;
    case Do::kLeave:
      step->went_down = true;
      break;
    case Do::kEager:
      wait_ = interval;
      eager_until_ = now_ns + times_.probe_eager_for;
      break;
  }
}

}  // namespace railhop::engine
