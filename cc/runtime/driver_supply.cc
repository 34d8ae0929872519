// Lanes that a connection should have: compares the wish (engine::ChooseRoute) with what there is,
// makes what is missing (OFFER, ANSWER, UP), and leaves in order what is too much. Going back to
// the nearest port, draining and spreading over survivors are all this.

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/log.h"
#include "cc/runtime/driver.h"

namespace railhop::runtime {

using engine::Cause;
using engine::FailoverEvent;
using engine::FailoverPhase;
using engine::LaneId;
using engine::LaneIds;
using engine::PathId;
using engine::PortState;

namespace {

constexpr int64_t kOfferPauseNs = 10'000'000;
constexpr int64_t kOfferPauseMaxNs = 5'000'000'000;
constexpr size_t kOfferLanesMax = 64;
constexpr size_t kRouteMax = 64;
// Paths that are probed for one connection when none of those in line works.
constexpr int kSearchMax = 64;

// Counts users of each slot that are not fenced.
int LanesOn(const Link& link, uint8_t slot) {
  return static_cast<int>(
      std::count_if(link.lanes.begin(), link.lanes.end(), [slot](const auto& entry) {
        return entry.second.slot == slot && entry.second.state != LinkLane::State::kFenced;
      }));
}

// The slot of a device at this end; a new one if it has none. -1: there is no room.
int SlotFor(const Link& link, const std::map<int, uint8_t>& chosen, int physical) {
  const auto known = link.slots.find(physical);
  if (known != link.slots.end()) return known->second;
  const auto planned = chosen.find(physical);
  if (planned != chosen.end()) return planned->second;
  for (uint8_t slot = 0; slot < datapath::kDevicesMax; ++slot) {
    const auto has = [slot](const auto& entry) { return entry.second == slot; };
    if (std::any_of(chosen.begin(), chosen.end(), has)) continue;
    const bool owned = std::any_of(link.slots.begin(), link.slots.end(), has);
    if (!owned) return slot;
  }
  // All taken: one that no lane lives on goes to the new device.
  for (uint8_t slot = 0; slot < datapath::kDevicesMax; ++slot) {
    const auto has = [slot](const auto& entry) { return entry.second == slot; };
    if (std::any_of(chosen.begin(), chosen.end(), has)) continue;
    const bool base = slot < link.info.parts.size();
    if (!base && LanesOn(link, slot) == 0) return slot;
  }
  return -1;
}

// Lanes that a new device of the connection is to have room for: `first` at once, later all of the
// connection, and beside them those that they are handed over to.
uint32_t RoomFor(const LaneMaker& maker, const Link& link, size_t first) {
  return std::max(maker.LanesMax(static_cast<uint32_t>(link.info.base.size())),
                  static_cast<uint32_t>(first) + 1);
}

std::vector<LaneId> UpLanes(const Link& link) {
  std::vector<LaneId> up;
  for (const auto& [id, lane] : link.lanes) {
    if (lane.state == LinkLane::State::kUp) up.push_back(id);
  }
  return up;
}

}  // namespace

int Driver::FreePlace(const Link& link, const std::set<uint8_t>& taken, int wanted) const {
  const auto is_free = [&](uint8_t place) {
    if (taken.contains(place)) return false;
    // Of an offer that was dropped: the receiver may have a lane there until the episode is over.
    if (link.machine.phase() != FailoverPhase::kRunning &&
        std::any_of(link.machine.lanes().begin(), link.machine.lanes().end(),
                    [place](LaneId id) { return id.index == place; })) {
      return false;
    }
    return std::none_of(link.lanes.begin(), link.lanes.end(),
                        [place](const auto& entry) { return entry.first.index == place; });
  };
  if (wanted >= 0 && is_free(static_cast<uint8_t>(wanted))) return wanted;
  const uint8_t start = link.next_place;
  for (uint32_t i = 0; i < datapath::kLanesMax; ++i) {
    const auto place = static_cast<uint8_t>((start + i) % datapath::kLanesMax);
    if (is_free(place)) return place;
  }
  return -1;
}

// The peer's ports by the names that the handshake gave.
void Driver::ResolvePaths(Link* link) {
  const Peer& peer = peers_[link->info.peer];
  if (!peer.ports_known) return;
  for (size_t slot = 0; slot < link->info.peer_parts.size(); ++slot) {
    if (link->peer_slots.contains(static_cast<uint8_t>(slot))) continue;
    for (const auto& [physical, port] : peer.ports) {
      if (port.name == link->info.peer_parts[slot].name &&
          port.port == link->info.peer_parts[slot].port) {
        link->peer_slots[static_cast<uint8_t>(slot)] = physical;
      }
    }
  }
  for (auto& [id, lane] : link->lanes) {
    if (lane.path_known) continue;
    const auto physical = link->peer_slots.find(lane.remote_slot);
    if (physical == link->peer_slots.end()) continue;
    lane.path.remote = physical->second;
    lane.path_known = true;
  }
}

int Driver::Renewed(int physical) const {
  for (const auto& [id, port] : ports_) {
    // Ids grow: a later one may replace this one in turn.
    if (port.device->replaces == physical) physical = id;
  }
  return physical;
}

int Driver::RenewedRemote(const Peer& peer, int physical) {
  for (const auto& [id, port] : peer.ports) {
    if (id > physical && port.replaces == physical) physical = id;
  }
  return physical;
}

int Driver::OriginOf(int physical) const {
  for (auto at = ports_.find(physical); at != ports_.end() && at->second.device->replaces >= 0;
       at = ports_.find(physical)) {
    physical = at->second.device->replaces;
  }
  return physical;
}

int Driver::OriginOfRemote(const Peer& peer, int physical) {
  for (auto at = peer.ports.find(physical);
       at != peer.ports.end() && at->second.replaces >= 0 && at->second.replaces < physical;
       at = peer.ports.find(physical)) {
    physical = at->second.replaces;
  }
  return physical;
}

engine::RouteWish Driver::WishOf(const Link& link, const std::set<int>& avoid) const {
  engine::RouteWish wish;
  const auto peer_found = peers_.find(link.info.peer);
  if (peer_found == peers_.end()) return wish;
  const Peer& peer = peer_found->second;
  for (const BaseLane& base : link.info.base) {
    const auto remote = link.peer_slots.find(base.remote_slot);
    if (remote == link.peer_slots.end()) return {};
    // A device that was gone and is back is another one, and the way home all the same.
    wish.base.push_back(
        {.local = Renewed(base.local), .remote = RenewedRemote(peer, remote->second)});
  }
  wish.lanes_max = datapath::kLanesMax;
  for (const auto& [physical, port] : ports_) {
    Distance distance = Distance::kSameHost;
    for (const PhysicalDevice* part : link.info.parts) {
      distance = std::min(distance, DistanceBetween(*part, *port.device));
    }
    const bool covers = parts_.cover->Covers(link.info.comm, physical);
    for (const auto& [remote_id, remote] : peer.ports) {
      if (remote.is_ethernet != port.device->is_ethernet) continue;
      engine::PathFacts facts;
      facts.path = {.local = physical, .remote = remote_id};
      const bool rails_known = remote.rail >= 0 && port.device->rail_id >= 0;
      facts.same_rail = rails_known ? remote.rail == port.device->rail_id
                                    : OriginOfRemote(peer, remote_id) == OriginOf(physical);
      facts.distance = static_cast<uint8_t>(distance);
      facts.remote_distance =
          std::any_of(wish.base.begin(), wish.base.end(),
                      [wanted = remote_id](const PathId& base) { return base.remote == wanted; })
              ? 0
              : 2;
      facts.speed_mbps = std::min(port.device->speed_mbps, remote.speed_mbps);
      const auto load = load_.find(facts.path);
      facts.load = load == load_.end() ? 0 : load->second;
      const auto health = peer.paths.find(facts.path);
      bool proved = health != peer.paths.end() && health->second.MayEnter();
      // What carries data already is left for a reason only.
      const bool carries =
          std::any_of(link.lanes.begin(), link.lanes.end(), [&facts](const auto& entry) {
            return entry.second.state == LinkLane::State::kUp && entry.second.path_known &&
                   entry.second.path == facts.path;
          });
      if (!proved) {
        proved = carries && (health == peer.paths.end() ||
                             health->second.state() == engine::PathState::kUnknown ||
                             health->second.state() == engine::PathState::kDoubtful);
      }
      // Before its first reading a port that carries data is not taken for down.
      const bool active =
          parts_.ports->active(physical) || (carries && !parts_.ports->known(physical));
      const auto breaker = peer.breakers.find(facts.path);
      const bool open = !carries && breaker != peer.breakers.end() && now_ < breaker->second.until;
      // Cover is for entering: memory that is being registered is no reason to leave.
      const bool hangs = !carries && link.late.contains(physical);
      facts.good = port.health.MayEnter() && !avoid.contains(physical) && (covers || carries) &&
                   active && proved && !open && !hangs && remote.state == PortState::kActive;
      wish.paths.push_back(facts);
    }
  }
  return wish;
}

void Driver::DropFromRoute(Link* link) {
  std::erase_if(link->route, [link](uint8_t index) {
    return std::none_of(link->lanes.begin(), link->lanes.end(), [index](const auto& entry) {
      return entry.first.index == index && entry.second.state == LinkLane::State::kUp;
    });
  });
}

void Driver::SetRoute(Link* link, std::vector<uint8_t> route) {
  if (route.size() > kRouteMax) route.resize(kRouteMax);
  if (route == link->route) return;
  link->route = std::move(route);
  link->connection()->SetRoute(link->route);
  uint32_t present = 0;
  for (const auto& [id, lane] : link->lanes) {
    if (lane.state <= LinkLane::State::kRetiring) present |= uint32_t{1} << lane.path.local;
  }
  parts_.cover->SetPresent(link->info.comm, present);
}

void Driver::Reconcile(const std::shared_ptr<Link>& link) {
  if (link->closing) return;
  if (link->over) {
    FinishGiveUp(link.get());
    return;
  }
  ResolvePaths(link.get());
  SuspectOnDownPorts(link.get());
  if (link->over) return;
  bool no_path = false;
  if (link->is_sender()) {
    engine::RouteWish wish = WishOf(*link, link->avoid);
    std::vector<engine::RouteLeg> legs = engine::ChooseRoute(wish);
    if (legs.empty() && !link->avoid.empty()) {
      // What a person wished to spare is better than nothing.
      link->avoid.clear();
      wish = WishOf(*link, {});
      legs = engine::ChooseRoute(wish);
    }
    for (const PathId& base : wish.base) WantPath(link->info.peer, base, *link);
    // Looked at again when a path may be chosen again that is left alone now. Other connections may
    // have it left alone for longer meanwhile.
    int64_t again = std::numeric_limits<int64_t>::max();
    for (const auto& [path, breaker] : peers_[link->info.peer].breakers) {
      if (breaker.until > now_) again = std::min(again, breaker.until);
    }
    if (again != std::numeric_limits<int64_t>::max()) {
      dirty_later_.insert({again, link->info.id});
      Schedule(again);
    }
    for (const PathId& next : engine::NextInLine(wish, options_.next_in_line)) {
      WantPath(link->info.peer, next, *link);
      parts_.cover->Ensure(link->info.comm, next.local);
    }
    no_path = legs.empty() && !wish.base.empty();
    if (no_path) {
      int searched = 0;
      for (const engine::PathFacts& facts : wish.paths) {
        if (++searched > kSearchMax) break;
        WantPath(link->info.peer, facts.path, *link);
        parts_.cover->Ensure(link->info.comm, facts.path.local);
      }
    }
    // What of the wish is there.
    std::vector<engine::RouteLeg> missing;
    std::set<LaneId> used;
    std::vector<std::pair<uint8_t, int>> shares;
    for (const engine::RouteLeg& leg : legs) {
      bool there = false;
      for (const LaneId& id : UpLanes(*link)) {
        const LinkLane& lane = link->lanes[id];
        if (used.contains(id) || lane.base != leg.base || !(lane.path == leg.path)) continue;
        used.insert(id);
        shares.emplace_back(id.index, leg.share);
        there = true;
        break;
      }
      if (!there) missing.push_back(leg);
    }
    LaneIds surplus;
    for (const LaneId& id : UpLanes(*link)) {
      if (!used.contains(id)) engine::AddLane(&surplus, id);
    }
    if (!missing.empty() || legs.empty()) {
      // Until all is there, what is there goes on; but not over what is to be spared.
      for (const LaneId& id : surplus) shares.emplace_back(id.index, 1);
      surplus.clear();
    }
    std::vector<uint8_t> route;
    for (int turn = 0; turn < 16; ++turn) {
      for (const auto& [index, share] : shares) {
        if (turn < share) route.push_back(index);
      }
    }
    SetRoute(link.get(), std::move(route));
    if (!surplus.empty() && link->machine.phase() == FailoverPhase::kRunning) {
      // Those that were out are back where a lane of theirs is home now.
      std::set<int> homes;
      for (const LaneId& out : surplus) {
        const int base = link->lanes[out].base;
        const PathId home = wish.base[static_cast<size_t>(base)];
        const bool back = std::any_of(used.begin(), used.end(), [&](LaneId id) {
          const LinkLane& lane = link->lanes[id];
          return lane.base == base && lane.path == home;
        });
        if (back) homes.insert(home.local);
      }
      for (const int home : homes) {
        Return& back = returns_[home];
        ++back.connections;
        back.last = now_;
      }
      RetireLanes(link.get(), surplus, Cause::kFailBack);
    }
    if (!missing.empty() && link->offer == nullptr) {
      if (now_ >= link->offer_at) {
        StartOffer(link, missing);
      } else {
        Schedule(link->offer_at);
      }
    }
  } else {
    // The receiver's paths are the sender's choice; it proves them itself for its entries.
    for (const auto& [id, lane] : link->lanes) {
      if (lane.path_known && lane.state <= LinkLane::State::kRetiring) {
        WantPath(link->info.peer, lane.path, *link);
      }
    }
    std::vector<uint8_t> route;
    for (const LaneId& id : UpLanes(*link)) route.push_back(id.index);
    SetRoute(link.get(), std::move(route));
  }
  const bool moves = link->machine.phase() == FailoverPhase::kRunning && !link->route.empty();
  if (moves) {
    link->hindered_since = 0;
    link->no_path_told = false;
    if (link->episode != 0) LeaveEpisode(link.get(), true);
    return;
  }
  if (link->hindered_since == 0) link->hindered_since = now_;
  if (no_path && !link->no_path_told) {
    link->no_path_told = true;
    parts_.journal->Append({.time_ns = now_,
                            .kind = JournalEntry::Kind::kNoPath,
                            .episode = link->episode,
                            .peer = link->info.peer,
                            .end = link->info.id,
                            .text = HeldText(Commandeered())});
  }
}

// ---- The sender's side of new lanes.

void Driver::StartOffer(const std::shared_ptr<Link>& link,
                        const std::vector<engine::RouteLeg>& legs) {
  auto offer = std::make_shared<PendingOffer>();
  offer->since = now_;
  std::set<uint8_t> places;
  std::map<int, uint8_t> new_slots;
  std::map<int, std::shared_ptr<PendingOffer::Part>> parts;
  std::map<int, int> planned;  // lanes by device
  for (const engine::RouteLeg& leg : legs) {
    if (offer->legs.size() == kOfferLanesMax) break;
    const int physical = leg.path.local;
    const int slot = SlotFor(*link, new_slots, physical);
    const auto port = ports_.find(physical);
    if (slot < 0 || port == ports_.end()) continue;
    const bool has_device = link->slots.contains(physical);
    if (has_device) {
      // The queue has room for so many at once.
      const int room = static_cast<int>(link->slot_lanes[static_cast<uint8_t>(slot)]);
      if (LanesOn(*link, static_cast<uint8_t>(slot)) + planned[physical] >= room) continue;
    }
    const bool home = leg.path.local == link->info.base[static_cast<size_t>(leg.base)].local;
    const int place = FreePlace(*link, places, home ? leg.base : -1);
    if (place < 0) break;
    if (!home) link->next_place = static_cast<uint8_t>((place + 1) % datapath::kLanesMax);
    places.insert(static_cast<uint8_t>(place));
    ++planned[physical];
    if (!has_device) new_slots[physical] = static_cast<uint8_t>(slot);
    std::shared_ptr<PendingOffer::Part>& part = parts[physical];
    if (part == nullptr) {
      part = std::make_shared<PendingOffer::Part>();
      part->wish.device = port->second.device;
      part->wish.use = {.end = engine::End::kSender,
                        .adaptive_routing = link->info.adaptive_routing,
                        .service_level = link->info.service_level,
                        .traffic_class = link->info.traffic_class};
      part->wish.pkey = link->info.parts[0]->pkey;
      part->wish.slot = static_cast<uint8_t>(slot);
      part->wish.memory = link->info.memory;
      part->wish.cq =
          has_device ? link->connection()->completion_queue(static_cast<uint32_t>(slot)) : nullptr;
      offer->parts.push_back(part);
    }
    engine::EndLane lane;
    lane.index = static_cast<uint8_t>(place);
    lane.slot = static_cast<uint8_t>(slot);
    lane.remote_physical = leg.path.remote;
    part->wish.lanes.push_back(lane);
    offer->legs.push_back({.path = leg.path,
                           .base = leg.base,
                           .index = static_cast<uint8_t>(place),
                           .slot = static_cast<uint8_t>(slot)});
    ++load_[leg.path];
  }
  if (offer->legs.empty()) return;
  for (const std::shared_ptr<PendingOffer::Part>& part : offer->parts) {
    part->wish.lanes_max = RoomFor(*parts_.maker, *link, part->wish.lanes.size());
  }
  offer->epoch = link->machine.TakeEpoch();
  link->offer = offer;
  offer->jobs = static_cast<int>(offer->parts.size());
  const LaneMaker* const maker = parts_.maker;
  for (const std::shared_ptr<PendingOffer::Part>& part : offer->parts) {
    ++link->jobs;
    part->since = now_;
    parts_.executor->Run(
        part->wish.device->id,
        [maker, part] {
          absl::StatusOr<LaneMaker::Made> made = maker->Make(part->wish);
          if (made.ok()) {
            part->made = std::make_shared<LaneMaker::Made>(*std::move(made));
          } else {
            part->error = std::string(made.status().message());
          }
        },
        [this, link, offer, part]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
          PartEnded(link.get(), offer.get(), part.get());
          if (offer->jobs == 0) OfferMade(link, offer);
        });
  }
}

