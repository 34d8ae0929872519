// What the two ends of a connection tell each other about it after a fence, and how it is compared:
// plain structs; cc/engine has the same as messages.
#ifndef RAILHOP_CC_DATAPATH_RECORD_H_
#define RAILHOP_CC_DATAPATH_RECORD_H_

#include <array>
#include <cstdint>
#include <vector>

#include "cc/datapath/lane.h"

namespace railhop::datapath {

// One queue pair of a connection: its place, and the epoch in which it was made.
struct LaneRef {
  uint8_t index = 0;
  uint32_t epoch = 0;
  friend bool operator==(const LaneRef&, const LaneRef&) = default;
};

// What the receiver holds of one receive of an open transfer.
struct OpenReceive {
  uint32_t stripes = 0;  // of this send, 1..128; 0 = none has arrived
  std::array<uint64_t, 2> arrived = {};
  friend bool operator==(const OpenReceive&, const OpenReceive&) = default;
};
// A transfer that is announced and not complete.
struct OpenTransfer {
  uint64_t sequence = 0;
  std::vector<OpenReceive> receives;  // 1..8
  friend bool operator==(const OpenTransfer&, const OpenTransfer&) = default;
};
// The receiver's ledger: every transfer below next_sequence that is not in `open` is complete.
struct ReceiverRecord {
  uint64_t complete_below = 0;  // the first that is open, or next_sequence
  uint64_t next_sequence = 0;
  std::vector<OpenTransfer> open;  // by sequence
  friend bool operator==(const ReceiverRecord&, const ReceiverRecord&) = default;
};
// The sender's.
struct SenderRecord {
  uint64_t next_sequence = 0;           // the oldest transfer that still has receives left
  std::vector<uint64_t> announcements;  // sequences that its FIFO holds, from next_sequence - 32 on
  uint64_t confirmed_below = 0;         // as far as the receiver has confirmed; for this end alone
  friend bool operator==(const SenderRecord&, const SenderRecord&) = default;
};

// What came of comparing our ledger with the peer's record.
struct ResumeResult {
  enum class Status : uint8_t {
    kResumed = 0,
    // Bytes were acknowledged and have not arrived, and NCCL has the buffer back (rule 4). The
    // caller gives the connection up.
    kLost,
    // The peer's record cannot be true. The caller gives the connection up.
    kLie,
  };
  Status status = Status::kResumed;
  uint64_t bytes = 0;     // to be sent again (receiver: 0)
  uint32_t stripes = 0;   // sender: to be sent again; receiver: transfers announced again
  uint64_t sequence = 0;  // kLost, kLie: the transfer that showed it
};

// What stands at one lane, for whoever looks after it.
struct LaneView {
  LaneRef lane;
  LaneState state = LaneState::kOpen;
  uint8_t slot = 0;          // of our device
  uint8_t remote_slot = 0;   // of the peer's
  int physical = 0;          // PhysicalDevice::id of our device
  uint32_t qp_number = 0;    // 0 once it is destroyed
  uint64_t posted = 0;       // messages of ours: stripes, or clear-to-send writes
  uint64_t progressed = 0;   // successful completions of both kinds
  uint64_t arrived = 0;      // of these, messages of the peer (receiver: stripes; sender: 0)
  uint32_t outstanding = 0;  // messages of ours that are not known to be done
  bool owed = false;         // one of them is due a completion
};

// What has gone over one port for a connection, of the messages' data.
struct PortTraffic {
  int physical = 0;       // PhysicalDevice::id
  uint64_t bytes = 0;     // sender: posted, also again; receiver: arrived
  uint64_t messages = 0;  // stripes, of the same
};

// All that a connection has moved.
struct Traffic {
  uint64_t transfers = 0;          // sends, receives (a grouped one counts once) that have begun
  uint32_t outstanding = 0;        // messages of ours that are not known to be done
  std::vector<PortTraffic> ports;  // those that it has used, by id
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const PortTraffic& port : ports) sum += port.bytes;
    return sum;
  }
};

// How far FenceLane has come.
enum class FenceProgress : uint8_t {
  kAgain = 0,  // call again
  kFenced,     // nothing of this lane reaches memory or counts any more
  kGone,       // the same, since the device is gone
  kHeld,       // it cannot be destroyed: nothing that it may write to may be used again
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_RECORD_H_
