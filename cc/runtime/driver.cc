#include "cc/runtime/driver.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "cc/base/log.h"
#include "cc/runtime/fault_report.h"

namespace railhop::runtime {

using engine::Cause;
using engine::EndId;
using engine::InstanceId;
using engine::LaneId;
using engine::LaneIds;
using engine::PathId;
using engine::PortState;

namespace {

// What was said so long before a session is found to be lost has arrived: heartbeats tell sooner.
constexpr int64_t kHeardNs = 60'000'000'000;
constexpr size_t kFarewellsMax = 4096;
// A session that was lost is there again long before, if there is a way.
constexpr int64_t kLeavingNs = 60'000'000'000;

}  // namespace

Driver::Driver(const Parts& parts, const DriverOptions& options)
    : parts_(parts),
      options_(options),
      tick_ns_(TickFor(options.health.stall)),
      prng_(options.seed) {}

Driver::~Driver() = default;

// ---- Any thread.

void Driver::Add(LinkInfo info) {
  absl::MutexLock lock(&mutex_);
  const EndId id = info.id;
  const InstanceId peer_id = info.peer;
  auto link = std::make_shared<Link>(std::move(info));
  for (size_t slot = 0; slot < link->info.parts.size(); ++slot) {
    link->slots[link->info.parts[slot]->id] = static_cast<uint8_t>(slot);
  }
  for (size_t i = 0; i < link->info.base.size(); ++i) {
    const BaseLane& base = link->info.base[i];
    LinkLane lane;
    lane.path = {.local = base.local, .remote = -1};
    lane.path_known = false;
    lane.slot = base.slot;
    lane.remote_slot = base.remote_slot;
    lane.base = static_cast<int>(i);
    // progress_at counts from the first look: this clock may stand since long ago.
    link->lanes[{.index = static_cast<uint8_t>(i), .epoch = 1}] = lane;
    link->route.push_back(static_cast<uint8_t>(i));
    // What the handshake has made room for.
    link->slot_lanes[base.slot] =
        parts_.maker->LanesMax(static_cast<uint32_t>(link->info.base.size()));
  }
  // A lane that goes back to its own port finds the place of the one that was fenced; one more may
  // be there while it is handed over.
  link->next_place = static_cast<uint8_t>(link->info.base.size());
  Peer& peer = peers_[peer_id];
  if (peer.host.empty()) peer.host = link->info.peer_host;
  peer.links.insert(id);
  // What it said before it made this connection is of the past.
  peer.dead_since = 0;
  peer.goodbye = false;
  parts_.channel->Add(peer_id, id.connection, link->info.secret, link->info.addresses);
  EndLeaving(peer_id);
  links_[id] = link;
  dirty_.insert(id);
  due_ = 0;
  parts_.wake();
}

// What has arrived goes with it: there is no RECORD after it.
engine::Over Driver::OverOf(const Link& link, bool failed, const std::string& reason) const {
  return {.to = PeerEnd(link),
          .failed = failed,
          .reason = reason,
          .complete_below = link.is_sender() ? 0 : link.info.recv->Record().complete_below};
}

// That this end is closed; again after the session is lost, since it may have been lost with it.
void Driver::SayOver(const Link& link) {
  const bool failed = !link.reason.empty();
  const engine::Over over = OverOf(link, failed, failed ? link.reason : kClosed);
  if (farewells_.size() >= kFarewellsMax && !farewells_.contains(over.to)) {
    farewells_.erase(std::min_element(
        farewells_.begin(), farewells_.end(),
        [](const auto& x, const auto& y) { return x.second.said_at < y.second.said_at; }));
  }
  farewells_[over.to] = {.peer = link.info.peer, .over = over, .said_at = now_};
  Send(link, over);
}

void Driver::SayFarewells(InstanceId peer) {
  for (auto& [end, farewell] : farewells_) {
    if (farewell.peer != peer) continue;
    farewell.said_at = now_;
    parts_.channel->Send(peer, farewell.over);
  }
}

// Without a session nobody has heard of it: the other end would take this process for dead.
void Driver::Leave(InstanceId peer, engine::ConnectionId last) {
  const Peer& state = peers_[peer];
  const bool heard =
      state.up || state.dead_since != 0 ||
      std::none_of(farewells_.begin(), farewells_.end(),
                   [peer](const auto& farewell) { return farewell.second.peer == peer; });
  if (heard) return parts_.channel->Remove(peer, last);
  leaving_[peer] = {.last = last, .until = now_ + kLeavingNs};
}

void Driver::EndLeaving(InstanceId peer) {
  const auto found = leaving_.find(peer);
  if (found == leaving_.end()) return;
  parts_.channel->Remove(peer, found->second.last);
  leaving_.erase(found);
}

void Driver::TakeLeaving(const control::ChannelEvent& event) {
  if (!leaving_.contains(event.peer)) return;
  if (event.kind == control::ChannelEvent::Kind::kUp) SayFarewells(event.peer);
  if (event.kind == control::ChannelEvent::Kind::kUp ||
      event.kind == control::ChannelEvent::Kind::kDead) {
    EndLeaving(event.peer);
  }
}

void Driver::WatchLeaving() {
  std::vector<InstanceId> late;
  for (const auto& [peer, leaving] : leaving_) {
    if (leaving.until <= now_) {
      late.push_back(peer);
    } else {
      Schedule(leaving.until);
    }
  }
  for (const InstanceId peer : late) EndLeaving(peer);
}

bool Driver::Remove(EndId id) {
  absl::MutexLock lock(&mutex_);
  const auto found = links_.find(id);
  if (found == links_.end()) return true;
  const std::shared_ptr<Link> link = found->second;
  if (!link->closing) {
    link->closing = true;
    link->over = true;
    LeaveEpisode(link.get(), false);
    if (!link->peer_over) SayOver(*link);
    dirty_.erase(id);
    draining_.erase(id);
    std::erase_if(fences_, [&id](const auto& fence) { return fence.first == id; });
    failed_changed_ = true;
  }
  if (link->jobs > 0) {
    parts_.wake();
    return false;
  }
  links_.erase(found);
  const auto peer = peers_.find(link->info.peer);
  if (peer != peers_.end()) {
    peer->second.links.erase(id);
    if (peer->second.links.empty()) {
      Leave(link->info.peer, id.connection);
      if (gone_.size() >= kGonePeers) gone_.erase(gone_.begin());
      gone_[link->info.peer] = ViewOf(peer->second);
      parts_.prober->Forget(link->info.peer);
      peers_.erase(peer);
    } else {
      parts_.channel->Remove(link->info.peer, id.connection);
    }
  }
  parts_.wake();
  return true;
}

void Driver::Notify(EndId id) {
  {
    absl::MutexLock lock(&inbox_mutex_);
    notified_.push_back(id);
  }
  parts_.wake();
}

void Driver::Take(const AsyncEvent& event) {
  {
    absl::MutexLock lock(&inbox_mutex_);
    async_events_.push_back(event);
  }
  parts_.wake();
}

// ---- Reports.

Driver::Summary Driver::Summarize() const {
  absl::MutexLock lock(&mutex_);
  Summary summary;
  summary.links = static_cast<int>(links_.size());
  summary.peers = static_cast<int>(peers_.size());
  for (const auto& [id, link] : links_) {
    if (link->hindered_since != 0) ++summary.hindered;
    for (const auto& [lane_id, lane] : link->lanes) {
      if (lane.state > LinkLane::State::kRetiring) continue;
      ++summary.lanes;
      if (lane.path.local != link->info.base[static_cast<size_t>(lane.base)].local) {
        ++summary.backup_lanes;
      }
    }
  }
  for (const auto& [id, episode] : episodes_) {
    if (!episode.open.empty()) ++summary.open_episodes;
  }
  for (const auto& [id, peer] : peers_) {
    summary.paths += static_cast<int>(peer.paths.size());
    for (const auto& [path, health] : peer.paths) {
      if (health.MayEnter()) ++summary.good_paths;
    }
  }
  return summary;
}

// ---- The driver's thread.

void Driver::Step(int64_t now_ns) {
  absl::MutexLock lock(&mutex_);
  now_ = std::max(now_, now_ns);
  due_ = std::numeric_limits<int64_t>::max();
  SyncPorts();
  TakeInbox();
  TakePortNews();
  TakeChannel();
  for (Executor::Job& done : parts_.executor->TakeDone()) {
    if (done) done();
  }
  TakeProbes();
  TakeCover();
  Watch();
  WatchLeaving();
  CountLoad();
  while (!dirty_.empty()) {
    const EndId id = *dirty_.begin();
    dirty_.erase(dirty_.begin());
    const auto found = links_.find(id);
    if (found != links_.end()) Reconcile(std::shared_ptr<Link>(found->second));
  }
  RunFences();
  EndFailed();
  TellEpisodes();
  SendProbes();
  // What this step has sent goes out now; what has come in by then waits for the next step.
  if (TakeChannel() > 0 || !dirty_.empty()) Schedule(now_);
  Schedule(watch_at_);
  Schedule(parts_.channel->next_due());
  Schedule(parts_.prober->next_due());
  Schedule(parts_.cover->next_due());
  Schedule(parts_.ports->next_due());
}

int64_t Driver::next_due() const {
  absl::MutexLock lock(&mutex_);
  return due_;
}

void Driver::Schedule(int64_t when_ns) { due_ = std::min(due_, when_ns); }

Driver::LocalPort* Driver::FindPort(int physical) {
  const auto found = ports_.find(physical);
  return found == ports_.end() ? nullptr : &found->second;
}

std::string Driver::PortName(int physical) const {
  const auto found = ports_.find(physical);
  if (found == ports_.end()) return absl::StrCat("port ", physical);
  return absl::StrCat(found->second.device->name, ":", found->second.device->port);
}

Link* Driver::FindLink(const EndId& id) {
  const auto found = links_.find(id);
  return found == links_.end() || found->second->closing ? nullptr : found->second.get();
}

EndId Driver::PeerEnd(const Link& link) const {
  return {.connection = link.info.id.connection, .end = engine::Opposite(link.info.id.end)};
}

bool Driver::Send(const Link& link, const engine::Message& message) {
  return parts_.channel->Send(link.info.peer, message);
}

// New devices may have joined.
void Driver::SyncPorts() {
  for (const PhysicalDevice* device : parts_.devices->Physical()) {
    if (ports_.contains(device->id)) continue;
    ports_[device->id].device = device;
    for (const auto& [id, link] : links_) dirty_.insert(id);
  }
}

void Driver::TakeInbox() {
  std::vector<EndId> notified;
  std::vector<AsyncEvent> events;
  {
    absl::MutexLock lock(&inbox_mutex_);
    notified.swap(notified_);
    events.swap(async_events_);
  }
  for (const AsyncEvent& event : events) parts_.ports->Take(event, now_);
  std::sort(notified.begin(), notified.end());
  notified.erase(std::unique(notified.begin(), notified.end()), notified.end());
  for (const EndId& id : notified) {
    if (Link* const link = FindLink(id)) TakeFaults(link);
  }
}

void Driver::TakeFaults(Link* link) {
  if (link->over) return;
  using datapath::Fault;
  for (const Fault& fault : link->connection()->TakeFaults()) {
    if (link->over) return;
    if (fault.fatal) {
      GiveUp(link, DescribeFault(link->info.label, fault), true);
      return;
    }
    if (fault.kind == Fault::Kind::kUncovered) {
      parts_.cover->Ensure(link->info.comm, fault.physical);
      continue;
    }
    if (fault.lane < 0) {
      // A whole queue: every lane of that device.
      LaneIds lanes;
      for (const auto& [lane_id, lane] : link->lanes) {
        if (static_cast<int>(lane.slot) == fault.device) engine::AddLane(&lanes, lane_id);
      }
      SuspectLanes(link, lanes, Cause::kPost);
      continue;
    }
    const LaneId id = {.index = static_cast<uint8_t>(fault.lane), .epoch = fault.epoch};
    const LinkLane* const lane = link->Find(id);
    if (lane == nullptr) continue;
    const Cause cause = fault.kind == Fault::Kind::kCompletion ? Cause::kCompletion : Cause::kPost;
    const PathId path = lane->path;
    const bool known = lane->path_known;
    SuspectLanes(link, {id}, cause);
    // The others on this port are looked after at once.
    parts_.ports->ReadNow(path.local, now_);
    if (known) PathEvent(link->info.peer, path, engine::PathEvent::Kind::kLaneError, cause);
  }
}

void Driver::TakePortNews() {
  using engine::PortEvent;
  for (const PortNews& news : parts_.ports->Poll(now_)) {
    SyncPorts();
    LocalPort* const port = FindPort(news.physical);
    if (port == nullptr) continue;
    if (news.kind == PortNews::Kind::kNotActive && !news.facts.doubt.empty()) {
      RAILHOP_LOG(kWarning, "%s: it carries nothing until that is mended", news.text.c_str());
    } else if (!news.text.empty()) {
      RAILHOP_LOG(kTrace, "%s", news.text.c_str());
    }
    switch (news.kind) {
      case PortNews::Kind::kActive:
        if (port->health.state() == PortState::kDown) port->down_at = now_;
        ApplyPort(port, port->health.Step({.kind = PortEvent::Kind::kReadActive}), Cause::kNone);
        // The first reading is no change of state, and lets lanes be made all the same.
        for (const auto& [id, link] : links_) dirty_.insert(id);
        break;
      case PortNews::Kind::kNotActive:
        ApplyPort(port, port->health.Step({.kind = PortEvent::Kind::kReadNotActive}),
                  Cause::kPortDown);
        break;
      case PortNews::Kind::kFatal:
        parts_.cover->DeviceGone(news.physical);
        failed_.insert(news.physical);
        failed_changed_ = true;
        parts_.prober->DeviceFailed(news.physical);
        ApplyPort(port, port->health.Step({.kind = PortEvent::Kind::kFatal}), Cause::kDeviceFatal);
        break;
      case PortNews::Kind::kAddress:
        ApplyPort(port, port->health.Step({.kind = PortEvent::Kind::kAddress}), Cause::kAddress);
        // The path's probes soon have the new one, and would say that all is well.
        if (news.moved) SuspectLocal(news.physical, Cause::kAddress);
        break;
      case PortNews::Kind::kQueuePair:
      case PortNews::Kind::kQueue:
        for (const auto& [id, link] : links_) {
          if (link->closing || link->over) continue;
          LaneIds lanes;
          for (const datapath::LaneRef& lane : link->connection()->LanesOf(news.object)) {
            engine::AddLane(&lanes, {.index = lane.index, .epoch = lane.epoch});
          }
          SuspectLanes(link.get(), lanes, Cause::kQueuePair);
        }
        break;
      case PortNews::Kind::kDoubt:
        if (news.was_down) port->down_at = now_;
        for (auto& [peer_id, peer] : peers_) {
          for (auto& [path, health] : peer.paths) {
            if (path.local != news.physical) continue;
            PathEvent(peer_id, path, engine::PathEvent::Kind::kLaneError, Cause::kAddress);
          }
        }
        break;
      case PortNews::Kind::kJoined:
        break;
    }
    Announce(port);
  }
}

void Driver::ApplyPort(LocalPort* port, const engine::PortStep& step, Cause cause) {
  const int physical = port->device->id;
  uint32_t in_service = 0;
  for (const auto& [id, other] : ports_) {
    if (other.health.state() != PortState::kDown && other.health.state() != PortState::kFatal) {
      in_service |= uint32_t{1} << id;
    }
  }
  parts_.cover->SetInService(in_service);
  if (step.leave && cause == Cause::kPortDown) port->down_at = now_;
  if (step.leave && (cause == Cause::kPortDown || cause == Cause::kDeviceFatal)) {
    // A better reason than the first sign.
    for (auto& [id, episode] : episodes_) {
      if (!episode.told && episode.local == physical) episode.cause = cause;
    }
  }
  if (step.leave) {
    for (auto& [peer_id, peer] : peers_) {
      for (auto& [path, health] : peer.paths) {
        if (path.local == physical) {
          PathEvent(peer_id, path, engine::PathEvent::Kind::kLocalDown, cause);
        }
      }
    }
    // Also where the peer's ports are not known yet.
    SuspectLocal(physical, cause);
  }
  if (step.try_paths || step.resolve_address) {
    for (auto& [peer_id, peer] : peers_) {
      for (auto& [path, health] : peer.paths) {
        if (path.local == physical) {
          PathEvent(peer_id, path,
                    step.try_paths ? engine::PathEvent::Kind::kMaybeUp
                                   : engine::PathEvent::Kind::kLaneError,
                    cause);
        }
      }
    }
  }
  if (step.leave || step.drain || step.try_paths) {
    for (const auto& [id, link] : links_) dirty_.insert(id);
  }
  if (step.leave || step.drain || step.try_paths || step.announce) {
    port->since = now_;
    port->cause = cause;
    parts_.journal->Append({.time_ns = now_,
                            .kind = JournalEntry::Kind::kPortState,
                            .local = physical,
                            .cause = cause,
                            .value = static_cast<uint64_t>(port->health.state()),
                            .text = PortName(physical)});
  }
  if (step.announce || step.drain) Announce(port);
}

namespace {

engine::PortReport ReportOf(const PhysicalDevice& device, const PortFacts& facts, PortState state) {
  engine::PortReport report;
  report.physical = device.id;
  report.name = device.name;
  report.port = device.port;
  report.is_ethernet = device.is_ethernet;
  report.state = state;
  report.mtu = facts.mtu;
  report.lid = facts.lid;
  report.gid = facts.gid;
  report.rail = RailForPeers(device.rail_id);
  report.speed_mbps = device.speed_mbps;
  report.replaces = device.replaces;
  return report;
}

}  // namespace

// Tells all peers of a port that has changed.
void Driver::Announce(LocalPort* port) {
  PortState state = port->health.state();
  if (state == PortState::kActive && !parts_.ports->active(port->device->id)) {
    state = PortState::kDown;
  }
  engine::PortReport report = ReportOf(*port->device, parts_.ports->facts(port->device->id), state);
  if (port->reported && report == port->report) return;
  port->report = report;
  port->reported = true;
  for (const auto& [id, peer] : peers_) {
    if (peer.up) parts_.channel->Send(id, engine::Ports{.ports = {report}});
  }
}

void Driver::SessionUp(InstanceId id) {
  Peer& peer = peers_[id];
  peer.up = true;
  peer.up_at = now_;
  peer.dead_since = 0;
  peer.goodbye = false;
  peer.death.clear();
  peer.silent_since = 0;
  engine::Ports ports;
  for (auto& [physical, port] : ports_) {
    // One that has not been read yet is not down: it is announced once it has been.
    if (!parts_.ports->known(physical)) continue;
    PortState state = port.health.state();
    if (state == PortState::kActive && !parts_.ports->active(physical)) state = PortState::kDown;
    port.report = ReportOf(*port.device, parts_.ports->facts(physical), state);
    port.reported = true;
    ports.ports.push_back(port.report);
  }
  parts_.channel->Send(id, ports);
  parts_.prober->SessionUp(id, now_);
  parts_.journal->Append(
      {.time_ns = now_, .kind = JournalEntry::Kind::kSession, .peer = id, .text = "up"});
  SayFarewells(id);
  const std::set<EndId> ends = peer.links;
  for (const EndId& end : ends) {
    Link* const link = FindLink(end);
    if (link == nullptr) continue;
    if (link->failed || link->over) {
      Send(*link, OverOf(*link, true, link->reason));
      continue;
    }
    if (link->offer != nullptr && link->offer->stage == PendingOffer::Stage::kOffered) {
      Send(*link, link->offer->offer);
    }
    for (const auto& [epoch, up] : link->ups) Send(*link, up);
    StepMachine(link, {.kind = engine::FailoverEvent::Kind::kRepeat});
    dirty_.insert(end);
  }
}

size_t Driver::TakeChannel() {
  std::vector<control::ChannelEvent> events = parts_.channel->Poll(now_);
  for (control::ChannelEvent& event : events) {
    if (!peers_.contains(event.peer)) {
      TakeLeaving(event);
      continue;
    }
    Peer& peer = peers_[event.peer];
    switch (event.kind) {
      case control::ChannelEvent::Kind::kMessage:
        TakeMessage(event.peer, event.message);
        break;
      case control::ChannelEvent::Kind::kUp:
        SessionUp(event.peer);
        break;
      case control::ChannelEvent::Kind::kDown:
        peer.lost_at = now_;
        std::erase_if(farewells_, [this,
                                   &event](const auto& farewell) ABSL_NO_THREAD_SAFETY_ANALYSIS {
          return farewell.second.peer == event.peer && now_ - farewell.second.said_at > kHeardNs;
        });
        peer.up = false;
        parts_.prober->SessionDown(event.peer);
        parts_.journal->Append({.time_ns = now_,
                                .kind = JournalEntry::Kind::kSession,
                                .peer = event.peer,
                                .text = absl::StrCat("down: ", event.text)});
        break;
      case control::ChannelEvent::Kind::kDead:
        peer.up = false;
        if (peer.dead_since == 0) {
          peer.dead_since = now_;
          peer.death = event.text;
        }
        break;
      case control::ChannelEvent::Kind::kSilent:
        if (peer.silent_since == 0) peer.silent_since = now_;
        break;
    }
  }
  return events.size();
}

void Driver::TakeMessage(InstanceId from, const engine::Message& message) {
  const auto refuse = [this] {
    parts_.journal->Count([](JournalCounters* counters) { ++counters->refused_messages; });
  };
  std::visit(
      [&](const auto& m) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        using T = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<T, engine::Ports>) {
          TakePorts(from, m);
        } else if constexpr (std::is_same_v<T, engine::ProbeOpen> ||
                             std::is_same_v<T, engine::ProbeAnswer> ||
                             std::is_same_v<T, engine::ProbeClose>) {
          parts_.prober->Take(from, message, now_);
        } else if constexpr (std::is_same_v<T, engine::Goodbye>) {
          Peer& peer = peers_[from];
          peer.goodbye = true;
          peer.goodbye_at = now_;
          peer.death = m.reason;
          if (peer.dead_since == 0) peer.dead_since = now_;
        } else {
          // Of one connection.
          const auto found = links_.find(m.to);
          if (found == links_.end()) {
            parts_.journal->Count([](JournalCounters* counters) { ++counters->stale_messages; });
            if constexpr (!std::is_same_v<T, engine::Unknown> && !std::is_same_v<T, engine::Over>) {
              const EndId other = {.connection = m.to.connection,
                                   .end = engine::Opposite(m.to.end)};
              const auto closed = farewells_.find(other);
              if (closed != farewells_.end() && closed->second.peer == from) {
                parts_.channel->Send(from, closed->second.over);
                return;
              }
              parts_.channel->Send(from,
                                   engine::Unknown{.to = {.connection = m.to.connection,
                                                          .end = engine::Opposite(m.to.end)}});
            }
            return;
          }
          const std::shared_ptr<Link> link = found->second;
          // A peer speaks for its own connections only.
          if (link->info.peer != from) return refuse();
          if (link->closing) return;
          if constexpr (std::is_same_v<T, engine::Over>) {
            link->peer_over = true;
            link->peer_reason = m.reason;
            link->peer_complete_below = std::max(link->peer_complete_below, m.complete_below);
            if (m.failed && !link->over) {
              GiveUp(link.get(), absl::StrCat("the other end has given up: ", m.reason), false);
            } else if (!link->over && link->machine.phase() != engine::FailoverPhase::kRunning) {
              EndAfterPeer(link.get());
            }
            return;
          }
          if (link->over) {
            if (link->failed) {
              Send(*link, OverOf(*link, true, link->reason));
            }
            return;
          }
          if constexpr (std::is_same_v<T, engine::Fence>) {
            if (link->is_sender()) return refuse();
            StepMachine(link.get(), {.kind = engine::FailoverEvent::Kind::kPeerFence,
                                     .lanes = m.lanes,
                                     .epoch = m.epoch,
                                     .cause = m.cause});
          } else if constexpr (std::is_same_v<T, engine::Ask>) {
            if (!link->is_sender()) return refuse();
            // Lanes of an epoch that this end has not given out.
            if (std::any_of(m.lanes.begin(), m.lanes.end(), [&link](const LaneId& lane) {
                  return lane.epoch > link->machine.epoch();
                })) {
              return refuse();
            }
            StepMachine(link.get(), {.kind = engine::FailoverEvent::Kind::kPeerAsk,
                                     .lanes = m.lanes,
                                     .epoch = m.epoch,
                                     .cause = m.cause});
          } else if constexpr (std::is_same_v<T, engine::Record>) {
            StepMachine(link.get(), {.kind = engine::FailoverEvent::Kind::kPeerRecord,
                                     .lanes = m.lanes,
                                     .epoch = m.epoch,
                                     .record = &m});
          } else if constexpr (std::is_same_v<T, engine::Quiet>) {
            if (link->is_sender()) return refuse();
            StepMachine(link.get(), {.kind = engine::FailoverEvent::Kind::kPeerQuiet,
                                     .lanes = m.lanes,
                                     .epoch = m.epoch,
                                     .cause = m.cause});
          } else if constexpr (std::is_same_v<T, engine::Offer>) {
            if (link->is_sender()) return refuse();
            TakeOffer(link, m);
          } else if constexpr (std::is_same_v<T, engine::Answer>) {
            if (!link->is_sender()) return refuse();
            TakeAnswer(link, m);
          } else if constexpr (std::is_same_v<T, engine::Up>) {
            if (link->is_sender()) return refuse();
            TakeUp(link.get(), m);
          } else if constexpr (std::is_same_v<T, engine::Inquiry>) {
            TakeInquiry(link.get(), m);
          } else if constexpr (std::is_same_v<T, engine::Account>) {
            TakeAccount(link.get(), m);
          } else if constexpr (std::is_same_v<T, engine::Unknown>) {
            // It has closed, or has not finished the handshake yet: what matters is said again.
            if (link->peer_over) return;
          }
        }
      },
      message);
}

