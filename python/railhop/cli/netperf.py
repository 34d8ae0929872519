"""`railhop netperf`: the program that drives any NCCL net plugin without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Optional

import click

from railhop import paths
from railhop.cli.common import CliError, examples, need_nics, topology_option
from railhop.cli.launch import become


def _values(words: list[str], option: str) -> list[str]:
    """What an option was given, each time."""
    found = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    pairs = zip(words, words[1:])
    return found + [value for word, value in pairs if word == option]


def _check_files(words: list[str]) -> None:
    """Errors: CliError for a plugin that is not there. The loader finds mere names."""
    for option in ("--plugin", "--compare"):
        for name in _values(words, option):
            if "/" in name and not os.path.isfile(name):
                raise CliError(f"{option} {name}: there is no such file")


def _check_hosts(words: list[str], topology: str) -> None:
    """Errors: CliError for a host that the topology does not have."""
    shown = subprocess.run(
        [str(paths.fabric_program()), "topology", topology],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if shown.returncode != 0:  # said when it is made
        return
    hosts = re.findall(r"^host (\S+)", shown.stdout, re.MULTILINE)
    for name in ",".join(_values(words, "--hosts")).split(","):
        if name and name not in hosts and not (name.isdecimal() and int(name) < len(hosts)):
            raise CliError(f"--hosts: {topology} has no host '{name}' (hosts: {', '.join(hosts)})")


@click.command(
    "netperf",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "railhop netperf                                              this machine's NICs",
        "railhop netperf --fabric two-hosts-4nic --hosts alpha,beta   two software hosts",
        "railhop netperf --size 1M --plugin /usr/lib/libnccl-net.so   another plugin",
        "railhop netperf --json --size 64K,1M                         for programs",
    ),
)
@topology_option("Over a fresh software fabric: a name or a file; 'default' has four NICs.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF NETPERF]")
def COMMAND(topology: Optional[str], options: tuple[str, ...]) -> None:  # noqa: N802
    """Measure a NCCL net plugin without a GPU.

    All other options are railhop-netperf's own: `railhop netperf -- --help` lists them. Without
    --plugin it is this package's. Its `--json` prints one JSON object a line.
    """
    words = [one for one in options if one != "--"]
    helps = any(one in ("--help", "-h") for one in words)
    # Another plugin may need no RDMA device; a process on a fabric has those of the fabric.
    ours = not any(one == "--plugin" or one.startswith("--plugin=") for one in words)
    if ours and not helps and not topology and "RAILHOP_FABRIC" not in os.environ:
        need_nics("measure")
    if not helps:
        _check_files(words)
    if topology and not helps and _values(words, "--hosts"):
        _check_hosts(words, topology)
    if ours:
        words = ["--plugin", str(paths.plugin_path()), *words]
    words = [str(paths.netperf_path()), *words]
    if topology:
        words = [
            str(paths.fabric_program()), "run", "--topology", topology, "--library-dir",
            str(paths.fabric_dir()), "--", *words,
        ]  # fmt: skip
    become(words, os.environ)
