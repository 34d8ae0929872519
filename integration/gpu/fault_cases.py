"""One piece of steady work with one fault put in, and everything that is to be checked of it."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
import statistics
import time
from typing import Any, Optional

from integration.gpu import plugin_log
from integration.gpu.fabric_watch import Sample, Watch
from integration.gpu.jobs import Job, JobError

HOSTS = ("alpha", "beta")
# Rounds that pass before anything is done to the fabric, and the longest time for them.
LEAD_ROUNDS = 12
LEAD_S = 60.0
# After a fault, other than a flap, begins: its port moves nothing between these times.
QUIET_S = (0.3, 0.9)
_ERROR = re.compile(r"raised the following async exception: ([^\n]*)")
_serial = itertools.count()


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is done to one host's NICs. {first} is its busier one, {second} the other."""

    name: str
    script: tuple[tuple[float, str], ...]  # seconds after the lead, fault
    seconds: float  # of the work, all in all
    sign: str  # what the fabric's log must have: "port_state", "drop", "device_removed"
    fails_back: bool = False  # the work is long enough to see it go back


FAULTS = (
    Fault("port-down", ((0.6, "{first} down for 1500ms"),), 6.5, "port_state", True),
    Fault("black-hole", ((0.6, "{first} blackhole for 2500ms"),), 8, "drop", True),
    Fault("flap", ((0.6, "{first} flap every 400ms down 200ms for 2s"),), 6.5, "port_state", True),
    Fault(
        "both-in-turn",
        ((0.6, "{first} down for 1s"), (5.2, "{second} down for 1s")),
        10.5,
        "port_state",
        True,
    ),
    Fault("removal", ((0.6, "{first} remove"),), 5, "device_removed"),
)
WORKS = ("all_reduce", "broadcast", "send_recv", "all_to_all", "ddp")


@dataclasses.dataclass
class Outcome:
    """What came of one piece of work."""

    answers: list[dict[str, Any]]  # of both ranks; empty if the job failed
    problem: str
    error: str  # what PyTorch reported of the network, if it did
    rounds: list[list[float]]  # of rank 0: start (CLOCK_MONOTONIC), seconds
    begun_s: float  # the first round's start
    faults: list[tuple[float, str]]  # when, words as put in
    ports: list[str]  # the host's, busiest first
    exits: list[Optional[int]]
    said: plugin_log.Said
    events: collections.Counter[str]  # of the fabric's log, by "port kind"
    samples: list[Sample]

    def gap_ms(self) -> float:
        """The longest round after the first fault."""
        start = self.faults[0][0] if self.faults else self.begun_s
        return max((s for t, s in self.rounds if t + s >= start), default=0.0) * 1e3

    def median_ms(self) -> float:
        """The median round before the first fault (of all, if there was none)."""
        until = self.faults[0][0] if self.faults else float("inf")
        times = [s for t, s in self.rounds if t + s < until]
        return statistics.median(times) * 1e3 if times else 0.0


def run(
    job: Job,
    watch: Watch,
    work: str,
    fault: Optional[Fault],
    *,
    seconds: float,
    host: str = "alpha",
    most: int = 1_000_000,
    patience_s: float = 60,
) -> Outcome:
    """Starts the work, puts the fault in once it flows, waits for both ranks. Raises nothing."""
    watch.heal()
    logged, position = job.log_sizes(), watch.position()
    faults: list[tuple[float, str]] = []
    ports: list[str] = []
    answers: list[dict[str, Any]] = []
    problem = ""
    key = f"{work}-{fault.name if fault else 'none'}-{next(_serial)}"
    begun = time.monotonic()
    try:
        job.begin("steady", name=work, seconds=seconds, rounds=most, key=key)
        _lead(job)
        ports = watch.busiest(host)
        origin = time.monotonic()
        for at, words in fault.script if fault else ():
            time.sleep(max(0.0, origin + at - time.monotonic()))
            line = words.format(first=ports[0], second=ports[1])
            faults.append((time.monotonic(), line))
            watch.fault(line)
        answers = job.finish(seconds + patience_s)
    except JobError as error:
        problem = str(error)
    rounds = [one for mark in job.marks(0) for one in mark["rounds"]]
    begun = rounds[0][0] if rounds else begun
    log = job.log(logged)
    reported = _ERROR.search(log)
    events = collections.Counter(f"{e['port']} {e['kind']}" for e in watch.events(position))
    return Outcome(
        answers,
        problem,
        reported[1] if reported else "",
        rounds,
        begun,
        faults,
        ports,
        job.exits(),
        plugin_log.read(log),
        events,
        watch.samples(begun - 0.2),
    )