void Driver::TakePorts(InstanceId id, const engine::Ports& ports) {
  Peer& peer = peers_[id];
  bool changed = !peer.ports_known;
  for (const engine::PortReport& report : ports.ports) {
    const auto known = peer.ports.find(report.physical);
    const bool is_new = known == peer.ports.end();
    const engine::PortReport before = is_new ? engine::PortReport{} : known->second;
    if (!is_new && before == report) continue;
    changed = true;
    peer.ports[report.physical] = report;
    const bool down = report.state == PortState::kDown || report.state == PortState::kFatal;
    const bool was_down =
        !is_new && (before.state == PortState::kDown || before.state == PortState::kFatal);
    const int remote = report.physical;
    if (down || was_down) peer.down_at[remote] = now_;
    if (down && !was_down) {
      for (auto& [path, health] : peer.paths) {
        if (path.remote == remote) {
          PathEvent(id, path, engine::PathEvent::Kind::kRemoteDown, Cause::kPeer);
        }
      }
      SuspectRemote(id, remote, Cause::kPeer);
    } else if (!is_new && (was_down || before.gid != report.gid || before.lid != report.lid ||
                           before.state != report.state)) {
      for (auto& [path, health] : peer.paths) {
        if (path.remote == remote) {
          PathEvent(id, path,
                    was_down || health.state() == engine::PathState::kDown
                        ? engine::PathEvent::Kind::kMaybeUp
                        : engine::PathEvent::Kind::kLaneError,
                    Cause::kPeer);
        }
      }
    }
  }
  peer.ports_known = true;
  if (!changed) return;
  for (const EndId& end : peer.links) dirty_.insert(end);
}

