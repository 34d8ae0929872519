#include "cc/fabric/wire.h"

#include <sched.h>
#include <signal.h>

#include <algorithm>

#include "cc/fabric/copy.h"
#include "cc/fabric/fault_actions.h"
#include "cc/fabric/nic.h"
#include "cc/fabric/queue_pair.h"

namespace railhop::fabric {
namespace {

constexpr uint64_t kTrainBytes = 256
                                 << 10;  // a fault finds a message of more than this partly written
constexpr uint64_t kFaultyTrainBytes = 64 << 10;    // the same once the fabric has had a fault
constexpr uint64_t kReorderPatienceNs = 2'000'000;  // a packet that nobody overtakes goes anyway
constexpr uint64_t kDeathPatienceNs = 1'000'000'000;
constexpr uint64_t kMinWireBytes = 64;  // what an empty packet takes of a cap

void Add(std::atomic<uint64_t>& counter, uint64_t n) {
  counter.fetch_add(n, std::memory_order_relaxed);
}

bool PkeysMatch(uint32_t a, uint32_t b) {
  // Same partition, and not both limited members (IBTA 10.9.3).
  return (a & 0x7fff) == (b & 0x7fff) && ((a | b) & 0x8000) != 0;
}

// Takes the wire of a capped port for `bytes`; when they have passed.
uint64_t TakeWire(std::atomic<uint64_t>& free_at, uint64_t bytes, uint64_t bits_per_second,
                  uint64_t now_ns) {
  const auto time =
      static_cast<uint64_t>(static_cast<unsigned __int128>(std::max(bytes, kMinWireBytes)) * 8 *
                            1'000'000'000 / bits_per_second);
  uint64_t seen = free_at.load(std::memory_order_relaxed);
  uint64_t end = 0;
  do {
    end = std::max(seen, now_ns) + time;
  } while (!free_at.compare_exchange_weak(seen, end, std::memory_order_relaxed));
  return end;
}

// Takes the first `n` packets of a READ answer off its front.
rdma::Response TakeFront(rdma::Response& response, uint32_t n) {
  rdma::Response front = response;
  const uint32_t bytes = n * response.mtu;
  front.count = n;
  front.length = bytes;
  response.psn = rdma::PsnAdd(response.psn, n);
  response.count -= n;
  response.length -= bytes;
  response.remote_addr += bytes;
  return front;
}

rdma::LogKind LogKindOf(const rdma::Verdict& verdict) {
  switch (verdict.fate) {
    case rdma::Fate::kDrop:
      return rdma::LogKind::kDrop;
    case rdma::Fate::kHold:
      return rdma::LogKind::kHold;
    case rdma::Fate::kFail:
      return rdma::LogKind::kFail;
    case rdma::Fate::kWedge:
      return rdma::LogKind::kWedge;
    case rdma::Fate::kKill:
      return rdma::LogKind::kKill;
    case rdma::Fate::kDeliver:
      break;
  }
  if (verdict.unwritten) return rdma::LogKind::kUnwritten;
  if (verdict.copies > 1) return rdma::LogKind::kDuplicate;
  if (verdict.reorder_by != 0) return rdma::LogKind::kReorder;
  return verdict.delay_ns != 0 ? rdma::LogKind::kDelay : rdma::LogKind::kNone;
}

}  // namespace

bool Wire::Resolve(QueuePair& qp, Hop* hop) {
  DirectoryHandle& directory = nic_->directory();
  WirePath& path = qp.path_;
  const uint32_t generation = directory.dir().gid_generation.load(std::memory_order_acquire);
  hop->from = {qp.context_->device, qp.shared_.port.load(std::memory_order_relaxed)};
  if (path.peer == nullptr || path.gid_generation != generation || !path.peer->Alive()) {
    path = WirePath();
    const QpAttributes& a = qp.attributes_;
    const Route route = a.is_global ? directory.RouteByGid(hop->from, a.sgid_index, a.dgid)
                                    : directory.RouteByLid(hop->from, a.dlid);
    if (route.verdict != RouteVerdict::kFound) return false;
    const auto owner = directory.LookupQpn(a.dest_qpn);
    if (!owner.has_value()) return false;
    path.peer = nic_->process().FindPeer({owner->slot, owner->slot_generation});
    if (path.peer == nullptr) return false;
    path.qp_index = owner->index;
    path.to = route.to;
    path.gid_generation = generation;
    const uint32_t peer_order = path.peer->segment().qps[path.qp_index].qp_order;
    qp.request_flow_.peer_order = qp.response_flow_.peer_order = peer_order;
  }
  hop->to = path.to;
  hop->peer = path.peer;
  hop->peer_qp = path.qp_index;
  hop->pkey = qp.shared_.pkey.load(std::memory_order_relaxed);
  return true;
}

bool Wire::LinksUp(const Hop& hop) const {
  constexpr auto kActive = static_cast<uint32_t>(rdma::PortLinkState::kActive);
  DirectoryHandle& directory = nic_->directory();
  return directory.port(hop.from).link_state.load(std::memory_order_acquire) == kActive &&
         directory.port(hop.to).link_state.load(std::memory_order_acquire) == kActive &&
         directory.device(hop.from.device).removed.load(std::memory_order_acquire) == 0 &&
         directory.device(hop.to.device).removed.load(std::memory_order_acquire) == 0;
}

uint32_t Wire::MaxTrain(const QueuePair& qp) const {
  // A responder acknowledges each train, so where trains end shows in the log. Once the fabric has
  // had a fault they stay short: whether a rule that is used up has been swept away is chance.
  const bool faults = nic_->directory().dir().fault_generation.load(std::memory_order_relaxed) != 0;
  return static_cast<uint32_t>((faults ? kFaultyTrainBytes : kTrainBytes) /
                               qp.requester_.config().mtu);
}

void Wire::Send(QueuePair& qp, rdma::Train train, uint64_t now_ns) {
  Hop hop;
  PortEntry& tx = nic_->directory().port(
      {qp.context_->device, qp.shared_.port.load(std::memory_order_relaxed)});
  Add(tx.tx_packets, train.count);
  if (train.retransmitted) Add(tx.retransmitted, train.count);
  if (!Resolve(qp, &hop)) {
    Add(tx.dropped, train.count);
    return;
  }
  PortEntry& rx = nic_->directory().port(hop.to);
  const bool carries_data = train.length > 0 && train.opcode != rdma::Opcode::kRead;
  if (carries_data && train.mtu > rdma::MtuBytes(rx.active_mtu.load(std::memory_order_relaxed))) {
    Add(rx.dropped, train.count);  // longer packets than the far link carries
    return;
  }
  for (bool whole = false; !whole;) {
    const rdma::Verdict verdict =
        rdma::Judge(tx.faults, rx.faults, train, qp.request_flow_, now_ns);
    whole = verdict.packets >= train.count;
    rdma::Train piece = whole ? train : train.TakeFront(verdict.packets);
    piece.unwritten = verdict.unwritten;
    // The links are looked at after the judge: what it let through ahead of a fall still goes.
    if (verdict.before_fall || LinksUp(hop)) {
      SendPiece(qp, piece, verdict, hop, now_ns);
    } else {
      Add(tx.dropped, piece.count);
    }
    if (verdict.actions != 0) RunActions(verdict, hop.from, hop.to);
  }
}

void Wire::RunActions(const rdma::Verdict& verdict, PortRef tx, PortRef rx) {
  if ((verdict.actions & rdma::kActionsTx) != 0) RunFaultActions(nic_->directory(), tx);
  if ((verdict.actions & rdma::kActionsRx) != 0) RunFaultActions(nic_->directory(), rx);
}

void Wire::SendPiece(QueuePair& qp, const rdma::Train& piece, const rdma::Verdict& verdict,
                     const Hop& hop, uint64_t now_ns) {
  if (verdict.rule != rdma::kNoRule) LogVerdict(qp, verdict, hop.from, piece.psn, piece.message_id);
  if (!ActOnFate(qp, verdict, hop)) {
    if (verdict.fate == rdma::Fate::kDrop)
      Add(nic_->directory().port(hop.from).dropped, piece.count);
    return;
  }
  const rdma::SendWqe* wqe = qp.requester_.WqeOf(piece);
  if (wqe == nullptr) return;  // completed or flushed meanwhile
  Payload payload;
  if (!wqe->read_like && piece.length != 0) {
    if (!qp.Gather(*wqe, piece.offset, piece.length, &qp.iovecs_)) return;
    payload = {qp.iovecs_.data(), qp.iovecs_.size()};
  }
  const bool at_once = verdict.fate == rdma::Fate::kDeliver && verdict.delay_ns == 0 &&
                       verdict.reorder_by == 0 && verdict.tx_cap_bps == 0 &&
                       verdict.rx_cap_bps == 0;
  if (at_once) {
    for (uint32_t i = 0; i < verdict.copies; ++i) Deliver(qp, piece, payload, hop, now_ns);
    PassReordered(qp, now_ns);
    return;
  }
  Carried carried;
  carried.train = piece;
  carried.qp = qp.shared_from_this();
  carried.hop = hop;
  carried.bytes.resize(payload.count == 0 ? 0 : piece.length);
  uint64_t taken = 0;
  for (size_t i = 0; i < payload.count; ++i) {  // through the kernel: the memory may be gone
    const iovec& from = payload.pieces[i];
    const iovec to = {carried.bytes.data() + taken, from.iov_len};
    if (!ReadFromProcess(nic_->process().segment().pid, &to, 1, 0, from.iov_len,
                         reinterpret_cast<uint64_t>(from.iov_base))) {
      return qp.requester_.Fail(rdma::WcStatus::kLocProtErr);
    }
    taken += from.iov_len;
  }
  Carry(std::move(carried), verdict, hop.from, hop.to, now_ns);
}

// Whether `target`, whose lock is held, still is the queue pair that `qp` talks to: its place may
// have another user.
bool Wire::IsPeerOf(const QueuePair& qp, const QpShared& target) {
  return target.in_use.load(std::memory_order_acquire) != 0 &&
         target.responder.qpn == qp.attributes_.dest_qpn;
}

// Does what a verdict does to a queue pair or process. False: the packets go no further.
bool Wire::ActOnFate(QueuePair& qp, const rdma::Verdict& verdict, const Hop& hop) {
  const bool requester = verdict.victim == rdma::Victim::kRequester;
  QpShared& target = hop.peer->segment().qps[hop.peer_qp];
  switch (verdict.fate) {
    case rdma::Fate::kDeliver:
    case rdma::Fate::kHold:
      return true;
    case rdma::Fate::kDrop:
      return false;
    case rdma::Fate::kFail:
      if (requester) {
        qp.requester_.Fail(verdict.status, verdict.vendor_err);
      } else {
        const bool died = LockRobust(target.lock);
        SegmentEnv env(nic_, &hop.peer->segment(), hop.peer->slot(), hop.peer_qp, {});
        char* base = reinterpret_cast<char*>(&hop.peer->segment());
        rdma::Responder responder(&target.responder, {&target.ring, base + target.ring_offset},
                                  &env);
        if (died) responder.Recover();
        if (IsPeerOf(qp, target)) responder.FailFront(verdict.status, verdict.vendor_err);
        pthread_mutex_unlock(&target.lock);
      }
      return false;
    case rdma::Fate::kWedge:
      if (requester) {
        qp.shared_.wedged.store(1, std::memory_order_release);
        return false;
      }
      LockRobust(target.lock);  // wedged, it has nothing to recover for
      if (IsPeerOf(qp, target)) target.wedged.store(1, std::memory_order_release);
      pthread_mutex_unlock(&target.lock);
      return false;
    case rdma::Fate::kKill:
      if (requester) raise(SIGKILL);
      // A packet that was long under way must not hit who has the number of a dead process now.
      if (hop.peer->Alive()) kill(static_cast<pid_t>(hop.peer->pid()), SIGKILL);
      // A signal takes a moment; "dies before this packet" must not depend on how long.
      for (const uint64_t end = MonotonicNs() + kDeathPatienceNs;
           hop.peer->Alive() && MonotonicNs() < end;) {
        sched_yield();
      }
      return false;
  }
  return false;
}

void Wire::Deliver(QueuePair& qp, const rdma::Train& piece, Payload payload, const Hop& hop,
                   uint64_t now_ns) {
  const rdma::Response response = Execute(piece, payload, hop);
  if (response.kind != rdma::ResponseKind::kNone) Return(qp, response, hop, now_ns);
}

rdma::Response Wire::Execute(const rdma::Train& train, Payload payload, const Hop& hop) {
  DirectoryHandle& directory = nic_->directory();
  PortEntry& rx = directory.port(hop.to);
  QpShared& target = hop.peer->segment().qps[hop.peer_qp];
  if (target.in_use.load(std::memory_order_acquire) == 0 || !hop.peer->Alive()) {
    Add(rx.dropped, train.count);
    return {};
  }
  Segment& segment = hop.peer->segment();
  SegmentEnv env(nic_, &segment, hop.peer->slot(), hop.peer_qp, payload);
  const bool died = LockRobust(target.lock);
  rdma::Responder responder(&target.responder,
                            {&target.ring, reinterpret_cast<char*>(&segment) + target.ring_offset},
                            &env);
  if (died) responder.Recover();
  rdma::Response response;
  const bool ours = target.in_use.load(std::memory_order_acquire) != 0 &&
                    target.device == hop.to.device &&
                    target.port.load(std::memory_order_relaxed) == hop.to.port &&
                    PkeysMatch(target.pkey.load(std::memory_order_relaxed), hop.pkey) &&
                    target.wedged.load(std::memory_order_acquire) == 0;
  if (ours) response = responder.OnTrain(train);
  pthread_mutex_unlock(&target.lock);
  if (env.process_gone()) return {};
  Add(rx.rx_packets, train.count);
  if (train.opcode != rdma::Opcode::kRead) {
    Add(rx.rx_bytes, train.length);
    Add(directory.port(hop.from).tx_bytes, train.length);
  }
  if (train.last) {
    Add(rx.rx_messages, 1);
    Add(directory.port(hop.from).tx_messages, 1);
  }
  if (response.kind == rdma::ResponseKind::kNakSequence) Add(rx.out_of_sequence, 1);
  if (response.kind == rdma::ResponseKind::kRnrNak) Add(rx.rnr_naks, 1);
  return response;
}

void Wire::Return(QueuePair& qp, rdma::Response response, const Hop& hop, uint64_t now_ns) {
  PortEntry& tx = nic_->directory().port(hop.to);
  PortEntry& rx = nic_->directory().port(hop.from);
  for (;;) {
    const rdma::Verdict verdict =
        rdma::JudgeResponse(tx.faults, rx.faults, response, qp.response_flow_, now_ns);
    const bool whole = verdict.packets >= response.count;
    const rdma::Response piece = whole ? response : TakeFront(response, verdict.packets);
    ReturnPiece(qp, piece, verdict, hop, now_ns);
    if (verdict.actions != 0) RunActions(verdict, hop.to, hop.from);
    if (whole) return;
  }
}

void Wire::ReturnPiece(QueuePair& qp, const rdma::Response& piece, const rdma::Verdict& verdict,
                       const Hop& hop, uint64_t now_ns) {
  if (verdict.rule != rdma::kNoRule) LogVerdict(qp, verdict, hop.to, piece.psn, 0);
  if (!LinksUp(hop) || !ActOnFate(qp, verdict, hop)) return;
  const bool at_once = verdict.fate == rdma::Fate::kDeliver && verdict.delay_ns == 0 &&
                       verdict.reorder_by == 0 && verdict.tx_cap_bps == 0 &&
                       verdict.rx_cap_bps == 0;
  const bool data = piece.kind == rdma::ResponseKind::kReadData && piece.length != 0;
  if (data) {
    Add(nic_->directory().port(hop.to).tx_bytes, piece.length);
    Add(nic_->directory().port(hop.from).rx_bytes, piece.length);
  }
  if (at_once) {
    for (uint32_t i = 0; i < verdict.copies; ++i) qp.TakeResponse(piece, nullptr, hop.peer, now_ns);
    return;
  }
  Carried carried;
  carried.is_response = true;
  carried.response = piece;
  carried.qp = qp.shared_from_this();
  carried.hop = hop;
  if (data) {
    carried.bytes.resize(piece.length);
    const iovec all = {carried.bytes.data(), carried.bytes.size()};
    if (!ReadFromProcess(hop.peer->pid(), &all, 1, 0, piece.length, piece.remote_addr)) return;
  }
  Carry(std::move(carried), verdict, hop.to, hop.from, now_ns);
}

uint64_t Wire::DueTime(const rdma::Verdict& verdict, PortEntry& tx, PortEntry& rx, uint64_t bytes,
                       uint64_t now_ns) {
  uint64_t due = now_ns;
  if (verdict.tx_cap_bps != 0) due = TakeWire(tx.tx_free_at, bytes, verdict.tx_cap_bps, now_ns);
  if (verdict.rx_cap_bps != 0)
    due = std::max(due, TakeWire(rx.rx_free_at, bytes, verdict.rx_cap_bps, now_ns));
  return due + verdict.delay_ns;
}

void Wire::Carry(Carried carried, const rdma::Verdict& verdict, PortRef tx, PortRef rx,
                 uint64_t now_ns) {
  DirectoryHandle& directory = nic_->directory();
  const uint64_t bytes = carried.bytes.size();
  const uint64_t due = DueTime(verdict, directory.port(tx), directory.port(rx), bytes, now_ns);
  QueuePair& qp = *carried.qp;
  // The sender's clock starts when the packet leaves, not when it queued up for a capped wire.
  if (!carried.is_response) qp.requester_.DelayTimer(due - verdict.delay_ns);
  carried.due_ns = due;
  std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t copy = 0; copy < verdict.copies; ++copy) {
    qp.carried_bytes_ += bytes + kMinWireBytes;
    // NOLINTNEXTLINE(bugprone-use-after-move): it is moved in the last round only.
    Carried one = copy + 1 == verdict.copies ? std::move(carried) : carried;
    if (verdict.fate == rdma::Fate::kHold) {
      const PortRef side = verdict.side == rdma::FaultDirection::kRx ? rx : tx;
      one.hold_table = &directory.port(side).faults;
      one.hold_ticket = verdict.hold_ticket;
      waiting_.push_back(std::move(one));
    } else if (verdict.reorder_by != 0 && copy == 0) {
      one.reorder_left = verdict.reorder_by;
      one.due_ns = due + kReorderPatienceNs;
      waiting_.push_back(std::move(one));
    } else {
      due_.emplace(std::make_pair(due, next_order_++), std::move(one));
    }
  }
  any_waiting_.store(!waiting_.empty(), std::memory_order_relaxed);
  nic_->Wake();
}

// Counts a packet of `qp` that went ahead of those that wait to be overtaken. The send lock is
// held.
void Wire::PassReordered(QueuePair& qp, uint64_t now_ns) {
  // Those of this queue pair were put there by a holder of its send lock.
  if (!any_waiting_.load(std::memory_order_relaxed)) return;
  std::list<Carried> ready;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      const bool passes = it->reorder_left != 0 && it->qp.get() == &qp && --it->reorder_left == 0;
      const auto next = std::next(it);
      if (passes) ready.splice(ready.end(), waiting_, it);
      it = next;
    }
    any_waiting_.store(!waiting_.empty(), std::memory_order_relaxed);
  }
  for (Carried& carried : ready) DeliverCarried(carried, /*send_locked=*/true, now_ns);
}

