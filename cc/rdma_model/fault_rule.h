// How a rule of a fault table is read, claimed and freed: shared by fault_table.cc and
// fault_judge.cc alone.
//
// A RuleView is a consistent copy of a rule. Loads are acquire loads, which keep their order
// against the second read of the version (on x86 they cost what plain loads cost), so no fence is
// needed.
#ifndef RAILHOP_CC_RDMA_MODEL_FAULT_RULE_H_
#define RAILHOP_CC_RDMA_MODEL_FAULT_RULE_H_

#include <cstdint>

#include "cc/base/prng.h"
#include "cc/rdma_model/fault_table.h"

namespace railhop::rdma {

inline constexpr uint64_t kNever = UINT64_MAX;

struct RuleView {
  FaultSpec spec;
  uint32_t version = 0;
  uint32_t phase = 0;
  uint64_t start_ns = 0;
  uint64_t fired_ns = 0;  // 0: not yet
  uint64_t ended_ns = 0;
  uint64_t hits = 0;  // of this version
  uint64_t base_messages = 0, base_packets = 0, base_tx_bytes = 0, base_rx_bytes = 0;
};

// False while the rule is being written.
bool LoadRule(const FaultRule& rule, RuleView* view);

// True when the rule waits for a count of messages, bytes or packets.
inline bool HasTrafficTrigger(const FaultSpec& spec) {
  return spec.after > 0 && spec.after_unit != TriggerUnit::kNone &&
         spec.after_unit != TriggerUnit::kCalls;
}

// FaultRule::fired_ns of a rule that has not fired: tells its version, so that nobody who still
// looks at an earlier rule in this slot can fire it.
constexpr uint64_t NotFired(uint32_t version) { return uint64_t{1} << 63 | version; }
// Marks the rule as fired, at `now_ns`. True for the one caller who did it.
bool FireRule(FaultRule& rule, uint32_t version, uint64_t now_ns);

// When it takes effect; kNever while its count has not been reached.
uint64_t StartOf(const RuleView& view);
// When its effect ends; kNever for none. Not meaningful before its start is known.
uint64_t EndOf(const RuleView& view);
inline bool InForce(const RuleView& view, uint64_t now_ns) {
  const uint64_t start = StartOf(view);
  return start != kNever && now_ns >= start && now_ns < EndOf(view);
}

// The most hits that a rule may have; kNever for no limit.
uint64_t HitLimit(const FaultSpec& spec);
inline uint64_t HitsLeft(const RuleView& view) {
  const uint64_t limit = HitLimit(view.spec);
  return limit == kNever ? kNever : (view.hits >= limit ? 0 : limit - view.hits);
}
// Takes `want` hits of the rule as `view` saw it; false (nothing taken) when fewer are left or it
// has changed.
bool ClaimHits(FaultRule& rule, const RuleView& view, uint64_t want);
void UnclaimHits(FaultRule& rule, uint32_t version, uint64_t count);

// The step number view.phase of an action. False when there is none (more). Fills all but saved.
bool StepOf(const RuleView& view, FaultAction* action);
// True when packets must not pass because a fall of the port is due and not carried out yet.
bool FallIsDue(const RuleView& view, uint64_t now_ns);

// All rules that hold something.
inline uint64_t UsedRules(const FaultTable& table) {
  return table.packet_rules.load(std::memory_order_acquire) |
         table.verb_rules.load(std::memory_order_acquire) |
         table.event_rules.load(std::memory_order_acquire) |
         table.action_rules.load(std::memory_order_acquire);
}

// A well-mixed function of its argument.
constexpr uint64_t Mix64(uint64_t x) { return SplitMix64(&x); }
// True for a share of rate_ppb of all draws.
constexpr bool DrawHits(uint64_t draw, uint32_t rate_ppb) {
  return rate_ppb >= kPpb || draw < rate_ppb * (UINT64_MAX / kPpb);
}

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_FAULT_RULE_H_
