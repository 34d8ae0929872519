// A queue pair of a simulated NIC: the model's requester and responder, on virtual time.
//
// The two halves do all that a queue pair means; this class owns their memory, asks for timers, and
// moves the bytes. Nothing is sent from inside a call of the program: posting schedules an event,
// as a doorbell does, so programs and NICs take turns in an order that the seed decides. One
// thread.
#ifndef RAILHOP_CC_SIM_QUEUE_PAIR_H_
#define RAILHOP_CC_SIM_QUEUE_PAIR_H_

#include <cstdint>
#include <vector>

#include "cc/rdma_model/fault_judge.h"
#include "cc/rdma_model/qp_attributes.h"
#include "cc/rdma_model/requester.h"
#include "cc/rdma_model/responder.h"
#include "cc/sim/cq.h"
#include "cc/sim/nic.h"
#include "cc/sim/wire.h"

namespace railhop::sim {

struct QpInit {
  rdma::QpType type = rdma::QpType::kRc;
  uint32_t pd = 0;
  uint32_t max_send_wr = 16, max_recv_wr = 16, max_send_sge = 1, max_recv_sge = 1;
  uint32_t max_inline_data = 0;
  bool signal_all = false;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  void* user = nullptr;
};

struct SendRequest {
  uint64_t wr_id = 0;
  rdma::Opcode opcode = rdma::Opcode::kSend;
  uint32_t flags = rdma::kSendSignaled;
  uint32_t imm_data = 0;
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  uint64_t compare_add = 0, swap = 0;
  const rdma::Sge* sges = nullptr;  // with kSendInline: `addr` is where the bytes are now
  uint32_t sge_count = 0;
};

// Told of what concerns a queue pair or its completion queues. Context is.
class QpOwner {
 public:
  virtual ~QpOwner() = default;
  virtual void OnQpEvent(rdma::AsyncEvent event, QueuePair* qp) = 0;
  virtual void OnCqError(Cq* cq) = 0;
};

class QueuePair final : public rdma::RequesterEnv, public rdma::ResponderEnv, public Actor {
 public:
  // All pointers outlive it. Its NIC finds it by its number from now on.
  QueuePair(Shared* shared, Nic* nic, Wire* wire, QpOwner* owner, const QpInit& init);

  // 0 or EINVAL. Without rdma::kAttrState in `mask`, `to` is ignored.
  int Modify(uint32_t mask, rdma::QpState to, const rdma::QpAttributes& attributes);
  // 0; EINVAL: state, opcode, too many or too long pieces; ENOMEM: the queue is full.
  int PostSend(const SendRequest& request);
  int PostReceive(uint64_t wr_id, const rdma::Sge* sges, uint32_t count);
  // Detaches it: nothing of it moves any more. The object stays for events that name it.
  void Retire();
  // The device is gone: all is flushed.
  void DeviceGone();

  rdma::QpState state() const { return static_cast<rdma::QpState>(responder_state_.state.load()); }
  bool sq_draining() const;
  const QpInit& init() const { return init_; }
  const rdma::QpAttributes& attributes() const { return attributes_; }
  uint32_t qpn() const { return qpn_; }
  uint32_t order() const { return order_; }  // on its NIC
  uint32_t id() const { return id_; }        // as in records: from 1
  Nic* nic() const { return nic_; }
  Port* port() const { return nic_->port(attributes_.port); }
  uint32_t pkey() const;
  bool wedged() const { return wedged_; }
  bool retired() const { return retired_; }
  bool dead_after_reset() const { return dead_after_reset_; }
  uint64_t send_backlog() const { return requester_.Backlog(); }
  uint64_t receive_backlog() const { return ring_state_.tail.load() - ring_state_.head.load(); }
  const rdma::Requester& requester() const { return requester_; }

  // --- For Network ---
  rdma::FlowState& flow(rdma::FlowDirection direction) {
    return direction == rdma::FlowDirection::kRequests ? request_flow_ : response_flow_;
  }
  // Copies the train's bytes from local memory; false: they are not there any more.
  bool Gather(const rdma::Train& train, uint8_t* out);
  // Executes a train that has arrived; `bytes` are its payload.
  rdma::Response Take(const rdma::Train& train, const uint8_t* bytes);
  // An answer has arrived; `bytes` are READ data.
  void TakeResponse(const rdma::Response& response, const uint8_t* bytes);
  void DelayTimer(uint64_t departure_ns) { requester_.DelayTimer(departure_ns); }
  void FailSend(rdma::WcStatus status, uint32_t vendor_err);
  void FailReceive(rdma::WcStatus status, uint32_t vendor_err);
  void Wedge() { wedged_ = true; }
  // Where its packets go, cached by whoever finds it.
  struct Route {
    uint64_t generation = 0;  // of the world's addresses; 0: look it up
    Port* to = nullptr;       // null: nowhere
  };
  Route route;

  void OnEvent(uint64_t arg) override;

  // rdma::RequesterEnv
  bool LocalAccessAllowed(const rdma::Sge* sges, uint32_t count, bool write) override;
  bool CopyReadData(const rdma::SendWqe& wqe, uint32_t offset, uint64_t remote_va,
                    uint32_t length) override;
  bool StoreAtomicResult(const rdma::SendWqe& wqe, uint64_t original) override;
  void CompleteSend(const rdma::Completion& completion) override;
  void SendFailed(rdma::WcStatus status) override;
  void SendQueueDrained() override;
  // rdma::ResponderEnv
  const rdma::MemoryRegion* FindRegion(uint32_t key) override { return nic_->FindRegion(key); }
  bool CopyIn(uint64_t va, uint32_t offset, uint32_t length) override;
  bool Atomic(const rdma::Train& train, uint64_t va, uint64_t* original) override;
  bool CompleteReceive(const rdma::Completion& completion, uint64_t token) override;
  bool ReceiveReported(uint64_t) override { return false; }
  void RaiseEvent(rdma::AsyncEvent event) override;
  void EnteredError() override;

 private:
  rdma::Responder MakeResponder() { return {&responder_state_, ring_, this}; }
  void EnterState(rdma::QpState from, rdma::QpState to);
  void ResetQueues();
  void Configure(uint32_t mask);
  void ScheduleDrive(uint64_t when_ns);
  void ScheduleTimer();
  void Drive();
  bool CheckRequest(const SendRequest& request, uint64_t* length) const;
  bool Push(Cq* cq, rdma::Completion completion, uint64_t token);
  // Calls move(piece of local memory, n) for bytes [offset, offset+length) of a scatter list.
  template <typename Move>
  bool ForPieces(const rdma::Sge* sges, uint32_t count, uint32_t offset, uint32_t length,
                 Move move);
  void NoteState(rdma::QpState state);

  Shared* const shared_;
  Nic* const nic_;
  Wire* const wire_;
  QpOwner* const owner_;
  const QpInit init_;
  const uint32_t qpn_;
  const uint32_t order_;
  const uint32_t id_;
  rdma::QpAttributes attributes_;
  rdma::Requester requester_;
  rdma::ResponderState responder_state_{};
  rdma::RecvRingState ring_state_{};
  std::vector<char> ring_bytes_;
  rdma::RecvRing ring_;
  rdma::FlowState request_flow_, response_flow_;
  const uint8_t* payload_ = nullptr;  // of the packet at hand
  uint64_t drive_ns_ = 0;             // earliest drive event under way; 0: none
  uint64_t timer_ns_ = 0;             // earliest timer event under way; 0: none
  bool wedged_ = false;
  bool retired_ = false;
  bool dead_after_reset_ = false;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_QUEUE_PAIR_H_
