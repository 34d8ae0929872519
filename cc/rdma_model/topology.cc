#include "cc/rdma_model/topology.h"

#include <arpa/inet.h>

#include <cstdio>
#include <cstring>

namespace railhop::rdma {
namespace {

struct SpeedRow {
  uint32_t gbps;
  WidthSpeed verbs;
  const char* lanes;  // as sysfs writes it
};

// Source of the codes: rdma-core ibv_query_port(3); of the names: Linux
// drivers/infiniband/core/sysfs.c.
constexpr SpeedRow kSpeeds[] = {
    {10, {1, 4}, "1X QDR"},   {25, {1, 32}, "1X EDR"},   {40, {2, 4}, "4X QDR"},
    {50, {1, 64}, "1X HDR"},  {56, {2, 16}, "4X FDR"},   {100, {2, 32}, "4X EDR"},
    {200, {2, 64}, "4X HDR"}, {400, {2, 128}, "4X NDR"}, {800, {2, 256}, "4X XDR"},
};

const SpeedRow* FindSpeed(uint32_t gbps) {
  for (const SpeedRow& row : kSpeeds) {
    if (row.gbps == gbps) return &row;
  }
  return nullptr;
}

// The modified EUI-64 of the locally administered MAC 02:52:48:<host>:<device>:<port>.
uint64_t Eui64(int host, int device, int port) {
  return 0x005248fffe000000 | static_cast<uint64_t>(host & 0xff) << 16 |
         static_cast<uint64_t>(device & 0xff) << 8 | static_cast<uint64_t>(port & 0xff);
}

}  // namespace

bool IsEmpty(const Gid& gid) { return gid == Gid{}; }

bool IsLinkLocal(const Gid& gid) { return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80; }

bool IsIpv4Mapped(const Gid& gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof(kPrefix)) == 0;
}

std::optional<Gid> ParseAddress(std::string_view text) {
  const std::string copy(text);
  if (copy.find('\0') != std::string::npos) return std::nullopt;  // C's functions stop there
  Gid gid;
  if (inet_pton(AF_INET6, copy.c_str(), gid.raw) == 1) return gid;
  if (inet_pton(AF_INET, copy.c_str(), gid.raw + 12) == 1) {
    gid.raw[10] = gid.raw[11] = 0xff;
    return gid;
  }
  return std::nullopt;
}

std::string FormatAddress(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  if (IsIpv4Mapped(gid)) {
    inet_ntop(AF_INET, gid.raw + 12, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
  }
  return text;
}

std::string FormatGidFull(const Gid& gid) {
  char text[40];
  for (int i = 0; i < 8; ++i) {
    std::snprintf(text + i * 5, sizeof(text) - i * 5,
                  i == 7 ? "%02x%02x" : "%02x%02x:", gid.raw[2 * i], gid.raw[2 * i + 1]);
  }
  return text;
}

std::string FormatGuid(uint64_t guid) {
  char text[20];
  std::snprintf(text, sizeof(text), "%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48),
                static_cast<unsigned>(guid >> 32 & 0xffff),
                static_cast<unsigned>(guid >> 16 & 0xffff), static_cast<unsigned>(guid & 0xffff));
  return text;
}

Gid GidOf(uint64_t prefix, uint64_t guid) {
  Gid gid;
  for (int i = 0; i < 8; ++i) {
    gid.raw[i] = static_cast<uint8_t>(prefix >> (56 - 8 * i));
    gid.raw[8 + i] = static_cast<uint8_t>(guid >> (56 - 8 * i));
  }
  return gid;
}

std::vector<TopologyGid> EthernetGids(const Gid& link_local, const std::vector<Gid>& addresses) {
  std::vector<TopologyGid> table;
  const auto add = [&table](const Gid& gid) {
    table.push_back({gid, GidType::kRoceV1});
    table.push_back({gid, GidType::kRoceV2});
  };
  if (!IsEmpty(link_local)) add(link_local);
  for (const Gid& address : addresses) add(address);
  return table;
}

uint64_t DefaultNodeGuid(int host, int device) { return Eui64(host, device, 0); }

uint64_t DefaultPortGuid(int host, int device, int port) { return Eui64(host, device, port); }

std::string DefaultPciPath(int device) {
  // A domain that no machine has, so that the made-up places hide no real ones.
  char text[16];
  std::snprintf(text, sizeof(text), "5248:%02x:00.0", 0x10 + 2 * (device & 0x3f));
  return text;
}

std::string PciAddressOf(const std::string& pci_path) {
  return pci_path.substr(pci_path.rfind('/') + 1);  // npos + 1 is 0
}

WidthSpeed WidthSpeedOf(uint32_t gbps) {
  const SpeedRow* row = FindSpeed(gbps);
  return row == nullptr ? WidthSpeed{} : row->verbs;
}

const std::vector<uint32_t>& KnownSpeedsGbps() {
  static const std::vector<uint32_t>& known = *new std::vector<uint32_t>([] {
    std::vector<uint32_t> all;
    for (const SpeedRow& row : kSpeeds) all.push_back(row.gbps);
    return all;
  }());
  return known;
}

std::string RateText(uint32_t gbps) {
  const SpeedRow* row = FindSpeed(gbps);
  return std::to_string(gbps) + " Gb/sec" +
         (row == nullptr ? "" : std::string(" (") + row->lanes + ")");
}

Topology DefaultTopology() {
  Topology topology;
  topology.hosts = {"host0"};
  topology.nets = {"lan"};
  for (int i = 0; i < 4; ++i) {
    TopologyDevice device;
    device.name = "soft" + std::to_string(i);
    device.node_guid = device.sys_image_guid = DefaultNodeGuid(0, i);
    device.pci_path = DefaultPciPath(i);
    TopologyPort port;
    port.guid = DefaultPortGuid(0, i, 1);
    port.pkeys = {0xffff};
    port.gids = EthernetGids(GidOf(port.subnet_prefix, port.guid),
                             {*ParseAddress("10.0.0." + std::to_string(i + 1))});
    device.ports.push_back(port);
    topology.devices.push_back(device);
  }
  return topology;
}

}  // namespace railhop::rdma
