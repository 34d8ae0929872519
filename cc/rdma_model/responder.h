// The half of a queue pair that answers: executes request packets in order, once each.
//
// It keeps the next expected packet number (PSN). A packet that comes early is refused once with
// that number; one that came before is a duplicate, acknowledged again but never executed again (a
// READ is answered again). The hard case is a run of packets that is part duplicate, part new: the
// front is cut off.
//
// State is plain data so that it can lie in memory shared between processes. The caller serialises
// calls for one queue pair (a robust lock in the fabric); if a caller dies inside, the next one
// calls Recover(). Source: IBTA volume 1, chapter 9.7 (reliable service) and 9.8 (unreliable
// service).
#ifndef RAILHOP_CC_RDMA_MODEL_RESPONDER_H_
#define RAILHOP_CC_RDMA_MODEL_RESPONDER_H_

#include <atomic>
#include <cstdint>

#include "cc/rdma_model/memory_region.h"
#include "cc/rdma_model/packet.h"
#include "cc/rdma_model/types.h"

namespace railhop::rdma {

// A posted receive; `max_sge` Sge entries follow it in the ring.
struct RecvWqe {
  uint64_t wr_id;
  uint32_t sge_count;
  uint32_t pad;
  const Sge* sges() const { return reinterpret_cast<const Sge*>(this + 1); }
  Sge* sges() { return reinterpret_cast<Sge*>(this + 1); }
};

// The receive queue: the owner appends at `tail`, the responder takes at `head`.
struct RecvRingState {
  std::atomic<uint64_t> head;
  std::atomic<uint64_t> tail;
  uint32_t capacity;
  uint32_t max_sge;
};

constexpr uint64_t RecvWqeBytes(uint32_t max_sge) {
  return sizeof(RecvWqe) + max_sge * sizeof(Sge);
}

class RecvRing {
 public:
  RecvRing(RecvRingState* state, void* entries)
      : state_(state), base_(static_cast<char*>(entries)) {}
  bool Empty() const {
    return state_->head.load(std::memory_order_relaxed) ==
           state_->tail.load(std::memory_order_acquire);
  }
  bool Full() const {
    return state_->tail.load(std::memory_order_relaxed) -
               state_->head.load(std::memory_order_acquire) >=
           state_->capacity;
  }
  RecvWqe* At(uint64_t index) const {
    return reinterpret_cast<RecvWqe*>(base_ +
                                      (index % state_->capacity) * RecvWqeBytes(state_->max_sge));
  }
  RecvWqe* Front() const { return At(head()); }
  uint64_t head() const { return state_->head.load(std::memory_order_relaxed); }
  void Pop() { state_->head.store(head() + 1, std::memory_order_release); }
  // For the owner: the entry to fill, and its publication.
  RecvWqe* Back() const { return At(state_->tail.load(std::memory_order_relaxed)); }
  void Publish() { state_->tail.fetch_add(1, std::memory_order_release); }
  void Clear() {
    state_->head.store(state_->tail.load(std::memory_order_relaxed), std::memory_order_release);
  }
  RecvRingState* state() const { return state_; }

