#include "cc/fabric/ring_heap.h"

#include <algorithm>
#include <iterator>

namespace railhop::fabric {

uint64_t RingHeap::Allocate(uint64_t bytes) {
  bytes = std::max(RoundUp(bytes), kPage);
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, room] = *it;
    if (room < bytes) continue;
    free_.erase(it);
    if (room > bytes) free_.emplace(offset + bytes, room - bytes);
    return offset;
  }
  return 0;
}

void RingHeap::Free(uint64_t offset, uint64_t bytes) {
  bytes = std::max(RoundUp(bytes), kPage);
  std::lock_guard<std::mutex> lock(mutex_);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(offset, bytes);
}

}  // namespace railhop::fabric
