// Topologies as text.
#include <cstdio>

#include "cc/rdma_model/topology_draft.h"
#include "cc/rdma_model/topology_text.h"

namespace railhop::rdma {
namespace {

void FormatDevice(const TopologyDevice& device, std::string* out) {
  *out += "  device " + device.name + " pci " + device.pci_path + " numa " +
          std::to_string(device.numa_node) + " guid " + FormatGuid(device.node_guid) +
          " system_guid " + FormatGuid(device.sys_image_guid) + "\n";
  char ids[64];
  std::snprintf(ids, sizeof(ids), "    vendor 0x%04x part %u hw_ver %u", device.vendor_id,
                device.vendor_part_id, device.hw_ver);
  *out += std::string(ids) + " firmware " + device.fw_ver;
  for (const ErrnoRow& row : kOpenErrnos) {
    if (row.value == device.open_errno) *out += std::string(" open ") + row.name;
  }
  for (const std::string& quirk : device.quirks) *out += " quirk " + quirk;
  *out += "\n   ";
  for (const CapRow& row : kCaps) {
    *out += " cap " + std::string(row.name) + " " + std::to_string(device.caps.*row.field);
  }
  *out += " cap max_mr_size " + std::to_string(device.caps.max_mr_size) + "\n";
}

void FormatPort(const Topology& topology, const TopologyPort& port, size_t number,
                std::string* out) {
  const bool ethernet = port.link_layer == LinkLayer::kEthernet;
  *out += "    port " + std::to_string(number) + " link " + (ethernet ? "ethernet" : "infiniband") +
          " net " + topology.nets[port.net] + " speed " + std::to_string(port.speed_gbps) +
          " mtu " + std::to_string(MtuBytes(port.max_mtu)) + " active_mtu " +
          std::to_string(MtuBytes(port.active_mtu)) + " state " + (port.up ? "up" : "down") +
          " guid " + FormatGuid(port.guid);
  if (!port.netdev.empty()) *out += " netdev " + port.netdev;
  for (const uint16_t pkey : port.pkeys) {
    char text[16];
    std::snprintf(text, sizeof(text), " pkey 0x%04x", pkey);
    *out += text;
  }
  if (ethernet) {
    *out += " link_local none";
  } else {
    *out += " lid " + std::to_string(port.lid) + " sm_lid " + std::to_string(port.sm_lid) +
            " subnet_prefix " + FormatGuid(port.subnet_prefix);
  }
  *out += "\n";
  // An InfiniBand port has a GID unless it is said to have none.
  if (!ethernet && port.gids.empty()) *out += "      gid 0 empty\n";
  for (size_t i = 0; i < port.gids.size(); ++i) {
    const TopologyGid& entry = port.gids[i];
    *out += "      gid " + std::to_string(i);
    if (IsEmpty(entry.gid)) {
      *out += " empty\n";
      continue;
    }
    static constexpr const char* kTypes[] = {" ib\n", " v1\n", " v2\n"};
    *out += " " + FormatAddress(entry.gid) + kTypes[static_cast<int>(entry.type)];
  }
}

}  // namespace

std::string FormatTopology(const Topology& topology) {
  std::string out = "nets";
  for (const std::string& net : topology.nets) out += " " + net;
  out += "\n";
  for (const TopologyRoute& route : topology.routes) {
    out += "route_one_way " + topology.nets[route.from] + " " + topology.nets[route.to] + "\n";
  }
  for (size_t host = 0; host < topology.hosts.size(); ++host) {
    out += "host " + topology.hosts[host] + "\n";
    for (const TopologyDevice& device : topology.devices) {
      if (device.host != static_cast<int>(host)) continue;
      FormatDevice(device, &out);
      for (size_t p = 0; p < device.ports.size(); ++p) {
        FormatPort(topology, device.ports[p], p + 1, &out);
      }
    }
  }
  return out;
}

}  // namespace railhop::rdma
