#include "cc/sim/world.h"

#include <cerrno>

#include "cc/rdma_model/fault_grammar.h"

namespace railhop::sim {

World::World(const rdma::Topology& topology, const Options& options)
    : topology_(topology), shared_(options) {
  for (const std::string& name : topology_.hosts) {
    hosts_.push_back(std::make_unique<Host>());
    hosts_.back()->name = name;
    hosts_.back()->index = static_cast<uint32_t>(hosts_.size()) - 1;
  }
  for (const rdma::TopologyDevice& device : topology_.devices) {
    Host* host = hosts_[static_cast<size_t>(device.host)].get();
    nics_.push_back(std::make_unique<Nic>(&shared_, host, device,
                                          static_cast<uint32_t>(nics_.size()),
                                          static_cast<uint32_t>(ports_.size())));
    Nic* nic = nics_.back().get();
    host->nics.push_back(nic);
    for (uint32_t number = 1; number <= nic->port_count(); ++number) {
      ports_.push_back(nic->port(number));
    }
  }
  network_ = std::make_unique<Network>(&shared_, &topology_, ports_);
  faults_ = std::make_unique<FaultDriver>(&shared_, network_.get(), ports_);
}

World::~World() = default;

Nic* World::FindNic(std::string_view name) const {
  Nic* found = nullptr;
  for (const auto& nic : nics_) {
    if (nic->Name() == name) return nic.get();
    if (nic->config().name != name) continue;
    if (found != nullptr) return nullptr;
    found = nic.get();
  }
  return found;
}

bool World::Fault(std::string_view text, std::string* error) {
  rdma::FaultCommand command;
  if (!rdma::ParseFault(text, &command, error)) return false;
  const std::string name =
      command.host.empty() ? command.device : command.host + "/" + command.device;
  Nic* nic = FindNic(name);
  if (nic == nullptr) {
    *error = "no device '" + name + "' (or several of that name); allowed:";
    for (const auto& known : nics_) *error += " " + known->Name();
    return false;
  }
  Port* port = nic->port(command.port == 0 ? 1 : command.port);
  if (port == nullptr) {
    *error = "'" + name + "' has no port " + std::to_string(command.port) + "; allowed: 1 to " +
             std::to_string(nic->port_count());
    return false;
  }
  if (!faults_->Apply(port, command.spec)) {
    *error = command.spec.kind == rdma::FaultKind::kList ? "'list' is not for the simulator"
                                                         : "too many faults on this port";
    return false;
  }
  return true;
}

Context* World::Open(Nic* nic, int* error) {
  int rc = nic->config().open_errno;
  if (!nic->host()->alive) rc = ENODEV;
  if (rc == 0 && nic->removed()) rc = ENODEV;
  if (rc == 0) {
    rc = rdma::JudgeVerb(nic->port(1)->faults, rdma::VerbCall::kOpenDevice, 0, loop().now_ns())
             .error;
  }
  if (error != nullptr) *error = rc;
  if (rc != 0) return nullptr;
  contexts_.push_back(std::make_unique<Context>(&shared_, nic, network_.get()));
  return contexts_.back().get();
}

int World::Close(Context* context) {
  if (const int error = context->Enter(rdma::VerbCall::kCloseDevice)) return error;
  if (context->qp_count() != 0 || context->cq_count() != 0) return EBUSY;
  context->Abandon();
  return 0;
}

std::string World::RecordText() const {
  std::vector<std::string> names;
  for (const Port* port : ports_) {
    names.push_back(port->nic->Name() + ":" + std::to_string(port->number));
  }
  return shared_.recorder.Text(names);
}

}  // namespace railhop::sim
