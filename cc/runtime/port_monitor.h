// The ports of this process: read every second and at events, on their devices' workers.
//
// Events are hints: they may be lost, early, or about a queue pair that is long gone. What counts
// is what reading gives; an event only brings it forward. A read that does not come back is an
// answer only after an event that says that the port is down; else it is a reason to probe.
//
// The driver's thread alone. No clock and no thread of its own: events of the devices come from
// AsyncWatch, or from the simulator.
#ifndef RAILHOP_CC_RUNTIME_PORT_MONITOR_H_
#define RAILHOP_CC_RUNTIME_PORT_MONITOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/runtime/async_watch.h"
#include "cc/runtime/executor.h"
#include "cc/runtime/net_device.h"
#include "cc/runtime/port_facts.h"

namespace railhop::runtime {

struct PortMonitorOptions {
  int64_t interval_ns = 1'000'000'000;  // RAILHOP_PORT_POLL_INTERVAL
  // A read that has been out for so long is a reason to probe; the first one counts as not active.
  int64_t read_bound_ns = 1'000'000'000;
  // Counts as not active, if an event has said that the port is down.
  int64_t read_bound_after_error_ns = 20'000'000;
  // How often a device that has failed is looked for, growing to the second.
  int64_t rescan_ns = 1'000'000'000;
  int64_t rescan_max_ns = 30'000'000'000;
};

struct PortNews {
  enum class Kind : uint8_t {
    kActive,     // was not, or at the first reading
    kNotActive,  // was; also while it has no address that may be used
    kFatal,      // the device has failed or is gone
    kAddress,    // facts have changed: GID, GID index, LID, MTU
    kQueuePair,  // `object` is the ibv_qp that the device has stopped (compare only)
    kQueue,      // `object` is the ibv_cq
    kDoubt,      // something is wrong, or was: probe now
    kJoined,     // a new physical device is there; `replaces` is the id of the one that it was
  };
  int physical = 0;
  Kind kind = Kind::kActive;
  PortFacts facts;  // as last read
  const void* object = nullptr;
  int replaces = -1;
  // kAddress: another GID, index or LID, or a smaller MTU: the queue pairs of before are of no use.
  bool moved = false;
  bool was_down = false;  // kDoubt: an event has said that the port was down
  std::string text;       // for a person
};

class PortMonitor {
 public:
  // All outlive it.
  PortMonitor(DeviceSource* devices, const PortRules* rules, Executor* executor,
              const PortMonitorOptions& options);
  ~PortMonitor();

  // An event of a device, acknowledged already.
  void Take(const AsyncEvent& event, int64_t now_ns);
  // Reads one port now, or all that belong to no reading under way.
  void ReadNow(int physical, int64_t now_ns);

  // Starts readings that are due; what there is to know since the last call.
  std::vector<PortNews> Poll(int64_t now_ns);
  int64_t next_due() const;

  // How often ports are read from now on.
  void SetInterval(int64_t interval_ns, int64_t now_ns);

  // As last read; not active before the first.
  const PortFacts& facts(int physical) const;
  bool active(int physical) const;
  // Whether it has been read at all.
  bool known(int physical) const;
  bool failed(int physical) const;

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_PORT_MONITOR_H_
