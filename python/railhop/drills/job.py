"""A job under way over a fabric, for tests: its processes can be looked at, steered and ended."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import Any, Optional

import railhop
from railhop.drills import episodes
from railhop.drills.errors import DrillError
from railhop.drills.workload import Outcome, Workload
from railhop.drills.world import World

# For what has to happen soon, on machines that are busy.
PATIENCE_S = 60.0
_PROOF_S = 10.0
_POLL_S = 0.01


class Job:
    """Runs a workload from entering to leaving; `finish` says what came of it.

    Entering returns when traffic flows and, as a rule, all ports can take over for each other.
    """

    def __init__(self, world: World, workload: Workload) -> None:
        self.world, self.workload = world, workload
        self.outcome: Optional[Outcome] = None

    def __enter__(self) -> Job:
        try:
            self.workload.start(self.world)
            self.wait_bytes()
            self._wait_proved()
        except BaseException:
            self.workload.kill()
            raise
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.workload.kill()

    def received_bytes(self, port: str = "") -> int:
        """By a port ("beta/mlx5_0"), or by all.

        Errors: DrillError for a port that is not there, with those that are.
        """
        counts = self.world.counts()
        found = [
            count.received_bytes
            for name, count in counts.items()
            if not port or name.split(":", maxsplit=1)[0] == port or name == port
        ]
        if port and not found:
            raise DrillError(f"no port '{port}' (ports: {', '.join(counts)})")
        return sum(found)

    def wait_bytes(self, more: int = 200_000, *, port: str = "") -> None:
        """Until so many more bytes have arrived, over a port or over all.

        Errors: DrillError if the workload ends before, it takes too long, or there is no such port.
        """
        start = self.received_bytes(port)
        deadline = time.monotonic() + PATIENCE_S
        where = f" at {port}" if port else ""
        while self.received_bytes(port) - start < more:
            if not self.workload.running():
                raise DrillError(
                    f"the job ended, and {more} more bytes were waited for{where}: "
                    f"{self.workload.complaint()}"
                )
            if time.monotonic() > deadline:
                raise DrillError(f"no {more} bytes within {PATIENCE_S:g} s{where}")
            time.sleep(_POLL_S)

    def _wait_proved(self) -> None:
        """Until every port has a path that was proved, for a while: before, none is a backup."""
        deadline = time.monotonic() + _PROOF_S
        while time.monotonic() < deadline and not self._proved():
            time.sleep(_POLL_S)

    def _proved(self) -> bool:
        for process in self._attached():
            health = process.health()
            good = {one.port for one in health.paths if str(one.state) == "good"}
            if any(one.name not in good for one in health.ports if str(one.state) == "up"):
                return False
        return True

    def _attached(self, host: str = "") -> list[Any]:
        found = []
        for pid, place in self.world.processes().items():
            if host in ("", place):
                with contextlib.suppress(railhop.Error):  # a launcher, without the plugin
                    found.append(episodes.attach(pid))
        return found

    def processes(self, host: str = "") -> list[Any]:
        """A railhop.Process for each that runs Railhop, of a host or of all.

        Errors: DrillError if there is none.
        """
        found = self._attached(host)
        if not found:
            raise DrillError(f"no process with Railhop runs on {host or 'any host'}")
        return found

    def fault(self, words: str) -> None:
        """Puts a fault of the fabric in: "alpha/mlx5_0 down for 2s"."""
        self.world.fabric.fault(words)

    def finish(self) -> Outcome:
        """Ends it in good order. Once; asked again it gives the same."""
        if self.outcome is None:
            self.outcome = self.workload.end()
        return self.outcome
