// The lock of one connection: two instructions that matter when nobody else is there.
//
// NCCL's thread takes it in every call, our own threads rarely, so it is nearly always free. A
// pthread mutex costs about 40 instructions for a pair of calls, absl::Mutex about as many; the
// budget of a pending test is 95. This is the three-state futex lock: 0 free, 1 held, 2 held and
// somebody sleeps.
#ifndef RAILHOP_CC_DATAPATH_CONNECTION_LOCK_H_
#define RAILHOP_CC_DATAPATH_CONNECTION_LOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"

namespace railhop::datapath {

class ABSL_LOCKABLE ConnectionLock {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    uint32_t expected = kFree;
    if (!state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
      LockSlow();
    }
  }

  void Unlock() ABSL_UNLOCK_FUNCTION() {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) Wake();
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kContended = 2;

  void LockSlow();
  void Wake();

  std::atomic<uint32_t> state_{kFree};  // release by Unlock, acquire by Lock
};

class ABSL_SCOPED_LOCKABLE ConnectionGuard {
 public:
  explicit ConnectionGuard(ConnectionLock* lock) ABSL_EXCLUSIVE_LOCK_FUNCTION(lock) : lock_(lock) {
    lock_->Lock();
  }
  ~ConnectionGuard() ABSL_UNLOCK_FUNCTION() { lock_->Unlock(); }
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

 private:
  ConnectionLock* const lock_;
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_CONNECTION_LOCK_H_
