// Carries packets between ports: routes, wire time, and whatever the faults of both ports do.
//
// A packet's bytes are copied when it leaves, so what lands is what was sent, whatever has become
// of the sender since; a packet that is held or late lands long after its sender has given up.
// Packets from one port to another keep their order unless a fault says otherwise. One thread.
#ifndef RAILHOP_CC_SIM_NETWORK_H_
#define RAILHOP_CC_SIM_NETWORK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/rdma_model/fault_judge.h"
#include "cc/rdma_model/packet.h"
#include "cc/rdma_model/topology.h"
#include "cc/sim/nic.h"
#include "cc/sim/queue_pair.h"
#include "cc/sim/wire.h"

namespace railhop::sim {

// What a verdict asks of the world beyond the packet.
class FaultSink {
 public:
  virtual ~FaultSink() = default;
  // Steps of this port's faults are due; carry them out at `when_ns`.
  virtual void ActionsDue(Port* port, uint64_t when_ns) = 0;
  // This port holds packets from now on: look when that ends.
  virtual void Watch(Port* port) = 0;
  virtual void KillHost(Host* host) = 0;
};

class Network final : public Wire, public Actor {
 public:
  // `topology` outlives it; `ports` are all ports of the world, by index.
  Network(Shared* shared, const rdma::Topology* topology, std::vector<Port*> ports);
  void set_fault_sink(FaultSink* sink) { sink_ = sink; }

  void Send(QueuePair& qp, const rdma::Train& train) override;
  uint64_t ReadyAt(QueuePair& qp) override;

  // Faults of this port were changed: held packets may go.
  void ReleaseHeld();

  uint64_t packets_under_way() const { return under_way_; }

  void OnEvent(uint64_t arg) override;

 private:
  // A packet, or a run of packets with one fate, under way.
  struct Flight {
    bool is_response = false;
    rdma::Train train;
    rdma::Response response;
    std::unique_ptr<uint8_t[]> bytes;
    size_t capacity = 0;
    size_t size = 0;
    Port* from = nullptr;
    Port* to = nullptr;
    uint32_t pkey = 0;
    const rdma::FlowState* flow = nullptr;  // names the flow only
    uint64_t reorder_left = 0;              // packets that have to go first; 0: none
    const rdma::FaultTable* held_by = nullptr;
    uint64_t ticket = 0;
    uint32_t use = 0;  // counts the uses of this slot
  };
  struct Hop {
    Port* from;
    Port* to;
    rdma::FlowState* flow;
  };

  Port* RouteOf(QueuePair& qp);
  Port* FindByGid(const Port& from, const rdma::QpAttributes& a) const;
  Port* FindByLid(const Port& from, uint32_t lid) const;
  bool Reachable(const Port& from, const Port& to, const rdma::TopologyGid& gid) const;
  void SendPiece(QueuePair& qp, rdma::Train piece, const rdma::Verdict& verdict, const Hop& hop);
  void SendResponse(const rdma::Response& response, QueuePair& responder);
  void SendResponseTrain(rdma::Response train, const Hop& hop, uint32_t pkey);
  void SendResponsePiece(const rdma::Response& piece, const rdma::Verdict& verdict, const Hop& hop,
                         uint32_t pkey);
  bool ActOnFate(const rdma::Verdict& verdict, QueuePair* requester, QueuePair* responder);
  void AfterVerdict(const rdma::Verdict& verdict, const Hop& hop, uint64_t arrival_ns);
  // Starts flight `index`; when it (or its last copy) arrives, as far as that is known.
  uint64_t Launch(uint32_t index, const rdma::Verdict& verdict, const Hop& hop, uint32_t packets,
                  QueuePair* sender);
  void PassReordered(const rdma::FlowState* flow, uint32_t packets, uint64_t arrival_ns);
  void Schedule(uint32_t index, uint64_t when_ns);
  void Arrive(uint32_t index);
  uint32_t NewFlight(size_t bytes);
  void FreeFlight(uint32_t index);
  void Lose(LossReason reason, const Port* port, uint32_t psn, uint32_t count);

  Shared* const shared_;
  const rdma::Topology* const topology_;
  const std::vector<Port*> ports_;
  FaultSink* sink_ = nullptr;
  std::vector<uint64_t> last_arrival_;  // from port * ports + to port
  std::vector<Flight> flights_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> held_;
  std::vector<uint32_t> reordered_;  // to be overtaken first
  uint64_t under_way_ = 0;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_NETWORK_H_
