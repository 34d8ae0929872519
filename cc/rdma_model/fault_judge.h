// Asks the faults of two ports what becomes of packets between them.
//
// A train of packets is judged from the front: the verdict says how many leading packets share a
// fate; the caller does that to them and asks again about the rest. So a train of 256 is hit at
// exactly the same packets as 256 trains of one. Chance is a hash of (fabric seed, rule seed,
// device, queue pair, direction, number of the packet), never of time or batching. Counters live in
// the queue pair's process (FlowState) and, for faults that wait for a port's traffic, in the
// tables. The hard case is a port that has to fall behind exactly message N while other processes
// send: the message count is claimed by compare-and-swap, and packets behind it are dropped until
// the world has carried the fall out.
#ifndef RAILHOP_CC_RDMA_MODEL_FAULT_JUDGE_H_
#define RAILHOP_CC_RDMA_MODEL_FAULT_JUDGE_H_

#include <atomic>
#include <cstdint>

#include "cc/rdma_model/fault_table.h"
#include "cc/rdma_model/packet.h"

namespace railhop::rdma {

// Which way a flow goes. Both flows belong to the requesting queue pair.
enum class FlowDirection : uint32_t { kRequests = 0, kResponses = 1 };

// What one queue pair has sent (kRequests) or got back (kResponses). Owned by its process, one
// thread at a time.
struct FlowState {
  uint64_t key = 0;         // from InitFlow
  uint32_t qp_order = 0;    // of the requesting queue pair on its device
  uint32_t peer_order = 0;  // of the responding queue pair on its device
  FlowDirection direction = FlowDirection::kRequests;
  uint32_t pad = 0;
  uint64_t packets = 0;   // put on the wire, also those that were lost or sent again
  uint64_t bytes = 0;     // payload of those
  uint64_t messages = 0;  // whose last packet was let through, each once
};

// Makes a flow at the creation of its queue pair. `device` is the index of the device in its
// fabric. `peer_order` is filled in when the queue pair is connected.
FlowState InitFlow(uint64_t fabric_seed, uint32_t device, uint32_t qp_order,
                   FlowDirection direction);

enum class Fate : uint8_t {
  kDeliver,  // after delay_ns, `copies` times, behind reorder_by later packets
  kDrop,
  kHold,   // keep until HoldReleased(table of `side`, hold_ticket)
  kFail,   // victim's work request completes with `status`; its queue pair goes to ERR
  kWedge,  // victim's queue pair stops for good without a word
  kKill,   // victim's process dies before these packets go out (requester) or are executed
           // (responder)
};

enum class Victim : uint8_t { kRequester, kResponder };

inline constexpr uint8_t kActionsTx = 1;
inline constexpr uint8_t kActionsRx = 2;

struct Verdict {
  uint32_t packets = 1;  // leading packets that share this fate, 1 .. count
  Fate fate = Fate::kDeliver;
  Victim victim = Victim::kRequester;
  WcStatus status = WcStatus::kSuccess;
  uint8_t actions = 0;  // kActionsTx/Rx: after these packets call NextAction on that port's table
  bool before_fall =
      false;             // let through ahead of a fall that waits for traffic: deliver even if the
                         // port's state, read after Judge, says that it has fallen meanwhile
  bool falling = false;  // kDrop: not by a rule about packets; the port is about to fall
  FaultDirection side = FaultDirection::kBoth;  // kTx or kRx: whose table `rule` is in
  uint32_t rule =
      kNoRule;  // the rule that decided, for the log; for kDeliver the first that changed it
  uint32_t copies = 1;     // 2: duplicated
  bool unwritten = false;  // mark the packets so: they are acknowledged and reach no memory
  uint32_t reorder_by =
      0;  // arrives after so many later packets of the flow (or when none follow soon)
  uint32_t vendor_err = 0;
  uint64_t delay_ns = 0;
  uint64_t tx_cap_bps = 0;  // bits per second at the sending port, 0: none
  uint64_t rx_cap_bps = 0;  // at the receiving port
  uint64_t hold_ticket = 0;
};

Verdict JudgeSlow(FaultTable& tx_port, FaultTable& rx_port, const Train& train, FlowState& flow,
                  uint64_t now_ns);
Verdict JudgeResponseSlow(FaultTable& tx_port, FaultTable& rx_port, const Response& response,
                          FlowState& flow, uint64_t now_ns);

// Judges the front of a train of requests on its way from tx_port to rx_port, and counts it in
// `flow` (whose direction is kRequests). Any thread; never locks or allocates.
inline Verdict Judge(FaultTable& tx_port, FaultTable& rx_port, const Train& train, FlowState& flow,
                     uint64_t now_ns) {
  if ((tx_port.packet_rules.load(std::memory_order_acquire) |
       rx_port.packet_rules.load(std::memory_order_acquire)) != 0) {
    return JudgeSlow(tx_port, rx_port, train, flow, now_ns);
  }
  flow.packets += train.count;
  if (train.opcode != Opcode::kRead) flow.bytes += train.length;
  if (train.last && train.message_id >= flow.messages) flow.messages = train.message_id + 1;
  Verdict verdict;
  verdict.packets = train.count;
  return verdict;
}

// The same for what goes back: tx_port is the responder's. `flow` has direction kResponses and
// belongs to the requester. A response of several packets is READ data.
inline Verdict JudgeResponse(FaultTable& tx_port, FaultTable& rx_port, const Response& response,
                             FlowState& flow, uint64_t now_ns) {
  if ((tx_port.packet_rules.load(std::memory_order_acquire) |
       rx_port.packet_rules.load(std::memory_order_acquire)) != 0) {
    return JudgeResponseSlow(tx_port, rx_port, response, flow, now_ns);
  }
  flow.packets += response.count;
  flow.bytes += response.length;
  Verdict verdict;
  verdict.packets = response.count;
  return verdict;
}

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_FAULT_JUDGE_H_
