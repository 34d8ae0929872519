#include "cc/rdma_model/completion_queue.h"

namespace railhop::rdma {

CqPush CompletionQueue::Push(const Completion& completion, uint64_t token) {
  const uint64_t tail = state_->tail.load(std::memory_order_relaxed);
  if (tail - state_->head.load(std::memory_order_acquire) >= state_->capacity) {
    state_->overrun.store(1, std::memory_order_release);
    return CqPush::kOverrun;
  }
  CqEntry& entry = At(tail);
  entry.completion = completion;
  entry.token = token;
  state_->tail.store(tail + 1, std::memory_order_release);
  // Pairs with the fence of a consumer that arms and then polls once more: one of the two sees the
  // other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto armed = static_cast<CqArm>(state_->armed.load(std::memory_order_relaxed) & ~kCqFired);
  const bool fires = armed == CqArm::kNext ||
                     (armed == CqArm::kSolicited &&
                      (completion.solicited != 0 || completion.status != WcStatus::kSuccess));
  if (!fires) return CqPush::kStored;
  state_->armed.store(static_cast<uint32_t>(CqArm::kNone) | kCqFired, std::memory_order_release);
  return CqPush::kStoredNotify;
}

void CompletionQueue::Arm(CqArm arm) {
  uint32_t now = state_->armed.load(std::memory_order_relaxed);
  uint32_t next = 0;
  do {
    // An arm for any completion is not weakened by a later one for solicited ones
    // (ibv_req_notify_cq(3)).
    if ((now & ~kCqFired) == static_cast<uint32_t>(CqArm::kNext)) break;
    next = (now & kCqFired) | static_cast<uint32_t>(arm);
  } while (!state_->armed.compare_exchange_weak(now, next, std::memory_order_seq_cst));
  std::atomic_thread_fence(std::memory_order_seq_cst);  // see Push
}

bool CompletionQueue::TakeFired() {
  if ((state_->armed.load(std::memory_order_acquire) & kCqFired) == 0) return false;
  return (state_->armed.fetch_and(~kCqFired, std::memory_order_acquire) & kCqFired) != 0;
}

int CompletionQueue::Poll(int max, Completion* out) {
  uint64_t head = state_->head.load(std::memory_order_relaxed);
  const uint64_t tail = state_->tail.load(std::memory_order_acquire);
  int taken = 0;
  while (taken < max && head != tail) out[taken++] = At(head++).completion;
  state_->head.store(head, std::memory_order_release);
  return taken;
}

bool CompletionQueue::HasToken(uint64_t token) const {
  uint64_t index = state_->tail.load(std::memory_order_acquire);
  const uint64_t oldest = index > state_->capacity ? index - state_->capacity : 0;
  while (index-- > oldest) {
    if (At(index).token == token) return true;
  }
  return false;
}

void CompletionQueue::Purge(uint32_t qp_num) {
  const uint64_t head = state_->head.load(std::memory_order_relaxed);
  const uint64_t tail = state_->tail.load(std::memory_order_acquire);
  uint64_t keep =
      tail;  // compacts towards the tail, so that published indexes stay valid for producers
  for (uint64_t index = tail; index-- > head;) {
    if (At(index).completion.qp_num == qp_num) continue;
    --keep;
    if (keep != index) At(keep) = At(index);
  }
  state_->head.store(keep, std::memory_order_release);
}

}  // namespace railhop::rdma
