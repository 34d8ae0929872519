// Round trips over paths: a zero-length RDMA WRITE on a queue pair that all connections to a
// process share, for each path in use and the next in line. Its completion needs the two ports and
// all between them, and no software at the other end.
//
// A queue pair is opened by ProbeOpen and ProbeAnswer over the control channel; from then on probes
// need no channel. One that has ended in error is made again at the next chance. Whatever hangs,
// Poll gives a result for each Send, at its deadline at the latest.
//
// The same queue pairs carry control messages when no TCP path is left (LaneCarrier).
//
// The driver's thread alone; verbs calls that may hang go through the executor. No clock of its
// own.
#ifndef RAILHOP_CC_RUNTIME_PROBER_H_
#define RAILHOP_CC_RUNTIME_PROBER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/control/lane_carrier.h"
#include "cc/engine/ids.h"
#include "cc/engine/messages.h"
#include "cc/runtime/executor.h"
#include "cc/runtime/lane_maker.h"
#include "cc/runtime/net_device.h"

namespace railhop::runtime {

struct ProberOptions {
  // This process: of two ways between two processes that of the smaller id is taken.
  engine::InstanceId self = 0;
  // RAILHOP_STALL_THRESHOLD: a queue pair tries about so long before it ends in error.
  int64_t stall_ns = 1'000'000'000;
  // Queue pairs in each role; beyond, probes are unanswered and the reason is told.
  int queue_pairs_max = 2048;
  // Opened in a second by this process at most, and how many may be saved up.
  int opens_per_second = 500;
  int opens_at_once = 256;
  uint64_t seed = 1;  // of jitter
};

class Prober {
 public:
  struct Result {
    engine::InstanceId peer = 0;
    engine::PathId path;
    bool answered = false;
    std::string why;  // if not: for a person
  };
  struct Outgoing {
    engine::InstanceId peer = 0;
    engine::Message message;
  };

  // All outlive it.
  Prober(DeviceSource* devices, const LaneMaker* maker, Executor* executor,
         const ProberOptions& options);
  // Queue pairs are destroyed on their workers.
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  // Keeps a queue pair ready for this path, of the same class as the data. Again: no change, but a
  // queue pair that has ended in error is made again.
  // pkey: as in LaneMaker::MakeLane.
  void Want(engine::InstanceId peer, engine::PathId path, uint8_t service_level,
            uint8_t traffic_class, int64_t now_ns, uint16_t pkey = 0);
  // No longer: its queue pair goes.
  void Unwant(engine::InstanceId peer, engine::PathId path);

  // One round trip. The result is there by deadline_ns; a Send before it has come takes its place
  // (one result for both). fresh: over a new queue pair too, for which the control channel has to
  // work; whichever answers first counts. A path that is not wanted is, from now on, with class 0.
  void Send(engine::InstanceId peer, engine::PathId path, bool fresh, int64_t now_ns,
            int64_t deadline_ns);

  // ProbeOpen, ProbeAnswer, ProbeClose from this peer; others are ignored.
  void Take(engine::InstanceId peer, const engine::Message& message, int64_t now_ns);
  // Another stall threshold, for queue pairs to come.
  void SetStall(int64_t stall_ns);
  // A session with the peer is there: what waits for an answer is said again.
  void SessionUp(engine::InstanceId peer, int64_t now_ns);
  // It is lost: what comes in over lanes is looked for more often.
  void SessionDown(engine::InstanceId peer);
  // The peer is gone or unwanted: all its queue pairs go, of both roles; no more results.
  void Forget(engine::InstanceId peer);
  // Our device has failed: its queue pairs are of no use, probes over it are unanswered.
  void DeviceFailed(int physical);

  std::vector<Result> Poll(int64_t now_ns);
  std::vector<Outgoing> TakeOutgoing();
  // When Poll is wanted at the latest; INT64_MAX = not until something else happens.
  int64_t next_due() const;

  // For SessionHub; as long as this object, on the same thread.
  control::LaneCarrier* carrier();

  struct Counters {
    uint64_t sent = 0;
    uint64_t answered = 0;
    uint64_t unanswered = 0;
    uint64_t opened = 0;   // queue pairs, as the one who probes
    uint64_t granted = 0;  // as the other
    uint64_t refused = 0;
    int open_now = 0;
    int granted_now = 0;
    uint64_t carried_bytes = 0;  // of control messages, sent
  };
  Counters counters() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_PROBER_H_
