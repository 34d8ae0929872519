"""Failover's budgets, measured over the software fabric (tools/bench failover): a JSON line each.

A figure is about what NCCL would see: the time from a fault until the last connection has received
a whole message again. Times of faults come from the fabric's event log, times of messages from the
receiver; both are of the machine's monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Optional

from integration.failover import place

place.place()

# pylint: disable=wrong-import-position
from integration.failover.job import Ended, Job, assert_right  # noqa: E402

_PORT = "alpha/mlx5_0"
# Of a fault's time that messages may still come from before it.
_ON_THE_WAY_NS = 3_000_000
_QUIET = {"RAILHOP_LOG": "info", "NCCL_DEBUG": "INFO"}
_HOLD_DOWN_MS = 200.0


def say(text: str) -> None:
    """Progress."""
    print(f"bench failover: {text}", file=sys.stderr, flush=True)


def figure(
    metric: str,
    value: float,
    unit: str,
    bar: float,
    *,
    runs: int = 1,
    baseline: Optional[float] = None,
    **more: Any,
) -> None:
    """One line. baseline: what `value` is compared with; bar: what it may be."""
    ratio = value / baseline if baseline else None
    line = {
        "bench": "failover",
        "metric": metric,
        "value": round(value, 3),
        "unit": unit,
        "baseline": baseline,
        "ratio": None if ratio is None else round(ratio, 4),
        "runs": runs,
        "bar": bar,
        "met": value <= bar,
    }
    print(json.dumps({**line, **more}), flush=True)


class Clock:
    """The fabric's time in that of CLOCK_MONOTONIC."""

    def __init__(self, job: Job) -> None:
        self._job = job
        before = time.monotonic_ns()
        uptime = job.fabric.snapshot()["uptime_ns"]
        self._start = (before + time.monotonic_ns()) // 2 - uptime

    def last(self, port: str, state: str) -> int:
        """When a port last became so, in ns."""
        for entry in reversed(self._job.fabric.log()):
            if entry["port"] == f"{port}:1" and entry.get("state") == state:
                return int(entry["time_ns"]) + int(self._start)
        raise ValueError(f"{port} never was {state}")

    def last_fault(self, port: str) -> int:
        """When the last fault was put in there."""
        for entry in reversed(self._job.fabric.log()):
            if entry["port"] == f"{port}:1" and entry["kind"] == "fault_set":
                return int(entry["time_ns"]) + int(self._start)
        raise ValueError(f"no fault of {port}")


def until_moving(ended: Ended, fault_ns: int) -> float:
    """Ms from a fault until each connection has received again."""
    worst = 0
    for gap in ended.gaps:
        if gap["from_ns"] <= fault_ns + _ON_THE_WAY_NS and gap["to_ns"] > fault_ns:
            worst = max(worst, gap["to_ns"] - fault_ns)
    return worst / 1e6


def _wait_back(job: Job, port: str, since_bytes: int) -> int:
    """When the port carries data again, in ns."""
    deadline = time.monotonic() + 60
    while job.bytes_of(port) - since_bytes < 20_000:
        assert time.monotonic() < deadline, "it does not come back"
        time.sleep(0.001)
    return time.monotonic_ns()


