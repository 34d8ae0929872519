// The process's registrations: on the devices that a connection uses at once, on its backups in the
// background, so that these can take over.
//
// A backup that cannot register what the primary has (ENOMEM, no DMA-BUF, a limit of the container)
// is no backup: that is told once, by name and reason, when it is found and not when it is needed.
// A device that hangs or is gone holds up no call of NCCL's beyond a bound.
//
// A Memory's keys are published by a bit for each device (MemoryKeys::covered).
//
// Thread-safe. Background work goes through the executor, one registration for each device at a
// time.
#ifndef RAILHOP_CC_RUNTIME_COVER_H_
#define RAILHOP_CC_RUNTIME_COVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cc/runtime/comm.h"
#include "cc/runtime/executor.h"
#include "cc/runtime/net_device.h"

namespace railhop::runtime {

struct CoverOptions {
  // RAILHOP_COVER: backups for each device of a connection, the nearest first; -1 = all.
  int backups = -1;
  bool relaxed_ordering = true;  // NCCL_IB_PCI_RELAXED_ORDERING is not 0
  // How long deregistering may take before it is an error (rule 2), and closing.
  int64_t release_bound_ns = 5'000'000'000;
  // A failed cover is tried again after this, and when it is asked for.
  int64_t retry_ns = 30'000'000'000;
};

class Cover {
 public:
  // Both outlive it; without an executor (failover is off) there are no backups and all is done by
  // the caller.
  Cover(DeviceSource* devices, Executor* executor, const CoverOptions& options);
  ~Cover();
  Cover(const Cover&) = delete;
  Cover& operator=(const Cover&) = delete;

  // ---- NCCL's threads.

  struct Range {
    void* data = nullptr;
    size_t size = 0;
    int fd = -1;  // of a DMA-BUF; the caller's, dup'ed if it is needed later
    uint64_t offset = 0;
  };
  // Fills *memory (keys, parts) and marks it live. Registered at return: the connection's own
  // devices and those it uses at present, but for such as are out of service or gone; if that
  // leaves none, it is covered later. Errors: Internal, Unimplemented: the first of them.
  absl::Status Register(ConnectionComm* comm, Memory* memory, const Range& range);
  // After it no device reaches the memory any more, or is gone. Errors: Internal (a device still
  // may: it stays pinned, and this may be tried again).
  absl::Status Deregister(Memory* memory);
  // The connection is closed: its memories live on by themselves.
  void Closed(ConnectionComm* comm);

  static constexpr char kPending[] = "memory is being registered";

  // ---- The driver's thread.

  // Devices that are in service, by bit of id; a device that is not is asked for nothing before
  // something of it is urgent. At first: all.
  void SetInService(uint32_t devices);
  // Its registrations are gone with it: they are dropped without a call, and its keys with them.
  void DeviceGone(int physical);
  // Afterwards, once none of its queue pairs is there any more: what was registered on it ends. A
  // device that says that it has failed may go on, and a peer that reaches memory which is not
  // registered any more takes that for an error of the buffer.
  void EndGone(int physical);
  // Devices that the connection's lanes are on, by bit; new memory is registered there at once.
  void SetPresent(ConnectionComm* comm, uint32_t devices);

  // Whether all live memories of the connection are registered on this device.
  bool Covers(const ConnectionComm* comm, int physical) const;
  // As soon as possible, before what is in line.
  void Ensure(ConnectionComm* comm, int physical);
  // Why not, for a person; empty if it does or nothing has been tried.
  // kPending while it is being done.
  std::string WhyNot(const ConnectionComm* comm, int physical) const;

  // Changes of what Covers gives, since the last call; also when the first connection's backup
  // could not be covered. The executor's `done` wakes the driver for it.
  struct News {
    ConnectionComm* comm = nullptr;
    int physical = 0;
    bool covers = false;
  };
  std::vector<News> TakeNews();
  // Tries failed covers again.
  void Poll(int64_t now_ns);
  int64_t next_due() const;

  // Devices that could not cover something, with the reason: "mlx5_1:1: ...".
  std::vector<std::string> Uncovered() const;
  // Registrations that exist, on all devices; those that stay pinned count.
  size_t registrations() const;

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;  // with jobs
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_COVER_H_
