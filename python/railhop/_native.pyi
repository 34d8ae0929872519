"""The compiled part of railhop. Made by //tools/dev:native_stub: do not edit."""

from collections.abc import Iterator
from typing import Any, ClassVar

from railhop.words import Word

class PortState(Word):
    """What a port is doing.

    UP carries data, or may. SUSPECT is in service with a path in doubt. DOWN is not active, or nothing
    gets through. HOLD_DOWN answers again and has to go on doing so before it is used. DRAINING and HELD
    are out of service by command, DRAINING with work still under way. REMOVED: the device is gone.

    Example:
        >>> railhop.health().ports[0].state
        <PortState.UP: 'up'>
    """

    UNKNOWN = "unknown"
    UP = "up"
    SUSPECT = "suspect"
    DOWN = "down"
    HOLD_DOWN = "hold_down"
    DRAINING = "draining"
    HELD = "held"
    REMOVED = "removed"

class PathState(Word):
    """What a path, from a port here to one there, is doing.

    UNPROVED has had no probe come back yet. GOOD was proved lately. DOUBTED carries data while a probe
    that is due soon decides. FAILED. HOLD_DOWN answers again and has to go on doing so.

    Example:
        >>> all(path.state in list(railhop.PathState) for path in railhop.health().paths)
        True
    """

    UNKNOWN = "unknown"
    UNPROVED = "unproved"
    GOOD = "good"
    DOUBTED = "doubted"
    FAILED = "failed"
    HOLD_DOWN = "hold_down"

class ConnectionState(Word):
    """What a connection is doing.

    HEALTHY is on its own ports. ON_BACKUP moves, over other ports in part or whole. RECOVERING: lanes
    are being left or made, and data waits meanwhile. NO_PATH: nothing can carry it at present. ENDED was
    given up. UNPROTECTED is without failover.

    Example:
        >>> railhop.health().connections[0].state
        <ConnectionState.HEALTHY: 'healthy'>
    """

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    ON_BACKUP = "on_backup"
    RECOVERING = "recovering"
    NO_PATH = "no_path"
    ENDED = "ended"
    UNPROTECTED = "unprotected"

class Direction(Word):
    """Which way a connection carries data.

    Example:
        >>> list(railhop.Direction)[1:]
        [<Direction.SEND: 'send'>, <Direction.RECEIVE: 'receive'>]
    """

    UNKNOWN = "unknown"
    SEND = "send"
    RECEIVE = "receive"

class Verdict(Word):
    """How a process fares: the worst of its connections and ports.

    OK. DEGRADED: all moves, over fewer ports than there are. RECOVERING: a connection is recovering.
    NO_PATH: a connection has no path, or was given up.

    Example:
        >>> railhop.health().verdict is railhop.Verdict.OK
        True
    """

    UNKNOWN = "unknown"
    OK = "ok"
    DEGRADED = "degraded"
    RECOVERING = "recovering"
    NO_PATH = "no_path"

class Cause(Word):
    """Why a port, a path or a lane was left.

    Example:
        >>> railhop.Cause("port_down")
        <Cause.PORT_DOWN: 'port_down'>
    """

    UNKNOWN = "unknown"
    NONE = "none"
    COMPLETION = "completion"
    POST_REFUSED = "post_refused"
    PORT_DOWN = "port_down"
    DEVICE_FAILED = "device_failed"
    QUEUE_PAIR = "queue_pair"
    STALL = "stall"
    PEER = "peer"
    ADDRESS_CHANGE = "address_change"
    COMMAND = "command"
    DRAIN = "drain"
    FAIL_BACK = "fail_back"

