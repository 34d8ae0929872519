"""`railhop failover`: moves traffic off a port, device or connection."""

from __future__ import annotations

from typing import Any, Optional

import click

from railhop.cli.act import act
from railhop.cli.common import examples, json_option
from railhop.cli.select import Chosen, choose_ends, process_options


@click.command(
    "failover",
    epilog=examples(
        "railhop failover mlx5_0                 drain a NIC before work on it",
        "railhop failover mlx5_0:1 --mode now    a drill: as if it had failed",
        "railhop failover mlx5_0 --job 4711",
    ),
)
@click.argument("target")
@click.option(
    "--mode", type=click.Choice(["drain", "now"]), default="drain",
    help="drain: what is under way completes first (default). now: as if the port had failed.",
)  # fmt: skip
@process_options
@json_option
def COMMAND(  # noqa: N802
    *,
    target: str,
    mode: str,
    pid: Optional[int],
    job: Optional[str],
    path: Optional[str],
    as_json: bool,
) -> None:
    """Move traffic off TARGET; it goes on over other ports.

    TARGET is a port (mlx5_0:1), a device (mlx5_0: all its ports) or connection:ID ('railhop
    status' shows IDs). A port or device stays out of service until 'railhop release'. Without
    --pid or --job all processes of this node do it; if one refuses, such as for the last path,
    or does not answer, nothing changes. Of a connection only its sending end is asked.
    """

    def do(process: Chosen) -> Any:
        return process.api.force_failover(target, mode=mode)

    def undo(process: Chosen) -> Any:
        if not target.startswith("connection:"):
            process.api.release(target)
        return process.api.fail_back(target)

    act(choose_ends(target, pid, job, path), do, undo, as_json=as_json)
