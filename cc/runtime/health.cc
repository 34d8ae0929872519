#include "cc/runtime/health.h"

#include <arpa/inet.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/base/units.h"

namespace railhop::runtime {
namespace {

using admin::ConnectionState;

static_assert(static_cast<int>(engine::Cause::kFailBack) + 1 ==
              static_cast<int>(admin::Cause::kFailBack));
static_assert(static_cast<int>(engine::Cause::kCompletion) + 1 ==
              static_cast<int>(admin::Cause::kCompletion));
static_assert(static_cast<int>(engine::Blame::kConfiguration) ==
              static_cast<int>(admin::Blame::kConfiguration));
static_assert(static_cast<int>(engine::Blame::kNobody) == static_cast<int>(admin::Blame::kNobody));
static_assert(static_cast<int>(JournalEntry::Kind::kOption) + 1 ==
              static_cast<int>(admin::EventKind::kOptionSet));
static_assert(static_cast<int>(JournalEntry::Kind::kRecovered) + 1 ==
              static_cast<int>(admin::EventKind::kEpisodeRecovered));

// Bytes of an ibv_mtu: 1 is 256, 5 is 4096.
uint32_t MtuBytes(uint8_t mtu) { return mtu >= 1 && mtu <= 5 ? 128u << mtu : 0; }

std::string GidText(const std::array<uint8_t, 16>& gid) {
  if (std::all_of(gid.begin(), gid.end(), [](uint8_t byte) { return byte == 0; })) return "";
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, gid.data(), text, sizeof text) == nullptr ? "" : text;
}

std::string PciOf(const PhysicalDevice& device) {
  return device.pci_path.substr(device.pci_path.rfind('/') + 1);
}

// Ids of devices that are another one by now: they are not shown beside it.
std::set<int> Replaced(const std::vector<const PhysicalDevice*>& ports) {
  std::set<int> replaced;
  for (const PhysicalDevice* port : ports) {
    if (port->replaces >= 0) replaced.insert(port->replaces);
  }
  return replaced;
}

// Names of ports by id.
std::map<int, std::string> PortNames(const TransportView& transport) {
  std::map<int, std::string> names;
  for (const PhysicalDevice* port : transport.ports) names[port->id] = PortName(*port);
  return names;
}

std::string NameOf(const std::map<int, std::string>& names, int physical) {
  const auto found = names.find(physical);
  if (found != names.end()) return found->second;
  return physical < 0 ? "" : absl::StrCat("port ", physical);
}

template <typename Ids>
std::vector<std::string> NamesOf(const std::map<int, std::string>& names, const Ids& ids) {
  std::vector<std::string> all;
  for (const int id : ids) all.push_back(NameOf(names, id));
  return all;
}

int64_t Unix(const HealthInput& input, int64_t time) {
  return time == 0 ? 0 : time + input.unix_offset;
}

// ---- Ports.

// What its paths say of a port that is in service.
struct PathsOfPort {
  int good = 0, doubted = 0, failed = 0, held = 0;
  int64_t since = 0;  // of the last change
  int64_t held_until = 0;
  uint32_t flaps = 0;
  engine::Cause cause = engine::Cause::kNone;  // of the last that failed
};

PathsOfPort PathsOver(const DriverSnapshot& driver, int physical) {
  PathsOfPort paths;
  for (const DriverSnapshot::Path& path : driver.paths) {
    if (path.path.local != physical) continue;
    paths.flaps = std::max(paths.flaps, path.flaps);
    paths.since = std::max(paths.since, path.since);
    switch (path.state) {
      case engine::PathState::kGood:
        ++paths.good;
        break;
      case engine::PathState::kDoubtful:
        ++paths.doubted;
        break;
      case engine::PathState::kDown:
        ++paths.failed;
        paths.cause = path.cause;
        break;
      case engine::PathState::kHeld:
        ++paths.held;
        paths.held_until = std::max(paths.held_until, path.held_until);
        break;
      case engine::PathState::kUnknown:
        break;
    }
  }
  return paths;
}

void SetState(const DriverSnapshot::Port& known, const HealthInput& input, admin::Port* port) {
  const PathsOfPort paths = PathsOver(*input.driver, known.device->id);
  port->flaps = paths.flaps;
  port->state = ToAdmin(known.state);
  port->since_unix_ns = Unix(input, known.since);
  port->cause = ToAdmin(known.cause);
  port->held_by_command = known.command != engine::PortState::kActive;
  if (known.state == engine::PortState::kDrained && port->lanes == 0) {
    port->state = admin::PortState::kHeld;
  }
  if (known.state != engine::PortState::kActive) return;
  port->cause = admin::Cause::kNone;
  if (paths.good + paths.doubted == 0 && paths.failed + paths.held > 0) {
    const bool held = paths.held > 0;
    port->state = held ? admin::PortState::kHoldDown : admin::PortState::kDown;
    port->cause = ToAdmin(paths.cause);
    port->since_unix_ns = Unix(input, paths.since);
    if (held) port->hold_down_ns = std::max<int64_t>(paths.held_until - input.driver->now, 0);
  } else if (paths.doubted > 0) {
    port->state = admin::PortState::kSuspect;
    port->since_unix_ns = Unix(input, paths.since);
  }
}

admin::Port DescribePort(const PhysicalDevice& device) {
  admin::Port port;
  port.name = PortName(device);
  port.device = device.name;
  port.number = device.port;
  port.link_layer = device.is_ethernet ? "Ethernet" : "InfiniBand";
  port.speed_mbps = static_cast<uint32_t>(std::max(device.speed_mbps, 0));
  port.gid = GidText(device.gid);
  port.rail = device.rail_id;
  return port;
}

void SetFacts(const PortFacts& facts, admin::Port* port) {
  port->mtu_bytes = MtuBytes(facts.mtu);
  port->lid = facts.lid;
  if (facts.gid_index >= 0) port->gid = GidText(facts.gid);
}

void CountLanes(const DriverSnapshot& driver, int physical, admin::Port* port) {
  for (const DriverSnapshot::Link& link : driver.links) {
    bool on_it = false;
    for (const DriverSnapshot::Lane& lane : link.lanes) {
      if (lane.local != physical) continue;
      on_it = true;
      ++port->lanes;
      if (lane.backup) ++port->lanes_backup;
    }
    if (on_it) ++port->connections;
  }
}

std::vector<admin::Port> MakePorts(const HealthInput& input) {
  std::vector<admin::Port> ports;
  const std::set<int> replaced = Replaced(input.transport.ports);
  // The driver knows none before its thread's first step.
  if (!input.driver.has_value() || input.driver->ports.empty()) {
    for (const PhysicalDevice* device : input.transport.ports) {
      admin::Port port = DescribePort(*device);
      const auto facts = input.facts.find(device->id);
      if (facts != input.facts.end()) {
        port.state = facts->second.active ? admin::PortState::kUp : admin::PortState::kDown;
        SetFacts(facts->second, &port);
      }
      for (const TransportView::Comm& comm : input.transport.comms) {
        port.connections += std::count(comm.home.begin(), comm.home.end(), device->id) > 0;
      }
      ports.push_back(std::move(port));
    }
    return ports;
  }
  for (const DriverSnapshot::Port& known : input.driver->ports) {
    if (replaced.contains(known.device->id)) continue;
    admin::Port port = DescribePort(*known.device);
    port.covered = known.covered;
    if (known.known) SetFacts(known.facts, &port);
    CountLanes(*input.driver, known.device->id, &port);
    SetState(known, input, &port);
    ports.push_back(std::move(port));
  }
  return ports;
}

std::vector<admin::Device> MakeDevices(const HealthInput& input) {
  std::vector<admin::Device> devices;
  std::set<std::string> seen;
  const std::set<int> replaced = Replaced(input.transport.ports);
  for (const PhysicalDevice* port : input.transport.ports) {
    if (replaced.contains(port->id) || !seen.insert(port->name).second) continue;
    admin::Device& device = devices.emplace_back();
    device.name = port->name;
    device.pci = PciOf(*port);
    device.numa_node = port->numa_node;
    if (!input.driver.has_value()) continue;
    for (const DriverSnapshot::Port& known : input.driver->ports) {
      if (known.device == port) device.removed = known.state == engine::PortState::kFatal;
    }
  }
  return devices;
}

// ---- Connections.

ConnectionState StateOf(const DriverSnapshot::Link& link) {
  if (link.over) return ConnectionState::kEnded;
  if (link.no_path) return ConnectionState::kNoPath;
  if (link.hindered_since != 0 || !link.running) return ConnectionState::kRecovering;
  const bool backup = std::any_of(link.lanes.begin(), link.lanes.end(),
                                  [](const DriverSnapshot::Lane& lane) { return lane.backup; });
  return backup ? ConnectionState::kOnBackup : ConnectionState::kHealthy;
}

void SetTraffic(const TransportView::Comm& comm, admin::Connection* connection) {
  connection->bytes = comm.traffic.bytes();
  connection->messages = comm.traffic.transfers;
  connection->outstanding = comm.traffic.outstanding;
}

// By the connection that the traffic is of.
using TrafficByComm = std::unordered_map<const ConnectionComm*, const TransportView::Comm*>;

admin::Connection MakeConnection(const DriverSnapshot::Link& link, const HealthInput& input,
                                 const std::map<int, std::string>& names,
                                 const TrafficByComm& traffic) {
  admin::Connection connection;
  connection.id = HexId(link.id.connection);
  connection.direction =
      link.id.end == engine::End::kSender ? admin::Direction::kSend : admin::Direction::kReceive;
  const auto peer = input.driver->peers.find(link.peer);
  if (peer != input.driver->peers.end()) connection.peer_host = peer->second.host;
  connection.peer_instance = HexId(link.peer);
  connection.label = link.label;
  connection.state = StateOf(link);
  connection.epoch = link.epoch;
  std::set<int> now;
  for (const DriverSnapshot::Lane& lane : link.lanes) {
    ++connection.lanes;
    if (lane.backup) ++connection.lanes_backup;
    if (lane.up) now.insert(lane.local);
  }
  connection.ports = NamesOf(names, now);
  connection.home_ports = NamesOf(names, link.home);
  if (link.hindered_since != 0) {
    connection.hindered_ns = std::max<int64_t>(input.now - link.hindered_since, 1);
  }
  connection.episodes = link.episodes;
  connection.reason = link.reason;
  if (connection.state == ConnectionState::kNoPath) {
    const auto held = std::count_if(input.driver->ports.begin(), input.driver->ports.end(),
                                    [](const DriverSnapshot::Port& port) {
                                      return port.command != engine::PortState::kActive;
                                    });
    if (held > 0) connection.reason = absl::StrCat(held, " port(s) are held by command");
  }
  const auto comm = traffic.find(link.comm);
  if (comm != traffic.end()) SetTraffic(*comm->second, &connection);
  return connection;
}

std::vector<admin::Connection> MakeConnections(const HealthInput& input) {
  const std::map<int, std::string> names = PortNames(input.transport);
  // A job has thousands of connections: none looks through all the others.
  TrafficByComm traffic;
  for (const TransportView::Comm& comm : input.transport.comms) traffic[comm.comm] = &comm;
  std::vector<admin::Connection> connections;
  std::unordered_set<const ConnectionComm*> seen;
  if (input.driver.has_value()) {
    for (const DriverSnapshot::Link& link : input.driver->links) {
      seen.insert(link.comm);
      connections.push_back(MakeConnection(link, input, names, traffic));
    }
  }
  for (const TransportView::Comm& comm : input.transport.comms) {
    if (seen.contains(comm.comm)) continue;
    admin::Connection& connection = connections.emplace_back();
    connection.direction = comm.is_send ? admin::Direction::kSend : admin::Direction::kReceive;
    connection.label = comm.label;
    connection.state = ConnectionState::kUnprotected;
    connection.ports = connection.home_ports = NamesOf(names, comm.home);
    SetTraffic(comm, &connection);
  }
  return connections;
}

// ---- Paths, episodes, the verdict.

std::string RemoteName(const DriverSnapshot::Peer& peer, int remote) {
  const auto found = peer.ports.find(remote);
  return found == peer.ports.end() ? "" : found->second;
}

std::vector<admin::Path> MakePaths(const HealthInput& input) {
  std::vector<admin::Path> paths;
  if (!input.driver.has_value()) return paths;
  const std::map<int, std::string> names = PortNames(input.transport);
  for (const DriverSnapshot::Path& known : input.driver->paths) {
    admin::Path& path = paths.emplace_back();
    path.port = NameOf(names, known.path.local);
    path.peer_instance = HexId(known.peer);
    const auto peer = input.driver->peers.find(known.peer);
    if (peer != input.driver->peers.end()) {
      path.peer_host = peer->second.host;
      path.peer_port = RemoteName(peer->second, known.path.remote);
    }
    path.state = ToAdmin(known.state);
    path.since_unix_ns = Unix(input, known.since);
    path.last_answer_unix_ns = Unix(input, known.last_answer);
    path.probes_sent = known.probes_sent;
    path.probes_lost = known.probes_lost;
    path.flaps = known.flaps;
  }
  return paths;
}

std::vector<admin::Episode> MakeEpisodes(const HealthInput& input) {
  std::vector<admin::Episode> episodes;
  if (!input.driver.has_value()) return episodes;
  const std::map<int, std::string> names = PortNames(input.transport);
  for (const EpisodeView& known : input.driver->episodes) {
    admin::Episode& episode = episodes.emplace_back();
    episode.id = known.id;
    episode.begin_unix_ns = Unix(input, known.begin);
    episode.end_unix_ns = Unix(input, known.end);
    episode.port = NameOf(names, known.local);
    episode.peer_host = known.peer_host;
    episode.peer_port = known.peer_port;
    episode.cause = ToAdmin(known.cause);
    episode.blame = ToAdmin(known.blame);
    episode.connections = static_cast<uint32_t>(known.connections);
    episode.bytes_resent = known.bytes_resent;
    episode.detect_ns = known.detect_ns;
    episode.agree_ns = known.agree_ns;
    episode.resume_ns = known.resume_ns;
    episode.ports_after = NamesOf(names, known.over);
    episode.recovered = known.recovered;
  }
  return episodes;
}

admin::Verdict Judge(const admin::Health& health) {
  admin::Verdict verdict = admin::Verdict::kOk;
  for (const admin::Port& port : health.ports) {
    const bool in_service = port.state == admin::PortState::kUp ||
                            port.state == admin::PortState::kSuspect ||
                            port.state == admin::PortState::kUnknown;
    if (!in_service) verdict = admin::Verdict::kDegraded;
  }
  for (const admin::Connection& connection : health.connections) {
    const admin::Verdict of_it =
        connection.state == ConnectionState::kNoPath || connection.state == ConnectionState::kEnded
            ? admin::Verdict::kNoPath
        : connection.state == ConnectionState::kRecovering ? admin::Verdict::kRecovering
        : connection.state == ConnectionState::kOnBackup   ? admin::Verdict::kDegraded
                                                           : admin::Verdict::kOk;
    verdict = std::max(verdict, of_it);
  }
  return verdict;
}

// ---- Counters.

admin::Histogram MakeHistogram(const char* name, const Histogram& known) {
  admin::Histogram histogram;
  histogram.name = name;
  histogram.unit = "ns";
  histogram.bounds.assign(kHistogramBounds.begin(), kHistogramBounds.end());
  histogram.counts.assign(known.counts().begin(), known.counts().end());
  histogram.count = known.count();
  histogram.sum = known.sum();
  histogram.max = known.max();
  return histogram;
}

// By name: a device that was gone and is back counts on.
std::vector<admin::PortStats> MakePortStats(const HealthInput& input) {
  const std::map<int, std::string> names = PortNames(input.transport);
  std::map<std::string, admin::PortStats> by_name;
  std::vector<std::string> order;
  for (const auto& [id, name] : names) {
    if (by_name.try_emplace(name).second) order.push_back(name);
    by_name[name].name = name;
  }
  const auto of = [&](int physical) -> admin::PortStats& {
    return by_name[NameOf(names, physical)];
  };
  for (const auto& [id, total] : input.transport.closed) {
    admin::PortStats& port = of(id);
    port.sent_bytes += total.sent_bytes;
    port.received_bytes += total.received_bytes;
    port.sent_messages += total.sent_messages;
    port.received_messages += total.received_messages;
  }
  for (const TransportView::Comm& comm : input.transport.comms) {
    for (const datapath::PortTraffic& traffic : comm.traffic.ports) {
      admin::PortStats& port = of(traffic.physical);
      (comm.is_send ? port.sent_bytes : port.received_bytes) += traffic.bytes;
      (comm.is_send ? port.sent_messages : port.received_messages) += traffic.messages;
    }
  }
  if (input.driver.has_value()) {
    for (const auto& [id, counts] : input.driver->counts.ports) {
      admin::PortStats& port = of(id);
      port.resent_bytes += counts.resent_bytes;
      port.stalls += counts.stalls;
      port.faults += counts.faults;
    }
  }
  std::vector<admin::PortStats> ports;
  for (const std::string& name : order) ports.push_back(by_name[name]);
  return ports;
}

std::string StateText(const JournalEntry& entry) {
  const auto value = static_cast<uint8_t>(entry.value);
  if (entry.kind == JournalEntry::Kind::kPortState) {
    return admin::Word(ToAdmin(static_cast<engine::PortState>(value)));
  }
  if (entry.kind == JournalEntry::Kind::kPathState) {
    return admin::Word(ToAdmin(static_cast<engine::PathState>(value)));
  }
  return entry.text;
}

// Whether a person may need to act.
admin::Severity SeverityOf(const JournalEntry& entry) {
  using Kind = JournalEntry::Kind;
  switch (entry.kind) {
    case Kind::kEpisode:
      return entry.cause == engine::Cause::kCommand ? admin::Severity::kInfo
                                                    : admin::Severity::kWarning;
    case Kind::kNoPath:
    case Kind::kGaveUp:
    case Kind::kPeerLost:
    case Kind::kNoCover:
      return admin::Severity::kWarning;
    default:
      return admin::Severity::kInfo;
  }
}

}  // namespace

