#include "cc/sim/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace railhop::sim {
namespace {

enum QpEvent : uint64_t { kDrive, kTimer, kCqOverrun };

constexpr uint64_t kDoorbellNs = 200;  // from posting to the first byte on the wire

}  // namespace

QueuePair::QueuePair(Shared* shared, Nic* nic, Wire* wire, QpOwner* owner, const QpInit& init)
    : shared_(shared),
      nic_(nic),
      wire_(wire),
      owner_(owner),
      init_(init),
      qpn_(nic->NewQpn()),
      order_(nic->NewQpOrder()),
      id_(++shared->next_qp),
      requester_(this),
      ring_bytes_(std::max(init.max_recv_wr, 1u) * rdma::RecvWqeBytes(init.max_recv_sge)),
      ring_(&ring_state_, ring_bytes_.data()) {
  ring_state_.capacity = std::max(init.max_recv_wr, 1u);
  ring_state_.max_sge = init.max_recv_sge;
  responder_state_.type = init.type;
  responder_state_.qpn = qpn_;
  responder_state_.pd = init.pd;
  requester_.Allocate(init.max_send_wr, init.max_inline_data);
  request_flow_ =
      rdma::InitFlow(shared->options.seed, nic->index(), order_, rdma::FlowDirection::kRequests);
  response_flow_ =
      rdma::InitFlow(shared->options.seed, nic->index(), order_, rdma::FlowDirection::kResponses);
  nic->AddQp(qpn_, this);
}

uint32_t QueuePair::pkey() const {
  const Port* at = port();
  if (at == nullptr) return 0;
  const auto& pkeys = at->now.pkeys;
  if (pkeys.empty()) return attributes_.pkey_index == 0 ? 0xffff : 0;
  return attributes_.pkey_index < pkeys.size() ? pkeys[attributes_.pkey_index] : 0;
}

bool QueuePair::sq_draining() const {
  return state() == rdma::QpState::kSqd && requester_.Outstanding() != 0;
}

void QueuePair::NoteState(rdma::QpState state) {
  shared_->Note(RecordKind::kQpState, static_cast<uint8_t>(state), 0, id_);
}

// ---- control

int QueuePair::Modify(uint32_t mask, rdma::QpState to, const rdma::QpAttributes& wanted) {
  const rdma::QpState from = state();
  if ((mask & rdma::kAttrState) == 0) to = from;
  const uint32_t number = (mask & rdma::kAttrPort) != 0 ? wanted.port : attributes_.port;
  rdma::PortFacts facts;
  if (const Port* at = nic_->port(number)) {
    facts.exists = true;
    facts.link_layer = at->now.link_layer;
    facts.pkey_count = std::max<uint32_t>(1, static_cast<uint32_t>(at->now.pkeys.size()));
    facts.active_mtu = at->now.active_mtu;
    facts.sgid_valid = !rdma::IsEmpty(at->GidAt(wanted.sgid_index).gid);
  }
  if (!rdma::ModifyAllowed(init_.type, from, to, mask, wanted, facts)) return EINVAL;
  rdma::MergeAttributes(mask, wanted, &attributes_);
  Configure(mask);
  EnterState(from, to);
  return 0;
}

void QueuePair::Configure(uint32_t mask) {
  rdma::ConfigureResponder(mask, attributes_, &responder_state_);
  if ((mask & rdma::kAttrSqPsn) != 0) requester_.SetNextPsn(attributes_.sq_psn);
  rdma::RequesterConfig config = rdma::RequesterConfigOf(init_.type, attributes_);
  config.qpn = qpn_;
  config.signal_all = init_.signal_all;
  config.seven_is_forever = nic_->Has(rdma::kQuirkRetry7Forever);
  requester_.Configure(config);
  route = Route();
}

void QueuePair::EnterState(rdma::QpState from, rdma::QpState to) {
  if (from != to) NoteState(to);
  if (to == rdma::QpState::kReset) {
    if (from == rdma::QpState::kErr && nic_->Has(rdma::kQuirkDeadAfterReset)) {
      dead_after_reset_ = true;
    }
    ResetQueues();
    return;
  }
  responder_state_.state.store(static_cast<uint8_t>(to));
  if (to == rdma::QpState::kErr) {
    if (wedged_) return;  // not even a flush comes from it
    requester_.SetState(to);
    MakeResponder().FlushReceives();
    return;
  }
  if (from != to) requester_.SetState(to);
  ScheduleDrive(shared_->loop.now_ns());
}

