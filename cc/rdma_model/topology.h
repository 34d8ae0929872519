// What a fabric is made of: hosts, their devices, the ports with their addresses, and which nets
// reach each other.
//
// A topology is what a lab drawing shows, as plain data; topology_text.h reads and writes its text
// form. Everything that a program can see of a device before the first packet comes from here. The
// hard case is the GID table: its order and its gaps decide which address a program picks, so the
// usual Linux order is made by default and every entry can be set by hand.
#ifndef RAILHOP_CC_RDMA_MODEL_TOPOLOGY_H_
#define RAILHOP_CC_RDMA_MODEL_TOPOLOGY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cc/rdma_model/types.h"

namespace railhop::rdma {

// Limits of a topology; cc/fabric/directory_layout.h has room for exactly these.
inline constexpr int kTopologyMaxHosts = 64;
inline constexpr int kTopologyMaxDevices = 64;  // of all hosts together
inline constexpr int kTopologyMaxPorts = 2;     // of one device
inline constexpr int kTopologyMaxNets = 64;
inline constexpr int kTopologyMaxGids = 16;
inline constexpr int kTopologyMaxPkeys = 8;

// An entry of a port's GID table. An all-zero GID is an empty entry.
struct TopologyGid {
  Gid gid;
  GidType type = GidType::kIb;
  friend bool operator==(const TopologyGid&, const TopologyGid&) = default;
};

struct TopologyPort {
  LinkLayer link_layer = LinkLayer::kEthernet;
  int net = 0;                // index in Topology::nets
  bool up = true;             // at the start
  uint32_t speed_gbps = 100;  // one of 10 25 40 50 56 100 200 400 800
  uint32_t max_mtu = 5;       // verbs codes 1..5: 256..4096 bytes
  uint32_t active_mtu = 5;    // <= max_mtu
  uint32_t lid = 0;           // InfiniBand only, 1..0xbfff, unique in its net
  uint32_t sm_lid = 0;
  uint64_t guid = 0;                            // of the port, host order
  uint64_t subnet_prefix = 0xfe80000000000000;  // InfiniBand only, host order
  std::string netdev;                           // network interface of the port, "" for none
  std::vector<uint16_t> pkeys;                  // default: 0xffff alone
  std::vector<TopologyGid> gids;                // in table order
  friend bool operator==(const TopologyPort&, const TopologyPort&) = default;
};

struct TopologyCaps {
  uint32_t max_qp = 65536;
  uint32_t max_qp_wr = 32768;
  uint32_t max_sge = 16;  // <= kMaxSge
  uint32_t max_cq = 65536;
  uint32_t max_cqe = 4194303;
  uint32_t max_mr = 1u << 20;
  uint32_t max_pd = 65536;
  uint32_t max_rd_atomic = 16;
  uint64_t max_mr_size = ~uint64_t{0};  // bytes
  friend bool operator==(const TopologyCaps&, const TopologyCaps&) = default;
};

struct TopologyDevice {
  std::string name;        // "mlx5_0", unique on its host
  int host = 0;            // index in Topology::hosts
  uint64_t node_guid = 0;  // host order
  uint64_t sys_image_guid = 0;
  uint32_t vendor_id = 0x02c9;
  uint32_t vendor_part_id = 4129;
  uint32_t hw_ver = 0;
  std::string fw_ver = "1.0.0";
  // Where it sits: "0000:17:00.0", or the way to it through bridges,
  // "0000:15:00.0/0000:16:01.0/0000:17:00.0". Devices whose ways share bridges are near each other.
  std::string pci_path;
  int numa_node = 0;  // -1: unknown
  // errno that opening the device gives (a container that lists devices it may not use); 0: it
  // opens.
  int open_errno = 0;
  TopologyCaps caps;
  std::vector<std::string> quirks;  // names of provider quirks that are on from the start
  std::vector<TopologyPort> ports;  // port 1 is ports[0]
  friend bool operator==(const TopologyDevice&, const TopologyDevice&) = default;
};

// A pair of nets joined by a router. Only routable GIDs (RoCE v2 that is not link-local; InfiniBand
// with a subnet prefix other than fe80::) get across.
struct TopologyRoute {
  int from = 0;
  int to = 0;
  friend bool operator==(const TopologyRoute&, const TopologyRoute&) = default;
};

struct Topology {
  std::vector<std::string> hosts;
  std::vector<std::string> nets;
  std::vector<TopologyRoute> routes;  // one way each
  std::vector<TopologyDevice> devices;
  friend bool operator==(const Topology&, const Topology&) = default;
};

// One host with four devices soft0..soft3, RoCE, 100 Gb/s, addresses 10.0.0.1 to 10.0.0.4 in one
// net.
Topology DefaultTopology();

// The GID table that Linux makes for an Ethernet port: for the link-local address (none when all
// zero) and then for each of `addresses` a RoCE v1 and a RoCE v2 entry.
std::vector<TopologyGid> EthernetGids(const Gid& link_local, const std::vector<Gid>& addresses);
// prefix:guid, both in host order.
Gid GidOf(uint64_t prefix, uint64_t guid);

// What a device gets that does not say otherwise, by its host's index and its index on that host.
uint64_t DefaultNodeGuid(int host, int device);
uint64_t DefaultPortGuid(int host, int device, int port);  // port from 1
std::string DefaultPciPath(int device);

// "0000:17:00.0" of ".../0000:17:00.0".
std::string PciAddressOf(const std::string& pci_path);

// "fe80::1", "::ffff:10.0.0.1" or "10.0.0.1" as a GID (IPv4 mapped); nothing if it is no address.
std::optional<Gid> ParseAddress(std::string_view text);
// IPv4-mapped GIDs as "10.0.0.1", others in the usual IPv6 form.
std::string FormatAddress(const Gid& gid);
// All 8 groups of 4 hex digits, as in sysfs: "0000:0000:0000:0000:0000:ffff:0a00:0001".
std::string FormatGidFull(const Gid& gid);
// "0002:c903:00a1:b2c3", as in sysfs.
std::string FormatGuid(uint64_t guid);

bool IsEmpty(const Gid& gid);
bool IsLinkLocal(const Gid& gid);  // fe80::/64 and fe80::/10
bool IsIpv4Mapped(const Gid& gid);

// The pair (active_width, active_speed) of verbs port attributes that makes `gbps`; {0, 0} if none
// does.
struct WidthSpeed {
  uint32_t width = 0;  // 1: 1x, 2: 4x, 4: 8x, 8: 12x, 16: 2x
  uint32_t speed = 0;  // 1 SDR .. 32 EDR, 64 HDR, 128 NDR, 256 XDR
};
WidthSpeed WidthSpeedOf(uint32_t gbps);
const std::vector<uint32_t>& KnownSpeedsGbps();
// "100 Gb/sec (4X EDR)", as sysfs has it.
std::string RateText(uint32_t gbps);

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_TOPOLOGY_H_
