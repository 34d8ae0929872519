#include "cc/sim/conversation.h"

namespace railhop::sim {
namespace {

enum Event : uint64_t { kBroken, kFenceFirst, kFenceSecond, kConnect };

constexpr uint64_t kFenceDelayNs = 3'000'000;  // at most, from a failure to the fence
constexpr uint64_t kConnectDelayNs = 1'000'000;
constexpr uint64_t kAgainNs = 10'000'000;  // between attempts to connect
constexpr uint32_t kAttempts = 8;

}  // namespace

Conversation::Conversation(World* world, Memory* memory, const ConversationPlan& plan,
                           Violations* violations)
    : world_(world),
      plan_(plan),
      violations_(violations),
      prng_(plan.seed),
      first_(world, memory, plan.first, plan.first_nic + " to " + plan.second_nic, violations),
      second_(world, memory, plan.second, plan.second_nic + " to " + plan.first_nic, violations),
      psn_first_(static_cast<uint32_t>(prng_.Next()) & rdma::kPsnMask),
      psn_second_(static_cast<uint32_t>(prng_.Next()) & rdma::kPsnMask) {
  first_.Meet(&second_, this);
  second_.Meet(&first_, this);
}

bool Conversation::Start() {
  if (!first_.Open(world_->FindNic(plan_.first_nic), plan_.endpoint) ||
      !second_.Open(world_->FindNic(plan_.second_nic), plan_.endpoint) || !first_.MakeTransfers() ||
      !second_.MakeTransfers()) {
    phase_ = Phase::kOver;
    return false;
  }
  phase_ = Phase::kConnecting;
  TryConnect();
  return true;
}

bool Conversation::Prepare(Side* side) {
  const Endpoint& e = side->endpoint();
  const bool unusable = e.qp->retired() || e.qp->wedged() || e.qp->dead_after_reset() ||
                        (incarnations_ > 0 && plan_.endpoint.type == rdma::QpType::kUc);
  if (unusable) return side->Renew(plan_.endpoint);
  return e.context->ModifyQp(e.qp, rdma::kAttrState, rdma::QpState::kReset, {}) == 0;
}

bool Conversation::ConnectBoth() {
  if (!Prepare(&first_) || !Prepare(&second_)) return false;
  return Connect(first_.endpoint(), second_.endpoint(), plan_.connect, psn_first_, psn_second_) ==
             0 &&
         Connect(second_.endpoint(), first_.endpoint(), plan_.connect, psn_second_, psn_first_) ==
             0;
}

void Conversation::TryConnect() {
  if (first_.dead() || second_.dead() || attempts_ == kAttempts) {
    phase_ = Phase::kOver;
    return;
  }
  ++attempts_;
  // Far from the numbers in use before, so that an old packet is never the expected one.
  psn_first_ = rdma::PsnAdd(psn_first_, (1 << 20) + static_cast<uint32_t>(prng_.Below(1 << 20)));
  psn_second_ = rdma::PsnAdd(psn_second_, (1 << 20) + static_cast<uint32_t>(prng_.Below(1 << 20)));
  if (!ConnectBoth()) {
    world_->loop().At(world_->loop().now_ns() + kAgainNs, this, kConnect);
    return;
  }
  attempts_ = 0;
  fenced_ = 0;
  ++incarnations_;
  phase_ = Phase::kRunning;
  first_.Start();
  second_.Start();
}

void Conversation::OnBroken() {
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kFencing;
  const uint64_t now = world_->loop().now_ns();
  world_->loop().At(now + prng_.Below(kFenceDelayNs), this, kFenceFirst);
  world_->loop().At(now + prng_.Below(kFenceDelayNs), this, kFenceSecond);
}

void Conversation::OnFenced() {
  if (fenced_ != 3 || phase_ != Phase::kFencing) return;
  const bool more = first_.HasMore() || second_.HasMore();
  if (!more || incarnations_ > plan_.reconnects) {
    phase_ = Phase::kOver;
    return;
  }
  phase_ = Phase::kConnecting;
  world_->loop().At(world_->loop().now_ns() + prng_.Below(kConnectDelayNs), this, kConnect);
}

void Conversation::OnEvent(uint64_t arg) {
  switch (arg) {
    case kBroken:
      return OnBroken();
    case kFenceFirst:
      first_.Fence();
      fenced_ |= 1;
      return OnFenced();
    case kFenceSecond:
      second_.Fence();
      fenced_ |= 2;
      return OnFenced();
    case kConnect:
      return TryConnect();
  }
}

void Conversation::CheckForHang() {
  if (phase_ == Phase::kIdle || phase_ == Phase::kOver) return;
  if (phase_ != Phase::kRunning) {
    violations_->Add(plan_.first_nic + " and " + plan_.second_nic + ": never came back");
    return;
  }
  for (const Side* side : {&first_, &second_}) {
    const QueuePair& qp = *side->endpoint().qp;
    if (side->dead() || side->Finished() || qp.wedged() || qp.dead_after_reset()) continue;
    if (plan_.connect.timeout == 0) continue;  // such a request waits for ever, and may
    // Nor one of a NIC that retries without end, as long as it does.
    if (qp.requester().NeverGivesUp() && world_->loop().next_ns() != kNeverNs) continue;
    violations_->Add((side == &first_ ? plan_.first_nic : plan_.second_nic) +
                     ": hangs: nothing moves and not all has ended");
  }
}

void Conversation::Finish() {
  if (phase_ == Phase::kRunning) {
    first_.Fence();
    second_.Fence();
  }
  if (phase_ == Phase::kIdle) return;
  phase_ = Phase::kOver;
  first_.CheckAtEnd();
  second_.CheckAtEnd();
}

}  // namespace railhop::sim
