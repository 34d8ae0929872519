// Buffers that notice: a guard zone on either side, and contents that tell where they belong.
//
// Every transfer has a pattern of its own, so a byte that comes from another transfer, another
// offset or an earlier life of the buffer is wrong where it lies. Memory comes from one block that
// is used again by the next run; what an earlier run left there is as wrong as anything else. One
// thread.
#ifndef RAILHOP_CC_SIM_MEMORY_H_
#define RAILHOP_CC_SIM_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace railhop::sim {

inline constexpr size_t kGuardBytes = 64;  // at least, on either side

class Memory;

// A piece of a Memory; a view without ownership.
class Buffer {
 public:
  Buffer() = default;
  uint8_t* data() const { return data_; }
  uint64_t addr() const { return reinterpret_cast<uint64_t>(data_); }
  size_t size() const { return size_; }

  // Fills [from, from+length) with bytes [from, from+length) of the pattern `seed`.
  void Fill(uint64_t seed, size_t from, size_t length) const;
  void Fill(uint64_t seed) const { Fill(seed, 0, size_); }
  // Offset of the first byte in [from, from+length) that is not the pattern's; `length` + from:
  // none.
  size_t FirstWrong(uint64_t seed, size_t from, size_t length) const;
  bool Holds(uint64_t seed, size_t from, size_t length) const {
    return FirstWrong(seed, from, length) == from + length;
  }
  // Whether nobody wrote outside.
  bool GuardsIntact() const;

 private:
  friend class Memory;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

class Memory {
 public:
  // A buffer of `size` bytes, at a multiple of 64 (plus `misalign` < 64), with fresh guards and
  // whatever contents. Lives until Reset() or the end of the Memory.
  Buffer Allocate(size_t size, size_t misalign = 0);
  // Forgets all buffers; the blocks are used again.
  void Reset();
  // Buffers allocated since Reset() whose guards are damaged.
  std::vector<Buffer> Damaged() const;

 private:
  struct Block {
    std::unique_ptr<uint8_t[]> bytes;
    size_t size = 0;
  };
  uint8_t* Take(size_t bytes);

  std::vector<Block> blocks_;
  size_t block_ = 0;  // the one in use
  size_t used_ = 0;   // of it
  std::vector<Buffer> buffers_;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_MEMORY_H_
