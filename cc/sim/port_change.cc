#include "cc/sim/port_change.h"

#include <algorithm>
#include <cstring>

namespace railhop::sim {
namespace {

using rdma::AsyncEvent;
using rdma::FaultKind;
using rdma::TopologyGid;

// A GID table entry in three of a rule's saved words.
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

void Write(Port* port, uint32_t index, const TopologyGid& entry) {
  if (port->now.gids.size() <= index) port->now.gids.resize(index + 1);
  port->now.gids[index] = entry;
  port->hidden_gids &= ~(1u << index);
}

bool SetLink(Port* port, bool up, uint64_t now_ns) {
  const auto state = up ? rdma::PortLinkState::kActive : rdma::PortLinkState::kDown;
  if (port->link == state) return false;
  port->link = state;
  if (!up && port->first_down_ns == 0) port->first_down_ns = now_ns;
  return true;
}

// Stores a number, or at the undo what was there before.
template <typename T>
void Set(T* field, uint64_t value, rdma::FaultAction* action) {
  if (action->undo) {
    *field = static_cast<T>(action->saved[0]);
  } else {
    action->saved[0] = *field;
    *field = static_cast<T>(value);
  }
}

bool SetGid(Port* port, const TopologyGid& entry, rdma::FaultAction* action) {
  const uint32_t index = action->spec.index;
  if (index >= static_cast<uint32_t>(rdma::kTopologyMaxGids)) return false;
  if (action->undo) {
    Write(port, index, Saved(action->saved));
  } else {
    Save(port->GidAt(index), action->saved);
    Write(port, index, entry);
  }
  return true;
}

bool MoveGid(Port* port, rdma::FaultAction* action) {
  const uint32_t from = action->undo ? action->spec.index2 : action->spec.index;
  const uint32_t to = action->undo ? action->spec.index : action->spec.index2;
  if (std::max(from, to) >= static_cast<uint32_t>(rdma::kTopologyMaxGids) || from == to) {
    return false;
  }
  const TopologyGid moved = port->GidAt(from);
  if (rdma::IsEmpty(moved.gid)) return false;
  const TopologyGid replaced = port->GidAt(to);
  Write(port, to, moved);
  Write(port, from, action->undo ? Saved(action->saved) : TopologyGid{});
  if (!action->undo) Save(replaced, action->saved);
  return true;
}

void HideRoutable(Port* port, rdma::FaultAction* action) {
  if (action->undo) {
    port->hidden_gids &= ~static_cast<uint32_t>(action->saved[0]);
    return;
  }
  uint32_t hidden = 0;
  for (uint32_t i = 0; i < port->now.gids.size(); ++i) {
    const TopologyGid entry = port->GidAt(i);
    if (!rdma::IsEmpty(entry.gid) && !rdma::IsLinkLocal(entry.gid)) hidden |= 1u << i;
  }
  port->hidden_gids |= hidden;
  action->saved[0] = hidden;
}

void SetQuirk(Nic* nic, rdma::FaultAction* action) {
  const uint64_t mask = action->spec.value;
  const uint64_t before = nic->quirks();
  const uint64_t wanted = action->undo ? action->saved[0] : (action->spec.value2 == 0 ? mask : 0);
  nic->set_quirks((before & ~mask) | (wanted & mask));
  if (!action->undo) action->saved[0] = before;
}

void SetMtu(Port* port, rdma::FaultAction* action) {
  uint32_t code = 1;
  while (code < 5 && rdma::MtuBytes(code) < action->spec.value) ++code;
  Set(&port->now.active_mtu, code, action);
}

}  // namespace

std::optional<AsyncEvent> EventOfChange(FaultKind kind) {
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
    default:
      return std::nullopt;  // a removed device's contexts tell their readers themselves
  }
}

std::optional<AsyncEvent> ChangePort(Shared* shared, Port* port, rdma::FaultAction* action) {
  const rdma::FaultSpec& spec = action->spec;
  bool changed = true;
  switch (spec.kind) {
    case FaultKind::kDown:
    case FaultKind::kUp:
      changed = SetLink(port, spec.kind == FaultKind::kUp, shared->loop.now_ns());
      break;
    case FaultKind::kSpeed:
      Set(&port->now.speed_gbps, std::max<uint64_t>(1, spec.value / 1'000'000'000), action);
      break;
    case FaultKind::kMtu:
      SetMtu(port, action);
      break;
    case FaultKind::kLid:
      Set(&port->now.lid, spec.value, action);
      break;
    case FaultKind::kSmLid:
      Set(&port->now.sm_lid, spec.value, action);
      break;
    case FaultKind::kPkey:
      if (spec.index >= static_cast<uint32_t>(rdma::kTopologyMaxPkeys)) return std::nullopt;
      if (port->now.pkeys.size() <= spec.index) port->now.pkeys.resize(spec.index + 1);
      Set(&port->now.pkeys[spec.index], spec.value, action);
      break;
    case FaultKind::kGidSet:
      changed = SetGid(port, {spec.gid, static_cast<rdma::GidType>(spec.index2)}, action);
      break;
    case FaultKind::kGidRemove:
      changed = SetGid(port, {}, action);
      break;
    case FaultKind::kGidMove:
      changed = MoveGid(port, action);
      break;
    case FaultKind::kGidLinkLocal:
      HideRoutable(port, action);
      break;
    case FaultKind::kEvent:
      return static_cast<AsyncEvent>(spec.index);
    case FaultKind::kRemove:
    case FaultKind::kReturn:
      if (port->nic->removed() != (spec.kind == FaultKind::kRemove)) {
        port->nic->SetRemoved(spec.kind == FaultKind::kRemove);
      }
      break;
    case FaultKind::kQuirk:
      SetQuirk(port->nic, action);
      break;
    default:
      return std::nullopt;
  }
  ++shared->address_generation;
  return changed ? EventOfChange(spec.kind) : std::nullopt;
}

}  // namespace railhop::sim
