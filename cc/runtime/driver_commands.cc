// What people ask of the driver: ports out of service and back, connections moved, times changed.
//
// A command is checked whole before anything is done: after a refusal nothing has changed.

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/runtime/driver.h"

namespace railhop::runtime {

using engine::Cause;
using engine::EndId;
using engine::LaneIds;
using engine::PortEvent;

namespace {

bool IsOn(const Link& link, const std::set<int>& ports) {
  return std::any_of(link.lanes.begin(), link.lanes.end(), [&ports](const auto& entry) {
    return ports.contains(entry.second.path.local) &&
           entry.second.state <= LinkLane::State::kRetiring;
  });
}

LaneIds LanesOn(const Link& link, const std::set<int>& ports) {
  LaneIds lanes;
  for (const auto& [id, lane] : link.lanes) {
    if (lane.state < LinkLane::State::kSuspect && ports.contains(lane.path.local)) {
      engine::AddLane(&lanes, id);
    }
  }
  return lanes;
}

}  // namespace

absl::Status Driver::WouldStrand(const Link& link, const std::set<int>& ports) const {
  engine::RouteWish wish = WishOf(link, ports);
  if (!link.is_sender()) {
    // The other end chooses, and proves what it chooses: this one has probed only what it uses.
    for (engine::PathFacts& facts : wish.paths) {
      const auto port = ports_.find(facts.path.local);
      const Peer& peer = peers_.at(link.info.peer);
      const auto remote = peer.ports.find(facts.path.remote);
      const auto health = peer.paths.find(facts.path);
      const bool untried =
          health == peer.paths.end() || health->second.state() == engine::PathState::kUnknown;
      facts.good =
          facts.good ||
          (untried && !ports.contains(facts.path.local) && port != ports_.end() &&
           port->second.health.MayEnter() && parts_.ports->active(facts.path.local) &&
           remote != peer.ports.end() && remote->second.state == engine::PortState::kActive &&
           parts_.cover->Covers(link.info.comm, facts.path.local));
    }
  }
  if (!engine::ChooseRoute(wish).empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      PortNames(ports), ports.size() == 1 ? " is" : " are", " the last path of the connection ",
      link.info.label, ": not taken out of service; mend or release another port first"));
}

std::string Driver::PortNames(const std::set<int>& ports) const {
  std::string names;
  for (const int physical : ports) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", PortName(physical));
  }
  return names;
}

std::set<int> Driver::Commandeered() const {
  std::set<int> taken;
  for (const auto& [physical, port] : ports_) {
    if (port.health.command() != engine::PortState::kActive) taken.insert(physical);
  }
  return taken;
}

std::string Driver::HeldText(const std::set<int>& held) const {
  if (held.empty()) return "";
  return absl::StrCat(PortNames(held), held.size() == 1 ? " is" : " are",
                      " held by command: release ", held.size() == 1 ? "it" : "them");
}

bool Driver::LeavesNone(const Link& link, const std::set<int>& ports) const {
  const std::set<int> taken = Commandeered();
  const bool takes = !std::includes(taken.begin(), taken.end(), ports.begin(), ports.end());
  const bool is_ethernet = link.info.parts[0]->is_ethernet;
  return takes && std::none_of(ports_.begin(), ports_.end(),
                               [&](const auto& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                                 const auto& [physical, port] = entry;
                                 return port.device->is_ethernet == is_ethernet &&
                                        Renewed(physical) == physical &&
                                        !taken.contains(physical) && !ports.contains(physical);
                               });
}

