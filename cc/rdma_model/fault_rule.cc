#include "cc/rdma_model/fault_rule.h"

#include <algorithm>
#include <cstring>

namespace railhop::rdma {
namespace {

constexpr auto kAcquire = std::memory_order_acquire;
constexpr int kHitBits = 48;
constexpr uint64_t kHitMask = (uint64_t{1} << kHitBits) - 1;

uint64_t HitTag(uint32_t version) { return static_cast<uint64_t>(version & 0xffff) << kHitBits; }

uint64_t SaturatingAdd(uint64_t a, uint64_t b) { return a > kNever - b ? kNever : a + b; }

bool IsFall(FaultKind kind) { return kind == FaultKind::kDown || kind == FaultKind::kRemove; }

// The number of events and their lag when the state changes now.
void SetEvents(const FaultSpec& spec, FaultAction* action) {
  action->events = 1;
  action->event_delay_ns = 0;
  if (spec.event_mode == EventMode::kLost) action->events = 0;
  if (spec.event_mode == EventMode::kDoubled) action->events = 2;
  if (spec.event_mode == EventMode::kLate) action->event_delay_ns = spec.event_ns;
}

bool FlapStep(const RuleView& view, uint64_t start, uint64_t end, FaultAction* action) {
  const uint64_t period = std::max<uint64_t>(view.spec.value, 1);
  const uint64_t down_ns = view.spec.value2 != 0 ? view.spec.value2 : period / 2;
  const uint64_t flap = view.phase / 2;
  const bool falls = view.phase % 2 == 0;
  const uint64_t falls_at = SaturatingAdd(start, flap * period);
  if (falls && (falls_at >= end || (view.spec.count != 0 && flap >= view.spec.count))) return false;
  action->due_ns = falls ? falls_at : std::min(SaturatingAdd(falls_at, down_ns), end);
  action->spec.kind = falls ? FaultKind::kDown : FaultKind::kUp;
  action->undo = !falls;
  SetEvents(view.spec, action);
  return true;
}

FaultKind UndoKind(FaultKind kind) {
  switch (kind) {
    case FaultKind::kDown:
      return FaultKind::kUp;
    case FaultKind::kUp:
      return FaultKind::kDown;
    case FaultKind::kRemove:
      return FaultKind::kReturn;
    default:
      return kind;
  }
}

}  // namespace

bool LoadRule(const FaultRule& rule, RuleView* view) {
  const uint32_t version = rule.version.load(kAcquire);
  if (version % 2 != 0) return false;
  uint64_t words[kFaultSpecWords];
  for (int i = 0; i < kFaultSpecWords; ++i) words[i] = rule.spec[i].load(kAcquire);
  view->version = version;
  view->phase = rule.phase.load(kAcquire);
  view->start_ns = rule.start_ns.load(kAcquire);
  view->fired_ns = rule.fired_ns.load(kAcquire);
  if (view->fired_ns == NotFired(version)) view->fired_ns = 0;
  view->ended_ns = rule.ended_ns.load(kAcquire);
  view->base_messages = rule.base_messages.load(kAcquire);
  view->base_packets = rule.base_packets.load(kAcquire);
  view->base_tx_bytes = rule.base_tx_bytes.load(kAcquire);
  view->base_rx_bytes = rule.base_rx_bytes.load(kAcquire);
  view->hits = rule.hits.load(kAcquire) & kHitMask;
  if (rule.version.load(kAcquire) != version) return false;
  std::memcpy(static_cast<void*>(&view->spec), words, sizeof(words));
  return true;
}

bool FireRule(FaultRule& rule, uint32_t version, uint64_t now_ns) {
  uint64_t expected = NotFired(version);
  return rule.fired_ns.compare_exchange_strong(expected, std::max<uint64_t>(now_ns, 1),
                                               std::memory_order_acq_rel);
}

uint64_t StartOf(const RuleView& view) {
  if (!HasTrafficTrigger(view.spec)) return view.start_ns;
  return view.fired_ns == 0 ? kNever : view.fired_ns;
}

uint64_t EndOf(const RuleView& view) {
  uint64_t end = kNever;
  if (view.spec.for_ns != 0) end = SaturatingAdd(StartOf(view), view.spec.for_ns);
  if (view.ended_ns != 0) end = std::min(end, view.ended_ns);
  return end;
}

uint64_t HitLimit(const FaultSpec& spec) {
  if (spec.count != 0) return spec.count;
  switch (spec.kind) {
    case FaultKind::kComplete:
    case FaultKind::kWedge:
    case FaultKind::kKill:
      return 1;
    case FaultKind::kHold:
      return spec.rate_ppb == 0 ? 1 : kNever;
    default:
      return spec.packet != 0 ? 1 : kNever;
  }
}

bool ClaimHits(FaultRule& rule, const RuleView& view, uint64_t want) {
  const uint64_t limit = std::min(HitLimit(view.spec), kHitMask);
  const uint64_t tag = HitTag(view.version);
  uint64_t seen = rule.hits.load(kAcquire);
  do {
    if ((seen & ~kHitMask) != tag || (seen & kHitMask) + want > limit) return false;
  } while (!rule.hits.compare_exchange_weak(seen, seen + want, std::memory_order_acq_rel));
  return true;
}

void UnclaimHits(FaultRule& rule, uint32_t version, uint64_t count) {
  uint64_t seen = rule.hits.load(kAcquire);
  do {
    if ((seen & ~kHitMask) != HitTag(version)) return;
  } while (!rule.hits.compare_exchange_weak(seen, seen - count, std::memory_order_acq_rel));
}

bool StepOf(const RuleView& view, FaultAction* action) {
  const uint64_t start = StartOf(view);
  if (!IsAction(view.spec.kind) || start == kNever) return false;
  const uint64_t end = EndOf(view);
  action->version = view.version;
  action->phase = view.phase;
  action->spec = view.spec;
  action->change = true;
  action->undo = false;
  if (view.spec.kind == FaultKind::kFlap) return FlapStep(view, start, end, action);

  // Steps: [the event alone, when it is early,] the change, and the undo when there is an end.
  const bool early = view.spec.event_mode == EventMode::kEarly;
  const uint32_t change_phase = early ? 1 : 0;
  if (view.phase > change_phase + 1) return false;
  if (view.phase < change_phase) {
    action->change = false;
    action->events = 1;
    action->event_delay_ns = 0;
    action->due_ns = start;
    return true;
  }
  SetEvents(view.spec, action);
  if (view.phase == change_phase) {
    if (early) action->events = 0;
    action->due_ns = early ? SaturatingAdd(start, view.spec.event_ns) : start;
    return true;
  }
  if (end == kNever) return false;
  action->undo = true;
  action->spec.kind = UndoKind(view.spec.kind);
  action->due_ns = end;
  return true;
}

bool FallIsDue(const RuleView& view, uint64_t now_ns) {
  FaultAction step;
  return StepOf(view, &step) && step.change && IsFall(step.spec.kind) && step.due_ns <= now_ns;
}

}  // namespace railhop::rdma
