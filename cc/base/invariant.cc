#include "cc/base/invariant.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "cc/base/log.h"

namespace railhop {
namespace {

constexpr int kLogMax = 5;

std::atomic<InvariantHandler> current{&AbortOnBrokenInvariant};  // acq_rel, see Set

}  // namespace

void AbortOnBrokenInvariant(const char* file, int line, const char* condition, const char* text) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", file, line, text, condition);
  std::abort();
}

void LogBrokenInvariant(const char* file, int line, const char* condition, const char* text) {
  static std::atomic<int> logged{0};  // relaxed: only a bound
  if (logged.load(std::memory_order_relaxed) >= kLogMax) return;
  if (logged.fetch_add(1, std::memory_order_relaxed) >= kLogMax) return;
  RAILHOP_LOG(kWarning, "%s:%d: broken invariant: %s (%s)", file, line, text, condition);
}

InvariantHandler SetInvariantHandler(InvariantHandler handler) {
  return current.exchange(handler != nullptr ? handler : &AbortOnBrokenInvariant,
                          std::memory_order_acq_rel);
}

bool ReportBrokenInvariant(const char* file, int line, const char* condition, const char* text) {
  current.load(std::memory_order_acquire)(file, line, condition, text);
  return false;
}

}  // namespace railhop
