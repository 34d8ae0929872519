"""The commands about jobs, on a job that runs over the software fabric."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import railhop
from railhop.cli.program import PATIENCE_S, PROGRAM, run
from railhop.drills.job import Job
from railhop.drills.streams import Streams
from railhop.drills.world import World
from railhop.testing.surroundings import apart


@pytest.fixture(autouse=True)
def _sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAILHOP_HOLD_DOWN", "300ms")
    with apart():
        yield


@pytest.fixture
def job() -> Iterator[Job]:
    with World("two-hosts-4nic") as world, Job(world, Streams()) as running:
        yield running


def pids(job: Job) -> dict[str, str]:
    """Host to process."""
    found = {}
    for process in job.processes():
        pid = process.info().pid
        found[job.world.processes()[pid]] = str(pid)
    return found


def ports(pid: str) -> dict[str, dict[str, Any]]:
    (health,) = json.loads(run("status", "--json", "--pid", pid))
    return {one["name"]: one for one in health["ports"]}


def wait(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_nic_is_drained_and_comes_back(job: Job) -> None:
    pid = pids(job)["alpha"]
    assert ports(pid)["mlx5_0:1"]["state"] == "up"
    assert "mlx5_0" in run("failover", "mlx5_0", "--pid", pid)
    wait(lambda: ports(pid)["mlx5_0:1"]["lanes"] == 0, "it is left")
    assert ports(pid)["mlx5_0:1"]["held_by_command"]
    job.wait_bytes(port="beta/mlx5_1")
    shown = run("status", "--once", "--pid", pid)
    assert "by command" in shown
    assert "on backup" in shown
    run("release", "mlx5_0", "--pid", pid)
    run("failback", "--pid", pid)
    job.wait_bytes(port="beta/mlx5_0")
    outcome = job.finish()
    assert outcome.survived
    assert outcome.wrong_bytes == 0


def test_the_last_path_and_a_wrong_device_are_refused(job: Job) -> None:
    pid = pids(job)["alpha"]
    for device in ("mlx5_0", "mlx5_1", "mlx5_2"):
        run("hold", device, "--pid", pid)
    assert "last path" in run("hold", "mlx5_3", "--pid", pid, status=2)
    said = run("hold", "mlx5_9", "--pid", pid, status=2)
    assert "mlx5_9" in said
    assert "mlx5_3" in said
    states = ports(pid)
    assert not states["mlx5_3:1"]["held_by_command"]
    assert job.finish().wrong_bytes == 0


def test_all_processes_are_shown_counted_and_told_apart(job: Job) -> None:
    known = pids(job)
    found = json.loads(run("status", "--json"))
    assert {str(one["process"]["pid"]) for one in found} == set(known.values())
    run("status", "--check")
    stats = json.loads(run("stats", "--json", "--pid", known["beta"]))[0]
    assert sum(one["received_bytes"] for one in stats["ports"]) > 0
    assert "mlx5_0:1" in run("stats")
    names = {one["name"] for one in json.loads(run("config", "--json"))[0]["options"]}
    assert "RAILHOP_STALL_THRESHOLD" in names
    changed = run("config", "--changed", "--pid", known["alpha"])
    assert "RAILHOP_HOLD_DOWN " in changed
    assert "environment" in changed


def test_events_are_followed_until_the_job_ends(job: Job) -> None:
    following = subprocess.Popen(
        [*PROGRAM, "events", "--follow", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert following.stdout is not None
    # From the job's begin: now it follows.
    first = following.stdout.readline()
    job.fault("alpha/mlx5_0 down")
    job.wait_bytes(2_000_000)
    assert "episode_begun" in run("events", "--json")
    job.finish()
    lines = [first, *following.stdout]
    assert following.wait(PATIENCE_S) == 0
    following.stdout.close()
    entries = [json.loads(line) for line in lines]
    kinds = {one["kind"] for one in entries}
    assert {"episode_begun", "episode_recovered"} <= kinds
    assert len({one["process"] for one in entries}) == 2


def test_a_stopped_process_is_named_and_stops_commands(job: Job) -> None:
    known = pids(job)
    os.kill(int(known["beta"]), signal.SIGSTOP)
    try:
        line = f"process {known['beta']} does not answer"
        assert line in run("hold", "mlx5_0", status=2)
        assert line in run("status", "--check", status=1)
        (silent,) = [one for one in railhop.processes(job="any", timeout_s=0.5) if one.problem]
        assert str(silent.pid) == known["beta"]
    finally:
        os.kill(int(known["beta"]), signal.SIGCONT)
    assert not ports(known["alpha"])["mlx5_0:1"]["held_by_command"]
    run("status", "--check")


def test_an_api_follows_a_quiet_job_to_its_end(job: Job) -> None:
    (process,) = job.processes("alpha")
    seen: list[Any] = []
    errors: list[Exception] = []

    def follow() -> None:
        try:
            seen.extend(process.follow(after=1_000_000))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    job.wait_bytes(2_000_000)
    job.finish()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert (seen, errors) == ([], [])


def test_following_a_job_that_has_ended_ends_at_once(job: Job) -> None:
    (process,) = job.processes("alpha")
    job.finish()
    assert list(process.follow()) == []


def test_processes_that_are_not_there_are_named(job: Job) -> None:
    assert "1" in run("status", "--pid", "1", status=2)
    folder = os.environ["RAILHOP_ADMIN_DIR"]
    assert "no-such" in run("stats", "--socket", f"{folder}/no-such.sock", status=2)
    assert "no job 'nobody'" in run("hold", "mlx5_0", "--job", "nobody", status=2)
    pid = pids(job)["beta"]
    os.kill(int(pid), signal.SIGKILL)
    wait(lambda: not job.workload.running(), "the job has died")
    assert pid in run("status", "--pid", pid, status=2)
    assert "no process with Railhop" in run("failover", "mlx5_0", status=2)
