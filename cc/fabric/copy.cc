#include "cc/fabric/copy.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

namespace railhop::fabric {
namespace {

constexpr size_t kMaxPieces = 64;
// Up to here a write goes in units of 8 bytes. The kernel copies one unit at a time, so their order
// is kept, which it need not be inside of one unit.
constexpr uint64_t kOrderedBytes = kMaxPieces * 8;

void WarnOnce(uint32_t pid) {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  fprintf(stderr,
          "railhop-fabric: the kernel does not let this process move memory of process %u "
          "(process_vm_writev: "
          "not permitted). Run both as the same user in one container, without a seccomp profile "
          "that bans it.\n",
          pid);
}

// Takes up to kMaxPieces local pieces, `step` bytes at most each, that cover the next bytes;
// returns how many.
size_t Slice(const iovec* pieces, size_t count, uint64_t offset, uint64_t length, uint64_t step,
             iovec* out, uint64_t* covered) {
  size_t used = 0;
  *covered = 0;
  for (size_t i = 0; i < count && *covered < length; ++i) {
    uint64_t start = 0;
    if (offset >= pieces[i].iov_len) {
      offset -= pieces[i].iov_len;
      continue;
    }
    start = offset;
    offset = 0;
    while (start < pieces[i].iov_len && *covered < length) {
      if (used == kMaxPieces) return used;
      const uint64_t n = std::min({pieces[i].iov_len - start, length - *covered, step});
      out[used++] = {static_cast<char*>(pieces[i].iov_base) + start, n};
      start += n;
      *covered += n;
    }
  }
  return used;
}

template <bool kWrite>
bool Move(uint32_t pid, const iovec* pieces, size_t count, uint64_t offset, uint64_t length,
          uint64_t va) {
  const uint64_t step = kWrite && length <= kOrderedBytes ? 8 : length;
  uint64_t done = 0;
  while (done < length) {
    iovec local[kMaxPieces];
    uint64_t covered = 0;
    const size_t used = Slice(pieces, count, offset + done, length - done, step, local, &covered);
    if (used == 0) {
      errno = EFAULT;
      return false;
    }
    iovec remote = {reinterpret_cast<void*>(va + done), covered};
    const ssize_t n = kWrite
                          ? process_vm_writev(static_cast<pid_t>(pid), local, used, &remote, 1, 0)
                          : process_vm_readv(static_cast<pid_t>(pid), local, used, &remote, 1, 0);
    if (n <= 0) {
      if (n < 0 && errno == EPERM) WarnOnce(pid);
      if (n == 0) errno = EFAULT;
      return false;
    }
    done += static_cast<uint64_t>(n);
  }
  return true;
}

}  // namespace

bool WriteToProcess(uint32_t pid, const iovec* pieces, size_t count, uint64_t offset,
                    uint64_t length, uint64_t va) {
  return Move<true>(pid, pieces, count, offset, length, va);
}

bool ReadFromProcess(uint32_t pid, const iovec* pieces, size_t count, uint64_t offset,
                     uint64_t length, uint64_t va) {
  return Move<false>(pid, pieces, count, offset, length, va);
}

}  // namespace railhop::fabric
