// A queue pair of this process: the model's requester, the shared responder, and the path between
// them.
//
// Lock order: send_mutex_, then the responder lock of any process, then a completion queue's locks.
// Whoever holds a responder's lock takes no send lock, so requesters of two processes may execute
// in each other at the same time. The hard case is a queue pair that a peer's packet moved to ERR:
// the peer may only mark it, and this process's NIC thread flushes the send queue.
#ifndef RAILHOP_CC_FABRIC_QUEUE_PAIR_H_
#define RAILHOP_CC_FABRIC_QUEUE_PAIR_H_

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cc/fabric/completion.h"
#include "cc/fabric/context.h"
#include "cc/fabric/process.h"
#include "cc/rdma_model/fault_judge.h"
#include "cc/rdma_model/requester.h"
#include "cc/rdma_model/responder.h"

namespace railhop::fabric {

class Nic;

// What the receive ring of such a queue pair takes in the segment's heap.
inline uint64_t ReceiveRingBytes(uint32_t max_recv_wr, uint32_t max_recv_sge) {
  return (uint64_t{max_recv_wr} + 1) * rdma::RecvWqeBytes(max_recv_sge);
}

struct QpInit {
  rdma::QpType type = rdma::QpType::kRc;
  uint32_t pd = 0;
  uint32_t max_send_wr = 1, max_recv_wr = 1, max_send_sge = 1, max_recv_sge = 1,
           max_inline_data = 0;
  bool signal_all = false;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  void* user = nullptr;  // comes back in asynchronous events
};

// The attributes of ibv_modify_qp that mean something here. Values as verbs has them.
struct QpAttributes {
  uint32_t pkey_index = 0, port = 1, access = 0;
  uint32_t path_mtu = 0;  // code
  uint32_t dest_qpn = 0, rq_psn = 0, sq_psn = 0;
  uint32_t timeout = 0, retry_cnt = 0, rnr_retry = 0, min_rnr_timer = 0;
  uint32_t max_rd_atomic = 0, max_dest_rd_atomic = 0;
  bool is_global = false;
  rdma::Gid dgid;
  uint32_t sgid_index = 0, dlid = 0, service_level = 0, traffic_class = 0;
  rdma::QpState current = rdma::QpState::kReset;  // cur_qp_state, when in the mask
  bool sqd_notify = false;
};

// Where packets of a queue pair go at present.
struct WirePath {
  std::shared_ptr<Peer> peer;  // null: nowhere
  uint32_t qp_index = 0;       // in the peer's segment
  PortRef to;
  uint32_t gid_generation = 0;
};

class QueuePair final : public rdma::RequesterEnv, public std::enable_shared_from_this<QueuePair> {
 public:
  // Use Nic::CreateQp and Nic::DestroyQp.
  QueuePair(Nic* nic, Context* context, const QpInit& init, uint32_t index, uint32_t qpn,
            uint32_t order);
  ~QueuePair() override;

  // ibv_modify_qp: `mask` has the bits of rdma::QpAttr. Returns 0 or an errno: EINVAL (transition,
  // attribute or value not allowed), ENODEV (port), EIO (device gone).
  int Modify(uint32_t mask, rdma::QpState to, const QpAttributes& attributes);
  rdma::QpState state() const;

  // Posting requests: BeginPost, then for each request Reserve (null: ENOMEM, the queue is full),
  // fill, Commit; EndPost sends. BeginPost returns EINVAL in a state that takes no requests, and
  // then holds nothing. AbandonPost takes back all that was committed since BeginPost. The queue is
  // locked from BeginPost to EndPost/AbandonPost.
  int BeginPost();
  rdma::SendWqe* Reserve() { return requester_.Reserve(); }
  uint8_t* InlineBuffer(const rdma::SendWqe* wqe) { return requester_.InlineBuffer(wqe); }
  void Commit();
  void EndPost();
  void AbandonPost();

