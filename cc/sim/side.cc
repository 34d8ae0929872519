#include "cc/sim/side.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace railhop::sim {
namespace {

using rdma::Opcode;
using rdma::WcStatus;

constexpr uint64_t kReceiveId = uint64_t{1} << 40;  // wr_id of slot 0
constexpr uint32_t kAllAccess = 15;

const char* NameOf(Opcode opcode) {
  static constexpr const char* kNames[] = {"WRITE", "WRITE_IMM", "SEND",     "SEND_IMM",
                                           "READ",  "CMP_SWAP",  "FETCH_ADD"};
  return kNames[static_cast<int>(opcode)];
}

rdma::WcOpcode ReportedAs(Opcode opcode) {
  switch (opcode) {
    case Opcode::kWrite:
    case Opcode::kWriteImm:
      return rdma::WcOpcode::kWrite;
    case Opcode::kRead:
      return rdma::WcOpcode::kRead;
    case Opcode::kCompareSwap:
      return rdma::WcOpcode::kCompareSwap;
    case Opcode::kFetchAdd:
      return rdma::WcOpcode::kFetchAdd;
    default:
      return rdma::WcOpcode::kSend;
  }
}

std::string Number(WcStatus status) { return std::to_string(static_cast<int>(status)); }

}  // namespace

Side::Side(World* world, Memory* memory, const SidePlan& plan, std::string name,
           Violations* violations)
    : world_(world),
      memory_(memory),
      plan_(plan),
      name_(std::move(name)),
      violations_(violations),
      prng_(plan.seed) {}

// ---- making

bool Side::Open(Nic* nic, const EndpointOptions& options) {
  if (!endpoint_.Open(world_, nic, options)) return false;
  endpoint_.send_cq->set_listener(this);
  endpoint_.recv_cq->set_listener(this);
  counters_ = memory_->Allocate(16);
  std::fill_n(counters_.data(), 16, uint8_t{0});
  return Register(counters_, kAllAccess, &counters_key_);
}

bool Side::Register(const Buffer& buffer, uint32_t access, uint32_t* key) {
  if (buffer.size() == 0) return true;
  return endpoint_.context->RegMr(endpoint_.pd, buffer.data(), buffer.size(), buffer.addr(), access,
                                  key) == 0;
}

bool Side::MakeTransfers() {
  transfers_.resize(plan_.transfers.size());
  for (uint32_t i = 0; i < transfers_.size(); ++i) {
    transfers_[i].plan = plan_.transfers[i];
    transfers_[i].id = i;
    if (!MakeTransfer(&transfers_[i])) return false;
    if (transfers_[i].Consumes()) peer_->peer_consuming_.push_back(i);
  }
  return true;
}

Transfer* Side::RelayedBy(const Transfer& t) {
  if (!t.plan.relay || t.id == 0) return nullptr;
  Transfer* read = &transfers_[t.id - 1];
  return read->state == Transfer::State::kFailed ? nullptr : read;
}

bool Side::MakeTransfer(Transfer* t) {
  const bool read = t->plan.opcode == Opcode::kRead;
  const Transfer* relayed = RelayedBy(*t);
  t->pattern = relayed != nullptr ? relayed->pattern : NewPattern();
  Buffer local;
  uint32_t local_key = 0;
  if (relayed != nullptr) {
    local = relayed->target;
    local_key = relayed->target_key;
  } else {
    local = memory_->Allocate(t->plan.length, t->plan.misalign);
    if (!Register(local, rdma::kAccessLocalWrite, &local_key)) return false;
  }
  Buffer remote;
  uint32_t remote_key = 0;
  if (t->IsWrite() || read) {
    remote = memory_->Allocate(t->plan.length, t->plan.misalign / 2);
    if (!peer_->Register(remote, kAllAccess, &remote_key)) return false;
  }
  t->source = read ? remote : local;
  t->source_key = read ? remote_key : local_key;
  t->target = read || t->IsAtomic() ? local : remote;
  t->target_key = read || t->IsAtomic() ? local_key : remote_key;
  if (!t->IsAtomic() && relayed == nullptr) t->source.Fill(t->pattern);
  return true;
}

