#include "cc/datapath/connection_lock.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace railhop::datapath {
namespace {

// The holder is in a call of well under a microsecond: a few yields usually do.
constexpr int kYields = 16;

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "the kernel waits on the word");

long Futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation | FUTEX_PRIVATE_FLAG,
                 value, nullptr, nullptr, 0);
}

}  // namespace

void ConnectionLock::LockSlow() {
  for (int i = 0; i < kYields; ++i) {
    uint32_t expected = kFree;
    if (state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
      return;
    }
    sched_yield();
  }
  // From here on the holder must wake us, so whoever takes the lock here marks it contended: it may
  // wake one thread too many, never one too few.
  while (state_.exchange(kContended, std::memory_order_acquire) != kFree) {
    Futex(&state_, FUTEX_WAIT, kContended);
  }
}

void ConnectionLock::Wake() { Futex(&state_, FUTEX_WAKE, 1); }

}  // namespace railhop::datapath
