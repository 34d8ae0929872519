"""`railhop release`: lets a port into service again."""

from __future__ import annotations

from typing import Any, Optional

import click

from railhop.cli.act import act
from railhop.cli.common import examples, json_option
from railhop.cli.select import Chosen, choose_all, process_options


@click.command(
    "release",
    short_help="Let a port or a device into service again.",
    epilog=examples(
        "railhop release mlx5_3",
    ),
)
@click.argument("target")
@process_options
@json_option
def COMMAND(  # noqa: N802
    *, target: str, pid: Optional[int], job: Optional[str], path: Optional[str], as_json: bool
) -> None:
    """Let a port or a device into service again, after 'hold' or 'failover'.

    It is used as soon as it has answered probes for its hold-down; 'railhop failback' does not
    wait for that. Where no command holds it, the answer says so and the status is 0.
    """

    def do(process: Chosen) -> Any:
        return process.api.release(target)

    act(choose_all(pid, job, path), do, None, as_json=as_json)
