#include "cc/rdma_model/fault_judge.h"

#include <algorithm>
#include <bit>

#include "cc/rdma_model/fault_rule.h"

namespace railhop::rdma {
namespace {

constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kAcqRel = std::memory_order_acq_rel;

// The front of a train, requests or responses, as far as faults care.
struct Front {
  bool request = true;
  PacketClass packet_class = PacketClass::kData;
  uint32_t count = 1;
  uint32_t mtu = 4096;
  uint32_t payload = 0;       // bytes in these packets
  bool ends_message = false;  // the last packet ends a message that has not been counted
  FaultDirection side = FaultDirection::kTx;  // the port that is being asked
  bool loopback = false;  // both ports are one: its traffic is counted once, as sent

  uint64_t BytesOf(uint32_t packets) const {
    return std::min<uint64_t>(uint64_t{packets} * mtu, payload);
  }
};

// Sent in the high half, received in the low half.
uint64_t AddHalf(uint64_t counts, FaultDirection side, uint32_t n) {
  const auto sent = static_cast<uint32_t>(counts >> 32) + (side == FaultDirection::kTx ? n : 0);
  const auto received = static_cast<uint32_t>(counts) + (side == FaultDirection::kRx ? n : 0);
  return static_cast<uint64_t>(sent) << 32 | received;
}

uint64_t CountSince(uint64_t counts, uint64_t base, FaultDirection direction) {
  const uint32_t sent = static_cast<uint32_t>(counts >> 32) - static_cast<uint32_t>(base >> 32);
  const uint32_t received = static_cast<uint32_t>(counts) - static_cast<uint32_t>(base);
  if (direction == FaultDirection::kTx) return sent;
  if (direction == FaultDirection::kRx) return received;
  return uint64_t{sent} + received;
}

void AtomicAddHalf(std::atomic<uint64_t>& counts, FaultDirection side, uint32_t n) {
  uint64_t seen = counts.load(kAcquire);
  while (!counts.compare_exchange_weak(seen, AddHalf(seen, side, n), kAcqRel)) {
  }
}

void AtomicTakeOne(std::atomic<uint64_t>& counts, FaultDirection side) {
  AtomicAddHalf(counts, side, ~0u);
}

// A port with what its counters said when the judgement began.
struct Port {
  FaultTable* table = nullptr;
  FaultDirection side = FaultDirection::kTx;
  uint64_t messages = 0, packets = 0, tx_bytes = 0, rx_bytes = 0;
  uint64_t pending = 0;           // rules that wait for a count this front adds to
  bool pending_messages = false;  // one of them waits for messages of the port

