"""Builds and runs the fuzz targets of cc/fuzz (tools/fuzz, and as part of tools/test).

A run begins with the kept inputs (testdata/fuzz/NAME). tools/fuzz goes on from those of its earlier
runs on this machine, which lie in the cache folder; so does every input that broke a property.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tools.lib import workspace

CORPORA = workspace.ROOT / "testdata/fuzz"
CI_SECONDS = 20
# The most that a target may hold, MiB, and that it may ask for at once; seconds for one input, on a
# machine that may be busy.
_MEMORY_MAX = 1024
_ALLOCATION_MAX = 256
_INPUT_SECONDS_MAX = 60
_LENGTH_MAX = 8192
# Exit status of a target that got SIGINT or SIGTERM.
_INTERRUPTED = 72
# New inputs that --minimize keeps of one target.
_KEPT_FILES_MAX = 24


@dataclasses.dataclass
class Outcome:
    """What came of one target. problem: empty, or what to do about it."""

    name: str
    seconds: float
    executions: int
    features: int
    edges: int
    inputs: int
    problem: str = ""


def names() -> list[str]:
    """The targets: each has a folder of kept inputs."""
    return sorted(path.name for path in CORPORA.iterdir() if path.is_dir())


def found_dir(name: str) -> pathlib.Path:
    """Where a target's findings stay: checkouts of CI come and go."""
    folder = workspace.cache_dir() / "fuzz" / name
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    return folder


def build(chosen: list[str]) -> dict[str, pathlib.Path] | None:
    """The program of each target; nothing if they do not build."""
    labels = [f"//cc/fuzz:{name}_fuzz" for name in chosen]
    if workspace.bazel_run("build", "--config=ci", "--config=fuzz", *labels) != 0:
        return None
    binaries = workspace.bazel_output("info", "--config=fuzz", "bazel-bin").strip()
    # A copy: a later build in another configuration may put something else there.
    programs = {}
    for name in chosen:
        kept = found_dir(name) / f"{name}_fuzz"
        kept.unlink(missing_ok=True)
        shutil.copy2(pathlib.Path(binaries) / f"cc/fuzz/{name}_fuzz", kept)
        programs[name] = kept
    return programs


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=1:handle_abort=1:quarantine_size_mb=32",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "ASAN_SYMBOLIZER_PATH": "/usr/bin/llvm-symbolizer-14",
    }


def _options(name: str) -> list[str]:
    dictionary = CORPORA / f"{name}.dict"
    return [
        f"-rss_limit_mb={_MEMORY_MAX}",
        f"-malloc_limit_mb={_ALLOCATION_MAX}",
        f"-timeout={_INPUT_SECONDS_MAX}",
        f"-report_slow_units={_INPUT_SECONDS_MAX}",
        f"-max_len={_LENGTH_MAX}",
        *([f"-dict={dictionary}"] if dictionary.exists() else []),
    ]


def parse_log(name: str, log: str) -> Outcome:
    """Reads what libFuzzer printed."""

    def last(pattern: str) -> int:
        found = re.findall(pattern, log, re.MULTILINE)
        return int(found[-1]) if found else 0

    outcome = Outcome(
        name,
        seconds=last(r"^Done \d+ runs in (\d+) second"),
        executions=last(r"^stat::number_of_executed_units:\s*(\d+)") or last(r"^#(\d+)\s"),
        features=last(r"\bft: (\d+)"),
        edges=last(r"\bcov: (\d+)"),
        inputs=last(r"\bcorp: (\d+)"),
    )
    broken = re.search(
        r"^(property does not hold: .*|SUMMARY: .*|.*runtime error: .*)$", log, re.MULTILINE
    )
    artifact = re.search(r"Test unit written to (\S*/(?:crash|leak|oom|timeout)-\S+)", log)
    if artifact:
        what = broken.group(1) if broken else "the process ended"
        path = artifact.group(1)
        outcome.problem = f"{what}; input {path}; repeat: tools/fuzz --repeat {path} {name}"
    return outcome


