// Registrations of one device, shared by all connections of the process.
//
// NCCL registers the same buffers for each connection; a registration costs a system call and room
// in the NIC's tables, so memory that is already covered is only counted. Ranges are rounded to
// whole pages, as the device pins them anyway.
//
// No lock is held in a verbs call: one that hangs holds up only those who want the same memory.
#ifndef RAILHOP_CC_RUNTIME_REGISTRATION_CACHE_H_
#define RAILHOP_CC_RUNTIME_REGISTRATION_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cc/verbs/memory_region.h"

namespace railhop::runtime {

struct Registration {
  enum class State : uint8_t { kMaking, kReady, kEnding, kFailed };

  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool is_dmabuf = false;
  // Guarded by the cache:
  int users = 0;
  State state = State::kMaking;
  std::unique_ptr<verbs::MemoryRegion> region;
  // Of the region; they do not change once it is made.
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
};

// Thread-safe.
class RegistrationCache {
 public:
  RegistrationCache(verbs::Context* context, bool relaxed_ordering)
      : context_(context), relaxed_ordering_(relaxed_ordering) {}
  // Without a call for what was dropped.
  ~RegistrationCache();

  // A registration that covers [data, data + size); size > 0. The keys do not change while it is
  // held. Errors: InvalidArgument (the range wraps), Internal, Unimplemented.
  absl::StatusOr<Registration*> Acquire(const void* data, size_t size);
  // The same for `size` bytes at `offset` of a DMA-BUF that NCCL knows at `data`.
  absl::StatusOr<Registration*> AcquireDmaBuf(const void* data, size_t size, uint64_t offset,
                                              int fd);

  // One use less; the last one deregisters. Errors: Internal (it stays registered, and may be
  // acquired again).
  absl::Status Release(Registration* registration);

  // The device is gone: what is left is dropped without a call, and nothing new is made. What
  // somebody holds stays readable as long as the cache, and must not be released any more.
  void Abandon();
  // After it, where it may hang: tries to end what was dropped all the same, as a device that says
  // that it has failed may still answer.
  void EndAbandoned();

  // Registrations that exist.
  size_t size() const;

 private:
  using Map = std::multimap<uintptr_t, std::unique_ptr<Registration>>;
  using Region = absl::StatusOr<std::unique_ptr<verbs::MemoryRegion>>;

  // Covers the range already, or is to be made by `make`.
  absl::StatusOr<Registration*> Take(uintptr_t begin, uintptr_t end, bool is_dmabuf,
                                     const std::function<Region()>& make);
  Registration* FindCovering(uintptr_t begin, uintptr_t end, bool is_dmabuf)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase(const Registration* registration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  verbs::Context* const context_;
  const bool relaxed_ordering_;
  mutable absl::Mutex mutex_;
  Map by_begin_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Registration>> dropped_ ABSL_GUARDED_BY(mutex_);
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_REGISTRATION_CACHE_H_
