// What /sys says about a PCI device or bridge that does not exist.
#ifndef RAILHOP_CC_FABRIC_SYSFS_PCI_H_
#define RAILHOP_CC_FABRIC_SYSFS_PCI_H_

#include <string>
#include <utility>
#include <vector>

#include "cc/rdma_model/topology.h"

namespace railhop::fabric {

// Folder under /sys/devices of each step of a device's PCI path, the device's own last:
// "/sys/devices/pci0000:15/0000:15:00.0/0000:18:00.0".
std::vector<std::string> PciFolders(const std::string& pci_path);
// Where the machine has a real device of that address; empty if it has none.
std::string RealPciFolder(const std::string& pci_address);

// Names and contents of the files in the device's folder, or in that of a bridge above it.
std::vector<std::pair<std::string, std::string>> PciDeviceFiles(const rdma::TopologyDevice& device);
std::vector<std::pair<std::string, std::string>> PciBridgeFiles(const rdma::TopologyDevice& device);

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_SYSFS_PCI_H_
