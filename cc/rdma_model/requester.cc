#include "cc/rdma_model/requester.h"

#include <algorithm>

namespace railhop::rdma {
namespace {

// Requests are cut so that packet numbers under way stay far below half of the number space.
constexpr uint32_t kMaxOutstandingPackets = 1u << 20;

WcOpcode CompletionOpcode(Opcode op) {
  switch (op) {
    case Opcode::kWrite:
    case Opcode::kWriteImm:
      return WcOpcode::kWrite;
    case Opcode::kSend:
    case Opcode::kSendImm:
      return WcOpcode::kSend;
    case Opcode::kRead:
      return WcOpcode::kRead;
    case Opcode::kCompareSwap:
      return WcOpcode::kCompareSwap;
    case Opcode::kFetchAdd:
      return WcOpcode::kFetchAdd;
  }
  return WcOpcode::kSend;
}

bool IsAtomic(Opcode op) { return op == Opcode::kCompareSwap || op == Opcode::kFetchAdd; }

}  // namespace

void Requester::Allocate(uint32_t depth, uint32_t max_inline) {
  ring_.assign(std::max(depth, 1u), SendWqe());
  max_inline_ = max_inline;
  inline_ =
      max_inline == 0 ? nullptr : std::make_unique<uint8_t[]>(size_t{max_inline} * ring_.size());
  Reset();
}

void Requester::Reset() {
  head_ = tail_ = cursor_ = 0;
  cursor_packet_ = acked_in_head_ = 0;
  retries_ = rnr_retries_ = 0;
  timer_ns_ = rnr_until_ns_ = 0;
  drain_reported_ = implied_nak_ = false;
  state_ = QpState::kReset;
}

void Requester::SetNextPsn(uint32_t psn) {
  next_psn_ = psn & kPsnMask;
  sent_end_psn_ = next_psn_;
}

SendWqe* Requester::Reserve() { return tail_ - head_ >= ring_.size() ? nullptr : &At(tail_); }

uint8_t* Requester::InlineBuffer(const SendWqe* wqe) {
  return inline_.get() + static_cast<size_t>(wqe - ring_.data()) * max_inline_;
}

void Requester::Commit() {
  SendWqe& wqe = At(tail_);
  wqe.signaled = config_.signal_all || (wqe.flags & kSendSignaled) != 0;
  wqe.read_like = wqe.opcode == Opcode::kRead || IsAtomic(wqe.opcode);
  wqe.first_psn = next_psn_;
  wqe.psns = IsAtomic(wqe.opcode) ? 1 : PacketCount(wqe.length, config_.mtu);
  wqe.answered = wqe.sent_before = 0;
  wqe.message_id = next_message_++;
  next_psn_ = PsnAdd(next_psn_, wqe.psns);
  ++tail_;
}

void Requester::TakeBack(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    --tail_;
    --next_message_;
    next_psn_ = At(tail_).first_psn;
  }
}

void Requester::DelayTimer(uint64_t departure_ns) {
  const uint64_t timeout = AckTimeoutNs(config_.timeout);
  if (timer_ns_ != 0) timer_ns_ = std::max(timer_ns_, departure_ns + Scaled(timeout));
}

void Requester::SetState(QpState state) {
  if (state_ == QpState::kSqd && state == QpState::kRts) drain_reported_ = false;
  state_ = state;
  if (state == QpState::kErr) Flush();
  if (state == QpState::kSqd) CheckDrained();
}

uint32_t Requester::ReadsUnderWay() const {
  uint32_t reads = 0;
  for (uint64_t i = head_; i < cursor_; ++i) reads += At(i).read_like ? 1 : 0;
  return reads;
}

bool Requester::CursorAt(uint32_t psn) const {
  return cursor_ < tail_ && PsnAdd(At(cursor_).first_psn, cursor_packet_) == psn;
}

bool Requester::MayStart(const SendWqe& wqe) const {
  if (state_ == QpState::kSqd) return false;  // what has begun goes on, nothing new begins
  const bool fence = (wqe.flags & kSendFence) != 0;
  if (!fence && !wqe.read_like) return true;
  const uint32_t reads = ReadsUnderWay();
  if (fence && reads > 0) return false;
  return !wqe.read_like || reads < std::max(config_.max_rd_atomic, 1u);
}

uint32_t Requester::OldestPsn() const { return PsnAdd(At(head_).first_psn, acked_in_head_); }

