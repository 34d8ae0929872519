// Leaving lanes by agreement with the other end: what the failover machine says is done here.

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/base/log.h"
#include "cc/runtime/driver.h"

namespace railhop::runtime {

using engine::Cause;
using engine::EndId;
using engine::FailoverAction;
using engine::FailoverEvent;
using engine::FailoverPhase;
using engine::LaneId;
using engine::LaneIds;
using engine::PathId;
using engine::PortState;

namespace {

constexpr int64_t kFencePauseNs = 100'000;
constexpr int64_t kFencePauseMaxNs = 5'000'000;
// Connections that go back to a port within this of each other are told of in one line.
constexpr int64_t kReturnQuietNs = 100'000'000;
// See Driver::Strike.
constexpr int64_t kYoungNs = 2'000'000'000;
constexpr int64_t kBreakerNs = 100'000'000;
constexpr int64_t kBreakerMaxNs = 60'000'000'000;
constexpr int64_t kStrikesForgottenNs = 120'000'000'000;
constexpr size_t kPathsMax = 1024;
// Lines about one port in a minute.
constexpr int kLinesMax = 20;
constexpr int64_t kLinesWindowNs = 60'000'000'000;
constexpr int64_t kHeldPauseNs = 1'000'000'000;
// Saying again what has had no answer though a session is there.
constexpr int64_t kRepeatNs = 1'000'000'000;

std::vector<datapath::LaneRef> Refs(const LaneIds& lanes) {
  std::vector<datapath::LaneRef> refs;
  refs.reserve(lanes.size());
  for (const LaneId& lane : lanes) refs.push_back({.index = lane.index, .epoch = lane.epoch});
  return refs;
}

// The receiver's record between the message's form and the data path's.
template <typename To, typename From>
To Converted(const From& record) {
  To out;
  out.complete_below = record.complete_below;
  out.next_sequence = record.next_sequence;
  for (const auto& transfer : record.open) {
    auto& open = out.open.emplace_back();
    open.sequence = transfer.sequence;
    for (const auto& receive : transfer.receives) {
      open.receives.push_back({.stripes = receive.stripes, .arrived = receive.arrived});
    }
  }
  return out;
}

std::string Milliseconds(int64_t ns) {
  return absl::StrCat(ns / 1'000'000, ".", (ns / 100'000) % 10, " ms");
}

// What a person should do next.
const char* NextStep(engine::Blame blame) {
  switch (blame) {
    case engine::Blame::kLocalPort:
    case engine::Blame::kLocalNicOrCable:
      return "check this port's cable, optics and switch port";
    case engine::Blame::kLocalNic:
      return "check this NIC (dmesg, firmware); it may need a reset after the job";
    case engine::Blame::kPath:
      return "check the switches between the two ports";
    case engine::Blame::kRemoteNic:
      return "check the port of the other host";
    case engine::Blame::kPeerProcess:
      return "see why the other process ended";
    case engine::Blame::kPeerHost:
      return "check the other host";
    case engine::Blame::kConfiguration:
      return "check addresses, VLAN, P_Key and MTU of the two ports";
    case engine::Blame::kUnknown:
    case engine::Blame::kNobody:
      break;
  }
  return "nothing to do";
}

bool IsPlanned(Cause cause) { return cause == Cause::kFailBack || cause == Cause::kDrain; }

}  // namespace

void Driver::SuspectLanes(Link* link, const LaneIds& lanes, Cause cause) {
  if (link->over || link->closing) return;
  LaneIds news;
  for (const LaneId& id : lanes) {
    const LinkLane* const lane = link->Find(id);
    if (lane != nullptr && lane->state < LinkLane::State::kSuspect) engine::AddLane(&news, id);
  }
  if (news.empty()) return;
  // No episode, and no warning: that a process which has ended does not answer is nobody's fault.
  if (link->peer_over) {
    EndAfterPeer(link);
    return;
  }
  for (const LaneId& id : news) {
    LinkLane* const lane = link->Find(id);
    JoinEpisode(link, *lane, cause);
    if (!IsPlanned(cause) && lane->path_known) CrossProbe(link->info.peer, lane->path, *link);
  }
  parts_.journal->Append({.time_ns = now_,
                          .kind = JournalEntry::Kind::kSuspect,
                          .episode = link->episode,
                          .local = link->Find(news[0])->path.local,
                          .peer = link->info.peer,
                          .remote = link->Find(news[0])->path.remote,
                          .end = link->info.id,
                          .epoch = link->machine.epoch(),
                          .cause = cause,
                          .value = news.size()});
  StepMachine(link, {.kind = FailoverEvent::Kind::kSuspect, .lanes = news, .cause = cause});
}

// A lane that fails soon after it was made, or cannot be made: if the path goes on answering
// probes, something is wrong that probes do not show, and making lanes on it again and again helps
// nobody.
void Driver::Strike(Link* link, PathId path) {
  Peer::Breaker& breaker = peers_[link->info.peer].breakers[path];
  // What fails while it is open already is the same failure.
  if (now_ >= breaker.until) {
    if (now_ - breaker.last > kStrikesForgottenNs) breaker.strikes = 0;
    breaker.last = now_;
    ++breaker.strikes;
    breaker.until = now_ + std::min(kBreakerMaxNs, kBreakerNs << std::min(breaker.strikes - 1, 10));
  }
  dirty_later_.insert({breaker.until, link->info.id});
  Schedule(breaker.until);
}

// Whether other ports reach the remote one, and this one reaches others: that tells who is to
// blame.
void Driver::CrossProbe(engine::InstanceId peer_id, PathId path, const Link& link) {
  const Peer& peer = peers_[peer_id];
  if (peer.paths.size() >= kPathsMax) return;
  std::vector<PathId> wanted;
  for (const auto& [physical, port] : ports_) {
    if (physical != path.local && port.health.MayEnter() && parts_.ports->active(physical)) {
      wanted.push_back({.local = physical, .remote = path.remote});
      break;
    }
  }
  for (const auto& [remote, report] : peer.ports) {
    if (remote != path.remote && report.state == engine::PortState::kActive) {
      wanted.push_back({.local = path.local, .remote = remote});
      break;
    }
  }
  for (const PathId& other : wanted) WantPath(peer_id, other, link);
}

template <typename Matches>
void Driver::SuspectWhere(const Matches& matches, Cause cause) {
  for (const auto& [id, link] : links_) {
    if (link->over || link->closing) continue;
    LaneIds lanes;
    for (const auto& [lane_id, lane] : link->lanes) {
      if (lane.state < LinkLane::State::kSuspect && matches(*link, lane)) {
        engine::AddLane(&lanes, lane_id);
      }
    }
    if (!lanes.empty()) SuspectLanes(link.get(), lanes, cause);
  }
}

void Driver::SuspectPath(engine::InstanceId peer, PathId path, Cause cause) {
  SuspectWhere(
      [&](const Link& link, const LinkLane& lane) {
        return link.info.peer == peer && lane.path_known && lane.path == path;
      },
      cause);
}

void Driver::SuspectLocal(int physical, Cause cause) {
  SuspectWhere(
      [physical](const Link&, const LinkLane& lane) { return lane.path.local == physical; }, cause);
}

void Driver::SuspectRemote(engine::InstanceId peer, int remote, Cause cause) {
  SuspectWhere(
      [peer, remote](const Link& link, const LinkLane& lane) {
        return link.info.peer == peer && lane.path_known && lane.path.remote == remote;
      },
      cause);
}

void Driver::SuspectOnDownPorts(Link* link) {
  const auto is_down = [](PortState state) {
    return state == PortState::kDown || state == PortState::kFatal;
  };
  const Peer& peer = peers_[link->info.peer];
  std::map<Cause, LaneIds> by_cause;
  for (const auto& [id, lane] : link->lanes) {
    if (lane.state >= LinkLane::State::kSuspect) continue;
    const LocalPort* const port = FindPort(lane.path.local);
    const auto remote = peer.ports.find(lane.path.remote);
    if (port != nullptr && is_down(port->health.state())) {
      const bool fatal = port->health.state() == PortState::kFatal;
      engine::AddLane(&by_cause[fatal ? Cause::kDeviceFatal : Cause::kPortDown], id);
    } else if (lane.path_known && remote != peer.ports.end() && is_down(remote->second.state)) {
      engine::AddLane(&by_cause[Cause::kPeer], id);
    }
  }
  for (const auto& [cause, lanes] : by_cause) SuspectLanes(link, lanes, cause);
}

void Driver::StepMachine(Link* link, const FailoverEvent& event) {
  const FailoverPhase before = link->machine.phase();
  std::deque<FailoverEvent> events = {event};
  while (!events.empty()) {
    const FailoverEvent next = std::move(events.front());
    events.pop_front();
    LaneIds fenced_already;
    for (const FailoverAction& action : link->machine.Step(next)) {
      Act(link, action, &fenced_already);
    }
    if (!fenced_already.empty()) {
      events.push_back({.kind = FailoverEvent::Kind::kFenced, .lanes = fenced_already});
    }
  }
  const FailoverPhase after = link->machine.phase();
  if (after != FailoverPhase::kRunning && after != FailoverPhase::kOver) {
    if (before == FailoverPhase::kRunning) {
      link->repeat_pause = kRepeatNs;
      link->repeat_at = now_ + link->repeat_pause;
    }
    if (link->hindered_since == 0 && link->route.empty()) link->hindered_since = now_;
  }
  dirty_.insert(link->info.id);
}

void Driver::Act(Link* link, const FailoverAction& action, LaneIds* fenced_already) {
  using Kind = FailoverAction::Kind;
  switch (action.kind) {
    case Kind::kStopPosting:
      link->connection()->StopPosting(Refs(action.lanes));
      for (const LaneId& id : action.lanes) {
        LinkLane* const lane = link->Find(id);
        if (lane == nullptr || lane->state >= LinkLane::State::kSuspect) continue;
        lane->state = LinkLane::State::kSuspect;
        JoinEpisode(link, *lane, action.cause);
        const bool of_lane = action.cause == Cause::kCompletion || action.cause == Cause::kPost ||
                             action.cause == Cause::kQueuePair || action.cause == Cause::kPeer;
        const bool young = lane->made_at != 0 && now_ - lane->made_at <= kYoungNs;
        if (of_lane && young && lane->path_known) Strike(link, lane->path);
      }
      DropFromRoute(link);
      break;
    case Kind::kFence:
      for (const LaneId& id : action.lanes) {
        LinkLane* const lane = link->Find(id);
        if (lane == nullptr || lane->state == LinkLane::State::kFenced) {
          engine::AddLane(fenced_already, id);
          // What is on its way goes with it.
          const auto answering = link->answering.find(id.epoch);
          if (answering != link->answering.end()) answering->second->wanted = false;
          if (link->offer != nullptr && link->offer->epoch == id.epoch) {
            DropOffer(link, "its lane was left");
          }
          continue;
        }
        if (lane->fence_wanted) continue;
        lane->fence_wanted = true;
        lane->fence_since = now_;
        lane->fence_at = now_;
        fences_.insert({link->info.id, id});
      }
      break;
    case Kind::kSendAsk:
      Send(*link, engine::Ask{.to = PeerEnd(*link),
                              .epoch = action.epoch,
                              .lanes = action.lanes,
                              .cause = action.cause});
      break;
    case Kind::kSendFence:
      Send(*link, engine::Fence{.to = PeerEnd(*link),
                                .epoch = action.epoch,
                                .lanes = action.lanes,
                                .cause = action.cause});
      break;
    case Kind::kSendRecord:
      SendRecord(link, action);
      break;
    case Kind::kResume:
      Resume(link, action);
      break;
    case Kind::kRetire: {
      link->connection()->Retire(Refs(action.lanes));
      for (const LaneId& id : action.lanes) {
        LinkLane* const lane = link->Find(id);
        if (lane != nullptr && lane->state <= LinkLane::State::kUp) {
          lane->state = LinkLane::State::kRetiring;
        }
      }
      DropFromRoute(link);
      draining_.insert(link->info.id);
      break;
    }
    case Kind::kSendQuiet:
      Send(*link, engine::Quiet{.to = PeerEnd(*link),
                                .epoch = action.epoch,
                                .lanes = action.lanes,
                                .cause = action.cause});
      break;
    case Kind::kFail:
      link->fail_by = now_ + 2 * options_.fence_bound;
      break;
  }
}

void Driver::SendRecord(Link* link, const FailoverAction& action) {
  engine::Record record = {.to = PeerEnd(*link), .epoch = action.epoch, .lanes = action.lanes};
  if (link->is_sender()) {
    datapath::SenderRecord ours = link->info.send->Record();
    record.sender = {.next_sequence = ours.next_sequence,
                     .announcements = std::move(ours.announcements)};
  } else {
    record.receiver = Converted<engine::ReceiverRecord>(link->info.recv->Record());
  }
  Send(*link, record);
}

void Driver::Resume(Link* link, const FailoverAction& action) {
  const engine::Record& peer = link->machine.peer_record();
  LaneIds over = action.lanes;
  if (!link->is_sender()) {
    // The sender names a newer lane of a place only once it is through with the older ones.
    for (const auto& [id, lane] : link->lanes) {
      const bool older =
          std::any_of(action.lanes.begin(), action.lanes.end(), [here = id](LaneId named) {
            return named.index == here.index && named.epoch > here.epoch;
          });
      if (older && lane.state == LinkLane::State::kFenced) engine::AddLane(&over, id);
    }
  }
  datapath::ResumeResult result;
  if (link->is_sender()) {
    result =
        link->info.send->Resume(Converted<datapath::ReceiverRecord>(peer.receiver), Refs(over));
  } else {
    // Not behind lanes that are up already: an older entry could not be used on them.
    result = link->info.recv->Resume(
        {.next_sequence = peer.sender.next_sequence, .announcements = peer.sender.announcements},
        Refs(action.lanes), std::max(action.epoch, link->made_epoch));
  }
  switch (result.status) {
    case datapath::ResumeResult::Status::kResumed:
      break;
    case datapath::ResumeResult::Status::kLost:
      GiveUp(
          link,
          absl::StrCat("transfer ", result.sequence,
                       " was acknowledged by a NIC that failed, nothing says that it has arrived, "
                       "and its buffer is in use again: the data counts as lost "
                       "(RAILHOP_CONFIRM_RECEIVES=1 prevents this)"),
          true);
      return;
    case datapath::ResumeResult::Status::kLie:
      GiveUp(link,
             absl::StrCat("the record of the other end cannot be true (transfer ", result.sequence,
                          ")"),
             true);
      return;
  }
  int left_port = -1;
  for (const LaneId& id : over) {
    const auto lane = link->lanes.find(id);
    if (lane == link->lanes.end()) continue;
    if (left_port < 0) left_port = lane->second.path.local;
    fences_.erase({link->info.id, id});
    link->lanes.erase(lane);
    // Of no lane any more: what was said of them need not be said again.
    const bool more = std::any_of(link->lanes.begin(), link->lanes.end(),
                                  [&](const auto& other) { return other.first.epoch == id.epoch; });
    if (!more) {
      link->ups.erase(id.epoch);
      link->answers.erase(id.epoch);
    }
  }
  failed_changed_ = true;
  link->resent_bytes += result.bytes;
  if (left_port >= 0) counts_.ports[left_port].resent_bytes += result.bytes;
  const auto episode = episodes_.find(link->episode);
  if (episode != episodes_.end() && episode->second.agreed == 0) episode->second.agreed = now_;
  parts_.journal->Count([&result](JournalCounters* counters) {
    counters->bytes_resent += result.bytes;
    counters->stripes_resent += result.stripes;
  });
  parts_.journal->Append({.time_ns = now_,
                          .kind = JournalEntry::Kind::kResumed,
                          .episode = link->episode,
                          .peer = link->info.peer,
                          .end = link->info.id,
                          .epoch = action.epoch,
                          .cause = link->machine.cause(),
                          .value = action.lanes.size(),
                          .bytes = result.bytes});
  dirty_.insert(link->info.id);
}

// ---- Fences.

void Driver::RunFences() {
  std::vector<std::pair<EndId, LaneId>> over;
  for (const auto& [end, id] : fences_) {
    const auto found = links_.find(end);
    LinkLane* const lane = found == links_.end() ? nullptr : found->second->Find(id);
    if (lane == nullptr || !lane->fence_wanted) {
      over.emplace_back(end, id);
      continue;
    }
    if (lane->fence_job) continue;
    if (lane->fence_at > now_) {
      Schedule(lane->fence_at);
      continue;
    }
    StartFence(found->second, id);
  }
  for (const auto& fence : over) fences_.erase(fence);
}

// What was registered on a device that has failed ends behind its lanes. Those of a connection that
// is being closed are nobody's any more, but for calls that are under way.
void Driver::EndFailed() {
  if (!std::exchange(failed_changed_, false) || failed_.empty()) return;
  std::erase_if(failed_, [this](int physical) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const auto& [id, link] : links_) {
      for (const auto& [lane_id, lane] : link->lanes) {
        if (lane.path.local != physical) continue;
        const bool has = link->closing ? lane.fence_job : lane.state != LinkLane::State::kFenced;
        if (has) return false;
      }
    }
    parts_.cover->EndGone(physical);
    return true;
  });
}

void Driver::StartFence(const std::shared_ptr<Link>& link, LaneId id) {
  LinkLane* const lane = link->Find(id);
  lane->fence_job = true;
  ++link->jobs;
  const LocalPort* const port = FindPort(lane->path.local);
  const bool failed = port != nullptr && port->health.state() == engine::PortState::kFatal;
  const bool last_try =
      now_ - lane->fence_since >= (failed ? options_.fence_bound_failed : options_.fence_bound);
  auto progress = std::make_shared<datapath::FenceProgress>(datapath::FenceProgress::kAgain);
  datapath::Connection* const connection = link->connection();
  const datapath::LaneRef ref = {.index = id.index, .epoch = id.epoch};
  parts_.executor->Run(
      lane->path.local,
      [connection, ref, last_try, progress] { *progress = connection->FenceLane(ref, last_try); },
      [this, link, id, progress]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        --link->jobs;
        FenceEnded(link, id, *progress);
      });
}

