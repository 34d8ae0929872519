"""The program as people start it: statuses, signals, streams, over the software fabric."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pytest

PROGRAM = [sys.executable, "-m", "railhop.cli.main"]
PATIENCE_S = 120


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "RAILHOP_FABRIC"))}
    # On a busy machine the software NICs themselves stand still for a second: no fault of ours.
    return {**kept, "PYTHONPATH": ":".join(sys.path), "RAILHOP_STALL_THRESHOLD": "10s", **more}


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words],
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


# ---- The main show.


def test_the_drill_of_the_product_prints_one_line() -> None:
    done = run("drill", "--fabric", "two-hosts-4nic", "--scenario", "nic-down", "--json")
    assert done.stdout.count("\n") == 1, done.stderr
    line = json.loads(done.stdout)
    assert line["survived"] is True
    assert line["wrong_bytes"] == 0
    assert line["messages"] > 0
    assert line["failback"]["seen"] is True
    # 40 ms on an idle machine; the scenario's own bound of 2 s is for one.
    assert 0 < line["gap_ms"] < 30_000
    assert done.returncode == (0 if line["passed"] else 1 if line["usable"] else 2)
    assert done.stderr == ""


def test_a_drill_that_fails_has_status_1_and_a_page(tmp_path: pathlib.Path) -> None:
    saved, page = tmp_path / "drill.json", tmp_path / "report.html"
    done = run(
        "drill", "--fabric", "two-hosts-4nic", "--scenario", "gap 60s; lasts 60s; nic0 down at 1s",
        "--env", "RAILHOP_FAILOVER=0", "--env", "NCCL_IB_TIMEOUT=14",
        "--save", str(saved), "--report", str(page),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "failed" in done.stdout
    assert "the workload died" in done.stdout
    assert "died" in page.read_text(encoding="utf-8")
    again = run("report", str(saved), "-o", str(tmp_path / "again.html"))
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page.read_text(encoding="utf-8")


# ---- run and fabric.


def test_run_sets_the_variables_and_keeps_streams_and_status() -> None:
    done = run("run", "--", "sh", "-c", "echo $NCCL_NET_PLUGIN; echo $NCCL_NET >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "railhop\n", "Railhop\n")


def test_run_over_a_fabric_has_its_devices() -> None:
    done = run("run", "--fabric", "two-hosts-4nic", "--host", "beta", "--", "sh", "-c",
               "ibv_devices; exit 9")  # fmt: skip
    assert done.returncode == 9, done.stderr
    assert [f"mlx5_{i}" in done.stdout for i in range(4)] == [True] * 4


@pytest.mark.parametrize("fabric", [(), ("--fabric", "default")])
def test_signals_reach_the_command(fabric: tuple[str, ...]) -> None:
    program = subprocess.Popen(
        [*PROGRAM, "run", *fabric, "--", "sh", "-c",
         "trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.1; done"],
        env=environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    program.send_signal(signal.SIGTERM)
    assert program.stdout.readline() == "got it\n"
    assert program.wait(PATIENCE_S) == 5
    program.stdout.close()


def test_a_fabric_is_started_shown_and_broken() -> None:
    name = f"cli{os.getpid()}"
    program = subprocess.Popen(
        [*PROGRAM, "fabric", "start", "--name", name, "--", "sh", "-c", "echo ready; read line"],
        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdin is not None
    assert program.stdout.readline() == "ready\n"
    done = run("fabric", "fault", "--fabric", name, "soft1", "down")
    assert done.returncode == 0, done.stderr
    shown = json.loads(run("fabric", "show", "--fabric", name, "--json").stdout)
    states = {one["name"]: one["ports"][0]["state"] for one in shown["devices"]}
    assert states["soft0"] == "ACTIVE"
    assert states["soft1"] == "DOWN"
    listed = run("fabric", "list").stdout.splitlines()
    assert listed[0].split() == ["fabric", "process"]
    assert name in [line.split()[0] for line in listed[1:]]
    assert "DOWN" in run("fabric", "log", "--fabric", name).stdout
    wrong = run("fabric", "fault", "--fabric", name, "soft1", "sideways")
    assert wrong.returncode == 2
    assert "'sideways'" in wrong.stderr
    program.communicate("\n", timeout=PATIENCE_S)
    assert program.returncode == 0


def test_topologies_are_listed_and_checked(tmp_path: pathlib.Path) -> None:
    listed = run("fabric", "topology").stdout.split()
    assert {"default", "two-hosts-4nic"} <= set(listed)
    for name in listed:
        assert run("fabric", "topology", name).returncode == 0
    assert "mlx5_3" in run("fabric", "topology", "two-hosts-4nic").stdout
    file = tmp_path / "bad.topology"
    file.write_text("hosst alpha\n", encoding="utf-8")
    done = run("fabric", "topology", str(file))
    assert done.returncode == 2
    assert "hosst: unknown word; allowed: nets" in done.stderr


def test_netperf_takes_its_own_options() -> None:
    done = run("netperf", "--fabric", "default", "--json", "--size", "64K", "--count", "200",
               "--metric", "bandwidth", NCCL_SOCKET_IFNAME="lo")  # fmt: skip
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["survived"] is True
    assert last["wrong_bytes"] == 0
    assert run("netperf", "--wrong").returncode == 2
    over = ("netperf", "--fabric", "two-hosts-4nic")
    for words, said in (
        (("netperf", "--plugin", "/no/such.so"), "--plugin /no/such.so: there is no such file"),
        (("netperf", "--plugin=/no/such.so"), "--plugin /no/such.so: there is no such file"),
        ((*over, "--compare", "/no/such.so"), "--compare /no/such.so: there is no such file"),
        ((*over, "--hosts", "alpha,gamma"),
         "--hosts: two-hosts-4nic has no host 'gamma' (hosts: alpha, beta)"),
    ):  # fmt: skip
        done = run(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"railhop: {said}\n"
    assert "--compare" in run("netperf", "--", "--help").stdout


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "railhop", "stauts"], env=environment(), capture_output=True,
        text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("railhop: no command 'stauts' (allowed: ")


# ---- Streams.


def test_a_reader_that_has_enough_hears_no_complaint() -> None:
    program = subprocess.Popen(
        [*PROGRAM, "drill", "--list", "--json"],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    program.stdout.close()
    assert program.stderr is not None
    assert program.stderr.read() == ""
    assert program.wait(PATIENCE_S) == 1
    program.stderr.close()


@pytest.fixture
def short_folder() -> Iterator[str]:
    """For sockets, whose paths are short."""
    with tempfile.TemporaryDirectory(prefix="railhop-", dir="/tmp") as folder:
        yield folder


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        (signal.SIGHUP, 129),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_an_interrupted_drill_leaves_nothing(
    number: signal.Signals, status: int, short_folder: str
) -> None:
    program = subprocess.Popen(
        [*PROGRAM, "drill", "--fabric", "two-hosts-4nic", "--scenario", "no-fault", "--json",
         "--", "sh", "-c", "echo $$ >&2; exec sleep 1000"],
        env=environment(TMPDIR=short_folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert program.stderr is not None
    pid = int(program.stderr.readline())
    program.send_signal(number)
    assert program.wait(PATIENCE_S) == status
    deadline = time.monotonic() + PATIENCE_S
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline, "the workload is still there"
        time.sleep(0.05)
    assert program.stdout is not None
    assert program.stdout.read() == ""
    # A program that is killed cannot take its folder away.
    assert number == signal.SIGKILL or os.listdir(short_folder) == []
    program.stdout.close()
    program.stderr.close()
