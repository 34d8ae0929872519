#include "cc/sim/context.h"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace railhop::sim {
namespace {

using rdma::VerbCall;

constexpr uint32_t kShortCqEntries = 64;  // with quirk short_cq
constexpr uint64_t kHungNs = 60'000'000'000;

}  // namespace

Context::Context(Shared* shared, Nic* nic, Wire* wire) : shared_(shared), nic_(nic), wire_(wire) {
  nic_->AddListener(this);
}

Context::~Context() { Abandon(); }

void Context::Abandon() {
  if (abandoned_) return;
  abandoned_ = true;
  for (const auto& qp : qps_) qp->Retire();
  for (const auto& [key, pd] : regions_) nic_->RemoveRegion(key);
  regions_.clear();
  pds_.clear();
  nic_->RemoveListener(this);
}

int Context::Enter(VerbCall call, uint32_t detail) {
  const uint64_t now = shared_->loop.now_ns();
  const rdma::VerbVerdict verdict = rdma::JudgeVerb(nic_->port(1)->faults, call, detail, now);
  uint64_t hang_ns = verdict.hang_ns;
  const bool slow_kind =
      call == VerbCall::kModifyQp || call == VerbCall::kDestroyQp || call == VerbCall::kDeregMr;
  if (slow_kind && nic_->Has(rdma::kQuirkHangVerbs)) hang_ns = std::max(hang_ns, kHungNs);
  if (verdict.error != 0 || hang_ns != 0) {
    shared_->Note(RecordKind::kVerb, static_cast<uint8_t>(call), nic_->port(1)->id(), 0,
                  static_cast<uint64_t>(verdict.error), hang_ns);
  }
  if (hang_ns != 0 && shared_->hangs != nullptr) {
    shared_->hangs->OnHang(nic_, call, hang_ns);
  } else if (hang_ns != 0) {
    shared_->loop.RunUntil(now + hang_ns);
  }
  if (verdict.error != 0) return verdict.error;
  if (!gone_) return 0;
  // A device that is gone lets go of what was made on it, unless its provider is of the other kind.
  const bool lets_go = call == VerbCall::kDestroyQp || call == VerbCall::kDestroyCq ||
                       call == VerbCall::kDeregMr || call == VerbCall::kDeallocPd ||
                       call == VerbCall::kCloseDevice || call == VerbCall::kPollCq;
  return lets_go && !nic_->Has(rdma::kQuirkEioAfterRemoval) ? 0 : EIO;
}

int Context::AllocPd(uint32_t* pd) {
  if (const int error = Enter(VerbCall::kAllocPd)) return error;
  if (pds_.size() >= nic_->config().caps.max_pd) return ENOMEM;
  // Unique on the NIC: a key of one process must not open another's memory.
  *pd = static_cast<uint32_t>(shared_->chance.Next() >> 33) | 1;
  while (pds_.count(*pd) != 0) ++*pd;
  pds_[*pd];
  return 0;
}

int Context::DeallocPd(uint32_t pd) {
  if (const int error = Enter(VerbCall::kDeallocPd)) return error;
  const auto it = pds_.find(pd);
  if (it == pds_.end()) return EINVAL;
  if (it->second.users != 0) return EBUSY;
  pds_.erase(it);
  return 0;
}

int Context::RegMr(uint32_t pd, void* addr, uint64_t length, uint64_t iova, uint32_t access,
                   uint32_t* key) {
  if (const int error = Enter(VerbCall::kRegMr)) return error;
  const auto it = pds_.find(pd);
  const uint32_t remote = rdma::kAccessRemoteWrite | rdma::kAccessRemoteAtomic;
  if (it == pds_.end() || length == 0 || length > nic_->config().caps.max_mr_size) return EINVAL;
  if ((access & remote) != 0 && (access & rdma::kAccessLocalWrite) == 0) return EINVAL;
  *key = nic_->AddRegion({0, access, pd, iova, length, reinterpret_cast<uint64_t>(addr)});
  if (*key == 0) return ENOMEM;
  regions_[*key] = pd;
  ++it->second.users;
  return 0;
}

int Context::DeregMr(uint32_t key) {
  if (const int error = Enter(VerbCall::kDeregMr)) return error;
  const auto it = regions_.find(key);
  if (it == regions_.end()) return EINVAL;
  nic_->RemoveRegion(key);
  --pds_[it->second].users;
  regions_.erase(it);
  return 0;
}

