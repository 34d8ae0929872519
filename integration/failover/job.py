"""A job of two processes over a fabric of its own, faults while it runs, and what came of it.

The job is railhop-netperf with the built plugin: sender on host alpha, receiver on host beta (or as
the topology says), messages of all sizes, every byte and guard zone compared. It runs until `end`,
so a test waits for what it wants to see, not for a time.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Optional

from railhop.testing.fabric import Fabric

_PROGRAM = os.environ["RAILHOP_TEST_PROGRAM"]
_PLUGIN = str(pathlib.Path(os.environ["RAILHOP_TEST_PLUGIN"]).resolve())
_LAUNCHER = str(pathlib.Path(os.environ["RAILHOP_TEST_LAUNCHER"]).resolve())
_LIBRARY_DIR = pathlib.Path(os.environ["RAILHOP_TEST_LIBRARY"]).resolve().parent
_TOPOLOGIES = pathlib.Path("testdata/topologies")

# Far more than anything here takes, for machines that are busy.
PATIENCE_S = 60.0

# Short, so that no test waits long for silence to count.
OPTIONS = {
    "RAILHOP_STALL_THRESHOLD": "300ms",
    "RAILHOP_PROBE_INTERVAL": "100ms",
    "RAILHOP_HOLD_DOWN": "200ms",
    "RAILHOP_HOLD_DOWN_MAX": "3s",
    "RAILHOP_PORT_POLL_INTERVAL": "100ms",
    "RAILHOP_GIVE_UP_TIME": "30s",
    "RAILHOP_LOG": "trace",
    "NCCL_DEBUG": "TRACE",
    "NCCL_SOCKET_IFNAME": "lo",
    "HOME": "/nonexistent",
}

# What a process keeps of the software fabric when all is closed: its NIC's thread, its memory.
_OF_THE_FABRIC = 1

_JOURNAL = re.compile(
    r"journal (?P<serial>\d+) (?P<kind>[\w-]+): episode (?P<episode>\d+), port (?P<local>-?\d+), "
    r"peer (?P<peer>\w+) port (?P<remote>-?\d+), connection (?P<connection>\w+) (?P<end>\w+), "
    r"epoch (?P<epoch>\d+), (?P<cause>[^,]*), (?P<rest>.*)"
)


@dataclasses.dataclass(frozen=True)
class Line:
    """A line that the plugin said."""

    time_s: float  # of time.monotonic, as it was read
    pid: int
    text: str

    @property
    def warning(self) -> bool:
        return " NCCL WARN " in self.text


def _tail(log: list[str]) -> str:
    """The last lines of a log, for messages; RAILHOP_TEST_LOG_LINES sets how many."""
    count = int(os.environ.get("RAILHOP_TEST_LOG_LINES", "80"))
    return "\n".join([one for one in log if "NET/Railhop : option" not in one][-count:])


@dataclasses.dataclass
class Ended:
    """A job that is over."""

    status: int
    figures: list[dict[str, Any]]
    log: list[Line]
    processes: dict[int, str]  # pid: host
    queue_pairs_left: int
    gaps: list[dict[str, int]]

    @property
    def last(self) -> dict[str, Any]:
        return self.figures[-1]

    def _of(self, host: str) -> list[Line]:
        return [one for one in self.log if not host or self.processes.get(one.pid) == host]

    def warnings(self, host: str = "") -> list[str]:
        return [one.text for one in self._of(host) if one.warning]

    def text(self, host: str = "") -> str:
        return "\n".join(one.text for one in self._of(host))

    def journal(self, kind: str, host: str = "") -> list[dict[str, str]]:
        """Entries of this kind: episode, recovered, moved and so on."""
        entries = []
        for one in self._of(host):
            found = _JOURNAL.search(one.text)
            if found and found["kind"] == kind:
                entries.append(found.groupdict())
        return entries

    def begun(self, host: str = "") -> list[str]:
        """The lines that say that an episode began."""
        return [one for one in self.warnings(host) if "leave it for other ports" in one]

    def recovered(self, host: str = "") -> list[str]:
        """The lines that say that one is over."""
        return [one for one in self.warnings(host) if ": recovered after " in one]

    def show(self) -> str:
        """For messages of assertions."""
        return json.dumps(self.last) + "\n" + _tail([one.text for one in self.log])


class Job:
    """See the file's comment. Ends everything on leaving."""

    def __init__(
        self,
        *options: str,
        topology: str = "two-hosts-4nic",
        size: int = 40001,
        connections: int = 2,
        devices: str = "0",
        env: Optional[dict[str, str]] = None,
        before: Sequence[str] = (),
        endless: bool = True,
        hosts: str = "alpha,beta",
        mixed: bool = True,
        seed: int = 0,
    ) -> None:
        """Starts it.

        Args:
          options: further ones of railhop-netperf.
          topology: a name of testdata/topologies, or a text.
          size: bytes of the largest messages.
          connections: as netperf has them.
          devices: as netperf has them.
          env: variables beside OPTIONS.
          before: faults that are in force when the processes start.
          endless: runs until `end`; else as `options` say.
          hosts: of sender and receiver.
          mixed: messages of all sizes.
          seed: of the fabric.
        """
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        path = _TOPOLOGIES / f"{topology}.topology"
        if "\n" in topology:
            path = self.folder / "own.topology"
            path.write_text(topology, encoding="ascii")
        self.hosts = hosts.split(",")
        self.fabric = Fabric(str(path), seed=seed, library_dir=_LIBRARY_DIR)
        for words in before:
            self.fabric.fault(words)
        self.admin_dir = self.folder / "admin"
        self._show = self.folder / "show.json"
        self._gaps = self.folder / "gaps"
        command = [
            _PROGRAM, "--plugin", _PLUGIN, "--json", "--metric", "bandwidth", "--hosts", hosts,
            *(["--size", str(size)] if "--size" not in options else []),
            "--connections", str(connections), "--devices", devices,
            *(["--check", "all"] if "--check" not in options else []),
            "--gaps", str(self._gaps),
            *(["--gap-min", "50"] if "--gap-min" not in options else []),
            "--after-close", f"{_LAUNCHER} show --json > {self._show}",
            *(["--mixed"] if mixed else []),
            *(["--seconds", "600"] if endless else []),
            *options,
        ]  # fmt: skip
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "RAILHOP_"))}
        self._log: list[Line] = []
        self._log_lock = threading.Condition()
        self._process = subprocess.Popen(
            command,
            env={
                **kept,
                **OPTIONS,
                "RAILHOP_ADMIN_DIR": str(self.admin_dir),
                **(env or {}),
                **self.fabric.environment(),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._out: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_log), threading.Thread(target=self._read_out)
        ]  # fmt: skip
        for reader in self._readers:
            reader.start()
        self.processes: dict[int, str] = {}
        self._fds: list[int] = []

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for text in self._process.stderr:
            found = re.match(r"\[(\d+)\] ", text)
            line = Line(time.monotonic(), int(found[1]) if found else 0, text.rstrip("\n"))
            with self._log_lock:
                self._log.append(line)
                self._log_lock.notify_all()
        with self._log_lock:
            self._log_lock.notify_all()

    def _read_out(self) -> None:
        assert self._process.stdout is not None
        self._out.extend(self._process.stdout)

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._process.poll() is None:
            # Its processes die with it.
            self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for fd in self._fds:
            os.close(fd)
        self.fabric.close()
        self._folder.cleanup()

    # ---- What it does now.

    def log_text(self) -> str:
        """What was said so far."""
        with self._log_lock:
            return "\n".join(one.text for one in self._log)

    def _fail(self, what: str) -> AssertionError:
        tail = _tail(self.log_text().splitlines())
        return AssertionError(f"{what}\n{''.join(self._out)}\n{tail}")

    def wait(self, what: str, true: Callable[[], bool], *, timeout_s: float = PATIENCE_S) -> None:
        """Until `true()` is."""
        deadline = time.monotonic() + timeout_s
        while not true():
            if self._process.poll() is not None and not true():
                raise self._fail(f"the job ended before: {what}")
            if time.monotonic() > deadline:
                raise self._fail(f"not within {timeout_s} s: {what}")
            time.sleep(0.01)

    def wait_log(
        self, pattern: str, *, count: int = 1, host: str = "", timeout_s: float = PATIENCE_S
    ) -> None:
        """Until so many lines match."""
        compiled = re.compile(pattern)

        def there() -> bool:
            with self._log_lock:
                lines = [
                    one for one in self._log if not host or self.processes.get(one.pid) == host
                ]
            return sum(1 for one in lines if compiled.search(one.text)) >= count

        self.wait(f"{count} line(s) with {pattern!r}", there, timeout_s=timeout_s)

    def counters(self, port: str) -> dict[str, int]:
        """Of "alpha/mlx5_0"."""
        host, device = port.split("/")
        for one in self.fabric.snapshot()["devices"]:
            if one["host"] == host and one["name"] == device:
                counters: dict[str, int] = one["ports"][0]["counters"]
                return counters
        raise ValueError(f"no {port}")

    def bytes_of(self, port: str) -> int:
        """Sent and received by a port."""
        counters = self.counters(port)
        return counters["tx_bytes"] + counters["rx_bytes"]

    def wait_bytes(self, port: str, more: int = 400_000) -> None:
        """Until the port has moved so much more."""
        start = self.bytes_of(port)
        self.wait(f"{more} bytes over {port}", lambda: self.bytes_of(port) - start >= more)

    def wait_traffic(self, port: str = "", more: int = 400_000) -> None:
        """Until the job runs; learns its processes."""
        self.wait_bytes(port or f"{self.hosts[1]}/mlx5_0", more)
        for one in self.fabric.snapshot()["processes"]:
            self.processes[one["pid"]] = one["host"]

    def wait_elsewhere(self, *ports: str, more: int = 400_000) -> None:
        """Until so much has reached the receiver by other ports than these."""

        def received() -> int:
            return sum(
                one["ports"][0]["counters"]["rx_bytes"]
                for one in self.fabric.snapshot()["devices"]
                if one["host"] == self.hosts[1] and f"{one['host']}/{one['name']}" not in ports
            )

        start = received()
        self.wait(f"{more} bytes beside {ports}", lambda: received() - start >= more)

    def fault(self, words: str) -> None:
        """Puts it in."""
        self.fabric.fault(words)

    def pid(self, host: str) -> int:
        """Of the process there."""
        return next(pid for pid, place in self.processes.items() if place == host)

    def wait_figures(self, count: int) -> None:
        """Until so many legs are over."""
        self.wait(f"{count} leg(s)", lambda: len(self._out) >= count, timeout_s=5 * PATIENCE_S)

    def recovered(self) -> int:
        """How many episodes are over, over all processes."""
        return len(re.findall(r"journal \d+ recovered:", self.log_text()))

    # ---- Its TCP connections.

    def sockets(self, host: str, *, listening: bool) -> list[tuple[int, int]]:
        """TCP sockets of a process: (descriptor in that process, port)."""
        pid = self.pid(host)
        ports = {}
        for name in ("tcp", "tcp6"):
            table = pathlib.Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii")
            for row in table.splitlines()[1:]:
                fields = row.split()
                if (fields[3] == "0A") == listening:
                    ports[fields[9]] = int(fields[1].rsplit(":", 1)[1], 16)
        found = []
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(entry)
            except OSError:
                continue
            inode = re.match(r"socket:\[(\d+)\]", target)
            if inode and inode[1] in ports:
                found.append((int(entry.name), ports[inode[1]]))
        return found

    def cut(self, host: str, *, listening: bool = False) -> int:
        """Shuts TCP connections of a process down behind its back; how many."""
        libc = ctypes.CDLL(None, use_errno=True)
        pid_fd = libc.syscall(434, self.pid(host), 0)  # pidfd_open
        assert pid_fd >= 0, os.strerror(ctypes.get_errno())
        count = 0
        for fd, _ in self.sockets(host, listening=listening):
            own = libc.syscall(438, pid_fd, fd, 0)  # pidfd_getfd
            if own < 0:
                continue
            with socket.socket(fileno=own) as copy:
                try:
                    copy.shutdown(socket.SHUT_RDWR)
                    count += 1
                except OSError:
                    pass
        os.close(pid_fd)
        return count

    # ---- Its end.

    def end(self) -> Ended:
        """Ends an endless job with nothing under way."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return self.join()

    def join(self, timeout_s: float = 2 * PATIENCE_S) -> Ended:
        """Waits until it has ended by itself."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._fail("the job does not end") from None
        for reader in self._readers:
            reader.join()
        left = 0
        if self._show.exists() and self._show.stat().st_size:
            shown = json.loads(self._show.read_text(encoding="utf-8"))
            left = sum(one["queue_pairs"] for one in shown["processes"])
        gaps = []
        if self._gaps.exists():
            text = self._gaps.read_text(encoding="ascii")
            gaps = [json.loads(line) for line in text.splitlines()]
        figures = [json.loads(line) for line in self._out if line.startswith("{")]
        assert figures, self._fail("no result")
        return Ended(status, figures, list(self._log), dict(self.processes), left, gaps)