void Driver::FenceEnded(const std::shared_ptr<Link>& link, LaneId id,
                        datapath::FenceProgress progress) {
  LinkLane* const lane = link->Find(id);
  if (lane == nullptr) return;
  lane->fence_job = false;
  failed_changed_ = true;
  if (link->closing) return;
  switch (progress) {
    case datapath::FenceProgress::kAgain: {
      const int64_t so_far = now_ - lane->fence_since;
      lane->fence_at = now_ + std::clamp(so_far / 4, kFencePauseNs, kFencePauseMaxNs);
      Schedule(lane->fence_at);
      return;
    }
    case datapath::FenceProgress::kHeld:
      if (!lane->fence_held) {
        lane->fence_held = true;
        RAILHOP_LOG(kWarning,
                    "%s: a queue pair on %s can be neither drained nor destroyed; what it may "
                    "still write is not sent again until it is",
                    link->info.label.c_str(), PortName(lane->path.local).c_str());
      }
      lane->fence_at = now_ + kHeldPauseNs;
      Schedule(lane->fence_at);
      return;
    case datapath::FenceProgress::kFenced:
    case datapath::FenceProgress::kGone:
      break;
  }
  lane->fence_wanted = false;
  lane->state = LinkLane::State::kFenced;
  fences_.erase({link->info.id, id});
  StepMachine(link.get(), {.kind = FailoverEvent::Kind::kFenced, .lanes = {id}});
}