int Context::CreateCq(uint32_t entries, void* user, Cq** cq) {
  if (const int error = Enter(VerbCall::kCreateCq)) return error;
  if (entries == 0 || entries > nic_->config().caps.max_cqe) return EINVAL;
  if (live_cqs_ >= nic_->config().caps.max_cq) return ENOMEM;
  const bool is_short = nic_->Has(rdma::kQuirkShortCq);
  entries = is_short ? std::min(entries, kShortCqEntries) : std::bit_ceil(entries);
  cqs_.push_back(std::make_unique<Cq>(entries, user));
  ++live_cqs_;
  *cq = cqs_.back().get();
  return 0;
}

int Context::DestroyCq(Cq* cq) {
  if (const int error = Enter(VerbCall::kDestroyCq)) return error;
  if (cq->users != 0) return EBUSY;
  cq->set_listener(nullptr);
  --live_cqs_;
  events_.erase(std::remove_if(events_.begin(), events_.end(),
                               [cq](const AsyncRecord& record) { return record.cq == cq; }),
                events_.end());
  return 0;
}

int Context::CreateQp(const QpInit& init, QueuePair** qp) {
  if (const int error = Enter(VerbCall::kCreateQp)) return error;
  if (init.type == rdma::QpType::kUc && nic_->Has(rdma::kQuirkNoUc)) return EOPNOTSUPP;
  const rdma::TopologyCaps& caps = nic_->config().caps;
  const auto pd = pds_.find(init.pd);
  if (pd == pds_.end() || init.max_send_wr > caps.max_qp_wr || init.max_recv_wr > caps.max_qp_wr ||
      init.max_send_sge > caps.max_sge || init.max_recv_sge > caps.max_sge ||
      init.max_inline_data > rdma::kMaxInlineData) {
    return EINVAL;
  }
  if (live_qps_ >= caps.max_qp) return ENOMEM;
  qps_.push_back(std::make_unique<QueuePair>(shared_, nic_, wire_, this, init));
  ++live_qps_;
  ++pd->second.users;
  ++init.send_cq->users;
  ++init.recv_cq->users;
  *qp = qps_.back().get();
  return 0;
}

int Context::ModifyQp(QueuePair* qp, uint32_t mask, rdma::QpState to,
                      const rdma::QpAttributes& attributes) {
  const uint32_t detail = (mask & rdma::kAttrState) != 0 ? static_cast<uint32_t>(to) + 1 : 0;
  if (const int error = Enter(VerbCall::kModifyQp, detail)) return error;
  return qp->Modify(mask, to, attributes);
}

int Context::DestroyQp(QueuePair* qp) {
  if (const int error = Enter(VerbCall::kDestroyQp)) return error;
  if (qp->retired() && nic_->host()->alive) return EINVAL;
  qp->Retire();
  --live_qps_;
  --pds_[qp->init().pd].users;
  --qp->init().send_cq->users;
  --qp->init().recv_cq->users;
  events_.erase(std::remove_if(events_.begin(), events_.end(),
                               [qp](const AsyncRecord& record) { return record.qp == qp; }),
                events_.end());
  return 0;
}

int Context::PostSend(QueuePair* qp, const SendRequest& request) {
  if (const int error = Enter(VerbCall::kPostSend)) return error;
  return qp->PostSend(request);
}

int Context::PostReceive(QueuePair* qp, uint64_t wr_id, const rdma::Sge* sges, uint32_t count) {
  if (const int error = Enter(VerbCall::kPostRecv)) return error;
  return qp->PostReceive(wr_id, sges, count);
}

int Context::PollCq(Cq* cq, int max, rdma::Completion* out) {
  if (const int error = Enter(VerbCall::kPollCq)) return -error;
  return cq->Poll(max, out);
}

// ---- events

void Context::Queue(const AsyncRecord& record) {
  events_.push_back(record);
  if (listener_ != nullptr) listener_->OnAsyncEvent();
}

bool Context::NextEvent(AsyncRecord* record) {
  if (events_.empty()) return false;
  *record = events_.front();
  events_.pop_front();
  return true;
}

void Context::OnNicEvent(rdma::AsyncEvent event, uint32_t port, QueuePair* qp) {
  const bool ours = qp == nullptr || std::any_of(qps_.begin(), qps_.end(), [qp](const auto& mine) {
                      return mine.get() == qp;
                    });
  if (!ours || gone_) return;
  Queue({event, qp == nullptr ? port : 0, qp, nullptr});
}

void Context::OnNicRemoved() {
  if (gone_) return;
  gone_ = true;
  Queue({rdma::AsyncEvent::kDeviceFatal, 0, nullptr, nullptr});
  for (const auto& qp : qps_) qp->DeviceGone();
}

void Context::OnQpEvent(rdma::AsyncEvent event, QueuePair* qp) { Queue({event, 0, qp, nullptr}); }

void Context::OnCqError(Cq* cq) { Queue({rdma::AsyncEvent::kCqErr, 0, nullptr, cq}); }

}  // namespace railhop::sim
