"""The built-in workload: streams between the first two hosts, every byte compared."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import tempfile
from typing import Any, Optional

from railhop import paths
from railhop.drills.errors import DrillError
from railhop.drills.judge import Gap
from railhop.drills.workload import Group, Outcome, status_text, uninterrupted
from railhop.drills.world import AnyWorld, World

# Gaps that are shorter come with every message.
_GAP_MS_MIN = 5.0
_SIZE_BYTES = 128 << 10


class Streams:
    """railhop-netperf with one connection for each NIC, sender on the first host.

    It compares every byte, guard zone and size, so `wrong_bytes` is known.
    """

    endless = True

    def __init__(
        self, *, connections: int = 0, environment: Optional[dict[str, str]] = None
    ) -> None:
        """connections: 0 for one for each NIC. environment: further variables."""
        self._connections = connections
        self._environment = environment or {}
        self._folder = tempfile.TemporaryDirectory(prefix="railhop-drill-")
        self._group: Optional[Group] = None
        self._size = 0

    @property
    def about(self) -> str:
        """For people."""
        return "netperf streams, every byte compared"

    def start(self, world: AnyWorld) -> None:
        """See Workload."""
        if not isinstance(world, World):
            raise DrillError(
                "streams need software NICs: say --fabric TOPOLOGY, or give a command: -- CMD"
            )
        hosts = world.hosts
        if len(hosts) < 2:
            hosts = [hosts[0], hosts[0]]
        nics = min(len(world.devices[host]) for host in hosts[:2])
        command = [
            str(paths.netperf_path()), "--plugin", str(paths.plugin_path()), "--json",
            "--metric", "bandwidth", "--hosts", ",".join(hosts[:2]),
            "--devices", ",".join(str(i) for i in range(nics)),
            "--connections", str(self._connections or nics), "--check", "all", "--mixed",
            "--size", str(_SIZE_BYTES), "--seconds", "86400",
            "--gaps", f"{self._folder.name}/gaps", "--gap-min", str(_GAP_MS_MIN),
        ]  # fmt: skip
        if not os.access(command[0], os.X_OK):
            raise DrillError(f"no railhop-netperf at {command[0]}; build it with tools/build")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("NCCL_")}
        env = {
            **world.defaults(),
            **kept,
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_DEBUG": "WARN",
            **self._environment,
            **world.environment(),
        }
        with uninterrupted():
            self._group = Group(command, env)

    def _started(self) -> Group:
        assert self._group is not None, "start() comes first"
        return self._group

    def running(self) -> bool:
        """See Workload."""
        return self._started().status() is None

    def ended_well(self) -> bool:
        """See Workload."""
        return self._started().status() == 0

    def complaint(self) -> str:
        """See Workload."""
        group = self._started()
        last = _verdict(group)
        if last is not None and last["problem"]:
            return str(last["problem"])
        return group.last_line() or status_text(group.status() or 0)

    def end(self) -> Outcome:
        """See Workload."""
        group = self._started()
        group.send(signal.SIGINT)
        status = group.wait()
        last = _verdict(group)
        if last is None:
            return Outcome(False, status_text(status))
        survived = bool(last["survived"]) and last["errors"] == 0
        gaps = _gaps(pathlib.Path(self._folder.name) / "gaps")
        return Outcome(
            survived=survived,
            problem=last["problem"],
            wrong_bytes=last["wrong_bytes"] + last["wrong_sizes"],
            # One that has died has not noted everything.
            messages=last["messages"] if survived else last["messages"] or None,
            gaps=gaps if survived else gaps or None,
        )

    def kill(self) -> None:
        """See Workload."""
        if self._group is not None:
            self._group.kill()
        self._folder.cleanup()


def _verdict(group: Group) -> Optional[dict[str, Any]]:
    """Netperf's last line."""
    for line in reversed(group.tail()):
        if line.startswith('{"survived"'):
            found: dict[str, Any] = json.loads(line)
            return found
    return None


def _gaps(file: pathlib.Path) -> list[Gap]:
    if not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]
    return [Gap(line["from_ns"] / 1e9, line["to_ns"] / 1e9) for line in lines]
