// Room for rings in a process's segment: hands out runs of pages and takes them back.
//
// Programs make queues of all sizes and destroy them in any order; so neighbours that are free
// become one, and what lies free at the end is the end again.
#ifndef RAILHOP_CC_FABRIC_RING_HEAP_H_
#define RAILHOP_CC_FABRIC_RING_HEAP_H_

#include <cstdint>
#include <map>
#include <mutex>

namespace railhop::fabric {

// Thread-safe.
class RingHeap {
 public:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t RoundUp(uint64_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

  // Over the offsets from `begin` to `end`, both multiples of kPage; `begin` is not 0.
  RingHeap(uint64_t begin, uint64_t end) : free_{{begin, end - begin}} {}

  // An offset, of the lowest that fits; 0: there is no room. `bytes` is rounded up to pages.
  uint64_t Allocate(uint64_t bytes);
  // Takes back what Allocate(bytes) gave.
  void Free(uint64_t offset, uint64_t bytes);

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes; no two touch
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_RING_HEAP_H_