// ---- The end of a connection.

void Driver::GiveUp(Link* link, const std::string& reason, bool tell_peer) {
  if (link->over || link->closing) return;
  link->over = true;
  link->reason = reason;
  LaneIds all;
  for (const auto& [id, lane] : link->lanes) engine::AddLane(&all, id);
  DropOffer(link, "the connection is given up");
  StepMachine(link, {.kind = FailoverEvent::Kind::kGiveUp, .lanes = all});
  if (link->fail_by == 0) link->fail_by = now_ + 2 * options_.fence_bound;
  if (tell_peer) {
    Send(*link, OverOf(*link, true, reason));
  }
  parts_.journal->Append({.time_ns = now_,
                          .kind = JournalEntry::Kind::kGaveUp,
                          .episode = link->episode,
                          .peer = link->info.peer,
                          .end = link->info.id,
                          .epoch = link->machine.epoch(),
                          .text = reason});
  LeaveEpisode(link, false);
  FinishGiveUp(link);
}

// Nobody is there any more who could agree on anything. What had arrived there is done all the
// same.
void Driver::EndAfterPeer(Link* link) {
  const bool plain = link->peer_reason == kClosed;
  GiveUp(link,
         absl::StrCat(link->info.peer_host, " has closed its end", plain ? "" : ": ",
                      plain ? "" : link->peer_reason),
         false);
}

