// The health of a process: itself, its devices, ports, paths, connections and last episodes.
#include "python/railhop/bind.h"

namespace railhop::python {
namespace {

void BindProcessInfo(py::module_* module) {
  using admin::Process;
  Record<Process>(module, "ProcessInfo", R"(Who a process is.

Example:
    >>> railhop.health().process.failover
    True
)")
      .Field("pid", &Process::pid, "Its number.")
      .Field("host", &Process::host, "The host's name.")
      .Field("job", &Process::job,
             "RAILHOP_JOB_ID, SLURM_JOB_ID or TORCHELASTIC_RUN_ID; empty if none is set.")
      .Field("program", &Process::program, "As its command line begins.")
      .Field("version", &Process::version, "Of Railhop.")
      .Field("api_version", &Process::api_version, "Of the admin API.")
      .Field("instance", &Process::instance, "What peers call it, hexadecimal.")
      .Field("start_unix_ns", &Process::start_unix_ns, "When the transport started.")
      .Field("now_unix_ns", &Process::now_unix_ns, "When this was read.")
      .Field("failover", &Process::failover, "RAILHOP_FAILOVER.")
      .Field("running", &Process::running, "The transport is started: there are devices.");
}

void BindDevice(py::module_* module) {
  using admin::Device;
  Record<Device>(module, "Device", R"(A NIC.

Example:
    >>> [device.name for device in railhop.health().devices]
    ['mlx5_0', 'mlx5_1', 'mlx5_2', 'mlx5_3']
)")
      .Field("name", &Device::name, "As verbs calls it: mlx5_0.")
      .Field("pci", &Device::pci, "Its address, such as 0000:81:00.0; empty if it has none.")
      .Field("numa_node", &Device::numa_node, "-1 if it is not known.")
      .Field("removed", &Device::removed, "It has failed or is gone.");
}

void BindPort(py::module_* module) {
  using admin::Port;
  Record<Port>(module, "Port", R"(A port of a NIC.

Example:
    >>> port = railhop.health().ports[0]
    >>> port.name, port.speed_mbps, port.link_layer
    ('mlx5_0:1', 200000, 'Ethernet')
)")
      .Field("name", &Port::name, "mlx5_0:1.")
      .Field("device", &Port::device, "mlx5_0.")
      .Field("number", &Port::number, "From 1.")
      .Field("state", &Port::state, "What it is doing.")
      .Field("cause", &Port::cause, "Of the state.")
      .Field("since_unix_ns", &Port::since_unix_ns, "Of the state; 0 is since the start.")
      .Field("link_layer", &Port::link_layer, "Ethernet or InfiniBand.")
      .Field("speed_mbps", &Port::speed_mbps, "Megabits a second.")
      .Field("mtu_bytes", &Port::mtu_bytes, "Of the path's packets.")
      .Field("gid", &Port::gid, "That connections use, as an IPv6 address.")
      .Field("lid", &Port::lid, "On InfiniBand.")
      .Field("rail", &Port::rail, "-1 if it is not known.")
      .Field("covered", &Port::covered, "Every connection may move to it.")
      .Field("connections", &Port::connections, "With lanes on it.")
      .Field("lanes", &Port::lanes, "Queue pairs of connections on it.")
      .Field("lanes_backup", &Port::lanes_backup,
             "Of these, for connections whose own port is another.")
      .Field("flaps", &Port::flaps, "How often it went down and came back lately.")
      .Field("hold_down_ns", &Port::hold_down_ns, "Left to go, in HOLD_DOWN.")
      .Field("held_by_command", &Port::held_by_command, "Until it is released.");
}

void BindPath(py::module_* module) {
  using admin::Path;
  Record<Path>(module, "Path", R"(A pair of ports, one here and one of a peer, that can carry data.

Example:
    >>> sorted({path.port for path in railhop.health().paths})[:2]
    ['mlx5_0:1', 'mlx5_1:1']
)")
      .Field("port", &Path::port, "Of this process.")
      .Field("peer_host", &Path::peer_host, "The host at the other end.")
      .Field("peer_instance", &Path::peer_instance, "The process there, hexadecimal.")
      .Field("peer_port", &Path::peer_port, "Empty until the peer has told its ports.")
      .Field("state", &Path::state, "What it is doing.")
      .Field("since_unix_ns", &Path::since_unix_ns, "Of the state.")
      .Field("last_answer_unix_ns", &Path::last_answer_unix_ns,
             "When a probe last came back; 0 if none has.")
      .Field("probes_sent", &Path::probes_sent, "Over it.")
      .Field("probes_lost", &Path::probes_lost, "Of these.")
      .Field("flaps", &Path::flaps, "How often it failed and came back lately.");
}

void BindConnection(py::module_* module) {
  using admin::Connection;
  Record<Connection>(module, "Connection", R"(A connection of NCCL to a peer.

Example:
    >>> connection = railhop.health().connections[0]
    >>> connection.ports == connection.home_ports
    True
)")
      .Field("id", &Connection::id, "Hexadecimal; unique in the process with the direction.")
      .Field("direction", &Connection::direction, "Which way data goes.")
      .Field("peer_host", &Connection::peer_host, "The host at the other end.")
      .Field("peer_instance", &Connection::peer_instance, "The process there, hexadecimal.")
      .Field("label", &Connection::label, "For people: mlx5_0 -> node-17 mlx5_0.")
      .Field("state", &Connection::state, "What it is doing.")
      .Field("epoch", &Connection::epoch, "How often both ends have agreed on a new route.")
      .Field("ports", &Connection::ports, "That carry it now.")
      .Field("home_ports", &Connection::home_ports, "That it was made for.")
      .Field("lanes", &Connection::lanes, "Its queue pairs.")
      .Field("lanes_backup", &Connection::lanes_backup, "Of these, not on its own ports.")
      .Field("bytes", &Connection::bytes, "Sent or received.")
      .Field("messages", &Connection::messages, "NCCL's sends or receives that have begun.")
      .Field("outstanding", &Connection::outstanding,
             "Work requests that are posted and not completed.")
      .Field("hindered_ns", &Connection::hindered_ns,
             "For so long it has not moved; 0 if it moves.")
      .Field("episodes", &Connection::episodes, "That it was touched by.")
      .Field("reason", &Connection::reason, "Of its end, in ENDED.");
}

void BindEpisode(py::module_* module) {
  using admin::Episode;
  Record<Episode>(module, "Episode",
                  R"(One fault of a port or a path, however many connections it touches.

Example:
    >>> _ = railhop.force_failover("mlx5_0", mode="now")
    >>> for event in railhop.follow(after=0, timeout_s=30):
    ...     if event.kind == "episode_begun":
    ...         break
    >>> railhop.health().episodes[-1].cause
    <Cause.COMMAND: 'command'>
    >>> _ = railhop.release("mlx5_0")
)")
      .Field("id", &Episode::id, "From 1.")
      .Field("begin_unix_ns", &Episode::begin_unix_ns, "When it was decided.")
      .Field("end_unix_ns", &Episode::end_unix_ns, "0 while it is open.")
      .Field("port", &Episode::port, "Of this process.")
      .Field("peer_host", &Episode::peer_host, "Empty if it is not about one peer.")
      .Field("peer_port", &Episode::peer_port, "Empty if it is not about one path.")
      .Field("cause", &Episode::cause, "Why the port was left.")
      .Field("blame", &Episode::blame, "What most likely has to be repaired.")
      .Field("connections", &Episode::connections, "That it touched.")
      .Field("bytes_resent", &Episode::bytes_resent, "Over other ports.")
      .Field("detect_ns", &Episode::detect_ns,
             "From the last sign of life to the decision; 0 if it was told at once.")
      .Field("agree_ns", &Episode::agree_ns,
             "From the decision until both ends of a first connection agreed; 0 if they have not.")
      .Field("resume_ns", &Episode::resume_ns,
             "From the decision until all connections moved again; 0 if they have not.")
      .Field("ports_after", &Episode::ports_after, "That carry now what it had.")
      .Field("recovered", &Episode::recovered, "All connections go on.");
}

}  // namespace

void BindHealth(py::module_* module) {
  BindProcessInfo(module);
  BindDevice(module);
  BindPort(module);
  BindPath(module);
  BindConnection(module);
  BindEpisode(module);
  using admin::Health;
  Record<Health>(module, "Health", R"(How a process fares, as of one moment.

Example:
    >>> health = railhop.health()
    >>> health.verdict
    <Verdict.OK: 'ok'>
    >>> [port.name for port in health.ports if port.state != "up"]
    []
    >>> import json
    >>> len(json.loads(json.dumps(health.to_dict()))["devices"])
    4
)")
      .Field("process", &Health::process, "Who it is.")
      .Field("verdict", &Health::verdict, "The worst of what follows.")
      .Field("devices", &Health::devices, "Its NICs.")
      .Field("ports", &Health::ports, "Of these.")
      .Field("paths", &Health::paths, "To ports of peers.")
      .Field("connections", &Health::connections, "That NCCL has made.")
      .Field("episodes", &Health::episodes, "The last 64, oldest first.");
}

}  // namespace railhop::python
