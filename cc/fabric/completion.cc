#include "cc/fabric/completion.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace railhop::fabric {
namespace {

rdma::CompletionQueue RingOf(Segment& segment, CqShared& shared) {
  char* base = reinterpret_cast<char*>(&segment);
  return {&shared.state, reinterpret_cast<rdma::CqEntry*>(base + shared.entries_offset)};
}

uint64_t RingBytes(uint32_t capacity) { return uint64_t{capacity} * sizeof(rdma::CqEntry); }

// Programs that poll in a tight loop share cores with the peer they wait for; on a busy machine an
// empty poll now and then gives the core away. 64 empty polls take about a microsecond.
constexpr uint32_t kEmptyPollsBeforeYield = 64;

}  // namespace

bool PushCompletion(Segment& segment, uint32_t index, const rdma::Completion& completion,
                    uint64_t token, bool* notify) {
  CqShared& shared = segment.cqs[index];
  LockRobust(shared.push_lock);  // a dead pusher has published its entry or not: nothing to mend
  rdma::CqPush result = rdma::CqPush::kOverrun;
  if (shared.in_use.load(std::memory_order_acquire) != 0)
    result = RingOf(segment, shared).Push(completion, token);
  pthread_mutex_unlock(&shared.push_lock);
  *notify = result == rdma::CqPush::kStoredNotify;
  return result != rdma::CqPush::kOverrun;
}

bool HasCompletion(Segment& segment, uint32_t index, uint64_t token) {
  CqShared& shared = segment.cqs[index];
  LockRobust(shared.push_lock);
  const bool has =
      shared.in_use.load(std::memory_order_acquire) != 0 && RingOf(segment, shared).HasToken(token);
  pthread_mutex_unlock(&shared.push_lock);
  return has;
}

std::unique_ptr<Cq> Cq::Create(Process* process, Context* context, uint32_t capacity,
                               Channel* channel, void* user) {
  const uint64_t offset = process->AllocateRing(RingBytes(capacity));
  if (offset == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  IndexPool& indexes = process->cq_indexes();
  const IndexPool::Lease lease = indexes.Take();
  if (lease.index == IndexPool::kNone) {
    process->FreeRing(offset, RingBytes(capacity));
    errno = ENOMEM;
    return nullptr;
  }
  CqShared& shared = process->segment().cqs[lease.index];
  if (lease.uses == 0)
    InitRobust(shared.push_lock);  // later users inherit it: a late peer may hold it
  shared.state.head.store(0);
  shared.state.tail.store(0);
  shared.state.armed.store(0);
  shared.state.overrun.store(0);
  shared.state.capacity = capacity;
  shared.entries_offset = offset;
  shared.in_use.store(1, std::memory_order_release);
  return std::unique_ptr<Cq>(new Cq(process, context, lease.index, &indexes, channel, user));
}

Cq::Cq(Process* process, Context* context, uint32_t index, IndexPool* indexes, Channel* channel,
       void* user)
    : process_(process),
      context_(context),
      index_(index),
      indexes_(indexes),
      channel_(channel),
      user_(user),
      shared_(process->segment().cqs[index]) {}

Cq::~Cq() {
  LockRobust(shared_.push_lock);  // no peer is inside any more, and none gets in again
  const uint64_t offset = shared_.entries_offset;
  const uint32_t capacity = shared_.state.capacity;
  shared_.in_use.store(0, std::memory_order_release);
  pthread_mutex_unlock(&shared_.push_lock);
  process_->FreeRing(offset, RingBytes(capacity));
  indexes_->Give(index_);
}

rdma::CompletionQueue Cq::Ring() { return RingOf(process_->segment(), shared_); }
rdma::CompletionQueue Cq::WithoutEntries() { return {&shared_.state, nullptr}; }

int Cq::Poll(int max, rdma::Completion* out) {
  thread_local uint32_t empty_polls = 0;
  if (WithoutEntries().Empty()) {
    if (shared_.state.overrun.load(std::memory_order_acquire) != 0) return -EIO;
    if (++empty_polls % kEmptyPollsBeforeYield == 0) sched_yield();
    return 0;
  }
  std::lock_guard<std::mutex> lock(poll_mutex_);
  return Ring().Poll(max, out);
}

void Cq::RequestNotify(bool solicited_only) {
  WithoutEntries().Arm(solicited_only ? rdma::CqArm::kSolicited : rdma::CqArm::kNext);
}

void Cq::Push(const rdma::Completion& completion) {
  bool notify = false;
  if (!PushCompletion(process_->segment(), index_, completion, 0, &notify)) {
    if (!overrun_told_.exchange(true)) context_->events.Put({rdma::AsyncEvent::kCqErr, user_, 0});
    return;
  }
  if (notify) Fire();
}

void Cq::Fire() {
  if (WithoutEntries().TakeFired() && channel_ != nullptr) channel_->events.Put(this);
}

void Cq::Purge(uint32_t qp_num) {
  std::lock_guard<std::mutex> lock(poll_mutex_);
  LockRobust(shared_.push_lock);
  Ring().Purge(qp_num);
  pthread_mutex_unlock(&shared_.push_lock);
}

int Cq::Resize(uint32_t capacity) {
  const uint64_t offset = process_->AllocateRing(RingBytes(capacity));
  if (offset == 0) return ENOMEM;
  std::lock_guard<std::mutex> lock(poll_mutex_);
  LockRobust(shared_.push_lock);
  rdma::CqState& state = shared_.state;
  const uint64_t tail = state.tail.load();
  const uint32_t old_capacity = state.capacity;
  const uint64_t old_offset = shared_.entries_offset;
  const bool fits = tail - state.head.load() <= capacity;
  if (fits) {
    // Positions stay, for whoever looks at them without a lock (Empty), and so do entries that were
    // polled: their tokens tell that a receive was reported.
    const uint64_t kept = std::min<uint64_t>({old_capacity, capacity, tail});
    auto* from = static_cast<rdma::CqEntry*>(process_->At(old_offset));
    auto* to = static_cast<rdma::CqEntry*>(process_->At(offset));
    for (uint64_t i = tail - kept; i < tail; ++i) to[i % capacity] = from[i % old_capacity];
    state.capacity = capacity;
    shared_.entries_offset = offset;
  }
  pthread_mutex_unlock(&shared_.push_lock);
  if (fits) {
    process_->FreeRing(old_offset, RingBytes(old_capacity));
  } else {
    process_->FreeRing(offset, RingBytes(capacity));
  }
  return fits ? 0 : EINVAL;
}

}  // namespace railhop::fabric
