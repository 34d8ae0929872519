// Virtual time and what happens at it: the one thing in a simulation that decides order.
//
// Events of different times run in order of time. Events of the same time run in an order drawn
// from the seed, so that a test that relies on an accidental order fails for some seed, and the
// same seed gives the same order. The clock never starts at zero: zero means "none yet" in many
// places, and a clock that starts there would hide a mix-up. One thread.
#ifndef RAILHOP_CC_SIM_EVENT_LOOP_H_
#define RAILHOP_CC_SIM_EVENT_LOOP_H_

#include <cstdint>
#include <vector>

#include "cc/base/prng.h"

namespace railhop::sim {

inline constexpr uint64_t kStartNs = 1'000'000'000;
inline constexpr uint64_t kNeverNs = UINT64_MAX;

// Gets events. Must outlive the loop or the last event that names it.
class Actor {
 public:
  virtual ~Actor() = default;
  // `arg` is what At() was given.
  virtual void OnEvent(uint64_t arg) = 0;
};

class EventLoop {
 public:
  explicit EventLoop(uint64_t seed) : ties_(seed) {}
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  uint64_t now_ns() const { return now_ns_; }

  // Calls actor->OnEvent(arg) at `when_ns`; a time that has passed means now, behind the event that
  // runs.
  void At(uint64_t when_ns, Actor* actor, uint64_t arg = 0);

  // Runs the next event. False: there is none.
  bool Step();
  // Time of the next event; kNeverNs: none.
  uint64_t next_ns() const { return heap_.empty() ? kNeverNs : heap_.front().when_ns; }
  // Runs all events up to and including `until_ns`; then it is at least that late.
  void RunUntil(uint64_t until_ns);
  // Runs events until done() or until the next one would be later than `limit_ns`. Whether done().
  template <typename Done>
  bool RunUntilTrue(uint64_t limit_ns, Done done) {
    while (!done()) {
      if (next_ns() > limit_ns || !Step()) return false;
    }
    return true;
  }

  // Events that have run.
  uint64_t events() const { return events_; }

 private:
  struct Entry {
    uint64_t when_ns;
    uint64_t tie;
    Actor* actor;
    uint64_t arg;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.when_ns != b.when_ns ? a.when_ns > b.when_ns : a.tie > b.tie;
    }
  };

  Prng ties_;
  std::vector<Entry> heap_;
  uint64_t now_ns_ = kStartNs;
  uint64_t events_ = 0;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_EVENT_LOOP_H_
