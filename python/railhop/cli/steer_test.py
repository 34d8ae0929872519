"""What `release` and `config --set` say on a job that runs, where there is little to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from railhop.cli.program import run
from railhop.drills.job import Job
from railhop.drills.streams import Streams
from railhop.drills.world import World
from railhop.testing.surroundings import apart


@pytest.fixture(scope="module")
def pid() -> Iterator[str]:
    """Of a process of a job."""
    with apart(), World("two-hosts-4nic") as world, Job(world, Streams()) as job:
        yield str(job.processes("alpha")[0].info().pid)


def test_release_of_what_nobody_holds_says_so(pid: str) -> None:
    nothing = f"{pid}: mlx5_2: no command holds it; nothing has changed\n"
    assert run("release", "mlx5_2", "--pid", pid) == nothing
    (outcome,) = json.loads(run("release", "mlx5_2", "--pid", pid, "--json"))
    assert outcome["ports"] == []
    assert outcome["connections"] == 0
    events = [json.loads(line) for line in run("events", "--pid", pid, "--json").splitlines()]
    assert not [one for one in events if one["kind"] == "command"]
    assert re.search(r"mlx5_2:1: held, \d connections?\n", run("hold", "mlx5_2:1", "--pid", pid))
    assert "released" in run("release", "mlx5_2", "--pid", pid)
    assert run("release", "mlx5_2", "--pid", pid) == nothing


def test_options_that_cannot_be_set_are_answered_with_those_that_can(pid: str) -> None:
    can = "RAILHOP_LOG, RAILHOP_STALL_THRESHOLD, "
    said = run("config", "--set", "RAILHOP_STALL_TRESHOLD=1s", "--pid", pid, status=2)
    assert "did you mean RAILHOP_STALL_THRESHOLD? These can change" in said
    assert can in said
    said = run("config", "--set", "SOMETHING_ELSE_ALTOGETHER=1", "--pid", pid, status=2)
    assert "no option SOMETHING_ELSE_ALTOGETHER; these can change" in said
    assert can in said
    said = run("config", "--set", "RAILHOP_FAILOVER=0", "--pid", pid, status=2)
    assert "RAILHOP_FAILOVER cannot change while the job runs; these can: " + can in said


def test_what_a_change_brings_besides_is_told(pid: str) -> None:
    said = run("config", "--set", "RAILHOP_HOLD_DOWN=2min", "--pid", pid)
    note = "RAILHOP_HOLD_DOWN_MAX is less than RAILHOP_HOLD_DOWN, which is used for both"
    assert said == f"{pid}: RAILHOP_HOLD_DOWN=2min (command); {note}\n"
    assert note in run("events", "--pid", pid)
    said = run("config", "--set", "RAILHOP_HOLD_DOWN=1s", "--pid", pid)
    assert said == f"{pid}: RAILHOP_HOLD_DOWN=1s (command)\n"


def test_a_connection_is_moved_by_the_process_of_its_sending_end(pid: str) -> None:
    healths = json.loads(run("status", "--json"))
    assert len(healths) == 2
    sender, connection = next(
        (health["process"]["pid"], one["id"])
        for health in healths
        for one in health["connections"]
        if one["direction"] == "send"
    )
    (other,) = [one["process"]["pid"] for one in healths if one["process"]["pid"] != sender]
    name = f"connection:{connection}"
    for verb in ("failover", "failback"):
        assert run(verb, name).startswith(f"{sender}: ")
        said = run(verb, name, "--pid", str(other), status=2)
        assert f"process {other}: the sending end chooses where a connection goes: ask its" in said
        assert f"(process {sender}: --pid {sender})" in said
    said = run("failover", "connection:1f", status=2)
    assert "none of the 2 processes has a connection 1f" in said