// The data path is told once nothing can write any more, or the bound has passed.
void Driver::FinishGiveUp(Link* link) {
  if (!link->over || link->failed || link->closing) return;
  const bool fenced = std::all_of(link->lanes.begin(), link->lanes.end(), [](const auto& entry) {
    return entry.second.state == LinkLane::State::kFenced;
  });
  if (!fenced && now_ < link->fail_by) {
    Schedule(link->fail_by);
    return;
  }
  link->failed = true;
  if (link->is_sender()) link->info.send->CompleteBelow(link->peer_complete_below);
  link->connection()->GiveUp(datapath::Outcome::kRemote,
                             {.kind = datapath::Fault::Kind::kGiveUp, .fatal = true});
  // After an orderly end of the other side nobody may ever use it again; whoever does is told.
  const bool orderly = link->peer_over || peers_[link->info.peer].goodbye;
  if (orderly) {
    RAILHOP_LOG(kInfo, "%s: the connection has ended: %s", link->info.label.c_str(),
                link->reason.c_str());
  } else {
    RAILHOP_LOG(kWarning, "%s: the connection is given up: %s", link->info.label.c_str(),
                link->reason.c_str());
  }
}

// ---- Episodes.

// When something last came through on a path, as far as this connection can tell; now, if that is
// not known.
int64_t Driver::LastSignOn(const Link& link, PathId path) const {
  int64_t last = 0;
  for (const auto& [id, lane] : link.lanes) {
    if (lane.path == path) last = std::max(last, lane.progress_at);
  }
  const auto peer = peers_.find(link.info.peer);
  if (peer != peers_.end()) {
    const auto health = peer->second.paths.find(path);
    if (health != peer->second.paths.end()) last = std::max(last, health->second.last_answer());
  }
  return last == 0 ? now_ : std::min(last, now_);
}

