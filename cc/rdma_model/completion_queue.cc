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
  const auto armed = static_cast<CqArm>(state_->armed.load(std::memory_order_relaxed));
  const bool fires = armed == CqArm::kNext ||
                     (armed == CqArm::kSolicited &&
                      (completion.solicited != 0 || completion.status != WcStatus::kSuccess));
  if (!fires) return CqPush::kStored;
  state_->armed.store(static_cast<uint32_t>(CqArm::kNone), std::memory_order_relaxed);
  return CqPush::kStoredNotify;
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
