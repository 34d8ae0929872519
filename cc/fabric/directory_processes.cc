// The processes of a fabric and the queue pair numbers that they hold.
//
// A queue pair number is 6 bits of generation above 18 bits of index. An entry's word is the number
// itself while it is live; kFree with the last generation when it was freed; kBusy with slot and
// generation while it is being taken, so that the number of a process that died half-way is found
// and freed with the rest.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cc/fabric/directory.h"

namespace railhop::fabric {
namespace {

constexpr uint32_t kQpnIndices = 1u << kQpnIndexBits;
constexpr uint32_t kIndexMask = kQpnIndices - 1;
constexpr uint32_t kGenerationMask = 0x3f;
constexpr uint32_t kFirstIndex = 2;  // 0 and 1 are the management queue pairs of InfiniBand
constexpr uint32_t kFree = 1u << 31;
constexpr uint32_t kBusy = 1u << 30;
constexpr uint32_t kSlotShift = 6;
static_assert((kMaxProcesses - 1) << kSlotShift < static_cast<int>(kBusy));

bool IsLive(uint32_t word) { return word != 0 && (word & (kFree | kBusy)) == 0; }

uint32_t GenerationOf(uint32_t word) {
  return IsLive(word) ? word >> kQpnIndexBits : word & kGenerationMask;
}

}  // namespace

uint64_t ProcessStartTime(uint32_t pid) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/%u/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = '\0';
  // "pid (name) state ...": the name may hold anything, so count from its last parenthesis. Start
  // time is field 22.
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] == '\0' || at[2] == 'Z' || at[2] == 'X') return 0;
  for (int field = 2; field < 22; ++field) {
    at = std::strchr(at + 1, ' ');
    if (at == nullptr) return 0;
  }
  return std::strtoull(at + 1, nullptr, 10);
}

SlotRef DirectoryHandle::ClaimSlot(uint32_t host, uint32_t segment_fd) {
  const uint32_t pid = static_cast<uint32_t>(getpid());
  const uint64_t start_time = ProcessStartTime(pid);
  SharedLock lock(dir_->claim_lock);
  if (dir_->closed.load(std::memory_order_acquire) != 0) return {};
  uint32_t found = kNoSlot;
  for (uint32_t i = 0; i < static_cast<uint32_t>(kMaxProcesses); ++i) {
    ProcessSlot& slot = dir_->processes[i];
    const uint32_t holder = slot.pid.load(std::memory_order_acquire);
    if (holder != 0 && ProcessStartTime(holder) != slot.start_time.load()) FreeSlot(i);
    if (slot.pid.load(std::memory_order_relaxed) == 0 && found == kNoSlot) found = i;
  }
  if (found == kNoSlot) return {};
  ProcessSlot& slot = dir_->processes[found];
  const uint32_t generation = slot.generation.load(std::memory_order_relaxed) + 1;
  slot.generation.store(generation, std::memory_order_relaxed);
  slot.host.store(host, std::memory_order_relaxed);
  slot.segment_fd.store(segment_fd, std::memory_order_relaxed);
  slot.start_time.store(start_time, std::memory_order_relaxed);
  slot.pid.store(pid, std::memory_order_release);
  return {found, generation};
}

void DirectoryHandle::ReleaseSlot(SlotRef ref) {
  if (ref.slot >= static_cast<uint32_t>(kMaxProcesses)) return;
  SharedLock lock(dir_->claim_lock);
  const ProcessSlot& slot = dir_->processes[ref.slot];
  if (slot.pid.load(std::memory_order_acquire) != 0 && slot.generation.load() == ref.generation) {
    FreeSlot(ref.slot);
  }
}

void DirectoryHandle::FreeSlot(uint32_t slot) {
  FreeQpnsOf(slot);
  dir_->processes[slot].pid.store(0, std::memory_order_release);
}

uint32_t DirectoryHandle::ReclaimDead() {
  SharedLock lock(dir_->claim_lock);
  uint32_t freed = 0;
  for (uint32_t i = 0; i < static_cast<uint32_t>(kMaxProcesses); ++i) {
    const ProcessSlot& slot = dir_->processes[i];
    const uint32_t pid = slot.pid.load(std::memory_order_acquire);
    if (pid == 0 || ProcessStartTime(pid) == slot.start_time.load()) continue;
    FreeSlot(i);
    ++freed;
  }
  return freed;
}