class Blame(Word):
    """What most likely has to be repaired.

    Example:
        >>> railhop.Blame("local_nic_or_cable")
        <Blame.LOCAL_NIC_OR_CABLE: 'local_nic_or_cable'>
    """

    UNKNOWN = "unknown"
    NOBODY = "nobody"
    LOCAL_PORT = "local_port"
    LOCAL_NIC = "local_nic"
    LOCAL_NIC_OR_CABLE = "local_nic_or_cable"
    PATH = "path"
    REMOTE_NIC = "remote_nic"
    PEER_PROCESS = "peer_process"
    PEER_HOST = "peer_host"
    CONFIGURATION = "configuration"

class EventKind(Word):
    """What an event tells.

    Example:
        >>> railhop.EventKind("episode_begun")
        <EventKind.EPISODE_BEGUN: 'episode_begun'>
    """

    UNKNOWN = "unknown"
    PORT_STATE = "port_state"
    PATH_STATE = "path_state"
    EPISODE_BEGUN = "episode_begun"
    LANES_LEFT = "lanes_left"
    RESUMED = "resumed"
    LANES_ADDED = "lanes_added"
    LANES_RETIRED = "lanes_retired"
    EPISODE_RECOVERED = "episode_recovered"
    NO_PATH = "no_path"
    GAVE_UP = "gave_up"
    PEER_LOST = "peer_lost"
    SESSION = "session"
    NO_COVER = "no_cover"
    COMMAND = "command"
    OPTION_SET = "option_set"

class Severity(Word):
    """Whether a person may need to act.

    Example:
        >>> list(railhop.Severity)[1:]
        [<Severity.INFO: 'info'>, <Severity.WARNING: 'warning'>]
    """

    UNKNOWN = "unknown"
    INFO = "info"
    WARNING = "warning"

class FailoverMode(Word):
    """How traffic leaves a port by command.

    DRAIN lets what is under way complete first. NOW fences at once, as a fault does.

    Example:
        >>> list(railhop.FailoverMode)[1:]
        [<FailoverMode.DRAIN: 'drain'>, <FailoverMode.NOW: 'now'>]
    """

    UNKNOWN = "unknown"
    DRAIN = "drain"
    NOW = "now"

class ProcessInfo:
    """Who a process is.

    Example:
        >>> railhop.health().process.failover
        True
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def pid(self) -> int:
        """Its number."""
    @property
    def host(self) -> str:
        """The host's name."""
    @property
    def job(self) -> str:
        """RAILHOP_JOB_ID, SLURM_JOB_ID or TORCHELASTIC_RUN_ID; empty if none is set."""
    @property
    def program(self) -> str:
        """As its command line begins."""
    @property
    def version(self) -> str:
        """Of Railhop."""
    @property
    def api_version(self) -> int:
        """Of the admin API."""
    @property
    def instance(self) -> str:
        """What peers call it, hexadecimal."""
    @property
    def start_unix_ns(self) -> int:
        """When the transport started."""
    @property
    def now_unix_ns(self) -> int:
        """When this was read."""
    @property
    def failover(self) -> bool:
        """RAILHOP_FAILOVER."""
    @property
    def running(self) -> bool:
        """The transport is started: there are devices."""

