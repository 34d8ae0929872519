#include "cc/base/clock.h"

#include <ctime>

namespace railhop {

int64_t RealClock::NowNs() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  return ns > 0 ? ns : 1;
}

void VirtualClock::AdvanceNs(int64_t ns) {
  if (ns > 0) now_ns_.fetch_add(ns, std::memory_order_acq_rel);
}

void VirtualClock::AdvanceToNs(int64_t now_ns) {
  int64_t seen = now_ns_.load(std::memory_order_acquire);
  while (seen < now_ns && !now_ns_.compare_exchange_weak(seen, now_ns, std::memory_order_acq_rel)) {
  }
}

}  // namespace railhop
