#include "cc/fabric/sysfs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cc/fabric/snapshot.h"
#include "cc/fabric/sysfs_pci.h"

namespace railhop::fabric {
namespace {

constexpr char kClass[] = "/sys/class";
constexpr char kInfiniBand[] = "/infiniband";
constexpr char kPciBus[] = "/sys/class/pci_bus";
constexpr char kVerbs[] = "/infiniband_verbs";
constexpr char kRemoved[] = "/removed";                // folders of removed devices
constexpr char kHosts[] = "/sys/class/.railhop";       // with a folder for each host
constexpr char kFresh[] = "/sys/class/.railhop/.new";  // a file before it is in its place
// Reading the speed of the loopback interface fails with EINVAL, as does reading an empty GID's
// attributes.
constexpr char kUnreadable[] = "/sys/class/net/lo/speed";

std::string Hex(uint32_t value, int digits) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%0*x\n", digits, value);
  return text;
}

bool MakeFolder(const std::string& path) { return mkdir(path.c_str(), 0755) == 0; }

std::string PortFolder(const std::string& device_folder, size_t number) {
  return device_folder + "/ports/" + std::to_string(number);
}

// Counters under the names of Linux: what, folder, and how many bytes or packets make one unit.
struct CounterFile {
  const char* path;
  const char* counter;  // of PortCounters; "" for one that stays 0
  uint64_t unit;
};
// Source of the names: Linux drivers/infiniband/core/sysfs.c and the mlx5 driver; data counts words
// of 4 bytes.
constexpr CounterFile kCounterFiles[] = {
    {"counters/port_xmit_data", "tx_bytes", 4},
    {"counters/port_rcv_data", "rx_bytes", 4},
    {"counters/port_xmit_packets", "tx_packets", 1},
    {"counters/port_rcv_packets", "rx_packets", 1},
    {"counters/unicast_xmit_packets", "tx_packets", 1},
    {"counters/unicast_rcv_packets", "rx_packets", 1},
    {"counters/link_downed", "link_downed", 1},
    {"counters/port_xmit_discards", "dropped", 1},
    {"counters/port_rcv_errors", "", 1},
    {"counters/port_xmit_wait", "", 1},
    {"counters/symbol_error", "", 1},
    {"counters/link_error_recovery", "", 1},
    {"counters/local_link_integrity_errors", "", 1},
    {"counters/excessive_buffer_overrun_errors", "", 1},
    {"hw_counters/local_ack_timeout_err", "local_ack_timeouts", 1},
    {"hw_counters/out_of_sequence", "out_of_sequence", 1},
    {"hw_counters/packet_seq_err", "out_of_sequence", 1},
    {"hw_counters/rnr_nak_retry_err", "rnr_naks", 1},
    {"hw_counters/roce_adp_retrans", "retransmitted", 1},
    {"hw_counters/out_of_buffer", "rnr_naks", 1},
    {"hw_counters/implied_nak_seq_err", "", 1},
    {"hw_counters/np_cnp_sent", "", 1},
    {"hw_counters/rp_cnp_handled", "", 1},
};

}  // namespace

Sysfs::Sysfs(const rdma::Topology& topology, uint32_t host) : topology_(topology), host_(host) {}

std::unique_ptr<Sysfs> Sysfs::Enter(const rdma::Topology& topology, uint32_t host,
                                    std::string* error) {
  std::unique_ptr<Sysfs> sysfs(new Sysfs(topology, host));
  if (!sysfs->mounts_.Enter(MountNamespace::Who::kAnybody, error)) return nullptr;
  const bool built = sysfs->Build(error);
  if (!built) sysfs->mounts_.Undo();
  std::string drop_error;
  if (!sysfs->mounts_.DropRights(&drop_error)) {
    if (built) *error = drop_error;
    return nullptr;
  }
  return built ? std::move(sysfs) : nullptr;
}

