"""Whole drills over the software fabric."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Iterator

import pytest

from railhop import drills, paths, scenario
from railhop.drills.collectives import KINDS, Collectives
from railhop.drills.errors import DrillError
from railhop.scenario import ScenarioError
from railhop.testing.surroundings import apart

# Far beyond what is needed on an idle machine; tests run on busy ones.
SLACK = "gap 60s"
RATE = "200Mb/s"
# No scenario here is a silent one: that a busy machine's software NICs stand still is no fault.
FAST = {
    "RAILHOP_HOLD_DOWN": "300ms",
    "RAILHOP_PROBE_INTERVAL": "200ms",
    "RAILHOP_STALL_THRESHOLD": "10s",
}


def test_a_lost_nic_is_survived_with_every_byte_right() -> None:
    words = f"{SLACK}; expect failback; lasts 15s; nic0 down at 4s for 6s"
    result = drills.rehearse(
        "two-hosts-4nic", scenario.find(words), drills.Streams(environment=FAST), nic_rate=RATE
    )
    verdict = result.verdict
    assert verdict.passed, verdict.problems
    assert verdict.survived
    assert verdict.wrong_bytes == 0
    assert verdict.gap_ms is not None and verdict.gap_ms > 0
    assert (result.messages or 0) > 0
    assert verdict.before_gb_per_s and verdict.during_gb_per_s and verdict.after_gb_per_s
    assert verdict.failback.seen
    assert [one.port for one in result.happenings] == ["alpha/mlx5_0:1"]
    assert set(result.line()) >= {"survived", "wrong_bytes", "gap_ms", "scenario", "fabric"}
    again = json.loads(result.dump())
    assert len(again["series"]["times_s"]) == len(again["series"]["moved_bytes"]["beta/mlx5_3:1"])


def test_a_failback_after_the_drills_time_is_waited_for() -> None:
    words = f"{SLACK}; expect failback; lasts 10s; nic0 down at 4s for 5990ms"
    result = drills.rehearse(
        "two-hosts-4nic", scenario.find(words), drills.Streams(environment=FAST), nic_rate=RATE
    )
    assert result.verdict.passed, result.verdict.problems
    assert result.verdict.failback.seen
    assert result.seconds > 10.0
    assert result.verdict.wrong_bytes == 0


def test_without_failover_the_same_fault_is_a_death() -> None:
    words = f"{SLACK}; lasts 40s; nic0 down at 1s"
    streams = drills.Streams(environment={"RAILHOP_FAILOVER": "0", "NCCL_IB_TIMEOUT": "14"})
    result = drills.rehearse("two-hosts-4nic", scenario.find(words), streams, nic_rate=RATE)
    assert not result.verdict.survived
    assert not result.verdict.passed
    assert "died" in result.verdict.problems[0]


# A workload of its own: netperf, as a user's command, that says how long its steps took.
_COMMAND = """
import json, os, subprocess, sys, time
from railhop import paths
note = lambda **words: open(os.environ["RAILHOP_DRILL_LOG"], "a").write(json.dumps(words) + "\\n")
for step in range(3):
    begin = time.monotonic()
    done = subprocess.run([str(paths.netperf_path()), "--plugin", str(paths.plugin_path()),
        "--json", "--hosts", "alpha,beta", "--seconds", "1", "--size", "64K",
        "--metric", "bandwidth"])
    if done.returncode: sys.exit(done.returncode)
    ms = (time.monotonic() - begin) * 1e3
    note(step=step, ms=ms, time_unix_ns=time.time_ns(), loss=1 / (step + 1))
