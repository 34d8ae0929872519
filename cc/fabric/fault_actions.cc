#include "cc/fabric/fault_actions.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "cc/rdma_model/fault_table.h"

namespace railhop::fabric {
namespace {

using rdma::AsyncEvent;
using rdma::FaultAction;
using rdma::FaultKind;
using rdma::LogKind;
using rdma::TopologyGid;

// A GID table entry in two or three of a rule's saved words.
void Save(const TopologyGid& entry, uint64_t* saved) {
  std::memcpy(saved, entry.gid.raw, 2 * sizeof(uint64_t));
  saved[2] = static_cast<uint64_t>(entry.type);
}
TopologyGid Saved(const uint64_t* saved) {
  TopologyGid entry;
  std::memcpy(entry.gid.raw, saved, 2 * sizeof(uint64_t));
  entry.type = static_cast<rdma::GidType>(saved[2]);
  return entry;
}

// One step on one port. What a method returns is the event that belongs to the change, or nothing
// when there was no change.
class Step {
 public:
  Step(DirectoryHandle& directory, PortRef ref, FaultAction& action)
      : directory_(directory), ref_(ref), port_(directory.port(ref)), action_(action) {}

  void Run() {
    // A context that finds its device gone must find the event that says so.
    if (action_.change && action_.spec.kind == FaultKind::kRemove) {
      if (device().removed.load(std::memory_order_acquire) == 0) Send(AsyncEvent::kDeviceFatal);
      SetRemoved(true);
      return;
    }
    const std::optional<AsyncEvent> event = action_.change ? Change() : EventOf(action_.spec.kind);
    if (event) Send(*event);
  }

 private:
  std::optional<AsyncEvent> Change();

  DeviceEntry& device() { return directory_.device(ref_.device); }

  void Log(LogKind kind, uint64_t arg) {
    directory_.Log({.device = ref_.device,
                    .port = ref_.port,
                    .kind = static_cast<uint32_t>(kind),
                    .arg = arg});
  }

  static std::optional<AsyncEvent> EventOf(FaultKind kind) {
    switch (kind) {
      case FaultKind::kDown:
        return AsyncEvent::kPortErr;
      case FaultKind::kUp:
        return AsyncEvent::kPortActive;
      case FaultKind::kLid:
        return AsyncEvent::kLidChange;
      case FaultKind::kSmLid:
        return AsyncEvent::kSmChange;
      case FaultKind::kPkey:
        return AsyncEvent::kPkeyChange;
      case FaultKind::kGidSet:
      case FaultKind::kGidRemove:
      case FaultKind::kGidMove:
      case FaultKind::kGidLinkLocal:
        return AsyncEvent::kGidChange;
      case FaultKind::kRemove:
        return AsyncEvent::kDeviceFatal;
      default:
        return std::nullopt;
    }
  }

  std::optional<AsyncEvent> SetLink(bool up) {
    const auto state =
        static_cast<uint32_t>(up ? rdma::PortLinkState::kActive : rdma::PortLinkState::kDown);
    const uint32_t before = port_.link_state.exchange(state, std::memory_order_acq_rel);
    port_.phys_state.store(PhysState(port_.link_layer, up), std::memory_order_release);
    if (before == state) return std::nullopt;
    if (!up) port_.link_downed.fetch_add(1, std::memory_order_relaxed);
    Log(LogKind::kPortState, state);
    return EventOf(action_.spec.kind);
  }

  // Stores `value`, or at the undo what was there before.
  std::optional<AsyncEvent> Set(std::atomic<uint32_t>* field, uint64_t value) {
    if (action_.undo) {
      field->store(static_cast<uint32_t>(action_.saved[0]), std::memory_order_release);
    } else {
      action_.saved[0] = field->exchange(static_cast<uint32_t>(value), std::memory_order_acq_rel);
    }
    directory_.dir().gid_generation.fetch_add(1, std::memory_order_acq_rel);
    Log(LogKind::kAddress, static_cast<uint64_t>(action_.spec.kind));
    return EventOf(action_.spec.kind);
  }