class Device:
    """A NIC.

    Example:
        >>> [device.name for device in railhop.health().devices]
        ['mlx5_0', 'mlx5_1', 'mlx5_2', 'mlx5_3']
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def name(self) -> str:
        """As verbs calls it: mlx5_0."""
    @property
    def pci(self) -> str:
        """Its address, such as 0000:81:00.0; empty if it has none."""
    @property
    def numa_node(self) -> int:
        """-1 if it is not known."""
    @property
    def removed(self) -> bool:
        """It has failed or is gone."""

class Port:
    """A port of a NIC.

    Example:
        >>> port = railhop.health().ports[0]
        >>> port.name, port.speed_mbps, port.link_layer
        ('mlx5_0:1', 200000, 'Ethernet')
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def name(self) -> str:
        """mlx5_0:1."""
    @property
    def device(self) -> str:
        """mlx5_0."""
    @property
    def number(self) -> int:
        """From 1."""
    @property
    def state(self) -> PortState:
        """What it is doing."""
    @property
    def cause(self) -> Cause:
        """Of the state."""
    @property
    def since_unix_ns(self) -> int:
        """Of the state; 0 is since the start."""
    @property
    def link_layer(self) -> str:
        """Ethernet or InfiniBand."""
    @property
    def speed_mbps(self) -> int:
        """Megabits a second."""
    @property
    def mtu_bytes(self) -> int:
        """Of the path's packets."""
    @property
    def gid(self) -> str:
        """That connections use, as an IPv6 address."""
    @property
    def lid(self) -> int:
        """On InfiniBand."""
    @property
    def rail(self) -> int:
        """-1 if it is not known."""
    @property
    def covered(self) -> bool:
        """Every connection may move to it."""
    @property
    def connections(self) -> int:
        """With lanes on it."""
    @property
    def lanes(self) -> int:
        """Queue pairs of connections on it."""
    @property
    def lanes_backup(self) -> int:
        """Of these, for connections whose own port is another."""
    @property
    def flaps(self) -> int:
        """How often it went down and came back lately."""
    @property
    def hold_down_ns(self) -> int:
        """Left to go, in HOLD_DOWN."""
    @property
    def held_by_command(self) -> bool:
        """Until it is released."""

class Path:
    """A pair of ports, one here and one of a peer, that can carry data.

    Example:
        >>> sorted({path.port for path in railhop.health().paths})[:2]
        ['mlx5_0:1', 'mlx5_1:1']
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def port(self) -> str:
        """Of this process."""
    @property
    def peer_host(self) -> str:
        """The host at the other end."""
    @property
    def peer_instance(self) -> str:
        """The process there, hexadecimal."""
    @property
    def peer_port(self) -> str:
        """Empty until the peer has told its ports."""
    @property
    def state(self) -> PathState:
        """What it is doing."""
    @property
    def since_unix_ns(self) -> int:
        """Of the state."""
    @property
    def last_answer_unix_ns(self) -> int:
        """When a probe last came back; 0 if none has."""
    @property
    def probes_sent(self) -> int:
        """Over it."""
    @property
    def probes_lost(self) -> int:
        """Of these."""
    @property
    def flaps(self) -> int:
        """How often it failed and came back lately."""

class Connection:
    """A connection of NCCL to a peer.

    Example:
        >>> connection = railhop.health().connections[0]
        >>> connection.ports == connection.home_ports
        True
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def id(self) -> str:
        """Hexadecimal; unique in the process with the direction."""
    @property
    def direction(self) -> Direction:
        """Which way data goes."""
    @property
    def peer_host(self) -> str:
        """The host at the other end."""
    @property
    def peer_instance(self) -> str:
        """The process there, hexadecimal."""
    @property
    def label(self) -> str:
        """For people: mlx5_0 -> node-17 mlx5_0."""
    @property
    def state(self) -> ConnectionState:
        """What it is doing."""
    @property
    def epoch(self) -> int:
        """How often both ends have agreed on a new route."""
    @property
    def ports(self) -> tuple[str, ...]:
        """That carry it now."""
    @property
    def home_ports(self) -> tuple[str, ...]:
        """That it was made for."""
    @property
    def lanes(self) -> int:
        """Its queue pairs."""
    @property
    def lanes_backup(self) -> int:
        """Of these, not on its own ports."""
    @property
    def bytes(self) -> int:
        """Sent or received."""
    @property
    def messages(self) -> int:
        """NCCL's sends or receives that have begun."""
    @property
    def outstanding(self) -> int:
        """Work requests that are posted and not completed."""
    @property
    def hindered_ns(self) -> int:
        """For so long it has not moved; 0 if it moves."""
    @property
    def episodes(self) -> int:
        """That it was touched by."""
    @property
    def reason(self) -> str:
        """Of its end, in ENDED."""