note(wrong_bytes=0)
"""


@pytest.fixture(autouse=True)
def _sockets() -> Iterator[None]:
    with apart():
        yield


def environment() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path)}


def test_a_command_is_judged_by_its_status_and_tells_its_steps() -> None:
    command = drills.Command([sys.executable, "-c", _COMMAND], extra=environment())
    words = f"{SLACK}; nic1 down at 500ms for 1s"
    result = drills.rehearse("two-hosts-4nic", scenario.find(words), command)
    assert result.verdict.passed, result.verdict.problems
    assert result.verdict.wrong_bytes == 0
    assert [one["step"] for one in result.steps] == [0, 1, 2]
    assert result.steps[1]["loss"] == 0.5
    assert result.workload.startswith(sys.executable)


@pytest.mark.parametrize("kind", KINDS)
def test_collectives_are_survived_with_every_element_right(kind: str) -> None:
    words = f"{SLACK}; lasts 4s; nic1 down at 1s for 1s"
    workload = Collectives(kind, 4.0, size_bytes=1 << 20, extra=FAST)
    result = drills.rehearse("two-hosts-4nic", scenario.find(words), workload, nic_rate=RATE)
    assert result.verdict.passed, result.verdict.problems
    assert result.verdict.wrong_bytes == 0
    assert result.verdict.gap_from == "steps"
    assert [one["step"] for one in result.steps] == list(range(len(result.steps)))
    with pytest.raises(DrillError, match="no collective 'all-to-none'"):
        Collectives("all-to-none", 1.0)


def test_a_workload_that_fails_for_its_own_reasons_is_named() -> None:
    command = drills.Command([sys.executable, "-c", "import sys; sys.exit('no data set')"])
    with pytest.raises(DrillError) as caught:
        drills.rehearse("two-hosts-4nic", scenario.find("nic-down"), command)
    assert "for its own reasons" in str(caught.value)
    assert "ended with status 1: no data set" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(DrillError, match="'/no/such/program' cannot be started: No such file"):
        drills.rehearse(
            "two-hosts-4nic", scenario.find("nic-down"), drills.Command(["/no/such/program"])
        )


def test_a_command_finds_the_plugin_and_the_fabric_as_nccl_does(tmp_path: pathlib.Path) -> None:
    # By name, from the loader's search path.
    found = tmp_path / "found"
    code = (
        "import ctypes, os, sys\n"
        "ctypes.CDLL('lib' + 'nccl-net-' + os.environ['NCCL_NET_PLUGIN'] + '.so')\n"
        "ctypes.CDLL('libibverbs.so.1')\n"
        "open(sys.argv[1], 'w').write(open('/proc/self/maps').read())\n"
    )
    code += "sys.exit('/opt/own' not in os.environ['LD_LIBRARY_PATH'].split(':'))\n"
    extra = {"LD_LIBRARY_PATH": "/opt/own"}
    command = drills.Command([sys.executable, "-c", code, str(found)], extra=extra)
    with pytest.raises(DrillError, match="ended well, but has moved nothing over Railhop"):
        drills.rehearse("two-hosts-4nic", scenario.find("nic-down"), command)
    maps = found.read_text(encoding="utf-8")
    assert str(paths.plugin_path().resolve()) in maps
    assert str((paths.fabric_dir() / "libibverbs.so.1").resolve()) in maps


def test_a_workload_that_ends_well_without_traffic_is_told_so() -> None:
    command = drills.Command([sys.executable, "-c", "pass"])
    with pytest.raises(DrillError, match="ended well, but has moved nothing over Railhop: ") as one:
        drills.rehearse("two-hosts-4nic", scenario.find("nic-down"), command)
    assert "does it use NCCL" in str(one.value)
    assert "for its own reasons" not in str(one.value)


_SHORT = [
    str(paths.netperf_path()), "--plugin", str(paths.plugin_path()), "--json", "--hosts",
    "alpha,beta", "--seconds", "1", "--size", "64K", "--metric", "bandwidth",
]  # fmt: skip


def test_advice_to_run_longer_is_for_those_that_ended_well() -> None:
    good = drills.Command(_SHORT, extra=environment())
    with pytest.raises(DrillError, match=r"ended well, but before the first step: .*run longer"):
        drills.rehearse("two-hosts-4nic", scenario.find("nic0 down at 1h"), good)
    killed = drills.Command(["sh", "-c", '"$@"; kill -KILL $$', "sh", *_SHORT], extra=environment())
    with pytest.raises(DrillError, match=r"own reasons, .* was killed by SIGKILL") as caught:
        drills.rehearse("two-hosts-4nic", scenario.find("nic0 down at 1h"), killed)
    assert "longer" not in str(caught.value)


def test_a_job_that_ends_before_a_step_is_judged_by_what_it_did() -> None:
    command = drills.Command(_SHORT, extra=environment())
    words = f"{SLACK}; nic1 down at 0s; nic2 down at 1h"
    verdict = drills.rehearse("two-hosts-4nic", scenario.find(words), command).verdict
    assert verdict.passed, verdict.problems
    assert verdict.notes == ["the job had ended before 'alpha/mlx5_2 down'"]


def test_a_bad_fault_is_named_before_anything_starts(tmp_path: pathlib.Path) -> None:
    touched = tmp_path / "touched"
    command = drills.Command([sys.executable, "-c", f"open({str(touched)!r}, 'w')"])
    for words, named in (
        ("nic0 down at 1s\nnic0 sideways at 2s", "words:2: "),
        ("nic7 down at 1s", "no device 'nic7'"),
        ("nic0 blackhole both, at 1s", "words:1: "),
    ):
        with pytest.raises(ScenarioError) as caught:
            drills.rehearse("two-hosts-4nic", scenario.find(words), command)
        assert named in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(DrillError, match=r"no fabric: .*no-such-topology"):
        drills.rehearse("no-such-topology", scenario.find("nic-down"), command)
    with pytest.raises(DrillError, match=r"NIC rate: .*'fast'"):
        drills.rehearse("two-hosts-4nic", scenario.find("nic-down"), command, nic_rate="fast")
    assert not touched.exists()


def test_nothing_is_left_behind() -> None:
    streams = drills.Streams()
    folder = streams._folder.name
    drills.rehearse("two-hosts-4nic", scenario.find("lasts 1s; nic0 down at 500ms"), streams)
    assert not os.path.exists(folder)
    group = streams._group
    assert group is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(group.process.pid, 0)
