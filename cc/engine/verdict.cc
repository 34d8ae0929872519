#include "cc/engine/verdict.h"

#include <algorithm>

namespace railhop::engine {

namespace {

// What the paths with something in common say.
struct Tally {
  int known = 0;
  int answer = 0;
  int ever = 0;
  bool AllSilent() const { return known > 0 && answer == 0; }
};

template <typename Wanted>
Tally Count(const Evidence& evidence, Wanted wanted) {
  Tally tally;
  for (const PathEvidence& path : evidence.paths) {
    if (!path.known || !wanted(path)) continue;
    ++tally.known;
    if (path.answers) ++tally.answer;
    if (path.answers || path.ever_answered) ++tally.ever;
  }
  return tally;
}

// Peers over this local port.
int Peers(const Evidence& evidence) {
  std::vector<InstanceId> peers;
  for (const PathEvidence& path : evidence.paths) {
    if (path.known && path.path.local == evidence.path.local) peers.push_back(path.peer);
  }
  std::sort(peers.begin(), peers.end());
  return static_cast<int>(std::unique(peers.begin(), peers.end()) - peers.begin());
}

// By what answers and what does not. Silence over a port counts against it only where the other end
// of the silent paths is known to work, or is many.
Blame JudgePaths(const Evidence& evidence) {
  const InstanceId peer = evidence.peer;
  const PathId at = evidence.path;
  const Tally to_peer = Count(evidence, [&](const PathEvidence& p) { return p.peer == peer; });
  const Tally over_local =
      Count(evidence, [&](const PathEvidence& p) { return p.path.local == at.local; });
  const Tally to_remote = Count(evidence, [&](const PathEvidence& p) {
    return p.peer == peer && p.path.remote == at.remote;
  });
  const Tally elsewhere_to_remote = Count(evidence, [&](const PathEvidence& p) {
    return p.peer == peer && p.path.remote == at.remote && p.path.local != at.local;
  });
  const Tally this_path =
      Count(evidence, [&](const PathEvidence& p) { return p.peer == peer && p.path == at; });

  if (this_path.answer > 0) return Blame::kPath;  // a part of it: one lane of many
  const bool peer_is_there = to_peer.answer > 0 || evidence.channel_up;
  const bool never = this_path.known > 0 && this_path.ever == 0;

  if (over_local.AllSilent() && over_local.ever > 0 &&
      (elsewhere_to_remote.answer > 0 || Peers(evidence) > 1)) {
    return Blame::kLocalNicOrCable;
  }
  if (!peer_is_there) return to_peer.known > 0 ? Blame::kPeerHost : Blame::kUnknown;
  // From two of our ports at least, or from one that works.
  if (to_remote.AllSilent() && to_remote.ever > 0 &&
      (over_local.answer > 0 && (elsewhere_to_remote.known > 0 || to_peer.known > 1))) {
    return Blame::kRemoteNic;
  }
  if (never) return Blame::kConfiguration;
  return this_path.known > 0 ? Blame::kPath : Blame::kUnknown;
}

}  // namespace

const char* BlameText(Blame blame) {
  switch (blame) {
    case Blame::kUnknown:
      return "not known";
    case Blame::kNobody:
      return "nobody: by command or plan";
    case Blame::kLocalPort:
      return "the local port or its cable: the port is not active";
    case Blame::kLocalNic:
      return "the local NIC: it has failed";
    case Blame::kLocalNicOrCable:
      return "the local NIC, its cable or its switch port: it reads as active, but nothing gets "
             "through to any peer";
    case Blame::kPath:
      return "the way between these two ports: others of both work";
    case Blame::kRemoteNic:
      return "the peer's NIC, its cable or its switch port";
    case Blame::kPeerProcess:
      return "the peer's process: it has ended";
    case Blame::kPeerHost:
      return "the peer's host: it is silent on every path and on TCP";
    case Blame::kConfiguration:
      return "configuration: the peer is there, but these two ports have never reached each other";
  }
  return "not known";
}

Blame Judge(const Evidence& evidence) {
  switch (evidence.cause) {
    case Cause::kCommand:
    case Cause::kDrain:
    case Cause::kFailBack:
      return Blame::kNobody;
    default:
      break;
  }
  // What a device or a port says of itself comes before what probes let guess.
  if (evidence.local_device_failed) return Blame::kLocalNic;
  if (!evidence.local_port_active) return Blame::kLocalPort;
  if (evidence.remote_device_failed || evidence.remote_port_down) return Blame::kRemoteNic;
  if (evidence.peer_said_goodbye) return Blame::kPeerProcess;
  const Tally to_peer =
      Count(evidence, [&](const PathEvidence& path) { return path.peer == evidence.peer; });
  if (evidence.peer_refused && to_peer.answer == 0) return Blame::kPeerProcess;
  if (evidence.cause == Cause::kQueuePair) return Blame::kLocalNic;
  if (evidence.cause == Cause::kAddress) return Blame::kConfiguration;
  return JudgePaths(evidence);
}

}  // namespace railhop::engine