absl::Status Driver::CheckPorts(const std::vector<int>& ports) const {
  for (const int physical : ports) {
    if (!ports_.contains(physical)) {
      return absl::NotFoundError(absl::StrCat("there is no port ", physical));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Link*> Driver::SenderOf(engine::ConnectionId id) {
  Link* const link = FindLink({.connection = id, .end = engine::End::kSender});
  if (link != nullptr && !link->over) return link;
  const Link* const other = FindLink({.connection = id, .end = engine::End::kReceiver});
  if (link == nullptr && other != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the sending end chooses where a connection goes: ask its process, on ",
                     other->info.peer_host));
  }
  if (link == nullptr) return absl::NotFoundError("there is no such connection");
  return absl::FailedPreconditionError("the connection has been given up");
}

void Driver::Commanded(int physical, EndId end, Cause cause, const char* what) {
  parts_.journal->Append({.time_ns = now_,
                          .kind = JournalEntry::Kind::kCommand,
                          .local = physical,
                          .end = end,
                          .cause = cause,
                          .text = what});
  due_ = 0;
  parts_.wake();
}

absl::StatusOr<Driver::Touched> Driver::Leave(const Target& target, const LeaveHow& how) {
  absl::MutexLock lock(&mutex_);
  if (target.connection.has_value()) return MoveAway(*target.connection, how);
  const absl::Status known = CheckPorts(target.ports);
  if (!known.ok()) return known;
  Touched touched = {.ports = {target.ports.begin(), target.ports.end()}};
  std::vector<EndId> proved;
  std::vector<EndId> unproved;
  for (const auto& [id, link] : links_) {
    if (link->over || link->closing) continue;
    const bool is_on = IsOn(*link, touched.ports);
    const absl::Status stranded = WouldStrand(*link, touched.ports);
    // One that is on its way from a port that was taken out before may need these as well; one that
    // has no path as it is loses none, but must be able to find one once a port is mended.
    if (!stranded.ok() && (is_on || WouldStrand(*link, {}).ok())) return stranded;
    if (!stranded.ok() && LeavesNone(*link, touched.ports)) {
      return absl::FailedPreconditionError(
          absl::StrCat(PortNames(touched.ports), touched.ports.size() == 1 ? " is" : " are",
                       " the last that no command has taken out of service, and the connection ",
                       link->info.label, " has no path: release another first"));
    }
    if (is_on) {
      ++touched.connections;
      (IsProved(*link, touched.ports) ? proved : unproved).push_back(id);
    }
  }
  // A receiving end does not know whether the others work: fenced at once, a connection may have
  // none for ever, as nobody would go back to these. So it goes in order: the other end, which is
  // told, moves to what it has proved, and the old lanes carry until then.
  const bool in_order = how.at_once && !unproved.empty();
  for (const int physical : touched.ports) {
    LocalPort* const port = FindPort(physical);
    Commanded(physical, {}, how.cause, how.word);
    ApplyPort(port, port->health.Step({.kind = in_order ? PortEvent::Kind::kDrain : how.event}),
              how.cause);
    if (how.at_once && !in_order) SuspectLocal(physical, how.cause);
  }
  if (in_order) {
    for (const EndId& id : proved) {
      if (Link* const link = FindLink(id)) {
        SuspectLanes(link, LanesOn(*link, touched.ports), how.cause);
      }
    }
  }
  return touched;
}

bool Driver::IsProved(const Link& link, const std::set<int>& without) const {
  return link.is_sender() || !engine::ChooseRoute(WishOf(link, without)).empty();
}

absl::StatusOr<Driver::Touched> Driver::MoveAway(engine::ConnectionId id, const LeaveHow& how) {
  if (how.holds) {
    return absl::InvalidArgumentError("a connection cannot be held: name a port or a device");
  }
  absl::StatusOr<Link*> found = SenderOf(id);
  if (!found.ok()) return found.status();
  Link* const link = *found;
  Touched touched = {.connections = 1};
  LaneIds lanes;
  for (const auto& [lane_id, lane] : link->lanes) {
    if (lane.state > LinkLane::State::kUp) continue;
    touched.ports.insert(lane.path.local);
    engine::AddLane(&lanes, lane_id);
  }
  if (lanes.empty()) {
    return absl::FailedPreconditionError("the connection is on no port at present");
  }
  const absl::Status stranded = WouldStrand(*link, touched.ports);
  if (!stranded.ok()) return stranded;
  link->avoid = touched.ports;
  Commanded(*touched.ports.begin(), link->info.id, how.cause, how.word);
  if (how.at_once) SuspectLanes(link, lanes, how.cause);
  dirty_.insert(link->info.id);
  return touched;
}

absl::StatusOr<Driver::Touched> Driver::Drain(const Target& target) {
  return Leave(target, {.event = PortEvent::Kind::kDrain, .cause = Cause::kDrain, .word = "drain"});
}

absl::StatusOr<Driver::Touched> Driver::ForceFailover(const Target& target) {
  return Leave(target, {.event = PortEvent::Kind::kHold,
                        .cause = Cause::kCommand,
                        .word = "force failover",
                        .at_once = true});
}

absl::StatusOr<Driver::Touched> Driver::Hold(const Target& target) {
  return Leave(
      target,
      {.event = PortEvent::Kind::kDrain, .cause = Cause::kDrain, .word = "hold", .holds = true});
}

absl::StatusOr<Driver::Touched> Driver::Release(const Target& target) {
  absl::MutexLock lock(&mutex_);
  if (target.connection.has_value()) {
    return absl::InvalidArgumentError(
        "a connection is not held: fail it back, or release a port or a device");
  }
  const absl::Status known = CheckPorts(target.ports);
  if (!known.ok()) return known;
  Touched touched = {.ports = {target.ports.begin(), target.ports.end()}};
  for (const int physical : touched.ports) {
    LocalPort* const port = FindPort(physical);
    Commanded(physical, {}, Cause::kNone, "release");
    ApplyPort(port, port->health.Step({.kind = PortEvent::Kind::kRelease}), Cause::kNone);
  }
  for (const auto& [id, link] : links_) {
    const std::vector<BaseLane>& base = link->info.base;
    if (std::any_of(base.begin(), base.end(), [&touched](const BaseLane& lane) {
          return touched.ports.contains(lane.local);
        })) {
      ++touched.connections;
    }
    dirty_.insert(id);
  }
  return touched;
}

absl::StatusOr<Driver::Touched> Driver::FailBack(const Target& target) {
  absl::MutexLock lock(&mutex_);
  const absl::Status known = CheckPorts(target.ports);
  if (!known.ok()) return known;
  Touched touched = {.ports = {target.ports.begin(), target.ports.end()}};
  const bool all = target.ports.empty() && !target.connection.has_value();
  if (target.connection.has_value()) {
    absl::StatusOr<Link*> found = SenderOf(*target.connection);
    if (!found.ok()) return found.status();
    for (const BaseLane& base : (*found)->info.base) touched.ports.insert(Renewed(base.local));
  } else if (all) {
    for (const auto& [physical, port] : ports_) touched.ports.insert(physical);
  }
  const std::set<int> taken = Commandeered();
  std::set<int> held;
  std::set_intersection(taken.begin(), taken.end(), touched.ports.begin(), touched.ports.end(),
                        std::inserter(held, held.end()));
  if (!target.ports.empty() && held == touched.ports) {
    return absl::FailedPreconditionError(HeldText(held));
  }
  for (const auto& [id, link] : links_) {
    if (target.connection.has_value() && id.connection != *target.connection) continue;
    if (all || target.connection.has_value()) {
      link->avoid.clear();
    } else {
      std::erase_if(link->avoid, [&touched](int port) { return touched.ports.contains(port); });
    }
    ++touched.connections;
    dirty_.insert(id);
  }
  touched.note = HeldText(held);
  Commanded(all ? -1 : *touched.ports.begin(), {}, Cause::kFailBack, "fail back");
  for (auto& [peer_id, peer] : peers_) {
    for (auto& [path, health] : peer.paths) {
      const bool waits =
          health.state() == engine::PathState::kHeld || health.state() == engine::PathState::kDown;
      if (waits && touched.ports.contains(path.local)) {
        PathEvent(peer_id, path, engine::PathEvent::Kind::kWanted, Cause::kCommand, false);
      }
    }
  }
  return touched;
}

void Driver::SetTimes(const Times& times) {
  absl::MutexLock lock(&mutex_);
  options_.health = times.health;
  options_.give_up = times.give_up;
  tick_ns_ = TickFor(times.health.stall);
  for (auto& [peer_id, peer] : peers_) {
    for (auto& [path, health] : peer.paths) health.SetTimes(times.health);
  }
  parts_.prober->SetStall(times.health.stall);
  parts_.ports->SetInterval(times.port_poll_interval, now_);
  watch_at_ = now_;
  due_ = 0;
  parts_.wake();
}

}  // namespace railhop::runtime