engine::PathHealth* Driver::WantPath(InstanceId peer_id, PathId path, const Link& link) {
  Peer& peer = peers_[peer_id];
  auto [it, is_new] = peer.paths.try_emplace(path, options_.health, now_);
  if (is_new) {
    parts_.prober->Want(peer_id, path, link.info.service_level, link.info.traffic_class, now_,
                        link.info.parts[0]->pkey);
    PathEvent(peer_id, path, engine::PathEvent::Kind::kUse, Cause::kNone);
    const auto port = ports_.find(path.local);
    const auto remote = peer.ports.find(path.remote);
    if (port != ports_.end() && (port->second.health.state() == PortState::kDown ||
                                 port->second.health.state() == PortState::kFatal)) {
      PathEvent(peer_id, path, engine::PathEvent::Kind::kLocalDown, Cause::kPortDown);
    } else if (remote != peer.ports.end() && (remote->second.state == PortState::kDown ||
                                              remote->second.state == PortState::kFatal)) {
      PathEvent(peer_id, path, engine::PathEvent::Kind::kRemoteDown, Cause::kPeer);
    }
  }
  return &it->second;
}

void Driver::PathEvent(InstanceId peer_id, PathId path, engine::PathEvent::Kind kind, Cause cause,
                       bool earns, bool alone) {
  Peer& peer = peers_[peer_id];
  const auto found = peer.paths.find(path);
  if (found == peer.paths.end()) return;
  engine::PathHealth& health = found->second;
  const engine::PathState before = health.state();
  const engine::PathStep step = health.Step({.kind = kind, .earns_hold_down = earns}, now_);
  if (step.probe != engine::PathStep::Probe::kNone) {
    parts_.journal->Count([](JournalCounters* counters) { ++counters->probes_sent; });
    Peer::Trace& trace = peer.traces[path];
    ++trace.sent;
    if (trace.sent_at == 0) trace.sent_at = now_;
    parts_.prober->Send(peer_id, path, step.probe == engine::PathStep::Probe::kSendFresh, now_,
                        step.probe_deadline);
  }
  if (health.state() != before) {
    Peer::Trace& trace = peer.traces[path];
    trace.since = now_;
    // Of one that works there is none; that waits, the one that it waits for.
    if (health.state() == engine::PathState::kDown) trace.cause = cause;
    if (health.state() == engine::PathState::kGood) trace.cause = Cause::kNone;
    parts_.journal->Append({.time_ns = now_,
                            .kind = JournalEntry::Kind::kPathState,
                            .local = path.local,
                            .peer = peer_id,
                            .remote = path.remote,
                            .cause = trace.cause,
                            .value = static_cast<uint64_t>(health.state())});
  }
  const bool doubt =
      kind == engine::PathEvent::Kind::kLaneError || kind == engine::PathEvent::Kind::kStalled;
  if (doubt && !alone && before == engine::PathState::kGood) {
    // What shares a port with it may be no better: nobody enters it before it has answered again.
    for (auto& [other_id, other] : peers_) {
      for (auto& [other_path, other_health] : other.paths) {
        const bool same_local = other_path.local == path.local;
        const bool same_remote = other_id == peer_id && other_path.remote == path.remote;
        if ((same_local || same_remote) && !(other_id == peer_id && other_path == path) &&
            other_health.state() == engine::PathState::kGood) {
          PathEvent(other_id, other_path, engine::PathEvent::Kind::kLaneError, cause, true, true);
        }
      }
    }
  }
  if (step.went_down) {
    const Cause why = cause == Cause::kNone ? Cause::kStall : cause;
    SuspectPath(peer_id, path, why);
    for (const EndId& end : peer.links) dirty_.insert(end);
  }
  if (step.became_good) {
    for (const EndId& end : peer.links) dirty_.insert(end);
  }
}