def port_events(cycles: int) -> None:
    """Port down, moved, port up, back again, and so on."""
    env = {
        **_QUIET,
        "RAILHOP_HOLD_DOWN": f"{_HOLD_DOWN_MS:.0f}ms",
        "RAILHOP_HOLD_DOWN_MAX": "200ms",
    }
    options = ("--gap-min", "0.3", "--in-flight", "4")
    with Job(*options, connections=8, size=16384, env=env) as job:
        job.wait_traffic()
        clock = Clock(job)
        faults, backs = [], []
        for cycle in range(cycles):
            job.fault(f"{_PORT} down")
            faults.append(clock.last(_PORT, "DOWN"))
            job.wait_elsewhere("beta/mlx5_0", more=200_000)
            since = job.bytes_of(_PORT)
            job.fault(f"{_PORT} up")
            up_ns = clock.last(_PORT, "ACTIVE")
            backs.append((_wait_back(job, _PORT, since) - up_ns) / 1e6 - _HOLD_DOWN_MS)
            time.sleep(0.15)
            if cycle % 10 == 9:
                say(f"{cycle + 1} of {cycles} cycles")
        ended = job.end()
    assert_right(ended)
    times = sorted(until_moving(ended, fault) for fault in faults)
    figure("port_event_8_median", statistics.median(times), "ms", 5, runs=cycles, aim=2)
    figure("port_event_8_worst", times[-1], "ms", 50, runs=cycles)
    figure("failback_beyond_hold_down_median", statistics.median(backs), "ms", 100, runs=cycles)
    figure("failback_beyond_hold_down_worst", max(backs), "ms", 100, runs=cycles)
    share = max(1, cycles // 5)
    first, last = statistics.median(backs[:share]), statistics.median(backs[-share:])
    figure("failback_drift", last - first, "ms", 50, runs=cycles, first=first, last=last)
    figure("flap_cycles_survived", float(cycles - len(backs)), "cycles lost", 0, runs=cycles,
           wrong_bytes=ended.last["wrong_bytes"],
            longest_gap_ms=ended.last["longest_gap_ms"],
        )  # fmt: skip


def black_hole(cycles: int, threshold_ms: int) -> None:
    """Silence until the first new byte, beyond the stall threshold."""
    env = {
        **_QUIET,
        "RAILHOP_STALL_THRESHOLD": f"{threshold_ms}ms",
        "RAILHOP_HOLD_DOWN_MAX": "200ms",
    }
    with Job("--in-flight", "4", "--gap-min", "5", connections=8, size=16384, env=env) as job:
        job.wait_traffic()
        clock = Clock(job)
        faults = []
        for _ in range(cycles):
            job.fault(f"{_PORT} blackhole both")
            faults.append(clock.last_fault(_PORT))
            job.wait_elsewhere("beta/mlx5_0", more=200_000)
            time.sleep(0.2)
            since = job.bytes_of("beta/mlx5_0")
            job.fault(f"{_PORT} clear blackhole")
            _wait_back(job, "beta/mlx5_0", since)
            time.sleep(0.2)
        ended = job.end()
    assert_right(ended)
    times = [until_moving(ended, fault) for fault in faults]
    figure(f"black_hole_{threshold_ms}ms_median", statistics.median(times), "ms",
           threshold_ms + 20, runs=cycles, worst=round(max(times), 1))  # fmt: skip


def many(connections: int, cycles: int) -> None:
    """One NIC with all connections on it."""
    env = {**_QUIET, "RAILHOP_HOLD_DOWN_MAX": "200ms"}
    options = ("--in-flight", "1", "--gap-min", "20", "--timeout", "200")
    with Job(*options, connections=connections, size=4096, mixed=False, env=env) as job:
        job.wait_traffic(more=connections * 4096 * 3)
        clock = Clock(job)
        faults = []
        for _ in range(cycles):
            job.fault(f"{_PORT} down")
            faults.append(clock.last(_PORT, "DOWN"))
            job.wait_elsewhere("beta/mlx5_0", more=connections * 4096 * 3)
            since = job.bytes_of(_PORT)
            job.fault(f"{_PORT} up")
            _wait_back(job, _PORT, since)
            time.sleep(3)
        ended = job.end()
    assert_right(ended)
    times = [until_moving(ended, fault) for fault in faults]
    lines = max(len(ended.warnings(host)) for host in job.hosts)
    figure(f"port_event_{connections}_all_moving", max(times), "ms", 1000, runs=cycles,
           median=round(statistics.median(times), 1))  # fmt: skip
    figure(f"log_lines_{connections}", lines / cycles, "lines for each event in a process", 5,
           runs=cycles)  # fmt: skip


def bandwidth() -> None:
    """Equal bytes on four connections, one for each of four capped NICs; one of them lost."""
    sizes = "262144,262145,262146,262147,262148"
    options = ("--size", sizes, "--count", "800", "--check", "none", "--timeout", "200")
    env = {**_QUIET, "RAILHOP_HOLD_DOWN_MAX": "200ms"}
    caps = [f"alpha/mlx5_{n} cap 200Mb/s tx" for n in range(4)]
    with Job(
        *options, connections=4, devices="0,1,2,3", mixed=False, endless=False, before=caps, env=env
    ) as job:
        job.wait_traffic()
        # Legs: healthy, (lost), lost, (regained), regained. The ones in brackets have the change.
        job.wait_figures(1)
        job.fault(f"{_PORT} down")
        job.wait_figures(3)
        job.fault(f"{_PORT} up")
        ended = job.join(600)
    assert_right(ended)
    times = [262144 * 800 / line["value"] / 1e9 for line in ended.figures[:5]]
    figure("bandwidth_1_of_4_lost", times[2] / times[0], "times the healthy time", 1 / 0.72,
           runs=1, healthy_s=round(times[0], 3), with_the_fault_s=round(times[1], 3))  # fmt: skip
    figure("bandwidth_regained", times[4] / times[0], "times the healthy time", 1.05, runs=1)


def black_holes() -> None:
    black_hole(10, 1000)
    black_hole(10, 80)


def instructions() -> None:
    """Cost of a message while healthy, inside the plugin."""
    sums: dict[str, dict[tuple[int, int], tuple[float, float]]] = {}
    for name, value in (("on", "1"), ("off", "0")):
        say(f"instructions with failover {name}")
        done = subprocess.run(
            [
                os.environ["RAILHOP_TEST_LAUNCHER"], "run", "--library-dir",
                str(pathlib.Path(os.environ["RAILHOP_TEST_LIBRARY"]).resolve().parent), "--",
                os.environ["RAILHOP_TEST_PROGRAM"], "--plugin",
                str(pathlib.Path(os.environ["RAILHOP_TEST_PLUGIN"]).resolve()), "--instructions",
                "--json", "--devices", "0,1",
            ],
            env={**os.environ, "RAILHOP_FAILOVER": value, "NCCL_SOCKET_IFNAME": "lo"},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        sums[name] = {
            (line["devices"], line["outstanding"]): (line["sum"], line["budget"]) for line in lines
        }
        if not sums[name]:
            say(done.stdout + done.stderr)
    for (devices, outstanding), (count, nccl) in sums["on"].items():
        figure(
            f"instructions_{devices}_devices_{outstanding}_outstanding", count,
            "instructions for a message", nccl, baseline=nccl,
            switched_off=sums["off"].get((devices, outstanding), (None,))[0],
        )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/bench failover", description=__doc__)
    parser.add_argument("--cycles", type=int, default=100, help="port events (100)")
    parser.add_argument("--connections", type=int, default=1024, help="of the large case (1024)")
    parser.add_argument(
        "--only", default="", help="events, blackhole, many, bandwidth, instructions"
    )
    args = parser.parse_args()
    rows = {
        "events": lambda: port_events(args.cycles),
        "blackhole": black_holes,
        "many": lambda: many(args.connections, 3),
        "bandwidth": bandwidth,
        "instructions": instructions,
    }
    if args.only and args.only not in rows:
        parser.error(f"no row '{args.only}' (allowed: {', '.join(rows)})")
    good = True
    for name, measure in rows.items():
        if args.only not in ("", name):
            continue
        say(name)
        try:
            measure()
        except (AssertionError, OSError, ValueError) as error:
            say(f"{name}: {error}")
            good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
