"""`railhop run`: a command with Railhop under it, over a software fabric when asked."""

from __future__ import annotations

import json
import os
import sys
from typing import Optional

import click

import railhop
from railhop import paths
from railhop.cli.common import examples, json_option, topology_option
from railhop.cli.launch import become
from railhop.exports import unfused


@click.command(
    "run",
    context_settings={"ignore_unknown_options": False},
    epilog=examples(
        "railhop run -- torchrun --nproc-per-node 8 train.py",
        "railhop run -- srun --mpi=pmix ./train",
        "railhop run --fabric two-hosts-4nic -- python train.py",
    ),
)
@topology_option("Over a fresh software fabric: a name or a file ('railhop fabric topology').")
@click.option("--host", metavar="HOST", help="On this host of the fabric (the first).")
@click.option("--seed", type=int, default=0, help="Of the fabric's chance.")
@json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def COMMAND(  # noqa: N802
    *,
    topology: Optional[str],
    host: Optional[str],
    seed: int,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Start a command with Railhop under it.

    Output, signals and exit status are the command's own: 127 if it was not found, 126 if it
    cannot be run. With --fabric it runs over software NICs that live as long as the command.
    --json prints on standard error what is set, before the command starts.
    """
    if host and not topology:
        raise click.UsageError("--host is about a fabric: say --fabric too")
    variables = railhop.environment()
    words = list(command)
    if topology or "RAILHOP_FABRIC" in os.environ:
        variables.update(unfused(os.environ))
    if topology:
        words = [
            str(paths.fabric_program()), "run", "--topology", topology, "--seed", str(seed),
            "--library-dir", str(paths.fabric_dir()), "--", *words,
        ]  # fmt: skip
        if host:
            variables["RAILHOP_FABRIC_HOST"] = host
    if as_json:
        print(json.dumps({"command": words, "environment": variables}), file=sys.stderr)
    become(words, {**os.environ, **variables})
