"""Runs every test that CI runs and counts the test cases (tools/test)."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from tools.lib import fuzz, junit, test_events, workspace
from tools.lib.products import PRODUCTS

# Bazel's exit statuses that leave the tests' own outcomes to be read: all passed, some failed.
_JUDGED_BY_TESTS = (0, 3)
# Of tests that become another user.
_ROOT_TAG = "needs_root"
# Of why a test failed, in the list at the end.
_REASON_CHARACTERS_MAX = 200


@dataclasses.dataclass(frozen=True)
class Pass:
    """One run of `bazel test`."""

    name: str
    what: str
    options: tuple[str, ...]


PLAIN = Pass("plain", "every test", ())
SANITIZED = (
    Pass("asan", "C++ tests, address and undefined-behaviour sanitizers", ("--config=asan",)),
    Pass("tsan", "C++ tests, thread sanitizer", ("--config=tsan",)),
)


@dataclasses.dataclass
class Report:
    """What came of one pass: its outcomes and how long it took."""

    name: str
    outcomes: list[test_events.TargetOutcome]
    seconds: float

    def count(self, tier: str | None = None) -> tuple[int, int]:
        """(passed, failed) cases, of one tier or of all."""
        chosen = [o for o in self.outcomes if tier in (None, o.tier)]
        return (
            sum(len(o.cases.passed) for o in chosen),
            sum(len(o.cases.failed) for o in chosen),
        )


def _failed(label: str, tier: str, reason: str) -> test_events.TargetOutcome:
    cases = junit.Cases()
    cases.fail("", reason)
    return test_events.TargetOutcome(label, tier, cases)


def run_pass(one: Pass, targets: list[str], options: list[str]) -> Report:
    """Builds and runs the tests of one pass."""
    workspace.say(f"{one.name}: {one.what}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        events = pathlib.Path(folder) / "events.json"
        flags = ["--config=ci", *one.options, *options, f"--build_event_json_file={events}"]
        if one.options:
            flags.append("--test_lang_filters=cc")
        status = workspace.bazel_run("test", *flags, "--", *targets)
        lines = events.read_text(encoding="utf-8").splitlines() if events.exists() else []
        found = test_events.outcomes(lines)
    if not found:
        found.append(_failed("//...", "unit", "no test found"))
    if status not in _JUDGED_BY_TESTS and not any(o.cases.failed for o in found):
        found.append(_failed("//...", "unit", f"bazel ended with status {status}"))
    return Report(one.name, found, time.monotonic() - start)


def without_root(targets: list[str]) -> list[str]:
    """Bazel's options that leave out what only root can test, where this is an ordinary user."""
    if os.geteuid() == 0 or not has_tests(_ROOT_TAG, targets):
        return []
    workspace.say(
        f"tests with the tag {_ROOT_TAG} are left out: this is an ordinary user; CI runs them"
    )
    return [f"--test_tag_filters=-{_ROOT_TAG}"]


def has_tests(tag: str, targets: list[str]) -> bool:
    """Whether tests with this tag are among these targets."""
    query = f"attr(tags, {tag}, tests(set({' '.join(targets)})))"
    try:
        return bool(workspace.bazel_output("query", query).strip())
    except subprocess.CalledProcessError:
        return False  # The run itself will say what is wrong with them.


def prepare(
    tag: str, tool: str, variable: str, targets: list[str]
) -> tuple[list[str], list[Report]]:
    """Bazel's options for tests with this tag, which need what `tool` makes; a report if not.

    Made outside Bazel, which would make it again for every checkout: it takes minutes once. The
    tool prints where it is.
    """
    if not has_tests(tag, targets):
        return [], []
    workspace.say(tool)
    start = time.monotonic()
    command = tool.split()
    done = subprocess.run(
        [workspace.ROOT / command[0], *command[1:]], check=False, stdout=subprocess.PIPE, text=True
    )
    if done.returncode == 0:
        return [f"--test_env={variable}={done.stdout.strip()}"], []
    outcome = _failed(tool, tag, f"ended with status {done.returncode}")
    return [], [Report(tag, [outcome], time.monotonic() - start)]


def prepare_all(targets: list[str]) -> tuple[list[str], list[Report]]:
    """The guests' kernel, and the environment with torch."""
    options, reports = prepare("kernel", "tools/uml build", "RAILHOP_UML_KERNEL", targets)
    more, failed = prepare("torch", "tools/lib/torch_env.sh", "RAILHOP_TORCH_PYTHON", targets)
    return options + more, reports + failed


def run_check() -> Report:
    """Runs tools/dev/check; each of its checks is a test case."""
    workspace.say("check: format, lint, layers, clang")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "check.xml"
        status = subprocess.run(
            [workspace.ROOT / "tools/dev/check", f"--junit={file}"], check=False, stdout=sys.stderr
        ).returncode
        cases = junit.parse(file.read_text(encoding="utf-8") if file.exists() else "")
    if status != 0 and not cases.failed:
        cases.fail("", f"ended with status {status}")
    outcome = test_events.TargetOutcome("tools/dev/check", "check", cases)
    return Report("check", [outcome], time.monotonic() - start)


