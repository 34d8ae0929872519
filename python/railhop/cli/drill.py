"""`railhop drill`: a rehearsal of a failure, judged."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

import click

from railhop.cli import ending
from railhop.cli.common import (
    BAD,
    GOOD,
    INPUT,
    CliError,
    console,
    examples,
    json_option,
    not_over,
    print_json,
    topology_option,
    writable_folder,
)

if TYPE_CHECKING:
    from railhop.drills import Result
    from railhop.drills.rehearsal import Progress
    from railhop.drills.workload import Workload

# What a NIC of the built-in workload sends at most: little enough that a laptop keeps it up, so
# that the loss of one shows.
_NIC_RATE = "400Mb/s"
_WORKLOADS = ("streams", "all-reduce", "all-gather")


def _complete_scenarios(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from railhop import scenario  # noqa: PLC0415  only for completion

    return [name for name in scenario.names() if name.startswith(incomplete)]


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[Optional[Progress]]:
    """A bar on standard error if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich  # noqa: PLC0415

    bar = rich.Progress(
        rich.SpinnerColumn(), rich.TextColumn("drill"), rich.BarColumn(), rich.TimeElapsedColumn(),
        rich.TextColumn("{task.description}"), console=console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task("starting", total=None)

        def told(seconds: float, total: float, text: str) -> None:
            bar.update(task, completed=seconds, total=total or None, description=text)

        yield told


def _list(as_json: bool) -> int:
    from railhop import scenario  # noqa: PLC0415

    known = scenario.names()
    if as_json:
        print_json([one.to_dict() for one in known.values()])
        return GOOD
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for head in ("scenario", "what happens", "steps"):
        table.add_column(head)
    for name, one in known.items():
        steps = "; ".join(f"{step.text} at {step.at_s:g}s" for step in one.steps)
        table.add_row(name, one.about, steps)
    console().print(table)
    return GOOD


def _rate(value: Optional[float]) -> str:
    from railhop.report import units  # noqa: PLC0415

    return "-" if value is None else units.rate(value * 1e9)


def _show(result: Result) -> None:
    """For people."""
    from rich.markup import escape  # noqa: PLC0415

    from railhop.report.units import milliseconds  # noqa: PLC0415

    verdict = result.verdict
    out = console()
    word = "[green]passed[/green]" if verdict.passed else "[red]failed[/red]"
    if not verdict.usable:
        word = "[yellow]not usable[/yellow]"
    out.print(f"{escape(result.title)}: {word}", style="bold")
    for problem in verdict.problems:
        out.print(f"  [red]{escape(problem)}[/red]")
    for note in verdict.notes:
        out.print(f"  {escape(note)}")
    rows = [("survived", "yes" if verdict.survived else "no")]
    if verdict.wrong_bytes is not None:
        of = "" if result.messages is None else f" in {result.messages:,} messages"
        rows.append(("wrong bytes", f"{verdict.wrong_bytes}{of}"))
    elif not verdict.survived:
        rows.append(("wrong bytes", "-"))
    if verdict.gap_ms is None:
        rows.append(("longest gap", "-"))
    else:
        usual = verdict.gap_before_ms
        more = [f"without a fault {milliseconds(usual)}"] if usual is not None else []
        if verdict.gap_ms_max:
            more.append(f"allowed {milliseconds(verdict.gap_ms_max)}")
        told = f" ({', '.join(more)})" if more else ""
        rows.append(("longest gap", f"{milliseconds(verdict.gap_ms)}{told}"))
    rows.append(("bandwidth before", _rate(verdict.before_gb_per_s)))
    rows.append(("during", _rate(verdict.during_gb_per_s)))
    rows.append(("after", _rate(verdict.after_gb_per_s)))
    back = verdict.failback
    if back.seen and back.after_ms is not None:
        rows.append(("failback", f"{milliseconds(back.after_ms)} after the repair"))
    elif back.seen is False:
        rows.append(("failback", "none"))
    for what, value in rows:
        out.print(f"  {what:<18}{value}")


def _outputs(
    result: Result, save: Optional[str], report: Optional[str], png: Optional[str]
) -> None:
    if save:
        pathlib.Path(save).write_text(result.dump(), encoding="utf-8")
    if report or png:
        from railhop import report as pages  # noqa: PLC0415

        html = pages.page([pages.run_of_drill(result.to_dict())])
        if report:
            pathlib.Path(report).write_text(html, encoding="utf-8")
        if png:
            pages.write_png(html, pathlib.Path(png))


def _workload(
    kind: str, command: tuple[str, ...], each_host: bool, seconds: float, extra: dict[str, str]
) -> Workload:
    from railhop.drills import Command, Streams  # noqa: PLC0415

    if command:
        return Command(command, each_host=each_host, echo_fd=2, extra=extra)
    if kind == "streams":
        return Streams(environment=extra)
    from railhop.drills.collectives import Collectives  # noqa: PLC0415

    return Collectives(kind, seconds, extra=extra)


def _options(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise CliError(f"--env '{pair}': write NAME=VALUE, such as RAILHOP_FAILOVER=0")
        found[name] = value
    return found


@click.command(
    "drill",
    epilog=examples(
        "railhop drill --fabric two-hosts-4nic --scenario nic-down",
        "railhop drill --fabric two-hosts-4nic --scenario nic-down --json",
        "railhop drill --fabric two-hosts-4nic --scenario 'nic0 down at 3s' --report nic.html",
        "railhop drill --fabric two-hosts-4nic --scenario flap --each-host -- python train.py",
        "railhop drill --scenario 'failover nic0 at 30s for 20s' -- torchrun train.py",
        "railhop drill --fabric two-hosts-8nic --scenario black-hole --workload all-reduce",
        "railhop drill --list",
    ),
)
@topology_option("Over a fresh software fabric: a name or a file, such as two-hosts-4nic.")
@click.option(
    "--scenario", "words", metavar="SCENARIO", shell_complete=_complete_scenarios,
    help="A name (--list), a file, or words such as 'nic0 down at 3s for 5s'.",
)  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="List the named scenarios.")
@click.option(
    "--workload", type=click.Choice(_WORKLOADS), default="streams",
    help="Without CMD: streams (default), or a collective over all hosts, which needs NumPy.",
)  # fmt: skip
@click.option("--each-host", is_flag=True, help="CMD once for each host, as torchrun's ranks.")
@click.option(
    "--nic-rate", metavar="RATE",
    help=f"What each NIC sends at most, 'none' for no limit ({_NIC_RATE}; with CMD none).",
)  # fmt: skip
@click.option("--env", "pairs", multiple=True, metavar="NAME=VALUE", help="For the workload.")
@click.option("--seed", type=int, default=0, help="Of the fabric's chance.")
@click.option("--save", metavar="FILE", help="Everything seen, for 'railhop report'.")
@click.option("--report", metavar="FILE", help="The page, HTML.")
@click.option("--png", metavar="FILE", help="The page as a picture; needs Chromium.")
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
def COMMAND(  # noqa: N802
    *,
    topology: Optional[str],
    words: Optional[str],
    listing: bool,
    as_json: bool,
    command: tuple[str, ...],
    **options: Any,
) -> int:
    """Rehearse a link failure and judge what comes of it.

    Without CMD, streams run between the first two hosts and every byte is compared. With CMD
    that runs; it passes if it ends with status 0. CMD may write JSON lines to
    $RAILHOP_DRILL_LOG (docs/operating/drills.md). Without --fabric it is held on this machine's
    own NICs: CMD is needed, and the scenario consists of commands (failover, hold).

    Exit status: 0 passed; 1 judged bad (died, wrong bytes, gap too long, no failback); 2 bad
    input, the workload failed for its own reasons, or the machine was too busy to judge.
    """
    if listing:
        return _list(as_json)
    if not words:
        raise click.UsageError("no scenario; say --scenario nic-down, or --list for all of them")
    if options["each_host"] and not command:
        raise click.UsageError("--each-host is about CMD: write '-- CMD' behind it")
    files = {f"--{name}": options[name] for name in ("save", "report", "png")}
    not_over(files, [words, topology])
    for file in files.values():
        if file:
            writable_folder(file)
    from railhop import drills, scenario  # noqa: PLC0415  the fabric is a compiled module

    found = scenario.find(words)
    rate = options["nic_rate"] or ("none" if command or not topology else _NIC_RATE)
    workload = _workload(
        options["workload"],
        command,
        options["each_host"],
        found.lasts_s,
        _options(options["pairs"]),
    )
    with ending.in_order(), _progress(as_json) as progress:
        result = drills.rehearse(
            topology,
            found,
            workload,
            nic_rate=None if rate == "none" else rate,
            seed=options["seed"],
            progress=progress,
        )
    _outputs(result, options["save"], options["report"], options["png"])
    if as_json:
        print_json(result.line())
    else:
        _show(result)
    if not result.verdict.usable:
        return INPUT
    return GOOD if result.verdict.passed else BAD
