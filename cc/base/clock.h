// Time as a dependency: what reads it is handed a Clock, so that tests and the simulator can set
// it.
//
// Times are nanoseconds since an arbitrary start that is never 0, so 0 can mean "none yet".
#ifndef RAILHOP_CC_BASE_CLOCK_H_
#define RAILHOP_CC_BASE_CLOCK_H_

#include <atomic>
#include <cstdint>

namespace railhop {

class Clock {
 public:
  virtual ~Clock() = default;

  // Now, in ns; > 0; never less than an earlier return. Any thread.
  virtual int64_t NowNs() const = 0;
};

// CLOCK_MONOTONIC: the same in every process of a host. Stands still while the host sleeps.
class RealClock final : public Clock {
 public:
  int64_t NowNs() const override;
};

// Moves only when told. Any thread may read and move it.
class VirtualClock final : public Clock {
 public:
  static constexpr int64_t kStartNs = 1'000'000'000;

  // start_ns > 0.
  explicit VirtualClock(int64_t start_ns = kStartNs) : now_ns_(start_ns) {}

  int64_t NowNs() const override { return now_ns_.load(std::memory_order_acquire); }

  // Forward by ns >= 0; less is ignored.
  void AdvanceNs(int64_t ns);

  // Forward to now_ns; ignored if that is in the past.
  void AdvanceToNs(int64_t now_ns);

 private:
  std::atomic<int64_t> now_ns_;  // release by Advance*, acquire by NowNs
};

}  // namespace railhop

#endif  // RAILHOP_CC_BASE_CLOCK_H_
