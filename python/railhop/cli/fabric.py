"""`railhop fabric`: software RDMA, through its control program."""

from __future__ import annotations

import os
from typing import Optional

import click

from railhop import paths
from railhop.cli.common import examples, json_option, topology_option
from railhop.cli.launch import become


def _become(*words: str) -> None:
    become([str(paths.fabric_program()), *words], os.environ)


def _named(name: Optional[str]) -> list[str]:
    return ["--fabric", name] if name else []


_name_option = click.option(
    "--fabric", "name", metavar="NAME", help="Which; else the one that this shell runs in."
)


@click.group(
    "fabric",
    epilog=examples(
        "railhop fabric start                           a shell with four NICs, soft0 to soft3",
        "railhop fabric fault soft1 down for 2s         in it: pull a cable",
        "railhop fabric show",
        "railhop fabric topology two-hosts-4nic         what is in a topology",
    ),
)
def COMMAND() -> None:  # noqa: N802
    """Make software NICs, look at them, break them.

    Programs that use RDMA verbs run over it unmodified, as processes of one user; no RDMA
    hardware, no rights.
    """


@COMMAND.command(
    "start",
    epilog=examples(
        "railhop fabric start --topology two-hosts-4nic --name lab",
        "railhop fabric start -- ibv_devinfo",
    ),
)
@topology_option("A name or a file (default: four NICs on one host).", name="--topology")
@click.option("--name", metavar="NAME", help="To reach it from outside.")
@click.option("--seed", type=int, default=0, help="Of faults that hit by chance.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
def start(
    topology: Optional[str], name: Optional[str], seed: int, command: tuple[str, ...]
) -> None:
    """Make a fabric and run a command in it; without one, a shell.

    The fabric ends with the command. Output, signals and exit status are the command's own.
    """
    words = list(command) or [os.environ.get("SHELL", "/bin/sh")]
    _become(
        "run", "--library-dir", str(paths.fabric_dir()), "--seed", str(seed),
        *(["--topology", topology] if topology else []), *(["--name", name] if name else []),
        "--", *words,
    )  # fmt: skip


@COMMAND.command(
    "fault",
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        "railhop fabric fault soft0 down for 2s",
        "railhop fabric fault beta/mlx5_1 loss 1%",
        "railhop fabric fault --fabric lab alpha/mlx5_0 blackhole rx acks",
        "railhop fabric fault soft0 clear",
    ),
)
@_name_option
@click.argument("words", nargs=-1, required=True, metavar="[HOST/]DEVICE WORDS...")
def fault(name: Optional[str], words: tuple[str, ...]) -> None:
    """Put a fault in.

    All words are in docs/reference/faults.md; a wrong one is named with those that are allowed.
    """
    _become("fault", *_named(name), *words)


@COMMAND.command(
    "show",
    epilog=examples(
        "railhop fabric show",
        "railhop fabric show --json",
    ),
)
@_name_option
@json_option
def show(name: Optional[str], as_json: bool) -> None:
    """Ports, addresses, counters, faults in force, processes."""
    _become("show", *_named(name), *(["--json"] if as_json else []))


@COMMAND.command(
    "log",
    epilog=examples(
        "railhop fabric log --fabric lab",
    ),
)
@_name_option
@json_option
def log(name: Optional[str], as_json: bool) -> None:
    """What faults did, event by event."""
    _become("log", *_named(name), *(["--json"] if as_json else []))


@COMMAND.command(
    "list",
    epilog=examples(
        "railhop fabric list",
    ),
)
def list_fabrics() -> None:
    """The fabrics of this user."""
    _become("list")


@COMMAND.command(
    "topology",
    short_help="Check a topology, or list the built-in ones.",
    epilog=examples(
        "railhop fabric topology",
        "railhop fabric topology two-hosts-4nic",
        "railhop fabric topology ./ours.topology",
    ),
)
@click.argument("topology", required=False)
def topology_command(topology: Optional[str]) -> None:
    """Check a topology and print it with every default; without one, list the built-in ones."""
    if topology is None:
        files = sorted(paths.topologies_dir().glob("*.topology"))
        for name in ("default", *(one.stem for one in files)):
            print(name)
        return
    _become("topology", topology)


@COMMAND.command(
    "on",
    context_settings={"ignore_unknown_options": False},
    epilog=examples(
        "railhop fabric on beta -- ib_write_bw -d mlx5_0",
    ),
)
@click.argument("host")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def on(host: str, command: tuple[str, ...]) -> None:
    """Inside a fabric: run a command on one of its hosts."""
    _become("on", host, "--", *command)
