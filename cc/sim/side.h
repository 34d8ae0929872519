// One end of a simulated conversation: a program that posts, polls and judges what it sees.
//
// It stands where a user of the NIC stands: it knows what was asked for and sees completions and
// bytes, nothing of packets or states inside. It checks that a reliable transfer that was reported
// complete has arrived once, whole, in order and with its true size; that nothing is reported
// before the bytes are there; that an error ends a queue pair and all that is behind it, in order;
// and that no request is ever lost. After a transfer is done its buffers are used for something
// else at once, so a packet that is executed late or twice is seen as a wrong byte.
#ifndef RAILHOP_CC_SIM_SIDE_H_
#define RAILHOP_CC_SIM_SIDE_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "cc/sim/cq.h"
#include "cc/sim/endpoint.h"
#include "cc/sim/memory.h"
#include "cc/sim/transfer.h"

namespace railhop::sim {

class Side final : public Actor, public CqListener {
 public:
  Side(World* world, Memory* memory, const SidePlan& plan, std::string name,
       Violations* violations);

  // Opens the NIC and makes buffers and keys. False: a fault was in the way.
  bool Open(Nic* nic, const EndpointOptions& options);
  // `control` gets an event when this side breaks.
  void Meet(Side* peer, Actor* control) {
    peer_ = peer;
    control_ = control;
  }
  // Makes the buffers of what is planned, here and at the peer, once both are open. False: a fault
  // was in the way.
  bool MakeTransfers();
  // Connected: starts posting.
  void Start();

  // Something has failed here: the conversation has to be fenced at both ends.
  bool broken() const { return broken_; }
  // All that was planned has been posted and has ended, well or not.
  bool Finished() const { return next_ == transfers_.size() && posted_.empty(); }
  bool HasMore() const { return next_ < transfers_.size(); }
  bool dead() const { return !endpoint_.context->nic()->host()->alive; }

  // Moves the queue pair to ERR and takes what is left in its queues: nothing of this incarnation
  // lands in memory any more. Checks that no request was lost.
  void Fence();
  // A queue pair that cannot be used again is destroyed and made anew. False: that failed.
  bool Renew(const EndpointOptions& options);
  // At the end: what must not have changed since has not.
  void CheckAtEnd();

  const Endpoint& endpoint() const { return endpoint_; }
  uint64_t completed() const { return completed_; }
  uint64_t failed() const { return failed_; }
  uint64_t bytes() const { return bytes_; }

  void OnEvent(uint64_t arg) override;              // the program's turn
  void OnCompletion(Cq* cq, bool notify) override;  // wakes it soon

 private:
  void Wake(uint64_t when_ns);
  void Poll();
  void PostSends();
  void PostReceives();
  bool PostOne(uint32_t index);
  void OnSent(const rdma::Completion& c);
  void OnReceived(const rdma::Completion& c);
  void Break();
  // The READ whose bytes a relay passes on; null: not a relay, or that READ failed.
  Transfer* RelayedBy(const Transfer& t);
  void DrainForAWhile();
  bool Register(const Buffer& buffer, uint32_t access, uint32_t* key);
  bool MakeTransfer(Transfer* t);
  void Succeed(Transfer* t);
  void Fail(Transfer* t, rdma::WcStatus status);
  void CheckHolds(const Transfer& t, const Buffer& buffer, const char* when);
  void CheckAtomic(const Transfer& t);
  void CheckReceive(const rdma::Completion& c, Transfer* t, const ReceiveSlot& slot);
  void GiveUpTargets();
  void CheckOwed();
  uint64_t NewPattern() { return prng_.Next() | 1; }
  void Complain(const Transfer& t, const std::string& what);
  void Complain(const std::string& what);
  bool reliable() const { return plan_.type == rdma::QpType::kRc; }
  // The peer's transfer that a receive completion reports; null: none fits.
  Transfer* Match(const rdma::Completion& c);

  World* const world_;
  Memory* const memory_;
  const SidePlan plan_;
  const std::string name_;
  Violations* const violations_;
  Prng prng_;
  Side* peer_ = nullptr;
  Actor* control_ = nullptr;
  Endpoint endpoint_;
  std::vector<Transfer> transfers_;  // that this side starts
  std::vector<ReceiveSlot> slots_;   // receives of this incarnation, by wr_id
  std::deque<uint32_t> posted_;      // transfers that are not reported yet, in order
  std::deque<uint32_t> consuming_;   // those among all posted that will take a receive of the peer
  std::deque<uint32_t> receives_;    // slots that are posted, in order
  Buffer counters_;                  // for the peer's atomics: fetch-add and compare-swap
  uint32_t counters_key_ = 0;
  uint64_t adds_ = 0, swaps_ = 0;         // what the next atomics must find
  uint32_t next_ = 0;                     // transfer to post next
  std::vector<uint32_t> peer_consuming_;  // the peer's transfers that take a receive
  uint32_t next_receive_ = 0;             // index in it of the next that a receive is posted for
  uint32_t incarnation_ = 0;
  uint64_t wake_ns_ = 0;
  uint64_t drained_until_ns_ = 0;  // in SQD until then; 0: not
  bool broken_ = false;
  bool fencing_ = false;  // this side moves the queue pair to ERR itself
  bool running_ = false;
  bool saw_error_ = false;
  bool in_turn_ = false;
  bool turn_missed_ = false;
  bool receives_unknown_ = false;  // completions may be lost for good: wedged, dead, broken queue
  uint64_t completed_ = 0, failed_ = 0, bytes_ = 0;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_SIDE_H_
