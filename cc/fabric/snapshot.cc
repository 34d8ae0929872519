#include "cc/fabric/snapshot.h"

#include <cstdarg>
#include <cstdio>
#include <fstream>

#include "cc/base/units.h"
#include "cc/fabric/json_writer.h"
#include "cc/rdma_model/fault_grammar.h"
#include "cc/rdma_model/fault_table.h"

namespace railhop::fabric {
namespace {

std::string CommandOf(uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

std::vector<FaultSnapshot> FaultsOf(const PortEntry& port) {
  std::vector<FaultSnapshot> faults;
  for (uint32_t rule = 0; rule < static_cast<uint32_t>(rdma::kMaxFaultRules); ++rule) {
    rdma::FaultStatus status;
    if (!rdma::ReadFault(port.faults, rule, MonotonicNs(), &status)) continue;
    faults.push_back({rdma::FormatFaultSpec(status.spec), status.hits, status.fired});
  }
  return faults;
}

PortSnapshot TakePort(const Directory& dir, const PortEntry& port, uint32_t number) {
  PortSnapshot snapshot;
  snapshot.number = number;
  snapshot.ethernet = port.link_layer == rdma::LinkLayer::kEthernet;
  snapshot.link_state = port.link_state;
  snapshot.phys_state = port.phys_state;
  snapshot.net = dir.net_names[port.net];
  snapshot.netdev = port.netdev;
  snapshot.rate_mbps = port.rate_mbps;
  snapshot.mtu = rdma::MtuBytes(port.active_mtu);
  snapshot.lid = port.lid;
  snapshot.sm_lid = port.sm_lid;
  for (uint32_t i = 0; i < static_cast<uint32_t>(kMaxGids); ++i) {
    const rdma::TopologyGid entry = DirectoryHandle::ReadGid(port, i);
    if (!rdma::IsEmpty(entry.gid)) snapshot.gids.push_back({i, entry});
  }
  for (uint32_t i = 0; i < port.pkey_count; ++i) snapshot.pkeys.push_back(port.pkeys[i]);
  snapshot.counters = PortCounters(port);
  snapshot.faults = FaultsOf(port);
  return snapshot;
}

DeviceSnapshot TakeDevice(const Directory& dir, const DeviceEntry& device) {
  DeviceSnapshot snapshot;
  snapshot.name = device.name;
  snapshot.host = dir.host_names[device.host];
  snapshot.node_guid = device.node_guid;
  snapshot.pci_address = device.pci_address;
  snapshot.numa_node = device.numa_node;
  snapshot.removed = device.removed != 0;
  snapshot.quirks = rdma::QuirkNames(device.quirks);
  for (uint32_t p = 0; p < device.port_count; ++p) {
    snapshot.ports.push_back(TakePort(dir, device.ports[p], p + 1));
  }
  return snapshot;
}

std::vector<ProcessSnapshot> TakeProcesses(const DirectoryHandle& directory) {
  const Directory& dir = directory.dir();
  std::vector<uint32_t> queue_pairs(kMaxProcesses, 0);
  const uint32_t limit = dir.qpn_limit;
  for (uint32_t i = 0; i < limit; ++i) {
    const auto owner = directory.LookupQpn(dir.qpns[i].qpn);
    if (owner && owner->slot < static_cast<uint32_t>(kMaxProcesses)) ++queue_pairs[owner->slot];
  }
  std::vector<ProcessSnapshot> processes;
  for (uint32_t slot = 0; slot < static_cast<uint32_t>(kMaxProcesses); ++slot) {
    const ProcessSlot& entry = dir.processes[slot];
    if (entry.pid == 0 || !directory.SlotAlive({slot, entry.generation})) continue;
    const uint32_t host = entry.host < dir.host_count ? entry.host.load() : 0;
    processes.push_back({entry.pid, dir.host_names[host], CommandOf(entry.pid), queue_pairs[slot]});
  }
  return processes;
}

std::string Line(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string Line(const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  return text;
}

std::string PortName(const FabricSnapshot& fabric, const DeviceSnapshot& device, uint32_t port) {
  return (fabric.hosts.size() > 1 ? device.host + "/" : "") + device.name + ":" +
         std::to_string(port);
}

// The address that a person would name: the last, which is the routable RoCE v2 one where there is
// one.
std::string MainAddress(const PortSnapshot& port) {
  if (!port.ethernet) return "lid " + std::to_string(port.lid);
  return port.gids.empty() ? "-" : rdma::FormatAddress(port.gids.back().entry.gid);
}

const char* GidTypeName(rdma::GidType type) {
  return type == rdma::GidType::kIb ? "ib" : type == rdma::GidType::kRoceV1 ? "v1" : "v2";
}

void PortJson(const PortSnapshot& port, JsonWriter* json) {
  json->Begin('{').Key("port").Number(port.number);
  json->Key("link_layer").String(port.ethernet ? "ethernet" : "infiniband");
  json->Key("state").String(LinkStateName(port.link_state));
  json->Key("phys_state").String(PhysStateName(port.phys_state));
  json->Key("net").String(port.net).Key("netdev").String(port.netdev);
  json->Key("rate_mbps").Number(port.rate_mbps).Key("mtu").Number(port.mtu);
  json->Key("lid").Number(port.lid).Key("sm_lid").Number(port.sm_lid);
  json->Key("gids").Begin('[');
  for (const GidSnapshot& gid : port.gids) {
    json->Begin('{').Key("index").Number(gid.index);
    json->Key("address").String(rdma::FormatAddress(gid.entry.gid));
    json->Key("type").String(GidTypeName(gid.entry.type)).End('}');
  }
  json->End(']').Key("pkeys").Begin('[');
  for (const uint32_t pkey : port.pkeys) json->Number(pkey);
  json->End(']').Key("counters").Begin('{');
  for (const auto& [name, value] : port.counters) json->Key(name).Number(value);
  json->End('}').Key("faults").Begin('[');
  for (const FaultSnapshot& fault : port.faults) {
    json->Begin('{').Key("words").String(fault.words).Key("hits").Number(fault.hits);
    json->Key("started").Bool(fault.started).End('}');
  }
  json->End(']').End('}');
}

}  // namespace

std::vector<std::pair<const char*, uint64_t>> PortCounters(const PortEntry& port) {
  return {{"tx_packets", port.tx_packets},
          {"tx_bytes", port.tx_bytes},
          {"tx_messages", port.tx_messages},
          {"rx_packets", port.rx_packets},
          {"rx_bytes", port.rx_bytes},
          {"rx_messages", port.rx_messages},
          {"dropped", port.dropped},
          {"retransmitted", port.retransmitted},
          {"local_ack_timeouts", port.local_ack_timeouts},
          {"out_of_sequence", port.out_of_sequence},
          {"rnr_naks", port.rnr_naks},
          {"link_downed", port.link_downed}};
}

const char* LinkStateName(uint32_t state) {
  static constexpr const char* kNames[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE"};
  return state < 5 ? kNames[state] : "?";
}

const char* PhysStateName(uint32_t state) {
  // Source: IBTA PortInfo.PortPhysicalState; spelled as Linux sysfs does.
  static constexpr const char* kNames[] = {"NoState",  "Sleep",  "Polling",           "Disabled",
                                           "Training", "LinkUp", "LinkErrorRecovery", "PhyTest"};
  return state < 8 ? kNames[state] : "?";
}

FabricSnapshot TakeSnapshot(const DirectoryHandle& directory) {
  const Directory& dir = directory.dir();
  FabricSnapshot snapshot;
  snapshot.name = dir.name;
  snapshot.id = dir.id;
  snapshot.seed = dir.seed;
  snapshot.owner_pid = dir.owner_pid;
  snapshot.time_scale = static_cast<double>(dir.time_scale_ppm) / 1e6;
  snapshot.uptime_ns = MonotonicNs() - dir.created_ns;
  for (uint32_t i = 0; i < dir.host_count; ++i) snapshot.hosts.push_back(dir.host_names[i]);
  for (uint32_t i = 0; i < dir.device_count; ++i) {
    snapshot.devices.push_back(TakeDevice(dir, dir.devices[i]));
  }
  snapshot.processes = TakeProcesses(directory);
  return snapshot;
}

std::string SnapshotText(const FabricSnapshot& snapshot) {
  std::string out = Line(
      "fabric %s, owner %u, seed %llu, up %s", snapshot.name.c_str(), snapshot.owner_pid,
      static_cast<unsigned long long>(snapshot.seed),
      FormatDurationNs(static_cast<int64_t>(snapshot.uptime_ns / 1'000'000 * 1'000'000)).c_str());
  if (snapshot.time_scale != 1) out += Line(", timeouts x%g", snapshot.time_scale);
  out += Line("\n\n%-20s %-7s %9s %5s %-16s %-10s %12s %12s %8s %8s\n", "PORT", "STATE", "RATE",
              "MTU", "ADDRESS", "NET", "SENT", "RECEIVED", "DROPPED", "RESENT");
  for (const DeviceSnapshot& device : snapshot.devices) {
    for (const PortSnapshot& port : device.ports) {
      const auto counter = [&port](size_t i) { return port.counters[i].second; };
      out += Line("%-20s %-7s %9s %5u %-16s %-10s %12s %12s %8llu %8llu\n",
                  PortName(snapshot, device, port.number).c_str(),
                  device.removed ? "REMOVED" : LinkStateName(port.link_state),
                  FormatRateBps(static_cast<int64_t>(port.rate_mbps) * 1'000'000).c_str(), port.mtu,
                  MainAddress(port).c_str(), port.net.c_str(),
                  FormatSizeBytes(static_cast<int64_t>(counter(1))).c_str(),
                  FormatSizeBytes(static_cast<int64_t>(counter(4))).c_str(),
                  static_cast<unsigned long long>(counter(6)),
                  static_cast<unsigned long long>(counter(7)));
    }
  }
  std::string faults;
  for (const DeviceSnapshot& device : snapshot.devices) {
    if (!device.quirks.empty()) {
      faults += Line("%-20s quirks %s\n", device.name.c_str(), device.quirks.c_str());
    }
    for (const PortSnapshot& port : device.ports) {
      for (const FaultSnapshot& fault : port.faults) {
        faults +=
            Line("%-20s %-40s %s, %llu hits\n", PortName(snapshot, device, port.number).c_str(),
                 fault.words.c_str(), fault.started ? "in force" : "waiting",
                 static_cast<unsigned long long>(fault.hits));
      }
    }
  }
  if (!faults.empty()) out += "\nFAULTS\n" + faults;
  if (!snapshot.processes.empty()) {
    out += Line("\n%-8s %-20s %-16s %s\n", "PID", "PROGRAM", "HOST", "QUEUE PAIRS");
  }
  for (const ProcessSnapshot& process : snapshot.processes) {
    out += Line("%-8u %-20s %-16s %u\n", process.pid, process.command.c_str(), process.host.c_str(),
                process.queue_pairs);
  }
  return out;
}

std::string SnapshotJson(const FabricSnapshot& snapshot) {
  JsonWriter json;
  char id[24];
  std::snprintf(id, sizeof(id), "%016llx", static_cast<unsigned long long>(snapshot.id));
  json.Begin('{').Key("name").String(snapshot.name).Key("id").String(id);
  json.Key("owner_pid").Number(snapshot.owner_pid).Key("seed").Number(snapshot.seed);
  json.Key("time_scale").Real(snapshot.time_scale);
  json.Key("uptime_ns").Number(snapshot.uptime_ns).Key("hosts").Begin('[');
  for (const std::string& host : snapshot.hosts) json.String(host);
  json.End(']').Key("devices").Begin('[');
  for (const DeviceSnapshot& device : snapshot.devices) {
    json.Begin('{').Key("name").String(device.name).Key("host").String(device.host);
    json.Key("node_guid").String(rdma::FormatGuid(device.node_guid));
    json.Key("pci_address").String(device.pci_address);
    json.Key("numa_node").Real(device.numa_node).Key("removed").Bool(device.removed);
    json.Key("quirks").String(device.quirks).Key("ports").Begin('[');
    for (const PortSnapshot& port : device.ports) PortJson(port, &json);
    json.End(']').End('}');
  }
  json.End(']').Key("processes").Begin('[');
  for (const ProcessSnapshot& process : snapshot.processes) {
    json.Begin('{').Key("pid").Number(process.pid).Key("program").String(process.command);
    json.Key("host").String(process.host);
    json.Key("queue_pairs").Number(process.queue_pairs).End('}');
  }
  return json.End(']').End('}').text();
}

}  // namespace railhop::fabric
