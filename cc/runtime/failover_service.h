// Failover in a process: the driver with its real parts and its thread.
//
// Made by the transport when it starts, if failover is on. The thread sleeps until something comes
// in (a wake, a frame on the control channel) or is due.
#ifndef RAILHOP_CC_RUNTIME_FAILOVER_SERVICE_H_
#define RAILHOP_CC_RUNTIME_FAILOVER_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/base/clock.h"
#include "cc/control/session_hub.h"
#include "cc/control/socket_address.h"
#include "cc/control/socket_config.h"
#include "cc/datapath/datapath_config.h"
#include "cc/runtime/cover.h"
#include "cc/runtime/driver.h"
#include "cc/runtime/failover_config.h"
#include "cc/runtime/journal.h"
#include "cc/runtime/lane_maker.h"
#include "cc/runtime/port_facts.h"
#include "cc/runtime/port_monitor.h"
#include "cc/runtime/prober.h"
#include "cc/runtime/thread_executor.h"

namespace railhop::runtime {

class FailoverService {
 public:
  struct Setting {
    engine::InstanceId self = 0;
    FailoverConfig failover;
    datapath::DatapathConfig datapath;
    control::SocketConfig sockets;
    control::Interface interface;  // NCCL_SOCKET_IFNAME's choice
    PortRules ports;
  };

  // `devices` outlives it. Starts the thread. Errors: Internal (no sockets).
  static absl::StatusOr<std::unique_ptr<FailoverService>> Start(DeviceSource* devices,
                                                                const Setting& setting);
  // Ends the thread and the workers, in bounded time.
  ~FailoverService();
  FailoverService(const FailoverService&) = delete;
  FailoverService& operator=(const FailoverService&) = delete;

  Driver& driver() { return *driver_; }
  Cover& cover() { return *cover_; }
  Executor& executor() { return *executor_; }
  Journal& journal() { return journal_; }
  const LaneMaker& maker() const { return kept_->maker; }
  // Where peers reach the control channel, best first.
  const std::vector<control::SocketAddress>& addresses() const { return addresses_; }
  // After a connection was closed in the driver: waits for the jobs that use it, for so long at
  // most. Errors: Unavailable (a call on a device does not return).
  absl::Status Remove(engine::EndId id, int64_t bound_ns);

 private:
  FailoverService(DeviceSource* devices, const Setting& setting);
  void Run();
  void Wake();

  // What jobs on the devices' workers use, and so may be used for longer than this object lives.
  struct Kept {
    explicit Kept(const Setting& of) : setting(of), maker(setting.datapath, setting.ports) {}
    const Setting setting;
    const LaneMaker maker;
  };

  std::unique_ptr<Kept> kept_;
  RealClock clock_;
  const int wake_fd_;
  std::atomic<bool> stopping_ = false;
  Journal journal_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<control::SessionHub> hub_;
  std::vector<control::SocketAddress> addresses_;
  std::unique_ptr<Prober> prober_;
  std::unique_ptr<Cover> cover_;
  std::unique_ptr<PortMonitor> ports_;
  std::unique_ptr<Driver> driver_;
  std::thread thread_;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_FAILOVER_SERVICE_H_