bool Sysfs::ShowHost(const std::string& host, std::string* error) {
  MountNamespace mounts;
  if (!mounts.Enter(MountNamespace::Who::kRootOnly, error)) return false;
  for (const char* part : {kInfiniBand, kVerbs}) {
    if (!mounts.Bind(std::string(kHosts) + "/" + host + part, std::string(kClass) + part, error)) {
      mounts.Undo();
      return false;
    }
  }
  return true;
}

std::string Sysfs::HostFolder(uint32_t host) const {
  return std::string(kHosts) + "/" + topology_.hosts[host];
}

std::string Sysfs::DeviceFolder(uint32_t host, const std::string& device) const {
  return HostFolder(host) + kInfiniBand + "/" + device;
}

bool Sysfs::Build(std::string* error) {
  const std::set<std::string> replaced = {"infiniband", "infiniband_verbs", "infiniband_mad",
                                          ".railhop"};
  if (!mounts_.MakeWritable(kClass, replaced, error)) return false;
  if (!MakeFolder(kHosts)) {
    *error = std::string("cannot make ") + kHosts + ": " + std::strerror(errno);
    return false;
  }
  // The host that is shown comes first: where two hosts have the same PCI place, it is as this one
  // has it.
  const int hosts = static_cast<int>(topology_.hosts.size());
  for (int i = 0; i < hosts; ++i) {
    if (!MakeHost((static_cast<int>(host_) + i) % hosts, error)) return false;
  }
  for (const char* part : {kInfiniBand, kVerbs}) {
    const std::string shown = std::string(kClass) + part;
    MakeFolder(shown);
    if (!mounts_.Bind(HostFolder(host_) + part, shown, error)) return false;
  }
  return true;
}

bool Sysfs::MakeHost(int host, std::string* error) {
  const std::string folder = HostFolder(static_cast<uint32_t>(host));
  bool good = MakeFolder(folder);
  for (const char* part : {kInfiniBand, kVerbs, kRemoved}) good = good && MakeFolder(folder + part);
  if (!good) {
    *error = "cannot make " + folder + ": " + std::strerror(errno);
    return false;
  }
  Write(folder + kVerbs + "/abi_version", "6\n");
  int number = 0;
  for (const rdma::TopologyDevice& device : topology_.devices) {
    if (device.host != host) continue;
    std::string place;
    if (!MakePciPlace(device, &place, error) || !MakeDevice(device, number++, place, error)) {
      return false;
    }
  }
  return true;
}

bool Sysfs::MakePciPlace(const rdma::TopologyDevice& device, std::string* place,
                         std::string* error) {
  // A real device at that address keeps what it says: that is how a test puts a NIC near a real
  // GPU.
  *place = RealPciFolder(rdma::PciAddressOf(device.pci_path));
  if (!place->empty()) return true;
  const std::vector<std::string> folders = PciFolders(device.pci_path);
  for (size_t i = 0; i < folders.size(); ++i) {
    struct stat st;
    if (stat(folders[i].c_str(), &st) == 0) continue;  // a real bridge, or another device's
    if (!mounts_.MakeWritable(folders[i], {}, error)) return false;
    const bool last = i + 1 == folders.size();
    for (const auto& [name, text] : last ? PciDeviceFiles(device) : PciBridgeFiles(device)) {
      Write(folders[i] + "/" + name, text);
    }
    // NCCL takes for a PCI device only what says that it is one.
    if (symlink("/sys/bus/pci", (folders[i] + "/subsystem").c_str()) != 0) {
      *error = "cannot make " + folders[i] + "/subsystem: " + std::strerror(errno);
      return false;
    }
    const std::string name = folders[i].substr(folders[i].rfind('/') + 1);
    const std::string above = folders[i].substr(0, folders[i].rfind('/'));
    if (!MakePciBus(above, name.substr(0, std::strlen("0000:00")), error)) return false;
  }
  *place = folders.back();
  return true;
}