void Driver::JoinEpisode(Link* link, const LinkLane& lane, Cause cause) {
  // One that ends says so itself, and goes nowhere.
  if (IsPlanned(cause) || link->over) return;
  const PathId path = lane.path;
  // What was lost while a port was down for a moment is missed much later: when the threshold is
  // over at the end that waits for it, which this end may only hear of, once there is a session.
  const int64_t slack = options_.health.stall / 4 + 2 * tick_ns_;
  const int64_t heard_late = 4 * options_.health.stall;
  const Peer& talker = peers_[link->info.peer];
  const int64_t told = now_ - talker.up_at < heard_late ? talker.lost_at : now_;
  const int64_t still = cause == Cause::kPeer ? told - heard_late : lane.progress_at - slack;
  const int64_t hit_from = std::min(now_ - options_.judge_after, still);
  const engine::InstanceId peer = link->info.peer;
  const EndId end = link->info.id;
  if (link->episode != 0) {
    const auto present = episodes_.find(link->episode);
    if (present != episodes_.end() && present->second.open.contains(end)) return;
  }
  // What came to nothing before says nothing of the lanes that are needed now.
  link->offer_failures = 0;
  link->offer_at = 0;
  for (auto& [id, episode] : episodes_) {
    if (episode.open.empty()) continue;
    const bool same_local = episode.local == path.local;
    const bool same_remote =
        episode.peer == peer && path.remote >= 0 && episode.remote == path.remote;
    if (!same_local && !same_remote) continue;
    episode.open.insert(end);
    episode.hit_from = std::min(episode.hit_from, hit_from);
    ++episode.touched;
    ++link->episodes;
    // A better reason may come after the first sign.
    const bool of_port = cause == Cause::kPortDown || cause == Cause::kDeviceFatal;
    if (same_local && of_port) episode.cause = cause;
    link->episode = id;
    return;
  }
  Episode episode;
  episode.id = ++last_episode_;
  episode.since = now_;
  episode.hit_from = hit_from;
  episode.local = path.local;
  episode.peer = peer;
  episode.remote = path.remote;
  episode.cause = cause;
  episode.open.insert(end);
  episode.touched = 1;
  link->episode = episode.id;
  ++link->episodes;
  episode.detect_ns = now_ - LastSignOn(*link, path);
  episodes_[episode.id] = std::move(episode);
}