void Side::Start() {
  ++incarnation_;
  running_ = true;
  broken_ = fencing_ = saw_error_ = false;
  drained_until_ns_ = 0;
  consuming_.clear();
  // What the next atomics will find at the peer, since all that came before has ended.
  const auto* counters = reinterpret_cast<const uint64_t*>(peer_->counters_.data());
  adds_ = counters[0];
  swaps_ = counters[1];
  next_receive_ = 0;
  while (next_receive_ < peer_consuming_.size() && peer_consuming_[next_receive_] < peer_->next_) {
    ++next_receive_;
  }
  Wake(world_->loop().now_ns() + prng_.Below(plan_.pause_ns + 1));
}

bool Side::Renew(const EndpointOptions& options) {
  if (!endpoint_.qp->retired() && endpoint_.context->DestroyQp(endpoint_.qp) != 0) return false;
  return endpoint_.MakeQp(options);
}

// ---- the program's turn

void Side::Wake(uint64_t when_ns) {
  if (wake_ns_ != 0 && wake_ns_ <= when_ns) return;
  wake_ns_ = when_ns;
  world_->loop().At(when_ns, this);
}

void Side::OnCompletion(Cq*, bool) {
  if (running_) Wake(world_->loop().now_ns() + 1 + prng_.Below(plan_.poll_delay_ns));
}

void Side::OnEvent(uint64_t) {
  if (wake_ns_ > world_->loop().now_ns()) return;  // an earlier turn took its place
  wake_ns_ = 0;
  if (!running_ || dead()) return;
  if (in_turn_) {  // a call that hangs runs the loop: this turn comes when it is back
    turn_missed_ = true;
    return;
  }
  in_turn_ = true;
  Poll();
  if (!broken_) PostReceives();
  if (!broken_) PostSends();
  if (!broken_) DrainForAWhile();
  in_turn_ = false;
  if (turn_missed_) Wake(world_->loop().now_ns() + 1);
  turn_missed_ = false;
}

void Side::Poll() {
  rdma::Completion got[8];
  for (Cq* cq : {endpoint_.recv_cq, endpoint_.send_cq}) {
    int n = 0;
    while ((n = endpoint_.context->PollCq(cq, 8, got)) > 0) {
      for (int i = 0; i < n; ++i) {
        if (cq == endpoint_.recv_cq) {
          OnReceived(got[i]);
        } else {
          OnSent(got[i]);
        }
      }
    }
    if (n < 0 || cq->broken()) {
      receives_unknown_ = true;
      Break();
    }
  }
}

void Side::Break() {
  if (broken_) return;
  broken_ = true;
  if (!fencing_) world_->loop().At(world_->loop().now_ns(), control_);
}

