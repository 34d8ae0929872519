#include "cc/netperf/buffers.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace railhop::netperf {
namespace {

constexpr size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Buffers::Buffers(uint64_t size_max, int slots, int parts)
    : parts_(parts),
      stride_(RoundUp(size_max, 64) + 2 * kGuardBytes),
      bytes_(RoundUp(stride_ * static_cast<size_t>(slots) * static_cast<size_t>(parts), 4096)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fprintf(stderr, "railhop-netperf: no %zu bytes of memory for messages\n", bytes_);
    abort();
  }
  memory_ = static_cast<uint8_t*>(memory);
}

Buffers::Buffers(Buffers&& other) noexcept
    : parts_(other.parts_),
      stride_(other.stride_),
      bytes_(other.bytes_),
      memory_(std::exchange(other.memory_, nullptr)) {}

Buffers::~Buffers() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

void Buffers::Touch() { memset(memory_, 1, bytes_); }

}  // namespace railhop::netperf
