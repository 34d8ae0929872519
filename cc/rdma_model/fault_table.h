// The faults in force on one port, as plain data that processes can share.
//
// One writer at a time (the world holds its control lock) puts rules in and takes them out; readers
// judge packets without a lock. A rule's words are atomics between two reads of a version that is
// odd while the rule is being written, so a reader sees a whole rule or none. The hard case is a
// writer or reader that dies at any instruction: a version left odd is a rule nobody sees and the
// next writer reuses; an action that was due and not finished is handed over again. All bytes zero
// is a valid empty table.
#ifndef RAILHOP_CC_RDMA_MODEL_FAULT_TABLE_H_
#define RAILHOP_CC_RDMA_MODEL_FAULT_TABLE_H_

#include <atomic>
#include <cstdint>

#include "cc/rdma_model/fault_spec.h"

namespace railhop::rdma {

inline constexpr int kMaxFaultRules = 64;  // a bit each in FaultTable's masks
inline constexpr uint32_t kNoRule = 0xffffffff;
inline constexpr int kFaultSpecWords = sizeof(FaultSpec) / sizeof(uint64_t);
inline constexpr int kFaultSavedWords = 4;

// A rule. Only fault_rule.h, fault_table.cc and fault_judge.cc touch the fields.
struct FaultRule {
  std::atomic<uint32_t> version;  // odd: being written; counts writes
  std::atomic<uint32_t> phase;    // actions: steps finished
  std::atomic<uint64_t> spec[kFaultSpecWords];
  std::atomic<uint64_t> start_ns;  // not before (world's clock)
  std::atomic<uint64_t> fired_ns;  // when its count was reached; NotFired(version): not yet
  std::atomic<uint64_t> ended_ns;  // cut short by clear; 0: not
  std::atomic<uint64_t> hits;      // low 16 bits of version in the top, count below
  std::atomic<uint64_t> base_messages, base_packets, base_tx_bytes,
      base_rx_bytes;                              // counters when put in
  std::atomic<uint64_t> calls;                    // verbs calls seen that match
  std::atomic<uint64_t> saved[kFaultSavedWords];  // what the world wants back at the undo
};

struct FaultTable {
  // The fast path: 0 when no rule can concern a packet. Bit n is rule n.
  std::atomic<uint64_t> packet_rules;
  std::atomic<uint64_t> verb_rules;    // same for JudgeVerb
  std::atomic<uint64_t> event_rules;   // same for PlanEvent
  std::atomic<uint64_t> action_rules;  // same for NextAction
  // Traffic while there were packet rules. Low half received, high half sent.
  std::atomic<uint64_t> messages, packets;
  std::atomic<uint64_t> tx_bytes, rx_bytes;
  FaultRule rules[kMaxFaultRules];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// When a command is carried out.
struct FaultClock {
  uint64_t now_ns = 0;    // on the clock that Judge is given
  uint64_t start_ns = 0;  // of the fabric, same clock: `at T` counts from here
};

enum class ApplyResult { kOk, kFull, kNotForTable };

// Puts a rule in, or carries out kClear and kRelease. Everything but kList goes through here, also
// what takes effect at once: call NextAction afterwards. kFull: kMaxFaultRules rules are in force.
// Caller holds the world's control lock.
ApplyResult ApplyFault(const FaultSpec& spec, const FaultClock& clock, FaultTable& table);

// Frees rules that can never hit again. Caller holds the control lock. Returns how many.
int ReapFaults(FaultTable& table, uint64_t now_ns);

// A rule as it is now, for lists. False when slot `rule` (0 .. kMaxFaultRules - 1) has none.
struct FaultStatus {
  FaultSpec spec;
  uint64_t hits = 0;
  bool fired = false;  // started
  bool over = false;   // ended or used up
};
bool ReadFault(const FaultTable& table, uint32_t rule, uint64_t now_ns, FaultStatus* status);

// A step that the world has to carry out.
struct FaultAction {
  uint32_t rule = kNoRule;
  uint32_t version = 0;
  uint32_t phase = 0;
  FaultSpec spec;      // kFlap comes as kDown or kUp
  bool change = true;  // change the state; false: only send the event
  bool undo = false;   // go back to what was before (`saved` holds what the world stored)
  int events = 1;      // how often to send the event that belongs to the change: 0, 1 or 2
  uint64_t event_delay_ns = 0;
  uint64_t due_ns = 0;  // when it was to happen
  uint64_t saved[kFaultSavedWords] = {};
};

// The next step that is due, earliest first; false: none. Caller holds the control lock, carries it
// out (doing it twice must do no harm: whoever dies before FinishAction leaves it to the next) and
// calls FinishAction.
bool NextAction(const FaultTable& table, uint64_t now_ns, FaultAction* action);
// Marks it done, keeps action.saved for the undo, frees the rule after its last step.
void FinishAction(FaultTable& table, const FaultAction& action);
// When to look again: the earliest time after which NextAction or ReapFaults has work; UINT64_MAX:
// never.
uint64_t NextFaultDeadline(const FaultTable& table, uint64_t now_ns);

// Held packets. A verdict's ticket names the hold; the packet may go when this is true (released,
// cleared, or its time is over). Any thread.
bool HoldReleased(const FaultTable& table, uint64_t ticket, uint64_t now_ns);

// What a verbs call meets. `detail` is QpState + 1 for modify_qp, else 0. Faults of a device live
// in the table of its port 1. Any thread.
struct VerbVerdict {
  int error = 0;         // errno to fail with; 0: goes on
  uint64_t hang_ns = 0;  // sleep first
  uint32_t rule = kNoRule;
};
VerbVerdict JudgeVerbSlow(FaultTable& table, VerbCall call, uint32_t detail, uint64_t now_ns);
inline VerbVerdict JudgeVerb(FaultTable& table, VerbCall call, uint32_t detail, uint64_t now_ns) {
  if (table.verb_rules.load(std::memory_order_acquire) == 0) return {};
  return JudgeVerbSlow(table, call, detail, now_ns);
}

// How an event of the port reaches programs (the `events` fault). Any thread.
struct EventPlan {
  int copies = 1;  // 0: lost
  uint64_t delay_ns = 0;
};
EventPlan PlanEvent(FaultTable& table, AsyncEvent event, uint64_t now_ns);

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_FAULT_TABLE_H_
