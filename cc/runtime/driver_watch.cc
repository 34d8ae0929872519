// What only time shows: lanes that stand still, peers that are silent or dead, connections that
// nothing can carry.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/runtime/driver.h"

namespace railhop::runtime {

using engine::Cause;
using engine::EndId;
using engine::FailoverEvent;
using engine::FailoverPhase;
using engine::LaneId;
using engine::LaneIds;

namespace {

constexpr int64_t kDrainLookNs = 1'000'000;
constexpr int64_t kRepeatMaxNs = 30'000'000'000;

}  // namespace

void Driver::Watch() {
  // Links that are due by themselves.
  while (!dirty_later_.empty() && dirty_later_.begin()->first <= now_) {
    dirty_.insert(dirty_later_.begin()->second);
    dirty_later_.erase(dirty_later_.begin());
  }
  if (!dirty_later_.empty()) Schedule(dirty_later_.begin()->first);

  const std::set<EndId> draining = draining_;
  for (const EndId& end : draining) {
    Link* const link = FindLink(end);
    bool still = false;
    if (link != nullptr && !link->over) {
      LaneIds drained;
      for (auto& [id, lane] : link->lanes) {
        if (lane.state != LinkLane::State::kRetiring || lane.drained) continue;
        if (link->connection()->Drained({.index = id.index, .epoch = id.epoch})) {
          lane.drained = true;
          engine::AddLane(&drained, id);
        } else {
          still = true;
        }
      }
      if (!drained.empty()) {
        StepMachine(link, {.kind = FailoverEvent::Kind::kDrained, .lanes = drained});
      }
    }
    if (still) {
      Schedule(now_ + kDrainLookNs);
    } else {
      draining_.erase(end);
    }
  }

  if (now_ < watch_at_) return;
  watch_at_ = now_ + tick_ns_;
  for (const auto& [id, link] : links_) {
    if (!link->closing) WatchLink(link);
  }
  for (auto& [peer_id, peer] : peers_) {
    std::vector<engine::PathId> due;
    for (const auto& [path, health] : peer.paths) {
      if (health.next_due() <= now_) due.push_back(path);
    }
    for (const engine::PathId& path : due) {
      PathEvent(peer_id, path, engine::PathEvent::Kind::kTick, Cause::kStall);
    }
  }
  WatchPeers();
}

void Driver::WatchLink(const std::shared_ptr<Link>& link) {
  if (link->over) {
    FinishGiveUp(link.get());
    // Late completions are taken all the same.
    return;
  }
  // A connection with nothing under way is looked at less often.
  if (now_ >= link->watch_at) {
    link->views.clear();
    link->connection()->Observe(&link->views);
    bool owed = false;
    for (const datapath::LaneView& view : link->views) {
      owed = owed || view.owed;
      WatchLane(link.get(), view);
      if (link->over) return;
    }
    CheckArrivals(link.get());
    link->watch_at = owed ? now_ : now_ + options_.health.stall / 8;
    TakeFaults(link.get());
    if (link->over) return;
  }
  WatchOffers(link);
  if (link->over) return;
  const bool wants_repeat =
      link->machine.phase() != FailoverPhase::kRunning || !link->machine.retiring().empty();
  if (wants_repeat && now_ >= link->repeat_at) {
    if (link->repeat_at != 0) StepMachine(link.get(), {.kind = FailoverEvent::Kind::kRepeat});
    link->repeat_pause = std::clamp<int64_t>(link->repeat_pause * 2, 500'000'000, kRepeatMaxNs);
    link->repeat_at = now_ + link->repeat_pause / 2 +
                      static_cast<int64_t>(prng_.Below(static_cast<uint64_t>(link->repeat_pause)));
  } else if (!wants_repeat) {
    link->repeat_pause = 0;
    link->repeat_at = 0;
  }
  if (link->hindered_since != 0 && now_ - link->hindered_since >= options_.give_up) {
    const Peer& peer = peers_[link->info.peer];
    // On every path and over TCP: more than one port's fault.
    const bool silent = !peer.up && peer.last_answer < link->hindered_since;
    GiveUp(link.get(),
           absl::StrCat(
               silent ? "the peer's host is silent on every path and on the control channel; " : "",
               "no path to ", link->info.peer_host, " has worked for ",
               options_.give_up / 1'000'000'000, " s (RAILHOP_GIVE_UP_TIME): tried ",
               peer.paths.size(), " paths, control channel ", peer.up ? "up" : "down"),
           true);
  }
}

// A call on a sick device may hang though its port answers probes: the path is left alone for a
// while, else it would be chosen again and again though another works. That there is no answer at
// all says nothing of a path: the peer's process may stand still.
void Driver::WatchOffers(const std::shared_ptr<Link>& link) {
  const std::shared_ptr<PendingOffer> offer = link->offer;
  if (offer != nullptr && now_ - offer->since > options_.offer_bound) {
    for (const auto& part : offer->parts) {
      if (part->ended) continue;
      for (const PendingOffer::Leg& leg : offer->legs) {
        if (leg.path.local == part->wish.device->id) Strike(link.get(), leg.path);
      }
    }
    DropOffer(link.get(), "no answer in time");
  }
  std::vector<std::shared_ptr<PendingOffer>> due;
  for (const auto& [epoch, work] : link->answering) {
    if (now_ - work->since > options_.offer_bound / 4 * 3) due.push_back(work);
  }
  for (const auto& work : due) {
    LeaveHanging(link.get(), work.get());
    OfferAnswered(link, work);
  }
}

void Driver::WatchLane(Link* link, const datapath::LaneView& view) {
  const LaneId id = {.index = view.lane.index, .epoch = view.lane.epoch};
  LinkLane* const lane = link->Find(id);
  if (lane == nullptr || lane->state >= LinkLane::State::kSuspect) return;
  if (view.progressed != lane->progressed || !view.owed || lane->progress_at == 0) {
    lane->progressed = view.progressed;
    lane->progress_at = now_;
    lane->doubted = false;
    lane->inquiry = 0;
    lane->heard.reset();
    return;
  }
  const int64_t stall = options_.health.stall;
  const int64_t still = now_ - lane->progress_at;
  if (still < stall / 2) return;
  if (!lane->doubted) {
    lane->doubted = true;
    ++counts_.ports[lane->path.local].stalls;
    // Whether the path answers decides, at the threshold.
    if (lane->path_known) {
      PathEvent(link->info.peer, lane->path, engine::PathEvent::Kind::kStalled, Cause::kStall);
    }
    return;
  }
  if (still < stall) return;
  // The path answers, or it would have been left by now. Entries need nothing of the peer's
  // software: a lane that has not got one through in twice the threshold has failed.
  const auto& paths = peers_[link->info.peer].paths;
  const auto health = paths.find(lane->path);
  const bool answers = health != paths.end() && health->second.last_answer() > lane->progress_at;
  if (!answers) return;
  if (!link->is_sender()) {
    if (still >= 2 * stall) SuspectLanes(link, {id}, Cause::kStall);
    return;
  }
  // A sender asks what the peer sees: slow is not dead. Until there is an answer it is the same
  // question, since the answer may take longer than the threshold.
  const bool due = !lane->heard.has_value() || now_ - lane->heard_at >= stall;
  if (!due || (lane->inquiry != 0 && now_ - lane->inquired_at < stall)) return;
  if (lane->inquiry == 0) lane->inquiry = ++link->inquiries;
  Send(*link, engine::Inquiry{.to = PeerEnd(*link), .serial = lane->inquiry});
  lane->inquired_at = now_;
}

// What is acknowledged and does not arrive leaves both ends waiting, with nothing under way: a
// queue pair that fails in this way shows no error and no stall (rule 4). So once a lane has been
// quiet for the threshold, the other end is asked what it has. One question for each time that a
// connection comes to rest.
void Driver::CheckArrivals(Link* link) {
  const int64_t stall = options_.health.stall;
  bool unproved = false;
  bool rests = true;
  for (const datapath::LaneView& view : link->views) {
    LinkLane* const lane = link->Find({.index = view.lane.index, .epoch = view.lane.epoch});
    if (lane == nullptr || lane->state != LinkLane::State::kUp) continue;
    if (lane->posted != view.posted || lane->posted_at == 0) {
      lane->posted = view.posted;
      lane->posted_at = now_;
      lane->missing_since = 0;
      link->check_pause = 0;
      link->check_at = std::min(link->check_at, now_ + stall);
    }
    lane->rests = view.outstanding == 0 && now_ - lane->posted_at >= stall;
    rests = rests && lane->rests;
    unproved = unproved || (lane->rests && lane->proved != lane->posted);
  }
  const bool may_ask = link->machine.phase() == FailoverPhase::kRunning && !link->route.empty() &&
                       now_ >= link->check_at && peers_[link->info.peer].up;
  if (!may_ask || !(unproved || (rests && IsUnconfirmed(*link)))) return;
  for (auto& [id, lane] : link->lanes) lane.checked = lane.rests ? lane.posted : 0;
  link->check = ++link->inquiries;
  link->check_sequence = link->is_sender() ? 0 : link->info.recv->Record().next_sequence;
  link->check_pause = std::clamp(2 * link->check_pause, stall, std::max(stall, kRepeatMaxNs));
  link->check_at = now_ + link->check_pause;
  Send(*link, engine::Inquiry{.to = PeerEnd(*link), .serial = link->check});
}

// Whether sends wait for the receiver's word that they have arrived.
bool Driver::IsUnconfirmed(const Link& link) {
  if (!link.is_sender() || !link.info.send->rules().confirm) return false;
  const datapath::SenderRecord record = link.info.send->Record();
  return record.confirmed_below < record.next_sequence;
}

void Driver::TakeCheck(Link* link, const engine::Account& account) {
  link->check = 0;
  // A confirmation is an entry like any other, on whichever lane.
  const bool confirmed = !link->is_sender() || !link->info.send->rules().confirm ||
                         link->info.send->Record().confirmed_below >= account.last_announced;
  bool all = true;
  LaneIds lost;
  for (auto& [id, lane] : link->lanes) {
    if (lane.checked == 0 || lane.state != LinkLane::State::kUp) continue;
    bool arrived = account.last_announced + 1 >= link->check_sequence;
    if (link->is_sender()) {
      const auto count = std::find_if(account.lanes.begin(), account.lanes.end(),
                                      [here = id](const auto& c) { return c.lane == here; });
      // It has left the lane by now: records are compared anyway.
      if (count == account.lanes.end() || !count->may_arrive) continue;
      arrived = count->arrived >= lane.checked && confirmed;
    }
    all = all && arrived;
    if (arrived) {
      lane.proved = lane.checked;
      lane.missing_since = 0;
    } else if (lane.missing_since == 0) {
      lane.missing_since = now_;
    } else if (now_ - lane.missing_since >= options_.health.stall) {
      engine::AddLane(&lost, id);
    }
    lane.checked = 0;
  }
  // What is missing is asked for again soon; what the other end has not finished yet, ever less.
  if (!all) {
    link->check_pause = 0;
    link->check_at = now_ + options_.health.stall;
  }
  if (!lost.empty()) SuspectLanes(link, lost, Cause::kStall);
}

void Driver::TakeInquiry(Link* link, const engine::Inquiry& inquiry) {
  link->views.clear();
  link->connection()->Observe(&link->views);
  engine::Account account = {.to = PeerEnd(*link), .serial = inquiry.serial};
  if (link->is_sender()) {
    const datapath::SenderRecord record = link->info.send->Record();
    account.next_sequence = record.next_sequence;
    uint64_t next = record.next_sequence;
    for (const uint64_t sequence : record.announcements) {
      if (sequence == next) ++next;
    }
    account.last_announced = next - 1;
  } else {
    const datapath::ReceiverRecord record = link->info.recv->Record();
    account.next_sequence = record.next_sequence;
    account.last_announced = record.complete_below;
  }
  for (const datapath::LaneView& view : link->views) {
    if (account.lanes.size() == datapath::kLanesMax) break;
    account.lanes.push_back({.lane = {.index = view.lane.index, .epoch = view.lane.epoch},
                             .posted = view.posted,
                             .arrived = view.arrived,
                             .may_arrive = view.state <= datapath::LaneState::kRetiring});
  }
  Send(*link, account);
}

void Driver::TakeAccount(Link* link, const engine::Account& account) {
  if (link->check != 0 && link->check == account.serial) return TakeCheck(link, account);
  if (!link->is_sender()) return;
  LaneIds stuck;
  for (const engine::LaneCount& count : account.lanes) {
    LinkLane* const lane = link->Find(count.lane);
    if (lane == nullptr || lane->inquiry == 0 || lane->inquiry != account.serial) continue;
    lane->inquiry = 0;
    if (lane->state >= LinkLane::State::kSuspect) continue;
    if (!lane->heard.has_value() || *lane->heard != count.arrived) {
      lane->heard = count.arrived;
      lane->heard_at = now_;
      continue;
    }
    // Its receives are posted, its software answers, the path answers, and for a further threshold
    // nothing has arrived on this lane.
    if (count.may_arrive && now_ - lane->heard_at >= options_.health.stall) {
      engine::AddLane(&stuck, count.lane);
    }
  }
  if (!stuck.empty()) SuspectLanes(link, stuck, Cause::kStall);
}

void Driver::WatchPeers() {
  for (auto& [peer_id, peer] : peers_) {
    // A host that died before any of its paths was proved leaves nothing that could be seen to
    // fail: an end that only waits would wait for ever.
    if (peer.up || peer.silent_since == 0 || peer.last_answer >= peer.silent_since ||
        now_ - peer.silent_since < options_.give_up) {
      continue;
    }
    const std::set<EndId> silent = peer.links;
    for (const EndId& end : silent) {
      Link* const link = FindLink(end);
      if (link == nullptr || link->over) continue;
      GiveUp(link,
             absl::StrCat("the peer's host, ", peer.host,
                          ", is silent on every path and on the control channel for ",
                          options_.give_up / 1'000'000'000, " s (RAILHOP_GIVE_UP_TIME)"),
             false);
    }
  }
  for (auto& [peer_id, peer] : peers_) {
    if (peer.dead_since == 0 || peer.up) continue;
    if (now_ - peer.dead_since < options_.death_bound) continue;
    // Its process answers nowhere; while a path answers (a NIC may, for a while) it is not given
    // up, unless it has said goodbye.
    if (!peer.goodbye && peer.last_answer > peer.dead_since + options_.death_bound / 2) continue;
    const std::set<EndId> ends = peer.links;
    bool any = false;
    for (const EndId& end : ends) {
      Link* const link = FindLink(end);
      if (link == nullptr || link->over) continue;
      any = true;
      GiveUp(link,
             absl::StrCat("the process at ", peer.host, " has ended (",
                          peer.death.empty() ? "its connection was refused" : peer.death, ")"),
             false);
    }
    if (any) {
      parts_.journal->Append({.time_ns = now_,
                              .kind = JournalEntry::Kind::kPeerLost,
                              .peer = peer_id,
                              .blame = engine::Blame::kPeerProcess,
                              .text = peer.death});
    }
  }
}

}  // namespace railhop::runtime
