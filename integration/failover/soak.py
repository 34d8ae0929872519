"""An hour of faults, and one of none (tools/bench soak): no wrong byte, no false alarm, no growth.

Two kinds. `faults`: a fault every second, of all kinds that pass by themselves, at either end, with
one pair of ports left alone at any time, so that every one can be survived. `quiet`: no fault, but
peers that compute for longer than the stall threshold, receives that are not posted meanwhile, and
processors that are busy; every warning is a false alarm.

Memory, threads and descriptors are read each second from outside. Flat is: the last quarter of the
time has no more than the second one, but for a margin.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Optional

from integration.failover import place

place.place()

# pylint: disable=wrong-import-position
from integration.failover.job import Ended, Job, assert_nothing_left  # noqa: E402

_KINDS = ("faults", "quiet")
_PORTS = 4
# A port is left alone so long after a fault of it is over: it has been proved again by then.
_REST_S = 1.5
_ENV = {"RAILHOP_LOG": "info", "NCCL_DEBUG": "INFO", "RAILHOP_STALL_THRESHOLD": "1s"}
# What is free goes back to the system, so that what is read is what is held: a thread's arena
# keeps 10 MB else.
_MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
_HOLD_DOWN = {"RAILHOP_HOLD_DOWN": "200ms", "RAILHOP_HOLD_DOWN_MAX": "1s"}
# What memory may differ by without growing: allocators keep what they were lent.
_MEMORY_MARGIN_KIB = 2048
# Until every connection has been on every device, and has a completion queue of its own there (some
# 90 KiB at either end).
_WARM_S = 900.0
_WARMING_MARGIN_KIB = 32 * 1024


@dataclasses.dataclass
class Sample:
    """What the job's processes hold together."""

    memory_kib: int
    threads: int
    descriptors: int


@dataclasses.dataclass
class Soaked:
    """What came of it."""

    kind: str
    seconds: float
    faults: int
    ended: Ended
    samples: list[Sample]

    def _quarter(self, index: int, of: str) -> float:
        count = len(self.samples) // 4
        part = self.samples[index * count : (index + 1) * count]
        return float(statistics.median(getattr(one, of) for one in part))

    def growth(self, of: str) -> float:
        """From the second quarter to the last."""
        return self._quarter(3, of) - self._quarter(1, of)

    def alarms(self) -> list[str]:
        """Warnings of a run that had no fault."""
        return self.ended.warnings() if self.kind == "quiet" else []

    def problems(self) -> list[str]:
        """What is not as it has to be; empty: all is."""
        found = []
        last = self.ended.last
        if self.ended.status != 0 or not last["survived"]:
            found.append(f"the job did not survive: {last['problem']}")
        for key in ("wrong_bytes", "wrong_sizes", "errors"):
            if last[key]:
                found.append(f"{key}: {last[key]}")
        if self.alarms():
            found.append(f"{len(self.alarms())} false alarms, the first: {self.alarms()[0]}")
        if len(self.samples) < 8:
            found.append("too short to tell whether anything grows")
        else:
            margin = _MEMORY_MARGIN_KIB if self.seconds > _WARM_S else _WARMING_MARGIN_KIB
            if self.growth("memory_kib") > margin:
                found.append(f"memory has grown by {self.growth('memory_kib'):.0f} KiB")
            for of in ("threads", "descriptors"):
                # Sessions, probes and workers come and go: what is up at the moment of a sample.
                if self.growth(of) > 2:
                    found.append(f"{of} have grown by {self.growth(of):.0f}")
        try:
            assert_nothing_left(self.ended)
        except AssertionError as error:
            found.append(f"not all is gone at the end: {str(error).splitlines()[0]}")
        return found


def _sample(pids: list[int]) -> Sample:
    memory = threads = descriptors = 0
    for pid in pids:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        fields = dict(line.split(":", 1) for line in status.splitlines())
        # Without the fabric's shared memory.
        memory += int(fields["RssAnon"].split()[0])
        threads += int(fields["Threads"])
        descriptors += len(os.listdir(f"/proc/{pid}/fd"))
    return Sample(memory, threads, descriptors)