def _lead(job: Job) -> None:
    until = time.monotonic() + LEAD_S
    while not any(mark["mark"] >= LEAD_ROUNDS for mark in job.marks(0)):
        if time.monotonic() > until:
            raise JobError(f"{job.transport.name}: no {LEAD_ROUNDS} rounds within {LEAD_S:.0f} s")
        if any(status is not None for status in job.exits()):
            job.finish(1)
        time.sleep(0.02)


def same_results(answers: list[dict[str, Any]], truth: list[dict[str, Any]]) -> str:
    """Empty if both ranks' results are those of the fault-free run bit by bit, else where not."""
    for rank, (answer, right) in enumerate(zip(answers, truth, strict=True)):
        if answer["wrong"] != 0:
            return f"rank {rank}: {answer['wrong']} wrong words"
        for name in ("digests", "losses", "sums"):
            ours, theirs = answer.get(name, []), right.get(name, [])
            if name == "digests" and ours != theirs:
                return f"rank {rank}: the results differ"
            if len(ours) > len(theirs):
                return f"rank {rank}: {len(ours)} {name}, the fault-free run has only {len(theirs)}"
            for step, (mine, true) in enumerate(zip(ours, theirs, strict=False)):
                if mine != true:
                    return f"rank {rank}: {name} differ from number {step} on"
    return ""


def hit(outcome: Outcome, fault: Fault) -> str:
    """Empty if the fault took effect on a port that carried the work's bytes, else why not."""
    for index, (at, line) in enumerate(outcome.faults):
        port = line.split()[0]
        if outcome.events[f"{port}:1 {fault.sign}"] == 0:
            return f"the fabric's log has no {fault.sign} on {port}"
        before = [s for s in outcome.samples if at - 0.8 <= s.time_s <= at]
        if len(before) < 2 or before[-1].moved[port] == before[0].moved[port]:
            if index == 0:
                return f"{port} carried nothing before the fault"
            return f"{port} carried nothing before fault {index + 1}"
        during = [s for s in outcome.samples if at + QUIET_S[0] <= s.time_s <= at + QUIET_S[1]]
        steady = " flap " not in line and len(during) > 1
        if steady and during[-1].moved[port] != during[0].moved[port]:
            return f"{port} carried bytes during the fault"
    return "" if outcome.faults else "no fault was put in"


def judge(outcome: Outcome, fault: Fault, truth: list[dict[str, Any]]) -> dict[str, str]:
    """Every check of a case: name to what is wrong with it, empty if it holds."""
    said = outcome.said
    checks = {"survives": outcome.problem.splitlines()[0] if outcome.problem else ""}
    if outcome.answers:
        checks["same bits"] = same_results(outcome.answers, truth)
    checks["fault hit"] = hit(outcome, fault)
    names = {line.split()[0].split("/")[1] + ":1" for _, line in outcome.faults}
    begun = {episode["port"] for episode in said.episodes}
    over = {str(recovery["port"]) for recovery in said.recoveries}
    checks["episode logged"] = "" if names <= begun else f"nothing of {sorted(names - begun)}"
    # A NIC that returns and leaves again within one episode is one episode.
    checks["recovery logged"] = "" if names <= over else f"{sorted(names - over)} has not recovered"
    checks["nothing given up"] = said.given_up[0] if said.given_up else ""
    last = outcome.faults[-1][0] if outcome.faults else outcome.begun_s
    after = sum(1 for t, _ in outcome.rounds if t > last)
    checks["goes on after"] = "" if after >= 10 else f"{after} rounds after the fault"
    if fault.fails_back:
        missing = sorted(names - set(said.back))
        checks["fails back"] = f"{missing} is not used again" if missing else ""
    return checks
