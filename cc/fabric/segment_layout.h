// What one process of a fabric shares with its peers: memory regions, responders, receive and
// completion rings.
//
// A memfd of the owner, found through its slot in the directory. Requesters in other processes
// execute their packets here, so every structure must survive the death of whoever is changing it:
// locks are robust, and each change is published by one store. Rings lie in a heap behind the fixed
// tables; the file is sparse, so only what is touched takes memory.
#ifndef RAILHOP_CC_FABRIC_SEGMENT_LAYOUT_H_
#define RAILHOP_CC_FABRIC_SEGMENT_LAYOUT_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "cc/rdma_model/completion_queue.h"
#include "cc/rdma_model/memory_region.h"
#include "cc/rdma_model/responder.h"

namespace railhop::fabric {

inline constexpr uint64_t kSegmentMagic = 0x32304745534c5231;  // changes with the layout
inline constexpr uint64_t kSegmentBytes = uint64_t{2} << 30;   // sparse
inline constexpr uint32_t kMaxRegions = 1u << 20;
inline constexpr uint32_t kMaxQps = 1u << 16;
inline constexpr uint32_t kMaxCqs = 1u << 16;

// A memory region as peers see it. The owner writes the fields and stores `key` last; it clears
// `key` first. A reader takes a copy between two equal reads of `key`.
struct RegionEntry {
  std::atomic<uint32_t> key;
  std::atomic<uint32_t> access, pd;
  std::atomic<uint64_t> iova, length, va;
};

struct CqShared {
  pthread_mutex_t push_lock;  // robust
  rdma::CqState state;
  uint64_t entries_offset;  // of its CqEntry ring
  std::atomic<uint32_t> in_use;
};

struct QpShared {
  pthread_mutex_t lock;  // robust; guards `responder` and the consuming end of the receive ring
  rdma::ResponderState responder;
  rdma::RecvRingState ring;
  uint64_t ring_offset;
  uint32_t recv_cq;            // index in this segment
  uint32_t device;             // index in the directory
  std::atomic<uint32_t> port;  // 1-based
  std::atomic<uint32_t> pkey;  // the key's value, not its index
  std::atomic<uint32_t> in_use;
  std::atomic<uint32_t> events;      // bit n: rdma::AsyncEvent n is to be raised by the owner
  std::atomic<uint32_t> flush_send;  // the responder went to ERR: the owner flushes the send queue
  std::atomic<uint32_t>
      wedged;         // stopped for good: nothing completes any more, not even by flushing
  uint32_t qp_order;  // creation order on its device, from 0
  // What the queue pair was told about its path, for `show` and tests.
  std::atomic<uint32_t> service_level, traffic_class, path_mtu, sgid_index, pkey_index;
};

struct Segment {
  uint64_t magic;  // stored last by the owner
  uint64_t size;   // sizeof(Segment)
  uint32_t pid;
  pthread_mutex_t alive;    // robust; held by the owner's NIC thread for as long as it lives
  pthread_mutex_t atomics;  // robust; makes RDMA atomics on this process's memory atomic
  std::atomic<uint64_t> pending_qps[kMaxQps / 64];  // bit: `events` or `flush_send` is set
  std::atomic<uint64_t> pending_cqs[kMaxCqs / 64];  // bit: the queue has fired
  RegionEntry regions[kMaxRegions];
  CqShared cqs[kMaxCqs];
  QpShared qps[kMaxQps];
  // The heap follows, up to kSegmentBytes.
};

inline constexpr uint64_t kHeapOffset = (sizeof(Segment) + 4095) & ~uint64_t{4095};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_SEGMENT_LAYOUT_H_
