#include "cc/rdma_model/responder.h"

#include <algorithm>

namespace railhop::rdma {
namespace {

bool IsSend(Opcode op) { return op == Opcode::kSend || op == Opcode::kSendImm; }
bool IsWrite(Opcode op) { return op == Opcode::kWrite || op == Opcode::kWriteImm; }
bool IsAtomic(Opcode op) { return op == Opcode::kCompareSwap || op == Opcode::kFetchAdd; }
bool ConsumesReceive(Opcode op) { return IsSend(op) || op == Opcode::kWriteImm; }

// PSNs that a request takes: a READ takes one for each packet of its answer.
uint32_t PsnsOf(const Train& train) {
  return train.opcode == Opcode::kRead ? PacketCount(train.length, train.mtu) : train.count;
}

uint64_t RoomIn(const RecvWqe& wqe) {
  uint64_t room = 0;
  for (uint32_t i = 0; i < wqe.sge_count; ++i) room += wqe.sges()[i].length;
  return room;
}

}  // namespace

Response Responder::Reply(ResponseKind kind, uint32_t psn) const {
  Response r;
  r.kind = kind;
  r.src_qpn = s_->qpn;
  r.dst_qpn = s_->dest_qpn;
  r.psn = psn;
  r.mtu = s_->mtu;
  return r;
}

Response Responder::NotReady() {
  // What is already under way behind it is not refused once more (as for a NAK; IBTA 9.7.5.2.8):
  // a sequence NAK would cost the requester a retry and would not make it wait.
  s_->nak_sent = true;
  Response r = Reply(ResponseKind::kRnrNak, s_->expected_psn);
  r.rnr_timer = s_->min_rnr_timer;
  return r;
}

Response Responder::Ack(uint32_t psn) const { return Reply(ResponseKind::kAck, psn); }

Response Responder::OnTrain(Train train) {
  const auto state = static_cast<QpState>(s_->state.load(std::memory_order_acquire));
  const bool listens = state == QpState::kRtr || state == QpState::kRts || state == QpState::kSqd ||
                       state == QpState::kSqe;
  if (!listens || train.dst_qpn != s_->qpn || train.src_qpn != s_->dest_qpn ||
      train.type != s_->type)
    return {};
  if (!s_->comm_established) {
    s_->comm_established = true;
    if (state == QpState::kRtr) env_->RaiseEvent(AsyncEvent::kCommEst);
  }
  if (s_->type == QpType::kUc) return OnUcTrain(train);

  payload_skip_ = 0;
  const int32_t ahead = PsnDiff(train.psn, s_->expected_psn);
  if (ahead > 0) {
    if (s_->nak_sent) return {};
    s_->nak_sent = true;
    return Reply(ResponseKind::kNakSequence, s_->expected_psn);
  }
  if (ahead < 0) {
    const auto behind = static_cast<uint32_t>(-ahead);
    if (behind >= PsnsOf(train)) return Duplicate(train);
    // A repeated READ is a new, shorter request in its sender's eyes, so only runs of packets can
    // straddle.
    if (train.opcode == Opcode::kRead || IsAtomic(train.opcode)) return {};
    payload_skip_ = train.TakeFront(behind).length;
  }
  s_->nak_sent = false;
  // Packets of another size than this end's path MTU are not taken for a message's middle
  // (IBTA 9.7.4.1.6).
  const bool carries = IsSend(train.opcode) || IsWrite(train.opcode);
  if (carries && train.mtu != s_->mtu &&
      (train.message_length > train.mtu || train.message_length > s_->mtu)) {
    return Nak(ResponseKind::kNakInvalidRequest, train);
  }
  return Execute(train);
}

Response Responder::Duplicate(const Train& train) {
  if (train.opcode == Opcode::kRead) {
    const MemoryRegion* region = env_->FindRegion(train.rkey);
    if (train.length != 0 &&
        (region == nullptr || !region->Allows(train.rkey, s_->pd, train.remote_addr + train.offset,
                                              train.length, kAccessRemoteRead))) {
      return {};  // the key is gone since; the requester's timer tells
    }
    Response r = Reply(ResponseKind::kReadData, train.psn);
    r.mtu = train.mtu;
    r.count = PacketCount(train.length, train.mtu);
    r.length = train.length;
    r.remote_addr =
        region != nullptr && train.length != 0 ? region->ToVa(train.remote_addr + train.offset) : 0;
    return r;
  }
  if (IsAtomic(train.opcode)) {
    // Newest first: packet numbers come again.
    for (uint32_t back = 1; back <= kAtomicReplays; ++back) {
      const auto& replay = s_->replays[(s_->atomic_next - back) % kAtomicReplays];
      if (replay.valid == 0 || replay.psn != train.psn) continue;
      Response r = Reply(ResponseKind::kAtomicResult, train.psn);
      r.atomic_original = replay.original;
      return r;
    }
    return {};
  }
  return Ack(PsnAdd(s_->expected_psn, kPsnMask));  // all before the expected one has been executed
}

Response Responder::Execute(const Train& train) {
  s_->unwritten |= train.unwritten;
  if (IsWrite(train.opcode)) return ExecuteWrite(train);
  if (IsSend(train.opcode)) return ExecuteSend(train);
  if (train.opcode == Opcode::kRead) return ExecuteRead(train);
  return ExecuteAtomic(train);
}

bool Responder::ContinuesMessage(const Train& train) const {
  return s_->message_open && s_->open_opcode == train.opcode && s_->open_offset == train.offset;
}

bool Responder::OpenMessage(const Train& train) {
  if (!train.first) return ContinuesMessage(train);
  if (s_->message_open) return false;  // a message began inside another
  s_->message_open = true;
  s_->open_opcode = train.opcode;
  s_->open_rkey = train.rkey;
  s_->open_addr = train.remote_addr;
  s_->open_length = train.message_length;
  s_->open_offset = 0;
  return true;
}

bool Responder::WriteAllowed(const Train& train) {
  if (train.message_length == 0)
    return true;  // IBTA 9.7.4.1.3: no key is looked at for an empty WRITE
  const MemoryRegion* region = env_->FindRegion(s_->open_rkey);
  return region != nullptr &&
         region->Allows(s_->open_rkey, s_->pd, s_->open_addr, s_->open_length, kAccessRemoteWrite);
}

bool Responder::WritePayload(const Train& train, uint32_t bytes) {
  if (bytes == 0 || s_->unwritten) return true;
  const MemoryRegion* region = env_->FindRegion(s_->open_rkey);
  if (region == nullptr) return false;
  return env_->CopyIn(region->ToVa(s_->open_addr + train.offset), payload_skip_, bytes);
}

Response Responder::ExecuteWrite(const Train& train) {
  if (!OpenMessage(train) || !Enabled(kAccessRemoteWrite)) {
    return Nak(ResponseKind::kNakInvalidRequest, train);
  }
  if (!WriteAllowed(train)) return Nak(ResponseKind::kNakRemoteAccess, train);
  // A WRITE with immediate needs a receive, but only for its last packet.
  const bool lacks_receive = train.opcode == Opcode::kWriteImm && train.last && ring_.Empty();
  const uint32_t executed = lacks_receive ? train.count - 1 : train.count;
  const uint32_t bytes = lacks_receive ? executed * train.mtu : train.length;
  if (!WritePayload(train, bytes)) return Nak(ResponseKind::kNakRemoteAccess, train);
  s_->open_offset += bytes;
  s_->expected_psn = PsnAdd(s_->expected_psn, executed);
  if (lacks_receive) {
    if (executed == 0 && train.first)
      s_->message_open = false;  // it will come again from its beginning
    return NotReady();
  }
  if (train.last) {
    s_->message_open = false;
    if (train.opcode == Opcode::kWriteImm && !ReportReceive(train, WcOpcode::kRecvWriteImm)) {
      return Reply(ResponseKind::kNakRemoteOperational, PsnAdd(s_->expected_psn, kPsnMask));
    }
  }
  return Ack(PsnAdd(s_->expected_psn, kPsnMask));
}

WcStatus Responder::Scatter(const Train& train, const RecvWqe& wqe) {
  if (uint64_t{train.offset} + train.length > RoomIn(wqe)) return WcStatus::kLocLenErr;
  uint32_t skip = train.offset;
  uint32_t done = 0;
  for (uint32_t i = 0; i < wqe.sge_count && done < train.length; ++i) {
    const Sge& sge = wqe.sges()[i];
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const uint32_t n = std::min(sge.length - skip, train.length - done);
    const MemoryRegion* region = env_->FindRegion(sge.lkey);
    if (region == nullptr ||
        !region->Allows(sge.lkey, s_->pd, sge.addr, sge.length, kAccessLocalWrite)) {
      return WcStatus::kLocProtErr;
    }
    const bool writes = !s_->unwritten;
    if (writes && !env_->CopyIn(region->ToVa(sge.addr) + skip, payload_skip_ + done, n))
      return WcStatus::kLocProtErr;
    done += n;
    skip = 0;
  }
  return WcStatus::kSuccess;
}

Response Responder::ExecuteSend(const Train& train) {
  if (ring_.Empty()) {
    return NotReady();
  }
  if (!OpenMessage(train)) return Nak(ResponseKind::kNakInvalidRequest, train);
  const WcStatus status = Scatter(train, *ring_.Front());
  if (status == WcStatus::kLocLenErr)
    return FailReceive(status, ResponseKind::kNakInvalidRequest, train);
  if (status != WcStatus::kSuccess)
    return FailReceive(status, ResponseKind::kNakRemoteOperational, train);
  s_->open_offset += train.length;
  s_->expected_psn = PsnAdd(s_->expected_psn, train.count);
  if (train.last) {
    s_->message_open = false;
    if (!ReportReceive(train, WcOpcode::kRecv)) {
      return Reply(ResponseKind::kNakRemoteOperational, PsnAdd(s_->expected_psn, kPsnMask));
    }
  }
  return Ack(PsnAdd(s_->expected_psn, kPsnMask));
}

Response Responder::ExecuteRead(const Train& train) {
  if (s_->message_open || !Enabled(kAccessRemoteRead)) {
    return Nak(ResponseKind::kNakInvalidRequest, train);
  }
  uint64_t va = 0;
  if (train.length != 0) {
    const MemoryRegion* region = env_->FindRegion(train.rkey);
    const uint64_t addr = train.remote_addr + train.offset;
    if (region == nullptr ||
        !region->Allows(train.rkey, s_->pd, addr, train.length, kAccessRemoteRead)) {
      return Nak(ResponseKind::kNakRemoteAccess, train);
    }
    va = region->ToVa(addr);
  }
  Response r = Reply(ResponseKind::kReadData, train.psn);
  r.mtu = train.mtu;  // the count is in such packets, whatever this end's path MTU is
  r.count = PacketCount(train.length, train.mtu);
  r.length = train.length;
  r.remote_addr = va;
  s_->expected_psn = PsnAdd(s_->expected_psn, r.count);
  return r;
}

Response Responder::ExecuteAtomic(const Train& train) {
  if (s_->message_open || !Enabled(kAccessRemoteAtomic) || train.remote_addr % 8 != 0) {
    return Nak(ResponseKind::kNakInvalidRequest, train);
  }
  const MemoryRegion* region = env_->FindRegion(train.rkey);
  if (region == nullptr ||
      !region->Allows(train.rkey, s_->pd, train.remote_addr, 8, kAccessRemoteAtomic)) {
    return Nak(ResponseKind::kNakRemoteAccess, train);
  }
  Response r = Reply(ResponseKind::kAtomicResult, train.psn);
  if (!env_->Atomic(train, region->ToVa(train.remote_addr), &r.atomic_original)) {
    return Nak(ResponseKind::kNakRemoteAccess, train);
  }
  auto& replay = s_->replays[s_->atomic_next++ % kAtomicReplays];
  replay = {train.psn, 1, r.atomic_original};
  s_->expected_psn = PsnAdd(s_->expected_psn, 1);
  return r;
}

bool Responder::ReportReceive(const Train& train, WcOpcode opcode) {
  if (s_->unwritten) {  // the completion is bytes in memory, too
    ring_.Pop();
    return true;
  }
  const RecvWqe& wqe = *ring_.Front();
  Completion c;
  c.wr_id = wqe.wr_id;
  c.opcode = opcode;
  c.byte_len = train.message_length;
  c.with_imm = train.opcode == Opcode::kSendImm || train.opcode == Opcode::kWriteImm;
  c.imm_data = c.with_imm ? train.imm_data : 0;
  c.solicited = train.solicited;
  c.qp_num = s_->qpn;
  c.src_qp = train.src_qpn;
  if (!env_->CompleteReceive(c, ReceiveToken(s_->qpn, ring_.head()))) {
    EnterError(AsyncEvent::kQpFatal);
    return false;
  }
  ring_.Pop();
  return true;
}

void Responder::FailFront(WcStatus status, uint32_t vendor_err) {
  if (!ring_.Empty()) {
    Completion c;
    c.wr_id = ring_.Front()->wr_id;
    c.status = status;
    c.vendor_err = vendor_err;
    c.opcode = WcOpcode::kRecv;
    c.qp_num = s_->qpn;
    (void)env_->CompleteReceive(c, ReceiveToken(s_->qpn, ring_.head()));
    ring_.Pop();
  }
  EnterError(AsyncEvent::kCommEst);
}

Response Responder::FailReceive(WcStatus status, ResponseKind kind, const Train& train) {
  FailFront(status, 0);
  return Reply(kind, train.psn);
}

Response Responder::Nak(ResponseKind kind, const Train& train) {
  EnterError(kind == ResponseKind::kNakInvalidRequest ? AsyncEvent::kQpReqErr
                                                      : AsyncEvent::kQpAccessErr);
  return Reply(kind, train.psn);
}

Response Responder::OnUcTrain(Train train) {
  s_->unwritten |= train.unwritten;
  // No answers: a gap costs the message it hits, and the next message starts afresh (IBTA 9.8.2.2).
  if (train.first) {
    s_->message_open = false;
  } else if (train.psn != s_->expected_psn || !ContinuesMessage(train)) {
    s_->message_open = false;
    return {};
  }
  s_->expected_psn = PsnAdd(train.psn, train.count);
  if (!OpenMessage(train)) return {};
  const bool needs_receive = ConsumesReceive(train.opcode) && (train.last || IsSend(train.opcode));
  if (needs_receive && ring_.Empty()) {
    s_->message_open = false;
    return {};
  }
  if (IsSend(train.opcode)) {
    const WcStatus status = Scatter(train, *ring_.Front());
    if (status != WcStatus::kSuccess) {
      (void)FailReceive(status, ResponseKind::kNone, train);
      return {};
    }
  } else if (!IsWrite(train.opcode) || !Enabled(kAccessRemoteWrite) || !WriteAllowed(train) ||
             !WritePayload(train, train.length)) {
    s_->message_open = false;
    return {};
  }
  s_->open_offset += train.length;
  if (!train.last) return {};
  s_->message_open = false;
  if (ConsumesReceive(train.opcode)) {
    (void)ReportReceive(train, IsSend(train.opcode) ? WcOpcode::kRecv : WcOpcode::kRecvWriteImm);
  }
  return {};
}

void Responder::EnterError(AsyncEvent event) {
  s_->state.store(static_cast<uint8_t>(QpState::kErr), std::memory_order_release);
  s_->message_open = false;
  FlushReceives();
  if (event != AsyncEvent::kCommEst) env_->RaiseEvent(event);
  env_->EnteredError();
}

void Responder::FlushReceives() {
  // Pairs with the fence of an owner that posts a receive and then looks at the state: either it
  // finds the state ERR, or this finds the receive.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  while (!ring_.Empty()) {
    Completion c;
    c.wr_id = ring_.Front()->wr_id;
    c.status = WcStatus::kWrFlushErr;
    c.opcode = WcOpcode::kRecv;
    c.qp_num = s_->qpn;
    if (!env_->CompleteReceive(c, ReceiveToken(s_->qpn, ring_.head()))) return;
    ring_.Pop();
  }
}

void Responder::Recover() {
  // Whoever died was a requester or the owner. All stores but one are idempotent for a sender that
  // is gone; the exception is a receive that was reported and not yet taken off its queue.
  if (!ring_.Empty() && env_->ReceiveReported(ReceiveToken(s_->qpn, ring_.head()))) ring_.Pop();
  if (static_cast<QpState>(s_->state.load(std::memory_order_acquire)) == QpState::kErr)
    FlushReceives();
}

}  // namespace railhop::rdma