void Driver::PartEnded(Link* link, PendingOffer* offer, PendingOffer::Part* part) {
  --link->jobs;
  --offer->jobs;
  part->ended = true;
  if (!part->late) return;
  const auto late = link->late.find(part->wish.device->id);
  if (--late->second == 0) link->late.erase(late);
  dirty_.insert(link->info.id);
}

void Driver::LeaveHanging(Link* link, PendingOffer* offer) {
  for (const auto& part : offer->parts) {
    if (part->ended || part->late || now_ - part->since < Executor::kStuckNs) continue;
    part->late = true;
    ++link->late[part->wish.device->id];
  }
}

void Driver::Discard(Link* link, std::shared_ptr<LaneMaker::Made> made, int physical) {
  if (made == nullptr) return;
  // Queue pairs go before the queue that they use; that may be the connection's, which is not
  // closed before.
  ++link->jobs;
  parts_.executor->Run(
      physical,
      [made] {
        made->lanes.clear();
        made->flush.reset();
        made->device.reset();
      },
      [kept = link->shared_from_this()] { --kept->jobs; });
}

void Driver::OfferMade(const std::shared_ptr<Link>& link,
                       const std::shared_ptr<PendingOffer>& offer) {
  if (link->offer != offer || link->over || link->closing) {
    for (const auto& part : offer->parts)
      Discard(link.get(), std::move(part->made), part->wish.device->id);
    return;
  }
  offer->offer = {.to = PeerEnd(*link),
                  .epoch = offer->epoch,
                  .service_level = link->info.service_level,
                  .traffic_class = link->info.traffic_class};
  std::string why;
  for (const auto& part : offer->parts) {
    if (part->made == nullptr) {
      why = part->error;
      // Another device may do.
      for (const PendingOffer::Leg& leg : offer->legs) {
        if (leg.path.local == part->wish.device->id) Strike(link.get(), leg.path);
      }
      continue;
    }
    engine::EndDevice device = part->made->end_device;
    if (device.control_key == 0) device.control_key = link->control_keys[device.slot];
    offer->offer.devices.push_back(device);
    for (const engine::EndLane& lane : part->made->end_lanes) offer->offer.lanes.push_back(lane);
  }
  if (offer->offer.lanes.empty()) {
    DropOffer(link.get(), why);
    return;
  }
  offer->stage = PendingOffer::Stage::kOffered;
  Send(*link, offer->offer);
}

