// What a fabric looks like at one moment: ports, counters, faults, processes; as a struct, as text
// and as JSON.
#ifndef RAILHOP_CC_FABRIC_SNAPSHOT_H_
#define RAILHOP_CC_FABRIC_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/fabric/directory.h"

namespace railhop::fabric {

struct FaultSnapshot {
  std::string words;  // as the grammar has them, without the device
  uint64_t hits = 0;
  bool started = false;
};

struct GidSnapshot {
  uint32_t index = 0;
  rdma::TopologyGid entry;
};

struct PortSnapshot {
  uint32_t number = 1;
  bool ethernet = true;
  uint32_t link_state = 0;  // rdma::PortLinkState
  uint32_t phys_state = 0;  // verbs
  std::string net;
  std::string netdev;
  uint64_t rate_mbps = 0;
  uint32_t mtu = 0;  // active, bytes
  uint32_t lid = 0, sm_lid = 0;
  std::vector<GidSnapshot> gids;  // those that are not empty
  std::vector<uint32_t> pkeys;
  std::vector<std::pair<const char*, uint64_t>> counters;  // name, value
  std::vector<FaultSnapshot> faults;
};

struct DeviceSnapshot {
  std::string name;
  std::string host;
  uint64_t node_guid = 0;
  std::string pci_address;
  int numa_node = -1;
  bool removed = false;
  std::string quirks;  // names, comma-separated
  std::vector<PortSnapshot> ports;
};

struct ProcessSnapshot {
  uint32_t pid = 0;
  std::string host;
  std::string command;  // the program's name
  uint32_t queue_pairs = 0;
};

struct FabricSnapshot {
  std::string name;
  uint64_t id = 0, seed = 0;
  uint32_t owner_pid = 0;
  double time_scale = 1;
  uint64_t uptime_ns = 0;
  std::vector<std::string> hosts;
  std::vector<DeviceSnapshot> devices;
  std::vector<ProcessSnapshot> processes;  // that live
};

FabricSnapshot TakeSnapshot(const DirectoryHandle& directory);
// The counters of a port by the names that sysfs and `show` use.
std::vector<std::pair<const char*, uint64_t>> PortCounters(const PortEntry& port);

// "DOWN", "INIT", "ARMED", "ACTIVE".
const char* LinkStateName(uint32_t state);
// "LinkUp", "Polling", "Disabled" as sysfs has them.
const char* PhysStateName(uint32_t state);

// For people: a table of ports, then what is wrong with them, then processes.
std::string SnapshotText(const FabricSnapshot& snapshot);
// One line.
std::string SnapshotJson(const FabricSnapshot& snapshot);

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_SNAPSHOT_H_
