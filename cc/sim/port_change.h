// What a step of a fault does to a port: links, addresses, rates, the device itself.
#ifndef RAILHOP_CC_SIM_PORT_CHANGE_H_
#define RAILHOP_CC_SIM_PORT_CHANGE_H_

#include <optional>

#include "cc/rdma_model/fault_table.h"
#include "cc/sim/nic.h"

namespace railhop::sim {

// Carries out the change of `action` and keeps in action->saved what its undo needs. Returns the
// event that belongs to it; nothing when nothing changed or no event belongs to it.
std::optional<rdma::AsyncEvent> ChangePort(Shared* shared, Port* port, rdma::FaultAction* action);

// The event that belongs to a kind of change, for an event that comes ahead of it.
std::optional<rdma::AsyncEvent> EventOfChange(rdma::FaultKind kind);

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_PORT_CHANGE_H_