// The offer comes to nothing: tried again after a pause.
void Driver::DropOffer(Link* link, const std::string& why, bool refused) {
  if (link->offer == nullptr) return;
  const std::shared_ptr<PendingOffer> offer = std::move(link->offer);
  link->offer = nullptr;
  RAILHOP_LOG(kTrace, "%s: new lanes (epoch %u) came to nothing: %s", link->info.label.c_str(),
              offer->epoch, why.c_str());
  if (offer->jobs == 0) {
    for (const auto& part : offer->parts)
      Discard(link, std::move(part->made), part->wish.device->id);
  }
  LeaveHanging(link, offer.get());
  ++link->offer_failures;
  const int64_t pause =
      std::min(kOfferPauseMaxNs, kOfferPauseNs << std::min(link->offer_failures, 10));
  link->offer_at =
      now_ + pause / 2 + static_cast<int64_t>(prng_.Below(static_cast<uint64_t>(pause)));
  Schedule(link->offer_at);
  dirty_later_.insert({link->offer_at, link->info.id});
  if (offer->stage == PendingOffer::Stage::kMaking || refused || link->over || link->closing) {
    return;
  }
  // The receiver may have its half: an ordinary episode takes it away at both ends.
  LaneIds lanes;
  for (const engine::EndLane& lane : offer->offer.lanes) {
    engine::AddLane(&lanes, {.index = lane.index, .epoch = offer->epoch});
  }
  StepMachine(link,
              {.kind = FailoverEvent::Kind::kSuspect, .lanes = lanes, .cause = Cause::kFailBack});
}

