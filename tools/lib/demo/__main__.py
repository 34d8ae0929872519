"""The three runs of tools/demo: no fault; a NIC lost without Railhop's failover; with it."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Optional

from railhop import drills, report, scenario
from railhop.drills.result import Result

HERE = pathlib.Path(__file__).resolve().parent
TOPOLOGY = "two-hosts-4nic"
LOST = "beta/mlx5_1"
# What each NIC moves at most: then the network takes most of a step, and a lost NIC shows.
NIC_RATE = "60Mb/s"
# Faster than the defaults, which are for jobs of days: the demo should not wait for a hold-down.
OPTIONS = {
    "RAILHOP_HOLD_DOWN": "500ms",
    "RAILHOP_PROBE_INTERVAL": "200ms",
    "NCCL_DEBUG": "WARN",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
# On GPUs: no way but the network, and ranks of one machine as two hosts.
GPU_OPTIONS = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NET_GDR_LEVEL": "LOC",
    "NCCL_IB_TIMEOUT": "14",
    # A job that has failed ends at once, without a minute for its traces.
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000",
}
_TORCH = """
import torch
assert tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 1)
import torch.distributed
assert torch.distributed.is_available()
print(torch.__version__, torch.cuda.device_count() if torch.cuda.is_available() else 0)
"""


@dataclasses.dataclass
class Program:
    """Which Python trains, and with what."""

    python: str
    arrays: str
    about: str


def find_program(wanted: str, torch_env: str) -> Program:
    """Torch where it is there, else NumPy. The package is built for this Python's version."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for python in [torch_env, shutil.which("python3") or ""]:
        if not python or wanted == "numpy":
            continue
        code = f"import sys; assert '%d.%d' % sys.version_info[:2] == '{version}'\n{_TORCH}"
        done = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True)
        if done.returncode:
            continue
        torch, gpus = done.stdout.split()
        # Both ranks on one GPU is what somebody has to want: they take turns there.
        if int(gpus) >= (1 if wanted == "nccl" else 2) and wanted in ("", "nccl"):
            count = "one GPU" if int(gpus) == 1 else "two GPUs"
            return Program(python, "nccl", f"PyTorch {torch} DDP on {count}, NCCL")
        if wanted in ("", "torch"):
            return Program(python, "torch", f"PyTorch {torch} DDP, CPU")
    if wanted == "nccl":
        raise SystemExit(
            f"demo: no Python {version} with a torch that sees a GPU; --with torch needs none"
        )
    if wanted == "torch":
        raise SystemExit(
            f"demo: no Python {version} with torch: tools/lib/torch_env.sh makes one with it"
        )
    return Program(sys.executable, "numpy", "data-parallel in NumPy (no torch found)")


