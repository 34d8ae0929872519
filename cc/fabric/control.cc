#include "cc/fabric/control.h"

#include <cmath>
#include <utility>

#include "cc/fabric/fault_actions.h"
#include "cc/fabric/snapshot.h"
#include "cc/rdma_model/fault_table.h"

namespace railhop::fabric {
namespace {

using rdma::FaultKind;
using rdma::FaultSpec;

// Faults of a whole device live in the table of its port 1.
bool OfDevice(FaultKind kind) {
  return kind == FaultKind::kFailVerb || kind == FaultKind::kHangVerb ||
         kind == FaultKind::kRemove || kind == FaultKind::kReturn || kind == FaultKind::kQuirk;
}

std::string UpTo(uint64_t last) { return "; allowed: 0 to " + std::to_string(last); }

// What this port cannot do, in words; empty if it can. The grammar knows only what no port can do.
std::string WhyNot(const FaultSpec& spec, const PortEntry& port) {
  const bool ethernet = port.link_layer == rdma::LinkLayer::kEthernet;
  const std::string kind(rdma::FaultKindName(spec.kind));
  switch (spec.kind) {
    case FaultKind::kLid:
    case FaultKind::kSmLid:
      return ethernet ? kind + ": this port is Ethernet and has none" : "";
    case FaultKind::kPkey:
      if (spec.index < port.pkey_count) return "";
      return std::to_string(spec.index) + ": no such P_Key index" + UpTo(port.pkey_count - 1);
    case FaultKind::kGidSet:
      if ((static_cast<rdma::GidType>(spec.index2) == rdma::GidType::kIb) == ethernet) {
        return kind + ": not a GID type of this port; allowed: " + (ethernet ? "v1, v2" : "ib");
      }
      [[fallthrough]];
    case FaultKind::kGidRemove:
      if (spec.index < static_cast<uint32_t>(kMaxGids)) return "";
      return std::to_string(spec.index) + ": no such GID index" + UpTo(kMaxGids - 1);
    case FaultKind::kGidMove:
      if (spec.index < static_cast<uint32_t>(kMaxGids) &&
          spec.index2 < static_cast<uint32_t>(kMaxGids)) {
        return "";
      }
      return kind + ": no such GID index" + UpTo(kMaxGids - 1);
    case FaultKind::kMtu:
      if (spec.value <= rdma::MtuBytes(port.max_mtu)) return "";
      return std::to_string(spec.value) + ": above what this port can; allowed: up to " +
             std::to_string(rdma::MtuBytes(port.max_mtu));
    case FaultKind::kSpeed: {
      if (spec.value % 1'000'000'000 == 0 &&
          rdma::WidthSpeedOf(static_cast<uint32_t>(spec.value / 1'000'000'000)).width != 0) {
        return "";
      }
      std::string known;
      for (const uint32_t gbps : rdma::KnownSpeedsGbps()) {
        known += (known.empty() ? "" : ", ") + std::to_string(gbps) + "Gb/s";
      }
      return kind + ": not a speed that a link has; allowed: " + known;
    }
    default:
      return "";
  }
}

void List(const std::string& device, const PortEntry& port, std::string* output) {
  for (uint32_t rule = 0; rule < static_cast<uint32_t>(rdma::kMaxFaultRules); ++rule) {
    rdma::FaultStatus status;
    if (!rdma::ReadFault(port.faults, rule, MonotonicNs(), &status)) continue;
    *output += device + " " + rdma::FormatFaultSpec(status.spec) + "  # " +
               (status.fired ? "in force" : "waiting") + ", " + std::to_string(status.hits) +
               " hits\n";
  }
}

}  // namespace

std::unique_ptr<Control> Control::Create(const FabricOptions& options, std::string* error) {
  if (!(options.time_scale >= 1e-6 && options.time_scale <= 1e6)) {
    *error = "time scale " + std::to_string(options.time_scale) +
             ": out of range; allowed: 0.000001 to 1000000";
    return nullptr;
  }
  auto directory = DirectoryHandle::Create(options.name, options.topology, options.seed, error);
  if (directory == nullptr) return nullptr;
  directory->dir().time_scale_ppm = static_cast<uint64_t>(std::llround(options.time_scale * 1e6));
  return std::unique_ptr<Control>(new Control(std::move(directory)));
}

std::unique_ptr<Control> Control::Attach(std::string_view reference, std::string* error) {
  auto directory = DirectoryHandle::Attach(reference, error);
  if (directory == nullptr) return nullptr;
  return std::unique_ptr<Control>(new Control(std::move(directory)));
}

std::unique_ptr<Control> Control::AttachByName(std::string_view name, std::string* error) {
  auto directory = DirectoryHandle::AttachByName(name, error);
  if (directory == nullptr) return nullptr;
  return std::unique_ptr<Control>(new Control(std::move(directory)));
}

bool Control::Fault(std::string_view words, std::string* error, std::string* output) {
  rdma::FaultCommand command;
  return rdma::ParseFault(words, &command, error) && Fault(command, error, output);
}

std::optional<PortRef> Control::FindPort(const rdma::FaultCommand& command,
                                         std::string* error) const {
  const std::string port = command.port == 0 ? "" : ":" + std::to_string(command.port);
  const auto find = [&](const std::string& host) {
    return directory_->FindDevicePort((host.empty() ? "" : host + "/") + command.device + port,
                                      error);
  };
  std::optional<PortRef> ref = find(command.host);
  if (!ref && command.host.empty() && !default_host_.empty()) ref = find(default_host_);
  if (!ref) return std::nullopt;
  if (ref->port == 0 || OfDevice(command.spec.kind)) ref->port = 1;
  return ref;
}

bool Control::Fault(const rdma::FaultCommand& command, std::string* error, std::string* output) {
  const std::optional<PortRef> ref = FindPort(command, error);
  if (!ref) return false;
  PortEntry& port = directory_->port(*ref);
  const std::string device =
      std::string(directory_->device(ref->device).name) + ":" + std::to_string(ref->port);
  if (command.spec.kind == FaultKind::kList) {
    if (output != nullptr) List(device, port, output);
    return true;
  }
  const std::string why_not = WhyNot(command.spec, port);
  if (!why_not.empty()) {
    *error = device + ": " + why_not;
    return false;
  }
  Directory& dir = directory_->dir();
  rdma::ApplyResult result;
  {
    SharedLock lock(dir.control_lock);
    result = rdma::ApplyFault(command.spec, {MonotonicNs(), dir.created_ns}, port.faults);
    dir.fault_generation.fetch_add(1, std::memory_order_acq_rel);
  }
  if (result != rdma::ApplyResult::kOk) {
    *error = device + ": " + std::to_string(rdma::kMaxFaultRules) +
             " faults are in force on this port, which is all it can take; 'clear' removes them";
    return false;
  }
  const bool cleared = command.spec.kind == FaultKind::kClear;
  directory_->Log({.device = ref->device,
                   .port = ref->port,
                   .kind = static_cast<uint32_t>(cleared ? rdma::LogKind::kFaultCleared
                                                         : rdma::LogKind::kFaultSet),
                   .arg = cleared ? command.spec.index : static_cast<uint64_t>(command.spec.kind)});
  RunFaultActions(*directory_, *ref);
  directory_->NotifyChange();
  return true;
}

uint64_t Control::RunDue() { return RunAllFaultActions(*directory_); }

}  // namespace railhop::fabric