 private:
  RecvRingState* state_;
  char* base_;
};

inline constexpr int kAtomicReplays =
    16;  // answers kept for repeated atomics; the cap of max_rd_atomic

// All that a responder remembers. Zero is a queue pair in RESET.
struct ResponderState {
  std::atomic<uint8_t> state;  // QpState; written under the responder's lock, read by anybody
  QpType type;
  bool nak_sent;      // an early packet was refused; silent until the expected one comes
  bool message_open;  // between the first and the last packet of a SEND or WRITE
  Opcode open_opcode;
  uint8_t min_rnr_timer;
  bool comm_established;
  bool unwritten;  // a fault: nothing of what is acknowledged reaches memory any more
  uint32_t qpn;
  uint32_t dest_qpn;
  uint32_t access;  // qp_access_flags
  uint32_t pd;
  uint32_t expected_psn;
  uint32_t mtu;  // bytes
  uint32_t open_rkey;
  uint64_t open_addr;    // of the open WRITE's first byte
  uint32_t open_length;  // RETH length of the open WRITE
  uint32_t open_offset;  // bytes of the open message executed so far
  uint32_t atomic_next;
  struct Replay {
    uint32_t psn;
    uint32_t valid;
    uint64_t original;
  } replays[kAtomicReplays];
};

// What a responder needs from the world around it.
class ResponderEnv {
 public:
  virtual ~ResponderEnv() = default;
  // The region of the responder's process with this key, or null.
  virtual const MemoryRegion* FindRegion(uint32_t key) = 0;
  // Copies payload bytes [offset, offset+length) of the train that OnTrain was given (also where
  // its front was cut off as a duplicate) to `va` in the responder's process. False: the memory is
  // not there any more.
  virtual bool CopyIn(uint64_t va, uint32_t offset, uint32_t length) = 0;
  // Reads, changes and writes the 8 bytes at `va` as one step towards other atomics of the device.
  virtual bool Atomic(const Train& train, uint64_t va, uint64_t* original) = 0;
  // Reports a receive. `token` identifies the receive in its queue. False: no room (the queue is
  // broken).
  virtual bool CompleteReceive(const Completion& completion, uint64_t token) = 0;
  virtual bool ReceiveReported(uint64_t token) = 0;
  virtual void RaiseEvent(AsyncEvent event) = 0;
  // The queue pair went to ERR: its send queue, which is another thread's, is to be flushed.
  virtual void EnteredError() = 0;
};

class Responder {
 public:
  Responder(ResponderState* state, RecvRing ring, ResponderEnv* env)
      : s_(state), ring_(ring), env_(env) {}

  // Executes what can be executed of `train` and says what goes back to the requester.
  Response OnTrain(Train train);

  // To ERR: receives are flushed, in order. `event` is raised unless it is kCommEst (used as
  // "none").
  void EnterError(AsyncEvent event);

  // The oldest receive, if there is one, completes with `status`, and the queue pair goes to ERR.
  void FailFront(WcStatus status, uint32_t vendor_err);

  // Flushes receives that were posted after the queue pair went to ERR.
  void FlushReceives();

  // Makes the state whole after a caller died inside one of the calls above.
  void Recover();

 private:
  Response Execute(const Train& train);
  Response ExecuteWrite(const Train& train);
  Response ExecuteSend(const Train& train);
  Response ExecuteRead(const Train& train);
  Response ExecuteAtomic(const Train& train);
  Response Duplicate(const Train& train);
  Response OnUcTrain(Train train);
  bool OpenMessage(const Train& train);
  bool ContinuesMessage(const Train& train) const;
  // Whether the queue pair takes such requests at all: if not, they are invalid, whatever their key
  // (Linux's rxe answers the same).
  bool Enabled(Access access) const { return (s_->access & access) != 0; }
  bool WriteAllowed(const Train& train);
  bool WritePayload(const Train& train, uint32_t bytes);
  WcStatus Scatter(const Train& train, const RecvWqe& wqe);
  bool ReportReceive(const Train& train, WcOpcode opcode);
  Response FailReceive(WcStatus status, ResponseKind kind, const Train& train);
  Response Nak(ResponseKind kind, const Train& train);
  Response NotReady();
  Response Ack(uint32_t psn) const;
  Response Reply(ResponseKind kind, uint32_t psn) const;

  ResponderState* s_;
  RecvRing ring_;
  ResponderEnv* env_;
  uint32_t payload_skip_ = 0;  // bytes of the train at hand that were executed before
};

// A token for a receive: unique per queue pair and position in its receive queue.
constexpr uint64_t ReceiveToken(uint32_t qpn, uint64_t index) {
  return (uint64_t{qpn} << 40) | (index & 0xffffffffff);
}

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_RESPONDER_H_
