// What the driver knows, as a copy: for whoever shows it to people. Times are of the driver's clock
// (CLOCK_MONOTONIC), ns; ports are PhysicalDevice::id of their process.
#ifndef RAILHOP_CC_RUNTIME_DRIVER_SNAPSHOT_H_
#define RAILHOP_CC_RUNTIME_DRIVER_SNAPSHOT_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "cc/engine/ids.h"
#include "cc/engine/messages.h"
#include "cc/engine/path_health.h"
#include "cc/engine/verdict.h"
#include "cc/runtime/histogram.h"
#include "cc/runtime/net_device.h"
#include "cc/runtime/port_facts.h"

namespace railhop::runtime {

class ConnectionComm;

inline constexpr size_t kCauses = static_cast<size_t>(engine::Cause::kFailBack) + 1;

// Counters of one local port.
struct PortCounts {
  uint64_t resent_bytes = 0;
  uint64_t stalls = 0;  // lanes that stood still for half the threshold
  uint64_t faults = 0;  // episodes
};

struct EpisodeView {
  uint64_t id = 0;
  int64_t begin = 0;
  int64_t end = 0;  // 0 = open
  int local = -1;
  engine::InstanceId peer = 0;
  std::string peer_host;
  std::string peer_port;
  engine::Cause cause = engine::Cause::kNone;
  engine::Blame blame = engine::Blame::kUnknown;
  int connections = 0;
  uint64_t bytes_resent = 0;
  int64_t detect_ns = 0;  // the last sign of life on the path to the decision
  int64_t agree_ns = 0;   // to the first agreement of both ends; 0 = not yet
  int64_t resume_ns = 0;  // until all moved again; 0 = not yet
  std::vector<int> over;  // local ports that carry now what it had
  bool recovered = false;
};

// What is counted of all episodes and probes, for the process's life.
struct DriverCounts {
  std::array<uint64_t, kCauses> faults = {};  // episodes by cause
  std::map<int, PortCounts> ports;
  Histogram detect;
  Histogram agree;
  Histogram resume;
  Histogram probe;  // round trips, with the time until the driver looks
};

struct DriverSnapshot {
  struct Port {
    const PhysicalDevice* device = nullptr;  // outlives the transport
    engine::PortState state = engine::PortState::kActive;
    engine::PortState command = engine::PortState::kActive;  // kHeld, kDrained, or none
    bool known = false;                                      // has been read
    PortFacts facts;                                         // if known
    int64_t since = 0;                                       // of the state; 0 = from the start
    engine::Cause cause = engine::Cause::kNone;
    bool covered = true;  // by all connections
  };
  struct Path {
    engine::InstanceId peer = 0;
    engine::PathId path;
    engine::PathState state = engine::PathState::kUnknown;
    engine::Cause cause = engine::Cause::kNone;  // of the state
    int64_t since = 0;
    int64_t last_answer = 0;
    int64_t held_until = 0;
    uint64_t probes_sent = 0;
    uint64_t probes_lost = 0;
    uint32_t flaps = 0;
  };
  struct Peer {
    std::string host;
    bool up = false;                   // the control channel
    std::map<int, std::string> ports;  // names, as it has told
  };
  struct Lane {
    int local = 0;
    bool backup = false;  // not on the port of its base lane
    bool up = true;       // in use, and not being left
  };
  struct Link {
    engine::EndId id;
    engine::InstanceId peer = 0;
    const ConnectionComm* comm = nullptr;  // for comparison
    std::string label;
    uint32_t epoch = 0;
    bool over = false;
    bool no_path = false;
    bool running = true;         // no episode of its own is under way
    int64_t hindered_since = 0;  // 0 = it moves
    std::string reason;          // of the end
    std::vector<int> home;       // ports, each once
    std::vector<Lane> lanes;     // that live
    uint64_t episodes = 0;
  };
  int64_t now = 0;
  std::vector<Port> ports;  // by id
  std::vector<Path> paths;
  std::map<engine::InstanceId, Peer> peers;
  std::vector<Link> links;
  std::vector<EpisodeView> episodes;  // the last ones and those that are open, oldest first
  DriverCounts counts;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_DRIVER_SNAPSHOT_H_