void Driver::TakeAnswer(const std::shared_ptr<Link>& link, const engine::Answer& answer) {
  const std::shared_ptr<PendingOffer> offer = link->offer;
  if (offer == nullptr || offer->epoch != answer.epoch ||
      offer->stage != PendingOffer::Stage::kOffered) {
    parts_.journal->Count([](JournalCounters* counters) { ++counters->stale_messages; });
    return;
  }
  for (const PendingOffer::Leg& leg : offer->legs) {
    const bool offered =
        std::any_of(offer->offer.lanes.begin(), offer->offer.lanes.end(),
                    [&leg](const engine::EndLane& lane) { return lane.index == leg.index; });
    const bool taken =
        std::any_of(answer.lanes.begin(), answer.lanes.end(),
                    [&leg](const engine::EndLane& lane) { return lane.index == leg.index; });
    if (offered && !taken) Strike(link.get(), leg.path);
  }
  if (answer.lanes.empty()) {
    // It has made nothing, so there is nothing to be taken away.
    DropOffer(link.get(), answer.error, /*refused=*/true);
    return;
  }
  offer->stage = PendingOffer::Stage::kRaising;
  offer->answer = answer;
  const LaneMaker* const maker = parts_.maker;
  for (const auto& part : offer->parts) {
    if (part->made == nullptr) continue;
    ++offer->jobs;
    part->ended = false;
    part->since = now_;
  }
  for (const auto& part : offer->parts) {
    if (part->made == nullptr) continue;
    ++link->jobs;
    parts_.executor->Run(
        part->wish.device->id,
        [maker, part, offer] {
          const absl::Status raised =
              maker->RaiseAnswered(part->made.get(), part->wish, offer->answer);
          if (!raised.ok()) part->error = std::string(raised.message());
          part->failed = !raised.ok();
        },
        [this, link, offer, part]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
          PartEnded(link.get(), offer.get(), part.get());
          if (offer->jobs == 0) OfferRaised(link, offer);
        });
  }
}

