#include "cc/fabric/abi/objects.h"

#include <array>

#include "cc/fabric/abi/layout_asserts.h"  // IWYU pragma: keep

namespace railhop::fabric::abi {

namespace {
std::array<Usage, kMaxDevices> g_usage;
}  // namespace

Usage& UsageOf(const ContextObject& context) { return g_usage[context.index]; }

void ForgetUsage() {
  for (Usage& usage : g_usage) usage.pds = usage.mrs = usage.cqs = usage.qps = 0;
}

bool TakeOne(std::atomic<uint32_t>& count, uint32_t limit) {
  uint32_t now = count.load(std::memory_order_relaxed);
  do {
    if (now >= limit) return false;
  } while (!count.compare_exchange_weak(now, now + 1, std::memory_order_relaxed));
  return true;
}

}  // namespace railhop::fabric::abi
