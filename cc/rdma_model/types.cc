#include "cc/rdma_model/types.h"

namespace railhop::rdma {

uint64_t RnrTimerNs(uint32_t code) {
  // IBTA table 46, in units of 10 us; code 0 is the longest.
  static constexpr uint32_t kTensOfUs[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                             16,    24,   32,   48,    64,    96,    128,   192,
                                             256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                             4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return uint64_t{kTensOfUs[code & 31]} * 10'000;
}

}  // namespace railhop::rdma
