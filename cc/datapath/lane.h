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
// Room beyond those in each queue, for what is posted when all of it is taken: markers of the
// fence, a write that asks for a completion.
inline constexpr uint32_t kQueueSlack = 4;

enum class LaneState : uint8_t {
  kOpen = 0,      // may be posted to
  kRetiring = 1,  // nothing new is posted; what completes counts, and errors are faults
  kSuspect = 2,   // the same, and errors are expected
  kFenced = 3,    // nothing of it counts any more; destroyed, records not compared yet
  kFree = 4,      // no lane: the place may be taken
};

// A cache line: indices need no multiplication. Whoever makes one fills in the first part.
struct alignas(64) Lane {
  std::unique_ptr<verbs::QueuePair> qp;  // null once it is destroyed, and while it is
  uint32_t epoch = 0;
  uint8_t local_device = 0;   // slot: index into the connection's devices
  uint8_t remote_device = 0;  // into the peer's

  // The connection's.
  uint8_t physical = 0;  // PhysicalDevice::id of the local device
  LaneState state = LaneState::kOpen;
  uint32_t live_epoch = 0;     // low 16 bits of the epoch, as in WorkId; kNotLive once it is fenced
  uint32_t outstanding = 0;    // sender: stripes; receiver: writes of entries and no-ops
  uint64_t work_id = 0;        // PackWorkId of place and epoch, and zeros
  uint64_t bytes = 0;          // sender: posted, also again; receiver: arrived
  uint64_t completed = 0;      // successful completions of messages of this end
  uint64_t arrived = 0;        // receiver: stripes
  uint32_t last_progress = 0;  // low bits, as of the last Observe
  uint8_t unsignalled = 0;     // receiver: writes since the last that asked for a completion
  uint8_t consumed = 0;        // receiver: receives used since the last batch was posted
  uint8_t fence = 0;           // how far the fence is, as bits
  // Observe calls in a row that found only unsignalled writes and no progress.
  uint8_t idle_looks = 0;
};
inline constexpr uint32_t kNotLive = 0x10000;
// Messages of this end that were posted, of a lane that is not fenced: those that ended in error
// stay outstanding.
inline uint64_t PostedOn(const Lane& lane) { return lane.completed + lane.outstanding; }
static_assert(sizeof(Lane) == 64);

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_LANE_H_
