// The way for control messages when no TCP path is left: bytes inside messages on a queue pair that
// a probe has shown to work. What goes over it is framed and authenticated as over TCP.
#ifndef RAILHOP_CC_CONTROL_LANE_CARRIER_H_
#define RAILHOP_CC_CONTROL_LANE_CARRIER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cc/engine/ids.h"

namespace railhop::control {

// Called by SessionHub on its thread; never waits.
class LaneCarrier {
 public:
  struct Chunk {
    engine::InstanceId peer = 0;
    uint64_t generation = 0;  // of this end, when it came
    std::vector<uint8_t> bytes;
  };

  virtual ~LaneCarrier() = default;

  // Names the way that this end has to the peer now; 0 = none. Another number whenever bytes may
  // have been lost (another queue pair): a session over it ends then.
  virtual uint64_t Generation(engine::InstanceId peer) = 0;
  // Takes bytes, in order; returns how many it took. 0: no room now, or another generation.
  virtual size_t Send(engine::InstanceId peer, uint64_t generation,
                      absl::Span<const uint8_t> bytes) = 0;
  // What has come, each once, in order for each generation. False: nothing.
  virtual bool Receive(Chunk* chunk) = 0;
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_LANE_CARRIER_H_