class Episode:
    """One fault of a port or a path, however many connections it touches.

    Example:
        >>> _ = railhop.force_failover("mlx5_0", mode="now")
        >>> for event in railhop.follow(after=0, timeout_s=30):
        ...     if event.kind == "episode_begun":
        ...         break
        >>> railhop.health().episodes[-1].cause
        <Cause.COMMAND: 'command'>
        >>> _ = railhop.release("mlx5_0")
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def id(self) -> int:
        """From 1."""
    @property
    def begin_unix_ns(self) -> int:
        """When it was decided."""
    @property
    def end_unix_ns(self) -> int:
        """0 while it is open."""
    @property
    def port(self) -> str:
        """Of this process."""
    @property
    def peer_host(self) -> str:
        """Empty if it is not about one peer."""
    @property
    def peer_port(self) -> str:
        """Empty if it is not about one path."""
    @property
    def cause(self) -> Cause:
        """Why the port was left."""
    @property
    def blame(self) -> Blame:
        """What most likely has to be repaired."""
    @property
    def connections(self) -> int:
        """That it touched."""
    @property
    def bytes_resent(self) -> int:
        """Over other ports."""
    @property
    def detect_ns(self) -> int:
        """From the last sign of life to the decision; 0 if it was told at once."""
    @property
    def agree_ns(self) -> int:
        """From the decision until both ends of a first connection agreed; 0 if they have not."""
    @property
    def resume_ns(self) -> int:
        """From the decision until all connections moved again; 0 if they have not."""
    @property
    def ports_after(self) -> tuple[str, ...]:
        """That carry now what it had."""
    @property
    def recovered(self) -> bool:
        """All connections go on."""

class Health:
    """How a process fares, as of one moment.

    Example:
        >>> health = railhop.health()
        >>> health.verdict
        <Verdict.OK: 'ok'>
        >>> [port.name for port in health.ports if port.state != "up"]
        []
        >>> import json
        >>> len(json.loads(json.dumps(health.to_dict()))["devices"])
        4
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def process(self) -> ProcessInfo:
        """Who it is."""
    @property
    def verdict(self) -> Verdict:
        """The worst of what follows."""
    @property
    def devices(self) -> tuple[Device, ...]:
        """Its NICs."""
    @property
    def ports(self) -> tuple[Port, ...]:
        """Of these."""
    @property
    def paths(self) -> tuple[Path, ...]:
        """To ports of peers."""
    @property
    def connections(self) -> tuple[Connection, ...]:
        """That NCCL has made."""
    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The last 64, oldest first."""

class PortStats:
    """What a port has carried since the process began.

    Example:
        >>> railhop.stats().ports[0].name
        'mlx5_0:1'
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def name(self) -> str:
        """mlx5_0:1."""
    @property
    def sent_bytes(self) -> int:
        """Of NCCL's data."""
    @property
    def received_bytes(self) -> int:
        """Of NCCL's data."""
    @property
    def sent_messages(self) -> int:
        """Stripes: what went over this port of NCCL's messages."""
    @property
    def received_messages(self) -> int:
        """Stripes, as above."""
    @property
    def resent_bytes(self) -> int:
        """After a fault elsewhere."""
    @property
    def stalls(self) -> int:
        """How often nothing got through for a while."""
    @property
    def faults(self) -> int:
        """Episodes that began on it."""

