#include "cc/sim/memory.h"

#include <algorithm>
#include <cstring>

namespace railhop::sim {
namespace {

constexpr uint8_t kGuardByte = 0xa5;
constexpr size_t kBlockBytes = 4 << 20;

// Word `index` of a pattern: cheap, and different for other seeds and places.
uint64_t Word(uint64_t seed, uint64_t index) {
  const uint64_t x = (seed ^ index) * 0x9e3779b97f4a7c15;
  return x ^ (x >> 29);
}

bool AllGuard(const uint8_t* bytes, size_t size) {
  return std::all_of(bytes, bytes + size, [](uint8_t b) { return b == kGuardByte; });
}

}  // namespace

void Buffer::Fill(uint64_t seed, size_t from, size_t length) const {
  size_t at = from;
  const size_t end = from + length;
  while (at < end) {
    const uint64_t word = Word(seed, at / 8);
    if (at % 8 == 0 && end - at >= 8) {
      std::memcpy(data_ + at, &word, 8);
      at += 8;
    } else {
      data_[at] = static_cast<uint8_t>(word >> (8 * (at % 8)));
      ++at;
    }
  }
}

size_t Buffer::FirstWrong(uint64_t seed, size_t from, size_t length) const {
  size_t at = from;
  const size_t end = from + length;
  while (at < end) {
    const uint64_t word = Word(seed, at / 8);
    if (at % 8 == 0 && end - at >= 8) {
      uint64_t have = 0;
      std::memcpy(&have, data_ + at, 8);
      if (have == word) {
        at += 8;
        continue;
      }
      while (data_[at] == static_cast<uint8_t>(word >> (8 * (at % 8)))) ++at;
      return at;
    }
    if (data_[at] != static_cast<uint8_t>(word >> (8 * (at % 8)))) return at;
    ++at;
  }
  return end;
}

bool Buffer::GuardsIntact() const {
  return AllGuard(data_ - kGuardBytes, kGuardBytes) && AllGuard(data_ + size_, kGuardBytes);
}

uint8_t* Memory::Take(size_t bytes) {
  while (block_ < blocks_.size() && blocks_[block_].size - used_ < bytes) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    const size_t size = std::max(bytes, kBlockBytes);
    blocks_.push_back({std::unique_ptr<uint8_t[]>(new uint8_t[size]), size});
    used_ = 0;
  }
  uint8_t* taken = blocks_[block_].bytes.get() + used_;
  used_ += bytes;
  return taken;
}

Buffer Memory::Allocate(size_t size, size_t misalign) {
  uint8_t* raw = Take(size + 2 * kGuardBytes + 128);
  const auto start = reinterpret_cast<uintptr_t>(raw) + kGuardBytes;
  Buffer buffer;
  buffer.data_ = reinterpret_cast<uint8_t*>((start + 63) / 64 * 64 + misalign % 64);
  buffer.size_ = size;
  std::memset(buffer.data_ - kGuardBytes, kGuardByte, kGuardBytes);
  std::memset(buffer.data_ + size, kGuardByte, kGuardBytes);
  buffers_.push_back(buffer);
  return buffer;
}

void Memory::Reset() {
  block_ = used_ = 0;
  buffers_.clear();
}

std::vector<Buffer> Memory::Damaged() const {
  std::vector<Buffer> damaged;
  for (const Buffer& buffer : buffers_) {
    if (!buffer.GuardsIntact()) damaged.push_back(buffer);
  }
  return damaged;
}

}  // namespace railhop::sim
