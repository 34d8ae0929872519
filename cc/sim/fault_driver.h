// Puts faults into the world: takes the same words as the fabric, carries out what falls due.
//
// Faults that hit packets are found by Network, those that hit calls by Context; this class has the
// rest: links, addresses, devices, events. Time is virtual, so `flap every 10s for 1h` costs
// nothing. One thread.
#ifndef RAILHOP_CC_SIM_FAULT_DRIVER_H_
#define RAILHOP_CC_SIM_FAULT_DRIVER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cc/rdma_model/fault_grammar.h"
#include "cc/sim/context.h"
#include "cc/sim/network.h"
#include "cc/sim/nic.h"

namespace railhop::sim {

class FaultDriver final : public FaultSink, public Actor {
 public:
  // `ports` are all ports of the world, by index.
  FaultDriver(Shared* shared, Network* network, std::vector<Port*> ports);

  // Sets one fault on a port, now. False: its table is full.
  bool Apply(Port* port, const rdma::FaultSpec& spec);
  // Ends all faults of the world: what had an end is undone; what had none stays (a port that went
  // down without `for` stays down).
  void ClearAll();

  // How often what kind of fault was set.
  uint64_t applied() const { return applied_; }

  void OnEvent(uint64_t arg) override;

  // FaultSink
  void ActionsDue(Port* port, uint64_t when_ns) override;
  void Watch(Port* port) override { Look(port); }
  void KillHost(Host* host) override;
  // Whom KillHost tells, once for each host.
  std::vector<Host*> killed;

 private:
  struct Pending {
    Port* port;
    rdma::AsyncEvent event;
    uint32_t qp_plus_1;
  };
  void Run(Port* port);
  void Look(Port* port);
  void SendEvent(Port* port, const rdma::FaultAction& action, rdma::AsyncEvent event);
  void Deliver(const Pending& pending);

  Shared* const shared_;
  Network* const network_;
  const std::vector<Port*> ports_;
  std::vector<Pending> pending_;  // events on their way to programs
  uint64_t applied_ = 0;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_FAULT_DRIVER_H_