void QueuePair::ResetQueues() {
  rdma::ResponderState& r = responder_state_;
  r.state.store(static_cast<uint8_t>(rdma::QpState::kReset));
  r.nak_sent = r.message_open = r.comm_established = false;
  r.unwritten = false;
  r.dest_qpn = r.access = r.expected_psn = r.atomic_next = 0;
  for (auto& replay : r.replays) replay.valid = 0;
  ring_.Clear();
  requester_.Reset();
  attributes_ = rdma::QpAttributes();
  route = Route();
  init_.send_cq->Purge(qpn_);
  if (init_.recv_cq != init_.send_cq) init_.recv_cq->Purge(qpn_);
}

void QueuePair::Retire() {
  if (retired_) return;
  retired_ = true;
  nic_->RemoveQp(qpn_);
  ResetQueues();
}

void QueuePair::DeviceGone() {
  if (retired_ || state() == rdma::QpState::kReset) return;
  NoteState(rdma::QpState::kErr);
  responder_state_.state.store(static_cast<uint8_t>(rdma::QpState::kErr));
  requester_.SetState(rdma::QpState::kErr);
  MakeResponder().FlushReceives();
}

// ---- posting

bool QueuePair::CheckRequest(const SendRequest& request, uint64_t* length) const {
  if (request.sge_count > init_.max_send_sge || request.sge_count > uint32_t{rdma::kMaxSge}) {
    return false;
  }
  const bool atomic =
      request.opcode == rdma::Opcode::kCompareSwap || request.opcode == rdma::Opcode::kFetchAdd;
  const bool answered = atomic || request.opcode == rdma::Opcode::kRead;
  if (answered && init_.type != rdma::QpType::kRc) return false;
  *length = 0;
  for (uint32_t i = 0; i < request.sge_count; ++i) *length += request.sges[i].length;
  if (*length > rdma::kMaxMessageBytes || (atomic && *length != 8)) return false;
  if ((request.flags & rdma::kSendInline) != 0) {
    return !answered && *length <= init_.max_inline_data;
  }
  return true;
}

int QueuePair::PostSend(const SendRequest& request) {
  const rdma::QpState now = state();
  if (now == rdma::QpState::kReset || now == rdma::QpState::kInit || now == rdma::QpState::kRtr) {
    return EINVAL;
  }
  uint64_t length = 0;
  if (!CheckRequest(request, &length)) return EINVAL;
  rdma::SendWqe* wqe = requester_.Reserve();
  if (wqe == nullptr) return ENOMEM;
  shared_->Note(RecordKind::kPost, static_cast<uint8_t>(request.opcode), 0, id_, request.wr_id,
                length);
  *wqe = rdma::SendWqe();
  wqe->wr_id = request.wr_id;
  wqe->opcode = request.opcode;
  wqe->flags = request.flags;
  wqe->imm_data = request.imm_data;
  wqe->rkey = request.rkey;
  wqe->remote_addr = request.remote_addr;
  wqe->compare_add = request.compare_add;
  wqe->swap = request.swap;
  wqe->length = static_cast<uint32_t>(length);
  wqe->sge_count = request.sge_count;
  std::copy(request.sges, request.sges + request.sge_count, wqe->sges);
  if ((request.flags & rdma::kSendInline) != 0) {
    uint8_t* out = requester_.InlineBuffer(wqe);
    wqe->inline_data = out;
    for (uint32_t i = 0; i < request.sge_count; ++i) {
      const rdma::Sge& sge = request.sges[i];
      if (sge.length != 0) std::memcpy(out, reinterpret_cast<void*>(sge.addr), sge.length);
      out += sge.length;
    }
  }
  if (shared_->writes != nullptr && request.opcode <= rdma::Opcode::kWriteImm) {
    shared_->writes->OnPostWrite(*this, request.remote_addr, length);
  }
  requester_.Commit();
  if (wedged_) return 0;
  if (now == rdma::QpState::kErr) {
    requester_.SetState(rdma::QpState::kErr);  // flushes
  } else {
    ScheduleDrive(shared_->loop.now_ns() + kDoorbellNs);
  }
  return 0;
}

int QueuePair::PostReceive(uint64_t wr_id, const rdma::Sge* sges, uint32_t count) {
  if (count > init_.max_recv_sge || state() == rdma::QpState::kReset) return EINVAL;
  if (ring_.Full()) return ENOMEM;
  rdma::RecvWqe* wqe = ring_.Back();
  wqe->wr_id = wr_id;
  wqe->sge_count = count;
  std::copy(sges, sges + count, wqe->sges());
  uint64_t length = 0;
  for (uint32_t i = 0; i < count; ++i) length += sges[i].length;
  shared_->Note(RecordKind::kPostReceive, 0, 0, id_, wr_id, length);
  ring_.Publish();
  if (state() == rdma::QpState::kErr && !wedged_) MakeResponder().FlushReceives();
  return 0;
}

