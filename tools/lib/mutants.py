"""The mutant check of failover (tools/mutants): each rule taken out in turn, something goes red.

A mutant is a file in testdata/mutants: which rule it breaks, the edits (text to be found exactly
once, and what takes its place), and what is to catch it: test targets, then simulator runs. It is
applied to a scratch copy, built there and run until something goes red. First everything that is
to catch a mutant is run on the unchanged copy, where it must be green: a test that always fails
proves nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from tools.lib import test_events, workspace

FOLDER = "testdata/mutants"
RULES = 16
_FIELDS = ("rule", "what", "tests", "runs")


@dataclasses.dataclass(frozen=True)
class Edit:
    """`found` stands exactly once in the file at `path`, and is replaced by `put`."""

    path: str
    found: str
    put: str


@dataclasses.dataclass(frozen=True)
class Mutant:
    """tests: Bazel labels. runs: program labels with their arguments; status 0 is green."""

    name: str
    rule: int
    what: str
    tests: tuple[str, ...]
    runs: tuple[str, ...]
    edits: tuple[Edit, ...]


class MutantError(Exception):
    """A mutant file that cannot be used; the text names file, line and word."""


def parse(name: str, text: str) -> Mutant:
    """Reads one mutant file.

    `rule:`, `what:`, `tests:` and `runs:` (one program with its arguments each, may be repeated),
    then for each edit `=== path`, the text to be found, `--- becomes`, and what takes its place.
    Lines before the first edit that start with '#' are comments.
    """
    fields: dict[str, list[str]] = {field: [] for field in _FIELDS}
    edits: list[tuple[str, list[str], list[str]]] = []
    part: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("=== "):
            edits.append((line[4:].strip(), [], []))
            part = edits[-1][1]
        elif line == "--- becomes" and part is not None and part is edits[-1][1]:
            part = edits[-1][2]
        elif part is not None:
            part.append(line)
        elif line.strip() and not line.startswith("#"):
            field, colon, value = line.partition(":")
            if not colon or field not in _FIELDS:
                allowed = ", ".join(_FIELDS)
                raise MutantError(f"{name}:{number}: unknown field '{field}' (allowed: {allowed})")
            fields[field].append(value.strip())
    number_text = " ".join(fields["rule"])
    if not number_text.isdigit() or not 1 <= int(number_text) <= RULES:
        raise MutantError(f"{name}: rule '{number_text}' (allowed: 1 to {RULES})")
    tests = tuple(label for line in fields["tests"] for label in line.split())
    if not edits or not tests + tuple(fields["runs"]):
        raise MutantError(f"{name}: needs an edit, and tests or runs that are to catch it")
    whole = [Edit(path, "\n".join(found), "\n".join(put)) for path, found, put in edits]
    for edit in whole:
        if not edit.found.strip() or edit.found == edit.put:
            raise MutantError(f"{name}: {edit.path}: changes nothing")
    return Mutant(
        name, int(number_text), " ".join(fields["what"]), tests, tuple(fields["runs"]), tuple(whole)
    )


def load(root: pathlib.Path) -> list[Mutant]:
    """All mutants, by name."""
    files = sorted((root / FOLDER).glob("*.mutant"))
    return [parse(file.stem, file.read_text(encoding="utf-8")) for file in files]


def apply(mutant: Mutant, root: pathlib.Path) -> dict[str, str]:
    """The changed files, by path. Raises MutantError if an edit does not fit the code."""
    changed: dict[str, str] = {}
    for edit in mutant.edits:
        file = root / edit.path
        if edit.path not in changed and not file.is_file():
            raise MutantError(f"{mutant.name}: there is no {edit.path}")
        text = changed.get(edit.path) or file.read_text(encoding="utf-8")
        count = text.count(edit.found)
        if count != 1:
            first = edit.found.strip().splitlines()[0].strip()
            raise MutantError(
                f"{mutant.name}: {edit.path}: '{first}' is there {count} times, not once"
            )
        changed[edit.path] = text.replace(edit.found, edit.put)
    return changed


def check_tree(root: pathlib.Path) -> list[str]:
    """Complaints: mutants that do not fit the code, and rules without one."""
    complaints = []
    try:
        mutants = load(root)
    except MutantError as bad:
        return [str(bad)]
    for mutant in mutants:
        try:
            apply(mutant, root)
        except MutantError as bad:
            complaints.append(str(bad))
    for rule in range(1, RULES + 1):
        if all(mutant.rule != rule for mutant in mutants):
            complaints.append(f"{FOLDER}: no mutant for rule {rule}")
    return complaints


class Scratch:
    """A copy of the checkout whose files may be changed; kept, so that Bazel's builds are."""

    def __init__(self) -> None:
        self.root = workspace.cache_dir() / "mutants"
        self.root.mkdir(parents=True, exist_ok=True)

    def sync(self) -> None:
        """Makes it what the checkout is. Files that are the same keep their times."""
        wanted = set(workspace.tracked_files()) | {".bazelrc.local"}
        for name in wanted:
            source, target = workspace.ROOT / name, self.root / name
            data = source.read_bytes()
            if target.is_file() and not target.is_symlink() and target.read_bytes() == data:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            shutil.copymode(source, target)
        for file in [path for path in self.root.rglob("*") if path.is_file()]:
            name = str(file.relative_to(self.root))
            if name not in wanted and not name.startswith("bazel-"):
                file.unlink()
        for name in (".venv", "node_modules"):
            link = self.root / name
            if not link.is_symlink() and (workspace.ROOT / name).exists():
                link.symlink_to((workspace.ROOT / name).resolve())

    def bazel(self, command: str, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bazel", command, *args],
            cwd=self.root,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def red_test(self, tests: tuple[str, ...]) -> tuple[str, str]:
        """(what went red, why it could not be run); both empty if all is green."""
        with tempfile.TemporaryDirectory() as folder:
            events = pathlib.Path(folder) / "events.json"
            done = self.bazel(
                "test",
                "--config=ci",
                "--nokeep_going",
                "--notest_keep_going",
                "--test_output=summary",
                f"--build_event_json_file={events}",
                "--",
                *tests,
            )
            lines = events.read_text(encoding="utf-8").splitlines() if events.exists() else []
            found = test_events.outcomes(lines)
        if done.returncode == 0:
            return "", ""
        if done.returncode != 3:
            return "", "\n".join(done.stdout.splitlines()[-30:])
        red = []
        for outcome in found:
            names = [name for name, reason in outcome.cases.failed if "no test.xml" not in reason]
            if outcome.cases.failed and _was_run(outcome):
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                case = f" {names[0]}{more}" if names and names[0] else ""
                red.append(f"{outcome.label}{case}")
        return "; ".join(red) or "a test that wrote nothing", ""

    def red_run(self, run: str) -> tuple[str, str]:
        """As red_test, for a program with its arguments."""
        label, *args = run.split()
        built = self.bazel("build", "--config=ci", label)
        if built.returncode != 0:
            return "", "\n".join(built.stdout.splitlines()[-30:])
        program = self.root / "bazel-bin" / label.removeprefix("//").replace(":", "/")
        done = subprocess.run(
            [program, *args],
            cwd=self.root,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode == 0:
            return "", ""
        signs = [line.strip() for line in done.stdout.splitlines() if "!!" in line]
        sign = f": {signs[0].removeprefix('!!').strip()[:120]}" if signs else ""
        return f"{run}{sign}", ""

    def red(self, tests: tuple[str, ...], runs: tuple[str, ...]) -> tuple[str, str]:
        """The first of these that goes red."""
        if tests:
            red, broken = self.red_test(tests)
            if red or broken:
                return red, broken
        for run in runs:
            red, broken = self.red_run(run)
            if red or broken:
                return red, broken
        return "", ""

    def mutate(self, changed: dict[str, str]) -> None:
        for path, text in changed.items():
            (self.root / path).write_text(text, encoding="utf-8")


def _was_run(outcome: test_events.TargetOutcome) -> bool:
    """Not one that was left out because another had failed before."""
    reasons = [reason for _, reason in outcome.cases.failed]
    return not any("was not run" in reason for reason in reasons)


@dataclasses.dataclass
class Row:
    """What came of one mutant; caught is empty if it survived."""

    mutant: Mutant
    caught: str
    seconds: float


def markdown(rows: list[Row], commit: str) -> str:
    """The table as a page of docs/results."""
    caught = sum(1 for row in rows if row.caught)
    rules = len({row.mutant.rule for row in rows if row.caught})
    lines = [
        f"# Mutants of failover, {datetime.date.today().isoformat()}",
        "",
        f"`tools/mutants` at commit {commit}: {caught} of {len(rows)} mutants caught, for "
        f"{rules} of {RULES} rules. Each takes a rule of `../failover-rules.md` out of",
        "the code, or weakens it; the mutants are in `testdata/mutants`.",
        "",
        "| rule | mutant | caught by | seconds |",
        "| --- | --- | --- | --- |",
    ]
    for row in rows:
        what = f"{row.mutant.what} (`{row.mutant.name}`)"
        sign = row.caught.replace("|", "\\|") or "**survives**"
        lines.append(f"| {row.mutant.rule} | {what} | {sign} | {row.seconds:.0f} |")
    return "\n".join(lines) + "\n"


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=workspace.ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/mutants", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only whether they fit the code")
    parser.add_argument("--write", metavar="FILE", help="also as Markdown")
    parser.add_argument("--no-base", action="store_true", help="skip the run without a mutant")
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginnings of names (all)")
    args = parser.parse_args()

    complaints = check_tree(workspace.ROOT)
    if args.check or (complaints and not args.names):
        print(*complaints, sep="\n")
        return 1 if complaints else 0
    every = load(workspace.ROOT)
    chosen = [m for m in every if not args.names or m.name.startswith(tuple(args.names))]
    if not chosen:
        parser.error(f"no mutant begins so (there are: {', '.join(m.name for m in every)})")

    scratch = Scratch()
    scratch.sync()
    if not args.no_base:
        workspace.say("without a mutant: all of these tests must pass")
        tests = tuple(sorted({test for mutant in chosen for test in mutant.tests}))
        runs = tuple(sorted({run for mutant in chosen for run in mutant.runs}))
        red, broken = scratch.red(tests, runs)
        if red or broken:
            print(f"red without any mutant: {red or broken}")
            return 1
    rows: list[Row] = []
    broken_names = []
    for mutant in chosen:
        workspace.say(f"{mutant.name} (rule {mutant.rule}): {mutant.what}")
        start = time.monotonic()
        scratch.mutate(apply(mutant, workspace.ROOT))
        red, broken = scratch.red(mutant.tests, mutant.runs)
        scratch.sync()
        if broken:
            print(f"{mutant.name} could not be built or run:\n{broken}")
            broken_names.append(mutant.name)
        rows.append(Row(mutant, red, time.monotonic() - start))
        verdict = f"caught by {red}" if red else "BROKEN" if broken else "SURVIVES"
        print(f"rule {mutant.rule:>2}  {mutant.name:<28} {verdict}", flush=True)
    scratch.bazel("shutdown")

    if args.write:
        page = pathlib.Path(args.write)
        page.write_text(markdown(rows, _commit()), encoding="utf-8")
    caught = sum(1 for row in rows if row.caught)
    print(f"{caught} of {len(rows)} caught")
    return 0 if caught == len(rows) and not broken_names else 1


if __name__ == "__main__":
    sys.exit(main())
