// Hands out small numbers and takes them back; a number that was given back comes back last.
#ifndef RAILHOP_CC_FABRIC_INDEX_POOL_H_
#define RAILHOP_CC_FABRIC_INDEX_POOL_H_

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace railhop::fabric {

// Thread-safe.
class IndexPool {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Lease {
    uint32_t index = kNone;
    uint32_t uses = 0;  // how often the index was taken before
  };

  explicit IndexPool(uint32_t size) : size_(size) {}

  Lease Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    // Fresh indexes touch fresh memory, so they are taken only while few are free.
    const bool reuse = free_.size() > kReuseAbove || (uses_.size() == size_ && !free_.empty());
    if (reuse) {
      const uint32_t index = free_.front();
      free_.pop_front();
      return {index, ++uses_[index]};
    }
    if (uses_.size() == size_) return {};
    uses_.push_back(0);
    return {static_cast<uint32_t>(uses_.size() - 1), 0};
  }

  void Give(uint32_t index) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(index);
  }

 private:
  static constexpr size_t kReuseAbove = 256;
  std::mutex mutex_;
  const uint32_t size_;
  std::vector<uint32_t> uses_;
  std::deque<uint32_t> free_;
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_INDEX_POOL_H_