// SQD and back: what has begun ends, the rest waits.
void Side::DrainForAWhile() {
  const uint64_t now = world_->loop().now_ns();
  Context* context = endpoint_.context;
  if (drained_until_ns_ == 0) {
    if (!prng_.Chance(plan_.drains) || endpoint_.qp->state() != rdma::QpState::kRts) return;
    rdma::QpAttributes attributes;
    attributes.sqd_notify = true;
    const uint32_t mask = rdma::kAttrState | rdma::kAttrEnSqdNotify;
    if (context->ModifyQp(endpoint_.qp, mask, rdma::QpState::kSqd, attributes) != 0) return;
    drained_until_ns_ = world_->loop().now_ns() + 1 + prng_.Below(200'000);
  } else if (now >= drained_until_ns_) {
    const bool back =
        context->ModifyQp(endpoint_.qp, rdma::kAttrState, rdma::QpState::kRts, {}) == 0;
    drained_until_ns_ = back || endpoint_.qp->state() != rdma::QpState::kSqd ? 0 : now + 10'000;
  }
  if (drained_until_ns_ != 0) Wake(drained_until_ns_);
}

void Side::PostReceives() {
  bool wanted = false;
  const bool late = prng_.Chance(plan_.late_receives);
  while (next_receive_ < peer_consuming_.size() && receives_.size() < plan_.receives_ahead) {
    wanted = true;
    if (late) break;
    const Transfer& expected = peer_->transfers_[peer_consuming_[next_receive_]];
    uint32_t room = expected.plan.opcode == Opcode::kWriteImm ? 0 : expected.plan.length;
    if (!reliable()) {  // any of them may come
      for (const uint32_t id : peer_consuming_) {
        room = std::max(room, peer_->transfers_[id].plan.length);
      }
    }
    ReceiveSlot slot;
    slot.buffer = memory_->Allocate(room, prng_.Below(8));
    if (!Register(slot.buffer, rdma::kAccessLocalWrite, &slot.key)) return Break();
    rdma::Sge sges[2] = {{slot.buffer.addr(), room, slot.key}, {}};
    uint32_t count = room == 0 ? 0 : 1;
    if (room > 1 && prng_.Chance(0.3)) {
      sges[0].length = 1 + static_cast<uint32_t>(prng_.Below(room - 1));
      sges[1] = {slot.buffer.addr() + sges[0].length, room - sges[0].length, slot.key};
      count = 2;
    }
    const auto index = static_cast<uint32_t>(slots_.size());
    slots_.push_back(slot);
    receives_.push_back(index);  // before the call: a queue pair in ERR flushes at once
    const int rc = endpoint_.context->PostReceive(endpoint_.qp, kReceiveId + index, sges, count);
    if (rc != 0) {
      receives_.pop_back();
      return Break();
    }
    ++next_receive_;
  }
  if (wanted) Wake(world_->loop().now_ns() + 1 + prng_.Below(2 * plan_.pause_ns));
}

void Side::PostSends() {
  for (uint32_t i = 0; i < plan_.burst && next_ < transfers_.size(); ++i) {
    if (posted_.size() >= plan_.send_depth) return;  // a completion wakes us
    if (!PostOne(next_)) return Break();
  }
  if (next_ < transfers_.size()) {
    Wake(world_->loop().now_ns() + 1 + prng_.Below(2 * plan_.pause_ns));
  }
}

bool Side::PostOne(uint32_t index) {
  Transfer& t = transfers_[index];
  if (t.plan.relay && RelayedBy(t) == nullptr) {  // the READ failed: the program fills in itself
    transfers_[index - 1].after = 0;
    t.source.Fill(t.pattern);
  }
  const bool local_target = t.plan.opcode == Opcode::kRead || t.IsAtomic();
  const Buffer& local = local_target ? t.target : t.source;
  const uint32_t local_key = local_target ? t.target_key : t.source_key;
  std::vector<rdma::Sge> sges;
  uint32_t at = 0;
  for (uint8_t piece = 1; piece <= t.plan.pieces && at < t.plan.length; ++piece) {
    const uint32_t end =
        piece == t.plan.pieces ? t.plan.length : t.plan.length * piece / t.plan.pieces;
    if (end > at) sges.push_back({local.addr() + at, end - at, local_key});
    at = end;
  }
  SendRequest request;
  request.wr_id = index;
  request.opcode = t.plan.opcode;
  request.flags = 0;
  if (t.plan.signaled) request.flags |= rdma::kSendSignaled;
  if (t.plan.fence) request.flags |= rdma::kSendFence;
  if (t.plan.in_line) request.flags |= rdma::kSendInline;
  request.imm_data = index;
  request.remote_addr = t.plan.opcode == Opcode::kRead ? t.source.addr() : t.target.addr();
  request.rkey = t.plan.opcode == Opcode::kRead ? t.source_key : t.target_key;
  if (t.IsAtomic()) {
    const bool add = t.plan.opcode == Opcode::kFetchAdd;
    t.expected = add ? adds_++ : swaps_++;
    request.remote_addr = peer_->counters_.addr() + (add ? 0 : 8);
    request.rkey = peer_->counters_key_;
    request.compare_add = add ? 1 : t.expected;
    request.swap = t.expected + 1;
  }
  if (t.plan.bad_key) request.rkey ^= 0x5a;
  request.sges = sges.data();
  request.sge_count = static_cast<uint32_t>(sges.size());
  // Before the call: a queue pair in ERR reports at once.
  t.state = Transfer::State::kPosted;
  t.incarnation = incarnation_;
  posted_.push_back(index);
  if (t.Consumes()) consuming_.push_back(index);
  if (endpoint_.context->PostSend(endpoint_.qp, request) != 0) {
    posted_.pop_back();
    if (t.Consumes()) consuming_.pop_back();
    t.state = Transfer::State::kFailed;
    ++failed_;
    ++next_;
    return false;
  }
  ++next_;
  return true;
}

// ---- judging

void Side::Complain(const std::string& what) { violations_->Add(name_ + ": " + what); }

void Side::Complain(const Transfer& t, const std::string& what) {
  Complain(std::string(NameOf(t.plan.opcode)) + " " + std::to_string(t.id) + " of " +
           std::to_string(t.plan.length) + " bytes: " + what);
}

void Side::CheckHolds(const Transfer& t, const Buffer& buffer, const char* when) {
  const size_t wrong = buffer.FirstWrong(t.pattern, 0, t.plan.length);
  if (wrong != t.plan.length) Complain(t, "byte " + std::to_string(wrong) + " is wrong " + when);
}

void Side::OnSent(const rdma::Completion& c) {
  if (c.wr_id >= transfers_.size()) return Complain("a completion of a request that never was");
  Transfer& named = transfers_[c.wr_id];
  // Requests that report nothing have succeeded when a later one reports anything.
  while (!posted_.empty() && posted_.front() != c.wr_id &&
         !transfers_[posted_.front()].plan.signaled) {
    Transfer& silent = transfers_[posted_.front()];
    posted_.pop_front();
    if (saw_error_) {
      Complain(silent, "not reported although the queue pair was in error");
    } else {
      Succeed(&silent);
    }
  }
  if (posted_.empty() || posted_.front() != c.wr_id) {
    return Complain(named, "completed twice or out of order");
  }
  posted_.pop_front();
  if (c.status != WcStatus::kSuccess) return Fail(&named, c.status);
  if (saw_error_) Complain(named, "succeeded behind one that failed");
  if (!named.plan.signaled) Complain(named, "reported although not signaled");
  if (c.opcode != ReportedAs(named.plan.opcode)) Complain(named, "reported as another opcode");
  if (named.plan.opcode == Opcode::kRead && c.byte_len != named.plan.length) {
    Complain(named, "reported with " + std::to_string(c.byte_len) + " bytes");
  }
  Succeed(&named);
}

void Side::Succeed(Transfer* t) {
  t->state = Transfer::State::kDone;
  ++completed_;
  bytes_ += t->plan.length;
  if (t->plan.bad_key && reliable()) Complain(*t, "succeeded with a key that the peer never gave");
  if (t->IsAtomic()) return CheckAtomic(*t);
  if (reliable() && t->plan.opcode != Opcode::kSend && t->plan.opcode != Opcode::kSendImm &&
      t->after == 0) {
    CheckHolds(*t, t->target, "when it was reported complete");
    const bool passed_on = t->id + 1 < transfers_.size() && transfers_[t->id + 1].plan.relay;
    if (!passed_on) {
      t->after = NewPattern();
      t->target.Fill(t->after);
    }
  }
  if (t->plan.opcode != Opcode::kRead) t->source.Fill(NewPattern());
}

void Side::CheckAtomic(const Transfer& t) {
  uint64_t found = 0;  // the target may lie at any address
  std::memcpy(&found, t.target.data(), sizeof(found));
  if (found != t.expected) {
    Complain(t, "found " + std::to_string(found) + ", not " + std::to_string(t.expected));
  }
}

void Side::Fail(Transfer* t, WcStatus status) {
  t->state = Transfer::State::kFailed;
  ++failed_;
  const auto injected = [&](WcStatus s) {
    return std::find(plan_.injected.begin(), plan_.injected.end(), s) != plan_.injected.end();
  };
  const bool refused = t->plan.bad_key && status == WcStatus::kRemAccessErr;
  const bool rnr = status == WcStatus::kRnrRetryExcErr && plan_.rnr_may_end;
  const bool flushed = status == WcStatus::kWrFlushErr;
  if (saw_error_) {
    if (!flushed) Complain(*t, "status " + Number(status) + " behind another error");
  } else {
    // A queue pair that was moved to ERR, from here or by a packet, begins with a flush.
    const bool expected = refused || rnr || injected(status) || (flushed && fencing_) ||
                          (plan_.faults && (flushed || status == WcStatus::kRetryExcErr ||
                                            status == WcStatus::kRemOpErr));
    if (!expected) Complain(*t, "status " + Number(status) + " out of nothing");
  }
  saw_error_ = true;
  Break();
}

Transfer* Side::Match(const rdma::Completion& c) {
  std::deque<uint32_t>& due = peer_->consuming_;
  if (reliable()) {
    if (due.empty()) return nullptr;
    Transfer* t = &peer_->transfers_[due.front()];
    due.pop_front();
    return t;
  }
  // Unreliable: any that was sent since the last connect, as its immediate says.
  if (c.with_imm == 0 || c.imm_data >= peer_->transfers_.size()) return nullptr;
  Transfer* t = &peer_->transfers_[c.imm_data];
  const bool sent = t->state != Transfer::State::kPlanned && t->incarnation == peer_->incarnation_;
  return sent ? t : nullptr;
}

void Side::OnReceived(const rdma::Completion& c) {
  if (receives_.empty() || c.wr_id != kReceiveId + receives_.front()) {
    return Complain("receive " + std::to_string(c.wr_id - kReceiveId) +
                    " completed twice or out of order");
  }
  ReceiveSlot& slot = slots_[receives_.front()];
  receives_.pop_front();
  slot.done = true;
  if (c.status != WcStatus::kSuccess) {
    const bool injected =
        std::find(plan_.injected.begin(), plan_.injected.end(), c.status) != plan_.injected.end();
    const bool flushed = c.status == WcStatus::kWrFlushErr;
    // The peer's bad request ends this queue pair as well.
    if (!injected && !(flushed && (fencing_ || plan_.faults || saw_error_ || peer_->saw_error_))) {
      Complain("receive with status " + Number(c.status) + " out of nothing");
    }
    slot.done = false;
    return Break();
  }
  Transfer* t = Match(c);
  if (t == nullptr) return Complain("a message was received that nobody sent");
  CheckReceive(c, t, slot);
}

void Side::CheckReceive(const rdma::Completion& c, Transfer* t, const ReceiveSlot& slot) {
  const bool write = t->plan.opcode == Opcode::kWriteImm;
  const bool imm = write || t->plan.opcode == Opcode::kSendImm;
  if (c.opcode != (write ? rdma::WcOpcode::kRecvWriteImm : rdma::WcOpcode::kRecv)) {
    Complain(*t, "received as another opcode");
  }
  if (c.byte_len != t->plan.length) {
    Complain(*t, "received with " + std::to_string(c.byte_len) + " bytes");
  }
  if ((c.with_imm != 0) != imm || (imm && c.imm_data != t->id)) {
    Complain(*t, "received with another immediate");
  }
  if (t->received && reliable()) Complain(*t, "received twice");
  const bool first = !t->received;
  t->received = true;
  if (!write) {
    CheckHolds(*t, slot.buffer, "when it was received");
    auto& mine = slots_[c.wr_id - kReceiveId];
    mine.after = NewPattern();
    mine.buffer.Fill(mine.after);
  } else if (first && t->after == 0) {
    CheckHolds(*t, t->target, "when it was received");
    if (!reliable()) return;  // a packet that the network doubled may write it again
    t->after = NewPattern();
    t->target.Fill(t->after);
  }
}

// ---- fencing

void Side::Fence() {
  if (dead()) {
    running_ = false;
    return;
  }
  fencing_ = true;
  const bool destroys = prng_.Chance(plan_.destroys);
  const int rc = destroys ? 0
                          : endpoint_.context->ModifyQp(endpoint_.qp, rdma::kAttrState,
                                                        rdma::QpState::kErr, {});
  Poll();
  Break();
  running_ = false;
  if (destroys || endpoint_.qp->wedged() || endpoint_.qp->dead_after_reset() || rc != 0 ||
      endpoint_.context->nic()->Has(rdma::kQuirkEioAfterRemoval)) {
    // No marker: a destroy that succeeds is the fence.
    receives_unknown_ = true;
    if (endpoint_.context->DestroyQp(endpoint_.qp) != 0) return;
  } else {
    CheckOwed();
  }
  for (const uint32_t id : posted_) {
    transfers_[id].state = Transfer::State::kFailed;
    ++failed_;
  }
  posted_.clear();
  receives_.clear();
  GiveUpTargets();
}

// A queue pair in ERR has reported every request, in order.
void Side::CheckOwed() {
  if (endpoint_.send_cq->broken() || endpoint_.recv_cq->broken()) return;
  // The last ones may have succeeded in silence; a flush is never silent.
  while (!posted_.empty() && !transfers_[posted_.front()].plan.signaled && !saw_error_) {
    Transfer& silent = transfers_[posted_.front()];
    posted_.pop_front();
    Succeed(&silent);
  }
  if (!posted_.empty()) {
    Complain(transfers_[posted_.front()],
             "lost: " + std::to_string(posted_.size()) + " requests were never reported");
  }
  if (!receives_.empty()) {
    Complain(std::to_string(receives_.size()) + " receives were never reported");
  }
  if (endpoint_.qp->send_backlog() != 0 || endpoint_.qp->receive_backlog() != 0) {
    Complain("the queue pair in ERR still holds requests");
  }
}

// After the fence nothing of this incarnation may be written here: what did not finish is filled
// with something else, and must stay so.
void Side::GiveUpTargets() {
  peer_->consuming_.clear();
  for (Transfer& t : peer_->transfers_) {
    if (!t.IsWrite() || t.state == Transfer::State::kPlanned || t.after != 0) continue;
    if (t.incarnation != peer_->incarnation_ || t.plan.bad_key) continue;
    // One that was reported complete there and is not received here is judged by its bytes first.
    if (t.state == Transfer::State::kDone) continue;
    t.after = NewPattern();
    t.target.Fill(t.after);
  }
  for (Transfer& t : transfers_) {
    if (t.plan.opcode != Opcode::kRead || t.state != Transfer::State::kFailed || t.after != 0) {
      continue;
    }
    t.after = NewPattern();
    t.target.Fill(t.after);
  }
  for (ReceiveSlot& slot : slots_) {
    if (slot.after != 0 || slot.done) continue;
    slot.after = NewPattern();
    slot.buffer.Fill(slot.after);
  }
}

void Side::CheckAtEnd() {
  for (const Transfer& t : transfers_) {
    if (t.after != 0 && !t.target.Holds(t.after, 0, t.target.size())) {
      Complain(t, "its memory was written after it had ended");
    }
    const bool delivered = t.state == Transfer::State::kDone && t.Consumes() && reliable();
    if (delivered && !t.received && !peer_->receives_unknown_ && !peer_->dead()) {
      Complain(t, "reported complete, and the peer never received it");
    }
    if (t.plan.bad_key && t.IsWrite() && t.state != Transfer::State::kPlanned &&
        t.target.Holds(t.pattern, 0, t.plan.length) && t.plan.length != 0) {
      Complain(t, "written although its key was wrong");
    }
  }
  for (const ReceiveSlot& slot : slots_) {
    if (slot.after != 0 && !slot.buffer.Holds(slot.after, 0, slot.buffer.size())) {
      Complain("a receive buffer was written after its receive had ended");
    }
  }
}

}  // namespace railhop::sim
