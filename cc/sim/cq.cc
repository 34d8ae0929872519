#include "cc/sim/cq.h"

#include <algorithm>

namespace railhop::sim {

Cq::Cq(uint32_t capacity, void* user)
    : entries_(std::max(capacity, 1u)), ring_(&state_, entries_.data()), user_(user) {
  state_.capacity = static_cast<uint32_t>(entries_.size());
}

bool Cq::Push(const rdma::Completion& completion, uint64_t token) {
  if (broken()) return false;
  const rdma::CqPush result = ring_.Push(completion, token);
  if (result == rdma::CqPush::kOverrun) return false;
  if (listener_ != nullptr) {
    listener_->OnCompletion(this, result == rdma::CqPush::kStoredNotify);
  }
  return true;
}

int Cq::Poll(int max, rdma::Completion* out) { return ring_.Poll(max, out); }

void Cq::Arm(bool solicited_only) {
  const auto next = static_cast<uint32_t>(rdma::CqArm::kNext);
  if (solicited_only && state_.armed.load() == next) return;  // the wider request stays
  state_.armed.store(solicited_only ? static_cast<uint32_t>(rdma::CqArm::kSolicited) : next);
}

bool Cq::Resize(uint32_t capacity) {
  capacity = std::max(capacity, 1u);
  const uint64_t waiting = state_.tail.load() - state_.head.load();
  if (waiting > capacity) return false;
  std::vector<rdma::CqEntry> entries(capacity);
  for (uint64_t i = 0; i < waiting; ++i) {
    entries[i] = entries_[(state_.head.load() + i) % state_.capacity];
  }
  entries_ = std::move(entries);
  state_.capacity = capacity;
  state_.head.store(0);
  state_.tail.store(waiting);
  ring_ = rdma::CompletionQueue(&state_, entries_.data());
  return true;
}

}  // namespace railhop::sim