// A process that ends takes its queue pairs along: both are seen within so long.
constexpr int64_t kGoodbyeNs = 10'000'000;

engine::Blame Driver::JudgeEpisode(const Episode& episode) const {
  engine::Evidence evidence;
  evidence.peer = episode.peer;
  evidence.path = {.local = episode.local, .remote = episode.remote};
  evidence.cause = episode.cause;
  // As it was when the episode began: it may be back by the time that it is judged.
  const auto port = ports_.find(episode.local);
  const bool was_down =
      port != ports_.end() && port->second.down_at != 0 && port->second.down_at >= episode.hit_from;
  evidence.local_port_active =
      episode.cause != Cause::kPortDown && !was_down && parts_.ports->active(episode.local);
  evidence.local_device_failed =
      episode.cause == Cause::kDeviceFatal || parts_.ports->failed(episode.local);
  for (const auto& [id, peer] : peers_) {
    if (id == episode.peer) {
      const auto remote = peer.ports.find(episode.remote);
      if (remote != peer.ports.end()) {
        const auto down = peer.down_at.find(episode.remote);
        evidence.remote_port_down =
            remote->second.state == engine::PortState::kDown ||
            (down != peer.down_at.end() && down->second >= episode.hit_from);
        evidence.remote_device_failed = remote->second.state == engine::PortState::kFatal;
      }
      // Who leaves long after the fault, since all is done, is not its reason.
      evidence.peer_said_goodbye = peer.goodbye && peer.goodbye_at <= episode.since + kGoodbyeNs;
      evidence.peer_refused = peer.dead_since != 0 && !peer.goodbye;
      evidence.channel_up = peer.up;
    }
    for (const auto& [path, health] : peer.paths) {
      evidence.paths.push_back({.peer = id,
                                .path = path,
                                .answers = health.state() == engine::PathState::kGood ||
                                           health.state() == engine::PathState::kHeld,
                                .ever_answered = health.last_answer() != 0 || HasCarried(id, path),
                                .known = peer.tried.contains(path)});
    }
  }
  return engine::Judge(evidence);
}