class Histogram:
    """How long something took, over the life of the process.

    Example:
        >>> histogram = railhop.stats().histograms[0]
        >>> histogram.unit, len(histogram.counts) - len(histogram.bounds)
        ('ns', 1)
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def name(self) -> str:
        """detect, agree, resume or probe."""
    @property
    def unit(self) -> str:
        """Of bounds, sum and max."""
    @property
    def bounds(self) -> tuple[int, ...]:
        """The upper bounds of all buckets but the last."""
    @property
    def counts(self) -> tuple[int, ...]:
        """Of each bucket; the last is above all bounds."""
    @property
    def count(self) -> int:
        """Of all."""
    @property
    def sum(self) -> int:
        """Of all."""
    @property
    def max(self) -> int:
        """Of all."""

class Stats:
    """The counters of a process: they only grow.

    Example:
        >>> stats = railhop.stats()
        >>> stats.probes_sent >= stats.probes_answered
        True
        >>> [histogram.name for histogram in stats.histograms]
        ['detect', 'agree', 'resume', 'probe']
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def process(self) -> ProcessInfo:
        """Who it is."""
    @property
    def ports(self) -> tuple[PortStats, ...]:
        """What each has carried."""
    @property
    def faults(self) -> dict[Cause, int]:
        """Episodes by cause."""
    @property
    def episodes_begun(self) -> int:
        """Faults, however many connections each had."""
    @property
    def episodes_recovered(self) -> int:
        """Of these."""
    @property
    def gave_up(self) -> int:
        """Connections that nothing could carry for too long."""
    @property
    def bytes_resent(self) -> int:
        """After faults."""
    @property
    def stripes_resent(self) -> int:
        """After faults."""
    @property
    def probes_sent(self) -> int:
        """Over all paths."""
    @property
    def probes_answered(self) -> int:
        """Of these."""
    @property
    def probes_lost(self) -> int:
        """Of these."""
    @property
    def stale_messages(self) -> int:
        """Of the control channel: of an old epoch, or of nothing known."""
    @property
    def refused_messages(self) -> int:
        """Of the control channel: that no honest peer sends."""
    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """Times to detect, agree and resume, and of probes."""

class Event:
    """Something that happened in a process.

    Fields that do not concern its kind are empty, or 0.

    Example:
        >>> for event in railhop.events(limit=3):
        ...     print(event.serial, isinstance(event.kind, railhop.EventKind))
        1 True
        2 True
        3 True
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def serial(self) -> int:
        """From 1, without gaps."""
    @property
    def time_unix_ns(self) -> int:
        """When it happened."""
    @property
    def kind(self) -> EventKind:
        """What it tells."""
    @property
    def severity(self) -> Severity:
        """Whether a person may need to act."""
    @property
    def episode(self) -> int:
        """That it belongs to; 0 if none."""
    @property
    def port(self) -> str:
        """Of this process."""
    @property
    def peer_host(self) -> str:
        """The host at the other end."""
    @property
    def peer_port(self) -> str:
        """The port there."""
    @property
    def connection(self) -> str:
        """Its id, hexadecimal."""
    @property
    def direction(self) -> Direction:
        """Of the connection."""
    @property
    def epoch(self) -> int:
        """Of the connection, from then on."""
    @property
    def cause(self) -> Cause:
        """Why."""
    @property
    def blame(self) -> Blame:
        """What most likely has to be repaired."""
    @property
    def value(self) -> int:
        """Lanes, or nanoseconds of an episode that is over."""
    @property
    def bytes(self) -> int:
        """Sent again."""
    @property
    def text(self) -> str:
        """For people."""

class EventList:
    """Events, oldest first: a sequence of them.

    Example:
        >>> events = railhop.events(limit=2)
        >>> len(events), events[-1].serial, events.gone
        (2, 2, 0)
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def events(self) -> tuple[Event, ...]:
        """Oldest first."""
    @property
    def gone(self) -> int:
        """That were asked for and are not kept any more."""
    @property
    def last_serial(self) -> int:
        """Of all that there are, also of those behind the limit."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Event: ...
    def __iter__(self) -> Iterator[Event]: ...

class EventFollower:
    """Events as they happen: railhop.follow() makes it.

    Example:
        >>> next(railhop.follow()).serial
        1
    """
    def __iter__(self) -> Iterator[Event]: ...
    def __next__(self) -> Event: ...
    @property
    def gone(self) -> int:
        """Events that were asked for and are not kept any more."""

class Option:
    """A setting and what is in force.

    Example:
        >>> options = {option.name: option for option in railhop.config()}
        >>> options["RAILHOP_FAILOVER"].value
        '1'
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def name(self) -> str:
        """Of the variable."""
    @property
    def value(self) -> str:
        """In force."""
    @property
    def default_value(self) -> str:
        """Without any setting."""
    @property
    def source(self) -> str:
        """default, environment, a file with its line, or command."""
    @property
    def unit(self) -> str:
        """Empty if it has none."""
    @property
    def range(self) -> str:
        """What is allowed."""
    @property
    def doc(self) -> str:
        """What it does."""
    @property
    def changeable(self) -> bool:
        """While the process runs."""
    @property
    def note(self) -> str:
        """After a change: what comes of it besides; empty if nothing."""