// ---- sending

void QueuePair::ScheduleDrive(uint64_t when_ns) {
  if (drive_ns_ != 0 && drive_ns_ <= when_ns) return;
  drive_ns_ = when_ns;
  shared_->loop.At(when_ns, this, kDrive);
}

void QueuePair::ScheduleTimer() {
  const uint64_t deadline = requester_.deadline_ns();
  if (deadline == 0 || (timer_ns_ != 0 && timer_ns_ <= deadline)) return;
  timer_ns_ = deadline;
  shared_->loop.At(deadline, this, kTimer);
}

void QueuePair::OnEvent(uint64_t arg) {
  if (retired_ || wedged_) return;
  switch (arg) {
    case kDrive:
      if (drive_ns_ > shared_->loop.now_ns()) return;  // an earlier one took its place
      drive_ns_ = 0;
      return Drive();
    case kTimer:
      timer_ns_ = 0;
      requester_.OnDeadline(shared_->loop.now_ns());
      return Drive();
    case kCqOverrun:
      if (state() != rdma::QpState::kErr) MakeResponder().EnterError(rdma::AsyncEvent::kQpFatal);
      return;
  }
}

void QueuePair::Drive() {
  const uint64_t now = shared_->loop.now_ns();
  while (!retired_ && !wedged_ && !dead_after_reset_) {
    const uint64_t ready = wire_->ReadyAt(*this);
    if (ready > now) {
      if (requester_.Backlog() != 0) ScheduleDrive(ready);
      break;
    }
    rdma::Train train;
    if (!requester_.NextTrain(now, shared_->options.train_packets, &train)) break;
    shared_->Note(RecordKind::kSend, static_cast<uint8_t>(train.opcode),
                  port() != nullptr ? port()->id() : 0, id_, train.psn, train.count,
                  train.message_id);
    wire_->Send(*this, train);
    requester_.AfterSend(train);
  }
  ScheduleTimer();
}

template <typename Move>
bool QueuePair::ForPieces(const rdma::Sge* sges, uint32_t count, uint32_t offset, uint32_t length,
                          Move move) {
  for (uint32_t i = 0; i < count && length > 0; ++i) {
    const rdma::Sge& sge = sges[i];
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const rdma::MemoryRegion* region = nic_->FindRegion(sge.lkey);
    if (region == nullptr) return false;
    const uint32_t n = std::min(sge.length - offset, length);
    move(reinterpret_cast<uint8_t*>(region->ToVa(sge.addr) + offset), n);
    length -= n;
    offset = 0;
  }
  return length == 0;
}

bool QueuePair::Gather(const rdma::Train& train, uint8_t* out) {
  const rdma::SendWqe* wqe = requester_.WqeOf(train);
  if (wqe == nullptr) return false;
  if ((wqe->flags & rdma::kSendInline) != 0) {
    std::memcpy(out, wqe->inline_data + train.offset, train.length);
    return true;
  }
  return ForPieces(wqe->sges, wqe->sge_count, train.offset, train.length,
                   [&out](const uint8_t* piece, uint32_t n) {
                     std::memcpy(out, piece, n);
                     out += n;
                   });
}

void QueuePair::TakeResponse(const rdma::Response& response, const uint8_t* bytes) {
  if (retired_ || wedged_) return;
  if (response.dst_qpn != qpn_ || response.src_qpn != attributes_.dest_qpn) return;
  payload_ = bytes;
  requester_.OnResponse(response, shared_->loop.now_ns());
  payload_ = nullptr;
  Drive();
}

void QueuePair::FailSend(rdma::WcStatus status, uint32_t vendor_err) {
  requester_.Fail(status, vendor_err);
}

void QueuePair::FailReceive(rdma::WcStatus status, uint32_t vendor_err) {
  MakeResponder().FailFront(status, vendor_err);
}

// ---- rdma::RequesterEnv

bool QueuePair::LocalAccessAllowed(const rdma::Sge* sges, uint32_t count, bool write) {
  const uint32_t need = write ? uint32_t{rdma::kAccessLocalWrite} : 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (sges[i].length == 0) continue;
    const rdma::MemoryRegion* region = nic_->FindRegion(sges[i].lkey);
    if (region == nullptr ||
        !region->Allows(sges[i].lkey, init_.pd, sges[i].addr, sges[i].length, need)) {
      return false;
    }
  }
  return true;
}

