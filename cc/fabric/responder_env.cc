#include "cc/fabric/responder_env.h"

#include <cerrno>

#include "cc/fabric/completion.h"
#include "cc/fabric/copy.h"
#include "cc/fabric/nic.h"
#include "cc/fabric/region_table.h"

namespace railhop::fabric {

const rdma::MemoryRegion* SegmentEnv::FindRegion(uint32_t key) {
  return RegionTable::Find(*segment_, key, &region_) ? &region_ : nullptr;
}

bool SegmentEnv::Moved(bool done) {
  if (!done && errno == ESRCH) process_gone_ = true;
  return done;
}

bool SegmentEnv::CopyIn(uint64_t va, uint32_t offset, uint32_t length) {
  return Moved(WriteToProcess(segment_->pid, payload_.pieces, payload_.count, offset, length, va));
}

bool SegmentEnv::Atomic(const rdma::Train& train, uint64_t va, uint64_t* original) {
  LockRobust(
      segment_->atomics);  // the one store inside is a single write of 8 bytes: nothing to mend
  uint64_t value = 0;
  const iovec piece = {&value, sizeof(value)};
  bool ok = Moved(ReadFromProcess(segment_->pid, &piece, 1, 0, sizeof(value), va));
  if (ok) {
    *original = value;
    const bool add = train.opcode == rdma::Opcode::kFetchAdd;
    const bool store = add || value == train.compare_add;
    value = add ? value + train.compare_add : train.swap;
    ok = !store || Moved(WriteToProcess(segment_->pid, &piece, 1, 0, sizeof(value), va));
  }
  pthread_mutex_unlock(&segment_->atomics);
  return ok;
}

bool SegmentEnv::CompleteReceive(const rdma::Completion& completion, uint64_t token) {
  bool notify = false;
  const uint32_t cq = qp().recv_cq;
  const bool stored = PushCompletion(*segment_, cq, completion, token, &notify);
  if (notify) {
    if (segment_ == &nic_->process().segment()) {
      nic_->FireCq(cq);
    } else {
      segment_->pending_cqs[cq / 64].fetch_or(uint64_t{1} << (cq % 64), std::memory_order_release);
      nic_->process().Ring(slot_);
    }
  }
  return stored;
}

bool SegmentEnv::ReceiveReported(uint64_t token) {
  return HasCompletion(*segment_, qp().recv_cq, token);
}

void SegmentEnv::MarkPending() {
  segment_->pending_qps[qp_index_ / 64].fetch_or(uint64_t{1} << (qp_index_ % 64),
                                                 std::memory_order_release);
  nic_->process().Ring(slot_);
}

void SegmentEnv::RaiseEvent(rdma::AsyncEvent event) {
  qp().events.fetch_or(1u << static_cast<uint32_t>(event), std::memory_order_release);
  MarkPending();
}

void SegmentEnv::EnteredError() {
  qp().flush_send.store(1, std::memory_order_release);
  MarkPending();
}

}  // namespace railhop::fabric
