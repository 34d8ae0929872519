// The process's net devices: found through verbs, filtered, ordered and described as NCCL's own IB
// transport does it, so that NCCL numbers the same devices the same way on every node.
//
// A port that is down at the start is not counted, as in NCCL, since counting it would shift the
// numbers of the others. Unlike in NCCL it is watched, and joins at the end of the list when it
// comes up. So indices never change and the list only grows.
//
// Rules and limits: NCCL v2.30.7-1 src/transport/net_ib/init.cc.
#ifndef RAILHOP_CC_RUNTIME_DEVICE_TABLE_H_
#define RAILHOP_CC_RUNTIME_DEVICE_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "cc/config/nccl_values.h"
#include "cc/config/options.h"
#include "cc/runtime/gid_choice.h"
#include "cc/runtime/net_device.h"
#include "cc/runtime/port_facts.h"
#include "cc/verbs/context.h"

namespace railhop::runtime {

class PortWatch;

// The options that matter here, parsed.
struct DeviceRules {
  config::NameFilter filter;  // NCCL_IB_HCA
  GidRule gid;
  bool pci_order = true;
  bool merge_virtual = true;
  bool may_fuse = true;
  bool ask_speed = true;
  bool relaxed_ordering = true;
  int pkey_index = 0;
  // Before every path in /sys; a folder in tests.
  std::string root;

  // *notes: what could not be used as written.
  static DeviceRules From(const config::Options& options, std::vector<std::string>* notes);
  PortRules ports() const { return {gid, pkey_index, root}; }
};

// Thread-safe.
class DeviceTable final : public DeviceSource {
 public:
  static constexpr int kPhysicalMax = 32;  // bits of a registration's mask
  static constexpr int kNetDevicesMax = 256;

  // Opens the devices. None found is no error: Count() is 0 then, and Complaints() says why.
  // Errors: Internal (no list of devices), InvalidArgument (rails and planes that cannot be told
  // apart).
  static absl::StatusOr<std::unique_ptr<DeviceTable>> Discover(
      std::shared_ptr<const verbs::Table> table, const DeviceRules& rules);
  ~DeviceTable() override;

  int Count() const override;
  const NetDevice* Get(int index) const override;
  absl::StatusOr<int> Fuse(absl::Span<const int> devices) override;
  std::vector<const PhysicalDevice*> Physical() const override;
  // JoinPorts, and takes devices of the gone ones' GUIDs on again. Up to kPhysicalMax in all.
  int Rescan(absl::Span<const int> gone) override ABSL_LOCKS_EXCLUDED(mutex_);

  // What a person may need to act on, one sentence each: devices that do not open, P_Keys that do
  // not exist, addresses that reach nobody, why there is no device. Those of ports
  // that join are added.
  std::vector<std::string> Complaints() const;
  // One line for each net device: name, port, link, speed, place, GID, rail and plane.
  std::vector<std::string> Describe() const;

  // Starts a thread that looks after ports that are down, every interval_ns and at events of
  // devices of which no port is in use. It ends with the table at the latest.
  void StartWatching(int64_t interval_ns);
  void StopWatching();
  // Reads the state of the ports that wait; those that are up join. Returns how many did. For the
  // watch, and for whoever reads a port event.
  int JoinPorts() ABSL_LOCKS_EXCLUDED(mutex_);
  // "mlx5_1:1", in the order in which they were found.
  std::vector<std::string> WaitingPorts() const;
  // Open devices of which no port is in use, so that nobody else reads their events.
  std::vector<const verbs::Context*> IdleContexts() const;

 private:
  // A port that was found and passes the filter.
  struct Candidate {
    verbs::Context* context = nullptr;
    uint8_t port = 1;
    int rail = -1;
    int plane = -1;
    std::string full_path;  // of PCI
    uint64_t guid = 0;      // of the system image
    int max_qp = 0;
  };

  DeviceTable(std::shared_ptr<const verbs::Table> table, DeviceRules rules);

  void LookAt(ibv_device* device, std::vector<Candidate>* up);
  void LookAtPort(verbs::Context* context, const ibv_device_attr& attr, uint8_t port,
                  std::vector<Candidate>* up, bool* wanted);
  // 0 = no such entry, or an unused one.
  uint16_t Pkey(const verbs::Context& context, uint8_t port) const;
  void SortByPlace(std::vector<Candidate>* candidates) const;
  // Adds a physical device and its net device. Errors: InvalidArgument (planes).
  absl::Status Add(const Candidate& candidate, const ibv_port_attr& attr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What Add and Readopt have in common; no address yet.
  std::unique_ptr<PhysicalDevice> MakePhysical(const Candidate& candidate,
                                               const ibv_port_attr& attr) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A device that is back, in place of the lost one.
  void Readopt(const PhysicalDevice& lost, verbs::Context* context, const ibv_port_attr& attr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int> PlaneIndex(int plane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  GidChoice FindGid(const verbs::Context& context, const ibv_port_attr& attr, uint8_t port) const;
  int Speed(const verbs::Context& context, const ibv_port_attr& attr, uint8_t port) const;
  int PointerSupport(verbs::Context* context) const;
  void ExplainNoDevice(int listed);
  void Complain(std::string text) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<const verbs::Table> table_;
  const DeviceRules rules_;
  const bool peer_memory_;
  // Written by Discover alone.
  std::vector<std::string> closed_;  // devices that are wanted and do not open, with the reason

  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<verbs::Context>> contexts_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> complaints_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<PhysicalDevice>> physical_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<NetDevice>> net_devices_ ABSL_GUARDED_BY(mutex_);
  // Those whose device is gone; pointers to them stay good.
  std::vector<std::unique_ptr<NetDevice>> retired_ ABSL_GUARDED_BY(mutex_);
  std::vector<Candidate> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> planes_ ABSL_GUARDED_BY(mutex_);  // planes met, -1 first; the index is its bit
  std::map<int, std::string> gid_text_ ABSL_GUARDED_BY(mutex_);  // by PhysicalDevice::id

  std::unique_ptr<PortWatch> watch_;  // last: ends before what it looks at
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_DEVICE_TABLE_H_
