"""Drills whose commands and episodes go over the admin API."""

from __future__ import annotations

import pathlib
import socket
from collections.abc import Iterator

import pytest

from railhop import drills, paths, scenario
from railhop.drills.errors import DrillError
from railhop.drills.node import NodeWorld
from railhop.drills.world import World
from railhop.testing.surroundings import apart

# As in rehearsal_test.py.
SLACK = "gap 60s"
RATE = "200Mb/s"
# No scenario here is a silent one: that a busy machine's software NICs stand still is no fault.
FAST = {
    "RAILHOP_HOLD_DOWN": "300ms",
    "RAILHOP_PROBE_INTERVAL": "200ms",
    "RAILHOP_STALL_THRESHOLD": "10s",
}


@pytest.fixture(autouse=True)
def _sockets() -> Iterator[None]:
    with apart():
        yield


def test_real_nics_take_commands(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # They are real to the drill: it knows nothing of the fabric that the command runs over.
    with World("two-hosts-4nic") as world:
        for name, value in world.environment().items():
            monkeypatch.setenv(name, value)
        for name in world.devices["alpha"]:
            (tmp_path / name).mkdir()
        command = drills.Command(
            [
                str(paths.netperf_path()), "--plugin", str(paths.plugin_path()), "--json",
                "--hosts", "alpha,beta", "--devices", "0,1", "--connections", "2",
                "--seconds", "6", "--size", "64K", "--metric", "bandwidth",
            ],
            extra={**FAST, "NCCL_SOCKET_IFNAME": "lo"},
        )  # fmt: skip
        words = f"{SLACK}; hold nic0 at 2s for 2s"
        result = drills.rehearse(
            None, scenario.find(words), command, node=NodeWorld(devices_dir=tmp_path)
        )
    assert result.verdict.passed, result.verdict.problems
    assert [one.text for one in result.happenings] == [f"hold {socket.gethostname()}/mlx5_0"]
    assert result.happenings[0].end_s is not None
    assert {"command"} <= {one["kind"] for one in result.events}


def test_episodes_and_events_of_both_ends_are_kept() -> None:
    words = f"{SLACK}; lasts 6s; nic0 down at 2s"
    result = drills.rehearse(
        "two-hosts-4nic", scenario.find(words), drills.Streams(environment=FAST), nic_rate=RATE
    )
    assert {one["host"] for one in result.episodes} == {"alpha", "beta"}
    assert all(one["recovered"] for one in result.episodes)
    first = min(one["begin_unix_ns"] for one in result.episodes)
    fault_ns = result.started_unix_ns + result.happenings[0].at_s * 1e9
    assert abs(first - fault_ns) < 30e9
    assert {"episode_begun", "episode_recovered"} <= {one["kind"] for one in result.events}


def test_an_operator_drains_and_gives_back() -> None:
    words = f"{SLACK}; lasts 12s; expect failback; failover nic0 drain at 2s for 6s"
    result = drills.rehearse(
        "two-hosts-4nic", scenario.find(words), drills.Streams(environment=FAST), nic_rate=RATE
    )
    assert result.verdict.passed, result.verdict.problems
    assert result.verdict.wrong_bytes == 0


def test_a_drill_is_steered_in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody can use the one that is usual here, and the drill does not need it.
    monkeypatch.delenv("RAILHOP_ADMIN_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/dev/null")
    words = f"{SLACK}; lasts 4s; hold nic0 at 1s for 1s"
    result = drills.rehearse(
        "two-hosts-4nic", scenario.find(words), drills.Streams(environment=FAST), nic_rate=RATE
    )
    assert result.verdict.passed, result.verdict.problems
    assert {"command"} <= {one["kind"] for one in result.events}


def test_a_command_that_is_refused_ends_the_drill() -> None:
    words = "hold nic0 at 500ms"
    with pytest.raises(DrillError, match=r"words:1: 'hold laptop/soft0': .* is the last path"):
        drills.rehearse("laptop-1nic", scenario.find(words), drills.Streams())