class _Faults:
    """Draws them; the same seed draws the same."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._free_at = [0.0] * _PORTS

    def draw(self, now: float) -> str:
        """The next one; "" where no port can be spared now."""
        free = [port for port in range(_PORTS) if self._free_at[port] <= now]
        if len(free) < 2:
            return ""
        port = self._random.choice(free)
        seconds = self._random.choice((0.05, 0.3, 1.0, 2.5))
        self._free_at[port] = now + seconds + _REST_S
        words = self._words(f"for {round(seconds * 1000)}ms")
        return f"{self._random.choice(('alpha', 'beta'))}/mlx5_{port} {words}"

    def _words(self, span: str) -> str:
        pick = self._random.choice
        return pick(
            (
                f"down {span}",
                f"down {span} event lost",
                f"flap every 100ms {span}",
                f"blackhole {pick(('tx', 'rx', 'both'))} {span}",
                f"blackhole rx acks {span}",
                f"loss {pick((1, 10, 50))}% {span}",
                f"delay {pick((1, 5))}ms {span}",
                f"duplicate 1% {span}",
                f"complete status {pick(('retry_exc_err', 'rem_op_err', 'fatal_err'))} {span}",
                f"wedge {span}",
                f"fail create_qp ENOMEM {span}",
                f"fail modify_qp rtr EIO {span}",
                "event port_err",
                f"gid remove 3 {span}",
                f"cap 200Mb/s {span}",
            )
        )


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Programs beside the job that only compute."""
    spin = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(count)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def _options(kind: str, seconds: float) -> list[str]:
    # The program keeps each gap from there on, and would grow by them.
    options = ["--seconds", str(round(seconds) + 300), "--timeout", "60", "--gap-min", "5000"]
    if kind == "faults":
        # Not as fast as it can: the faults are what counts.
        return [*options, "--pause-every", "400", "--pause-ms", "150"]
    return [*options, "--pause-every", "1500", "--pause-ms", "1700"]


def soak(
    kind: str,
    seconds: float,
    *,
    connections: int = 64,
    seed: int = 1,
    busy: Optional[int] = None,
) -> Soaked:
    """Runs it.

    Args:
      kind: "faults" or "quiet".
      seconds: how long.
      connections: over the four devices in turn.
      seed: of the faults.
      busy: so many programs compute beside a quiet job; None: one for each processor.
    """
    if busy is None:
        busy = os.cpu_count() or 1
    faults = _Faults(seed)
    count = 0
    samples = []
    env = {**_ENV, **_MALLOC, **(_HOLD_DOWN if kind == "faults" else {})}
    with Job(
        *_options(kind, seconds),
        connections=connections, devices="0,1,2,3", size=20001, env=env, endless=False,
    ) as job, _busy(busy if kind == "quiet" else 0):  # fmt: skip
        job.wait_traffic()
        pids = list(job.processes)
        start = time.monotonic()
        turn = 0
        while time.monotonic() - start < seconds:
            turn += 1
            if kind == "faults" and (words := faults.draw(time.monotonic())):
                job.fault(words)
                count += 1
            time.sleep(max(0.0, start + turn - time.monotonic()))
            job.wait("the job runs on", lambda: True)
            samples.append(_sample(pids))
            if turn % 60 == 0:
                _say(f"{kind}: {turn} s, {count} faults, {samples[-1]}")
        if kind == "faults":
            for port in range(_PORTS):
                for host in ("alpha", "beta"):
                    job.fault(f"{host}/mlx5_{port} clear")
            time.sleep(2)
        ended = job.end()
    return Soaked(kind, time.monotonic() - start, count, ended, samples)


def _say(text: str) -> None:
    print(f"bench soak: {text}", file=sys.stderr, flush=True)


def _report(soaked: Soaked) -> bool:
    def line(metric: str, value: float, unit: str) -> None:
        shown = {"bench": "soak", "metric": f"{soaked.kind}_{metric}", "value": round(value, 3)}
        print(json.dumps({**shown, "unit": unit, "baseline": None, "ratio": None, "runs": 1}))

    last = soaked.ended.last
    line("time", soaked.seconds, "s")
    line("faults", soaked.faults, "count")
    line("episodes", len(soaked.ended.recovered()), "count")
    for key in ("messages", "bytes", "wrong_bytes", "wrong_sizes", "errors"):
        line(key, last[key], "B" if "bytes" in key else "count")
    line("longest_gap", last["longest_gap_ms"], "ms")
    line("false_alarms", len(soaked.alarms()), "count")
    line("memory_growth", soaked.growth("memory_kib"), "KiB")
    line("memory", soaked.samples[-1].memory_kib, "KiB")
    line("thread_growth", soaked.growth("threads"), "count")
    line("descriptor_growth", soaked.growth("descriptors"), "count")
    problems = soaked.problems()
    for problem in problems:
        _say(f"{soaked.kind}: {problem}")
    if problems:
        pathlib.Path(f"/tmp/railhop-soak-{soaked.kind}.log").write_text(
            soaked.ended.show() + "\n" + soaked.ended.text(), encoding="utf-8"
        )
    sys.stdout.flush()
    return not problems


def main() -> int:
    """See the file's comment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=_KINDS, action="append", help="default: both")
    parser.add_argument("--seconds", type=float, default=3600, help="of each kind")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--busy", type=int, help="programs that compute beside a quiet job")
    options = parser.parse_args()
    good = True
    for kind in options.kind or _KINDS:
        soaked = soak(
            kind,
            options.seconds,
            connections=options.connections,
            seed=options.seed,
            busy=options.busy,
        )
        good = _report(soaked) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
