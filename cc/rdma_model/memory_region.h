// A registered piece of memory and the question whether an access to it is allowed.
#ifndef RAILHOP_CC_RDMA_MODEL_MEMORY_REGION_H_
#define RAILHOP_CC_RDMA_MODEL_MEMORY_REGION_H_

#include <cstdint>

namespace railhop::rdma {

// Plain data; `key` serves as lkey and rkey. `iova` is the address that work requests name, `va`
// the address of the same byte in the owner's process; they differ for ibv_reg_mr_iova.
struct MemoryRegion {
  uint32_t key = 0;  // 0: none
  uint32_t access = 0;
  uint32_t pd = 0;
  uint64_t iova = 0;
  uint64_t length = 0;
  uint64_t va = 0;

  // Whether a holder of `wanted_key` may touch [addr, addr+size) with all of the rights `need`.
  bool Allows(uint32_t wanted_key, uint32_t wanted_pd, uint64_t addr, uint64_t size,
              uint32_t need) const {
    return key != 0 && key == wanted_key && pd == wanted_pd && addr >= iova && size <= length &&
           addr - iova <= length - size && (access & need) == need;
  }
  uint64_t ToVa(uint64_t addr) const { return va + (addr - iova); }
};

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_MEMORY_REGION_H_
