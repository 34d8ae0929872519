// Topology files: any text gives an error with file, line and word, or a topology that is whole and
// that comes out of its own text again.
#include <string>

#include "cc/fuzz/input.h"
#include "cc/rdma_model/topology_text.h"

namespace railhop::fuzz {
namespace {

using rdma::Topology;

// "fuzz.topology:LINE: ".
void CheckError(const std::string& error, std::string_view text) {
  RequireReadable(error);
  constexpr std::string_view kFile = "fuzz.topology:";
  Require(error.starts_with(kFile), "an error names the file", error);
  const size_t behind = error.find_first_not_of("0123456789", kFile.size());
  Require(behind != std::string::npos && behind > kFile.size() && error[behind] == ':',
          "and the line", error);
  const auto line = std::strtoul(error.c_str() + kFile.size(), nullptr, 10);
  const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
  Require(line <= static_cast<unsigned long>(lines), "which is there", error);
}

// "0000:17:00.0" and '/' between several.
bool IsPciPath(const std::string& path) {
  constexpr std::string_view kShape = "xxxx:xx:xx.x/";
  for (size_t i = 0; i < path.size(); ++i) {
    const char wanted = kShape[i % kShape.size()];
    const bool fits =
        wanted == 'x' ? std::isxdigit(static_cast<unsigned char>(path[i])) != 0 : path[i] == wanted;
    if (!fits) return false;
  }
  return path.size() % kShape.size() == kShape.size() - 1;
}

void CheckDevice(const Topology& topology, const rdma::TopologyDevice& device) {
  Require(device.host >= 0 && static_cast<size_t>(device.host) < topology.hosts.size(),
          "a device is of a host", device.name);
  Require(IsPciPath(device.pci_path), "a device is at a PCI address", device.pci_path);
  Require(!device.ports.empty() && device.ports.size() <= rdma::kTopologyMaxPorts,
          "a device has ports", device.name);
  for (const rdma::TopologyPort& port : device.ports) {
    Require(port.net >= 0 && static_cast<size_t>(port.net) < topology.nets.size(),
            "a port is in a net", device.name);
    Require(port.gids.size() <= rdma::kTopologyMaxGids, "GIDs fit", device.name);
    Require(!port.pkeys.empty() && port.pkeys.size() <= rdma::kTopologyMaxPkeys, "P_Keys fit",
            device.name);
    Require(port.active_mtu >= 1 && port.active_mtu <= port.max_mtu && port.max_mtu <= 5,
            "MTUs are codes", device.name);
    const bool ethernet = port.link_layer == rdma::LinkLayer::kEthernet;
    Require(ethernet ? port.lid == 0 && port.sm_lid == 0 : port.lid != 0,
            "InfiniBand ports have LIDs, others have none", device.name);
    for (const rdma::TopologyGid& gid : port.gids) {
      if (rdma::IsEmpty(gid.gid)) continue;
      Require((gid.type == rdma::GidType::kIb) == !ethernet, "GIDs are of the port's kind",
              device.name);
    }
  }
}

void CheckTopology(const Topology& topology) {
  Require(!topology.hosts.empty() && topology.hosts.size() <= rdma::kTopologyMaxHosts, "hosts fit");
  Require(!topology.nets.empty() && topology.nets.size() <= rdma::kTopologyMaxNets, "nets fit");
  Require(!topology.devices.empty() && topology.devices.size() <= rdma::kTopologyMaxDevices,
          "devices fit");
  for (const rdma::TopologyDevice& device : topology.devices) CheckDevice(topology, device);
  const std::string text = rdma::FormatTopology(topology);
  Require(IsPrintable(text.substr(0, text.find('\n'))), "a topology's text can be read", text);
  std::string error;
  const auto again = rdma::ParseTopology(text, "again", &error);
  Require(again.has_value(), "what is written can be read", error + "\n" + text);
  Require(*again == topology, "what is read, written and read is the same", text);
}

}  // namespace
}  // namespace railhop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace railhop::fuzz;  // NOLINT(google-build-using-namespace): the entry of the program
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string error;
  const auto topology = railhop::rdma::ParseTopology(text, "fuzz.topology", &error);
  if (topology) {
    CheckTopology(*topology);
    Require(text.find('\0') == text.npos || text.find('#') < text.find('\0'),
            "no word holds a zero");
  } else {
    CheckError(error, text);
  }
  return 0;
}