bool DirectoryHandle::SlotAlive(SlotRef ref) const {
  if (ref.slot >= static_cast<uint32_t>(kMaxProcesses)) return false;
  const ProcessSlot& slot = dir_->processes[ref.slot];
  const uint32_t pid = slot.pid.load(std::memory_order_acquire);
  return pid != 0 && slot.generation.load(std::memory_order_acquire) == ref.generation &&
         ProcessStartTime(pid) == slot.start_time.load(std::memory_order_acquire);
}

int DirectoryHandle::OpenSegment(SlotRef ref) const {
  if (!SlotAlive(ref)) {
    errno = ESRCH;
    return -1;
  }
  const ProcessSlot& slot = dir_->processes[ref.slot];
  char path[48];
  std::snprintf(path, sizeof(path), "/proc/%u/fd/%u", slot.pid.load(), slot.segment_fd.load());
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  if (!SlotAlive(ref)) {  // it may have been another process's file by then
    close(fd);
    errno = ESRCH;
    return -1;
  }
  return fd;
}

uint32_t DirectoryHandle::AllocateQpn(SlotRef ref, uint32_t index) {
  for (uint32_t tries = 0; tries < kQpnIndices; ++tries) {
    const uint32_t at = dir_->qpn_cursor.fetch_add(1, std::memory_order_relaxed) & kIndexMask;
    if (at < kFirstIndex) continue;
    QpnEntry& entry = dir_->qpns[at];
    uint32_t word = entry.qpn.load(std::memory_order_acquire);
    if (word != 0 && (word & kFree) == 0) continue;
    const uint32_t generation = word == 0 ? 0 : (GenerationOf(word) + 1) & kGenerationMask;
    uint32_t limit = dir_->qpn_limit.load(std::memory_order_relaxed);
    while (limit <= at && !dir_->qpn_limit.compare_exchange_weak(limit, at + 1)) {
    }
    if (!entry.qpn.compare_exchange_strong(word, kBusy | ref.slot << kSlotShift | generation,
                                           std::memory_order_acq_rel)) {
      continue;
    }
    entry.slot.store(ref.slot, std::memory_order_relaxed);
    entry.slot_generation.store(ref.generation, std::memory_order_relaxed);
    entry.index.store(index, std::memory_order_relaxed);
    const uint32_t qpn = generation << kQpnIndexBits | at;
    entry.qpn.store(qpn, std::memory_order_release);
    return qpn;
  }
  return 0;
}

void DirectoryHandle::FreeQpn(uint32_t qpn) {
  if (!IsLive(qpn)) return;
  uint32_t expected = qpn;
  dir_->qpns[qpn & kIndexMask].qpn.compare_exchange_strong(expected, kFree | GenerationOf(qpn),
                                                           std::memory_order_acq_rel);
}

void DirectoryHandle::FreeQpnsOf(uint32_t slot) {
  const uint32_t limit = dir_->qpn_limit.load(std::memory_order_acquire);
  for (uint32_t i = kFirstIndex; i < limit; ++i) {
    QpnEntry& entry = dir_->qpns[i];
    uint32_t word = entry.qpn.load(std::memory_order_acquire);
    const bool taken_by_it = IsLive(word) && entry.slot.load(std::memory_order_relaxed) == slot;
    const bool busy_for_it = (word & kBusy) != 0 && (word & ~kBusy) >> kSlotShift == slot;
    if (taken_by_it || busy_for_it) {
      entry.qpn.compare_exchange_strong(word, kFree | GenerationOf(word),
                                        std::memory_order_acq_rel);
    }
  }
}

std::optional<QpnOwner> DirectoryHandle::LookupQpn(uint32_t qpn) const {
  if (!IsLive(qpn) || qpn >> 24 != 0) return std::nullopt;
  const QpnEntry& entry = dir_->qpns[qpn & kIndexMask];
  if (entry.qpn.load(std::memory_order_acquire) != qpn) return std::nullopt;
  const QpnOwner owner{entry.slot.load(std::memory_order_relaxed),
                       entry.slot_generation.load(std::memory_order_relaxed),
                       entry.index.load(std::memory_order_relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.qpn.load(std::memory_order_relaxed) != qpn) return std::nullopt;
  return owner;
}

}  // namespace railhop::fabric
