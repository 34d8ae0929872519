"""`railhop status`: ports, paths, connections and the last episodes, live."""

from __future__ import annotations

import time
from typing import Any, Optional

import click
from rich.console import Group, RenderableType

from railhop.cli import view
from railhop.cli.common import BAD, GOOD, console, examples, print_json
from railhop.cli.select import ENDED, choose, process_options

_NOBODY = (
    "No process with Railhop runs on this node. Start one with 'railhop run -- CMD', or see "
    "'railhop env'."
)


def _healths(pid: Optional[int], job: Optional[str], path: Optional[str]) -> list[dict[str, Any]]:
    """Of all; one that has just ended is left out unless it was named."""
    named = pid is not None or path is not None
    found = []
    for process in choose(pid, job, path):
        try:
            found.append(process.api.health().to_dict())
        except ENDED:
            if named:
                raise
    return found


def _picture(healths: list[dict[str, Any]]) -> RenderableType:
    if not healths:
        return _NOBODY
    return Group(*(part for health in healths for part in view.parts(health)))


def _good(healths: list[dict[str, Any]]) -> bool:
    return all(str(one["verdict"]) == "ok" for one in healths)


@click.command(
    "status",
    epilog=examples(
        "railhop status",
        "railhop status --once --pid 4242",
        "railhop status --check && echo all good",
        "railhop status --json | python3 -m json.tool",
    ),
)
@click.option("--once", is_flag=True, help="Show it once and end.")
@click.option("--check", is_flag=True, help="As --once; status 1 unless everything is ok.")
@click.option("--interval", type=click.FloatRange(0.1, 60), default=1.0, help="Seconds (1).")
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

    On a terminal it goes on until Ctrl-C; elsewhere it shows them once.
    """
    healths = _healths(pid, job, path)
    out = console()
    if as_json:
        print_json(healths)
    elif once or check or not out.is_terminal:
        out.print(_picture(healths))
    else:
        from rich.live import Live  # noqa: PLC0415

        with Live(_picture(healths), console=out, screen=True, auto_refresh=False) as live:
            try:
                while True:
                    time.sleep(interval)
                    live.update(_picture(_healths(pid, job, path)), refresh=True)
            except KeyboardInterrupt:
                return GOOD
    return GOOD if not check or _good(healths) else BAD