std::string PortName(const PhysicalDevice& device) {
  return absl::StrCat(device.name, ":", device.port);
}

std::string HexId(uint64_t id) { return absl::StrCat(absl::Hex(id, absl::kZeroPad16)); }

admin::PortState ToAdmin(engine::PortState state) {
  switch (state) {
    case engine::PortState::kActive:
      return admin::PortState::kUp;
    case engine::PortState::kDown:
      return admin::PortState::kDown;
    case engine::PortState::kFatal:
      return admin::PortState::kRemoved;
    case engine::PortState::kHeld:
      return admin::PortState::kHeld;
    case engine::PortState::kDrained:
      return admin::PortState::kDraining;
  }
  return admin::PortState::kUnknown;
}

admin::PathState ToAdmin(engine::PathState state) {
  switch (state) {
    case engine::PathState::kUnknown:
      return admin::PathState::kUnproved;
    case engine::PathState::kGood:
      return admin::PathState::kGood;
    case engine::PathState::kDoubtful:
      return admin::PathState::kDoubted;
    case engine::PathState::kDown:
      return admin::PathState::kFailed;
    case engine::PathState::kHeld:
      return admin::PathState::kHoldDown;
  }
  return admin::PathState::kUnknown;
}

admin::Cause ToAdmin(engine::Cause cause) {
  return static_cast<admin::Cause>(static_cast<int>(cause) + 1);
}

