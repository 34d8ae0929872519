// An open device, and the events that its user is told of.
#ifndef RAILHOP_CC_FABRIC_CONTEXT_H_
#define RAILHOP_CC_FABRIC_CONTEXT_H_

#include <atomic>
#include <cstdint>

#include "cc/fabric/event_queue.h"
#include "cc/rdma_model/types.h"

namespace railhop::fabric {

// One asynchronous event. `user` is the QueuePair's or Cq's user pointer; null for an event of a
// port or device.
struct AsyncRecord {
  rdma::AsyncEvent event = rdma::AsyncEvent::kDeviceFatal;
  void* user = nullptr;
  uint32_t port = 0;
};

struct Context {
  explicit Context(uint32_t device_index, uint32_t device_generation)
      : device(device_index), generation(device_generation) {}
  const uint32_t device;      // index in the directory
  const uint32_t generation;  // of the device when it was opened
  EventQueue<AsyncRecord> events;
  uint64_t event_cursor = 0;  // next port event to look at; NIC thread only
  std::atomic<bool> removed{
      false};  // the device went away since; it never comes back for this context
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_CONTEXT_H_