uint32_t Requester::Outstanding() const {
  if (head_ == tail_) return 0;
  const uint32_t next = cursor_ < tail_ ? PsnAdd(At(cursor_).first_psn, cursor_packet_) : next_psn_;
  return static_cast<uint32_t>(std::max(PsnDiff(next, OldestPsn()), 0));
}

bool Requester::NextTrain(uint64_t now_ns, uint32_t max_packets, Train* train) {
  if ((state_ != QpState::kRts && state_ != QpState::kSqd) || cursor_ >= tail_) return false;
  if (rnr_until_ns_ != 0) {
    if (now_ns < rnr_until_ns_) return false;
    rnr_until_ns_ = 0;
  }
  if (Outstanding() >= kMaxOutstandingPackets) return false;
  SendWqe& wqe = At(cursor_);
  if (cursor_packet_ == 0 && wqe.sent_before == 0 && !MayStart(wqe)) return false;
  const bool inline_data = (wqe.flags & kSendInline) != 0;
  const bool local_ok =
      inline_data || env_->LocalAccessAllowed(wqe.sges, wqe.sge_count, wqe.read_like);
  if (!local_ok) {
    // What was sent before must end first; then this one fails.
    if (cursor_ == head_) Fail(WcStatus::kLocProtErr);
    return false;
  }
  *train = MakeTrain(wqe, max_packets);
  if (timer_ns_ == 0) ArmTimer(now_ns);
  return true;
}

Train Requester::MakeTrain(SendWqe& wqe, uint32_t max_packets) {
  Train t;
  t.src_qpn = config_.qpn;
  t.dst_qpn = config_.dest_qpn;
  t.type = config_.type;
  t.opcode = wqe.opcode;
  t.mtu = config_.mtu;
  t.psn = PsnAdd(wqe.first_psn, cursor_packet_);
  t.message_length = wqe.length;
  t.message_id = wqe.message_id;
  t.remote_addr = wqe.remote_addr;
  t.rkey = wqe.rkey;
  t.imm_data = wqe.imm_data;
  t.compare_add = wqe.compare_add;
  t.swap = wqe.swap;
  t.solicited = (wqe.flags & kSendSolicited) != 0;
  t.retransmitted = cursor_packet_ < wqe.sent_before;
  t.first = cursor_packet_ == 0;
  uint32_t psns = wqe.psns - cursor_packet_;
  if (wqe.read_like) {
    t.offset = IsAtomic(wqe.opcode) ? 0 : cursor_packet_ * config_.mtu;
    t.length = wqe.length - t.offset;
    t.first = t.last = true;
    t.count = 1;
  } else {
    psns = std::min(psns, std::max(max_packets, 1u));
    t.count = psns;
    t.offset = cursor_packet_ * config_.mtu;
    t.last = cursor_packet_ + psns == wqe.psns;
    t.length = t.last ? wqe.length - t.offset : psns * config_.mtu;
  }
  if (t.retransmitted) retransmitted_ += t.count;
  cursor_packet_ += psns;
  wqe.sent_before = std::max(wqe.sent_before, cursor_packet_);
  const uint32_t end = PsnAdd(wqe.first_psn, cursor_packet_);
  if (PsnDiff(end, sent_end_psn_) > 0) sent_end_psn_ = end;
  if (cursor_packet_ == wqe.psns) {
    ++cursor_;
    cursor_packet_ = 0;
  }
  return t;
}

const SendWqe* Requester::WqeOf(const Train& train) const {
  if (head_ == tail_) return nullptr;
  const uint64_t behind_head = train.message_id - At(head_).message_id;  // ids have no gaps
  return behind_head < tail_ - head_ ? &At(head_ + behind_head) : nullptr;
}

void Requester::AfterSend(const Train& train) {
  if (config_.type != QpType::kUc) return;
  timer_ns_ = 0;
  // Flushed while it was on its way out: there is nothing left to complete.
  if (!train.last || head_ == tail_ || At(head_).message_id != train.message_id) return;
  // Nobody acknowledges: a request is done when it has been sent.
  RetireHead();
  CheckDrained();
}

void Requester::ArmTimer(uint64_t now_ns) {
  const uint64_t timeout = AckTimeoutNs(config_.timeout);
  timer_ns_ = timeout == 0 || config_.type == QpType::kUc ? 0 : now_ns + Scaled(timeout);
}

