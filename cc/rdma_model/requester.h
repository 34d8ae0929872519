// The half of a queue pair that asks: sends requests in order and repeats what nobody acknowledged.
//
// Go-back-N as the InfiniBand specification has it. The send queue is a ring of requests; `head` is
// the oldest that is not acknowledged, the cursor is the next packet to send. An acknowledgement
// moves the head; a timeout or a refusal moves the cursor back. The hard cases: a READ whose answer
// is lost while a later request is acknowledged (that acknowledgement must not complete the READ),
// and a local error behind requests that are still under way (they must complete first).
//
// The requester belongs to one process and one lock. It moves no bytes and sends nothing itself:
// NextTrain() says what to send, OnResponse() takes what came back, and time comes in as an
// argument. Source: IBTA volume 1, chapters 9.7.5 and 9.9.2, 10.3.1.
#ifndef RAILHOP_CC_RDMA_MODEL_REQUESTER_H_
#define RAILHOP_CC_RDMA_MODEL_REQUESTER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/rdma_model/packet.h"
#include "cc/rdma_model/types.h"

namespace railhop::rdma {

struct SendWqe {
  uint64_t wr_id = 0;
  Opcode opcode = Opcode::kSend;
  bool signaled = false;
  bool read_like = false;  // READ or atomic: an answer with data is due
  uint32_t flags = 0;      // SendFlag
  uint32_t imm_data = 0;   // network order
  uint32_t rkey = 0;
  uint64_t remote_addr = 0;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  uint32_t length = 0;  // bytes
  uint32_t sge_count = 0;
  Sge sges[kMaxSge];
  const uint8_t* inline_data = nullptr;  // when kSendInline: `length` bytes kept by the requester
  // Kept by the requester:
  uint32_t first_psn = 0;
  uint32_t psns = 1;         // packet numbers it takes
  uint32_t answered = 0;     // READ: packets of the answer that have arrived
  uint32_t sent_before = 0;  // packets that were sent at least once
  uint64_t message_id = 0;
};

// Settings from ibv_modify_qp. Values as verbs has them.
struct RequesterConfig {
  QpType type = QpType::kRc;
  uint32_t qpn = 0;
  uint32_t dest_qpn = 0;
  uint32_t mtu = 4096;     // bytes
  uint32_t timeout = 0;    // exponent; 0: never
  uint32_t retry_cnt = 0;  // 0..7
  uint32_t rnr_retry = 0;  // 0..7; 7: no limit
  uint32_t max_rd_atomic = 1;
  bool signal_all = false;
  bool seven_is_forever = false;  // provider quirk: retry_cnt 7 never ends
};

class RequesterEnv {
 public:
  virtual ~RequesterEnv() = default;
  // Whether the local memory of a request may be read (or, for `write`, written).
  virtual bool LocalAccessAllowed(const Sge* sges, uint32_t count, bool write) = 0;
  // Copies `length` bytes of READ data from `remote_va` in the responder's memory to byte `offset`
  // of the request's own memory. False: the local memory is not there, or see ReadDataLost().
  virtual bool CopyReadData(const SendWqe& wqe, uint32_t offset, uint64_t remote_va,
                            uint32_t length) = 0;
  // Why CopyReadData failed: the responder or its memory has gone since it answered. The answer
  // counts as lost.
  virtual bool ReadDataLost() const { return false; }
  // Writes an atomic's result to the request's own memory.
  virtual bool StoreAtomicResult(const SendWqe& wqe, uint64_t original) = 0;
  virtual void CompleteSend(const Completion& completion) = 0;
  // The queue pair goes to ERR because a request failed; the receive side is to follow.
  virtual void SendFailed(WcStatus status) = 0;
  virtual void SendQueueDrained() = 0;
};

class Requester {
 public:
  explicit Requester(RequesterEnv* env) : env_(env) {}

  // Makes room for `depth` requests with up to `max_inline` bytes of inline data each. Drops what
  // there was.
  void Allocate(uint32_t depth, uint32_t max_inline);
  void Configure(const RequesterConfig& config) { config_ = config; }
  const RequesterConfig& config() const { return config_; }
  // Retries without end what is not acknowledged.
  bool NeverGivesUp() const { return config_.seven_is_forever && config_.retry_cnt == 7; }
  // Back to an empty queue without completions (RESET); next packet number `psn`.
  void Reset();
  void SetNextPsn(uint32_t psn);