def run_target(name: str, program: pathlib.Path, seconds: int, corpus: pathlib.Path) -> Outcome:
    """Runs one target, which adds to `corpus`; its log stays beside its findings."""
    found = found_dir(name)
    done = subprocess.run(
        [
            program,
            *_options(name),
            f"-max_total_time={seconds}",
            f"-artifact_prefix={found}/",
            "-print_final_stats=1",
            corpus,
            CORPORA / name,
        ],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_environment(),
        cwd=found,
    )
    (found / "log").write_text(done.stdout, encoding="utf-8")
    outcome = parse_log(name, done.stdout)
    if done.returncode == _INTERRUPTED:
        outcome.problem = "a signal from outside ended it"
    if done.returncode != 0 and not outcome.problem:
        outcome.problem = f"ended with status {done.returncode}; log {found / 'log'}"
    if done.returncode == 0 and not outcome.executions:
        outcome.problem = f"nothing was executed; log {found / 'log'}"
    return outcome


def run(chosen: list[str], seconds: int, jobs: int, keep: bool) -> list[Outcome]:
    """Builds and runs these targets, several at a time. keep: inputs found are for later runs."""
    programs = build(chosen)
    if programs is None:
        return [Outcome(name, 0, 0, 0, 0, 0, "did not build") for name in chosen]
    with (
        tempfile.TemporaryDirectory() as thrown_away,
        concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool,
    ):
        started = []
        for name in chosen:
            corpus = found_dir(name) / "corpus" if keep else pathlib.Path(thrown_away) / name
            corpus.mkdir(exist_ok=True)
            started.append(pool.submit(run_target, name, programs[name], seconds, corpus))
        return [one.result() for one in started]


def repeat(name: str, path: str) -> int:
    """Gives a target one input, loudly."""
    programs = build([name])
    if programs is None:
        return 1
    return subprocess.run([programs[name], path], check=False, env=_environment()).returncode


def minimize(name: str) -> int:
    """Replaces the kept inputs by the fewest of all known ones that reach as much code."""
    programs = build([name])
    if programs is None:
        return 1
    kept = CORPORA / name
    with tempfile.TemporaryDirectory() as folder:
        options = ["-set_cover_merge=1", "-use_counters=0", f"-max_len={_LENGTH_MAX}"]
        folders: list[str | pathlib.Path] = [folder, kept, found_dir(name) / "corpus"]
        done = subprocess.run(
            [programs[name], *options, *folders],
            check=False,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode != 0:
            print(done.stdout.decode("utf-8", "replace")[-4000:], file=sys.stderr)
            return 1
        # In the order in which they were taken: what adds most comes first.
        new = sorted(pathlib.Path(folder).iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for old in kept.iterdir():
            # Those with a name of their own once broke something.
            if re.fullmatch(r"[0-9a-f]{40}", old.name):
                old.unlink()
        for path in new[:_KEPT_FILES_MAX]:
            shutil.copy(path, kept / path.name)
    print(f"{name}: {len(list(kept.iterdir()))} inputs are kept")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=CI_SECONDS, help="for each target (20)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (cores)")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each target")
    parser.add_argument("--repeat", metavar="FILE", help="give one target this input")
    parser.add_argument("--minimize", action="store_true", help="make the kept inputs anew")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())} (all)")
    args = parser.parse_args()
    for name in args.names:
        if name not in names():
            parser.error(f"no target '{name}' (allowed: {', '.join(names())})")
    if args.seconds < 1 or args.jobs < 1:
        parser.error("--seconds and --jobs are at least 1")
    if args.repeat:
        if len(args.names) != 1:
            parser.error("--repeat FILE wants one NAME")
        return repeat(args.names[0], str(pathlib.Path(args.repeat).resolve()))
    chosen = args.names or names()
    if args.minimize:
        return max(minimize(name) for name in chosen)

    outcomes = run(chosen, args.seconds, args.jobs, keep=True)
    if not args.json:
        print(f"{'target':<14} {'seconds':>7} {'executions':>11} {'features':>8} {'inputs':>6}")
    for one in outcomes:
        if args.json:
            print(json.dumps(dataclasses.asdict(one)))
        else:
            row = f"{one.name:<14} {one.seconds:>7} {one.executions:>11} {one.features:>8}"
            print(f"{row} {one.inputs:>6}")
    for one in outcomes:
        if one.problem:
            print(f"FAILED {one.name}: {one.problem}")
    return 1 if any(one.problem for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
