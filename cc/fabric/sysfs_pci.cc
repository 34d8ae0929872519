#include "cc/fabric/sysfs_pci.h"

#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace railhop::fabric {
namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// A mask of `cpus` processors as sysfs writes it: groups of 32 bits, highest first.
std::string AllCpusMask(long cpus) {
  std::string mask;
  for (long group = (cpus - 1) / 32; group >= 0; --group) {
    const long bits = group == (cpus - 1) / 32 ? (cpus - 1) % 32 + 1 : 32;
    char text[16];
    std::snprintf(text, sizeof(text), "%08x",
                  bits == 32 ? 0xffffffffu : static_cast<unsigned>((1ul << bits) - 1));
    mask += (mask.empty() ? "" : ",") + std::string(text);
  }
  return mask;
}

// Processors near the node; all of them when this machine has no such node.
void AddNuma(int node, Files* files) {
  const std::string folder = "/sys/devices/system/node/node" + std::to_string(node);
  std::string mask = node < 0 ? "" : FirstLine(folder + "/cpumap");
  std::string list = node < 0 ? "" : FirstLine(folder + "/cpulist");
  if (mask.empty()) {
    const long cpus = sysconf(_SC_NPROCESSORS_CONF);
    mask = AllCpusMask(cpus);
    list = "0-" + std::to_string(cpus - 1);
  }
  files->push_back({"numa_node", std::to_string(node) + "\n"});
  files->push_back({"local_cpus", mask + "\n"});
  files->push_back({"local_cpulist", list + "\n"});
}

// A slot that carries what the fastest port needs: PCIe 3.0 x16 takes 100 Gb/s, each generation
// doubles it.
void AddLink(const rdma::TopologyDevice& device, Files* files) {
  uint32_t gbps = 0;
  for (const rdma::TopologyPort& port : device.ports) gbps += port.speed_gbps;
  const std::string speed = gbps <= 100   ? "8.0 GT/s PCIe"
                            : gbps <= 200 ? "16.0 GT/s PCIe"
                            : gbps <= 400 ? "32.0 GT/s PCIe"
                                          : "64.0 GT/s PCIe";
  for (const char* prefix : {"max", "current"}) {
    files->push_back({prefix + std::string("_link_speed"), speed + "\n"});
    files->push_back({prefix + std::string("_link_width"), "16\n"});
  }
}

Files Common(const rdma::TopologyDevice& device, const char* pci_class, unsigned product) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%04x\n", product);
  Files files = {{"class", std::string(pci_class) + "\n"},
                 {"vendor", "0x15b3\n"},
                 {"device", text},
                 {"subsystem_vendor", "0x15b3\n"},
                 {"subsystem_device", "0x0001\n"},
                 {"revision", "0x00\n"},
                 {"enable", "1\n"}};
  AddNuma(device.numa_node, &files);
  AddLink(device, &files);
  return files;
}

}  // namespace

std::vector<std::string> PciFolders(const std::string& pci_path) {
  // The root is named after the domain and bus of the first step.
  std::string folder = "/sys/devices/pci" + pci_path.substr(0, 7);
  std::vector<std::string> folders;
  for (size_t begin = 0; begin < pci_path.size();) {
    const size_t end = std::min(pci_path.find('/', begin), pci_path.size());
    folder += "/" + pci_path.substr(begin, end - begin);
    folders.push_back(folder);
    begin = end + 1;
  }
  return folders;
}

std::string RealPciFolder(const std::string& pci_address) {
  char real[PATH_MAX];
  if (realpath(("/sys/bus/pci/devices/" + pci_address).c_str(), real) == nullptr) return "";
  return real;
}

Files PciDeviceFiles(const rdma::TopologyDevice& device) {
  const bool ethernet =
      !device.ports.empty() && device.ports[0].link_layer == rdma::LinkLayer::kEthernet;
  return Common(device, ethernet ? "0x020000" : "0x020700", device.vendor_part_id & 0xffff);
}

Files PciBridgeFiles(const rdma::TopologyDevice& device) {
  return Common(device, "0x060400", 0x1979);
}

}  // namespace railhop::fabric