void Driver::OfferRaised(const std::shared_ptr<Link>& link,
                         const std::shared_ptr<PendingOffer>& offer) {
  if (link->offer != offer || link->over || link->closing) {
    for (const auto& part : offer->parts)
      Discard(link.get(), std::move(part->made), part->wish.device->id);
    return;
  }
  const bool failed = std::any_of(offer->parts.begin(), offer->parts.end(),
                                  [](const auto& part) { return part->failed; });
  if (failed) {
    std::string why;
    for (const auto& part : offer->parts) why = absl::StrCat(why, part->error);
    DropOffer(link.get(), why);
    return;
  }
  for (const engine::EndDevice& device : offer->answer.devices) {
    if (device.slot >= datapath::kDevicesMax) continue;
    if (device.control_key != 0) {
      link->connection()->SetPeerDevice(device.slot, device.control_key);
    }
    link->peer_slots[device.slot] = device.physical;
  }
  LaneIds refused;
  int added = 0;
  for (const auto& part : offer->parts) {
    if (part->made == nullptr) continue;
    InstallDevice(link.get(), part->wish, part->made.get());
    for (size_t i = 0; i < part->made->lanes.size(); ++i) {
      const engine::EndLane& ours = part->made->end_lanes[i];
      const auto theirs =
          std::find_if(offer->answer.lanes.begin(), offer->answer.lanes.end(),
                       [&ours](const engine::EndLane& lane) { return lane.index == ours.index; });
      const auto leg =
          std::find_if(offer->legs.begin(), offer->legs.end(),
                       [&ours](const PendingOffer::Leg& l) { return l.index == ours.index; });
      if (leg == offer->legs.end()) continue;
      const LaneId id = {.index = ours.index, .epoch = offer->epoch};
      if (theirs == offer->answer.lanes.end()) continue;
      datapath::Lane lane;
      lane.qp = std::move(part->made->lanes[i].qp);
      lane.local_device = part->wish.slot;
      lane.remote_device = theirs->slot;
      lane.epoch = offer->epoch;
      if (!link->connection()->AddLane(ours.index, &lane)) {
        part->made->lanes[i].qp = std::move(lane.qp);
        engine::AddLane(&refused, id);
        continue;
      }
      LinkLane made;
      made.path = leg->path;
      made.slot = part->wish.slot;
      made.remote_slot = theirs->slot;
      made.base = leg->base;
      made.progress_at = now_;
      made.made_at = now_;
      link->lanes[id] = made;
      ++added;
    }
  }
  for (const auto& part : offer->parts)
    Discard(link.get(), std::move(part->made), part->wish.device->id);
  link->offer = nullptr;
  if (added > 0) {
    link->offer_failures = 0;
    const engine::Up up = {.to = PeerEnd(*link),
                           .epoch = offer->epoch,
                           .first_sequence = link->info.send->Record().next_sequence};
    link->ups[offer->epoch] = up;
    Send(*link, up);
    parts_.journal->Append({.time_ns = now_,
                            .kind = JournalEntry::Kind::kMoved,
                            .episode = link->episode,
                            .local = offer->legs[0].path.local,
                            .peer = link->info.peer,
                            .remote = offer->legs[0].path.remote,
                            .end = link->info.id,
                            .epoch = offer->epoch,
                            .value = static_cast<uint64_t>(added)});
  }
  if (!refused.empty()) {
    StepMachine(
        link.get(),
        {.kind = FailoverEvent::Kind::kSuspect, .lanes = refused, .cause = Cause::kFailBack});
  }
  if (added == 0) {
    ++link->offer_failures;
    link->offer_at = now_ + kOfferPauseNs;
    dirty_later_.insert({link->offer_at, link->info.id});
  }
  dirty_.insert(link->info.id);
}

