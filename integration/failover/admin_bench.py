"""What watching a job costs it (tools/bench admin): a JSON line for each figure.

A reader asks the sender's admin socket for health and stats, in turn, a thousand times a second.
Runs with and without it alternate, in pairs, so that what else the machine does falls on both
alike; a figure's `ratio` is the median of the pairs' ratios, `spread` their quarter points, and
`noise` the quarter points of the ratios between runs without a reader that follow each other. What
the reader costs is measurable only if `ratio` lies outside `noise`.

On a machine without an idle core the reader takes time from the job, whatever it does: `cpus` and
`busy` (processes that never sleep) say whether that is so.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BUILT = {
    "RAILHOP_TEST_ADMIN_CLIENT": "cc/admin/admin_client",
    "RAILHOP_TEST_LAUNCHER": "cc/fabric/ctl/railhop-fabric",
    "RAILHOP_TEST_LIBRARY": "cc/fabric/libibverbs.so.1",
    "RAILHOP_TEST_PLUGIN": "cc/plugin/libnccl-net-railhop.so",
    "RAILHOP_TEST_PROGRAM": "cc/netperf/railhop-netperf",
}


def _place() -> None:
    """Into the folder that this program's files are in; tells job.py where they are."""
    folder = pathlib.Path(__file__).absolute().parents[2]
    os.chdir(folder if (folder / _BUILT["RAILHOP_TEST_PROGRAM"]).exists() else _ROOT)
    for name, path in _BUILT.items():
        os.environ.setdefault(name, path)


_place()

# pylint: disable=wrong-import-position
from integration.failover.job import Job  # noqa: E402

_QUIET = {"RAILHOP_LOG": "info", "NCCL_DEBUG": "INFO"}
_SHAPES: dict[str, tuple[str, ...]] = {
    "bandwidth": ("--metric", "bandwidth", "--size", "65536"),
    "latency": ("--metric", "latency", "--size", "8"),
}
_MESSAGES_MAX = 10_000_000


def say(text: str) -> None:
    """Progress."""
    print(f"bench admin: {text}", file=sys.stderr, flush=True)


def run(metric: str, seconds: float, rate: float) -> tuple[float, str, int]:
    """One job, with a reader unless rate is 0: its figure, the unit, requests answered."""
    options = (*_SHAPES[metric], "--seconds", str(seconds), "--check", "none")
    with Job(*options, connections=4, endless=False, mixed=False, env=_QUIET) as job:
        job.wait_traffic(more=100_000)
        answered = 0
        if rate > 0:
            socket = job.admin_dir / f"{job.pid('alpha')}.sock"
            reader = subprocess.run(
                [
                    os.environ["RAILHOP_TEST_ADMIN_CLIENT"], str(socket), '{"get_health": {}}',
                    "10", str(_MESSAGES_MAX), str(rate), '{"get_stats": {}}',
                ],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
            answered = int(reader.stderr.split()[0])
        ended = job.join()
    last = ended.last
    return float(last["value"]), str(last["unit"]), answered


def quarters(values: list[float]) -> list[float]:
    """The quarter points."""
    low, _, high = statistics.quantiles(values, n=4)
    return [round(low, 4), round(high, 4)]


def measure(metric: str, rounds: int, seconds: float, rate: float) -> dict[str, Any]:
    """One figure."""
    without: list[float] = []
    ratios: list[float] = []
    watched: list[float] = []
    answered = 0
    unit = ""
    for turn in range(rounds):
        pair: dict[bool, float] = {}
        for reading in (False, True) if turn % 2 == 0 else (True, False):
            pair[reading], unit, count = run(metric, seconds, rate if reading else 0)
            answered += count
        without.append(pair[False])
        watched.append(pair[True])
        ratios.append(pair[True] / pair[False])
        say(f"{metric} {turn + 1}/{rounds}: {pair[False]:.4g} without, {pair[True]:.4g} with")
    noise = [b / a for a, b in zip(without, without[1:])]
    return {
        "bench": "admin",
        "metric": metric,
        "value": round(statistics.median(watched), 4),
        "unit": unit,
        "baseline": round(statistics.median(without), 4),
        "ratio": round(statistics.median(ratios), 4),
        "runs": rounds,
        "spread": quarters(ratios),
        "noise": quarters(noise),
        "requests_per_s": round(answered / (rounds * seconds)),
        "cpus": os.cpu_count(),
        "busy": 2,
    }


def main() -> int:
    """See the file's comment."""
    parser = argparse.ArgumentParser(prog="tools/bench admin", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="pairs of runs for each figure")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long a run takes")
    parser.add_argument("--rate", type=float, default=1000.0, help="requests a second")
    options = parser.parse_args()
    for metric in _SHAPES:
        line = measure(metric, max(options.rounds, 3), options.seconds, options.rate)
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
