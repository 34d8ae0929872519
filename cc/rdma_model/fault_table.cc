#include "cc/rdma_model/fault_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cc/rdma_model/fault_rule.h"

namespace railhop::rdma {
namespace {

constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;

uint64_t Bit(uint32_t rule) { return uint64_t{1} << rule; }

void FreeRule(FaultTable& table, uint32_t index) {
  for (auto* mask :
       {&table.packet_rules, &table.verb_rules, &table.event_rules, &table.action_rules}) {
    mask->fetch_and(~Bit(index), std::memory_order_acq_rel);
  }
  // A new version: tickets and claims of the old rule no longer match.
  FaultRule& rule = table.rules[index];
  const uint32_t version = rule.version.load(kAcquire) | 1;
  rule.version.store(version, kRelease);
  rule.version.store(version + 1, kRelease);
}

void WriteRule(FaultTable& table, uint32_t index, const FaultSpec& spec, const FaultClock& clock) {
  FaultRule& rule = table.rules[index];
  const uint32_t version = rule.version.load(kAcquire) | 1;
  rule.version.store(version, kRelease);
  uint64_t words[kFaultSpecWords];
  std::memcpy(words, &spec, sizeof(words));
  // Release stores keep behind the odd version for a reader that acquires any of them.
  for (int i = 0; i < kFaultSpecWords; ++i) rule.spec[i].store(words[i], kRelease);
  rule.phase.store(0, kRelease);
  const uint64_t at_ns = spec.at_ns == 0 ? 0 : clock.start_ns + spec.at_ns;
  rule.start_ns.store(std::max(clock.now_ns, at_ns), kRelease);
  rule.fired_ns.store(NotFired(version + 1), kRelease);
  rule.ended_ns.store(0, kRelease);
  rule.hits.store(static_cast<uint64_t>((version + 1) & 0xffff) << 48, kRelease);
  rule.base_messages.store(table.messages.load(kAcquire), kRelease);
  rule.base_packets.store(table.packets.load(kAcquire), kRelease);
  rule.base_tx_bytes.store(table.tx_bytes.load(kAcquire), kRelease);
  rule.base_rx_bytes.store(table.rx_bytes.load(kAcquire), kRelease);
  rule.calls.store(0, kRelease);
  for (auto& word : rule.saved) word.store(0, kRelease);
  rule.version.store(version + 1, kRelease);
}

// Whether Judge has to look at the rule: it is about packets, waits for traffic, or makes a port
// fall.
bool ConcernsPackets(const FaultSpec& spec) {
  return IsPacketFault(spec.kind) || (IsAction(spec.kind) && HasTrafficTrigger(spec)) ||
         spec.kind == FaultKind::kDown || spec.kind == FaultKind::kRemove ||
         spec.kind == FaultKind::kFlap;
}

void Publish(FaultTable& table, uint32_t index, const FaultSpec& spec) {
  if (spec.kind == FaultKind::kFailVerb || spec.kind == FaultKind::kHangVerb) {
    table.verb_rules.fetch_or(Bit(index), kRelease);
  }
  if (spec.kind == FaultKind::kEvents) table.event_rules.fetch_or(Bit(index), kRelease);
  if (IsAction(spec.kind)) table.action_rules.fetch_or(Bit(index), kRelease);
  if (ConcernsPackets(spec)) table.packet_rules.fetch_or(Bit(index), kRelease);
}

// Removes a rule, or, when it has changed something that has an end, makes the end now.
void EndRule(FaultTable& table, uint32_t index, uint64_t now_ns) {
  RuleView view;
  FaultAction step;
  const bool undo_waits =
      LoadRule(table.rules[index], &view) && view.phase > 0 && StepOf(view, &step) && step.undo;
  if (undo_waits) {
    table.rules[index].ended_ns.store(std::max<uint64_t>(now_ns, 1), kRelease);
  } else {
    FreeRule(table, index);
  }
}

template <typename Function>
void ForEachRule(uint64_t mask, Function function) {
  for (; mask != 0; mask &= mask - 1) function(static_cast<uint32_t>(std::countr_zero(mask)));
}

bool IsOver(const RuleView& view, uint64_t now_ns) {
  if (IsAction(view.spec.kind)) {
    FaultAction step;
    return StartOf(view) != kNever && !StepOf(view, &step);
  }
  if (HitsLeft(view) == 0) return true;
  return StartOf(view) != kNever && EndOf(view) <= now_ns;
}

// A used-up hold stays until it is released: it is what keeps the packets.
bool CanReap(const RuleView& view, uint64_t now_ns) {
  if (view.spec.kind == FaultKind::kHold) return StartOf(view) != kNever && EndOf(view) <= now_ns;
  return IsOver(view, now_ns);
}

}  // namespace

ApplyResult ApplyFault(const FaultSpec& spec, const FaultClock& clock, FaultTable& table) {
  if (spec.kind == FaultKind::kNone || spec.kind == FaultKind::kList ||
      spec.kind >= FaultKind::kCount) {
    return ApplyResult::kNotForTable;
  }
  if (spec.kind == FaultKind::kClear || spec.kind == FaultKind::kRelease) {
    const FaultKind only =
        spec.kind == FaultKind::kRelease ? FaultKind::kHold : static_cast<FaultKind>(spec.index);
    ForEachRule(UsedRules(table), [&](uint32_t index) {
      RuleView view;
      const bool whole = LoadRule(table.rules[index], &view);
      if (only == FaultKind::kNone || !whole || view.spec.kind == only)
        EndRule(table, index, clock.now_ns);
    });
    return ApplyResult::kOk;
  }
  if (UsedRules(table) == ~uint64_t{0}) ReapFaults(table, clock.now_ns);
  const uint64_t free = ~UsedRules(table);
  if (free == 0) return ApplyResult::kFull;
  const auto index = static_cast<uint32_t>(std::countr_zero(free));
  WriteRule(table, index, spec, clock);
  Publish(table, index, spec);
  return ApplyResult::kOk;
}

int ReapFaults(FaultTable& table, uint64_t now_ns) {
  int freed = 0;
  ForEachRule(UsedRules(table), [&](uint32_t index) {
    RuleView view;
    if (LoadRule(table.rules[index], &view) && !CanReap(view, now_ns)) return;
    FreeRule(table, index);
    ++freed;
  });
  return freed;
}

bool ReadFault(const FaultTable& table, uint32_t rule, uint64_t now_ns, FaultStatus* status) {
  if (rule >= kMaxFaultRules || (UsedRules(table) & Bit(rule)) == 0) return false;
  RuleView view;
  if (!LoadRule(table.rules[rule], &view)) return false;
  status->spec = view.spec;
  status->hits = IsAction(view.spec.kind) ? view.phase : view.hits;
  status->fired = StartOf(view) <= now_ns;
  status->over = IsOver(view, now_ns);
  return true;
}

bool NextAction(const FaultTable& table, uint64_t now_ns, FaultAction* action) {
  bool found = false;
  ForEachRule(table.action_rules.load(kAcquire), [&](uint32_t index) {
    RuleView view;
    FaultAction step;
    if (!LoadRule(table.rules[index], &view) || !StepOf(view, &step) || step.due_ns > now_ns)
      return;
    if (found && action->due_ns <= step.due_ns) return;
    step.rule = index;
    for (int i = 0; i < kFaultSavedWords; ++i)
      step.saved[i] = table.rules[index].saved[i].load(kAcquire);
    *action = step;
    found = true;
  });
  return found;
}

void FinishAction(FaultTable& table, const FaultAction& action) {
  if (action.rule >= kMaxFaultRules) return;
  FaultRule& rule = table.rules[action.rule];
  RuleView view;
  if (!LoadRule(rule, &view) || view.version != action.version || view.phase != action.phase)
    return;
  for (int i = 0; i < kFaultSavedWords; ++i) rule.saved[i].store(action.saved[i], kRelease);
  rule.phase.store(view.phase + 1, kRelease);
  ++view.phase;
  FaultAction next;
  if (!StepOf(view, &next)) FreeRule(table, action.rule);
}

uint64_t NextFaultDeadline(const FaultTable& table, uint64_t now_ns) {
  uint64_t deadline = kNever;
  ForEachRule(UsedRules(table), [&](uint32_t index) {
    RuleView view;
    if (!LoadRule(table.rules[index], &view)) return;
    FaultAction step;
    if (CanReap(view, now_ns)) {
      deadline = std::min(deadline, now_ns);
    } else if (IsAction(view.spec.kind)) {
      if (StepOf(view, &step)) deadline = std::min(deadline, step.due_ns);
    } else if (StartOf(view) != kNever) {
      deadline = std::min(deadline, EndOf(view));
    }
  });
  return deadline;
}

bool HoldReleased(const FaultTable& table, uint64_t ticket, uint64_t now_ns) {
  const auto index = static_cast<uint32_t>(ticket & 0xffffffff);
  if (index >= kMaxFaultRules || (table.packet_rules.load(kAcquire) & Bit(index)) == 0) return true;
  RuleView view;
  if (!LoadRule(table.rules[index], &view)) return true;
  return view.version != static_cast<uint32_t>(ticket >> 32) || EndOf(view) <= now_ns;
}

VerbVerdict JudgeVerbSlow(FaultTable& table, VerbCall call, uint32_t detail, uint64_t now_ns) {
  VerbVerdict verdict;
  ForEachRule(table.verb_rules.load(kAcquire), [&](uint32_t index) {
    FaultRule& rule = table.rules[index];
    RuleView view;
    if (verdict.error != 0 || !LoadRule(rule, &view) || !InForce(view, now_ns)) return;
    const FaultSpec& spec = view.spec;
    if (spec.index != 0 && spec.index != static_cast<uint32_t>(call)) return;
    if (spec.index2 != 0 && spec.index2 != detail) return;
    const uint64_t earlier_calls = rule.calls.fetch_add(1, std::memory_order_acq_rel);
    if (earlier_calls < spec.after) return;
    if (spec.rate_ppb != 0 && !DrawHits(Mix64(Mix64(spec.seed) ^ earlier_calls), spec.rate_ppb))
      return;
    if (!ClaimHits(rule, view, 1)) return;
    verdict.rule = index;
    if (spec.kind == FaultKind::kFailVerb) verdict.error = static_cast<int>(spec.value);
    if (spec.kind == FaultKind::kHangVerb) verdict.hang_ns = std::max(verdict.hang_ns, spec.value);
  });
  return verdict;
}

EventPlan PlanEvent(FaultTable& table, AsyncEvent event, uint64_t now_ns) {
  EventPlan plan;
  ForEachRule(table.event_rules.load(kAcquire), [&](uint32_t index) {
    FaultRule& rule = table.rules[index];
    RuleView view;
    if (plan.copies == 0 || !LoadRule(rule, &view) || !InForce(view, now_ns)) return;
    if (view.spec.index != 0 && view.spec.index != static_cast<uint32_t>(event) + 1) return;
    if (!ClaimHits(rule, view, 1)) return;
    switch (view.spec.event_mode) {
      case EventMode::kLost:
        plan.copies = 0;
        break;
      case EventMode::kLate:
        plan.delay_ns = std::max(plan.delay_ns, view.spec.event_ns);
        break;
      case EventMode::kDoubled:
        plan.copies = 2;
        break;
      case EventMode::kNormal:
      case EventMode::kEarly:
        break;
    }
  });
  return plan;
}

}  // namespace railhop::rdma