bool QueuePair::CopyReadData(const rdma::SendWqe& wqe, uint32_t offset, uint64_t, uint32_t length) {
  if (!LocalAccessAllowed(wqe.sges, wqe.sge_count, /*write=*/true)) return false;
  const uint8_t* from = payload_;
  return ForPieces(wqe.sges, wqe.sge_count, offset, length, [&from](uint8_t* piece, uint32_t n) {
    std::memcpy(piece, from, n);
    from += n;
  });
}

bool QueuePair::StoreAtomicResult(const rdma::SendWqe& wqe, uint64_t original) {
  const auto* from = reinterpret_cast<const uint8_t*>(&original);
  if (!LocalAccessAllowed(wqe.sges, wqe.sge_count, /*write=*/true)) return false;
  return ForPieces(wqe.sges, wqe.sge_count, 0, sizeof(original),
                   [&from](uint8_t* piece, uint32_t n) {
                     std::memcpy(piece, from, n);
                     from += n;
                   });
}

void QueuePair::CompleteSend(const rdma::Completion& completion) {
  if (Push(init_.send_cq, completion, 0)) return;
  shared_->loop.At(shared_->loop.now_ns(), this, kCqOverrun);
}

void QueuePair::SendFailed(rdma::WcStatus) {
  NoteState(rdma::QpState::kErr);
  responder_state_.state.store(static_cast<uint8_t>(rdma::QpState::kErr));
  responder_state_.message_open = false;
  MakeResponder().FlushReceives();
}

void QueuePair::SendQueueDrained() {
  if (attributes_.sqd_notify) RaiseEvent(rdma::AsyncEvent::kSqDrained);
}

// ---- rdma::ResponderEnv

rdma::Response QueuePair::Take(const rdma::Train& train, const uint8_t* bytes) {
  payload_ = bytes;
  const rdma::Response response = MakeResponder().OnTrain(train);
  payload_ = nullptr;
  return response;
}

bool QueuePair::CopyIn(uint64_t va, uint32_t offset, uint32_t length) {
  if (shared_->writes != nullptr) {
    shared_->writes->OnWrite(*this, va, payload_ + offset, length);
  }
  std::memcpy(reinterpret_cast<void*>(va), payload_ + offset, length);
  return true;
}

bool QueuePair::Atomic(const rdma::Train& train, uint64_t va, uint64_t* original) {
  auto* target = reinterpret_cast<void*>(va);  // aligned in the requester's eyes, not surely here
  std::memcpy(original, target, sizeof(*original));
  uint64_t value = *original;
  if (train.opcode == rdma::Opcode::kFetchAdd) {
    value += train.compare_add;
  } else if (value == train.compare_add) {
    value = train.swap;
  }
  std::memcpy(target, &value, sizeof(value));
  return true;
}

bool QueuePair::CompleteReceive(const rdma::Completion& completion, uint64_t token) {
  return Push(init_.recv_cq, completion, token);
}

void QueuePair::RaiseEvent(rdma::AsyncEvent event) {
  shared_->Note(RecordKind::kEvent, static_cast<uint8_t>(event), 0, id_);
  owner_->OnQpEvent(event, this);
}

void QueuePair::EnteredError() {
  NoteState(rdma::QpState::kErr);
  requester_.SetState(rdma::QpState::kErr);
}

bool QueuePair::Push(Cq* cq, rdma::Completion completion, uint64_t token) {
  if (completion.status != rdma::WcStatus::kSuccess && nic_->Has(rdma::kQuirkRandomErrorFields)) {
    const uint64_t junk = shared_->chance.Next();
    completion.opcode = static_cast<rdma::WcOpcode>(junk & 0xff);
    completion.byte_len = static_cast<uint32_t>(junk >> 8);
    completion.imm_data = static_cast<uint32_t>(junk >> 16);
    completion.src_qp = static_cast<uint32_t>(junk >> 32);
  }
  shared_->Note(RecordKind::kCompletion, static_cast<uint8_t>(completion.status), 0, id_,
                completion.wr_id, static_cast<uint64_t>(completion.opcode), completion.byte_len);
  const bool was_broken = cq->broken();
  if (cq->Push(completion, token)) return true;
  if (!was_broken) owner_->OnCqError(cq);
  return false;
}

}  // namespace railhop::sim