// Whether data has moved on a path, which proves as much as a probe.
bool Driver::HasCarried(engine::InstanceId peer, PathId path) const {
  return std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
    const Link& link = *entry.second;
    return link.info.peer == peer &&
           std::any_of(link.lanes.begin(), link.lanes.end(), [&path](const auto& lane) {
             return lane.second.path == path && lane.second.progressed > 0;
           });
  });
}

void Driver::LeaveEpisode(Link* link, bool recovered) {
  if (link->episode == 0) return;
  const auto found = episodes_.find(link->episode);
  const EndId end = link->info.id;
  link->episode = 0;
  if (found == episodes_.end()) return;
  Episode& episode = found->second;
  episode.open.erase(end);
  episode.bytes += link->resent_bytes;
  link->resent_bytes = 0;
  if (recovered) {
    for (const auto& [id, lane] : link->lanes) {
      if (lane.state == LinkLane::State::kUp) episode.over.insert(lane.path.local);
    }
  }
}

// Two lines for an episode, whatever the number of its connections.

void Driver::TellBegin(Episode* episode) {
  episode->told = true;
  episode->blame = JudgeEpisode(*episode);
  ++counts_.faults[static_cast<size_t>(episode->cause)];
  ++counts_.ports[episode->local].faults;
  parts_.journal->Append({.time_ns = now_,
                          .kind = JournalEntry::Kind::kEpisode,
                          .episode = episode->id,
                          .local = episode->local,
                          .peer = episode->peer,
                          .remote = episode->remote,
                          .cause = episode->cause,
                          .blame = episode->blame,
                          .value = static_cast<uint64_t>(episode->touched)});
  const auto peer = peers_.find(episode->peer);
  const std::string line = absl::StrCat(
      PortName(episode->local), " to ", peer == peers_.end() ? "a peer" : peer->second.host, ": ",
      CauseText(episode->cause), " (", engine::BlameText(episode->blame), "); ", episode->touched,
      " connection(s) leave it for other ports, the job goes on; ", NextStep(episode->blame));
  TellLine(*episode, line);
}

