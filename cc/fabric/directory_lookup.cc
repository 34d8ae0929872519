// Hosts, devices and ports of a directory, and which port an address belongs to.
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cc/fabric/directory.h"

namespace railhop::fabric {
namespace {

bool Routable(const rdma::TopologyGid& entry) {
  // RoCE v1 is not IP and stays in its net; link-local addresses and the default subnet prefix do
  // too.
  return entry.type != rdma::GidType::kRoceV1 && !rdma::IsLinkLocal(entry.gid);
}

}  // namespace

uint32_t PhysState(rdma::LinkLayer link_layer, bool up) {
  // Source of the codes: IBTA PortInfo.PortPhysicalState. An Ethernet NIC without a link says
  // "disabled", an InfiniBand one goes on polling.
  if (up) return 5;
  return link_layer == rdma::LinkLayer::kEthernet ? 3 : 2;
}

std::optional<uint32_t> DirectoryHandle::FindHost(std::string_view word, std::string* error) const {
  if (word.empty()) return 0;
  std::string known;
  for (uint32_t i = 0; i < dir_->host_count; ++i) {
    if (word == dir_->host_names[i] || word == std::to_string(i)) return i;
    known += (i == 0 ? "" : ", ") + std::string(dir_->host_names[i]);
  }
  *error = std::string(kHostVariable) + "=" + std::string(word) +
           ": no such host; allowed: " + known + ", or an index from 0 to " +
           std::to_string(dir_->host_count - 1);
  return std::nullopt;
}

std::vector<uint32_t> DirectoryHandle::DevicesOfHost(uint32_t host) const {
  std::vector<uint32_t> devices;
  for (uint32_t i = 0; i < dir_->device_count; ++i) {
    const DeviceEntry& device = dir_->devices[i];
    if (device.host == host && device.removed.load(std::memory_order_acquire) == 0) {
      devices.push_back(i);
    }
  }
  return devices;
}

std::optional<uint32_t> DirectoryHandle::FindDevice(uint32_t host, std::string_view name) const {
  for (uint32_t i = 0; i < dir_->device_count; ++i) {
    if (dir_->devices[i].host == host && name == dir_->devices[i].name) return i;
  }
  return std::nullopt;
}

std::optional<PortRef> DirectoryHandle::FindDevicePort(std::string_view text,
                                                       std::string* error) const {
  const std::string whole(text);
  std::string_view host;
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    host = text.substr(0, slash);
    text = text.substr(slash + 1);
  }
  std::string_view name = text.substr(0, text.find(':'));
  std::string known;
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < dir_->device_count; ++i) {
    const DeviceEntry& device = dir_->devices[i];
    const std::string host_name = dir_->host_names[device.host];
    known += (i == 0 ? "" : ", ") + (dir_->host_count > 1 ? host_name + "/" : "") + device.name;
    const bool host_fits = host.empty() || host == host_name || host == std::to_string(device.host);
    if (host_fits && name == device.name) found.push_back(i);
  }
  if (found.size() != 1) {
    *error = whole + ": " + (found.empty() ? "no such device" : "this name is on several hosts") +
             "; allowed: " + known;
    return std::nullopt;
  }
  PortRef ref{found[0], 0};
  if (name.size() == text.size()) return ref;
  const std::string port(text.substr(name.size() + 1));
  const uint32_t count = dir_->devices[ref.device].port_count;
  for (uint32_t i = 1; i <= count; ++i) {
    if (port == std::to_string(i)) ref.port = i;
  }
  if (ref.port != 0) return ref;
  *error = whole + ": no such port; allowed: " + (count == 1 ? "1" : "1, 2");
  return std::nullopt;
}

rdma::TopologyGid DirectoryHandle::ReadGid(const PortEntry& port, uint32_t index) {
  rdma::TopologyGid value;
  if (index >= static_cast<uint32_t>(kMaxGids)) return value;
  if ((port.hidden_gids.load(std::memory_order_acquire) >> index & 1) != 0) return value;
  const GidEntry& entry = port.gids[index];
  // A writer that died half-way leaves the version odd: after some looks take what is there.
  for (int look = 0; look < 1000; ++look) {
    const uint32_t before = entry.version.load(std::memory_order_acquire);
    const uint64_t halves[2] = {entry.halves[0].load(std::memory_order_relaxed),
                                entry.halves[1].load(std::memory_order_relaxed)};
    value.type = static_cast<rdma::GidType>(entry.type.load(std::memory_order_relaxed));
    std::memcpy(value.gid.raw, halves, sizeof(halves));
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && entry.version.load(std::memory_order_relaxed) == before) break;
  }
  return value;
}

void DirectoryHandle::WriteGid(PortEntry& port, uint32_t index, const rdma::TopologyGid& value) {
  GidEntry& entry = port.gids[index];
  const uint32_t version = entry.version.load(std::memory_order_relaxed) | 1;
  uint64_t halves[2];
  std::memcpy(halves, value.gid.raw, sizeof(halves));
  entry.version.store(version, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.halves[0].store(halves[0], std::memory_order_relaxed);
  entry.halves[1].store(halves[1], std::memory_order_relaxed);
  entry.type.store(static_cast<uint32_t>(value.type), std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_release);
}

Route DirectoryHandle::RouteByGid(PortRef from, uint32_t sgid_index, const rdma::Gid& dgid) const {
  const PortEntry& source = port(from);
  const rdma::TopologyGid sgid = ReadGid(source, sgid_index);
  Route route;
  if (rdma::IsEmpty(sgid.gid) || rdma::IsEmpty(dgid)) return route;
  const rdma::TopologyGid wanted{dgid, sgid.type};
  const bool routable = Routable(wanted) && Routable(sgid);
  for (uint32_t d = 0; d < dir_->device_count; ++d) {
    const DeviceEntry& device = dir_->devices[d];
    if (device.removed.load(std::memory_order_acquire) != 0) continue;
    for (uint32_t p = 1; p <= device.port_count; ++p) {
      const PortEntry& target = device.ports[p - 1];
      for (uint32_t i = 0; i < static_cast<uint32_t>(kMaxGids); ++i) {
        if (ReadGid(target, i) != wanted) continue;
        if (target.net == source.net) return {RouteVerdict::kFound, {d, p}};
        const bool joined = (dir_->routes[source.net] >> target.net & 1) != 0;
        if (route.verdict == RouteVerdict::kFound) break;  // a port in our own net would be better
        if (routable && joined) {
          route = {RouteVerdict::kFound, {d, p}};
        } else {
          route.verdict = RouteVerdict::kUnreachable;
        }
      }
    }
  }
  return route;
}

Route DirectoryHandle::RouteByLid(PortRef from, uint32_t dlid) const {
  const PortEntry& source = port(from);
  for (uint32_t d = 0; d < dir_->device_count && dlid != 0; ++d) {
    const DeviceEntry& device = dir_->devices[d];
    if (device.removed.load(std::memory_order_acquire) != 0) continue;
    for (uint32_t p = 1; p <= device.port_count; ++p) {
      const PortEntry& target = device.ports[p - 1];
      if (target.net == source.net && target.link_layer == rdma::LinkLayer::kInfiniBand &&
          target.lid.load(std::memory_order_acquire) == dlid) {
        return {RouteVerdict::kFound, {d, p}};
      }
    }
  }
  return {};
}

}  // namespace railhop::fabric