def _problem_of_build(line: str) -> str:
    """What is wrong with the line that tools/build --json prints; empty if nothing."""
    try:
        paths = json.loads(line)
    except json.JSONDecodeError as error:
        return f"no JSON object on one line: {error}"
    keys = [*(product.key for product in PRODUCTS), "wheels"]
    if missing := [key for key in keys if not paths.get(key)]:
        return f"not built: {', '.join(missing)}"
    listed = [one for key in keys for one in ([paths[key]] if key != "wheels" else paths[key])]
    if absent := [path for path in listed if not pathlib.Path(path).exists()]:
        return f"not there: {', '.join(absent)}"
    return ""


def _problem_of_demo(tool: pathlib.Path) -> str:
    """Runs the demo in its short form; what is wrong with it, empty if nothing."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([tool, "--short"], cwd=folder, check=False, stdout=sys.stderr)
        if done.returncode:
            return f"ended with status {done.returncode}"
        written = [one.name for one in pathlib.Path(folder).iterdir()]
        missing = [name for name in ("report.html", "report.png") if name not in written]
        return f"no {' and no '.join(missing)}" if missing else ""


def run_products() -> Report:
    """Builds what users get and runs the demo, as a newcomer would."""
    workspace.say("build: tools/build and tools/demo")
    start = time.monotonic()
    cases = junit.Cases()
    tools = workspace.ROOT / "tools"
    command = [str(tools / "build"), "--json"]
    built = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    reasons = {
        "tools/build": f"ended with status {built.returncode}"
        if built.returncode
        else _problem_of_build(built.stdout)
    }
    if not reasons["tools/build"]:
        reasons["tools/demo"] = _problem_of_demo(tools / "demo")
    for name, reason in reasons.items():
        if reason:
            cases.fail(name, reason)
        else:
            cases.passed.append(name)
    outcome = test_events.TargetOutcome("tools", "fabric", cases)
    return Report("build", [outcome], time.monotonic() - start)


def run_fuzz() -> Report:
    """Runs every fuzz target for a short time; each is a test case."""
    workspace.say(f"fuzz: each target for {fuzz.CI_SECONDS} seconds")
    start = time.monotonic()
    cases = junit.Cases()
    for one in fuzz.run(fuzz.names(), fuzz.CI_SECONDS, os.cpu_count() or 1, keep=False):
        if one.problem:
            cases.fail(one.name, one.problem)
        else:
            cases.passed.append(one.name)
    outcome = test_events.TargetOutcome("tools/fuzz", "fuzz", cases)
    return Report("fuzz", [outcome], time.monotonic() - start)


def trim_disk_cache(bytes_max: int = 20 * 2**30) -> None:
    """Empties Bazel's disk cache once it is larger: this Bazel never takes anything out of it."""
    folder = workspace.cache_dir() / "bazel-disk"
    used = subprocess.run(["du", "-sb", folder], check=False, stdout=subprocess.PIPE, text=True)
    if used.returncode == 0 and int(used.stdout.split()[0]) > bytes_max:
        workspace.say(f"emptying {folder}, which has grown to {used.stdout.split()[0]} bytes")
        shutil.rmtree(folder, ignore_errors=True)


def _shortened(reason: str) -> str:
    """One line that leaves room for the others; the whole is in the log above."""
    line = " ".join(reason.split())
    return line if len(line) <= _REASON_CHARACTERS_MAX else f"{line[:_REASON_CHARACTERS_MAX]}..."


def print_reports(reports: list[Report]) -> None:
    """Failures first, then one row for each pass and tier."""
    for report in reports:
        for outcome in report.outcomes:
            for name, reason in outcome.cases.failed:
                print(f"FAILED {report.name} {outcome.label} {name}: {_shortened(reason)}")
    print(f"{'pass':<6} {'tier':<7} {'passed':>7} {'failed':>7} {'seconds':>8}")
    for report in reports:
        tiers = collections.Counter(o.tier for o in report.outcomes)
        for index, tier in enumerate(sorted(tiers)):
            passed, failed = report.count(tier)
            seconds = f"{report.seconds:8.0f}" if index == 0 else ""
            print(f"{report.name:<6} {tier:<7} {passed:>7} {failed:>7} {seconds}".rstrip())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/test",
        description="Builds and runs every test that CI runs; ends with 'N passed, N failed'.",
    )
    parser.add_argument("--quick", action="store_true", help="only the plain tests")
    parser.add_argument("targets", nargs="*", default=["//..."], help="Bazel targets (all)")
    args = parser.parse_args()

    # CI always runs the plain tests. With a sanitizer, which takes several times as long, an
    # unchanged test's result may come from the cache.
    options = ["--nocache_test_results"] if workspace.in_ci() else []
    options += without_root(args.targets)
    prepared, reports = prepare_all(args.targets)
    reports.append(run_pass(PLAIN, args.targets, [*options, *prepared]))
    if not args.quick:
        reports.append(run_check())
        reports.append(run_products())
        reports.append(run_fuzz())
        reports += [run_pass(one, args.targets, []) for one in SANITIZED]
    if workspace.in_ci():
        workspace.bazel_run("shutdown")
        trim_disk_cache()

    print_reports(reports)
    passed = sum(report.count()[0] for report in reports)
    failed = sum(report.count()[1] for report in reports)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
