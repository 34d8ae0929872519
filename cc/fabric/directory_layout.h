// The layout of a fabric's directory: the one piece of memory that all processes of a fabric share.
//
// It is a memfd that the fabric's owner (`railhop-fabric run`) holds open. Others map it through
// /proc/<owner pid>/fd/<fd>, so nothing of a fabric ever has a name in a file system and nothing
// can be left behind. It holds the devices and ports with their faults, the processes, and the
// table that finds a queue pair by its number; what belongs to one process (queues, memory regions)
// lies in a memfd of that process, which the process's slot here names.
//
// Every field that changes after creation is an atomic; its comment says who writes it. Readers
// never lock.
#ifndef RAILHOP_CC_FABRIC_DIRECTORY_LAYOUT_H_
#define RAILHOP_CC_FABRIC_DIRECTORY_LAYOUT_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "cc/rdma_model/fault_table.h"
#include "cc/rdma_model/topology.h"
#include "cc/rdma_model/types.h"

namespace railhop::fabric {

inline constexpr uint64_t kDirectoryMagic = 0x31304c4941523031;  // changes with the layout
inline constexpr int kMaxHosts = rdma::kTopologyMaxHosts;
inline constexpr int kMaxNets = rdma::kTopologyMaxNets;
inline constexpr int kMaxDevices = rdma::kTopologyMaxDevices;  // of all hosts
inline constexpr int kMaxPortsPerDevice = rdma::kTopologyMaxPorts;
inline constexpr int kMaxGids = rdma::kTopologyMaxGids;  // entries of a port's GID table
inline constexpr int kMaxPkeys = rdma::kTopologyMaxPkeys;
inline constexpr int kNameBytes = 32;  // of a host, net or device, with its final 0
inline constexpr int kMaxProcesses = 1024;
inline constexpr int kQpnIndexBits = 18;     // queue pairs alive in one fabric: 262,144
inline constexpr int kMaxPortEvents = 4096;  // ring
inline constexpr int kMaxLogEntries = 1 << 16;

// A GID table entry. `version` is even when the entry is stable and odd while the writer changes
// it; read it with DirectoryHandle::ReadGid.
struct GidEntry {
  std::atomic<uint32_t> version;
  std::atomic<uint32_t> type;       // rdma::GidType
  std::atomic<uint64_t> halves[2];  // rdma::Gid's bytes; all zero: empty
};

struct PortEntry {
  // Set by control only.
  std::atomic<uint32_t> link_state;  // rdma::PortLinkState
  std::atomic<uint32_t> phys_state;  // verbs: 2 polling, 3 disabled, 5 link up
  std::atomic<uint32_t> lid;
  std::atomic<uint32_t> sm_lid;
  std::atomic<uint32_t> active_mtu;                  // verbs code 1..5
  std::atomic<uint32_t> rate_mbps;                   // what the port says it has
  std::atomic<uint32_t> gid_count;                   // length of the table, entries may be empty
  std::atomic<uint32_t> active_width, active_speed;  // verbs codes, of rate_mbps
  std::atomic<uint32_t> hidden_gids;                 // bit n: entry n reads as empty
  GidEntry gids[kMaxGids];
  std::atomic<uint32_t> pkeys[kMaxPkeys];
  // Constant after creation.
  rdma::LinkLayer link_layer;
  uint8_t max_mtu;  // verbs code
  uint8_t lmc;
  uint32_t pkey_count;
  uint32_t net;            // ports of one net reach each other; see Directory::routes
  uint32_t speed_gbps;     // of the topology
  uint64_t guid;           // host order
  uint64_t subnet_prefix;  // host order; InfiniBand only
  char netdev[16];         // "eth0"; empty for none
  // Counted by whoever moves the packet (relaxed); read by show and sysfs.
  std::atomic<uint64_t> tx_packets, tx_bytes, rx_packets, rx_bytes;
  std::atomic<uint64_t> tx_messages, rx_messages;
  std::atomic<uint64_t> dropped, retransmitted, link_downed;
  std::atomic<uint64_t> local_ack_timeouts, out_of_sequence, rnr_naks;
  // The bandwidth cap's shaper: when the wire is free again (ns, CLOCK_MONOTONIC).
  std::atomic<uint64_t> tx_free_at, rx_free_at;
  rdma::FaultTable faults;
};

// Sizes that a device promises and enforces.
struct DeviceCaps {
  uint32_t max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_pd, max_rd_atomic;
  uint64_t max_mr_size;
};

struct DeviceEntry {
  char name[kNameBytes];
  uint32_t host;  // index of the simulated host it sits in
  uint32_t port_count;
  uint64_t node_guid;  // host order
  uint64_t sys_image_guid;
  uint32_t vendor_id, vendor_part_id, hw_ver;
  char fw_ver[32];
  char pci_address[16];  // "0000:17:00.0"
  char pci_path[96];     // with the bridges above it; rdma::TopologyDevice::pci_path
  int32_t numa_node;
  int32_t open_errno;  // what opening it gives; 0: it opens
  DeviceCaps caps;
  std::atomic<uint32_t> removed;     // set by control
  std::atomic<uint32_t> generation;  // counts removals and returns
  std::atomic<uint64_t> quirks;      // rdma::Quirk bits, set by control
  std::atomic<uint32_t> qp_order;  // counts queue pairs made on it: numbers them for seeded faults
  PortEntry ports[kMaxPortsPerDevice];
};

// A process that has opened a device. A slot is claimed by storing its pid, with `claim` as the
// lock.
struct ProcessSlot {
  std::atomic<uint32_t> pid;         // 0: free
  std::atomic<uint32_t> segment_fd;  // in that process
  std::atomic<uint32_t> generation;  // counts owners of this slot
  std::atomic<uint32_t> host;
  std::atomic<uint64_t> start_time;  // of the process, from /proc/<pid>/stat, to tell a reused pid
  std::atomic<uint32_t> doorbell;    // futex word of its NIC thread: bumped by peers and by control
  std::atomic<uint32_t> sleeping;    // 1 while that thread waits: ringing then needs a wake-up call
};

// Finds a queue pair by number: entry (qpn & (2^18 - 1)) is it when `qpn` is equal. A number is 6
// bits of generation above 18 bits of index; an entry that is free or being written has a bit above
// the 24 set, so it equals no number.
struct QpnEntry {
  std::atomic<uint32_t> qpn;   // 0: never used; see directory_processes.cc
  std::atomic<uint32_t> slot;  // index of its process
  std::atomic<uint32_t> slot_generation;
  std::atomic<uint32_t> index;  // of the queue pair in that process's segment
};

// One asynchronous event that every context open on the device is to see; one that is about a queue
// pair is raised by the process that has it.
struct PortEvent {
  std::atomic<uint64_t> sequence;  // position + 1, stored last; 0: never written
  std::atomic<uint64_t> due_ns;    // CLOCK_MONOTONIC; deliver not before
  std::atomic<uint32_t> device;
  std::atomic<uint32_t> port;   // 1-based; 0: of the device
  std::atomic<uint32_t> event;  // rdma::AsyncEvent
  std::atomic<uint32_t> qp;     // 0: of the port or device; else the queue pair's qp_order + 1
};

// One line of the event log, written by whoever did it.
struct LogEntry {
  std::atomic<uint64_t> sequence;  // position + 1, stored last; 0 while it is written
  std::atomic<uint64_t> time_ns;   // CLOCK_MONOTONIC
  std::atomic<uint32_t> device, port, qp_order, kind;  // kind: rdma::LogKind
  std::atomic<uint32_t> psn, count;
  std::atomic<uint64_t> message, arg;
};

struct Directory {
  uint64_t magic;  // stored last by the creator
  uint64_t size;   // sizeof(Directory)
  uint64_t id;     // random: tells a fabric from another in the same place
  uint64_t seed;
  uint64_t created_ns;        // CLOCK_MONOTONIC
  uint64_t owner_start_time;  // to tell a reused pid
  uint32_t owner_pid;
  uint32_t uid;
  char name[64];
  uint32_t host_count, device_count, net_count, pad;
  char host_names[kMaxHosts][kNameBytes];
  char net_names[kMaxNets][kNameBytes];
  std::atomic<uint32_t> closed;  // set when the owner leaves: no new process may join
  std::atomic<uint32_t> change;  // futex word: bumped after any change by control
  std::atomic<uint32_t>
      gid_generation;  // bumped after any change of addresses: caches of routes look again
  std::atomic<uint32_t> fault_generation;  // bumped after any change of faults
  std::atomic<uint64_t> time_scale_ppm;    // of ACK timeouts and RNR timers; 1,000,000 is real time
  std::atomic<uint64_t> event_head;        // port events written
  std::atomic<uint64_t> log_head;          // log entries written
  std::atomic<uint32_t> qpn_cursor;        // where the next search for a free number starts
  std::atomic<uint32_t> qpn_limit;         // entries at or above have never been used
  pthread_mutex_t control_lock;            // robust, shared: one fault command at a time
  pthread_mutex_t claim_lock;              // robust, shared: process slots
  uint64_t routes[kMaxNets];  // bit n of word m: net m reaches net n (by routable GIDs only)
  DeviceEntry devices[kMaxDevices];
  ProcessSlot processes[kMaxProcesses];
  PortEvent events[kMaxPortEvents];
  LogEntry log[kMaxLogEntries];
  QpnEntry qpns[1 << kQpnIndexBits];
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_DIRECTORY_LAYOUT_H_
