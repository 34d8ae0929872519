#include "cc/fabric/queue_pair.h"

#include <algorithm>
#include <cerrno>

#include "cc/fabric/copy.h"
#include "cc/fabric/nic.h"
#include "cc/fabric/region_table.h"
#include "cc/rdma_model/qp_states.h"

namespace railhop::fabric {
namespace {

// Bytes that a posting call moves itself; the NIC thread goes on with what is left.
constexpr uint64_t kInlineBudget = 1 << 20;
// Bytes of one queue pair that may be under way with a delay; more is sent as answers come.
constexpr uint64_t kMaxCarriedBytes = 1 << 20;
constexpr uint32_t kMaxRdAtomic = rdma::kAtomicReplays;

rdma::QpState LoadState(const QpShared& shared) {
  return static_cast<rdma::QpState>(shared.responder.state.load(std::memory_order_acquire));
}

}  // namespace

QueuePair::QueuePair(Nic* nic, Context* context, const QpInit& init, uint32_t index, uint32_t qpn,
                     uint32_t order)
    : nic_(nic),
      context_(context),
      init_(init),
      index_(index),
      qpn_(qpn),
      shared_(nic->process().segment().qps[index]),
      requester_(this) {
  requester_.Allocate(init.max_send_wr, init.max_inline_data);
  shared_.qp_order = order;
  Directory& directory = nic->directory().dir();
  request_flow_ =
      rdma::InitFlow(directory.seed, context->device, order, rdma::FlowDirection::kRequests);
  response_flow_ =
      rdma::InitFlow(directory.seed, context->device, order, rdma::FlowDirection::kResponses);
}

QueuePair::~QueuePair() = default;

rdma::QpState QueuePair::state() const { return LoadState(shared_); }

int QueuePair::CheckModify(uint32_t mask, rdma::QpState from, rdma::QpState to,
                           const QpAttributes& a) const {
  if ((mask & rdma::kAttrCurState) != 0 && a.current != from) return EINVAL;
  if (rdma::CheckTransition(init_.type, from, to, mask) != rdma::TransitionCheck::kOk)
    return EINVAL;
  const DeviceEntry& device = nic_->directory().device(context_->device);
  if ((mask & rdma::kAttrPort) != 0 && (a.port == 0 || a.port > device.port_count)) return EINVAL;
  const uint32_t port = (mask & rdma::kAttrPort) != 0 ? a.port : attributes_.port;
  const PortEntry& entry = device.ports[port - 1];
  if ((mask & rdma::kAttrPkeyIndex) != 0 && a.pkey_index >= entry.pkey_count) return EINVAL;
  if ((mask & rdma::kAttrPathMtu) != 0 &&
      (a.path_mtu < 1 || a.path_mtu > entry.active_mtu.load(std::memory_order_relaxed))) {
    return EINVAL;
  }
  if ((mask & rdma::kAttrTimeout) != 0 && a.timeout > 31) return EINVAL;
  if ((mask & rdma::kAttrRetryCnt) != 0 && a.retry_cnt > 7) return EINVAL;
  if ((mask & rdma::kAttrRnrRetry) != 0 && a.rnr_retry > 7) return EINVAL;
  if ((mask & rdma::kAttrMinRnrTimer) != 0 && a.min_rnr_timer > 31) return EINVAL;
  if ((mask & rdma::kAttrMaxRdAtomic) != 0 && a.max_rd_atomic > kMaxRdAtomic) return EINVAL;
  if ((mask & rdma::kAttrMaxDestRdAtomic) != 0 && a.max_dest_rd_atomic > kMaxRdAtomic)
    return EINVAL;
  if ((mask & rdma::kAttrAv) != 0) {
    const bool ethernet = entry.link_layer == rdma::LinkLayer::kEthernet;
    if (ethernet && !a.is_global) return EINVAL;  // RoCE has no other addresses than GIDs
    if (a.is_global && a.sgid_index >= entry.gid_count.load(std::memory_order_relaxed))
      return EINVAL;
    if (a.is_global && DirectoryHandle::ReadGid(entry, a.sgid_index).gid == rdma::Gid())
      return EINVAL;
  }
  return 0;
}

void QueuePair::ApplyAttributes(uint32_t mask, const QpAttributes& a) {
  QpAttributes& mine = attributes_;
  rdma::ResponderState& responder = shared_.responder;
  if ((mask & rdma::kAttrPort) != 0) mine.port = a.port;
  if ((mask & rdma::kAttrPkeyIndex) != 0) mine.pkey_index = a.pkey_index;
  if ((mask & rdma::kAttrAccess) != 0) responder.access = mine.access = a.access;
  if ((mask & rdma::kAttrDestQpn) != 0) responder.dest_qpn = mine.dest_qpn = a.dest_qpn;
  if ((mask & rdma::kAttrRqPsn) != 0)
    responder.expected_psn = (mine.rq_psn = a.rq_psn) & rdma::kPsnMask;
  if ((mask & rdma::kAttrMinRnrTimer) != 0) {
    responder.min_rnr_timer = static_cast<uint8_t>(mine.min_rnr_timer = a.min_rnr_timer);
  }
  if ((mask & rdma::kAttrPathMtu) != 0) responder.mtu = rdma::MtuBytes(mine.path_mtu = a.path_mtu);
  if ((mask & rdma::kAttrSqPsn) != 0) requester_.SetNextPsn(mine.sq_psn = a.sq_psn);
  if ((mask & rdma::kAttrTimeout) != 0) mine.timeout = a.timeout;
  if ((mask & rdma::kAttrRetryCnt) != 0) mine.retry_cnt = a.retry_cnt;
  if ((mask & rdma::kAttrRnrRetry) != 0) mine.rnr_retry = a.rnr_retry;
  if ((mask & rdma::kAttrMaxRdAtomic) != 0) mine.max_rd_atomic = a.max_rd_atomic;
  if ((mask & rdma::kAttrMaxDestRdAtomic) != 0) mine.max_dest_rd_atomic = a.max_dest_rd_atomic;
  if ((mask & rdma::kAttrAv) != 0) {
    mine.is_global = a.is_global;
    mine.dgid = a.dgid;
    mine.sgid_index = a.sgid_index;
    mine.dlid = a.dlid;
    mine.service_level = a.service_level;
    mine.traffic_class = a.traffic_class;
  }
  path_ = WirePath();
  const PortEntry& port = nic_->directory().port({context_->device, mine.port});
  shared_.port.store(mine.port);
  shared_.pkey.store(port.pkeys[mine.pkey_index].load(std::memory_order_relaxed));
  shared_.pkey_index.store(mine.pkey_index);
  shared_.service_level.store(mine.service_level);
  shared_.traffic_class.store(mine.traffic_class);
  shared_.path_mtu.store(mine.path_mtu);
  shared_.sgid_index.store(mine.sgid_index);
  rdma::RequesterConfig config;
  config.type = init_.type;
  config.qpn = qpn_;
  config.dest_qpn = mine.dest_qpn;
  config.mtu = mine.path_mtu != 0 ? rdma::MtuBytes(mine.path_mtu) : 4096;
  config.timeout = mine.timeout;
  config.retry_cnt = mine.retry_cnt;
  config.rnr_retry = mine.rnr_retry;
  config.max_rd_atomic = mine.max_rd_atomic;
  config.signal_all = init_.signal_all;
  const uint64_t quirks =
      nic_->directory().device(context_->device).quirks.load(std::memory_order_relaxed);
  config.seven_is_forever = (quirks & rdma::kQuirkRetry7Forever) != 0;
  requester_.Configure(config);
  requester_.set_time_scale_ppm(
      nic_->directory().dir().time_scale_ppm.load(std::memory_order_relaxed));
}

int QueuePair::Modify(uint32_t mask, rdma::QpState to, const QpAttributes& attributes) {
  if (context_->removed.load(std::memory_order_acquire)) return EIO;
  std::lock_guard<std::mutex> send_lock(send_mutex_);
  SegmentEnv env(nic_, &nic_->process().segment(), nic_->process().slot(), index_, {});
  rdma::Responder responder(&shared_.responder,
                            {&shared_.ring, nic_->process().At(shared_.ring_offset)}, &env);
  if (LockRobust(shared_.lock)) responder.Recover();
  const rdma::QpState from = LoadState(shared_);
  if ((mask & rdma::kAttrState) == 0) to = from;
  const int rc = CheckModify(mask, from, to, attributes);
  if (rc == 0) {
    ApplyAttributes(mask, attributes);
    if (from != to)
      attributes_.sqd_notify = (mask & rdma::kAttrEnSqdNotify) != 0 && attributes.sqd_notify;
    if (to == rdma::QpState::kErr && shared_.wedged.load() == 0) {
      shared_.responder.state.store(static_cast<uint8_t>(to), std::memory_order_release);
      responder.FlushReceives();
    }
    EnterState(from, to);
  }
  pthread_mutex_unlock(&shared_.lock);
  if (rc == 0 && to == rdma::QpState::kRts) DriveOn(kInlineBudget);
  return rc;
}

// Both locks are held.
void QueuePair::EnterState(rdma::QpState from, rdma::QpState to) {
  if (to == rdma::QpState::kReset) {
    const uint64_t quirks =
        nic_->directory().device(context_->device).quirks.load(std::memory_order_relaxed);
    if (from == rdma::QpState::kErr && (quirks & rdma::kQuirkDeadAfterReset) != 0)
      dead_after_reset_ = true;
    ResetQueues();
    return;
  }
  shared_.responder.state.store(static_cast<uint8_t>(to), std::memory_order_release);
  const bool quiet = shared_.wedged.load(std::memory_order_acquire) != 0;
  if (to == rdma::QpState::kErr && quiet) return;  // not even a flush comes from it
  if (from != to || to == rdma::QpState::kErr) requester_.SetState(to);
}

void QueuePair::ResetQueues() {
  rdma::ResponderState& r = shared_.responder;
  r.state.store(static_cast<uint8_t>(rdma::QpState::kReset), std::memory_order_release);
  r.nak_sent = r.message_open = r.comm_established = false;
  r.unwritten = false;
  r.dest_qpn = r.access = r.expected_psn = r.atomic_next = 0;
  for (auto& replay : r.replays) replay.valid = 0;
  rdma::RecvRing(&shared_.ring, nic_->process().At(shared_.ring_offset)).Clear();
  shared_.flush_send.store(0);
  requester_.Reset();
  attributes_ = QpAttributes();
  path_ = WirePath();
  error_pending_ = false;
  carried_bytes_ = 0;  // of its life before; what is under way then holds nothing back now
  init_.send_cq->Purge(qpn_);
  if (init_.recv_cq != init_.send_cq) init_.recv_cq->Purge(qpn_);
}

int QueuePair::BeginPost() {
  send_mutex_.lock();
  const rdma::QpState now = state();
  if (now == rdma::QpState::kErr && requester_.state() != rdma::QpState::kErr &&
      shared_.wedged.load() == 0) {
    requester_.SetState(rdma::QpState::kErr);
  }
  if (now == rdma::QpState::kReset || now == rdma::QpState::kInit || now == rdma::QpState::kRtr) {
    send_mutex_.unlock();
    return EINVAL;
  }
  committed_ = 0;
  return 0;
}

void QueuePair::Commit() {
  requester_.Commit();
  ++committed_;
}

void QueuePair::EndPost() {
  if (shared_.wedged.load(std::memory_order_acquire) == 0) {
    if (requester_.state() == rdma::QpState::kErr) {
      requester_.Flush();
    } else {
      DriveOn(kInlineBudget);
    }
  }
  send_mutex_.unlock();
}

void QueuePair::AbandonPost() {
  requester_.TakeBack(committed_);
  send_mutex_.unlock();
}

int QueuePair::PostReceive(uint64_t wr_id, const rdma::Sge* sges, uint32_t count) {
  if (count > shared_.ring.max_sge) return EINVAL;
  {
    std::lock_guard<std::mutex> lock(recv_mutex_);
    if (state() == rdma::QpState::kReset) return EINVAL;
    rdma::RecvRing ring(&shared_.ring, nic_->process().At(shared_.ring_offset));
    if (!HasRoom(ring)) return ENOMEM;
    rdma::RecvWqe* wqe = ring.Back();
    wqe->wr_id = wr_id;
    wqe->sge_count = count;
    std::copy(sges, sges + count, wqe->sges());
    ring.Publish();
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (state() == rdma::QpState::kErr && shared_.wedged.load() == 0) {
    SegmentEnv env(nic_, &nic_->process().segment(), nic_->process().slot(), index_, {});
    rdma::Responder responder(&shared_.responder,
                              {&shared_.ring, nic_->process().At(shared_.ring_offset)}, &env);
    if (LockRobust(shared_.lock)) responder.Recover();
    if (state() == rdma::QpState::kErr) responder.FlushReceives();
    pthread_mutex_unlock(&shared_.lock);
  }
  return 0;
}

// A receive is reported first and taken off its queue after that, by a process that may be
// preempted in between. The queue's owner may have polled the completion by then and has every
// right to post the next receive; the ring has one place more than it promises for that.
bool QueuePair::HasRoom(const rdma::RecvRing& ring) const {
  const uint64_t head = ring.state()->head.load(std::memory_order_acquire);
  const uint64_t posted = ring.state()->tail.load(std::memory_order_relaxed) - head;
  if (posted < init_.max_recv_wr) return true;
  return posted == init_.max_recv_wr &&
         HasCompletion(nic_->process().segment(), shared_.recv_cq, rdma::ReceiveToken(qpn_, head));
}

bool QueuePair::Drive(uint64_t budget) {
  std::lock_guard<std::mutex> lock(send_mutex_);
  return DriveLocked(budget);
}

bool QueuePair::DriveLocked(uint64_t budget) {
  uint64_t sent = 0;
  bool more = false;
  while (!retired_ && !dead_after_reset_ && shared_.wedged.load(std::memory_order_acquire) == 0 &&
         carried_bytes_ < kMaxCarriedBytes) {
    if (state() == rdma::QpState::kErr) {  // a peer's packet did that
      requester_.SetState(rdma::QpState::kErr);
      break;
    }
    if (sent >= budget) {
      more = requester_.HasUnsent();
      break;
    }
    const uint64_t now_ns = MonotonicNs();
    rdma::Train train;
    if (!requester_.NextTrain(now_ns, nic_->wire().MaxTrain(*this), &train)) break;
    nic_->wire().Send(*this, train, now_ns);
    requester_.AfterSend(train);
    sent += std::max<uint64_t>(train.length, 64);
    FollowIntoError();
  }
  FollowIntoError();
  backlogged_ = more;
  ScheduleTimer();
  return more;
}

void QueuePair::DriveOn(uint64_t budget) {
  if (DriveLocked(budget)) nic_->AddBacklog(index_);
}

void QueuePair::ScheduleTimer() {
  const uint64_t deadline = requester_.deadline_ns();
  if (deadline == 0 || retired_) return;
  if (scheduled_ns_ != 0 && scheduled_ns_ <= deadline) return;  // it wakes earlier and looks again
  nic_->Schedule(index_, scheduled_ns_, deadline);
  scheduled_ns_ = deadline;
}

void QueuePair::OnTimer(uint64_t deadline_ns, uint64_t now_ns) {
  std::lock_guard<std::mutex> lock(send_mutex_);
  if (scheduled_ns_ == deadline_ns) scheduled_ns_ = 0;  // else it was set anew meanwhile
  if (retired_ || shared_.wedged.load(std::memory_order_acquire) != 0) return;
  const uint64_t timeouts = requester_.timeouts();
  // A request that waits behind a backlog because this thread had no processor has not timed out: a
  // real NIC would have sent on.
  if (backlogged_) {
    requester_.DelayTimer(now_ns);
  } else {
    requester_.OnDeadline(now_ns);
  }
  if (requester_.timeouts() != timeouts) {
    PortEntry& port = nic_->directory().port({context_->device, attributes_.port});
    port.local_ack_timeouts.fetch_add(1, std::memory_order_relaxed);
  }
  DriveOn(kInlineBudget);
}

void QueuePair::TakeResponse(const rdma::Response& response, const uint8_t* read_data,
                             const std::shared_ptr<Peer>& peer, uint64_t now_ns) {
  if (retired_ || shared_.wedged.load(std::memory_order_acquire) != 0) return;
  if (response.dst_qpn != qpn_ || response.src_qpn != attributes_.dest_qpn) return;
  read_data_ = read_data;
  read_peer_ = peer.get();
  requester_.OnResponse(response, now_ns);
  read_data_ = nullptr;
  read_peer_ = nullptr;
  FollowIntoError();
}

// The requester failed: the responder goes to ERR too. The send lock is held, no responder's.
void QueuePair::FollowIntoError() {
  if (!error_pending_) return;
  error_pending_ = false;
  SegmentEnv env(nic_, &nic_->process().segment(), nic_->process().slot(), index_, {});
  rdma::Responder responder(&shared_.responder,
                            {&shared_.ring, nic_->process().At(shared_.ring_offset)}, &env);
  if (LockRobust(shared_.lock)) responder.Recover();
  shared_.responder.state.store(static_cast<uint8_t>(rdma::QpState::kErr),
                                std::memory_order_release);
  responder.FlushReceives();
  pthread_mutex_unlock(&shared_.lock);
}

void QueuePair::FlushSends() {
  std::lock_guard<std::mutex> lock(send_mutex_);
  if (retired_ || state() != rdma::QpState::kErr || shared_.wedged.load() != 0) return;
  requester_.SetState(rdma::QpState::kErr);
}

void QueuePair::DeviceGone() {
  std::lock_guard<std::mutex> lock(send_mutex_);
  if (retired_ || state() == rdma::QpState::kReset) return;
  requester_.SetState(rdma::QpState::kErr);
  error_pending_ = true;
  FollowIntoError();
}

void QueuePair::MendOrphan() {
  const int rc = pthread_mutex_trylock(&shared_.lock);
  if (rc != 0 && rc != EOWNERDEAD) return;
  if (rc == EOWNERDEAD) {
    pthread_mutex_consistent(&shared_.lock);
    SegmentEnv env(nic_, &nic_->process().segment(), nic_->process().slot(), index_, {});
    rdma::Responder(&shared_.responder, {&shared_.ring, nic_->process().At(shared_.ring_offset)},
                    &env)
        .Recover();
    // It may have died before it said so.
    if (state() == rdma::QpState::kErr) env.EnteredError();
  }
  pthread_mutex_unlock(&shared_.lock);
}

void QueuePair::Settle() {
  std::lock_guard<std::mutex> lock(send_mutex_);
  if (LockRobust(shared_.lock)) {
    SegmentEnv env(nic_, &nic_->process().segment(), nic_->process().slot(), index_, {});
    rdma::Responder(&shared_.responder, {&shared_.ring, nic_->process().At(shared_.ring_offset)},
                    &env)
        .Recover();
  }
  pthread_mutex_unlock(&shared_.lock);
}

void QueuePair::Retire() {
  std::lock_guard<std::mutex> lock(send_mutex_);
  LockRobust(shared_.lock);
  retired_ = true;
  nic_->Schedule(index_, scheduled_ns_, 0);
  shared_.in_use.store(0, std::memory_order_release);
  ResetQueues();
  pthread_mutex_unlock(&shared_.lock);
}

bool QueuePair::LocalAccessAllowed(const rdma::Sge* sges, uint32_t count, bool write) {
  const Segment& segment = nic_->process().segment();
  for (uint32_t i = 0; i < count; ++i) {
    if (sges[i].length == 0) continue;
    rdma::MemoryRegion region;
    const uint32_t need = write ? uint32_t{rdma::kAccessLocalWrite} : 0;
    if (!RegionTable::Find(segment, sges[i].lkey, &region) ||
        !region.Allows(sges[i].lkey, init_.pd, sges[i].addr, sges[i].length, need)) {
      return false;
    }
  }
  return true;
}

bool QueuePair::Gather(const rdma::SendWqe& wqe, uint32_t offset, uint32_t length,
                       std::vector<iovec>* out) {
  out->clear();
  if ((wqe.flags & rdma::kSendInline) != 0) {
    out->push_back({const_cast<uint8_t*>(wqe.inline_data) + offset, length});
    return true;
  }
  const Segment& segment = nic_->process().segment();
  for (uint32_t i = 0; i < wqe.sge_count && length > 0; ++i) {
    const rdma::Sge& sge = wqe.sges[i];
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    rdma::MemoryRegion region;
    if (!RegionTable::Find(segment, sge.lkey, &region)) return false;
    const uint32_t n = std::min(sge.length - offset, length);
    out->push_back({reinterpret_cast<void*>(region.ToVa(sge.addr) + offset), n});
    length -= n;
    offset = 0;
  }
  return length == 0;
}

bool QueuePair::CopyReadData(const rdma::SendWqe& wqe, uint32_t offset, uint64_t remote_va,
                             uint32_t length) {
  std::vector<iovec> pieces;
  read_lost_ = false;
  if (!LocalAccessAllowed(wqe.sges, wqe.sge_count, /*write=*/true) ||
      !Gather(wqe, offset, length, &pieces)) {
    return false;
  }
  if (read_data_ == nullptr) {
    const bool done =
        ReadFromProcess(read_peer_->pid(), pieces.data(), pieces.size(), 0, length, remote_va);
    // What was read counts only if the memory was registered all the while: the responder's process
    // may have died, or taken the key away and used the memory for something else.
    rdma::MemoryRegion region;
    read_lost_ =
        (!done && errno == ESRCH) || !RegionTable::Find(read_peer_->segment(), wqe.rkey, &region);
    return done && !read_lost_;
  }
  uint64_t done = 0;
  for (const iovec& piece : pieces) {  // through the kernel, which survives memory that is gone
    const iovec from = {const_cast<uint8_t*>(read_data_) + done, piece.iov_len};
    if (!WriteToProcess(nic_->process().segment().pid, &from, 1, 0, piece.iov_len,
                        reinterpret_cast<uint64_t>(piece.iov_base))) {
      return false;
    }
    done += piece.iov_len;
  }
  return true;
}

bool QueuePair::StoreAtomicResult(const rdma::SendWqe& wqe, uint64_t original) {
  std::vector<iovec> pieces;
  if (!Gather(wqe, 0, sizeof(original), &pieces) || pieces.size() != 1) return false;
  const iovec from = {&original, sizeof(original)};
  return WriteToProcess(nic_->process().segment().pid, &from, 1, 0, sizeof(original),
                        reinterpret_cast<uint64_t>(pieces[0].iov_base));
}

void QueuePair::CompleteSend(const rdma::Completion& completion) {
  // Whoever sees an error completion finds the queue pair in ERR (IBTA 10.10.3); the receives are
  // flushed a moment later, when no other lock is held (FollowIntoError).
  if (completion.status != rdma::WcStatus::kSuccess) {
    shared_.responder.state.store(static_cast<uint8_t>(rdma::QpState::kErr),
                                  std::memory_order_release);
  }
  init_.send_cq->Push(completion);
}

void QueuePair::SendFailed(rdma::WcStatus status) {
  error_pending_ = true;
  LogRecord record;
  record.device = context_->device;
  record.port = attributes_.port;
  record.qp_order = order();
  record.kind = static_cast<uint32_t>(rdma::LogKind::kQpError);
  record.arg = static_cast<uint64_t>(status);
  nic_->directory().Log(record);
}

void QueuePair::SendQueueDrained() {
  if (attributes_.sqd_notify) context_->events.Put({rdma::AsyncEvent::kSqDrained, init_.user, 0});
}

}  // namespace railhop::fabric