void Requester::Progress(uint64_t now_ns) {
  retries_ = 0;
  rnr_retries_ = 0;
  implied_nak_ = false;
  timer_ns_ = 0;
  if (HasUnacked()) ArmTimer(now_ns);
  CheckDrained();
}

void Requester::RetireHead() {
  SendWqe& wqe = At(head_);
  if (wqe.signaled) Report(wqe, WcStatus::kSuccess, 0);
  if (cursor_ == head_) {  // can happen only when a late acknowledgement overtakes a retransmission
    ++cursor_;
    cursor_packet_ = 0;
  }
  ++head_;
  acked_in_head_ = 0;
}

// Retires all requests that end before `psn`. False: a READ or atomic among them still lacks its
// answer, which was therefore lost; it is asked for again.
bool Requester::RetireBefore(uint32_t psn, uint64_t now_ns) {
  bool moved = false;
  while (head_ < tail_) {
    const SendWqe& wqe = At(head_);
    if (PsnDiff(psn, PsnAdd(wqe.first_psn, wqe.psns)) < 0) break;
    if (wqe.read_like && wqe.answered < wqe.psns) {
      if (moved) Progress(now_ns);
      ImpliedNak(now_ns);
      return false;
    }
    RetireHead();
    moved = true;
  }
  if (head_ < tail_ && !At(head_).read_like) {
    const int32_t within = PsnDiff(psn, At(head_).first_psn);
    if (within > static_cast<int32_t>(acked_in_head_)) {
      acked_in_head_ = static_cast<uint32_t>(within);
      moved = true;
      if (cursor_ == head_ && cursor_packet_ < acked_in_head_) cursor_packet_ = acked_in_head_;
    }
  }
  if (moved) Progress(now_ns);
  return true;
}

void Requester::Acknowledge(uint32_t psn, uint64_t now_ns) {
  (void)RetireBefore(PsnAdd(psn, 1), now_ns);
}

void Requester::OnResponse(const Response& response, uint64_t now_ns) {
  if (response.kind == ResponseKind::kNone || head_ == tail_ || config_.type == QpType::kUc) return;
  if (state_ != QpState::kRts && state_ != QpState::kSqd) return;
  // Nothing outside what was sent and not yet acknowledged means anything: it is late or forged.
  const int32_t from_oldest = PsnDiff(response.psn, OldestPsn());
  if (from_oldest < 0 || PsnDiff(response.psn, sent_end_psn_) >= 0) return;
  switch (response.kind) {
    case ResponseKind::kAck:
      return Acknowledge(response.psn, now_ns);
    case ResponseKind::kReadData:
      return OnReadData(response, now_ns);
    case ResponseKind::kAtomicResult:
      return OnAtomicResult(response, now_ns);
    case ResponseKind::kNakSequence:
      // Refused twice and not yet sent again (the refusal was doubled): once is enough.
      if (!RetireBefore(response.psn, now_ns) || CursorAt(response.psn)) return;
      return Retry(response.psn, now_ns);
    case ResponseKind::kRnrNak:
      if (!RetireBefore(response.psn, now_ns) || CursorAt(response.psn)) return;
      if (config_.rnr_retry != kRetryForever && rnr_retries_++ >= config_.rnr_retry) {
        return Fail(WcStatus::kRnrRetryExcErr);
      }
      GoBackTo(response.psn);
      timer_ns_ = 0;
      rnr_until_ns_ = now_ns + Scaled(RnrTimerNs(response.rnr_timer));
      return;
    case ResponseKind::kNakInvalidRequest:
      if (RetireBefore(response.psn, now_ns)) Fail(WcStatus::kRemInvReqErr);
      return;
    case ResponseKind::kNakRemoteAccess:
      if (RetireBefore(response.psn, now_ns)) Fail(WcStatus::kRemAccessErr);
      return;
    case ResponseKind::kNakRemoteOperational:
      if (RetireBefore(response.psn, now_ns)) Fail(WcStatus::kRemOpErr);
      return;
    case ResponseKind::kNone:
      return;
  }
}