admin::Blame ToAdmin(engine::Blame blame) { return static_cast<admin::Blame>(blame); }

admin::Health MakeHealth(const HealthInput& input) {
  admin::Health health;
  health.process = input.process;
  health.devices = MakeDevices(input);
  health.ports = MakePorts(input);
  health.paths = MakePaths(input);
  health.connections = MakeConnections(input);
  health.episodes = MakeEpisodes(input);
  health.verdict = Judge(health);
  return health;
}

admin::Stats MakeStats(const HealthInput& input) {
  admin::Stats stats;
  stats.process = input.process;
  stats.ports = MakePortStats(input);
  const JournalCounters& counters = input.counters;
  stats.episodes_begun = counters.Count(JournalEntry::Kind::kEpisode);
  stats.episodes_recovered = counters.Count(JournalEntry::Kind::kRecovered);
  stats.gave_up = counters.Count(JournalEntry::Kind::kGaveUp);
  stats.bytes_resent = counters.bytes_resent;
  stats.stripes_resent = counters.stripes_resent;
  stats.probes_sent = counters.probes_sent;
  stats.probes_answered = counters.probes_answered;
  stats.probes_lost = counters.probes_unanswered;
  stats.stale_messages = counters.stale_messages;
  stats.refused_messages = counters.refused_messages;
  const DriverCounts none;
  const DriverCounts& counts = input.driver.has_value() ? input.driver->counts : none;
  for (size_t i = 0; i < counts.faults.size(); ++i) {
    if (counts.faults[i] == 0) continue;
    stats.faults.push_back(
        {.cause = ToAdmin(static_cast<engine::Cause>(i)), .count = counts.faults[i]});
  }
  stats.histograms = {MakeHistogram("detect", counts.detect), MakeHistogram("agree", counts.agree),
                      MakeHistogram("resume", counts.resume), MakeHistogram("probe", counts.probe)};
  return stats;
}

