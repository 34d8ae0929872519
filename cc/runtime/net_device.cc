#include "cc/runtime/net_device.h"

#include <algorithm>
#include <string_view>

namespace railhop::runtime {
namespace {

// The first `parts` folders below /sys/devices: 1 = root complex, 2 = root port too.
std::string_view Above(std::string_view path, int parts) {
  constexpr std::string_view kRoot = "/sys/devices/";
  const size_t root = path.find(kRoot);
  if (root == std::string_view::npos) return {};
  const std::string_view below = path.substr(root + kRoot.size());
  size_t end = 0;
  for (int i = 0; i < parts; ++i) {
    end = below.find('/', end == 0 ? 0 : end + 1);
    if (end == std::string_view::npos) return {};
  }
  return below.substr(0, end);
}

bool SameAbove(const std::string& a, const std::string& b, int parts) {
  const std::string_view of_a = Above(a, parts);
  return !of_a.empty() && of_a == Above(b, parts);
}

}  // namespace

Distance DistanceBetween(const PhysicalDevice& a, const PhysicalDevice& b) {
  if (a.id == b.id || (a.guid != 0 && a.guid == b.guid && a.port == b.port &&
                       (a.replaces >= 0 || b.replaces >= 0))) {
    return Distance::kSamePort;
  }
  if (a.context != nullptr && a.context == b.context) return Distance::kSameSwitch;
  // A root port has one link: what shares it is on one card or behind one switch.
  if (SameAbove(a.pci_path, b.pci_path, 2)) return Distance::kSameSwitch;
  if (a.numa_node >= 0 && b.numa_node >= 0) {
    return a.numa_node == b.numa_node ? Distance::kSameNode : Distance::kSameHost;
  }
  return SameAbove(a.pci_path, b.pci_path, 1) ? Distance::kSameNode : Distance::kSameHost;
}

}  // namespace railhop::runtime