  void Snapshot() {
    messages = table->messages.load(kAcquire);
    packets = table->packets.load(kAcquire);
    tx_bytes = table->tx_bytes.load(kAcquire);
    rx_bytes = table->rx_bytes.load(kAcquire);
    pending = 0;
    pending_messages = false;
  }
};

// What rules have said so far about the packets at the front.
struct Decision {
  uint32_t run = 1;
  Fate fate = Fate::kDeliver;
  Verdict verdict;
  FaultRule* deciding = nullptr;  // of a fate other than kDeliver
  RuleView deciding_view;
  bool falling = false;  // the port is about to fall: nothing to claim
  struct Modifier {
    FaultRule* rule;
    RuleView view;
  };
  int modifier_count = 0;
  Modifier modifiers[8];  // rules with a limit that change a delivered packet; more are ignored
};

uint32_t QpAtSide(const FlowState& flow, FaultDirection side) {
  const bool requester =
      (flow.direction == FlowDirection::kRequests) == (side == FaultDirection::kTx);
  return requester ? flow.qp_order : flow.peer_order;
}

bool ConcernsFlow(const FaultSpec& spec, const FlowState& flow, FaultDirection side) {
  return spec.of_qp == 0 || spec.qp == QpAtSide(flow, side);
}

// How many units a trigger still waits for; 0: reached.
uint64_t UnitsLeft(const RuleView& view, const Port& port, const FlowState& flow) {
  const FaultSpec& spec = view.spec;
  uint64_t passed = 0;
  if (spec.of_qp != 0) {
    passed = spec.after_unit == TriggerUnit::kMessages  ? flow.messages
             : spec.after_unit == TriggerUnit::kPackets ? flow.packets
                                                        : flow.bytes;
  } else if (spec.after_unit == TriggerUnit::kMessages) {
    passed = CountSince(port.messages, view.base_messages, spec.after_direction);
  } else if (spec.after_unit == TriggerUnit::kPackets) {
    passed = CountSince(port.packets, view.base_packets, spec.after_direction);
  } else {
    if (spec.after_direction != FaultDirection::kRx) passed += port.tx_bytes - view.base_tx_bytes;
    if (spec.after_direction != FaultDirection::kTx) passed += port.rx_bytes - view.base_rx_bytes;
  }
  return passed >= spec.after ? 0 : spec.after - passed;
}

// Whether the front adds to what the trigger counts.
bool FeedsTrigger(const FaultSpec& spec, const Front& front, const FlowState& flow) {
  if (front.loopback && front.side == FaultDirection::kRx) return false;
  if (spec.of_qp != 0) return front.request && ConcernsFlow(spec, flow, front.side);
  if (front.packet_class == PacketClass::kAcks) return false;
  return spec.after_direction == FaultDirection::kBoth || spec.after_direction == front.side;
}

// How many leading packets pass before a trigger that waits for `left` more units is reached.
uint32_t PacketsBefore(const FaultSpec& spec, uint64_t left, const Front& front) {
  uint64_t packets = front.count;
  if (spec.after_unit == TriggerUnit::kPackets) packets = left;
  if (spec.after_unit == TriggerUnit::kBytes && left <= front.payload)
    packets = (left + front.mtu - 1) / front.mtu;
  return static_cast<uint32_t>(std::min<uint64_t>(packets, front.count));
}

uint64_t DrawKey(const FlowState& flow, const FaultSpec& spec, FaultDirection side) {
  const uint64_t salt = static_cast<uint64_t>(spec.kind) << 8 | static_cast<uint64_t>(side);
  return Mix64(flow.key ^ Mix64(spec.seed ^ Mix64(salt)));
}

// Whether the rule picks the packet at the front, and for how many packets that stays so.
bool PicksFront(const FaultSpec& spec, const FlowState& flow, const Front& front, uint32_t* run) {
  if (spec.packet != 0) {
    const uint64_t target = spec.packet - 1;
    if (flow.packets == target) {
      *run = 1;
      return true;
    }
    if (flow.packets < target)
      *run = static_cast<uint32_t>(std::min<uint64_t>(*run, target - flow.packets));
    return false;
  }
  if (spec.rate_ppb == 0) return true;
  const uint64_t key = DrawKey(flow, spec, front.side);
  const bool picked = DrawHits(Mix64(key ^ flow.packets), spec.rate_ppb);
  for (uint32_t i = 1; i < *run; ++i) {
    if (DrawHits(Mix64(key ^ (flow.packets + i)), spec.rate_ppb) != picked) *run = i;
  }
  return picked;
}

// Whether a rule is about this kind of packet at this side at all.
bool Concerns(const FaultSpec& spec, const FlowState& flow, const Front& front) {
  if (spec.direction != FaultDirection::kBoth && spec.direction != front.side) return false;
  if (spec.packets != PacketClass::kAll && spec.packets != front.packet_class) return false;
  if (!ConcernsFlow(spec, flow, front.side)) return false;
  switch (spec.kind) {
    case FaultKind::kComplete:  // by default of the send queue
      return front.request &&
             (spec.direction != FaultDirection::kBoth || front.side == FaultDirection::kTx);
    case FaultKind::kUnwritten:
    case FaultKind::kWedge:
    case FaultKind::kKill:
      return front.request;
    default:
      // A numbered packet is one of the requests, unless acknowledgements are asked for.
      return spec.packet == 0 || front.request || spec.packets == PacketClass::kAcks;
  }
}

Fate FateOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kBlackhole:
    case FaultKind::kLoss:
      return Fate::kDrop;
    case FaultKind::kHold:
      return Fate::kHold;
    case FaultKind::kComplete:
      return Fate::kFail;
    case FaultKind::kWedge:
      return Fate::kWedge;
    case FaultKind::kKill:
      return Fate::kKill;
    default:
      return Fate::kDeliver;
  }
}

