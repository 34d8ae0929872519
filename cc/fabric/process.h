// This process's place in a fabric: its slot, its shared segment, and the mapped segments of its
// peers.
//
// A process joins when it first opens a device. Its segment is a memfd that peers open through
// /proc, so it is gone with the last process that maps it. The hard case is a peer that dies and
// whose slot a new process takes: every use of a peer's segment checks the slot's generation, and
// the robust mutex `alive`, which the kernel marks when the peer's NIC thread ends for whatever
// reason.
#ifndef RAILHOP_CC_FABRIC_PROCESS_H_
#define RAILHOP_CC_FABRIC_PROCESS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cc/fabric/directory.h"
#include "cc/fabric/index_pool.h"
#include "cc/fabric/ring_heap.h"
#include "cc/fabric/segment_layout.h"

namespace railhop::fabric {

// Takes a robust mutex; true if its last holder died inside (the caller makes its data whole).
bool LockRobust(pthread_mutex_t& mutex);
void InitRobust(pthread_mutex_t& mutex);

// A peer's segment, mapped. Valid until the object goes, whatever becomes of the peer.
class Peer {
 public:
  Peer(Segment* segment, SlotRef slot) : segment_(segment), slot_(slot) {}
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  Segment& segment() const { return *segment_; }
  SlotRef slot() const { return slot_; }
  uint32_t pid() const { return segment_->pid; }
  bool Alive() const;  // a few ns

 private:
  Segment* const segment_;
  const SlotRef slot_;
};

class Process {
 public:
  // Makes and registers this process's segment. Null with errno: ENOMEM (no slot, no memory), EPIPE
  // (fabric gone).
  static std::unique_ptr<Process> Join(DirectoryHandle* directory, uint32_t host);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  DirectoryHandle& directory() const { return *directory_; }
  Segment& segment() const { return *segment_; }
  SlotRef slot() const { return slot_; }
  uint32_t host() const { return host_; }

  // Room for a ring in the segment's heap, zeroed; 0 when there is none. Freed with its size.
  uint64_t AllocateRing(uint64_t bytes) { return heap_.Allocate(bytes); }
  void FreeRing(uint64_t offset, uint64_t bytes);
  void* At(uint64_t offset) const { return reinterpret_cast<char*>(segment_) + offset; }

  // The peer in `slot` (this process itself included); null if it is gone.
  std::shared_ptr<Peer> FindPeer(SlotRef slot);

  // Lets go of the memory of peers that are gone.
  void ForgetDeadPeers();

  // The places in Segment::cqs.
  IndexPool& cq_indexes() { return cq_indexes_; }

  // Wakes the NIC thread of the process in `slot`.
  void Ring(SlotRef slot) const;

 private:
  Process(DirectoryHandle* directory, Segment* segment, int fd, SlotRef slot, uint32_t host);

  DirectoryHandle* const directory_;
  Segment* const segment_;
  const int fd_;
  const SlotRef slot_;
  const uint32_t host_;
  IndexPool cq_indexes_{kMaxCqs};
  RingHeap heap_{kHeapOffset, kSegmentBytes};
  std::mutex peers_mutex_;
  std::vector<std::shared_ptr<Peer>> peers_;  // by slot
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_PROCESS_H_
