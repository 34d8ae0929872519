// Net devices: what NCCL counts from 0, each one to eight ports of verbs devices.
//
// The device table finds, orders and describes them (DeviceSource); the transport connects over
// them. Both sides of that seam meet in the structs here.
#ifndef RAILHOP_CC_RUNTIME_NET_DEVICE_H_
#define RAILHOP_CC_RUNTIME_NET_DEVICE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace railhop::verbs {
class Context;
}  // namespace railhop::verbs

namespace railhop::runtime {

// NCCL_NET_MAX_DEVS_PER_NIC of API v12. Source: NCCL 2.30.3 src/include/plugin/net/net_v12.h.
inline constexpr int kFusedDevicesMax = 8;
// NCCL_NET_HANDLE_MAXSIZE. Source: NCCL 2.30.7 src/include/plugin/nccl_net.h.
inline constexpr int kHandleBytes = 128;
// Receives in one irecv. Source: NCCL 2.30.7 NCCL_NET_IB_MAX_RECVS.
inline constexpr int kGroupedReceivesMax = 8;

// Kinds of memory, as bits: NCCL_PTR_HOST, NCCL_PTR_CUDA, NCCL_PTR_DMABUF.
inline constexpr int kPointerHost = 0x1;
inline constexpr int kPointerCuda = 0x2;
inline constexpr int kPointerDmaBuf = 0x4;

// What NCCL asks about a net device, free of ABI versions.
struct DeviceProperties {
  std::string name;      // as verbs has it; "a+b" if fused
  std::string pci_path;  // real path in /sys; empty if there is none
  uint64_t guid = 0;
  int ptr_support = kPointerHost;  // kPointer* bits, as probed
  bool reg_is_global = true;
  bool force_flush = false;
  int speed_mbps = 0;  // sum of the ports
  int port = 1;
  float latency_us = 0;
  int max_comms = 0;
  int max_recvs = kGroupedReceivesMax;
  int rail_id = -1;  // -1 = not known
  int plane_id = -1;
  std::vector<int> fused;  // net devices that this one is made of; itself if physical
  uint64_t max_p2p_bytes = 0;
  uint64_t max_coll_bytes = 0;
  int max_multi_request = 1;
};

// A rail as peers are told it: a number that no message carries (a person may write any into
// NCCL_IB_HCA) is not known there, or the whole message would be refused.
constexpr int RailForPeers(int rail_id) { return rail_id >= 0 && rail_id <= 0x7fff ? rail_id : -1; }

// One port of an open verbs device, as the transport needs it. Does not move or change once made.
struct PhysicalDevice {
  int id = 0;  // unique in the process, from 0 without gaps
  std::string name;
  verbs::Context* context = nullptr;  // outlives the transport
  uint8_t port = 1;
  bool is_ethernet = false;  // RoCE, else InfiniBand
  int gid_index = 0;         // by the rules of NCCL_IB_GID_INDEX and its kin
  int ptr_support = kPointerHost;
  bool relaxed_ordering = false;  // probed: registrations may carry the flag
  int rail_id = -1;
  int plane_id = -1;
  // For the choice of backups, and to know the port again:
  std::array<uint8_t, 16> gid = {};  // at gid_index, when it was found; zeros if it had none
  uint16_t pkey = 0;                 // at the configured index then; 0 = not known
  uint64_t guid = 0;                 // of the device
  std::string pci_path;              // real path in /sys, of its function; empty if there is none
  int numa_node = -1;                // -1 = not known
  int speed_mbps = 0;
  int replaces = -1;  // id of the device, gone since, that this one was
};

// How far two ports are from each other.
enum class Distance : uint8_t {
  kSamePort = 0,
  kSameSwitch = 1,  // of PCI; or the same card
  kSameNode = 2,    // of NUMA, or the same root complex
  kSameHost = 3,    // also if nothing is known
};
Distance DistanceBetween(const PhysicalDevice& a, const PhysicalDevice& b);

struct NetDevice {
  DeviceProperties properties;
  std::vector<const PhysicalDevice*> parts;  // 1..kFusedDevicesMax
};

// Where net devices come from. Any thread may call; what Get returns lives as long as the source.
class DeviceSource {
 public:
  virtual ~DeviceSource() = default;

  // May grow: ports that were down join when they come up.
  virtual int Count() const = 0;

  // nullptr if there is no such device.
  virtual const NetDevice* Get(int index) const = 0;

  // A net device of these (indices of physical ones); returns its index.
  // Errors: InvalidArgument (no such device, too many), FailedPrecondition (NCCL_IB_MERGE_NICS=0).
  virtual absl::StatusOr<int> Fuse(absl::Span<const int> devices) = 0;

  // Every usable port of the process by id, in any net device or not; what NCCL_IB_HCA leaves out
  // is not there. May grow. At most 32.
  virtual std::vector<const PhysicalDevice*> Physical() const = 0;

  // Looks for ports that came up and for devices that were gone and are back (the same GUID, a new
  // context, a new id; net devices that had the old one get the new one, for connections to come).
  // `gone`: ids that have failed. May hang: for the executor. Returns how many were added.
  virtual int Rescan(absl::Span<const int> gone) {
    (void)gone;
    return 0;
  }
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_NET_DEVICE_H_