// NCCL finds a device's folder through its bus: /sys/class/pci_bus/BUS/../../ADDRESS.
bool Sysfs::MakePciBus(const std::string& bridge, const std::string& bus, std::string* error) {
  const std::string folder = bridge + "/pci_bus/" + bus;
  const std::string link = std::string(kPciBus) + "/" + bus;
  struct stat st;
  if (lstat(link.c_str(), &st) == 0) return true;  // a real bus, or another device's
  if (!mounts_.MakeWritable(folder, {}, error) || !mounts_.MakeWritable(kPciBus, {}, error)) {
    return false;
  }
  const std::string target = "../.." + folder.substr(std::strlen("/sys"));
  if (symlink(target.c_str(), link.c_str()) == 0) return true;
  *error = "cannot make " + link + ": " + std::strerror(errno);
  return false;
}

bool Sysfs::MakeDevice(const rdma::TopologyDevice& device, int number, const std::string& place,
                       std::string* error) {
  const auto host = static_cast<uint32_t>(device.host);
  const std::string folder = DeviceFolder(host, device.name);
  const std::string verbs = HostFolder(host) + kVerbs + "/uverbs" + std::to_string(number);
  bool good = MakeFolder(folder) && MakeFolder(folder + "/ports") && MakeFolder(verbs);
  for (size_t p = 1; p <= device.ports.size(); ++p) {
    const std::string port = PortFolder(folder, p);
    for (const char* sub : {"", "/gids", "/gid_attrs", "/gid_attrs/types", "/gid_attrs/ndevs",
                            "/pkeys", "/counters", "/hw_counters"}) {
      good = good && MakeFolder(port + sub);
    }
  }
  // From where it is shown, /sys/class/infiniband/DEVICE, three levels up is /sys.
  const std::string link = "../../.." + place.substr(std::strlen("/sys"));
  good = good && symlink(link.c_str(), (folder + "/device").c_str()) == 0 &&
         symlink(link.c_str(), (verbs + "/device").c_str()) == 0;
  if (!good) {
    *error = "cannot make " + folder + ": " + std::strerror(errno);
    return false;
  }
  Write(folder + "/node_type", "1: CA\n");
  Write(folder + "/node_guid", rdma::FormatGuid(device.node_guid) + "\n");
  Write(folder + "/sys_image_guid", rdma::FormatGuid(device.sys_image_guid) + "\n");
  Write(folder + "/fw_ver", device.fw_ver + "\n");
  Write(folder + "/hw_rev", std::to_string(device.hw_ver) + "\n");
  Write(folder + "/hca_type", "MT" + std::to_string(device.vendor_part_id) + "\n");
  Write(folder + "/board_id", "RH_SOFT\n");
  Write(folder + "/node_desc", device.name + "\n");
  Write(verbs + "/ibdev", device.name + "\n");
  Write(verbs + "/abi_version", "1\n");
  Write(verbs + "/dev", "231:" + std::to_string(192 + number) + "\n");
  present_[folder] = true;
  return true;
}

void Sysfs::UpdateState(const DirectoryHandle& directory) {
  for (uint32_t d = 0; d < directory.dir().device_count; ++d) {
    const DeviceEntry& device = directory.dir().devices[d];
    const bool here = device.removed.load(std::memory_order_acquire) == 0;
    const std::string place = DeviceFolder(device.host, device.name);
    const std::string gone = HostFolder(device.host) + kRemoved + "/" + device.name;
    bool& present = present_[place];
    if (here != present) {
      std::rename((here ? gone : place).c_str(), (here ? place : gone).c_str());
      present = here;
    }
    if (!here) continue;
    for (uint32_t p = 1; p <= device.port_count; ++p) {
      UpdatePort(PortFolder(place, p), device.ports[p - 1]);
    }
  }
}