// A device that was made for an offer becomes the connection's.
void Driver::InstallDevice(Link* link, const LaneMaker::Wish& wish, LaneMaker::Made* made) {
  if (!made->device.has_value()) return;
  const uint32_t key = made->device->control->remote_key();
  if (made->flush.has_value()) made->device->flush = *std::move(made->flush);
  if (!link->connection()->AddDevice(wish.slot, &*made->device)) return;
  // The slot may have been another device's before.
  std::erase_if(link->slots, [&wish](const auto& entry) { return entry.second == wish.slot; });
  link->slots[wish.device->id] = wish.slot;
  link->slot_lanes[wish.slot] = wish.lanes_max;
  link->control_keys[wish.slot] = key;
}

// ---- The receiver's side.

void Driver::TakeOffer(const std::shared_ptr<Link>& link, const engine::Offer& message) {
  const auto answered = link->answers.find(message.epoch);
  if (answered != link->answers.end()) {
    Send(*link, answered->second);
    return;
  }
  if (link->answering.contains(message.epoch)) return;
  if (!link->machine.AdoptEpoch(message.epoch)) {
    parts_.journal->Count([](JournalCounters* counters) { ++counters->stale_messages; });
    return;
  }
  // A newer offer: the refused ones do not come again.
  std::erase_if(link->answers, [](const auto& entry) { return entry.second.lanes.empty(); });
  auto work = std::make_shared<PendingOffer>();
  work->epoch = message.epoch;
  work->since = now_;
  work->offer = message;
  std::string error;
  std::set<uint8_t> places;
  std::map<int, uint8_t> new_slots;
  std::map<int, int> planned;
  std::map<int, std::shared_ptr<PendingOffer::Part>> parts;
  for (const engine::EndLane& lane : message.lanes) {
    const auto device =
        std::find_if(message.devices.begin(), message.devices.end(),
                     [&lane](const engine::EndDevice& d) { return d.slot == lane.slot; });
    LocalPort* const port = FindPort(lane.remote_physical);
    if (device == message.devices.end() || lane.index >= datapath::kLanesMax || port == nullptr) {
      error = "the offer names a device or port that there is not";
      continue;
    }
    if (link->late.contains(lane.remote_physical)) {
      error = absl::StrCat("an earlier call on ", PortName(lane.remote_physical), " hangs");
      continue;
    }
    if (!port->health.MayEnter() || !parts_.ports->active(lane.remote_physical)) {
      error = absl::StrCat(PortName(lane.remote_physical), " is not in service");
      continue;
    }
    if (!parts_.cover->Covers(link->info.comm, lane.remote_physical)) {
      parts_.cover->Ensure(link->info.comm, lane.remote_physical);
      error = absl::StrCat(PortName(lane.remote_physical), " does not cover the memory: ",
                           parts_.cover->WhyNot(link->info.comm, lane.remote_physical));
      continue;
    }
    // A round trip of the sender's says nothing of ours, which entries go over: where packets are
    // lost one way only, they differ.
    const auto health = peers_[link->info.peer].paths.find(
        {.local = lane.remote_physical, .remote = device->physical});
    // How long it has to have answered is the sender's business: else a person would have to ask
    // both ends to go back to it sooner.
    if (health != peers_[link->info.peer].paths.end() &&
        health->second.state() == engine::PathState::kDown) {
      error = absl::StrCat(PortName(lane.remote_physical), " does not reach the sender's port");
      continue;
    }
    const bool busy =
        places.contains(lane.index) ||
        std::any_of(link->lanes.begin(), link->lanes.end(),
                    [&lane](const auto& entry) { return entry.first.index == lane.index; });
    const int slot = SlotFor(*link, new_slots, lane.remote_physical);
    const bool has_device = link->slots.contains(lane.remote_physical);
    const bool full =
        has_device && LanesOn(*link, static_cast<uint8_t>(slot)) + planned[lane.remote_physical] >=
                          static_cast<int>(link->slot_lanes[static_cast<uint8_t>(slot)]);
    if (busy || slot < 0 || full) {
      error = "an older lane is not gone yet";
      continue;
    }
    places.insert(lane.index);
    ++planned[lane.remote_physical];
    if (!has_device) new_slots[lane.remote_physical] = static_cast<uint8_t>(slot);
    std::shared_ptr<PendingOffer::Part>& part = parts[lane.remote_physical];
    if (part == nullptr) {
      part = std::make_shared<PendingOffer::Part>();
      part->wish.device = port->device;
      part->wish.use = {.end = engine::End::kReceiver,
                        .adaptive_routing = link->info.adaptive_routing,
                        .service_level = message.service_level,
                        .traffic_class = message.traffic_class};
      part->wish.pkey = link->info.parts[0]->pkey;
      part->wish.slot = static_cast<uint8_t>(slot);
      part->wish.memory = link->info.memory;
      part->wish.cq =
          has_device ? link->connection()->completion_queue(static_cast<uint32_t>(slot)) : nullptr;
      part->wish.flush = !has_device && parts_.maker->WantsFlush(link->info.flush_pointers);
      part->wish.peer_devices = message.devices;
      work->parts.push_back(part);
    }
    part->wish.lanes.push_back(lane);
  }
  work->answer = {.to = PeerEnd(*link), .epoch = message.epoch, .error = error};
  link->answering[message.epoch] = work;
  if (work->parts.empty()) {
    OfferAnswered(link, work);
    return;
  }
  work->jobs = static_cast<int>(work->parts.size());
  const LaneMaker* const maker = parts_.maker;
  for (const auto& part : work->parts) {
    part->wish.lanes_max = RoomFor(*parts_.maker, *link, part->wish.lanes.size());
    part->since = now_;
    ++link->jobs;
    parts_.executor->Run(
        part->wish.device->id,
        [maker, part] {
          absl::StatusOr<LaneMaker::Made> made = maker->Make(part->wish);
          if (made.ok()) {
            part->made = std::make_shared<LaneMaker::Made>(*std::move(made));
          } else {
            part->error = std::string(made.status().message());
          }
        },
        [this, link, work, part]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
          PartEnded(link.get(), work.get(), part.get());
          if (part->late) {
            Discard(link.get(), std::move(part->made), part->wish.device->id);
          } else if (work->jobs == 0) {
            OfferAnswered(link, work);
          }
        });
  }
}

