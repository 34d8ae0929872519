"""`railhop status`: ports, paths, connections and the last episodes, live."""

from __future__ import annotations

import sys
from typing import Any, Optional

import click
from rich.console import Group, RenderableType
from rich.text import Text

import railhop
from railhop.cli import live, view
from railhop.cli.common import BAD, GOOD, CliError, console, examples, print_json
from railhop.cli.select import ENDED, NOBODY, choose, introduced, process_options, silent

# Far more than any table takes.
_WIDTH_MAX = 2000
# For a process that is only named, to say who it is.
_INTRODUCTION_S = 0.2


def _healths(
    pid: Optional[int], job: Optional[str], path: Optional[str]
) -> tuple[list[dict[str, Any]], list[str], str]:
    """Of all, a line for each that does not answer, and one for the case that there is none.

    One that has just ended is left out unless it was named.
    """
    named = pid is not None or path is not None
    seen = choose(pid, job, path)
    found, hung = [], list(seen.hung)
    for process in seen.here:
        try:
            found.append(process.api.health().to_dict())
        except ENDED:
            if named:
                raise
        except railhop.NoAnswerError as error:
            hung.append(silent(process.pid, error))
    return found, hung, seen.nobody


def _picture(
    healths: list[dict[str, Any]],
    hung: list[str],
    nobody: str,
    width: Optional[int],
    here: dict[str, str],
) -> RenderableType:
    """Those that need somebody come first. here: instance -> name, of this node's processes."""
    if not healths and not hung:
        return Text(f"{nobody[0].upper()}{nobody[1:]}.")
    how = view.View(width, here)
    every = sorted(healths, key=lambda one: str(one["verdict"]) == "ok")
    parts = [part for health in every for part in view.parts(health, how)]
    return Group(*(Text(line, style="red") for line in hung), *parts)


def _names(healths: list[dict[str, Any]], chosen: bool) -> dict[str, str]:
    """Instance -> HOST:PID of this node's processes, whichever were chosen: they may be peers."""
    if not chosen:
        every = [health["process"] for health in healths]
        return {one["instance"]: f"{one['host']}:{one['pid']}" for one in every}
    return {one.instance: f"{one.host}:{one.pid}" for one in introduced(_INTRODUCTION_S)}


def _good(healths: list[dict[str, Any]], hung: list[str]) -> bool:
    # That nobody is there is not good either: a job that is to be watched has died or never came.
    return bool(healths) and not hung and all(str(one["verdict"]) == "ok" for one in healths)


@click.command(
    "status",
    short_help="Ports, paths, connections, episodes: a live view.",
    epilog=examples(
        "railhop status",
        "railhop status --once --pid 4242",
        "railhop status --check && echo all good",
        "railhop status --json | python3 -m json.tool",
    ),
)
@click.option("--once", is_flag=True, help="Show it once and end.")
@click.option(
    "--check", is_flag=True, help="As --once; status 1 unless a process is there and all is ok."
)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 60),
    default=1.0,
    help="From one look to the next (1).",
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON, once.")
@process_options
def COMMAND(  # noqa: N802
    *,
    once: bool,
    check: bool,
    interval: float,
    as_json: bool,
    pid: Optional[int],
    job: Optional[str],
    path: Optional[str],
) -> int:
    """Ports, paths, connections and the last episodes of the jobs on this node.

    On a terminal it goes on until q or Ctrl-C, with status 0, or until the process that --pid or
    --socket names has ended, with status 2; arrows, space and b scroll; columns for which it is too
    narrow are left out. Elsewhere it shows them once. A process that does not answer in time, such
    as a stopped one, is named. With --check the status is 1 as well if one does not answer, or if
    no process with Railhop is there.

    A peer is HOST:PID if it runs on this node; else HOST, or HOST/INSTANCE where several processes
    of that host are peers. A state "since start" has not changed since the process began.
    """
    try:
        healths, hung, nobody = _healths(pid, job, path)
    except railhop.NoAnswerError as error:
        if check:
            raise CliError(str(error), BAD) from None
        raise
    out = console()
    chosen = any(one is not None for one in (pid, job, path))
    if as_json:
        print_json(healths)
        for line in hung or ([nobody] if not healths and (check or nobody != NOBODY) else []):
            print(f"railhop: {line}", file=sys.stderr)
    elif once or check or not out.is_terminal:
        width = out.width if out.is_terminal else None
        # One line each, however wide: whoever reads a pipe can cut them himself.
        out.width = width or _WIDTH_MAX
        out.print(_picture(healths, hung, nobody, width, _names(healths, chosen)), soft_wrap=True)
    else:

        def look() -> live.Draw:
            seen = _healths(pid, job, path)
            here = _names(seen[0], chosen)
            return lambda width: _picture(*seen, width, here)

        live.show(look, out, interval)
    return GOOD if not check or _good(healths, hung) else BAD
