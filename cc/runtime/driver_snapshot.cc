// A copy of what the driver knows. One lock, and nothing in it that waits.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/runtime/driver.h"

namespace railhop::runtime {

DriverSnapshot::Link Driver::ViewOf(const Link& link) const {
  DriverSnapshot::Link view;
  view.id = link.info.id;
  view.peer = link.info.peer;
  view.comm = link.info.comm;
  view.label = link.info.label;
  view.epoch = link.machine.epoch();
  view.over = link.over;
  view.no_path = link.no_path_told;
  view.running = link.machine.phase() == engine::FailoverPhase::kRunning;
  view.hindered_since = link.hindered_since;
  view.reason = link.reason;
  view.episodes = link.episodes;
  for (const BaseLane& base : link.info.base) {
    const int home = Renewed(base.local);
    if (std::find(view.home.begin(), view.home.end(), home) == view.home.end()) {
      view.home.push_back(home);
    }
  }
  for (const auto& [id, lane] : link.lanes) {
    if (lane.state > LinkLane::State::kRetiring) continue;
    const int home = Renewed(link.info.base[static_cast<size_t>(lane.base)].local);
    view.lanes.push_back({.local = lane.path.local,
                          .backup = lane.path.local != home,
                          .up = lane.state == LinkLane::State::kUp});
  }
  return view;
}

EpisodeView Driver::ViewOf(const Episode& episode) const {
  EpisodeView view;
  view.id = episode.id;
  view.begin = episode.since;
  view.end = episode.ended;
  view.local = episode.local;
  view.peer = episode.peer;
  const auto peer = peers_.find(episode.peer);
  if (peer != peers_.end()) {
    view.peer_host = peer->second.host;
    view.peer_port = RemotePortName(peer->second, episode.remote);
  }
  view.cause = episode.cause;
  view.blame = episode.blame;
  view.connections = episode.touched;
  view.bytes_resent = episode.bytes;
  view.detect_ns = episode.detect_ns;
  view.agree_ns = episode.agreed == 0 ? 0 : std::max<int64_t>(episode.agreed - episode.since, 1);
  view.resume_ns = episode.ended == 0 || episode.over.empty()
                       ? 0
                       : std::max<int64_t>(episode.ended - episode.since, 1);
  view.over.assign(episode.over.begin(), episode.over.end());
  view.recovered = episode.ended != 0 && !episode.over.empty();
  return view;
}

DriverSnapshot::Peer Driver::ViewOf(const Peer& peer) {
  DriverSnapshot::Peer view = {.host = peer.host, .up = peer.up, .ports = {}};
  for (const auto& [remote, report] : peer.ports) view.ports[remote] = RemotePortName(peer, remote);
  return view;
}

std::string Driver::RemotePortName(const Peer& peer, int remote) {
  const auto port = peer.ports.find(remote);
  if (port == peer.ports.end()) return "";
  return absl::StrCat(port->second.name, ":", port->second.port);
}

DriverSnapshot Driver::Snapshot() const {
  DriverSnapshot snapshot;
  absl::MutexLock lock(&mutex_);
  snapshot.now = now_;
  snapshot.counts = counts_;
  for (const auto& [physical, port] : ports_) {
    DriverSnapshot::Port view;
    view.device = port.device;
    view.state = port.health.state();
    view.command = port.health.command();
    view.known = parts_.ports->known(physical);
    view.facts = parts_.ports->facts(physical);
    view.since = port.since;
    view.cause = port.cause;
    view.covered = std::all_of(links_.begin(), links_.end(), [&, id = physical](const auto& link) {
      return link.second->closing || parts_.cover->Covers(link.second->info.comm, id);
    });
    snapshot.ports.push_back(std::move(view));
  }
  snapshot.peers = gone_;
  for (const auto& [id, peer] : peers_) {
    snapshot.peers[id] = ViewOf(peer);
    for (const auto& [path, health] : peer.paths) {
      DriverSnapshot::Path& shown = snapshot.paths.emplace_back();
      shown.peer = id;
      shown.path = path;
      shown.state = health.state();
      shown.last_answer = health.last_answer();
      shown.held_until = health.held_until();
      shown.flaps = health.flaps();
      const auto trace = peer.traces.find(path);
      if (trace == peer.traces.end()) continue;
      shown.since = trace->second.since;
      shown.cause = trace->second.cause;
      shown.probes_sent = trace->second.sent;
      shown.probes_lost = trace->second.lost;
    }
  }
  for (const auto& [id, link] : links_) {
    if (!link->closing) snapshot.links.push_back(ViewOf(*link));
  }
  snapshot.episodes.assign(past_.begin(), past_.end());
  for (const auto& [id, episode] : episodes_) snapshot.episodes.push_back(ViewOf(episode));
  std::sort(snapshot.episodes.begin(), snapshot.episodes.end(),
            [](const EpisodeView& a, const EpisodeView& b) { return a.id < b.id; });
  return snapshot;
}

}  // namespace railhop::runtime