void Driver::OfferAnswered(const std::shared_ptr<Link>& link,
                           const std::shared_ptr<PendingOffer>& work) {
  link->answering.erase(work->epoch);
  if (!work->wanted || link->over || link->closing) {
    for (const auto& part : work->parts) {
      if (!part->late) Discard(link.get(), std::move(part->made), part->wish.device->id);
    }
    return;
  }
  for (const engine::EndDevice& device : work->offer.devices) {
    if (device.slot >= datapath::kDevicesMax) continue;
    if (device.control_key != 0) {
      link->connection()->SetPeerDevice(device.slot, device.control_key);
    }
    link->peer_slots[device.slot] = device.physical;
  }
  for (const auto& part : work->parts) {
    if (part->late) {
      work->answer.error =
          absl::StrCat("a call on ", PortName(part->wish.device->id), " does not return");
      continue;
    }
    if (part->made == nullptr) {
      work->answer.error = part->error;
      continue;
    }
    InstallDevice(link.get(), part->wish, part->made.get());
    bool any = false;
    for (size_t i = 0; i < part->made->lanes.size(); ++i) {
      const engine::EndLane& theirs = part->wish.lanes[i];
      const auto device =
          std::find_if(work->offer.devices.begin(), work->offer.devices.end(),
                       [&theirs](const engine::EndDevice& d) { return d.slot == theirs.slot; });
      datapath::Lane lane;
      lane.qp = std::move(part->made->lanes[i].qp);
      lane.local_device = part->wish.slot;
      lane.remote_device = theirs.slot;
      lane.epoch = work->epoch;
      if (!link->connection()->AddLane(theirs.index, &lane)) {
        part->made->lanes[i].qp = std::move(lane.qp);
        work->answer.error = "an older lane is not gone yet";
        continue;
      }
      LinkLane made;
      made.state = LinkLane::State::kMade;
      made.path = {.local = part->wish.device->id, .remote = device->physical};
      made.slot = part->wish.slot;
      made.remote_slot = theirs.slot;
      made.progress_at = now_;
      made.made_at = now_;
      link->lanes[{.index = theirs.index, .epoch = work->epoch}] = made;
      work->answer.lanes.push_back(part->made->end_lanes[i]);
      any = true;
    }
    if (any) {
      engine::EndDevice device = part->made->end_device;
      if (device.control_key == 0) device.control_key = link->control_keys[device.slot];
      work->answer.devices.push_back(device);
    }
    Discard(link.get(), std::move(part->made), part->wish.device->id);
  }
  if (!work->answer.lanes.empty()) {
    link->answers[work->epoch] = work->answer;
    link->made_epoch = std::max(link->made_epoch, work->epoch);
  }
  Send(*link, work->answer);
}