# ---- What has to hold.


def assert_right(ended: Ended, *, processes: int = 2, contexts: int = 0) -> None:
    """Every byte, guard zone, size and count; nothing left; no call that waited."""
    last = ended.last
    assert last["survived"], ended.show()
    assert last["messages"] > 0, ended.show()
    for key in ("wrong_bytes", "wrong_sizes", "errors"):
        assert last[key] == 0, ended.show()
    assert ended.status == 0, ended.show()
    assert_nothing_left(ended, processes=processes, contexts=contexts)
    # No call waits for anything. (Seconds: the machine may be busy; what hangs does so for 30 s.)
    assert last["longest_turn_ms"] < 10_000, ended.show()


def assert_nothing_left(ended: Ended, *, processes: int = 2, contexts: int = 0) -> None:
    """Threads, descriptors and queue pairs after closing.

    contexts: devices that are gone, whose context can be closed no more: a descriptor each.
    """
    last = ended.last
    assert last["threads_left"] <= processes * _OF_THE_FABRIC, ended.show()
    assert last["descriptors_left"] <= processes * _OF_THE_FABRIC + contexts, ended.show()
    # Queue pairs of a device that is gone are gone with it; the fabric goes on counting them.
    if contexts == 0:
        assert ended.queue_pairs_left == 0, ended.show()


