"""The other place for a drill: this machine's own NICs, where nothing but commands can be put in.

Counters and states come from the processes themselves, over the admin API: it knows what is NCCL's
traffic, and works for every driver.
"""

from __future__ import annotations

import contextlib
import pathlib
import socket
import time
from collections.abc import Mapping
from typing import Any, Optional

import railhop
from railhop.drills.errors import DrillError
from railhop.drills.sampler import PortCount
from railhop.scenario import COMMANDS, Scenario, ScenarioError, Step

_DEVICES = pathlib.Path("/sys/class/infiniband")
# How often it is looked for new processes.
_LOOK_S = 0.5


def parent_of(pid: int) -> int:
    """Of a process; 0 if it is not there."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    # The name, in brackets, may have anything in it.
    return int(text.rsplit(")", 1)[1].split()[1])


def descends(pid: int, roots: set[int]) -> bool:
    """Whether a process is one of these or was started by one, over any number of steps."""
    seen: set[int] = set()
    while pid > 1 and pid not in seen:
        if pid in roots:
            return True
        seen.add(pid)
        pid = parent_of(pid)
    return False


class NodeWorld:
    """The machine that it runs on, with the same calls as World."""

    def __init__(self, *, devices_dir: Optional[pathlib.Path] = None, api: Any = None) -> None:
        """Looks at its devices.

        Errors: DrillError if there is none.
        """
        folder = devices_dir or _DEVICES
        names = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
        if not names:
            raise DrillError(
                "no fabric and no NIC: this machine has no RDMA device; say --fabric "
                "two-hosts-4nic to hold the drill on software NICs ('railhop fabric topology' "
                "lists more)"
            )
        self._api = api or railhop
        self._host = socket.gethostname()
        self.topology = f"the NICs of {self._host}"
        self.devices = {self._host: names}
        self._roots: set[int] = set()
        self._known: dict[int, Any] = {}
        self._looked_s = 0.0
        # By process and port: what a process that has ended had carried stays counted.
        self._counts: dict[tuple[int, str], PortCount] = {}

    def __enter__(self) -> NodeWorld:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def hosts(self) -> list[str]:
        """The one that it runs on."""
        return list(self.devices)

    def environment(
        self, _host: str = "", _base: Optional[Mapping[str, str]] = None
    ) -> dict[str, str]:
        """Nothing has to be set."""
        return {}

    def defaults(self) -> dict[str, str]:
        """What is set unless the user has set it: nothing, these are jobs like others."""
        return {}

    def started(self, pid: int) -> None:
        """A workload's process has been started."""
        self._roots.add(pid)

    def check(self, scenario: Scenario) -> None:
        """Errors: ScenarioError for a fault: real NICs take commands only."""
        for step in scenario.steps:
            if step.verb not in COMMANDS:
                raise ScenarioError(
                    f"{step.source}: '{step.text}' needs software NICs: say --fabric TOPOLOGY; "
                    f"real NICs take {', '.join(COMMANDS)}"
                )

    def fault(self, step: Step) -> None:
        """Never: see check."""
        raise ScenarioError(f"{step.source}: '{step.text}' needs software NICs")

    def cap(self, rate: str) -> None:
        """Errors: DrillError."""
        raise DrillError(f"the NIC rate '{rate}' needs software NICs: say --fabric TOPOLOGY")

    def _processes(self) -> dict[int, Any]:
        if time.monotonic() - self._looked_s >= _LOOK_S:
            self._looked_s = time.monotonic()
            found: list[Any] = []
            with contextlib.suppress(railhop.NotFoundError):  # the first process makes the folder
                found = self._api.processes()
            for one in found:
                if one.pid not in self._known and one.info and descends(one.pid, self._roots):
                    with contextlib.suppress(railhop.Error):  # it ends at this moment
                        self._known[one.pid] = one.attach()
        return dict(self._known)

    def counts(self) -> dict[str, PortCount]:
        """Of each port, summed up over the workload's processes."""
        for pid, process in self._processes().items():
            try:
                up = {one.name: str(one.state) == "up" for one in process.health().ports}
                for one in process.stats().ports:
                    count = PortCount(one.received_bytes, one.sent_bytes, up.get(one.name, True))
                    self._counts[pid, one.name] = count
            except railhop.Error:
                self._known.pop(pid, None)
        found: dict[str, PortCount] = {}
        for (_, name), count in self._counts.items():
            port = f"{self._host}/{name}"
            before = found.get(port, PortCount(0, 0, True))
            found[port] = PortCount(
                before.received_bytes + count.received_bytes,
                before.sent_bytes + count.sent_bytes,
                before.up and count.up,
            )
        return found

    def processes(self) -> dict[int, str]:
        """Of the workload, with Railhop: pid to host."""
        return dict.fromkeys(self._processes(), self._host)
