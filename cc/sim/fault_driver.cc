#include "cc/sim/fault_driver.h"

#include <algorithm>
#include <utility>

#include "cc/sim/port_change.h"

namespace railhop::sim {
namespace {

constexpr uint64_t kEventBit = uint64_t{1} << 63;  // arg names a pending event, else a port

}  // namespace

FaultDriver::FaultDriver(Shared* shared, Network* network, std::vector<Port*> ports)
    : shared_(shared), network_(network), ports_(std::move(ports)) {
  network_->set_fault_sink(this);
}

bool FaultDriver::Apply(Port* port, const rdma::FaultSpec& spec) {
  const rdma::FaultClock clock{shared_->loop.now_ns(), kStartNs};
  if (rdma::ApplyFault(spec, clock, port->faults) != rdma::ApplyResult::kOk) return false;
  ++applied_;
  shared_->Note(RecordKind::kFault, static_cast<uint8_t>(spec.kind), port->id(), 0, spec.value,
                spec.after, spec.at_ns);
  Run(port);
  return true;
}

void FaultDriver::ClearAll() {
  rdma::FaultSpec clear;
  clear.kind = rdma::FaultKind::kClear;
  for (Port* port : ports_) Apply(port, clear);
}

void FaultDriver::ActionsDue(Port* port, uint64_t when_ns) {
  shared_->loop.At(when_ns, this, port->index);
}

void FaultDriver::OnEvent(uint64_t arg) {
  if ((arg & kEventBit) != 0) return Deliver(pending_[arg & ~kEventBit]);
  Port* port = ports_[arg];
  if (port->fault_timer_ns <= shared_->loop.now_ns()) port->fault_timer_ns = 0;
  Run(port);
}

// All that is due on a port, and a look at what was kept for it.
void FaultDriver::Run(Port* port) {
  const uint64_t now = shared_->loop.now_ns();
  rdma::FaultAction action;
  while (rdma::NextAction(port->faults, now, &action)) {
    shared_->Note(RecordKind::kAction, static_cast<uint8_t>(action.spec.kind), port->id(), 0,
                  action.undo ? 1 : 0, action.change ? 1 : 0);
    const std::optional<rdma::AsyncEvent> event =
        action.change ? ChangePort(shared_, port, &action) : EventOfChange(action.spec.kind);
    if (event) SendEvent(port, action, *event);
    rdma::FinishAction(port->faults, action);
  }
  rdma::ReapFaults(port->faults, now);
  network_->ReleaseHeld();
  Look(port);
}

void FaultDriver::Look(Port* port) {
  const uint64_t now = shared_->loop.now_ns();
  const uint64_t deadline = rdma::NextFaultDeadline(port->faults, now);
  if (deadline == kNeverNs) return;
  if (port->fault_timer_ns != 0 && port->fault_timer_ns <= deadline) return;
  port->fault_timer_ns = std::max(deadline, now + 1);
  shared_->loop.At(port->fault_timer_ns, this, port->index);
}

void FaultDriver::SendEvent(Port* port, const rdma::FaultAction& action, rdma::AsyncEvent event) {
  const uint64_t now = shared_->loop.now_ns();
  const rdma::EventPlan plan = rdma::PlanEvent(port->faults, event, now);
  const bool of_qp = action.spec.kind == rdma::FaultKind::kEvent && action.spec.of_qp != 0;
  for (int i = 0; i < action.events * plan.copies; ++i) {
    pending_.push_back({port, event, of_qp ? action.spec.qp + 1 : 0});
    shared_->loop.At(now + action.event_delay_ns + plan.delay_ns, this,
                     kEventBit | (pending_.size() - 1));
  }
}

void FaultDriver::Deliver(const Pending& pending) {
  Nic* nic = pending.port->nic;
  QueuePair* qp = nullptr;
  if (pending.qp_plus_1 != 0) {
    for (const auto& [qpn, candidate] : nic->qps()) {
      if (candidate->order() + 1 == pending.qp_plus_1) qp = candidate;
    }
    if (qp == nullptr) return;
  }
  shared_->Note(RecordKind::kEvent, static_cast<uint8_t>(pending.event), pending.port->id(), 0);
  const uint32_t number =
      pending.event == rdma::AsyncEvent::kDeviceFatal ? 0 : pending.port->number;
  for (NicListener* listener : nic->listeners()) listener->OnNicEvent(pending.event, number, qp);
}

void FaultDriver::KillHost(Host* host) {
  if (!host->alive) return;
  host->alive = false;
  killed.push_back(host);
  // The queue pairs vanish at once; what the program held goes when its owner looks.
  for (Nic* nic : host->nics) {
    const std::map<uint32_t, QueuePair*> qps = nic->qps();
    for (const auto& [qpn, qp] : qps) qp->Retire();
  }
}

}  // namespace railhop::sim