uint64_t Wire::RunDue(uint64_t now_ns) {
  for (;;) {
    std::list<Carried> ready;
    uint64_t next = ~uint64_t{0};
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto it = waiting_.begin(); it != waiting_.end();) {
        const bool free = it->hold_table != nullptr
                              ? rdma::HoldReleased(*it->hold_table, it->hold_ticket, now_ns)
                              : now_ns >= it->due_ns;
        const auto after = std::next(it);
        if (free) {
          ready.splice(ready.end(), waiting_, it);
        } else {
          // A hold that ends by time is looked at now and then; releases ring.
          next = std::min(next, it->hold_table != nullptr ? now_ns + 10'000'000 : it->due_ns);
        }
        it = after;
      }
      any_waiting_.store(!waiting_.empty(), std::memory_order_relaxed);
      while (!due_.empty() && due_.begin()->first.first <= now_ns) {
        ready.push_back(std::move(due_.begin()->second));
        due_.erase(due_.begin());
      }
      if (!due_.empty()) next = std::min(next, due_.begin()->first.first);
    }
    if (ready.empty()) return next;
    for (Carried& carried : ready) DeliverCarried(carried, /*send_locked=*/false, now_ns);
  }
}

void Wire::DeliverCarried(Carried& carried, bool send_locked, uint64_t now_ns) {
  QueuePair& qp = *carried.qp;
  rdma::Response response;
  const bool arrives = LinksUp(carried.hop);
  if (arrives && !carried.is_response) {
    const iovec all = {carried.bytes.data(), carried.bytes.size()};
    response = Execute(carried.train, {&all, 1}, carried.hop);
  }
  std::unique_lock<std::mutex> lock(qp.send_mutex_, std::defer_lock);
  if (!send_locked) lock.lock();
  const uint64_t accounted = carried.bytes.size() + kMinWireBytes;
  qp.carried_bytes_ -= std::min(qp.carried_bytes_, accounted);
  if (qp.retired_) return;
  if (arrives && carried.is_response) {
    qp.TakeResponse(carried.response, carried.bytes.data(), carried.hop.peer, now_ns);
  } else if (response.kind != rdma::ResponseKind::kNone) {
    Return(qp, response, carried.hop, now_ns);
  }
  // Also when this one was lost: others may have waited for its room.
  if (!send_locked) qp.DriveOn(kTrainBytes);
}

void Wire::LogVerdict(const QueuePair& qp, const rdma::Verdict& verdict, PortRef port, uint32_t psn,
                      uint64_t message) {
  const rdma::LogKind kind = LogKindOf(verdict);
  // A port that falls has a line of its own; how many packets meet it before is chance.
  if (kind == rdma::LogKind::kNone || verdict.falling) return;
  LogRecord record;
  record.device = port.device;
  record.port = port.port;
  record.qp_order = qp.order();
  record.kind = static_cast<uint32_t>(kind);
  record.psn = psn;
  record.count = verdict.packets;
  record.message = message;
  switch (kind) {
    case rdma::LogKind::kDelay:
      record.arg = verdict.delay_ns;
      break;
    case rdma::LogKind::kDuplicate:
      record.arg = verdict.copies;
      break;
    case rdma::LogKind::kReorder:
      record.arg = verdict.reorder_by;
      break;
    case rdma::LogKind::kFail:
      record.arg = static_cast<uint64_t>(verdict.status);
      break;
    default:
      record.arg = verdict.rule;
  }
  nic_->directory().Log(record);
}

}  // namespace railhop::fabric