  void SetRate() {
    Set(&port_.rate_mbps, action_.spec.value / 1'000'000);
    const rdma::WidthSpeed link =
        rdma::WidthSpeedOf(port_.rate_mbps.load(std::memory_order_acquire) / 1000);
    port_.active_width.store(link.width, std::memory_order_release);
    port_.active_speed.store(link.speed, std::memory_order_release);
  }

  void SetMtu() {
    uint32_t code = 1;
    while (code < 5 && rdma::MtuBytes(code) < action_.spec.value) ++code;
    Set(&port_.active_mtu, code);
  }

  // Reads an entry whether hidden or not, and makes it visible when it is written.
  TopologyGid Entry(uint32_t index) { return DirectoryHandle::ReadGid(port_, index); }
  void Write(uint32_t index, const TopologyGid& entry) {
    DirectoryHandle::WriteGid(port_, index, entry);
    port_.hidden_gids.fetch_and(~(1u << index), std::memory_order_acq_rel);
  }

  std::optional<AsyncEvent> AddressesChanged() {
    directory_.dir().gid_generation.fetch_add(1, std::memory_order_acq_rel);
    Log(LogKind::kAddress, static_cast<uint64_t>(action_.spec.kind));
    return AsyncEvent::kGidChange;
  }

  std::optional<AsyncEvent> SetGid(const TopologyGid& entry) {
    const uint32_t index = action_.spec.index;
    if (index >= static_cast<uint32_t>(kMaxGids)) return std::nullopt;
    if (action_.undo) {
      Write(index, Saved(action_.saved));
    } else {
      Save(Entry(index), action_.saved);
      Write(index, entry);
    }
    return AddressesChanged();
  }

  std::optional<AsyncEvent> MoveGid() {
    const uint32_t from = action_.undo ? action_.spec.index2 : action_.spec.index;
    const uint32_t to = action_.undo ? action_.spec.index : action_.spec.index2;
    if (std::max(from, to) >= static_cast<uint32_t>(kMaxGids) || from == to) return std::nullopt;
    const TopologyGid moved = Entry(from);
    if (rdma::IsEmpty(moved.gid)) return std::nullopt;  // done before, or nothing there
    const TopologyGid replaced = Entry(to);
    Write(to, moved);
    Write(from, action_.undo ? Saved(action_.saved) : TopologyGid{});
    if (!action_.undo) Save(replaced, action_.saved);
    return AddressesChanged();
  }

  std::optional<AsyncEvent> HideRoutable() {
    if (action_.undo) {
      port_.hidden_gids.fetch_and(~static_cast<uint32_t>(action_.saved[0]),
                                  std::memory_order_acq_rel);
      return AddressesChanged();
    }
    uint32_t hidden = 0;
    for (uint32_t i = 0; i < static_cast<uint32_t>(kMaxGids); ++i) {
      const TopologyGid entry = Entry(i);
      if (!rdma::IsEmpty(entry.gid) && !rdma::IsLinkLocal(entry.gid)) hidden |= 1u << i;
    }
    port_.hidden_gids.fetch_or(hidden, std::memory_order_acq_rel);
    action_.saved[0] = hidden;
    return AddressesChanged();
  }

  void SetRemoved(bool removed) {
    DeviceEntry& entry = device();
    if (entry.removed.load(std::memory_order_acquire) == (removed ? 1u : 0u)) return;
    const uint32_t generation = entry.generation.fetch_add(1, std::memory_order_acq_rel) + 1;
    entry.removed.store(removed ? 1 : 0, std::memory_order_release);
    directory_.dir().gid_generation.fetch_add(1, std::memory_order_acq_rel);
    Log(removed ? LogKind::kDeviceRemoved : LogKind::kDeviceReturned, generation);
  }

  void SetQuirk() {
    const uint64_t mask = action_.spec.value;
    const uint64_t before = device().quirks.load(std::memory_order_acquire);
    const uint64_t wanted = action_.undo ? action_.saved[0] : (action_.spec.value2 == 0 ? mask : 0);
    device().quirks.store((before & ~mask) | (wanted & mask), std::memory_order_release);
    if (!action_.undo) action_.saved[0] = before;
    Log(LogKind::kQuirk, device().quirks.load(std::memory_order_acquire));
  }

