#include "cc/runtime/device_place.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>

namespace railhop::runtime {
namespace {

// Indexed by the lowest bit of the code that is set.
constexpr int kWidths[] = {1, 4, 8, 12, 2};
constexpr int kLaneMbps[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000, 200000};

template <size_t N>
int ByLowestBit(uint32_t code, const int (&table)[N]) {
  for (size_t bit = 0; bit < N; ++bit) {
    if ((code >> bit & 1) != 0) return table[bit];
  }
  return table[0];
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// How many digits of a path's end are the same for all functions of a card: the last, and with
// merge_virtual the two of the device as well ("17:00.1").
constexpr size_t kVirtualDigits = 4;

}  // namespace

std::string RealPciPath(const std::string& sys_path) {
  char* found = realpath((sys_path + "/device").c_str(), nullptr);
  if (found == nullptr) return "";
  std::string path(found);
  std::free(found);
  return path;
}

int NumaNode(const std::string& pci_path) {
  if (pci_path.empty()) return -1;
  const int fd = open((pci_path + "/numa_node").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  char text[16] = {};
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  // The kernel writes -1 where it does not know.
  return n <= 0 || text[0] < '0' || text[0] > '9' ? -1
                                                  : static_cast<int>(strtol(text, nullptr, 10));
}

std::string MergedPciPath(std::string path, bool merge_virtual) {
  if (path.size() < kVirtualDigits) return path;
  path[path.size() - 1] = '0';
  if (merge_virtual) path[path.size() - 3] = path[path.size() - 4] = '0';
  return path;
}

bool SameCard(std::string_view path, std::string_view other, bool merge_virtual) {
  const size_t tail = merge_virtual ? kVirtualDigits : 1;
  if (path.size() <= tail) return false;
  return other.substr(0, path.size() - tail) == path.substr(0, path.size() - tail);
}

int64_t PciOrder(std::string_view path) {
  if (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (path.empty()) return -1;
  path.remove_prefix(path.rfind('/') + 1);
  int64_t order = 0;
  int digits = 0;
  for (const char c : path) {
    if (c == ':' || c == '.') continue;
    const int digit = HexDigit(c);
    if (digit < 0 || ++digits > 15) break;  // more would not fit
    order = order << 4 | digit;
  }
  return order;
}

std::vector<int> PciSortedOrder(const std::vector<std::string>& paths) {
  std::vector<int> order(paths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const std::string& path_a = paths[static_cast<size_t>(a)];
    const std::string& path_b = paths[static_cast<size_t>(b)];
    if (path_a.empty() || path_b.empty()) return !path_a.empty() && path_b.empty();
    return PciOrder(path_a) < PciOrder(path_b);
  });
  return order;
}

int SpeedMbpsFromCodes(uint32_t width_code, uint32_t speed_code) {
  return ByLowestBit(width_code, kWidths) * ByLowestBit(speed_code, kLaneMbps);
}

bool HasPeerMemory(const std::string& root) {
  constexpr const char* kModules[] = {"/sys/kernel/mm/memory_peers/nv_mem/version",
                                      "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
                                      "/sys/module/nvidia_peermem/version"};
  return std::any_of(std::begin(kModules), std::end(kModules),
                     [&](const char* path) { return access((root + path).c_str(), F_OK) == 0; });
}

int RoceVersionFromSysfs(const std::string& sys_path, int port, int gid_index) {
  const std::string path =
      sys_path + "/ports/" + std::to_string(port) + "/gid_attrs/types/" + std::to_string(gid_index);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[16] = {};
  // EINVAL: the entry is not this container's. Then, as for any failure, the version is not known.
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  const std::string_view type(text);
  if (type.starts_with("IB/RoCE v1") || type.starts_with("RoCE v1")) return 1;
  if (type.starts_with("RoCE v2")) return 2;
  return 0;
}

}  // namespace railhop::runtime
