"""`railhop stats`: counters and times."""

from __future__ import annotations

from typing import Any, Optional

import click
from rich.table import Table

from railhop.cli.common import cause_in, console, examples, json_option, print_json
from railhop.cli.select import choose_some, process_options
from railhop.cli.view import short_program
from railhop.report.units import milliseconds, size


def quantile(histogram: dict[str, Any], share: float) -> float:
    """The bound of the bucket that so great a share of all values does not exceed."""
    wanted = share * histogram["count"]
    passed = 0
    for index, count in enumerate(histogram["counts"]):
        passed += count
        if count and passed >= wanted:
            bounds = histogram["bounds"]
            top = bounds[index] if index < len(bounds) else histogram["max"]
            return float(min(top, histogram["max"]))
    return float(histogram["max"])


def _ports(stats: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("port")
    for head in (
        "sent",
        "received",
        "messages sent",
        "messages received",
        "sent again",
        "stalls",
        "faults",
    ):
        table.add_column(head, justify="right")
    for port in stats["ports"]:
        table.add_row(
            port["name"], size(port["sent_bytes"]), size(port["received_bytes"]),
            f"{port['sent_messages']:,}", f"{port['received_messages']:,}",
            size(port["resent_bytes"]), str(port["stalls"]), str(port["faults"]),
        )  # fmt: skip
    return table


def _times(stats: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("time to")
    for head in ("count", "half within", "99 % within", "longest"):
        table.add_column(head, justify="right")
    for one in stats["histograms"]:
        if one["count"]:
            values = (quantile(one, 0.5), quantile(one, 0.99), one["max"])
            table.add_row(one["name"], str(one["count"]), *(milliseconds(v / 1e6) for v in values))
    return table


def _faults(stats: dict[str, Any]) -> str:
    """Causes with their counts, in words."""
    found = stats["faults"]
    pairs = found.items() if isinstance(found, dict) else ((x["cause"], x["count"]) for x in found)
    return ", ".join(f"{cause_in(cause)} {count}" for cause, count in pairs) or "none"


@click.command(
    "stats",
    short_help="Counters: traffic, faults, times to recover.",
    epilog=examples(
        "railhop stats",
        "railhop stats --pid 4242 --json",
    ),
)
@process_options
@json_option
def COMMAND(  # noqa: N802
    *, pid: Optional[int], job: Optional[str], path: Optional[str], as_json: bool
) -> None:
    """Counters of the jobs on this node: traffic of each port, faults by cause, times to recover.

    All are of the process's life and never go back. "sent" counts what was handed to the NIC, so
    "sent again" is a part of it. The times: from the last sign of life to the decision (detect),
    until both ends agree (agree), until everything moves again (resume); and of a probe's answer.
    """
    found = [one.api.stats().to_dict() for one in choose_some(pid, job, path)]
    if as_json:
        print_json(found)
        return
    out = console()
    for stats in found:
        process = stats["process"]
        head = f"process {process['pid']} on {process['host']}  {short_program(process['program'])}"
        out.print(head, style="bold", markup=False)
        out.print(_ports(stats))
        out.print(
            f"episodes {stats['episodes_begun']}, recovered {stats['episodes_recovered']}, "
            f"connections given up {stats['gave_up']}, sent again {size(stats['bytes_resent'])}; "
            f"first signs: {_faults(stats)}"
        )
        if any(one["count"] for one in stats["histograms"]):
            out.print(_times(stats))
