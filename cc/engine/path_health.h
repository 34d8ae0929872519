// Whether a path (a port of ours and a port of the peer's) may carry data: from probes, and from
// what lanes on it report. One for each path that is in use or next in line.
//
// Only a round trip proves a path; a path that failed must answer for the whole hold-down, which
// doubles with each flap and is forgiven with time. Silence of probes alone does not condemn a path
// that has never answered one, since it may carry data and only probes be impossible: then a lane's
// fault has to come first. The rows are in path_health_table.h; docs/reference/path-machine.md is
// made from them. Pure. Not thread-safe.
//
// At most one probe is out; a new one takes its place, and then one result comes for both.
#ifndef RAILHOP_CC_ENGINE_PATH_HEALTH_H_
#define RAILHOP_CC_ENGINE_PATH_HEALTH_H_

#include <cstdint>

namespace railhop::engine {

namespace path {
enum class Guard : uint8_t;
enum class Do : uint8_t;
}  // namespace path

// Nanoseconds.
struct HealthTimes {
  int64_t stall = 1'000'000'000;           // RAILHOP_STALL_THRESHOLD
  int64_t probe_interval = 1'000'000'000;  // RAILHOP_PROBE_INTERVAL
  int64_t probe_interval_max = 30'000'000'000;
  // A path that is down is probed every probe_interval for so long, then ever less often.
  int64_t probe_eager_for = 600'000'000'000;
  int64_t hold_down = 1'000'000'000;
  int64_t hold_down_max = 60'000'000'000;
  // So long without a fault halves the next hold-down.
  int64_t forgive_after = 60'000'000'000;
};

enum class PathState : uint8_t {
  kUnknown,   // not proved yet
  kGood,      // proved lately: may carry data
  kDoubtful,  // carries data; a probe that is due soon decides
  kDown,
  kHeld,  // answers again, and has to go on doing so for the hold-down
};

struct PathEvent {
  enum class Kind : uint8_t {
    kUse,         // lanes are on it, or it is next in line: keep it proved
    kAnswered,    // a probe came back
    kUnanswered,  // a probe did not come back by its deadline, or ended in error
    kLaneError,   // a lane on it ended in error: probe at once
    kStalled,     // a lane on it has stood still for half the stall threshold
    kLocalDown,   // our port is not active, or its device has failed
    kRemoteDown,  // the peer says the same of its port
    kMaybeUp,     // our port or the peer's came up, or has a new address: try at once
    kWanted,      // a person wants to go back to it now
    kTick,        // time has passed
  };
  Kind kind = Kind::kTick;
  // kLocalDown, kRemoteDown: pauses (of pause frames) earn no hold-down; everything else does.
  bool earns_hold_down = true;
};

struct PathStep {
  enum class Probe : uint8_t { kNone, kSend, kSendFresh };  // fresh: over a new queue pair
  Probe probe = Probe::kNone;
  int64_t probe_deadline = 0;  // when kUnanswered is due
  bool went_down = false;      // leave it: the lanes on it are suspect
  bool became_good = false;    // may be entered (again)
};

class PathHealth {
 public:
  PathHealth(const HealthTimes& times, int64_t now_ns);

  PathStep Step(const PathEvent& event, int64_t now_ns);
  // From now on; what is running already keeps its deadlines.
  void SetTimes(const HealthTimes& times) { times_ = times; }
  // When kTick is wanted at the latest.
  int64_t next_due() const { return next_due_; }

  PathState state() const { return state_; }
  bool MayEnter() const { return state_ == PathState::kGood; }
  int64_t last_answer() const { return last_answer_; }  // 0 = never
  int64_t held_until() const { return held_until_; }
  uint32_t flaps() const { return flaps_; }

  // The id of the row that the last event took.
  const char* row() const { return row_; }

 private:
  bool Holds(path::Guard guard, const PathEvent& event, int64_t now_ns) const;
  void Carry(path::Do action, const PathEvent& event, int64_t now_ns, PathStep* step);
  void Send(bool fresh, int64_t within, int64_t now_ns, PathStep* step);
  void CountFlap(int64_t now_ns);
  // Of a doubt's probe; of one on which nothing waits; between probes of a held path.
  int64_t Quarter() const;
  int64_t Relaxed() const;
  int64_t HeldInterval() const;

  HealthTimes times_;
  PathState state_ = PathState::kUnknown;
  bool in_use_ = false;
  bool probe_out_ = false;
  bool fresh_out_ = false;  // the one that is out is, in doubt, the second
  bool earned_ = false;     // the present fault earns a hold-down
  uint32_t misses_ = 0;     // since it is down or unknown
  uint32_t flaps_ = 0;      // all of its life
  int64_t within_ = 0;      // what a probe has in this doubt
  int64_t probe_at_ = 0;    // the next; kNever
  int64_t sent_at_ = 0;     // of the last one
  int64_t probe_due_ = 0;   // of the one that is out
  int64_t wait_ = 0;        // between probes, while it is down or unknown
  int64_t eager_until_ = 0;
  int64_t last_answer_ = 0;
  int64_t held_until_ = 0;
  int64_t calm_since_ = 0;  // the last fault, or when it was good again
  int64_t hold_down_ = 0;   // that the last fault earned
  int64_t next_due_ = 0;
  const char* row_ = nullptr;
};

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_PATH_HEALTH_H_