def assert_silent(ended: Ended) -> None:
    """Nothing was injected: nothing is said, no episode, nothing moved."""
    assert not ended.warnings(), ended.show()
    for kind in ("episode", "suspect", "recovered", "moved", "gave-up", "peer-lost", "no-path"):
        assert not ended.journal(kind), ended.show()


def assert_told(
    ended: Ended, port: str, *, host: str = "alpha", episodes: int = 1, cause: str = ""
) -> None:
    """One line as each episode begins and one when it is over, in the process on `host`.

    They name port and peer host, cause, effect and next step, duration and bytes.
    """
    peer = socket.gethostname().split(".")[0]
    begun = ended.begun(host)
    over = ended.recovered(host)
    assert len(begun) == episodes, ended.show()
    assert len(over) == episodes, ended.show()
    for line in begun:
        assert f"{port} to {peer}" in line, line
        assert re.search(r"\d+ connection\(s\) leave it for other ports, the job goes on; \w", line)
        assert cause in line, line
    for line in over:
        assert f"{port} to {peer}" in line, line
        assert re.search(r"recovered after [\d.]+ \w*s: \d+ connection\(s\) go on over \w", line)
        assert re.search(r"\d+ bytes were sent again", line), line
    assert len(ended.warnings(host)) <= 2 * episodes + 1, ended.show()