  void Send(AsyncEvent event) {
    const uint64_t now = MonotonicNs();
    const rdma::EventPlan plan = rdma::PlanEvent(port_.faults, event, now);
    const int copies = action_.events * plan.copies;
    const bool of_qp = action_.spec.kind == FaultKind::kEvent && action_.spec.of_qp != 0;
    const PortRef to{ref_.device, event == AsyncEvent::kDeviceFatal ? 0 : ref_.port};
    for (int i = 0; i < copies; ++i) {
      directory_.PushPortEvent(to, event, now + action_.event_delay_ns + plan.delay_ns,
                               of_qp ? action_.spec.qp + 1 : 0);
    }
    Log(copies == 0 ? LogKind::kEventLost : LogKind::kEvent, static_cast<uint64_t>(event));
  }

  DirectoryHandle& directory_;
  const PortRef ref_;
  PortEntry& port_;
  FaultAction& action_;
};

std::optional<AsyncEvent> Step::Change() {
  const rdma::FaultSpec& spec = action_.spec;
  switch (spec.kind) {
    case FaultKind::kDown:
      return SetLink(false);
    case FaultKind::kUp:
      return SetLink(true);
    case FaultKind::kSpeed:
      SetRate();
      return std::nullopt;
    case FaultKind::kMtu:
      SetMtu();
      return std::nullopt;
    case FaultKind::kLid:
      return Set(&port_.lid, spec.value);
    case FaultKind::kSmLid:
      return Set(&port_.sm_lid, spec.value);
    case FaultKind::kPkey:
      if (spec.index >= static_cast<uint32_t>(kMaxPkeys)) return std::nullopt;
      return Set(&port_.pkeys[spec.index], spec.value);
    case FaultKind::kGidSet:
      return SetGid({spec.gid, static_cast<rdma::GidType>(spec.index2)});
    case FaultKind::kGidRemove:
      return SetGid({});
    case FaultKind::kGidMove:
      return MoveGid();
    case FaultKind::kGidLinkLocal:
      return HideRoutable();
    case FaultKind::kEvent:
      return static_cast<AsyncEvent>(spec.index);
    case FaultKind::kReturn:
      SetRemoved(false);
      return std::nullopt;
    case FaultKind::kQuirk:
      SetQuirk();
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// Caller holds the control lock. Whether anything was done.
bool RunDue(DirectoryHandle& directory, PortRef ref) {
  rdma::FaultTable& table = directory.port(ref).faults;
  FaultAction action;
  bool any = false;
  // A flap that was overslept catches up one step at a time; so many at once would be a mistake.
  for (int steps = 0; steps < 10000 && rdma::NextAction(table, MonotonicNs(), &action); ++steps) {
    Step(directory, ref, action).Run();
    rdma::FinishAction(table, action);
    any = true;
  }
  return rdma::ReapFaults(table, MonotonicNs()) > 0 || any;
}

}  // namespace

void RunFaultActions(DirectoryHandle& directory, PortRef port) {
  bool any = false;
  {
    SharedLock lock(directory.dir().control_lock);
    any = RunDue(directory, port);
  }
  if (any) directory.NotifyChange();
}

uint64_t RunAllFaultActions(DirectoryHandle& directory) {
  uint64_t next = UINT64_MAX;
  bool any = false;
  {
    SharedLock lock(directory.dir().control_lock);
    for (uint32_t d = 0; d < directory.dir().device_count; ++d) {
      for (uint32_t p = 1; p <= directory.device(d).port_count; ++p) {
        const PortRef ref{d, p};
        const rdma::FaultTable& table = directory.port(ref).faults;
        if (rdma::NextFaultDeadline(table, MonotonicNs()) <= MonotonicNs()) {
          any = RunDue(directory, ref) || any;
        }
        next = std::min(next, rdma::NextFaultDeadline(table, MonotonicNs()));
      }
    }
  }
  if (any) directory.NotifyChange();
  return next;
}

}  // namespace railhop::fabric
