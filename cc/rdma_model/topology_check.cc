// The end of parsing a topology: defaults that depend on the whole, and what must be unique.
#include <set>
#include <utility>

#include "cc/rdma_model/topology_draft.h"

namespace railhop::rdma {
namespace {

// Keeps the first error and from then on does nothing.
class Checker {
 public:
  Checker(const std::vector<DeviceDraft>& drafts, Topology* topology)
      : drafts_(drafts), topology_(*topology) {}

  void Finish();
  const std::optional<TopologyError>& error() const { return error_; }

 private:
  void FinishPort(TopologyDevice& device, size_t index, const PortDraft& draft);
  void AssignLids();
  void CheckUnique();
  void CheckAddresses(const TopologyPort& port, const std::string& name, int line);

  void Fail(int line, const std::string& word, const std::string& message,
            const std::string& allowed = "") {
    if (!error_) error_ = TopologyError{line, word, message, allowed};
  }

  const std::vector<DeviceDraft>& drafts_;
  Topology& topology_;
  std::optional<TopologyError> error_;
  std::map<std::pair<int, std::string>, std::string> addresses_;  // (net, GID) -> port
};

void Checker::Finish() {
  if (topology_.devices.empty()) {
    Fail(0, "device", "there is none; a fabric has at least one device");
    return;
  }
  if (topology_.nets.empty()) topology_.nets.push_back("lan");
  for (size_t i = 0; i < topology_.devices.size() && !error_; ++i) {
    TopologyDevice& device = topology_.devices[i];
    const DeviceDraft& draft = drafts_[i];
    if (!draft.has_system_guid) device.sys_image_guid = device.node_guid;
    if (device.ports.empty()) {
      Fail(draft.line, device.name, "this device has no port", "port 1");
      return;
    }
    for (size_t p = 0; p < device.ports.size() && !error_; ++p) {
      FinishPort(device, p, draft.ports[p]);
    }
  }
  if (!error_) AssignLids();
  if (!error_) CheckUnique();
}

void Checker::FinishPort(TopologyDevice& device, size_t index, const PortDraft& draft) {
  TopologyPort& port = device.ports[index];
  const std::string name = device.name + ":" + std::to_string(index + 1);
  if (!draft.has_net && topology_.nets.size() > 1) {
    Fail(draft.line, name, "this port has no net", "net " + JoinWords(topology_.nets, ""));
  }
  if (!draft.has_active_mtu) port.active_mtu = port.max_mtu;
  if (port.active_mtu > port.max_mtu) {
    Fail(draft.line, name, "active_mtu is above mtu",
         "up to " + std::to_string(MtuBytes(port.max_mtu)));
  }
  if (port.pkeys.empty()) port.pkeys = {0xffff};
  if (port.link_layer == LinkLayer::kEthernet) {
    const Gid link_local =
        draft.has_link_local ? draft.link_local : GidOf(0xfe80000000000000, port.guid);
    port.gids = EthernetGids(link_local, draft.addresses);
    port.subnet_prefix = TopologyPort().subnet_prefix;
  } else {
    port.gids = {{GidOf(port.subnet_prefix, port.guid), GidType::kIb}};
    if (port.sm_lid == 0) port.sm_lid = 1;
  }
  for (const auto& [place, entry] : draft.by_hand) {
    if (port.gids.size() <= place) port.gids.resize(place + 1);
    port.gids[place] = entry;
  }
  while (!port.gids.empty() && IsEmpty(port.gids.back().gid)) port.gids.pop_back();
  if (port.gids.size() > kTopologyMaxGids) {
    Fail(draft.line, name, "its GID table is too long",
         "up to " + std::to_string(kTopologyMaxGids) + " entries, two for each address");
  }
}

void Checker::AssignLids() {
  std::set<std::pair<int, uint32_t>> taken;
  for (const TopologyDevice& device : topology_.devices) {
    for (const TopologyPort& port : device.ports) {
      if (port.lid != 0 && !taken.insert({port.net, port.lid}).second) {
        Fail(drafts_[&device - topology_.devices.data()].line, device.name,
             "LID " + std::to_string(port.lid) + " is taken in net " + topology_.nets[port.net]);
      }
    }
  }
  for (TopologyDevice& device : topology_.devices) {
    for (TopologyPort& port : device.ports) {
      if (port.link_layer == LinkLayer::kEthernet) continue;
      for (uint32_t lid = 1; port.lid == 0; ++lid) {
        if (taken.insert({port.net, lid}).second) port.lid = lid;
      }
    }
  }
}

void Checker::CheckUnique() {
  std::set<uint64_t> guids;
  std::set<std::pair<int, std::string>> places;
  std::vector<int> link_layers(topology_.nets.size());
  for (size_t i = 0; i < topology_.devices.size(); ++i) {
    const TopologyDevice& device = topology_.devices[i];
    const int line = drafts_[i].line;
    if (!guids.insert(device.node_guid).second) {
      Fail(line, device.name, "another device has GUID " + FormatGuid(device.node_guid));
    }
    if (!places.insert({device.host, PciAddressOf(device.pci_path)}).second) {
      Fail(line, device.name, "another device of this host is at " + PciAddressOf(device.pci_path));
    }
    for (size_t p = 0; p < device.ports.size(); ++p) {
      const TopologyPort& port = device.ports[p];
      const std::string name =
          (topology_.hosts.size() > 1 ? topology_.hosts[device.host] + "/" : "") + device.name +
          ":" + std::to_string(p + 1);
      const int port_line = drafts_[i].ports[p].line;
      int& link_layer = link_layers[port.net];
      if (link_layer != 0 && link_layer != static_cast<int>(port.link_layer)) {
        Fail(port_line, name, "net " + topology_.nets[port.net] + " is of the other link layer");
      }
      link_layer = static_cast<int>(port.link_layer);
      CheckAddresses(port, name, port_line);
    }
  }
}

void Checker::CheckAddresses(const TopologyPort& port, const std::string& name, int line) {
  for (const TopologyGid& entry : port.gids) {
    if (IsEmpty(entry.gid)) continue;
    const auto [found, added] = addresses_.insert({{port.net, FormatGidFull(entry.gid)}, name});
    if (!added && found->second != name) {
      Fail(line, name,
           FormatAddress(entry.gid) + " is also an address of " + found->second + " in net " +
               topology_.nets[port.net]);
    }
  }
}

}  // namespace

std::optional<TopologyError> FinishTopology(const std::vector<DeviceDraft>& drafts,
                                            Topology* topology) {
  Checker checker(drafts, topology);
  checker.Finish();
  return checker.error();
}

std::string JoinWords(const std::vector<std::string>& words, const std::string& if_empty) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all.empty() ? if_empty : all;
}

}  // namespace railhop::rdma
