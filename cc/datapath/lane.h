// One queue pair of a connection.
#ifndef RAILHOP_CC_DATAPATH_LANE_H_
#define RAILHOP_CC_DATAPATH_LANE_H_

#include <cstdint>
#include <memory>

#include "cc/verbs/queue_pair.h"

namespace railhop::datapath {

// Stripes that one lane may have posted and not completed: as many as the receiver has receives
// posted, and no send of at most one stripe for each lane ever meets it (32 slots * 8 receives).
inline constexpr uint32_t kLaneStripesMax = 256;
// Receives are posted again in batches of this.
inline constexpr uint32_t kReceiveBatch = 16;
inline constexpr uint32_t kReceivesPosted = kLaneStripesMax + kReceiveBatch;
// Clear-to-send writes that one lane may have posted and not known to be done; every
// kCtsSignalEvery-th asks for a completion, which covers those before it.
inline constexpr uint32_t kCtsWritesMax = 128;
inline constexpr uint32_t kCtsSignalEvery = 16;

enum class LaneState : uint8_t {
  kOpen = 0,     // may be posted to
  kSuspect = 1,  // nothing is posted any more; what completes still counts
  kFenced = 2,   // nothing of it counts any more
};

// A cache line: indices need no multiplication.
struct alignas(64) Lane {
  std::unique_ptr<verbs::QueuePair> qp;
  uint8_t local_device = 0;   // index into the connection's devices
  uint8_t remote_device = 0;  // index into the peer's
  LaneState state = LaneState::kOpen;
  uint32_t epoch = 0;
  uint32_t outstanding = 0;  // sender: stripes; receiver: clear-to-send writes
  uint32_t unsignalled = 0;  // receiver: writes since the last that asked for a completion
  uint32_t consumed = 0;     // receiver: receives used since the last batch was posted
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_LANE_H_
