// The messages of one end of a connection: slots in a ring, each with a place for every receive of
// a group, guard zones around every place. One registration covers them all.
#ifndef RAILHOP_CC_NETPERF_BUFFERS_H_
#define RAILHOP_CC_NETPERF_BUFFERS_H_

#include <cstddef>
#include <cstdint>

#include "cc/netperf/pattern.h"

namespace railhop::netperf {

class Buffers {
 public:
  // Pages of its own; aborts when there is no memory.
  Buffers(uint64_t size_max, int slots, int parts);
  ~Buffers();
  Buffers(Buffers&& other) noexcept;
  Buffers& operator=(Buffers&&) = delete;

  uint8_t* Data(uint64_t slot, int part) const {
    return memory_ +
           (slot * static_cast<uint64_t>(parts_) + static_cast<uint64_t>(part)) * stride_ +
           kGuardBytes;
  }
  // Makes all of it resident.
  void Touch();
  uint8_t* memory() const { return memory_; }
  size_t bytes() const { return bytes_; }

 private:
  int parts_;
  size_t stride_;
  size_t bytes_;
  uint8_t* memory_;
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_BUFFERS_H_
