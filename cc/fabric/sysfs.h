// The devices of a fabric in /sys, as programs look for them: /sys/class/infiniband,
// /sys/class/infiniband_verbs and their PCI places under /sys/devices.
//
// Plain files in a tmpfs that only this process and its children see (mount_namespace.h), rewritten
// when the fabric changes. A file is replaced, not overwritten, so a reader finds the old value or
// the new one. The hard case is an empty entry of a GID table: there sysfs fails the read with
// EINVAL, which a plain file cannot; a link to a file of /sys that always does so can.
#ifndef RAILHOP_CC_FABRIC_SYSFS_H_
#define RAILHOP_CC_FABRIC_SYSFS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cc/fabric/directory.h"
#include "cc/fabric/mount_namespace.h"
#include "cc/rdma_model/topology.h"

namespace railhop::fabric {

class Sysfs {
 public:
  // Moves this process, which must have one thread, into a mount namespace and puts the devices of
  // `host` there. Null and *error where the system refuses; /sys is then as it was.
  static std::unique_ptr<Sysfs> Enter(const rdma::Topology& topology, uint32_t host,
                                      std::string* error);

  // Shows this process, which must have one thread and be inside what Enter made, the devices of
  // another host. Only root can. False and *error where the system refuses.
  static bool ShowHost(const std::string& host, std::string* error);

  // Brings files up to date with the directory that was made of the same topology: states and
  // addresses (at once when they change), counters (now and then).
  void UpdateState(const DirectoryHandle& directory);
  void UpdateCounters(const DirectoryHandle& directory);

 private:
  Sysfs(const rdma::Topology& topology, uint32_t host);

  bool Build(std::string* error);
  bool MakeHost(int host, std::string* error);
  bool MakePciBus(const std::string& bridge, const std::string& bus, std::string* error);
  bool MakePciPlace(const rdma::TopologyDevice& device, std::string* place, std::string* error);
  bool MakeDevice(const rdma::TopologyDevice& device, int number, const std::string& place,
                  std::string* error);
  // Where the files of a host are: "/sys/class/.railhop/alpha".
  std::string HostFolder(uint32_t host) const;
  std::string DeviceFolder(uint32_t host, const std::string& device) const;
  void UpdatePort(const std::string& folder, const PortEntry& port);
  void UpdateGid(const std::string& folder, const PortEntry& port, uint32_t index);
  // Makes a file say `text`, or a link to what cannot be read; does nothing if it does already.
  void Write(const std::string& path, const std::string& text);
  void WriteUnreadable(const std::string& path);
  void Replace(const std::string& path, const std::string& value, bool link);

  const rdma::Topology topology_;
  const uint32_t host_;
  MountNamespace mounts_;
  std::map<std::string, std::string> written_;  // path -> what it says
  std::map<std::string, bool> present_;         // a device's folder -> it is in its place
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_SYSFS_H_
