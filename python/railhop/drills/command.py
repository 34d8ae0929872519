"""The user's own command as a workload, on one host or one process for each host."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import socket
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Optional

import railhop
from railhop.drills.errors import DrillError
from railhop.drills.workload import Group, Outcome, end_all, status_text, uninterrupted
from railhop.drills.world import AnyWorld
from railhop.exports import LIBRARY_PATH

# A file for what only the workload knows, JSON lines: {"step": 3, "ms": 41.2, "loss": 0.7} after
# each step (with "time_unix_ns", its end), {"wrong_bytes": 0} once.
LOG_VARIABLE = "RAILHOP_DRILL_LOG"


class Command:
    """Runs a command until it ends by itself."""

    endless = False

    def __init__(
        self,
        command: Sequence[str],
        *,
        each_host: bool = False,
        echo_fd: int = -1,
        extra: Optional[dict[str, str]] = None,
    ) -> None:
        """Makes it.

        Args:
          command: program and arguments.
          each_host: one process for each host of the fabric, with RANK, WORLD_SIZE, LOCAL_RANK,
            MASTER_ADDR and MASTER_PORT as torchrun sets them; else one, on the first host.
          echo_fd: where its output goes to.
          extra: further variables.
        """
        self._command = list(command)
        self._each_host = each_host
        self._echo_fd = echo_fd
        self._extra = extra or {}
        self._folder = tempfile.TemporaryDirectory(prefix="railhop-drill-")
        self._log = pathlib.Path(self._folder.name) / "log"
        self._groups: list[Group] = []

    @property
    def about(self) -> str:
        """For people."""
        return shlex.join(self._command)

    def start(self, world: AnyWorld) -> None:
        """See Workload."""
        hosts = world.hosts if self._each_host else world.hosts[:1]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for rank, host in enumerate(hosts):
            env = self._environment(world, host)
            if self._each_host:
                env.update(
                    RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(len(hosts)),
                    LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                )  # fmt: skip
            with uninterrupted():
                group = Group(self._command, env, echo_fd=self._echo_fd)
                self._groups.append(group)
            world.started(group.process.pid)

    def _environment(self, world: AnyWorld, host: str) -> dict[str, str]:
        """Of a program on a host: how NCCL finds the plugin, and what places it there."""
        env = {
            **world.defaults(),
            **os.environ,
            **({"NCCL_SOCKET_IFNAME": "lo"} if len(world.hosts) > 1 else {}),
            **railhop.environment(),
            **self._extra,
            LOG_VARIABLE: str(self._log),
        }
        env.update(world.environment(host, env))
        # The plugin's folder and the fabric's, before what the user has there.
        env[LIBRARY_PATH] = railhop.environment(base=env)[LIBRARY_PATH]
        return env

    def running(self) -> bool:
        """See Workload: False as soon as one has failed."""
        states = [group.status() for group in self._groups]
        return None in states and not any(states)

    def ended_well(self) -> bool:
        """See Workload."""
        return all(group.status() == 0 for group in self._groups)

    def complaint(self) -> str:
        """See Workload."""
        for group in self._groups:
            status = group.status()
            if status:
                said = group.last_line()
                return status_text(status) + (f": {said}" if said else "")
        return "ended with status 0"

    def end(self) -> Outcome:
        """See Workload."""
        deadline = time.monotonic() + 10
        while any(group.status() is None for group in self._groups):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        complaint = self.complaint()
        bad = any(group.status() != 0 for group in self._groups)
        steps, wrong_bytes = _read_log(self._log)
        return Outcome(not bad, complaint if bad else "", wrong_bytes, None, None, steps)

    def kill(self) -> None:
        """See Workload."""
        end_all(self._groups)
        self._folder.cleanup()


def _step(entry: dict[str, Any]) -> dict[str, Any]:
    loss = {"loss": float(entry["loss"])} if "loss" in entry else {}
    return {
        "step": int(entry["step"]),
        "ms": float(entry["ms"]),
        "time_unix_ns": int(entry["time_unix_ns"]),
        **loss,
    }


def _monitored(entry: dict[str, Any]) -> dict[str, Any]:
    """A line of railhop.torch.StepMonitor."""
    duration_ns = int(entry["duration_ns"])
    return _step(
        {
            "step": entry["number"],
            "ms": duration_ns / 1e6,
            "time_unix_ns": int(entry["begin_unix_ns"]) + duration_ns,
            **{key: value for key, value in entry.get("values", {}).items() if key == "loss"},
        }
    )


def _read_log(file: pathlib.Path) -> tuple[list[dict[str, Any]], Optional[int]]:
    """Steps and wrong bytes that the workload has noted."""
    steps, wrong_bytes = [], None
    if not file.exists():
        return [], None
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
            if "wrong_bytes" in entry:
                wrong_bytes = (wrong_bytes or 0) + int(entry["wrong_bytes"])
            if "step" in entry:
                steps.append(_step(entry))
            elif "duration_ns" in entry:
                steps.append(_monitored(entry))
        except (ValueError, TypeError, KeyError) as error:
            raise DrillError(
                f"line {number} of ${LOG_VARIABLE} is wrong ({error}); write JSON lines such as "
                '{"step": 1, "ms": 40.2, "time_unix_ns": 1700000000000000000}'
            ) from None
    return steps, wrong_bytes
