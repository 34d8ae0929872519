"""Where a drill takes place: a software fabric of its own, or this machine's NICs (node.py)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any, Optional, Union

from railhop import paths
from railhop.drills.errors import DrillError
from railhop.drills.node import NodeWorld
from railhop.drills.sampler import PortCount
from railhop.exports import unfused
from railhop.scenario import Scenario, ScenarioError, Step
from railhop.testing.fabric import Fabric

# Of the folder for temporary ones: a socket's path in it has to have no more than 107.
_FOLDER_CHARS_MAX = 60


class World:
    """A fabric that lives as long as the object. Use it as a context manager."""

    def __init__(self, topology: str, *, seed: int = 0, fabric: Optional[Fabric] = None) -> None:
        """Makes it, or takes one of this topology that is there.

        Errors: DrillError for a topology that is not there or wrong, or a fabric that cannot be.
        """
        self.topology = topology
        self._folder: Optional[tempfile.TemporaryDirectory[str]] = None
        try:
            self.fabric = fabric or Fabric(topology, seed=seed, library_dir=paths.fabric_dir())
        except (ValueError, RuntimeError) as error:
            raise DrillError(f"no fabric: {one_line(error)}") from None
        snapshot = self.fabric.snapshot()
        self.devices: dict[str, list[str]] = {host: [] for host in snapshot["hosts"]}
        for device in snapshot["devices"]:
            self.devices[device["host"]].append(device["name"])

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.fabric.close()
        self.discard()

    def discard(self) -> None:
        """Removes the folder with its admin sockets; the fabric stays. May be repeated."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    @property
    def hosts(self) -> list[str]:
        """In the topology's order."""
        return list(self.devices)

    def environment(
        self, host: str = "", base: Optional[Mapping[str, str]] = None
    ) -> dict[str, str]:
        """What places a program with the environment `base`, else this one, on a host of it."""
        return self.fabric.environment(host, base)

    def defaults(self) -> dict[str, str]:
        """What is set unless the user has set it: a place and a name of its own.

        So commands for jobs in the usual place do not reach those of a drill, and the other way
        round. Root looks for sockets in /tmp/railhop-*: they lie one folder deeper.
        """
        if self._folder is None:
            short = len(tempfile.gettempdir()) <= _FOLDER_CHARS_MAX
            self._folder = tempfile.TemporaryDirectory(
                prefix="railhop-drill-", dir=None if short else "/tmp"
            )
            os.mkdir(self._admin_dir(), 0o700)
        own = {"RAILHOP_ADMIN_DIR": self._admin_dir(), "RAILHOP_JOB_ID": f"drill-{os.getpid()}"}
        return {**own, **unfused({})}

    def _admin_dir(self) -> str:
        assert self._folder is not None
        return os.path.join(self._folder.name, "admin")

    def started(self, pid: int) -> None:
        """A workload's process has been started: the fabric knows by itself."""

    def check(self, scenario: Scenario) -> None:
        """Tries all faults on another fabric like this, where nothing runs.

        Errors: ScenarioError, with the step's place and the fabric's own words.
        """
        with Fabric(self.topology) as trial:
            for step in scenario.steps:
                if step.verb == "fault":
                    _put(trial, step)

    def fault(self, step: Step) -> None:
        """Puts a step's fault in."""
        _put(self.fabric, step)

    def cap(self, rate: str) -> None:
        """Limits what every NIC sends.

        Errors: DrillError for a rate that is none.
        """
        for host, devices in self.devices.items():
            for device in devices:
                try:
                    self.fabric.fault(f"{host}/{device} cap {rate} tx")
                except ValueError as error:
                    raise DrillError(f"NIC rate: {one_line(error)}") from None

    def counts(self) -> dict[str, PortCount]:
        """Of each port: "alpha/mlx5_0:1"."""
        found = {}
        for device in self.fabric.snapshot()["devices"]:
            for port in device["ports"]:
                found[f"{device['host']}/{device['name']}:{port['port']}"] = PortCount(
                    port["counters"]["rx_bytes"],
                    port["counters"]["tx_bytes"],
                    port["state"] == "ACTIVE" and not device["removed"],
                )
        return found

    def processes(self) -> dict[int, str]:
        """Those that run over it: pid to host."""
        here: list[dict[str, Any]] = self.fabric.snapshot()["processes"]
        return {one["pid"]: one["host"] for one in here}


# Where a drill may take place.
AnyWorld = Union[World, NodeWorld]


def _put(fabric: Fabric, step: Step) -> None:
    try:
        fabric.fault(f"{step.place} {step.words}")
    except ValueError as error:
        raise ScenarioError(f"{step.source}: {one_line(error)}") from None


def one_line(error: BaseException) -> str:
    """A message without line ends."""
    return " ".join(str(error).split())