// A port that fails over and over says so a few times, then it is counted only.
void Driver::TellLine(const Episode& episode, const std::string& line) {
  Lines& lines = lines_[episode.local];
  if (now_ - lines.since > kLinesWindowNs) {
    if (lines.untold > 0) {
      RAILHOP_LOG(kWarning, "%s: %d more lines like the next were not written in the last minute",
                  PortName(episode.local).c_str(), lines.untold);
    }
    lines = {.since = now_};
  }
  const bool quiet = episode.cause == Cause::kCommand;
  if (!quiet && ++lines.told > kLinesMax) {
    ++lines.untold;
    RAILHOP_LOG(kTrace, "%s", line.c_str());
  } else if (quiet) {
    RAILHOP_LOG(kInfo, "%s", line.c_str());
  } else {
    RAILHOP_LOG(kWarning, "%s", line.c_str());
  }
}

void Driver::TellEnd(Episode* episode) {
  if (episode->over.empty()) return;  // all its connections have ended
  episode->blame = JudgeEpisode(*episode);
  std::vector<std::string> over;
  for (const int physical : episode->over) over.push_back(PortName(physical));
  const int64_t took = episode->ended - episode->since;
  parts_.journal->Append({.time_ns = now_,
                          .kind = JournalEntry::Kind::kRecovered,
                          .episode = episode->id,
                          .local = episode->local,
                          .peer = episode->peer,
                          .remote = episode->remote,
                          .cause = episode->cause,
                          .blame = episode->blame,
                          .value = static_cast<uint64_t>(took),
                          .bytes = episode->bytes,
                          .text = absl::StrJoin(over, ", ")});
  const auto peer = peers_.find(episode->peer);
  const std::string line = absl::StrCat(
      PortName(episode->local), " to ", peer == peers_.end() ? "a peer" : peer->second.host,
      ": recovered after ", Milliseconds(took), ": ", episode->touched,
      " connection(s) go on over ", absl::StrJoin(over, ", "), ", ", episode->bytes,
      " bytes were sent again (", engine::BlameText(episode->blame), ")");
  TellLine(*episode, line);
}

void Driver::KeepEpisode(const Episode& episode) {
  const EpisodeView view = ViewOf(episode);
  past_.push_back(view);
  if (past_.size() > kPastEpisodes) past_.pop_front();
  if (!view.recovered) return;
  counts_.detect.Add(view.detect_ns);
  if (view.agree_ns > 0) counts_.agree.Add(view.agree_ns);
  counts_.resume.Add(view.resume_ns);
}

void Driver::TellEpisodes() {
  std::vector<uint64_t> ended;
  for (auto& [id, episode] : episodes_) {
    if (episode.open.empty() && episode.ended == 0) episode.ended = now_;
    // Only probes tell whose fault silence or an error is; a port that is down says it itself.
    const bool plain = episode.cause == Cause::kPortDown || episode.cause == Cause::kDeviceFatal ||
                       episode.cause == Cause::kCommand;
    const int64_t due = episode.since + options_.judge_after;
    if (!episode.told && !plain && now_ < due) {
      Schedule(due);
      continue;
    }
    if (!episode.told) TellBegin(&episode);
    if (episode.ended == 0) continue;
    TellEnd(&episode);
    KeepEpisode(episode);
    ended.push_back(id);
  }
  for (const uint64_t id : ended) episodes_.erase(id);
  for (auto it = returns_.begin(); it != returns_.end();) {
    const int64_t due = it->second.last + kReturnQuietNs;
    if (now_ < due) {
      Schedule(due);
      ++it;
      continue;
    }
    RAILHOP_LOG(kInfo, "%s: %d connection(s) are back on it", PortName(it->first).c_str(),
                it->second.connections);
    it = returns_.erase(it);
  }
}

}  // namespace railhop::runtime
