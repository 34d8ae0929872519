// What NCCL holds as a request, and the keys of the memory it names.
#ifndef RAILHOP_CC_DATAPATH_REQUEST_H_
#define RAILHOP_CC_DATAPATH_REQUEST_H_

#include <atomic>
#include <cstdint>

#include "cc/datapath/wire_format.h"

namespace railhop::datapath {

// Keys of registered memory by PhysicalDevice::id. They may be added while it is used.
struct MemoryKeys {
  uint64_t begin = 0;  // [begin, end) may be used
  uint64_t end = 0;
  std::atomic<uint32_t> covered = 0;  // bit for each device that it is registered on
  // Devices that Fault::Kind::kUncovered has asked for; whoever fails to cover one may clear its
  // bit to be asked again.
  mutable std::atomic<uint32_t> asked = 0;
  std::atomic<uint32_t> local[kPhysicalMax] = {};
  std::atomic<uint32_t> remote[kPhysicalMax] = {};

  bool Covers(const void* data, uint64_t size) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return address >= begin && size <= end - begin && address - begin <= end - begin - size;
  }
  // For a new registration of [begin, end); nobody uses this one any more.
  void Start(uint64_t from, uint64_t to) {
    begin = from;
    end = to;
    covered.store(0, std::memory_order_relaxed);
    asked.store(0, std::memory_order_relaxed);
  }
  // physical < kPhysicalMax. The keys of a device do not change while it is covered.
  void Add(int physical, uint32_t local_key, uint32_t remote_key) {
    local[physical].store(local_key, std::memory_order_relaxed);
    remote[physical].store(remote_key, std::memory_order_relaxed);
    covered.fetch_or(uint32_t{1} << physical, std::memory_order_release);
  }
  void Drop(int physical) {
    covered.fetch_and(~(uint32_t{1} << physical), std::memory_order_relaxed);
  }
  bool On(uint32_t physical) const {
    return (covered.load(std::memory_order_acquire) >> physical & 1) != 0;
  }
  uint32_t Local(uint32_t physical) const {
    return local[physical].load(std::memory_order_relaxed);
  }
  uint32_t Remote(uint32_t physical) const {
    return remote[physical].load(std::memory_order_relaxed);
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
  uint8_t missing = 0;    // send: stripes that are not acknowledged; flush: reads
  void* owner = nullptr;  // SendConnection or RecvConnection
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_REQUEST_H_
