// Names that both ends of a connection, and both processes of a session, use for the same thing.
#ifndef RAILHOP_CC_ENGINE_IDS_H_
#define RAILHOP_CC_ENGINE_IDS_H_

#include <algorithm>
#include <compare>
#include <cstdint>
#include <vector>

namespace railhop::engine {

// A process: random, from its start to its end.
using InstanceId = uint64_t;
// A connection: random, drawn by the sending end; the same at both ends.
using ConnectionId = uint64_t;

enum class End : uint8_t { kSender = 0, kReceiver = 1 };
constexpr End Opposite(End end) { return end == End::kSender ? End::kReceiver : End::kSender; }

// One end of a connection. Both ends may live in one process, so the id alone is not enough.
struct EndId {
  ConnectionId connection = 0;
  End end = End::kSender;
  // clang-tidy takes the 0 in it for a pointer.
  friend auto operator<=>(const EndId&, const EndId&) = default;  // NOLINT(modernize-use-nullptr)
};

// One queue pair of a connection: its place, and the epoch in which it was made. A place is used
// again, with another epoch, only after both ends have fenced what was there.
struct LaneId {
  uint8_t index = 0;
  uint32_t epoch = 0;
  // clang-tidy takes the 0 in it for a pointer.
  friend auto operator<=>(const LaneId&, const LaneId&) = default;  // NOLINT(modernize-use-nullptr)
};

// Sorted, each once.
using LaneIds = std::vector<LaneId>;

inline void AddLane(LaneIds* lanes, LaneId lane) {
  const auto at = std::lower_bound(lanes->begin(), lanes->end(), lane);
  if (at == lanes->end() || *at != lane) lanes->insert(at, lane);
}
inline void AddLanes(LaneIds* lanes, const LaneIds& more) {
  for (const LaneId& lane : more) AddLane(lanes, lane);
}
inline bool Contains(const LaneIds& lanes, LaneId lane) {
  return std::binary_search(lanes.begin(), lanes.end(), lane);
}
// Whether every one of `part` is in `whole`.
inline bool ContainsAll(const LaneIds& whole, const LaneIds& part) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

// A path between two processes: a port of ours and a port of theirs, by PhysicalDevice::id of
// their process.
struct PathId {
  int local = 0;
  int remote = 0;
  // clang-tidy takes the 0 in it for a pointer.
  friend auto operator<=>(const PathId&, const PathId&) = default;  // NOLINT(modernize-use-nullptr)
};

// Why lanes are left.
enum class Cause : uint8_t {
  kNone = 0,
  kCompletion,   // a work request ended in error
  kPost,         // a work request was refused, or a queue cannot be polled
  kPortDown,     // the local port is not active
  kDeviceFatal,  // the local device has failed or is gone
  kQueuePair,    // the device says that the queue pair or its completion queue has failed
  kStall,        // nothing moves and the path does not answer
  kPeer,         // the other end says so
  kAddress,      // the port's address has changed
  kCommand,      // force failover
  kDrain,        // drain by command
  kFailBack,     // back to the nearest ports
};

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_IDS_H_