void Driver::TakeUp(Link* link, const engine::Up& up) {
  bool any = false;
  for (auto& [id, lane] : link->lanes) {
    if (id.epoch != up.epoch || lane.state != LinkLane::State::kMade) continue;
    lane.state = LinkLane::State::kUp;
    lane.progress_at = now_;
    any = true;
  }
  if (!any) return;
  std::vector<uint8_t> route;
  for (const LaneId& id : UpLanes(*link)) route.push_back(id.index);
  SetRoute(link, std::move(route));
  // What is open is announced again: its entries lack the keys of the new lanes' devices.
  link->info.recv->Reannounce(link->made_epoch);
  parts_.journal->Append({.time_ns = now_,
                          .kind = JournalEntry::Kind::kMoved,
                          .episode = link->episode,
                          .peer = link->info.peer,
                          .end = link->info.id,
                          .epoch = up.epoch,
                          .value = 1});
  dirty_.insert(link->info.id);
}

// ---- Leaving in order.

void Driver::RetireLanes(Link* link, const LaneIds& lanes, Cause cause) {
  std::vector<datapath::LaneRef> refs;
  for (const LaneId& id : lanes) {
    refs.push_back({.index = id.index, .epoch = id.epoch});
    link->lanes[id].state = LinkLane::State::kRetiring;
  }
  link->connection()->Retire(refs);
  DropFromRoute(link);
  parts_.journal->Append({.time_ns = now_,
                          .kind = JournalEntry::Kind::kRetired,
                          .local = link->lanes[lanes[0]].path.local,
                          .peer = link->info.peer,
                          .remote = link->lanes[lanes[0]].path.remote,
                          .end = link->info.id,
                          .epoch = link->machine.epoch(),
                          .cause = cause,
                          .value = lanes.size()});
  StepMachine(link, {.kind = FailoverEvent::Kind::kRetire, .lanes = lanes, .cause = cause});
  draining_.insert(link->info.id);
}

}  // namespace railhop::runtime
