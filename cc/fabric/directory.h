// A process's handle on a fabric's directory: making it, finding it, and the operations on what it
// holds.
//
// The directory is a memfd without a name in any file system (directory_layout.h). The owner keeps
// it open; others find it by a reference, "<owner pid>:<fd>:<id>" as RAILHOP_FABRIC carries it, or
// by the fabric's name, which is looked for among the open files of this user's processes. The hard
// case is a reference that outlived its fabric: the pid may be another process by now, the
// descriptor another file, the user another user. All of that is refused.
//
// All functions may be called from any thread of any process. None throws.
#ifndef RAILHOP_CC_FABRIC_DIRECTORY_H_
#define RAILHOP_CC_FABRIC_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cc/fabric/directory_layout.h"
#include "cc/rdma_model/topology.h"
#include "cc/rdma_model/types.h"

namespace railhop::fabric {

inline constexpr char kFabricVariable[] = "RAILHOP_FABRIC";  // "<owner pid>:<fd>:<id hex>"
inline constexpr char kHostVariable[] =
    "RAILHOP_FABRIC_HOST";  // name or index; unset: the first host
inline constexpr uint32_t kNoSlot = ~uint32_t{0};

// A port of the directory. `port` is 1-based, as in verbs.
struct PortRef {
  uint32_t device = 0;
  uint32_t port = 0;
  friend bool operator==(const PortRef&, const PortRef&) = default;
};

// Where packets from a port to an address go.
enum class RouteVerdict {
  kFound,
  kUnknownAddress,  // no port of the fabric has it (or not with that GID type)
  kUnreachable,     // some port has it, but no net or router joins the two
};
struct Route {
  RouteVerdict verdict = RouteVerdict::kUnknownAddress;
  PortRef to;
};

// What is known of a queue pair by its number.
struct QpnOwner {
  uint32_t slot = 0;
  uint32_t slot_generation = 0;
  uint32_t index = 0;  // in the owner's segment
};

struct SlotRef {
  uint32_t slot = kNoSlot;
  uint32_t generation = 0;
};

// A fabric that FindFabrics saw.
struct FoundFabric {
  std::string name;
  std::string reference;  // for DirectoryHandle::Attach
  uint32_t owner_pid = 0;
};

struct LogRecord {
  uint64_t position = 0;  // counts from 0
  uint64_t time_ns = 0;
  uint32_t device = 0, port = 0, qp_order = 0, kind = 0, psn = 0, count = 0;
  uint64_t message = 0, arg = 0;
};

struct PortEventRecord {
  uint64_t position = 0;
  uint64_t due_ns = 0;  // CLOCK_MONOTONIC; deliver not before
  uint32_t device = 0, port = 0, event = 0;
  uint32_t qp = 0;  // 0, or qp_order + 1 of the queue pair that it is about
};

class DirectoryHandle {
 public:
  // Makes a fabric that this process owns. `name` has letters, digits, '.', '_' and '-', at most 63
  // (empty: "p<pid>"). Null and *error on failure.
  static std::unique_ptr<DirectoryHandle> Create(std::string_view name,
                                                 const rdma::Topology& topology, uint64_t seed,
                                                 std::string* error);
  // Joins the fabric that `reference` names ("<pid>:<fd>:<id hex>", the value of RAILHOP_FABRIC).
  static std::unique_ptr<DirectoryHandle> Attach(std::string_view reference, std::string* error);
  // Joins this user's fabric called `name`.
  static std::unique_ptr<DirectoryHandle> AttachByName(std::string_view name, std::string* error);
  // All fabrics of this user.
  static std::vector<FoundFabric> FindFabrics();

  // The owner marks the fabric closed. Memory stays valid while this process maps it.
  ~DirectoryHandle();
  DirectoryHandle(const DirectoryHandle&) = delete;
  DirectoryHandle& operator=(const DirectoryHandle&) = delete;

  Directory& dir() { return *dir_; }
  const Directory& dir() const { return *dir_; }
  int fd() const { return fd_; }  // the memfd in its owner, elsewhere -1
  std::string Reference() const;  // for RAILHOP_FABRIC
  bool OwnerAlive() const;        // false once the owner has gone or closed the fabric

