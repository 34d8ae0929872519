"""The tables and the picture of a results page, from faults.jsonl.

    python3 -m integration.gpu.faults_page FOLDER      (again, from FOLDER/faults.jsonl)

Each line of the file is an object with `kind`: run, versions, truth, case (matrix), claim, end.
Times are seconds since the work's first round; `rounds` holds start and milliseconds of each round
of rank 0, `moved` the time and each port's bytes out and in so far.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from typing import Any

from integration.gpu import picture

_COLUMNS = (
    "fault",
    "during",
    "rounds",
    "median, ms",
    "longest, ms",
    "episodes",
    "recoveries",
    "slowest, ms",
    "sent again, MB",
    "back",
    "all checks",
)
_NAMES = {"ddp": "Training (DDP)", "all_reduce": "All-reduce of 16 MiB"}
_FOR = re.compile(r" for (\d+)(ms|s)")


def spans(line: dict[str, Any]) -> list[tuple[float, float]]:
    """From when to when each fault of a line was in force."""
    found = []
    for at, words in line["faults"]:
        length = _FOR.search(words)
        seconds = 1e9
        if length:
            seconds = float(length[1]) / (1e3 if length[2] == "ms" else 1)
        found.append((at, at + seconds))
    return found


def case_row(line: dict[str, Any]) -> str:
    """One line of the matrix' table."""
    bad = "; ".join(f"{what}: {why}" for what, why in line["checks"].items() if why)
    times = [recovery["ms"] for recovery in line["recoveries"]]
    again = sum(recovery["bytes"] for recovery in line["recoveries"]) / 1e6
    took = f"{max(times):.0f}" if times else ""
    cells = [
        line["run"],
        line["work"],
        str(line["rounds_done"] or "died"),
        f"{line['median_ms']:.1f}",
        f"{line['longest_ms']:.0f}",
        str(len(line["episodes"])),
        str(len(times)),
        took,
        f"{again:.1f}",
        str(len(line["back"])),
        "yes" if not bad else f"NO: {bad}",
    ]
    return f"| {' | '.join(cells)} |"


def claim_row(line: dict[str, Any]) -> str:
    """One line of the claim's table."""
    died = line["problem"].splitlines()
    ended = f"died: {line['error'] or died[0]}" if died else "to its end"
    done = len(line["rounds"])
    return (
        f"| {line['work']} | {line['run']} | {done} | {line['median_ms']:.1f} "
        f"| {line['longest_ms']:.0f} | {ended} |"
    )


def claim_run(line: dict[str, Any]) -> picture.Run:
    """A row of the picture."""
    note = f"{len(line['rounds'])} steps, median {line['median_ms']:.1f} ms"
    if line["problem"]:
        note += f"; {line['error']}; exit statuses {line['exits']} (None: hung until killed)"
    else:
        note += f", longest {line['longest_ms']:.0f} ms; results equal bit by bit"
    ports = [index for index, name in enumerate(line["ports"]) if name.startswith("alpha/")]
    return picture.Run(
        title=line["run"],
        note=note,
        rounds=line["rounds"],
        faults=spans(line),
        ports=[line["ports"][index] for index in ports],
        moved=[[sample[0], *(sample[1 + index] for index in ports)] for sample in line["moved"]],
        ended=not line["problem"],
    )


def write(folder: pathlib.Path) -> None:
    """faults.md and three-runs-WORK.svg beside faults.jsonl."""
    lines = [json.loads(text) for text in (folder / "faults.jsonl").read_text().splitlines()]
    claims = [line for line in lines if line["kind"] == "claim"]
    text = ["| work | run | steps | median, ms | longest, ms | |", "| --- " * 6 + "|"]
    text += [claim_row(line) for line in claims]
    text += ["", f"| {' | '.join(_COLUMNS)} |", "| --- " * len(_COLUMNS) + "|"]
    text += [case_row(line) for line in lines if line["kind"] == "case"]
    (folder / "faults.md").write_text("\n".join(text) + "\n")
    for work in sorted({line["work"] for line in claims}):
        runs = [claim_run(line) for line in claims if line["work"] == work]
        heading = (
            f"{_NAMES.get(work, work)} over two NICs for each rank; the port of one is down for 4 s"
        )
        (folder / f"three-runs-{work}.svg").write_text(picture.draw(heading, runs, 14))


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
