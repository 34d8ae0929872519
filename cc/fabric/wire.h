// Carries packets from a queue pair to its peer and the answers back, past the faults of both
// ports.
//
// Without faults a train is executed on the spot by the posting thread: the bytes go from the
// requester's memory to the responder's in one system call. With a delay, a cap, or a packet that
// is held, the bytes are copied first, as a packet's content is fixed when it leaves, and the NIC
// thread delivers them when they are due, whatever has become of the requester by then.
#ifndef RAILHOP_CC_FABRIC_WIRE_H_
#define RAILHOP_CC_FABRIC_WIRE_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cc/fabric/directory.h"
#include "cc/fabric/process.h"
#include "cc/fabric/responder_env.h"
#include "cc/rdma_model/fault_judge.h"
#include "cc/rdma_model/packet.h"

namespace railhop::fabric {

class Nic;
class QueuePair;

class Wire {
 public:
  explicit Wire(Nic* nic) : nic_(nic) {}

  // Sends one train of `qp` and hands it the answer, if one comes at once. Caller holds the queue
  // pair's send lock.
  void Send(QueuePair& qp, rdma::Train train, uint64_t now_ns);

  // Delivers what is due; when to come back (ns; ~0: nothing is under way). NIC thread, no locks
  // held.
  uint64_t RunDue(uint64_t now_ns);

  // The most packets that a train from this port may have, so that caps and delays act smoothly.
  uint32_t MaxTrain(const QueuePair& qp) const;

 private:
  // Where a packet is between.
  struct Hop {
    PortRef from, to;
    std::shared_ptr<Peer> peer;  // the responder's process
    uint32_t peer_qp = 0;
    uint32_t pkey = 0xffff;  // that the requester's packets carry
  };
  // A packet under way with a delay, or held.
  struct Carried {
    bool is_response = false;
    rdma::Train train;
    rdma::Response response;
    std::vector<uint8_t> bytes;
    std::shared_ptr<QueuePair> qp;  // the requester
    Hop hop;
    uint64_t due_ns = 0;  // of one that waits for others to go first
    uint32_t reorder_left = 0;
    const rdma::FaultTable* hold_table = nullptr;
    uint64_t hold_ticket = 0;
  };

  bool Resolve(QueuePair& qp, Hop* hop);
  bool LinksUp(const Hop& hop) const;
  void SendPiece(QueuePair& qp, const rdma::Train& piece, const rdma::Verdict& verdict,
                 const Hop& hop, uint64_t now_ns);
  void Deliver(QueuePair& qp, const rdma::Train& piece, Payload payload, const Hop& hop,
               uint64_t now_ns);
  rdma::Response Execute(const rdma::Train& train, Payload payload, const Hop& hop);
  void Return(QueuePair& qp, rdma::Response response, const Hop& hop, uint64_t now_ns);
  void ReturnPiece(QueuePair& qp, const rdma::Response& piece, const rdma::Verdict& verdict,
                   const Hop& hop, uint64_t now_ns);
  static bool IsPeerOf(const QueuePair& qp, const QpShared& target);
  bool ActOnFate(QueuePair& qp, const rdma::Verdict& verdict, const Hop& hop);
  void RunActions(const rdma::Verdict& verdict, PortRef tx, PortRef rx);
  uint64_t DueTime(const rdma::Verdict& verdict, PortEntry& tx, PortEntry& rx, uint64_t bytes,
                   uint64_t now_ns);
  void Carry(Carried carried, const rdma::Verdict& verdict, PortRef tx, PortRef rx,
             uint64_t now_ns);
  void DeliverCarried(Carried& carried, bool send_locked, uint64_t now_ns);
  void PassReordered(QueuePair& qp, uint64_t now_ns);
  void LogVerdict(const QueuePair& qp, const rdma::Verdict& verdict, PortRef port, uint32_t psn,
                  uint64_t message);

  Nic* const nic_;
  std::mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, Carried> due_;  // by time and order
  std::list<Carried> waiting_;                            // held, or to be overtaken first
  std::atomic<bool> any_waiting_{false};                  // written under mutex_
  uint64_t next_order_ = 0;
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_WIRE_H_
