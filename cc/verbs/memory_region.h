// Memory that a device may reach. Not thread-safe.
#ifndef RAILHOP_CC_VERBS_MEMORY_REGION_H_
#define RAILHOP_CC_VERBS_MEMORY_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/verbs/context.h"

namespace railhop::verbs {

class MemoryRegion {
 public:
  // Access for all that NCCL does with memory: written locally and by the peer, read by the peer.
  // relaxed_ordering needs the library's reg_mr_iova2; without it the flag is dropped.
  // Errors: Internal, Unimplemented.
  static absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(Context* context, void* address,
                                                                size_t length,
                                                                bool relaxed_ordering);
  // Of a DMA-BUF: `length` bytes at `offset` of `fd` appear at `address`.
  // Errors: Unimplemented (library, driver or device cannot), Internal.
  static absl::StatusOr<std::unique_ptr<MemoryRegion>> RegisterDmaBuf(Context* context,
                                                                      uint64_t offset,
                                                                      size_t length,
                                                                      uint64_t address, int fd,
                                                                      bool relaxed_ordering);
  // Errors are lost: call Deregister where they matter.
  ~MemoryRegion();
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  uint32_t local_key() const { return mr_->lkey; }
  uint32_t remote_key() const { return mr_->rkey; }

  // Errors: Internal (the device may still reach the memory).
  absl::Status Deregister();

  // Gives it up without deregistering: for a device that is gone, or a region that stays pinned.
  void Abandon() { mr_ = nullptr; }

 private:
  MemoryRegion(Context* context, ibv_mr* mr) : context_(context), mr_(mr) {}

  Context* const context_;
  ibv_mr* mr_;  // null once deregistered
};

// Whether a registration with relaxed ordering works on this device: tried on a page.
bool ProbeRelaxedOrdering(Context* context);

// Whether the driver knows DMA-BUFs: a registration of a file that cannot exist fails with EBADF
// there, and with EOPNOTSUPP or EPROTONOSUPPORT elsewhere.
bool ProbeDmaBuf(Context* context);

}  // namespace railhop::verbs

#endif  // RAILHOP_CC_VERBS_MEMORY_REGION_H_