void Sysfs::UpdatePort(const std::string& folder, const PortEntry& port) {
  const bool ethernet = port.link_layer == rdma::LinkLayer::kEthernet;
  const uint32_t state = port.link_state;
  const uint32_t phys = port.phys_state;
  Write(folder + "/state", std::to_string(state) + ": " + LinkStateName(state) + "\n");
  Write(folder + "/phys_state", std::to_string(phys) + ": " + PhysStateName(phys) + "\n");
  Write(folder + "/rate", rdma::RateText(port.rate_mbps / 1000) + "\n");
  Write(folder + "/link_layer", ethernet ? "Ethernet\n" : "InfiniBand\n");
  Write(folder + "/lid", Hex(port.lid, 1));
  Write(folder + "/sm_lid", Hex(port.sm_lid, 1));
  Write(folder + "/lid_mask_count", "0\n");
  Write(folder + "/sm_sl", "0\n");
  Write(folder + "/cap_mask", ethernet ? "0x00010000\n" : "0xa651e848\n");
  for (uint32_t i = 0; i < port.pkey_count; ++i) {
    Write(folder + "/pkeys/" + std::to_string(i), Hex(port.pkeys[i], 4));
  }
  for (uint32_t i = 0; i < static_cast<uint32_t>(kMaxGids); ++i) UpdateGid(folder, port, i);
}

void Sysfs::UpdateGid(const std::string& folder, const PortEntry& port, uint32_t index) {
  const rdma::TopologyGid entry = DirectoryHandle::ReadGid(port, index);
  const bool empty = rdma::IsEmpty(entry.gid);
  const std::string name = std::to_string(index);
  const std::string type = folder + "/gid_attrs/types/" + name;
  const std::string ndev = folder + "/gid_attrs/ndevs/" + name;
  Write(folder + "/gids/" + name, rdma::FormatGidFull(entry.gid) + "\n");
  if (empty) {
    WriteUnreadable(type);
  } else {
    Write(type, entry.type == rdma::GidType::kRoceV2 ? "RoCE v2\n" : "IB/RoCE v1\n");
  }
  if (empty || port.netdev[0] == '\0') {
    WriteUnreadable(ndev);
  } else {
    Write(ndev, std::string(port.netdev) + "\n");
  }
}

void Sysfs::UpdateCounters(const DirectoryHandle& directory) {
  for (uint32_t d = 0; d < directory.dir().device_count; ++d) {
    const DeviceEntry& device = directory.dir().devices[d];
    const std::string folder = DeviceFolder(device.host, device.name);
    if (!present_[folder]) continue;
    for (uint32_t p = 1; p <= device.port_count; ++p) {
      const auto counters = PortCounters(device.ports[p - 1]);
      for (const CounterFile& file : kCounterFiles) {
        uint64_t value = 0;
        for (const auto& [name, count] : counters) {
          if (std::strcmp(name, file.counter) == 0) value = count / file.unit;
        }
        Write(PortFolder(folder, p) + "/" + file.path, std::to_string(value) + "\n");
      }
    }
  }
}

void Sysfs::Write(const std::string& path, const std::string& text) { Replace(path, text, false); }

void Sysfs::WriteUnreadable(const std::string& path) { Replace(path, kUnreadable, true); }

void Sysfs::Replace(const std::string& path, const std::string& value, bool link) {
  std::string& written = written_[path];
  const std::string wanted = (link ? "l" : "f") + value;
  if (written == wanted) return;
  // A file that replaces another is made elsewhere, so that a listing never shows it.
  const std::string made = written.empty() ? path : kFresh;
  if (link) {
    if (symlink(value.c_str(), made.c_str()) != 0) return;
  } else {
    const int fd = open(made.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0444);
    if (fd < 0) return;
    const bool good = write(fd, value.data(), value.size()) == static_cast<ssize_t>(value.size());
    close(fd);
    if (!good) return;
  }
  if (made == path || std::rename(made.c_str(), path.c_str()) == 0) written = wanted;
}

}  // namespace railhop::fabric