// Which of two fates wins. What befalls the sender comes before what befalls the packet on the
// wire.
int Rank(Fate fate) {
  switch (fate) {
    case Fate::kDeliver:
      return 0;
    case Fate::kHold:
      return 1;
    case Fate::kDrop:
      return 2;
    case Fate::kFail:
      return 3;
    case Fate::kWedge:
      return 4;
    case Fate::kKill:
      return 5;
  }
  return 0;
}

void Decide(Fate fate, const Port& port, uint32_t index, const RuleView& view, Decision* decision) {
  if (Rank(fate) <= Rank(decision->fate)) return;
  decision->fate = fate;
  decision->deciding = &port.table->rules[index];
  decision->deciding_view = view;
  decision->falling = false;
  Verdict& verdict = decision->verdict;
  verdict.rule = index;
  verdict.side = port.side;
  verdict.victim = port.side == FaultDirection::kTx ? Victim::kRequester : Victim::kResponder;
  if (fate == Fate::kFail) {
    verdict.status = static_cast<WcStatus>(view.spec.value);
    verdict.vendor_err = static_cast<uint32_t>(view.spec.value2);
  }
  if (fate == Fate::kHold) verdict.hold_ticket = static_cast<uint64_t>(view.version) << 32 | index;
}

uint64_t SmallerCap(uint64_t a, uint64_t b) { return a == 0 ? b : std::min(a, b); }

// Adds what a delivered packet suffers from a rule.
void Modify(const Port& port, uint32_t index, const RuleView& view, const FlowState& flow,
            const Front& front, Decision* decision) {
  const FaultSpec& spec = view.spec;
  Verdict& verdict = decision->verdict;
  switch (spec.kind) {
    case FaultKind::kDelay: {
      verdict.delay_ns += spec.value;
      if (spec.value2 != 0) {  // every packet has its own
        verdict.delay_ns +=
            Mix64(~DrawKey(flow, spec, front.side) ^ flow.packets) % (spec.value2 + 1);
        decision->run = 1;
      }
      break;
    }
    case FaultKind::kDuplicate:
      verdict.copies += 1;
      break;
    case FaultKind::kUnwritten:
      verdict.unwritten = true;
      break;
    case FaultKind::kReorder:
      verdict.reorder_by =
          std::max(verdict.reorder_by, static_cast<uint32_t>(std::max<uint64_t>(spec.value, 1)));
      break;
    case FaultKind::kCap: {
      uint64_t& cap = port.side == FaultDirection::kTx ? verdict.tx_cap_bps : verdict.rx_cap_bps;
      cap = SmallerCap(cap, spec.value);
      return;  // shapes rather than hits
    }
    default:
      return;
  }
  if (verdict.rule == kNoRule) {
    verdict.rule = index;
    verdict.side = port.side;
  }
  if (decision->modifier_count < static_cast<int>(std::size(decision->modifiers))) {
    decision->modifiers[decision->modifier_count++] = {&port.table->rules[index], view};
  }
}

uint8_t ActionBit(const Port& port) {
  return port.side == FaultDirection::kTx ? kActionsTx : kActionsRx;
}

