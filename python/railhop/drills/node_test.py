"""Drills on this machine's NICs, with made-up processes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import types
from typing import Any

import pytest

import railhop
from railhop import scenario
from railhop.drills.errors import DrillError
from railhop.drills.node import NodeWorld, descends, parent_of
from railhop.scenario import ScenarioError


class FakeProcess:
    """One port; ends when `gone`."""

    def __init__(self) -> None:
        self.received, self.state, self.gone = 1000, "up", False

    def health(self) -> Any:
        if self.gone:
            raise railhop.StaleSocketError("it has ended")
        return types.SimpleNamespace(
            ports=[types.SimpleNamespace(name="mlx5_0:1", state=self.state)]
        )

    def stats(self) -> Any:
        port = types.SimpleNamespace(name="mlx5_0:1", received_bytes=self.received, sent_bytes=10)
        return types.SimpleNamespace(ports=[port])


class FakeApi:
    """railhop.processes()."""

    def __init__(self, processes: dict[int, FakeProcess]) -> None:
        self._processes = processes

    def processes(self) -> list[Any]:
        return [
            types.SimpleNamespace(pid=pid, info=object(), attach=lambda one=one: one)
            for pid, one in self._processes.items()
        ]


@pytest.fixture
def devices(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("mlx5_1", "mlx5_0"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_the_folder_of_the_sockets_may_not_be_there_yet(
    devices: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAILHOP_ADMIN_DIR", str(devices / "none"))
    assert NodeWorld(devices_dir=devices).processes() == {}


def test_a_machine_without_nics_is_told(tmp_path: pathlib.Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DrillError, match=r"no fabric and no NIC: .* say --fabric"):
            NodeWorld(devices_dir=folder)


def test_devices_are_in_order_and_commands_are_allowed(devices: pathlib.Path) -> None:
    world = NodeWorld(devices_dir=devices, api=FakeApi({}))
    placed = scenario.placed(scenario.parse("failover nic1 at 1s for 1s"), world.devices)
    assert placed.steps[0].target == "mlx5_1"
    world.check(placed)


def test_a_fault_needs_software_nics(devices: pathlib.Path) -> None:
    world = NodeWorld(devices_dir=devices, api=FakeApi({}))
    with pytest.raises(ScenarioError, match=r"words:1: 'mlx5_0 down' needs software NICs: say"):
        world.check(scenario.parse("hold mlx5_1; mlx5_0 down"))
    with pytest.raises(DrillError, match="the NIC rate '1Gb/s' needs software NICs"):
        world.cap("1Gb/s")


def test_processes_of_the_workload_are_summed_up(devices: pathlib.Path) -> None:
    ours, child, other = FakeProcess(), FakeProcess(), FakeProcess()
    with subprocess.Popen(["sleep", "100"]) as sleeping:
        try:
            api = FakeApi({os.getpid(): ours, sleeping.pid: child, 1: other})
            world = NodeWorld(devices_dir=devices, api=api)
            world.started(os.getpid())
            (port,) = world.counts()
            assert port.endswith("/mlx5_0:1")
            assert world.counts()[port].received_bytes == 2000
            assert world.counts()[port].up
            assert set(world.processes()) == {os.getpid(), sleeping.pid}
            child.gone, ours.received, ours.state = True, 5000, "held"
            count = world.counts()[port]
            assert (count.received_bytes, count.up) == (6000, False)
        finally:
            sleeping.kill()


def test_descent_goes_over_any_number_of_steps() -> None:
    assert parent_of(os.getpid()) == os.getppid()
    assert descends(os.getpid(), {os.getppid()})
    assert not descends(os.getpid(), {2**22 + 1})
    assert parent_of(2**22 + 1) == 0
