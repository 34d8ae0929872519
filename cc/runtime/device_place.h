// Where a device sits in the machine, and how fast its port is: what NCCL lays its topology out by.
#ifndef RAILHOP_CC_RUNTIME_DEVICE_PLACE_H_
#define RAILHOP_CC_RUNTIME_DEVICE_PLACE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace railhop::runtime {

// The real path of a verbs device's PCI function, such as
// "/sys/devices/pci0000:15/0000:15:01.0/0000:17:00.1"; empty if there is none.
// sys_path: the device's folder, such as "/sys/class/infiniband/mlx5_0".
std::string RealPciPath(const std::string& sys_path);

// The NUMA node of a PCI function by its folder (RealPciPath); -1 if it is not told.
int NumaNode(const std::string& pci_path);

// The path with the function's number set to 0, so that the ports of a card count as one PCI
// device; with merge_virtual the device's number as well, so that its virtual functions do too.
// This is the pciPath that NCCL gets. "" gives "". Source: NCCL v2.30.7-1
// src/transport/net_ib/init.cc ncclIbGetPciPath.
std::string MergedPciPath(std::string path, bool merge_virtual);

// Whether two merged paths are one card by the rule above; never for an empty one.
// Source: the same file, ncclIbMatchVfPath.
bool SameCard(std::string_view path, std::string_view other, bool merge_virtual);

// The PCI address at the end of a path as a number, to sort by; -1 for "".
int64_t PciOrder(std::string_view path);

// Order of devices by full path: by PCI address, those without a path last, ties as they are.
// Returns the indices of `paths` in that order.
std::vector<int> PciSortedOrder(const std::vector<std::string>& paths);

// From the codes of ibv_port_attr. Unknown codes give the speed of the slowest link that NCCL's
// tables have, so that a strange port is not taken for a fast one. Source of the tables: NCCL
// v2.30.7-1 src/transport/net_ib/init.cc; InfiniBand vol. 1 14.2.5.6.
int SpeedMbpsFromCodes(uint32_t width_code, uint32_t speed_code);

// Whether the kernel can give GPU memory to NICs by a peer-memory module.
// root: "" in life, a folder in tests. Source: NCCL v2.30.7-1 src/transport/net_ib/gdr.cc.
bool HasPeerMemory(const std::string& root);

// RoCE version of a GID by /sys: 1, 2, or 0 if it is not told.
int RoceVersionFromSysfs(const std::string& sys_path, int port, int gid_index);

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_DEVICE_PLACE_H_