// Asks one rule.
void Consult(Port& port, uint32_t index, const FlowState& flow, const Front& front, uint64_t now_ns,
             Decision* decision) {
  RuleView view;
  if (!LoadRule(port.table->rules[index], &view)) return;
  const FaultSpec& spec = view.spec;
  if (HasTrafficTrigger(spec) && view.fired_ns == 0) {
    if (!FeedsTrigger(spec, front, flow)) return;
    const uint64_t left = UnitsLeft(view, port, flow);
    if (left > 0) {
      port.pending |= uint64_t{1} << index;
      decision->verdict.before_fall |= IsAction(spec.kind);
      if (spec.of_qp == 0 && spec.after_unit == TriggerUnit::kMessages)
        port.pending_messages = true;
      decision->run = std::min(decision->run, PacketsBefore(spec, left, front));
      return;
    }
    if (now_ns < view.start_ns) return;
    // Reached earlier: by a queue pair's count from before the rule, or by a process that died on
    // the spot.
    if (FireRule(port.table->rules[index], view.version, now_ns) && IsAction(spec.kind))
      decision->verdict.actions |= ActionBit(port);
    view.fired_ns = std::max<uint64_t>(now_ns, 1);
  }
  if (IsAction(spec.kind)) {
    if (!FallIsDue(view, now_ns)) return;
    Decide(Fate::kDrop, port, index, view, decision);
    if (decision->verdict.rule == index) decision->falling = decision->verdict.falling = true;
    decision->verdict.actions |= ActionBit(port);  // whoever fired it may be dead
    return;
  }
  if (!InForce(view, now_ns) || !Concerns(spec, flow, front)) return;
  const uint64_t left = HitsLeft(view);
  if (left == 0) return;
  const bool picked = PicksFront(spec, flow, front, &decision->run);
  if (!picked) return;
  const Fate fate = FateOf(spec.kind);
  if (fate == Fate::kDeliver || fate == Fate::kDrop || fate == Fate::kHold) {
    decision->run = static_cast<uint32_t>(std::min<uint64_t>(decision->run, left));
  }
  if (fate == Fate::kDeliver) {
    Modify(port, index, view, flow, front, decision);
  } else {
    Decide(fate, port, index, view, decision);
  }
}

// Takes the hits of the rules that had a say. False, with nothing taken: another process was
// faster.
bool Claim(Decision& decision) {
  if (decision.fate != Fate::kDeliver) {
    if (decision.falling) return true;
    const bool whole_run = decision.fate == Fate::kDrop || decision.fate == Fate::kHold;
    return ClaimHits(*decision.deciding, decision.deciding_view, whole_run ? decision.run : 1);
  }
  for (int i = 0; i < decision.modifier_count; ++i) {
    if (ClaimHits(*decision.modifiers[i].rule, decision.modifiers[i].view, decision.run)) continue;
    while (--i >= 0) {
      UnclaimHits(*decision.modifiers[i].rule, decision.modifiers[i].view.version, decision.run);
    }
    return false;
  }
  return true;
}

void Unclaim(Decision& decision) {
  if (decision.fate != Fate::kDeliver) {
    if (!decision.falling) {
      const bool whole_run = decision.fate == Fate::kDrop || decision.fate == Fate::kHold;
      UnclaimHits(*decision.deciding, decision.deciding_view.version, whole_run ? decision.run : 1);
    }
    return;
  }
  for (int i = 0; i < decision.modifier_count; ++i) {
    UnclaimHits(*decision.modifiers[i].rule, decision.modifiers[i].view.version, decision.run);
  }
}

// Counts a finished message. False: another process finished one meanwhile, so a trigger may have
// been reached.
bool CountMessage(Port& port) {
  if (!port.pending_messages) {
    AtomicAddHalf(port.table->messages, port.side, 1);
    return true;
  }
  uint64_t expected = port.messages;
  return port.table->messages.compare_exchange_strong(expected, AddHalf(expected, port.side, 1),
                                                      kAcqRel);
}

// Counts the packets at a port and starts the rules that waited for them.
void CountAndFire(Port& port, const Front& front, const FlowState& flow, uint32_t run,
                  uint64_t now_ns, Verdict* verdict) {
  if (front.packet_class != PacketClass::kAcks) {
    AtomicAddHalf(port.table->packets, port.side, run);
    auto& bytes = port.side == FaultDirection::kTx ? port.table->tx_bytes : port.table->rx_bytes;
    bytes.fetch_add(front.BytesOf(run), kAcqRel);
  }
  const uint64_t pending = port.pending;
  if (pending == 0) return;
  port.Snapshot();
  for (uint64_t mask = pending; mask != 0; mask &= mask - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(mask));
    RuleView view;
    if (!LoadRule(port.table->rules[index], &view) || view.fired_ns != 0 || now_ns < view.start_ns)
      continue;
    if (!HasTrafficTrigger(view.spec) || UnitsLeft(view, port, flow) > 0) continue;
    if (FireRule(port.table->rules[index], view.version, now_ns) && IsAction(view.spec.kind))
      verdict->actions |= ActionBit(port);
  }
}