void Requester::OnReadData(const Response& response, uint64_t now_ns) {
  // An answer acknowledges what was asked before it.
  for (uint64_t i = head_; i < tail_; ++i) {
    const int32_t within = PsnDiff(response.psn, At(i).first_psn);
    if (within < 0 || within >= static_cast<int32_t>(At(i).psns)) continue;
    if (!At(i).read_like || IsAtomic(At(i).opcode)) return;
    if (i != head_ && !RetireBefore(At(i).first_psn, now_ns)) return;
    SendWqe& wqe = At(i);
    if (static_cast<uint32_t>(within) < wqe.answered) return;  // repeated
    if (static_cast<uint32_t>(within) > wqe.answered)
      return ImpliedNak(now_ns);  // a packet is missing
    const uint32_t offset = wqe.answered * config_.mtu;
    if (response.length != 0 &&
        !env_->CopyReadData(wqe, offset, response.remote_addr, response.length)) {
      if (env_->ReadDataLost()) return;  // the timer tells
      return Fail(WcStatus::kLocProtErr);
    }
    wqe.answered += response.count;
    acked_in_head_ = wqe.answered;
    if (cursor_ == i && cursor_packet_ < wqe.answered) cursor_packet_ = wqe.answered;
    if (wqe.answered >= wqe.psns) RetireHead();
    return Progress(now_ns);
  }
}

void Requester::OnAtomicResult(const Response& response, uint64_t now_ns) {
  for (uint64_t i = head_; i < tail_; ++i) {
    if (At(i).first_psn != response.psn) continue;
    if (!IsAtomic(At(i).opcode)) return;
    if (i != head_ && !RetireBefore(At(i).first_psn, now_ns)) return;
    if (!env_->StoreAtomicResult(At(i), response.atomic_original))
      return Fail(WcStatus::kLocProtErr);
    At(i).answered = 1;
    RetireHead();
    return Progress(now_ns);
  }
}

void Requester::GoBackTo(uint32_t psn) {
  for (uint64_t i = head_; i < tail_; ++i) {
    const int32_t within = PsnDiff(psn, At(i).first_psn);
    if (within < 0 || within >= static_cast<int32_t>(At(i).psns)) continue;
    cursor_ = i;
    cursor_packet_ = static_cast<uint32_t>(within);
    return;
  }
}

void Requester::Retry(uint32_t psn, uint64_t now_ns) {
  if (!NeverGivesUp() && retries_ >= config_.retry_cnt) return Fail(WcStatus::kRetryExcErr);
  ++retries_;
  GoBackTo(psn);
  ArmTimer(now_ns);
}

// An answer shows that an earlier one is missing. All answers behind the gap show the same, so only
// the first of them goes back and costs a retry; if the repetition is lost too, the timer notices.
void Requester::ImpliedNak(uint64_t now_ns) {
  if (implied_nak_) return;
  implied_nak_ = true;
  Retry(OldestPsn(), now_ns);
}

uint64_t Requester::deadline_ns() const {
  if (rnr_until_ns_ != 0) return rnr_until_ns_;
  return timer_ns_;
}

void Requester::OnDeadline(uint64_t now_ns) {
  if (rnr_until_ns_ != 0) {
    if (now_ns >= rnr_until_ns_) rnr_until_ns_ = 0;
    return;
  }
  if (timer_ns_ == 0 || now_ns < timer_ns_) return;
  timer_ns_ = 0;
  if (!HasUnacked()) return;
  ++timeouts_;
  implied_nak_ = false;
  Retry(OldestPsn(), now_ns);
}

void Requester::Report(const SendWqe& wqe, WcStatus status, uint32_t vendor_err) {
  Completion c;
  c.wr_id = wqe.wr_id;
  c.status = status;
  c.opcode = CompletionOpcode(wqe.opcode);
  c.vendor_err = vendor_err;
  c.byte_len = wqe.read_like ? wqe.length : 0;
  c.qp_num = config_.qpn;
  env_->CompleteSend(c);
}

void Requester::Fail(WcStatus status, uint32_t vendor_err) {
  state_ = QpState::kErr;
  if (head_ < tail_) {
    Report(At(head_), status, vendor_err);
    if (cursor_ == head_) ++cursor_;
    ++head_;
  }
  Flush();
  env_->SendFailed(status);
}

void Requester::Flush() {
  while (head_ < tail_) Report(At(head_++), WcStatus::kWrFlushErr, 0);
  cursor_ = head_;
  cursor_packet_ = acked_in_head_ = 0;
  timer_ns_ = rnr_until_ns_ = 0;
}

void Requester::CheckDrained() {
  // A request that was started and went back to its first packet is not drained either.
  const bool started = head_ < tail_ && At(head_).sent_before > 0;
  if (state_ != QpState::kSqd || drain_reported_ || started) return;
  drain_reported_ = true;
  env_->SendQueueDrained();
}

}  // namespace railhop::rdma