class Outcome:
    """What a command has done.

    Example:
        >>> railhop.hold("mlx5_3").ports
        ('mlx5_3:1',)
        >>> railhop.release("mlx5_3").ports
        ('mlx5_3:1',)
    """
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, which json can write: words as str, times and sizes as int."""
    def __repr__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def ports(self) -> tuple[str, ...]:
        """That it concerned."""
    @property
    def connections(self) -> int:
        """That had lanes there."""
    @property
    def text(self) -> str:
        """One line for a person."""

class Process:
    """Another process of this node: railhop.attach() makes it.

    It has the same calls as the module has for its own process. Calls from several threads may wait at
    the same time.

    Example:
        >>> process = railhop.processes()[0].attach()
        >>> sorted({port.state for port in process.health().ports})
        [<PortState.UP: 'up'>]
    """
    @property
    def name(self) -> str:
        """The path of its socket."""
    def __repr__(self) -> str: ...
    def info(self) -> ProcessInfo:
        """Who it is.

        Example:
            >>> railhop.processes()[0].attach().info().version == railhop.__version__
            True
        """
    def health(self) -> Health:
        """How it fares now; see railhop.health.

        Example:
            >>> railhop.processes()[0].attach().health().verdict
            <Verdict.OK: 'ok'>
        """
    def stats(self) -> Stats:
        """Its counters; see railhop.stats.

        Example:
            >>> railhop.processes()[0].attach().stats().gave_up
            0
        """
    def events(self, after: int = 0, limit: int = 1024, wait_s: float = 0.0) -> EventList:
        """What happened in it; see railhop.events.

        Example:
            >>> railhop.processes()[0].attach().events(limit=1)[0].serial
            1
        """
    def follow(self, after: int = 0, timeout_s: float | None = None) -> EventFollower:
        """Its events as they happen, until it ends; see railhop.follow.

        Example:
            >>> for event in railhop.processes()[0].attach().follow():
            ...     break
            >>> event.serial
            1
        """
    def config(self) -> list[Option]:
        """Its options; see railhop.config.

        Example:
            >>> options = railhop.processes()[0].attach().config()
            >>> [option.source for option in options if option.name == "RAILHOP_FAILOVER"]
            ['default']
        """
    def force_failover(self, target: str, mode: str = "drain") -> Outcome:
        """Moves traffic away; see railhop.force_failover.

        Example:
            >>> process = railhop.processes()[0].attach()
            >>> process.force_failover("mlx5_1").ports
            ('mlx5_1:1',)
            >>> _ = process.release("mlx5_1")
        """
    def fail_back(self, target: str | None = None) -> Outcome:
        """Moves traffic back; see railhop.fail_back.

        Example:
            >>> process = railhop.processes()[0].attach()
            >>> isinstance(process.fail_back(), railhop.Outcome)
            True
        """
    def hold(self, target: str) -> Outcome:
        """Takes a port or device out of service; see railhop.hold.

        Example:
            >>> process = railhop.processes()[0].attach()
            >>> process.hold("mlx5_1:1").ports
            ('mlx5_1:1',)
            >>> _ = process.release("mlx5_1:1")
        """
    def release(self, target: str) -> Outcome:
        """Takes it into service again; see railhop.release.

        Example:
            >>> process = railhop.processes()[0].attach()
            >>> _ = process.hold("mlx5_1")
            >>> process.release("mlx5_1").ports
            ('mlx5_1:1',)
        """
    def set_option(self, name: str, value: str) -> Option:
        """Changes an option while it runs; see railhop.set_option.

        Example:
            >>> process = railhop.processes()[0].attach()
            >>> process.set_option("RAILHOP_STALL_THRESHOLD", "2s").source
            'command'
        """

class FoundProcess:
    """A process of this node that has, or had, the plugin.

    Example:
        >>> found = railhop.processes()[0]
        >>> found.problem
        ''
        >>> found.attach().info().pid == found.pid
        True
    """
    @property
    def pid(self) -> int:
        """Its number."""
    @property
    def uid(self) -> int:
        """The user that it belongs to."""
    @property
    def path(self) -> str:
        """Its socket."""
    @property
    def info(self) -> ProcessInfo | None:
        """Who it is; None if it did not say."""
    @property
    def problem(self) -> str:
        """Why it did not say; else empty."""
    def attach(self, timeout_s: float = 10.0) -> Process:
        """Takes hold of it. Raises what railhop.attach raises.

        Example:
            >>> railhop.processes()[0].attach().health().verdict
            <Verdict.OK: 'ok'>
        """
    def __repr__(self) -> str: ...

def health() -> Health:
    """How this process fares: verdict, devices, ports, paths, connections, last episodes.

    Raises:
      NotLoadedError: NCCL has not loaded the plugin in this process.

    Example:
        >>> health = railhop.health()
        >>> health.verdict
        <Verdict.OK: 'ok'>
        >>> [port.name for port in health.ports]
        ['mlx5_0:1', 'mlx5_1:1', 'mlx5_2:1', 'mlx5_3:1']
    """

def stats() -> Stats:
    """The counters of this process: bytes by port, faults by cause, times to recover.

    Raises:
      NotLoadedError: NCCL has not loaded the plugin in this process.

    Example:
        >>> stats = railhop.stats()
        >>> sum(port.sent_bytes + port.received_bytes for port in stats.ports) > 0
        True
    """

def events(after: int = 0, limit: int = 1024, wait_s: float = 0.0) -> EventList:
    """What happened in this process, oldest first.

    Args:
      after: only events with a greater serial: the last that was seen.
      limit: at most so many, 1 to 4096.
      wait_s: if there is none, wait so long for the first.

    Raises:
      NotLoadedError: NCCL has not loaded the plugin in this process.
      InvalidError: A number that is not allowed.

    Example:
        >>> seen = railhop.events().last_serial
        >>> len(railhop.events(after=seen + 1000, wait_s=0.01))
        0
    """

def follow(after: int = 0, timeout_s: float | None = None) -> EventFollower:
    """Events of this process as they happen: an iterator that waits for the next.

    Args:
      after: only events with a greater serial; 0 begins with the oldest that is kept.
      timeout_s: end if there is none for so long; None waits for ever.

    Raises:
      NotLoadedError: NCCL has not loaded the plugin in this process.

    Example:
        >>> for event in railhop.follow(timeout_s=1):
        ...     if event.serial == 3:
        ...         break
        >>> event.serial
        3
    """

def config() -> list[Option]:
    """Every option of this process with what is in force and where it comes from.

    Raises:
      NotLoadedError: NCCL has not loaded the plugin in this process.

    Example:
        >>> [option.value for option in railhop.config() if option.name == "RAILHOP_FAILOVER"]
        ['1']
    """

def force_failover(target: str, mode: str = "drain") -> Outcome:
    """Moves this process's traffic away from a port, a device or what carries a connection now.

    A port or device stays out of service until it is released.

    Args:
      target: "mlx5_0:1", a port; "mlx5_0", all ports of a device; "connection:" and its id.
      mode: "drain" lets what is under way complete first; "now" fences at once, as a fault does.

    Raises:
      NotFoundError: No such target; the text lists what there is.
      RefusedError: It would leave a connection without a path. Nothing has changed.
      InvalidError: A word that means nothing.

    Example:
        >>> railhop.force_failover("mlx5_0").ports
        ('mlx5_0:1',)
        >>> railhop.release("mlx5_0").ports
        ('mlx5_0:1',)
    """

def fail_back(target: str | None = None) -> Outcome:
    """Moves traffic back to the nearest ports that answer, without waiting for the hold-down.

    Args:
      target: as force_failover has it; None is everything.

    Raises:
      NotFoundError: No such target; the text lists what there is.

    Example:
        >>> isinstance(railhop.fail_back(), railhop.Outcome)
        True
    """

def hold(target: str) -> Outcome:
    """Takes a port or device out of service, in order, until it is released.

    Raises:
      NotFoundError: No such port or device; the text lists what there is.
      RefusedError: It is the last that carries a connection. Nothing has changed.

    Example:
        >>> _ = railhop.hold("mlx5_2")
        >>> [port.held_by_command for port in railhop.health().ports if port.name == "mlx5_2:1"]
        [True]
        >>> _ = railhop.release("mlx5_2")
    """

def release(target: str) -> Outcome:
    """Takes a port or device into service again, once probes have proved it.

    Where no command holds it nothing changes, and the outcome names no port.

    Raises:
      NotFoundError: No such port or device; the text lists what there is.

    Example:
        >>> _ = railhop.hold("mlx5_2")
        >>> railhop.release("mlx5_2").ports
        ('mlx5_2:1',)
        >>> railhop.release("mlx5_2").text
        'mlx5_2: no command holds it; nothing has changed'
    """

def set_option(name: str, value: str) -> Option:
    """Changes an option of this process while it runs; config() says which may be changed.

    Raises:
      NotFoundError: No such option.
      RefusedError: It cannot change while the process runs.
      InvalidError: Not a value of it; the text says what is allowed.

    Example:
        >>> railhop.set_option("RAILHOP_STALL_THRESHOLD", "2s").source
        'command'
    """

def attach(
    *,
    pid: int | None = None,
    job: str | None = None,
    path: str | None = None,
    timeout_s: float = 10.0,
) -> Process:
    """Takes hold of a process of this node from outside, by its admin socket.

    Args:
      pid: of the process.
      job: RAILHOP_JOB_ID, SLURM_JOB_ID or TORCHELASTIC_RUN_ID of it, if it is the only one here.
      path: of its socket.
      timeout_s: for each call.

    Raises:
      NotFoundError: No such process or job, or one without the plugin.
      StaleSocketError: The process has ended.
      NotAllowedError: It belongs to another user.
      InvalidError: Not exactly one of pid, job and path.

    Example:
        >>> process = railhop.attach(pid=railhop.processes()[0].pid)
        >>> process.health().process.running
        True
    """

def processes(job: str | None = None, *, timeout_s: float = 1.0) -> list[FoundProcess]:
    """All processes of this node that have the plugin, by pid.

    Those that do not answer are among them, with the reason in `problem`.

    Args:
      job: only those of this job, and those that do not answer in time: their job is not known.
      timeout_s: for each of them to say who it is.

    Raises:
      NotFoundError: RAILHOP_ADMIN_DIR is set, and there is no such folder.
      NotAllowedError: RAILHOP_ADMIN_DIR is set to a folder that this user may not look into.
      InvalidError: RAILHOP_ADMIN_DIR is set to what is no folder.

    Example:
        >>> [found.problem for found in railhop.processes()]
        ['', '']
        >>> railhop.processes(job="nobody's")
        []
    """
