"""`railhop env`: the variables that put Railhop under a job."""

from __future__ import annotations

import shlex
from typing import Optional

import click

import railhop
from railhop.cli.common import examples, json_option, print_json

_SHELLS = ("sh", "fish", "csh")


def _fish(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"


def lines(variables: dict[str, str], shell: str) -> list[str]:
    """Commands of a shell that set them."""
    if shell == "fish":
        return [f"set -gx {name} {_fish(value)};" for name, value in variables.items()]
    if shell == "csh":
        return [f"setenv {name} {shlex.quote(value)};" for name, value in variables.items()]
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


@click.command(
    "env",
    epilog=examples(
        'eval "$(railhop env)"                    bash, zsh, sh',
        "railhop env --shell fish | source        fish",
        "railhop env --json                       for programs",
    ),
)
@click.option("--shell", type=click.Choice(_SHELLS), default="sh", help="Whose words (sh).")
@click.option("--fabric", metavar="NAME", help="Also for a software fabric that runs.")
@json_option
def COMMAND(shell: str, fabric: Optional[str], as_json: bool) -> None:  # noqa: N802
    """Print what a shell has to set so that NCCL takes Railhop."""
    variables = railhop.environment(fabric=fabric)
    if as_json:
        print_json(variables)
        return
    for line in lines(variables, shell):
        print(line)