EventNames NamesOf(const HealthInput& input) {
  EventNames names;
  names.ports = PortNames(input.transport);
  if (input.driver.has_value()) names.peers = input.driver->peers;
  return names;
}

admin::Event MakeEvent(const JournalEntry& entry, const EventNames& names, int64_t unix_offset) {
  admin::Event event;
  event.serial = entry.serial;
  event.time_unix_ns = entry.time_ns + unix_offset;
  event.kind = static_cast<admin::EventKind>(static_cast<int>(entry.kind) + 1);
  event.severity = SeverityOf(entry);
  event.episode = entry.episode;
  event.port = NameOf(names.ports, entry.local);
  const auto peer = names.peers.find(entry.peer);
  if (peer != names.peers.end()) {
    event.peer_host = peer->second.host;
    event.peer_port = RemoteName(peer->second, entry.remote);
  }
  if (entry.end.connection != 0) {
    event.connection = HexId(entry.end.connection);
    event.direction = entry.end.end == engine::End::kSender ? admin::Direction::kSend
                                                            : admin::Direction::kReceive;
  }
  event.epoch = entry.epoch;
  event.cause = ToAdmin(entry.cause);
  event.blame = ToAdmin(entry.blame);
  const bool is_state =
      entry.kind == JournalEntry::Kind::kPortState || entry.kind == JournalEntry::Kind::kPathState;
  event.value = is_state ? 0 : entry.value;
  event.bytes = entry.bytes;
  event.text = StateText(entry);
  return event;
}

}  // namespace railhop::runtime