  // --- Hosts, devices, ports ---
  // The index of the host that RAILHOP_FABRIC_HOST names (name or index; empty: 0).
  std::optional<uint32_t> FindHost(std::string_view word, std::string* error) const;
  // Devices of a host that are not removed, in topology order, as indices.
  std::vector<uint32_t> DevicesOfHost(uint32_t host) const;
  std::optional<uint32_t> FindDevice(uint32_t host, std::string_view name) const;
  // "soft0", "soft0:2", or "host/soft0:2" when the name alone is on several hosts. port 0: none was
  // given.
  std::optional<PortRef> FindDevicePort(std::string_view text, std::string* error) const;
  DeviceEntry& device(uint32_t index) { return dir_->devices[index]; }
  PortEntry& port(PortRef ref) { return dir_->devices[ref.device].ports[ref.port - 1]; }
  const PortEntry& port(PortRef ref) const { return dir_->devices[ref.device].ports[ref.port - 1]; }
  // A stable copy of entry `index` of a GID table.
  static rdma::TopologyGid ReadGid(const PortEntry& port, uint32_t index);
  // Changes an entry; caller holds control_lock (ControlLock).
  static void WriteGid(PortEntry& port, uint32_t index, const rdma::TopologyGid& value);
  // Where a packet from `from` with source GID index `sgid_index` to `dgid` goes (RoCE, and
  // InfiniBand with a GRH).
  Route RouteByGid(PortRef from, uint32_t sgid_index, const rdma::Gid& dgid) const;
  // InfiniBand: by LID in the port's own subnet.
  Route RouteByLid(PortRef from, uint32_t dlid) const;

  // --- Processes ---
  // Takes a slot for this process, which keeps `segment_fd` open while it has it. Frees slots of
  // dead processes on the way. slot is kNoSlot when all are taken or the fabric is closed.
  SlotRef ClaimSlot(uint32_t host, uint32_t segment_fd);
  void ReleaseSlot(SlotRef slot);  // and its queue pair numbers
  // True while the process that claimed it lives and holds it. Cheap only as a system call is
  // (reads /proc).
  bool SlotAlive(SlotRef slot) const;
  uint32_t ReclaimDead();  // frees slots of dead processes; how many
  // Opens the segment of a live slot (O_RDWR); -1 with errno on failure.
  int OpenSegment(SlotRef slot) const;

  // --- Queue pair numbers ---
  // 0 when all are taken. Numbers are 2 or more, below 2^24, and one that was freed comes back
  // late.
  uint32_t AllocateQpn(SlotRef slot, uint32_t index);
  void FreeQpn(uint32_t qpn);
  std::optional<QpnOwner> LookupQpn(uint32_t qpn) const;

  // --- Port events ---
  // Caller holds control_lock.
  void PushPortEvent(PortRef port, rdma::AsyncEvent event, uint64_t due_ns, uint32_t qp = 0);
  uint64_t EventHead() const { return dir_->event_head.load(std::memory_order_acquire); }
  // The event at *cursor or the oldest one still there, and moves *cursor behind it; nothing when
  // there is none.
  std::optional<PortEventRecord> ReadPortEvent(uint64_t* cursor) const;

  // --- Log ---
  void Log(const LogRecord& record);  // position and, when 0, time are filled in; wait-free
  std::optional<LogRecord> ReadLog(uint64_t* cursor) const;

  // --- Change ---
  uint32_t ChangeCount() const { return dir_->change.load(std::memory_order_acquire); }
  // Bumps the count and wakes all that wait for it, and every process's NIC thread.
  void NotifyChange();
  // Waits until ChangeCount() != seen or `timeout_ns` has passed (negative: for ever); the count
  // then.
  uint32_t WaitForChange(uint32_t seen, int64_t timeout_ns) const;

 private:
  DirectoryHandle(Directory* dir, int fd, int owner_fd) : dir_(dir), fd_(fd), owner_fd_(owner_fd) {}
  void FreeSlot(uint32_t slot);  // caller holds claim_lock
  void FreeQpnsOf(uint32_t slot);

  Directory* const dir_;
  const int fd_;
  const int owner_fd_;  // the memfd's number in its owner
};

// Holds one of a directory's robust mutexes. A holder that died left the data consistent enough:
// every writer stores what makes a change visible last.
class SharedLock {
 public:
  explicit SharedLock(pthread_mutex_t& mutex);
  ~SharedLock();
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

// The phys_state of a port whose link is up or down, as its kind of NIC reports it.
uint32_t PhysState(rdma::LinkLayer link_layer, bool up);
// CLOCK_MONOTONIC.
uint64_t MonotonicNs();
// Start time of a process in clock ticks after boot, from /proc/<pid>/stat; 0 if it does not live
// (or is a zombie).
uint64_t ProcessStartTime(uint32_t pid);

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_DIRECTORY_H_
