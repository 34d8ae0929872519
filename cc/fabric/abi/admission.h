// What every verbs call asks first: may it go on?
//
// It may not in a forked child, on a device that was removed, or when a fault says so; and a fault
// or a provider's habit can make it hang. The common answer takes a few loads.
#ifndef RAILHOP_CC_FABRIC_ABI_ADMISSION_H_
#define RAILHOP_CC_FABRIC_ABI_ADMISSION_H_

#include <atomic>
#include <cstdint>

#include "cc/fabric/abi/objects.h"
#include "cc/rdma_model/fault_spec.h"

namespace railhop::fabric::abi {

// Counts forks between the first process and this one. A context of another generation belongs to a
// parent, with all that was made on it; the child may open devices of its own.
extern std::atomic<uint32_t> g_fork_generation;
// Arranges for the count. Any number of times.
void WatchForks();
// Whether `context` is a parent's.
inline bool IsParents(const ContextObject& context) {
  return g_fork_generation.load(std::memory_order_relaxed) != context.fork_generation;
}

int AdmitSlow(const ContextObject& context, rdma::VerbCall call, uint32_t detail);

// 0, or the errno with which `call` must fail: EPERM for what a forked child has of its parent, EIO
// on a removed device (calls that free something and poll_cq go on there, unless the device has
// kQuirkEioAfterRemoval), or what a fault says. May sleep. `detail` is the new state + 1 for
// modify_qp.
inline int Admit(const ContextObject& context, rdma::VerbCall call, uint32_t detail = 0) {
  const DeviceEntry& device = *context.device;
  const bool remarkable =
      IsParents(context) ||
      device.ports[0].faults.verb_rules.load(std::memory_order_acquire) != 0 ||
      device.removed.load(std::memory_order_acquire) != 0 ||
      device.generation.load(std::memory_order_acquire) != context.core->generation ||
      device.quirks.load(std::memory_order_relaxed) != 0;
  return __builtin_expect(remarkable, false) ? AdmitSlow(context, call, detail) : 0;
}

// The same for opening a device.
int AdmitOpen(DirectoryHandle& directory, uint32_t device);

}  // namespace railhop::fabric::abi

#endif  // RAILHOP_CC_FABRIC_ABI_ADMISSION_H_