  // Posts a receive. 0, EINVAL (state, too many SGEs) or ENOMEM (full).
  int PostReceive(uint64_t wr_id, const rdma::Sge* sges, uint32_t count);

  uint32_t qpn() const { return qpn_; }
  uint32_t index() const { return index_; }
  uint32_t order() const { return shared_.qp_order; }
  const QpInit& init() const { return init_; }
  Context* context() const { return context_; }
  void* user() const { return init_.user; }

  // --- For the NIC ---
  // Sends up to `budget` bytes of what is queued; true if more could be sent at once. Schedules its
  // own timer.
  bool Drive(uint64_t budget);
  void OnTimer(uint64_t deadline_ns, uint64_t now_ns);  // the timer set to `deadline_ns` went off
  void FlushSends();                                    // after the responder went to ERR
  void DeviceGone();                                    // all is flushed
  // Makes the responder whole if a peer died in it. Does not wait for a peer that is at work in it.
  void MendOrphan();
  // Waits until no call that began before is moving bytes for this queue pair, in either direction.
  void Settle();
  // Empties and detaches it; nothing of it moves any more when this returns.
  void Retire();

  // rdma::RequesterEnv
  bool LocalAccessAllowed(const rdma::Sge* sges, uint32_t count, bool write) override;
  bool CopyReadData(const rdma::SendWqe& wqe, uint32_t offset, uint64_t remote_va,
                    uint32_t length) override;
  bool ReadDataLost() const override { return read_lost_; }
  bool StoreAtomicResult(const rdma::SendWqe& wqe, uint64_t original) override;
  void CompleteSend(const rdma::Completion& completion) override;
  void SendFailed(rdma::WcStatus status) override;
  void SendQueueDrained() override;

 private:
  friend class Wire;
  int CheckModify(uint32_t mask, rdma::QpState from, rdma::QpState to,
                  const QpAttributes& attributes) const;
  void ApplyAttributes(uint32_t mask, const QpAttributes& attributes);
  void EnterState(rdma::QpState from, rdma::QpState to);
  void ResetQueues();
  // With send_mutex_ held:
  bool DriveLocked(uint64_t budget);
  // The same; the NIC thread goes on with what is left.
  void DriveOn(uint64_t budget);
  void TakeResponse(const rdma::Response& response, const uint8_t* read_data,
                    const std::shared_ptr<Peer>& peer, uint64_t now_ns);
  void FollowIntoError();
  bool HasRoom(const rdma::RecvRing& ring) const;
  void ScheduleTimer();
  // The local memory of bytes [offset, offset+length) of a request; false if a key is gone.
  bool Gather(const rdma::SendWqe& wqe, uint32_t offset, uint32_t length, std::vector<iovec>* out);

  Nic* const nic_;
  Context* const context_;
  const QpInit init_;
  const uint32_t index_;
  const uint32_t qpn_;
  QpShared& shared_;
  std::mutex recv_mutex_;  // serialises the producers of the receive ring
  std::mutex send_mutex_;  // guards all below
  rdma::Requester requester_;
  QpAttributes attributes_;
  WirePath path_;
  rdma::FlowState request_flow_, response_flow_;
  std::vector<iovec> iovecs_;           // scratch of Gather
  const uint8_t* read_data_ = nullptr;  // READ data that was carried with a delayed answer
  const Peer* read_peer_ = nullptr;     // else: where to read it
  bool read_lost_ = false;              // READ data could not be read there any more
  uint64_t carried_bytes_ = 0;          // of its packets that are under way with a delay
  uint32_t committed_ = 0;              // requests since BeginPost
  uint64_t scheduled_ns_ = 0;           // what its timer is set to; 0: to no time
  bool backlogged_ = false;             // the NIC thread will go on sending
  bool error_pending_ = false;          // the requester failed; the receive side is to follow
  bool retired_ = false;
  bool dead_after_reset_ = false;  // provider quirk: it looks alive and never works again
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_QUEUE_PAIR_H_
