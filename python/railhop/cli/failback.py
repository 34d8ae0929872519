"""`railhop failback`: brings traffic back to the nearest ports."""

from __future__ import annotations

from typing import Any, Optional

import click

from railhop.cli.act import act
from railhop.cli.common import examples, json_option
from railhop.cli.select import Chosen, choose_ends, process_options


@click.command(
    "failback",
    short_help="Bring traffic back, without waiting for the hold-down.",
    epilog=examples(
        "railhop failback",
        "railhop failback mlx5_0",
    ),
)
@click.argument("target", required=False, default="")
@process_options
@json_option
def COMMAND(  # noqa: N802
    *, target: str, pid: Optional[int], job: Optional[str], path: Optional[str], as_json: bool
) -> None:
    """Bring traffic back to the nearest ports that answer, without waiting for the hold-down.

    TARGET is a port, a device or connection:ID; without it everything goes back. A port that
    was taken out of service by command comes back with 'railhop release'.
    """

    def do(process: Chosen) -> Any:
        return process.api.fail_back(target)

    act(choose_ends(target, pid, job, path), do, None, as_json=as_json)
