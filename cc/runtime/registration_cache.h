// Registrations of one device, shared by all connections of the process.
//
// NCCL registers the same buffers for each connection; a registration costs a system call and room
// in the NIC's tables, so memory that is already covered is only counted. Ranges are rounded to
// whole pages, as the device pins them anyway.
#ifndef RAILHOP_CC_RUNTIME_REGISTRATION_CACHE_H_
#define RAILHOP_CC_RUNTIME_REGISTRATION_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cc/verbs/memory_region.h"

namespace railhop::runtime {

struct Registration {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool is_dmabuf = false;
  int users = 0;  // guarded by the cache
  std::unique_ptr<verbs::MemoryRegion> region;
};

// Thread-safe.
class RegistrationCache {
 public:
  RegistrationCache(verbs::Context* context, bool relaxed_ordering)
      : context_(context), relaxed_ordering_(relaxed_ordering) {}

  // A registration that covers [data, data + size); size > 0. The keys do not change while it is
  // held. Errors: InvalidArgument (the range wraps), Internal, Unimplemented.
  absl::StatusOr<Registration*> Acquire(const void* data, size_t size);
  // The same for `size` bytes at `offset` of a DMA-BUF that NCCL knows at `data`.
  absl::StatusOr<Registration*> AcquireDmaBuf(const void* data, size_t size, uint64_t offset,
                                              int fd);

  // One use less; the last one deregisters. Errors: Internal (it stays registered, and may be
  // acquired again).
  absl::Status Release(Registration* registration);

  // Registrations that exist.
  size_t size() const;

 private:
  using Map = std::multimap<uintptr_t, std::unique_ptr<Registration>>;

  Registration* FindCovering(uintptr_t begin, uintptr_t end, bool is_dmabuf)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Registration* Insert(std::unique_ptr<Registration> registration)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  verbs::Context* const context_;
  const bool relaxed_ordering_;
  mutable absl::Mutex mutex_;
  Map by_begin_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_REGISTRATION_CACHE_H_
