r"""Real NCCL with faults put in while it runs: Railhop survives, NCCL's own transport does not.

    dist/fabric/railhop-fabric run --topology integration/gpu/faults.topology -- \
        python3 -m integration.gpu.faults --plugin SO --out FOLDER

For a machine with one or two GPUs and PyTorch. Two parts: `claim` (no fault; one fault over NCCL's
IB transport, over Railhop without failover, over Railhop) and `matrix` (every fault during every
kind of work, over Railhop). Writes FOLDER/faults.jsonl (see faults_page.py), FOLDER/faults.md and
FOLDER/three-runs-WORK.svg. Status 0 only if every check held.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import platform
import sys
import time
from collections.abc import Iterable
from typing import Any, Optional

from integration.gpu import fault_cases, faults_page
from integration.gpu.fabric_watch import Watch
from integration.gpu.fault_cases import FAULTS, HOSTS, WORKS, Fault, Outcome
from integration.gpu.jobs import Job, JobError, Transport, nccl_ib, railhop, sockets

# Two NICs for each host, not fused: NCCL gives each to connections of its own.
DEVICES = 2
# Several faults hit one job; a port that flaps is held down for longer each time.
MATRIX_ENV = {"RAILHOP_HOLD_DOWN_MAX": "1s", "RAILHOP_LOG": "trace", "NCCL_DEBUG": "TRACE"}
# The claim's fault outlasts the retries of every run: 8 times 67 ms. With NCCL's default, 8 times
# 4.3 s, all that differs is that NCCL's own transport stands still for longer before it ends.
CLAIM = Fault("port-down", ((3.0, "{first} down for 4s"),), 14, "port_state", True)
CLAIM_ENV = {"NCCL_IB_TIMEOUT": "14", "NCCL_IB_RETRY_CNT": "7", "JOB_TIMEOUT_S": "12"}
CLAIM_ENV |= {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000"}


class Bench:
    """Jobs over the fabric, the truth they are held to, and the lines of the results."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.out: pathlib.Path = args.out
        self.started = time.monotonic()
        self.watch = Watch(args.fabric_tool)
        self.truth: dict[str, list[dict[str, Any]]] = {}
        self.wrong = 0
        self.checks = 0
        self.lines: list[dict[str, Any]] = []

    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return float(self.args.seconds) - (time.monotonic() - self.started)

    def note(self, line: dict[str, Any]) -> None:
        """Adds a line to the results."""
        self.lines.append(line)
        with (self.out / "faults.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def check(self, name: str, checks: dict[str, str]) -> bool:
        """Counts and prints; true if all hold."""
        bad = {what: why for what, why in checks.items() if why}
        self.checks += len(checks)
        self.wrong += len(bad)
        text = "ok" if not bad else "WRONG: " + "; ".join(f"{k}: {v}" for k, v in bad.items())
        print(f"[{time.monotonic() - self.started:5.0f} s] {name}: {text}", flush=True)
        return not bad

    def job(self, transport: Transport, name: str, env: Optional[dict[str, str]] = None) -> Job:
        """Starts rank 0 on the first host and rank 1 on the second."""
        full = {**transport.env, "CUDA_DEVICE_MAX_CONNECTIONS": "8", **(env or {})}
        prefixes = [[str(self.args.fabric_tool), "on", host, "--"] for host in HOSTS]
        job = Job(
            Transport(name, full), self.out, 120, prefixes=prefixes, rank_module=self.args.rank
        )
        if not any(line["kind"] == "versions" for line in self.lines):
            self.note({"kind": "versions", **job.versions, "machine": platform.platform()})
        return job

    def learn(self, steps: int) -> None:
        """The fault-free truth of all work, over NCCL's sockets."""
        with self.job(sockets(), "truth") as job:
            for work in WORKS:
                rounds = steps if work == "ddp" else 40
                outcome = fault_cases.run(job, self.watch, work, None, seconds=120, most=rounds)
                if outcome.problem:
                    raise JobError(outcome.problem)
                self.truth[work] = outcome.answers
                self.note({"kind": "truth", "work": work, "answers": outcome.answers})

    def record(
        self, kind: str, run: str, work: str, outcome: Outcome, checks: dict[str, str]
    ) -> None:
        """The case's line, with its rounds and the ports' bytes over time."""
        zero = outcome.begun_s
        names = sorted(outcome.samples[0].moved) if outcome.samples else []
        self.note(
            {
                "kind": kind,
                "run": run,
                "work": work,
                "checks": checks,
                "problem": outcome.problem,
                "error": outcome.error,
                "exits": outcome.exits,
                "rounds_done": outcome.answers[0]["rounds"] if outcome.answers else None,
                "median_ms": round(outcome.median_ms(), 3),
                "longest_ms": round(outcome.gap_ms(), 3),
                "faults": [[round(at - zero, 3), words] for at, words in outcome.faults],
                "episodes": outcome.said.episodes,
                "recoveries": outcome.said.recoveries,
                "back": outcome.said.back,
                "given_up": outcome.said.given_up,
                "warnings": outcome.said.warnings[:20],
                "fabric": dict(outcome.events),
                "rounds": [[round(t - zero, 4), round(s * 1e3, 3)] for t, s in outcome.rounds],
                "ports": names,
                "moved": [
                    [round(s.time_s - zero, 3), *(s.moved[name] for name in names)]
                    for s in outcome.samples
                ],
            }
        )

    def matrix(self, plugin: pathlib.Path, works: Iterable[str], faults: Iterable[str]) -> None:
        """Every fault during every work; one job goes through a fault's cases while it lives."""
        for fault in FAULTS:
            if fault.name not in faults:
                continue
            job: Optional[Job] = None
            try:
                for index, work in enumerate(works):
                    if self.left_s() < fault.seconds + 25:
                        self.check(f"{fault.name} during {work}", {"run": "no time left"})
                        continue
                    job = self._case(job, plugin, fault, work, HOSTS[index % len(HOSTS)])
            finally:
                if job is not None:
                    self._end(job, fault.name)

    def _case(
        self, job: Optional[Job], plugin: pathlib.Path, fault: Fault, work: str, host: str
    ) -> Optional[Job]:
        name = f"{fault.name}.{work}{'.fused' if self.args.fused else ''}"
        try:
            job = job or self.job(
                railhop(plugin, DEVICES, self.args.fused),
                name,
                {**MATRIX_ENV, **dict(self.args.env)},
            )
        except JobError as error:
            self.check(f"{fault.name} during {work}", {"starts": str(error)})
            return None
        most = len(self.truth[work][0]["losses"]) if work == "ddp" else 1_000_000
        outcome = fault_cases.run(
            job, self.watch, work, fault, seconds=fault.seconds, host=host, most=most
        )
        checks = fault_cases.judge(outcome, fault, self.truth[work])
        what = (
            f"{fault.name} on {host} during {work} ({outcome.median_ms():.1f} ms a round, longest "
            f"{outcome.gap_ms():.0f} ms, {len(outcome.said.episodes)} episodes)"
        )
        self.check(what, checks)
        self.record("case", fault.name, work, outcome=outcome, checks=checks)
        if outcome.problem:
            job.abort()
            return None
        if fault.sign == "device_removed":  # what has lost a NIC for good cannot lose it again
            self._end(job, name)
            return None
        return job

    def _end(self, job: Job, name: str) -> None:
        self.watch.heal()
        job.close()
        good = job.exits() == [0, 0]
        self.check(f"{name}: both ranks end well", {"status": "" if good else str(job.exits())})

    def claim(self, plugin: pathlib.Path, work: str) -> None:
        """The three runs: without the fault, with it without Railhop, with it with Railhop."""
        off = {"RAILHOP_FAILOVER": "0"}
        runs: list[tuple[str, Transport, dict[str, str], Optional[Fault]]] = [
            ("Railhop, no fault", railhop(plugin, DEVICES), {}, None),
            ("NCCL's IB transport, no fault", nccl_ib(DEVICES), {}, None),
            ("NCCL's IB transport, the fault", nccl_ib(DEVICES), {}, CLAIM),
            ("Railhop with RAILHOP_FAILOVER=0, the fault", railhop(plugin, DEVICES), off, CLAIM),
            ("Railhop, the fault", railhop(plugin, DEVICES), {}, CLAIM),
        ]
        for index, (name, transport, env, fault) in enumerate(runs):
            if self.left_s() < 60:
                self.check(name, {"run": "no time left"})
                continue
            dies = fault is not None and not name.startswith("Railhop,")
            label = f"claim{index}-{work}"
            try:
                job = self.job(transport, label, {**CLAIM_ENV, **env})
            except JobError as error:
                self.check(name, {"starts": str(error)})
                continue
            most = len(self.truth[work][0].get("losses", [])) or 1_000_000
            outcome = fault_cases.run(
                job, self.watch, work, fault, seconds=CLAIM.seconds, most=most, patience_s=12
            )
            if fault is None or dies:
                checks = {} if dies else {"survives": outcome.problem}
                if dies:
                    checks["dies of the fault"] = "" if outcome.problem else "it survived"
                    checks["fault hit"] = fault_cases.hit(outcome, CLAIM)
                else:
                    checks["same bits"] = fault_cases.same_results(
                        outcome.answers, self.truth[work]
                    )
            else:
                checks = fault_cases.judge(outcome, CLAIM, self.truth[work])
            self.check(f"{work}: {name} ({outcome.median_ms():.1f} ms a round)", checks)
            self.record("claim", name, work, outcome=outcome, checks=checks)
            if outcome.problem:
                job.abort()
            else:
                self._end(job, name)


def main() -> int:
    """Parses, runs the parts within the budget, writes the pages."""
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("--plugin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=580, help="budget (580)")
    parser.add_argument("--parts", default="claim,matrix")
    parser.add_argument("--claim-works", default="ddp,all_reduce")
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--faults", default=",".join(fault.name for fault in FAULTS))
    parser.add_argument("--steps", type=int, default=1000, help="training steps of the truth")
    parser.add_argument("--fused", action="store_true", help="matrix: both NICs are one device")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=lambda word: tuple(word.split("=", 1)),
        help="matrix: a variable of Railhop's jobs",
    )
    parser.add_argument("--fabric-tool", type=pathlib.Path, default="dist/fabric/railhop-fabric")
    parser.add_argument("--rank", default="integration.gpu.rank", help="the ranks' program")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "faults.jsonl").write_text("")
    args.fabric_tool = args.fabric_tool.resolve()
    plugin = args.plugin.resolve()
    bench = Bench(args)
    bench.note(
        {"kind": "run", "date": datetime.date.today().isoformat(), "arguments": sys.argv[1:]}
    )
    try:
        bench.learn(args.steps)
        if "claim" in args.parts:
            for work in args.claim_works.split(","):
                bench.claim(plugin, work)
        if "matrix" in args.parts:
            bench.matrix(plugin, args.works.split(","), args.faults.split(","))
    finally:
        bench.watch.close()
        bench.note({"kind": "end", "checks": bench.checks, "wrong": bench.wrong})
        faults_page.write(bench.out)
    print(f"{bench.checks - bench.wrong} checks good, {bench.wrong} wrong", flush=True)
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
