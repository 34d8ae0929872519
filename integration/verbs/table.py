"""Makes docs/reference/conformance.md: every case of the suite by fabric.

The table is made of what is declared (`*.expect`) and what there is (`verbs_conformance --list`).
The runs of the suite prove it: a declaration that is not true fails there, and so does a case that
nobody declared.

    bazel run //integration/verbs:table -- --write $PWD/docs/reference/conformance.md
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import fnmatch
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Case:
    """A case as `verbs_conformance --list` prints it."""

    name: str
    clause: str
    needs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Difference:
    """A line `differs` of an expectations file."""

    pattern: str
    clause: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Fabric:
    """What one expectations file declares."""

    name: str
    about: str
    unsupported: dict[str, str]
    differences: tuple[Difference, ...]

    def difference(self, case: Case) -> Difference | None:
        """The declared difference of a case, if there is one."""
        for entry in self.differences:
            if fnmatch.fnmatchcase(case.name, entry.pattern):
                return entry
        return None

    def outcome(self, case: Case) -> str:
        """`yes`, `no` or `differs`: the word of the case's cell."""
        if any(need in self.unsupported for need in case.needs):
            return "no"
        return "differs" if self.difference(case) else "yes"


def parse_cases(text: str) -> tuple[dict[str, str], list[Case]]:
    """Capability words with their meanings, and the cases."""
    listed = json.loads(text)
    words = {entry["word"]: entry["meaning"] for entry in listed["capabilities"]}
    cases = [Case(c["name"], c["clause"], tuple(c["needs"])) for c in listed["cases"]]
    return words, cases


def parse_fabric(name: str, text: str) -> Fabric:
    """Reads an expectations file, whose words the suite checks; `about` is its first comment."""
    unsupported: dict[str, str] = {}
    differences: list[Difference] = []
    about = ""
    for line in text.splitlines():
        if line.startswith("#"):
            about = about or line.lstrip("# ").strip()
            continue
        fields = [field.strip() for field in line.split("|")]
        if fields[0] == "unsupported":
            unsupported[fields[1]] = fields[2]
        elif fields[0] == "differs":
            differences.append(Difference(fields[1], fields[3], fields[4]))
    return Fabric(name, about, unsupported, tuple(differences))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _summary(fabrics: Sequence[Fabric], cases: Sequence[Case]) -> list[str]:
    lines = [_row("fabric", "supported", "declared unsupported", "different", "what it is")]
    lines.append(_row("---", "---:", "---:", "---:", "---"))
    for fabric in fabrics:
        counts = collections.Counter(fabric.outcome(case) for case in cases)
        numbers = [str(counts[word]) for word in ("yes", "no", "differs")]
        lines.append(_row(fabric.name, *numbers, fabric.about))
    return lines


def _declared(fabrics: Sequence[Fabric], words: dict[str, str]) -> list[str]:
    lines = [_row("fabric", "what it lacks", "reason"), _row("---", "---", "---")]
    for fabric in fabrics:
        for word, reason in fabric.unsupported.items():
            lines.append(_row(fabric.name, f"`{word}`: {words[word]}", reason))
    return lines


def _different(fabrics: Sequence[Fabric]) -> list[str]:
    lines = [_row("fabric", "case", "clause", "reason"), _row("---", "---", "---", "---")]
    for fabric in fabrics:
        for entry in fabric.differences:
            lines.append(_row(fabric.name, f"`{entry.pattern}`", entry.clause, entry.reason))
    return lines


def _all_cases(fabrics: Sequence[Fabric], cases: Sequence[Case]) -> list[str]:
    lines: list[str] = []
    subject = ""
    for case in cases:
        head, _, rest = case.name.partition(".")
        if head != subject:
            subject = head
            lines += ["", f"### {subject}", ""]
            lines.append(_row("case", *(fabric.name for fabric in fabrics), "clause"))
            lines.append(_row("---", *("---" for _ in fabrics), "---"))
        lines.append(_row(rest, *(fabric.outcome(case) for fabric in fabrics), case.clause))
    return lines


_INTRODUCTION = """# Verbs conformance

Made by `integration/verbs/table.py` from the suite's cases and what each fabric declares. Do not
edit it.

A case is one thing that programs may rely on. `yes`: the fabric is held to it. `no`: the fabric
declares that it lacks what the case needs; where a capability can be asked for, that is checked.
`differs`: the case is run and must fail in the way that is declared. Clauses are of the InfiniBand
specification, volume 1 (IBTA), or of rdma-core's man pages. Hardware and other fabrics get a column
with a file `NAME.expect` in `integration/verbs`.
"""


def render(words: dict[str, str], cases: Sequence[Case], fabrics: Sequence[Fabric]) -> str:
    """The page."""
    lines = [
        _INTRODUCTION,
        *_summary(fabrics, cases),
        "",
        "## Declared unsupported",
        "",
        *_declared(fabrics, words),
        "",
        "## Different",
        "",
        *_different(fabrics),
        "",
        "## All cases",
        *_all_cases(fabrics, cases),
        "",
    ]
    return "\n".join(lines)


def page(program: str, expect_files: Sequence[str]) -> str:
    """Runs `program --list` and renders the page for these files."""
    listed = subprocess.run([program, "--list"], check=True, stdout=subprocess.PIPE, text=True)
    words, cases = parse_cases(listed.stdout)
    fabrics = [
        parse_fabric(pathlib.Path(file).stem, pathlib.Path(file).read_text(encoding="utf-8"))
        for file in expect_files
    ]
    return render(words, cases, fabrics)


def main() -> int:
    """Prints the page, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--program", required=True, help="verbs_conformance")
    parser.add_argument("--expect", action="append", required=True, help="NAME.expect, in order")
    parser.add_argument("--write", help="file to write; standard output otherwise")
    args = parser.parse_args()
    text = page(args.program, args.expect)
    if args.write:
        pathlib.Path(args.write).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