void Driver::TakeProbes() {
  for (const Prober::Result& result : parts_.prober->Poll(now_)) {
    const auto peer = peers_.find(result.peer);
    if (peer == peers_.end()) continue;
    parts_.journal->Count([&result](JournalCounters* counters) {
      ++(result.answered ? counters->probes_answered : counters->probes_unanswered);
    });
    peer->second.tried.insert(result.path);
    Peer::Trace& trace = peer->second.traces[result.path];
    if (!result.answered) ++trace.lost;
    if (result.answered && trace.sent_at != 0) counts_.probe.Add(now_ - trace.sent_at);
    trace.sent_at = 0;
    if (result.answered) {
      peer->second.last_answer = now_;
      peer->second.silent_since = 0;
    }
    PathEvent(
        result.peer, result.path,
        result.answered ? engine::PathEvent::Kind::kAnswered : engine::PathEvent::Kind::kUnanswered,
        Cause::kStall);
  }
}

void Driver::SendProbes() {
  for (const Prober::Outgoing& outgoing : parts_.prober->TakeOutgoing()) {
    parts_.channel->Send(outgoing.peer, outgoing.message);
  }
}

// Lanes of all connections by path, for the choice of backups.
void Driver::CountLoad() {
  load_.clear();
  if (dirty_.empty()) return;
  for (const auto& [id, link] : links_) {
    for (const auto& [lane_id, lane] : link->lanes) {
      if (lane.path_known && lane.state <= LinkLane::State::kUp) ++load_[lane.path];
    }
  }
}

void Driver::TakeCover() {
  parts_.cover->Poll(now_);
  for (const Cover::News& news : parts_.cover->TakeNews()) {
    for (const auto& [id, link] : links_) {
      if (link->info.comm != news.comm) continue;
      dirty_.insert(id);
      if (news.covers && link->info.recv != nullptr && !link->over && !link->closing) {
        // What is open gets the keys of the new device.
        link->info.recv->Reannounce(link->made_epoch);
      }
      const std::string why = news.covers ? "" : parts_.cover->WhyNot(news.comm, news.physical);
      // Not yet is not a refusal.
      if (!why.empty() && why != Cover::kPending) {
        parts_.journal->Append({.time_ns = now_,
                                .kind = JournalEntry::Kind::kNoCover,
                                .local = news.physical,
                                .end = id,
                                .text = why});
      }
    }
  }
}

}  // namespace railhop::runtime
