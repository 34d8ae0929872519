"""Real NCCL over Railhop, over NCCL's own IB transport and over sockets: results and speed.

    dist/fabric/railhop-fabric run -- python3 -m integration.gpu.check --plugin SO --out FOLDER

For a machine with one or two GPUs and PyTorch; no RDMA hardware is needed, since both transports
run over the software fabric that this is started in. Writes FOLDER/results.json and results.md.
Status 0 only if every result was equal bit by bit to that over sockets and every check held.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import platform
import statistics
import sys
import time
from typing import Any

from integration.gpu import figures
from integration.gpu.jobs import Job, JobError, Transport, nccl_ib, railhop, sockets

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv", "all_to_all")
SIZES = (8, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20, 256 << 20, 1 << 30)
# Sizes of the paired runs, and how many pairs of how many rounds.
PAIR_SIZES = (8, 16 << 10, 256 << 10, 4 << 20, 64 << 20)
PAIRS = 30


class Report:
    """What was found, as it comes."""

    def __init__(self, folder: pathlib.Path, budget_s: float) -> None:
        self.folder = folder
        self.started = time.monotonic()
        self.budget_s = budget_s
        self.results: dict[str, Any] = {
            "checks": [],
            "collectives": [],
            "pairs": [],
            "training": [],
        }

    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self.budget_s - (time.monotonic() - self.started)

    def check(self, name: str, good: bool, detail: str = "") -> None:
        """Notes one thing that must hold."""
        self.results["checks"].append({"name": name, "good": good, "detail": detail})
        mark = "ok" if good else "WRONG"
        print(f"[{time.monotonic() - self.started:5.0f} s] {mark}: {name} {detail}", flush=True)

    def write(self) -> None:
        """Leaves results.json and results.md."""
        self.results["date"] = datetime.date.today().isoformat()
        self.results["machine"] = platform.platform()
        self.results["seconds"] = round(time.monotonic() - self.started)
        (self.folder / "results.json").write_text(json.dumps(self.results, indent=1))
        (self.folder / "results.md").write_text(markdown(self.results))


def size_text(size: int) -> str:
    """1048576 -> "1 MiB"."""
    for unit, step in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= step:
            return f"{size // step} {unit}"
    return f"{size} B"


def markdown(results: dict[str, Any]) -> str:
    """The tables of a results page."""
    lines = ["| check | |", "| --- | --- |"]
    lines += [
        f"| {c['name']} | {'yes' if c['good'] else 'NO'} {c['detail']} |" for c in results["checks"]
    ]
    lines += [
        "",
        "| transport | collective | size | bandwidth, GB/s |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {r['transport']} | {r['collective']} | {size_text(r['bytes'])} | {r['gbps']:.2f} |"
        for r in results["collectives"]
        if r["bytes"] >= 4 << 20
    ]
    lines += ["", "| pairs | size | NCCL's IB, us | Railhop, us | ratio (95 %) |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for p in results["pairs"]:
        span = f"{p['ratio']:.3f} ({p['low']:.3f} to {p['high']:.3f})"
        name = f"{p['pairs']} x {p['shape']}"
        times = f"{p['theirs_us']:.0f} | {p['ours_us']:.0f}"
        lines.append(f"| {name} | {size_text(p['bytes'])} | {times} | {span} |")
    return "\n".join(lines) + "\n"


def sweep(report: Report, transport: Transport, truth: dict[str, list[str]], largest: int) -> None:
    """Every collective at every size; digests are compared with `truth`, or become it."""
    first = transport.name == "sockets"
    wrong = []
    try:
        with Job(transport, report.folder) as job:
            report.results.setdefault("versions", job.versions)
            for name in COLLECTIVES:
                for size in (s for s in SIZES if s <= largest):
                    rounds = 5 if size <= 1 << 20 else 2
                    answers = job.do("collective", name=name, bytes=size, rounds=rounds)
                    seconds = statistics.median(
                        max(a["seconds"][i] for a in answers) for i in range(rounds)
                    )
                    digests = [a["digest"] for a in answers]
                    if first:
                        truth[f"{name} {size}"] = digests
                    elif truth.get(f"{name} {size}") != digests:
                        wrong.append(f"{name} of {size_text(size)}")
                    row = {"transport": transport.name, "collective": name, "bytes": size}
                    report.results["collectives"].append({**row, "gbps": size / seconds / 1e9})
            answers = job.do("groups", bytes=4 << 20)
            if first:
                truth["groups"] = [a["digest"] for a in answers]
            elif truth["groups"] != [a["digest"] for a in answers]:
                wrong.append("several communicators")
            if not first:
                network = "Railhop" if transport.name.startswith("railhop") else "IB"
                used = f"Using network {network}" in job.log()
                report.check(f"{transport.name}: NCCL says it uses {network}", used)
    except JobError as error:
        report.check(f"{transport.name}: runs", False, str(error))
        return
    report.check(f"{transport.name}: results equal to sockets", not wrong, ", ".join(wrong))


def training(report: Report, transports: list[Transport], steps: int) -> None:
    """DDP and FSDP loops; the losses must equal those of the first transport to the last bit."""
    truth: dict[str, list[str]] = {}
    for transport in transports:
        try:
            with Job(transport, report.folder) as job:
                for kind in ("ddp", "fsdp"):
                    answers = job.do("train", kind=kind, steps=steps, timeout_s=180)
                    losses = [answer["losses"] for answer in answers]
                    step_ms = statistics.median(answers[0]["seconds"]) * 1e3
                    row = {"transport": transport.name, "kind": kind, "step_ms": step_ms}
                    row["losses"] = [float.fromhex(loss) for loss in losses[0]]
                    report.results["training"].append(row)
                    if kind not in truth:
                        truth[kind] = losses
                        fell = row["losses"][-1] < row["losses"][0]
                        report.check(
                            f"{transport.name}: {kind} learns", fell, f"{step_ms:.0f} ms a step"
                        )
                    else:
                        report.check(
                            f"{transport.name}: {kind} losses equal to {transports[0].name}",
                            truth[kind] == losses,
                            f"{step_ms:.0f} ms a step",
                        )
        except JobError as error:
            report.check(f"{transport.name}: trains", False, str(error))


def pairs(report: Report, ours: Transport, theirs: Transport, shape: str, reserve_s: float) -> None:
    """Short interleaved runs of both; the ratio of each size with its interval."""
    try:
        with Job(ours, report.folder) as job_a, Job(theirs, report.folder) as job_b:
            for size in PAIR_SIZES:
                rounds = 20 if size <= 16 << 10 else 8 if size <= 4 << 20 else 2
                times: tuple[list[float], list[float]] = ([], [])
                for pair in range(PAIRS):
                    if report.left_s() < reserve_s:
                        break
                    order = (0, 1) if pair % 2 == 0 else (1, 0)
                    for which in order:
                        job = (job_a, job_b)[which]
                        answers = job.do("collective", name="all_reduce", bytes=size, rounds=rounds)
                        slower = [max(a["seconds"][i] for a in answers) for i in range(rounds)]
                        times[which].append(statistics.median(slower))
                if len(times[1]) < 5 or len(times[0]) != len(times[1]):
                    report.check(f"pairs of {size_text(size)}", False, "no time left")
                    return
                ratio, low, high = figures.ratio_interval(times[0], times[1])
                row = {"shape": shape, "bytes": size, "pairs": len(times[0])}
                row |= {"ours_us": statistics.median(times[0]) * 1e6}
                row |= {"theirs_us": statistics.median(times[1]) * 1e6}
                row |= {"ratio": ratio, "low": low, "high": high}
                report.results["pairs"].append(row)
                good = high >= 1.0
                text = f"{ratio:.3f} ({low:.3f} to {high:.3f})"
                report.check(f"all-reduce of {size_text(size)} is no slower, {shape}", good, text)
    except JobError as error:
        report.check("paired runs", False, str(error))


def behaviour(report: Report) -> None:
    """A plugin that cannot load ends the job at its start; `none` gives NCCL its own transport."""
    broken = Transport("broken", {"NCCL_NET": "Railhop", "NCCL_NET_PLUGIN": "/nonexistent/libx.so"})
    try:
        with Job(broken, report.folder, start_s=60):
            report.check("a plugin that cannot load ends the job at its start", False)
    except JobError:
        report.check("a plugin that cannot load ends the job at its start", True)
    back = Transport("rolled-back", {**nccl_ib().env, "NCCL_NET": "", "NCCL_NET_PLUGIN": "none"})
    del back.env["NCCL_NET"]
    name, detail, good = "NCCL_NET_PLUGIN=none is back on NCCL's IB", "", False
    try:
        with Job(back, report.folder) as job:
            job.do("collective", name="all_reduce", bytes=1 << 20, rounds=1)
            good = "Using network IB" in job.log()
    except JobError as error:
        detail = str(error)
    report.check(name, good, detail)


def main() -> int:
    """Parses, runs all parts within the budget, writes the report."""
    parser = argparse.ArgumentParser(prog="check", description=__doc__)
    parser.add_argument(
        "--plugin", type=pathlib.Path, help="libnccl-net-railhop.so; without: only (a), (b)"
    )
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=480, help="budget (480)")
    parser.add_argument("--largest", type=int, default=1 << 30, help="bytes of the largest message")
    parser.add_argument("--steps", type=int, default=20, help="training steps")
    parser.add_argument("--parts", default="sweep,training,pairs,behaviour")
    parser.add_argument("--shapes", default="1,2,4,2f,4f", help="devices; f: fused (all)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    report = Report(args.out, args.seconds)
    parts = args.parts.split(",")
    shapes = [(int(word.rstrip("f")), word.endswith("f")) for word in args.shapes.split(",")]
    truth: dict[str, list[str]] = {}
    plugin = args.plugin.resolve() if args.plugin else None
    try:
        if "sweep" in parts:
            sweep(report, sockets(), truth, args.largest)
            for count, fused in shapes:
                if plugin is not None and report.left_s() > 60:
                    sweep(report, railhop(plugin, count, fused), truth, args.largest)
            for count, fused in shapes:
                if report.left_s() > 60:
                    sweep(report, nccl_ib(count, fused), truth, args.largest)
        if "training" in parts:
            over = [sockets(), nccl_ib(2)] + ([railhop(plugin, 2)] if plugin is not None else [])
            training(report, over, args.steps)
        if "behaviour" in parts and plugin is not None:
            behaviour(report)
        if "pairs" in parts and plugin is not None:
            pairs(report, railhop(plugin, 1), nccl_ib(1), "1 device", reserve_s=10)
    finally:
        report.write()
    wrong = [check for check in report.results["checks"] if not check["good"]]
    print(
        f"{len(report.results['checks']) - len(wrong)} checks good, {len(wrong)} wrong", flush=True
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