bool LetsThrough(Fate fate) { return fate == Fate::kDeliver || fate == Fate::kHold; }

Verdict JudgeFront(FaultTable& tx_table, FaultTable& rx_table, Front front, FlowState& flow,
                   uint64_t message_id, uint64_t now_ns) {
  Port ports[2];
  ports[0].table = &tx_table;
  ports[1].table = &rx_table;
  ports[1].side = FaultDirection::kRx;
  front.loopback = &tx_table == &rx_table;
  const int counted_ports = front.loopback ? 1 : 2;
  uint8_t actions = 0;  // of rules that fired in a round that had to be repeated
  while (true) {
    Decision decision;
    decision.run = front.count;
    decision.verdict.actions = actions;
    for (Port& port : ports) {
      port.Snapshot();
      front.side = port.side;
      for (uint64_t mask = port.table->packet_rules.load(kAcquire); mask != 0; mask &= mask - 1) {
        Consult(port, static_cast<uint32_t>(std::countr_zero(mask)), flow, front, now_ns,
                &decision);
      }
    }
    actions = decision.verdict.actions;
    if (!Claim(decision)) continue;
    const uint32_t run = decision.run;
    const bool finished = front.ends_message && run == front.count && LetsThrough(decision.fate);
    if (finished) {
      if (!CountMessage(ports[0])) {
        Unclaim(decision);
        continue;
      }
      if (counted_ports == 2 && !CountMessage(ports[1])) {
        AtomicTakeOne(tx_table.messages, FaultDirection::kTx);
        Unclaim(decision);
        continue;
      }
      flow.messages = message_id + 1;
    }
    flow.packets += run;
    flow.bytes += front.BytesOf(run);
    Verdict verdict = decision.verdict;
    verdict.fate = decision.fate;
    verdict.packets = run;
    if (verdict.fate != Fate::kDeliver) {
      verdict.copies = 1;
      verdict.delay_ns = 0;
      verdict.reorder_by = 0;
    }
    if (!LetsThrough(verdict.fate)) verdict.unwritten = false;
    for (int i = 0; i < counted_ports; ++i) {
      front.side = ports[i].side;
      CountAndFire(ports[i], front, flow, run, now_ns, &verdict);
    }
    return verdict;
  }
}

}  // namespace

FlowState InitFlow(uint64_t fabric_seed, uint32_t device, uint32_t qp_order,
                   FlowDirection direction) {
  FlowState flow;
  flow.key = Mix64(Mix64(Mix64(fabric_seed) ^ device) ^
                   (static_cast<uint64_t>(qp_order) << 1 | static_cast<uint64_t>(direction)));
  flow.qp_order = qp_order;
  flow.direction = direction;
  return flow;
}

Verdict JudgeSlow(FaultTable& tx_port, FaultTable& rx_port, const Train& train, FlowState& flow,
                  uint64_t now_ns) {
  Front front;
  front.count = train.count;
  front.mtu = train.mtu;
  front.payload = train.opcode == Opcode::kRead ? 0 : train.length;
  front.ends_message = train.last && train.message_id >= flow.messages;
  return JudgeFront(tx_port, rx_port, front, flow, train.message_id, now_ns);
}

Verdict JudgeResponseSlow(FaultTable& tx_port, FaultTable& rx_port, const Response& response,
                          FlowState& flow, uint64_t now_ns) {
  Front front;
  front.request = false;
  front.packet_class =
      response.kind == ResponseKind::kReadData ? PacketClass::kData : PacketClass::kAcks;
  front.count = response.count;
  front.mtu = response.mtu;
  front.payload = response.kind == ResponseKind::kReadData ? response.length : 0;
  return JudgeFront(tx_port, rx_port, front, flow, 0, now_ns);
}

}  // namespace railhop::rdma
