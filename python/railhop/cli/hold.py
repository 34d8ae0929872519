"""`railhop hold`: takes a port out of service."""

from __future__ import annotations

from typing import Any, Optional

import click

from railhop.cli.act import act
from railhop.cli.common import examples, json_option
from railhop.cli.select import Chosen, choose_all, process_options


@click.command(
    "hold",
    short_help="Take a port or a device out of service.",
    epilog=examples(
        "railhop hold mlx5_3",
        "railhop hold mlx5_3:1 --pid 4242",
    ),
)
@click.argument("target")
@process_options
@json_option
def COMMAND(  # noqa: N802
    *, target: str, pid: Optional[int], job: Optional[str], path: Optional[str], as_json: bool
) -> None:
    """Take a port or a device out of service until 'railhop release'.

    What is under way completes; nothing new goes over it, however good it is. Refused if it is
    the last path of a connection.
    """

    def do(process: Chosen) -> Any:
        return process.api.hold(target)

    def undo(process: Chosen) -> Any:
        return process.api.release(target)

    act(choose_all(pid, job, path), do, undo, as_json=as_json)
