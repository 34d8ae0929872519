#include "cc/fabric/region_table.h"

namespace railhop::fabric {
namespace {

// A key is its place and a count of the place's users, so that an old key does not open a new
// region.
constexpr uint32_t kCountBits = 8;
constexpr uint32_t kCountMask = (1u << kCountBits) - 1;

}  // namespace

uint32_t RegionTable::Add(const rdma::MemoryRegion& region) {
  const IndexPool::Lease lease = indexes_.Take();
  if (lease.index == IndexPool::kNone) return 0;
  RegionEntry& entry = segment_->regions[lease.index];
  entry.access.store(region.access, std::memory_order_relaxed);
  entry.pd.store(region.pd, std::memory_order_relaxed);
  entry.iova.store(region.iova, std::memory_order_relaxed);
  entry.length.store(region.length, std::memory_order_relaxed);
  entry.va.store(region.va, std::memory_order_relaxed);
  const uint32_t key = (lease.index << kCountBits) | (lease.uses % kCountMask + 1);
  entry.key.store(key, std::memory_order_release);
  return key;
}

void RegionTable::Hide(uint32_t key) {
  segment_->regions[key >> kCountBits].key.store(0, std::memory_order_seq_cst);
}

void RegionTable::Release(uint32_t key) { indexes_.Give(key >> kCountBits); }

bool RegionTable::Find(const Segment& segment, uint32_t key, rdma::MemoryRegion* region) {
  const uint32_t index = key >> kCountBits;
  if (key == 0 || index >= kMaxRegions) return false;
  const RegionEntry& entry = segment.regions[index];
  if (entry.key.load(std::memory_order_acquire) != key) return false;
  region->key = key;
  region->access = entry.access.load(std::memory_order_relaxed);
  region->pd = entry.pd.load(std::memory_order_relaxed);
  region->iova = entry.iova.load(std::memory_order_relaxed);
  region->length = entry.length.load(std::memory_order_relaxed);
  region->va = entry.va.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  return entry.key.load(std::memory_order_relaxed) == key;
}

}  // namespace railhop::fabric
