"""What watching a job costs it (tools/bench admin): a JSON line for each figure.

A reader asks the sender's admin socket for health and stats, in turn, a thousand times a second. It
is let go and stopped in one running job, in windows of a quarter of a second: without, with, with,
without, and so on, so that what else the machine does falls on both alike. A window's figure is
what the job's port has moved. `ratio` is the median over groups of four windows, `spread` its
quarter points, `noise` the quarter points of the ratios of the two windows without a reader in the
same group. What the reader costs is measurable only if `ratio` lies outside `noise`.

On a machine without an idle core the reader takes time from the job, whatever it does: `cpus` and
`busy` (processes of the job that never sleep) say whether that is so.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

from integration.failover import place

place.place()

# pylint: disable=wrong-import-position
from integration.failover.job import Job  # noqa: E402

_QUIET = {"RAILHOP_LOG": "info", "NCCL_DEBUG": "INFO"}
_PORT = "alpha/mlx5_0"
# Counter of the port, options of netperf.
_SHAPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "bandwidth": ("tx_bytes", ("--size", "65536")),
    "message_rate": ("tx_messages", ("--size", "8")),
}
_MESSAGES_MAX = 100_000_000


def say(text: str) -> None:
    """Progress."""
    print(f"bench admin: {text}", file=sys.stderr, flush=True)


class Reader:
    """Asks while it is let."""

    def __init__(self, socket: pathlib.Path, rate: float) -> None:
        self._process = subprocess.Popen(
            [
                os.environ["RAILHOP_TEST_ADMIN_CLIENT"], str(socket), '{"get_health": {}}',
                "10", str(_MESSAGES_MAX), str(rate), '{"get_stats": {}}',
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pause()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def join(self) -> int:
        """After the job has ended: how many were answered."""
        self.go()
        _, said = self._process.communicate()
        return int(said.split()[0])


def quarters(values: list[float]) -> list[float]:
    """The quarter points."""
    low, _, high = statistics.quantiles(values, n=4)
    return [round(low, 4), round(high, 4)]


def measure(metric: str, rounds: int, window_s: float, rate: float) -> dict[str, Any]:
    """One figure."""
    counter, options = _SHAPES[metric]
    with Job(*options, "--check", "none", connections=4, mixed=False, env=_QUIET) as job:
        job.wait_traffic(more=100_000)
        reader = Reader(job.admin_dir / f"{job.pid('alpha')}.sock", rate)

        def window(reading: bool) -> float:
            if reading:
                reader.go()
            before, start = job.counters(_PORT)[counter], time.monotonic()
            time.sleep(window_s)
            moved = job.counters(_PORT)[counter] - before
            took = time.monotonic() - start
            reader.pause()
            return moved / took

        window(True)
        ratios, noise, without, watched = [], [], [], []
        for _ in range(rounds):
            first, second, third, last = (window(on) for on in (False, True, True, False))
            ratios.append((second + third) / (first + last))
            noise.append(last / first)
            without += [first, last]
            watched += [second, third]
        job.end()
        answered = reader.join()
    say(f"{metric}: {rounds} groups, {answered} requests answered")
    return {
        "bench": "admin",
        "metric": metric,
        "value": round(statistics.median(watched)),
        "unit": "B/s" if counter == "tx_bytes" else "messages/s",
        "baseline": round(statistics.median(without)),
        "ratio": round(statistics.median(ratios), 4),
        "runs": rounds,
        "spread": quarters(ratios),
        "noise": quarters(noise),
        "requests_per_s": round(answered / ((2 * rounds + 1) * window_s)),
        "cpus": os.cpu_count(),
        "busy": 2,
    }


def main() -> int:
    """See the file's comment."""
    parser = argparse.ArgumentParser(prog="tools/bench admin", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="groups of four windows")
    parser.add_argument("--window", type=float, default=0.25, help="seconds of a window")
    parser.add_argument("--rate", type=float, default=1000.0, help="requests a second")
    options = parser.parse_args()
    for metric in _SHAPES:
        line = measure(metric, max(options.rounds, 3), options.window, options.rate)
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