class Progress:
    """A line that is written again on a terminal; else one for each thing that happens."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._terminal = sys.stderr.isatty()
        self._last = ""

    def __call__(self, seconds: float, total: float, text: str) -> None:
        if self._terminal:
            print(f"\r{self._name}  {seconds:5.1f} s  {text:<50.50}", end="", file=sys.stderr)
        elif text != self._last:
            print(f"{self._name}  {seconds:5.1f} s  {text}", file=sys.stderr, flush=True)
        self._last = text

    def end(self) -> None:
        if self._terminal:
            print("\r" + " " * 79, end="\r", file=sys.stderr)


class Demo:
    """The runs, and what they come to."""

    def __init__(self, program: Program, folder: pathlib.Path, short: bool) -> None:
        self._program = program
        self._folder = folder
        # 4 s of a lost NIC in the middle; all of it twice as fast in the short form.
        self._steps, self._period, self._scale = (60, 0.1, 0.5) if short else (120, 0.1, 1.0)

    def run(self, name: str, title: str, expects: str, options: dict[str, str]) -> Result:
        fault = ""
        if expects:
            at, lasts = 3 * self._scale, 4 * self._scale
            fault = f"{LOST} remove at {at:g}s for {lasts:g}s\nexpect {expects}\n"
        about = f"{title[0].upper()}{title[1:]}."
        what = scenario.parse(f"about {about}\n{fault}", "tools/demo", name=name.replace(" ", "-"))
        command = [
            self._program.python, str(HERE / "train.py"), "--arrays", self._program.arrays,
            "--steps", str(self._steps), "--period", str(self._period),
        ]  # fmt: skip
        log_path = self._folder / f"{name}.log"
        progress = Progress(name)
        with log_path.open("w", encoding="utf-8") as log:
            env = {**OPTIONS, **options}
            if self._program.arrays == "nccl":
                env.update(GPU_OPTIONS)
            workload = drills.Command(command, each_host=True, echo_fd=log.fileno(), extra=env)
            try:
                return drills.rehearse(
                    TOPOLOGY, what, workload, nic_rate=NIC_RATE, title=f"{name}: {title}",
                    progress=progress,
                )  # fmt: skip
            except Exception:
                print(log_path.read_text(encoding="utf-8")[-4000:], file=sys.stderr)
                raise
            finally:
                progress.end()

    def why(self, name: str) -> str:
        """What a rank of this run that died said, shortened."""
        text = (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        said = re.findall(r"\w+Error: .*", text)
        # Torch wraps it: the innermost one is of the transport.
        said = [re.sub(r".*(?=PeerError: )", "", one) for one in said]
        best = [one for one in said if "sending" in one or "receiving" in one] or said
        return best[0] if best else "it said nothing"


def _losses(result: Result) -> list[float]:
    return [float(one["loss"]) for one in result.steps]


def _slowest(result: Result) -> float:
    """In ms; the first steps are slow for reasons of their own."""
    return max((float(one["ms"]) for one in result.steps[3:]), default=0.0)


def describe(demo: Demo, results: Sequence[Result]) -> tuple[list[str], bool]:
    """A line for each run, and whether all went as claimed."""
    first, second, third = results
    lines, good = [], True
    losses = _losses(first)
    if first.verdict.survived and losses:
        lines.append(
            f"run 1: no fault: {len(losses)} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}, "
            f"slowest step {_slowest(first):.0f} ms"
        )
    else:
        good = False
        lines.append(f"run 1: FAILED: {demo.why('run 1')}")
    if second.verdict.survived:
        good = False
        lines.append("run 2: survived, and should not have: failover was off")
    else:
        after = second.seconds - second.happenings[0].at_s if second.happenings else 0.0
        lines.append(
            f"run 2: died {after:.1f} s after {LOST} was lost, at step {len(second.steps)} "
            f"of {len(losses)} ({demo.why('run 2')})"
        )
    same = _losses(third) == losses
    if third.verdict.survived and same:
        back = third.verdict.failback.after_ms
        failback = f"failback {back / 1e3:.1f} s after its return" if back else "no failback seen"
        lines.append(
            f"run 3: survived the loss of {LOST}: {len(losses)} steps, every loss equal to run 1's "
            f"to the last bit, slowest step {_slowest(third):.0f} ms, {failback}"
        )
        good = good and back is not None
    else:
        good = False
        what = "the losses differ from run 1's" if third.verdict.survived else demo.why("run 3")
        lines.append(f"run 3: FAILED: {what}")
    return lines, good


def write_report(results: list[Result], folder: pathlib.Path) -> list[str]:
    """What was written."""
    html = report.page(
        [report.run_of_drill(one.to_dict()) for one in results],
        title="A NIC is lost in the middle of a training",
    )
    (folder / "report.html").write_text(html, encoding="utf-8")
    written = ["report.html"]
    try:
        report.write_png(html, folder / "report.png")
        written.append("report.png")
    except report.ReportError as error:
        print(f"demo: no report.png: {error}", file=sys.stderr)
    return written


def main(arguments: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/demo", description=__doc__)
    parser.add_argument("--short", action="store_true", help="half as long, for tests")
    parser.add_argument("--with", dest="wanted", choices=("torch", "numpy", "nccl"), default="")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--torch-env", default="", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    program = find_program(args.wanted, args.torch_env)
    print(
        f"A small model is trained on two hosts with four NICs each, in software, at {NIC_RATE} a "
        f"NIC: {program.about}.\nThree runs of {'6' if args.short else '12'} s or more:\n",
        flush=True,
    )
    demo = Demo(program, args.folder, args.short)
    runs: list[tuple[str, str, str, dict[str, str]]] = [
        ("run 1", "no fault", "", {}),
        ("run 2", "a NIC is lost, failover off", "death", {"RAILHOP_FAILOVER": "0"}),
        ("run 3", "a NIC is lost, Railhop on", "failback", {}),
    ]
    results = [demo.run(*one) for one in runs]
    lines, good = describe(demo, results)
    print("\n".join(lines))
    written = write_report(results, pathlib.Path.cwd())
    print(f"\nSee {' and '.join(written)} in {pathlib.Path.cwd()}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