  // Posting: fill *Reserve() (null: the queue is full), then Commit(). `inline_buffer` holds
  // max_inline bytes.
  SendWqe* Reserve();
  uint8_t* InlineBuffer(const SendWqe* wqe);
  void Commit();
  // Takes back the newest `count` requests, of which nothing has been sent.
  void TakeBack(uint32_t count);
  // Requests in the queue.
  uint64_t Backlog() const { return tail_ - head_; }

  void SetState(QpState state);
  QpState state() const { return state_; }

  // The next packets to send, at most `max_packets` of one message. False: nothing to send at this
  // time.
  bool NextTrain(uint64_t now_ns, uint32_t max_packets, Train* train);
  // The request that `train` belongs to; null when it was completed since.
  const SendWqe* WqeOf(const Train& train) const;
  // To be called when the bytes of `train` have left: completes UC requests.
  void AfterSend(const Train& train);

  void OnResponse(const Response& response, uint64_t now_ns);

  // When OnDeadline is due; 0: nothing is.
  uint64_t deadline_ns() const;
  void OnDeadline(uint64_t now_ns);

  // The packet last sent leaves only at `departure_ns`: its acknowledgement is due that much later.
  void DelayTimer(uint64_t departure_ns);

  // Ends the oldest request with `status` and flushes the rest. With an empty queue only the state
  // changes.
  void Fail(WcStatus status, uint32_t vendor_err = 0);
  // Flushes everything (the queue pair was moved to ERR).
  void Flush();

  // Stretches timeouts: 1,000,000 is real time.
  void set_time_scale_ppm(uint64_t ppm) { time_scale_ppm_ = ppm; }
  uint64_t timeouts() const { return timeouts_; }
  uint64_t retransmitted() const { return retransmitted_; }
  // Whether there are packets that were not sent, or are to be sent again.
  bool HasUnsent() const { return cursor_ < tail_; }
  // Packets sent and not yet acknowledged.
  uint32_t Outstanding() const;

 private:
  SendWqe& At(uint64_t index) { return ring_[index % ring_.size()]; }
  const SendWqe& At(uint64_t index) const { return ring_[index % ring_.size()]; }
  bool HasUnacked() const {
    return head_ < cursor_ || (head_ < tail_ && cursor_ == head_ && cursor_packet_ > 0);
  }
  // Whether the cursor stands at `psn`: it went back there and has sent nothing since.
  bool CursorAt(uint32_t psn) const;
  bool MayStart(const SendWqe& wqe) const;
  uint32_t ReadsUnderWay() const;
  uint32_t OldestPsn() const;
  Train MakeTrain(SendWqe& wqe, uint32_t max_packets);
  void Acknowledge(uint32_t psn, uint64_t now_ns);
  void OnReadData(const Response& response, uint64_t now_ns);
  void OnAtomicResult(const Response& response, uint64_t now_ns);
  bool RetireBefore(uint32_t psn, uint64_t now_ns);
  void RetireHead();
  void Progress(uint64_t now_ns);
  void GoBackTo(uint32_t psn);
  void Retry(uint32_t psn, uint64_t now_ns);
  void ImpliedNak(uint64_t now_ns);
  void ArmTimer(uint64_t now_ns);
  void Report(const SendWqe& wqe, WcStatus status, uint32_t vendor_err);
  void CheckDrained();
  uint64_t Scaled(uint64_t ns) const {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(ns) * time_scale_ppm_ / 1'000'000);
  }

  RequesterEnv* env_;
  RequesterConfig config_;
  std::vector<SendWqe> ring_;
  std::unique_ptr<uint8_t[]> inline_;
  uint32_t max_inline_ = 0;
  QpState state_ = QpState::kReset;
  uint64_t head_ = 0;           // oldest request not acknowledged
  uint64_t tail_ = 0;           // one past the newest posted
  uint64_t cursor_ = 0;         // request of the next packet to send
  uint32_t cursor_packet_ = 0;  // its index in that request
  uint32_t next_psn_ = 0;       // of the next request to be posted
  uint32_t acked_in_head_ = 0;  // packets of the head request that are acknowledged
  uint32_t sent_end_psn_ = 0;   // one past the last packet number that was ever sent
  uint32_t retries_ = 0;        // used since the last progress
  uint32_t rnr_retries_ = 0;
  uint64_t timer_ns_ = 0;      // acknowledgement is due; 0: not armed
  uint64_t rnr_until_ns_ = 0;  // nothing is sent before
  uint64_t next_message_ = 0;
  uint64_t time_scale_ppm_ = 1'000'000;
  uint64_t timeouts_ = 0;
  uint64_t retransmitted_ = 0;
  bool drain_reported_ = false;
  bool implied_nak_ = false;  // an answer was found missing and asked for again; the timer is next
};

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_REQUESTER_H_
