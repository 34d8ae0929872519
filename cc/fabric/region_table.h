// The memory regions of a process, as it registers them and as its peers find them by key.
#ifndef RAILHOP_CC_FABRIC_REGION_TABLE_H_
#define RAILHOP_CC_FABRIC_REGION_TABLE_H_

#include <cstdint>

#include "cc/fabric/index_pool.h"
#include "cc/fabric/segment_layout.h"
#include "cc/rdma_model/memory_region.h"

namespace railhop::fabric {

class RegionTable {
 public:
  explicit RegionTable(Segment* segment) : segment_(segment), indexes_(kMaxRegions) {}

  // Registers `region` (its key is chosen here and returned); 0 when the table is full. Any thread.
  uint32_t Add(const rdma::MemoryRegion& region);
  // From now on nobody finds `key`. Whoever found it before may still be using it: see
  // Nic::Quiesce.
  void Hide(uint32_t key);
  // Lets the key's place be used again.
  void Release(uint32_t key);

  // A copy of the region with this key in any process's segment. False: there is none.
  static bool Find(const Segment& segment, uint32_t key, rdma::MemoryRegion* region);

 private:
  Segment* const segment_;
  IndexPool indexes_;
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_REGION_TABLE_H_
