// What two processes tell each other on the control channel, as plain structs. The wire's form is
// cc/proto/control.proto; cc/control/codec.h converts, and a test proves that every field is
// carried. Nothing in a message that came from the peer is trusted: whoever uses it checks.
#ifndef RAILHOP_CC_ENGINE_MESSAGES_H_
#define RAILHOP_CC_ENGINE_MESSAGES_H_

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cc/engine/ids.h"

namespace railhop::engine {

// ---- Agreement about a connection. `to` is the end that the message is for.

// Leave these lanes: stop posting, fence, then RECORD. From the sender: under its new epoch. From
// the receiver it is never sent; it asks (Ask) and answers a FENCE with RECORD.
struct Fence {
  EndId to;
  uint32_t epoch = 0;
  LaneIds lanes;
  Cause cause = Cause::kNone;
  friend bool operator==(const Fence&, const Fence&) = default;
};

// The receiver asks the sender for a FENCE of these lanes.
struct Ask {
  EndId to;
  uint32_t epoch = 0;  // the receiver's present one
  LaneIds lanes;
  Cause cause = Cause::kNone;
  friend bool operator==(const Ask&, const Ask&) = default;
};

// What the receiver holds of one receive of an open transfer.
struct OpenReceive {
  uint32_t stripes = 0;  // of this send; 0 = none has arrived
  std::array<uint64_t, 2> arrived = {};
  friend bool operator==(const OpenReceive&, const OpenReceive&) = default;
};
// A transfer that is announced and not complete.
struct OpenTransfer {
  uint64_t sequence = 0;
  std::vector<OpenReceive> receives;
  friend bool operator==(const OpenTransfer&, const OpenTransfer&) = default;
};
// The receiver's ledger after its fence: every transfer from complete_below to next_sequence - 1
// that is not in `open` is complete.
struct ReceiverRecord {
  uint64_t complete_below = 0;
  uint64_t next_sequence = 0;
  std::vector<OpenTransfer> open;
  friend bool operator==(const ReceiverRecord&, const ReceiverRecord&) = default;
};
// The sender's: which announcements it has seen, and what it has sent.
struct SenderRecord {
  uint64_t next_sequence = 0;           // the oldest transfer that still has receives left
  std::vector<uint64_t> announcements;  // sequences that its FIFO holds, from next_sequence - 32 on
  friend bool operator==(const SenderRecord&, const SenderRecord&) = default;
};

// State after the fence. Exactly one of the records counts: the one of the end that speaks.
struct Record {
  EndId to;
  uint32_t epoch = 0;
  LaneIds lanes;
  ReceiverRecord receiver;
  SenderRecord sender;
  friend bool operator==(const Record&, const Record&) = default;
};

// A device that an end uses for a connection, by slot: what MemoryKeys in clear-to-send entries are
// indexed by.
struct EndDevice {
  uint8_t slot = 0;
  int physical = 0;  // id in its own process
  std::string name;
  uint8_t port = 1;
  bool is_ethernet = false;
  uint8_t mtu = 0;  // ibv_mtu, 1..5
  uint16_t lid = 0;
  std::array<uint8_t, 16> gid = {};
  uint32_t control_key = 0;
  friend bool operator==(const EndDevice&, const EndDevice&) = default;
};
struct EndLane {
  uint8_t index = 0;
  uint8_t slot = 0;  // of the device of the end that speaks
  uint32_t qp_number = 0;
  uint32_t start_psn = 0;
  uint32_t ece_vendor = 0;
  uint32_t ece_options = 0;
  uint32_t ece_mask = 0;
  int remote_physical = 0;  // offer: the receiver's port that is wanted
  friend bool operator==(const EndLane&, const EndLane&) = default;
};
// New lanes: OFFER by the sender, ANSWER by the receiver (its queue pairs are in RTS and have
// receives posted), UP by the sender (its queue pairs too: entries may travel). Repeated until
// answered; the same epoch gives the same answer. An offer that is given up ends in a FENCE.
struct Offer {
  EndId to;
  uint32_t epoch = 0;
  std::vector<EndDevice> devices;
  std::vector<EndLane> lanes;
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  friend bool operator==(const Offer&, const Offer&) = default;
};
struct Answer {
  EndId to;
  uint32_t epoch = 0;
  std::vector<EndDevice> devices;
  std::vector<EndLane> lanes;  // those that were made
  std::string error;           // why others were not
  friend bool operator==(const Answer&, const Answer&) = default;
};
struct Up {
  EndId to;
  uint32_t epoch = 0;
  uint64_t first_sequence = 0;  // the first transfer that may use them
  friend bool operator==(const Up&, const Up&) = default;
};

// The sender posts no more to these lanes, and all it had posted is acknowledged: the receiver is
// to do the same, and to ask for their fence then.
struct Quiet {
  EndId to;
  uint32_t epoch = 0;
  LaneIds lanes;
  Cause cause = Cause::kNone;
  friend bool operator==(const Quiet&, const Quiet&) = default;
};

// "Nothing moves here, and the path answers: what do you see?" and the answer.
struct Inquiry {
  EndId to;
  uint32_t serial = 0;
  friend bool operator==(const Inquiry&, const Inquiry&) = default;
};
struct LaneCount {
  LaneId lane;
  uint64_t posted = 0;   // messages of this end on it
  uint64_t arrived = 0;  // messages of the other end (sender: not known, 0)
  bool may_arrive = true;
  friend bool operator==(const LaneCount&, const LaneCount&) = default;
};
struct Account {
  EndId to;
  uint32_t serial = 0;
  uint64_t next_sequence = 0;  // sender: as in SenderRecord; receiver: as in ReceiverRecord
  // Sender: up to it all was announced, from next_sequence on. Receiver: below it all is complete.
  uint64_t last_announced = 0;
  std::vector<LaneCount> lanes;
  friend bool operator==(const Account&, const Account&) = default;
};

// The connection is given up (or closed) at this end.
struct Over {
  EndId to;
  bool failed = false;
  std::string reason;
  uint64_t complete_below = 0;  // receiver: as in ReceiverRecord, what no RECORD will say any more
  friend bool operator==(const Over&, const Over&) = default;
};
// Whoever is asked about a connection that it does not have (yet, or any more).
struct Unknown {
  EndId to;
  friend bool operator==(const Unknown&, const Unknown&) = default;
};

// ---- Between processes.

enum class PortState : uint8_t { kActive = 0, kDown, kFatal, kHeld, kDrained };

// A port of the process that speaks, whenever something of it has changed, and all of them at the
// start of a session.
struct PortReport {
  int physical = 0;
  std::string name;
  uint8_t port = 1;
  bool is_ethernet = false;
  PortState state = PortState::kActive;
  uint8_t mtu = 0;
  uint16_t lid = 0;
  std::array<uint8_t, 16> gid = {};
  int rail = -1;
  int speed_mbps = 0;
  int replaces = -1;  // the port, of a device that is gone, that this one was; -1 = none
  friend bool operator==(const PortReport&, const PortReport&) = default;
};
struct Ports {
  std::vector<PortReport> ports;
  friend bool operator==(const Ports&, const Ports&) = default;
};

// A queue pair for probes: OPEN by who wants to probe, ANSWER by the other (RTS), CLOSE.
struct ProbeEnd {
  uint32_t qp_number = 0;
  uint32_t start_psn = 0;
  uint8_t mtu = 0;
  uint16_t lid = 0;
  std::array<uint8_t, 16> gid = {};
  friend bool operator==(const ProbeEnd&, const ProbeEnd&) = default;
};
struct ProbeOpen {
  uint32_t probe = 0;  // number given by who opens
  int from = 0;        // physical id of who opens
  int to = 0;          // of who answers
  ProbeEnd end;
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  uint16_t pkey = 0;  // the key itself; 0 = that of the configured index
  friend bool operator==(const ProbeOpen&, const ProbeOpen&) = default;
};
struct ProbeAnswer {
  uint32_t probe = 0;
  ProbeEnd end;
  std::string error;  // not empty: it could not be made
  friend bool operator==(const ProbeAnswer&, const ProbeAnswer&) = default;
};
struct ProbeClose {
  uint32_t probe = 0;
  bool by_opener = true;
  friend bool operator==(const ProbeClose&, const ProbeClose&) = default;
};

struct Goodbye {
  std::string reason;
  friend bool operator==(const Goodbye&, const Goodbye&) = default;
};

using Message = std::variant<Fence, Ask, Record, Offer, Answer, Up, Quiet, Inquiry, Account, Over,
                             Unknown, Ports, ProbeOpen, ProbeAnswer, ProbeClose, Goodbye>;

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_MESSAGES_H_
