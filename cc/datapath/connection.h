// What both ends of a connection have: lock, lanes, devices, and the first fault.
#ifndef RAILHOP_CC_DATAPATH_CONNECTION_H_
#define RAILHOP_CC_DATAPATH_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cc/datapath/connection_lock.h"
#include "cc/datapath/fault.h"
#include "cc/datapath/lane.h"
#include "cc/datapath/outcome.h"
#include "cc/datapath/wire_format.h"
#include "cc/verbs/completion_queue.h"
#include "cc/verbs/memory_region.h"

namespace railhop::datapath {

// A device at this end of a connection. Destroyed after the lanes that use it.
struct ConnectionDevice {
  std::unique_ptr<verbs::CompletionQueue> cq;
  std::unique_ptr<verbs::MemoryRegion> control;  // SenderMemory or ReceiverMemory
};

// Where the peer's SenderMemory or ReceiverMemory is.
struct PeerMemory {
  uint64_t address = 0;
  uint32_t remote_keys[kDevicesMax] = {};  // by the peer's device
};

// The rules of a connection that both ends have agreed on.
struct ConnectionRules {
  // Each message goes over so many lanes, in turn: all of them, or one for each device.
  uint32_t lanes_per_send = 1;
  // Sends above ar_threshold bytes write their data and announce it by a write of its own.
  bool adaptive_routing = false;
  uint64_t ar_threshold = 0;
  bool inline_cts = false;
};

// What a work request's id says. Low byte: kind.
enum class WorkKind : uint8_t { kData = 1, kReceive = 2, kCts = 3, kFlush = 4 };

struct WorkId {
  WorkKind kind;
  uint16_t lane;
  uint8_t stripe;
  uint16_t index;  // of the request
};

constexpr uint64_t PackWorkId(const WorkId& id) {
  return static_cast<uint64_t>(id.kind) | uint64_t{id.lane} << 8 | uint64_t{id.stripe} << 24 |
         uint64_t{id.index} << 32;
}

constexpr WorkId UnpackWorkId(uint64_t bits) {
  return {.kind = static_cast<WorkKind>(bits & 0xff),
          .lane = static_cast<uint16_t>(bits >> 8),
          .stripe = static_cast<uint8_t>(bits >> 24),
          .index = static_cast<uint16_t>(bits >> 32)};
}

class Connection {
 public:
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The first fault, once: the second call finds kNone. Any thread.
  Fault TakeFault();

  // For events of the device that come outside the queues. Any thread.
  bool Uses(const ibv_qp* qp) const;
  bool Uses(const ibv_cq* cq) const;
  bool Uses(const verbs::Context* context) const;
  // Ends the connection as by a fault of its device: `event` is the ibv_event_type.
  void GiveUp(int event);

  // Puts the lanes into ERR, then destroys them, the completion queues and the registrations: after
  // success no NIC writes into anybody's memory for this connection. Requests are over. Nobody may
  // be in another call. Errors: Internal (what could not be destroyed stays, and may be tried
  // again).
  absl::Status Close();

  // Names the connection in messages; set before it is used. `label` outlives it.
  void set_label(const char* label) { label_ = label; }
  const char* label() const { return label_; }

  size_t lane_count() const { return lanes_.size(); }
  uint32_t qp_number(size_t lane) const { return lanes_[lane].qp->number(); }

 protected:
  Connection(std::vector<ConnectionDevice> devices, std::vector<Lane> lanes,
             const ConnectionRules& rules)
      : rules_(rules),
        device_count_(static_cast<uint32_t>(devices.size())),
        lane_count_(static_cast<uint32_t>(lanes.size())),
        devices_(std::move(devices)),
        lanes_(std::move(lanes)) {}
  ~Connection() = default;

  // Records the first fault and gives the connection up.
  Outcome Fail(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  Outcome FailPost(uint32_t lane, int error_number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  Outcome FailProtocol(uint32_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // For a completion in error: of a lane, or (lane < 0) of a flush.
  Outcome FailCompletion(int lane, uint32_t device, const ibv_wc& wc)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  // Entries taken from a completion queue at once.
  static constexpr int kPollBatch = 8;

  // After the last lane comes the first.
  uint32_t LaneAfter(uint32_t lane) const { return lane + 1 == lane_count_ ? 0 : lane + 1; }

  const ConnectionRules rules_;
  const uint32_t device_count_;
  const uint32_t lane_count_;
  mutable ConnectionLock lock_;
  Outcome failed_ ABSL_GUARDED_BY(lock_) = Outcome::kOk;
  // The vectors keep their size; what is in them is guarded.
  std::vector<ConnectionDevice> devices_;
  std::vector<Lane> lanes_;
  uint64_t next_sequence_ ABSL_GUARDED_BY(lock_) = kFirstSequence;
  uint32_t next_lane_ ABSL_GUARDED_BY(lock_) = 0;  // where the next stripe or entry goes
  uint64_t stale_completions_ ABSL_GUARDED_BY(lock_) = 0;

 private:
  const char* label_ = "";
  Fault fault_ ABSL_GUARDED_BY(lock_);
  bool fault_taken_ ABSL_GUARDED_BY(lock_) = false;
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_CONNECTION_H_
