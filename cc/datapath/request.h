// What NCCL holds as a request, and the keys of the memory it names.
#ifndef RAILHOP_CC_DATAPATH_REQUEST_H_
#define RAILHOP_CC_DATAPATH_REQUEST_H_

#include <cstdint>

#include "cc/datapath/wire_format.h"

namespace railhop::datapath {

// Keys of registered memory on each device of the net device that it was registered for. Unused
// entries are 0.
struct MemoryKeys {
  uint64_t begin = 0;  // [begin, end) may be used
  uint64_t end = 0;
  uint32_t local[kDevicesMax] = {};
  uint32_t remote[kDevicesMax] = {};

  bool Covers(const void* data, uint64_t size) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return address >= begin && size <= end - begin && address - begin <= end - begin - size;
  }
};

// The head of each kind of request. The mark tells what the pointer points to, also after the
// request is over, since its memory is used for requests of its own kind only.
struct Request {
  enum Kind : uint32_t {
    kNone = 0,  // over
    kSend = 0x5e4d5e4d,
    kReceive = 0x4ece14e0,
    kFlush = 0xf1005001,
  };
  Kind kind = kNone;
  bool done = false;
  void* owner = nullptr;  // SendConnection or RecvConnection
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_REQUEST_H_
