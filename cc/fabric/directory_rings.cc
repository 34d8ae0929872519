// A directory's rings (port events, log), its change count and its locks.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "cc/fabric/directory.h"

namespace railhop::fabric {
namespace {

// How long a reader waits for a log line that is being written: longer than a busy machine keeps a
// writer off its cores, for then the writer must have died.
constexpr uint64_t kUnfinishedLineNs = 1'000'000'000;

void Wake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Moves *cursor up to the oldest entry that a ring of `size` still holds; false when there is
// nothing to read.
bool Catch(uint64_t head, uint64_t size, uint64_t* cursor) {
  if (*cursor >= head) return false;
  if (head - *cursor > size) *cursor = head - size;
  return true;
}

}  // namespace

uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

SharedLock::SharedLock(pthread_mutex_t& mutex) : mutex_(mutex) {
  if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
}

SharedLock::~SharedLock() { pthread_mutex_unlock(&mutex_); }

void DirectoryHandle::PushPortEvent(PortRef port, rdma::AsyncEvent event, uint64_t due_ns,
                                    uint32_t qp) {
  const uint64_t position = dir_->event_head.load(std::memory_order_relaxed);
  PortEvent& entry = dir_->events[position % kMaxPortEvents];
  entry.sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.due_ns.store(due_ns, std::memory_order_relaxed);
  entry.device.store(port.device, std::memory_order_relaxed);
  entry.port.store(port.port, std::memory_order_relaxed);
  entry.event.store(static_cast<uint32_t>(event), std::memory_order_relaxed);
  entry.qp.store(qp, std::memory_order_relaxed);
  entry.sequence.store(position + 1, std::memory_order_release);
  dir_->event_head.store(position + 1, std::memory_order_release);
}

std::optional<PortEventRecord> DirectoryHandle::ReadPortEvent(uint64_t* cursor) const {
  while (Catch(EventHead(), kMaxPortEvents, cursor)) {
    const PortEvent& entry = dir_->events[*cursor % kMaxPortEvents];
    const uint64_t before = entry.sequence.load(std::memory_order_acquire);
    PortEventRecord record{*cursor,
                           entry.due_ns.load(std::memory_order_relaxed),
                           entry.device.load(std::memory_order_relaxed),
                           entry.port.load(std::memory_order_relaxed),
                           entry.event.load(std::memory_order_relaxed),
                           entry.qp.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    const uint64_t after = entry.sequence.load(std::memory_order_relaxed);
    ++*cursor;
    // Otherwise the ring has gone round while this was read: the next round catches up.
    if (before == *cursor && after == before) return record;
  }
  return std::nullopt;
}

void DirectoryHandle::Log(const LogRecord& record) {
  const uint64_t position = dir_->log_head.fetch_add(1, std::memory_order_acq_rel);
  LogEntry& entry = dir_->log[position % kMaxLogEntries];
  entry.sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.time_ns.store(record.time_ns != 0 ? record.time_ns : MonotonicNs(),
                      std::memory_order_relaxed);
  entry.device.store(record.device, std::memory_order_relaxed);
  entry.port.store(record.port, std::memory_order_relaxed);
  entry.qp_order.store(record.qp_order, std::memory_order_relaxed);
  entry.kind.store(record.kind, std::memory_order_relaxed);
  entry.psn.store(record.psn, std::memory_order_relaxed);
  entry.count.store(record.count, std::memory_order_relaxed);
  entry.message.store(record.message, std::memory_order_relaxed);
  entry.arg.store(record.arg, std::memory_order_relaxed);
  entry.sequence.store(position + 1, std::memory_order_release);
}

std::optional<LogRecord> DirectoryHandle::ReadLog(uint64_t* cursor) const {
  uint64_t waiting_since = 0;
  while (Catch(dir_->log_head.load(std::memory_order_acquire), kMaxLogEntries, cursor)) {
    const LogEntry& entry = dir_->log[*cursor % kMaxLogEntries];
    const uint64_t before = entry.sequence.load(std::memory_order_acquire);
    if (before < *cursor + 1) {
      const uint64_t now = MonotonicNs();
      if (waiting_since == 0) waiting_since = now;
      if (now - waiting_since < kUnfinishedLineNs) {
        const timespec nap{0, 20'000};
        nanosleep(&nap, nullptr);
        continue;
      }
    }
    LogRecord record{*cursor,
                     entry.time_ns.load(std::memory_order_relaxed),
                     entry.device.load(std::memory_order_relaxed),
                     entry.port.load(std::memory_order_relaxed),
                     entry.qp_order.load(std::memory_order_relaxed),
                     entry.kind.load(std::memory_order_relaxed),
                     entry.psn.load(std::memory_order_relaxed),
                     entry.count.load(std::memory_order_relaxed),
                     entry.message.load(std::memory_order_relaxed),
                     entry.arg.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    const uint64_t after = entry.sequence.load(std::memory_order_relaxed);
    ++*cursor;
    waiting_since = 0;
    if (before == *cursor && after == before) return record;
  }
  return std::nullopt;
}

void DirectoryHandle::NotifyChange() {
  dir_->change.fetch_add(1, std::memory_order_seq_cst);
  Wake(&dir_->change);
  for (ProcessSlot& slot : dir_->processes) {
    if (slot.pid.load(std::memory_order_acquire) == 0) continue;
    slot.doorbell.fetch_add(1, std::memory_order_seq_cst);
    if (slot.sleeping.load(std::memory_order_seq_cst) != 0) Wake(&slot.doorbell);
  }
}

uint32_t DirectoryHandle::WaitForChange(uint32_t seen, int64_t timeout_ns) const {
  const uint64_t deadline = MonotonicNs() + static_cast<uint64_t>(timeout_ns < 0 ? 0 : timeout_ns);
  while (ChangeCount() == seen) {
    timespec left{};
    if (timeout_ns >= 0) {
      const uint64_t now = MonotonicNs();
      if (now >= deadline) break;
      left.tv_sec = static_cast<time_t>((deadline - now) / 1'000'000'000);
      left.tv_nsec = static_cast<long>((deadline - now) % 1'000'000'000);
    }
    const long rc = syscall(SYS_futex, &dir_->change, FUTEX_WAIT, seen,
                            timeout_ns < 0 ? nullptr : &left, nullptr, 0);
    if (rc != 0 && errno == EINTR) break;  // the caller may have something to do
  }
  return ChangeCount();
}

}  // namespace railhop::fabric
