"""What several subcommands share: exit statuses, options, output."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, TypeVar

import click
from rich.console import Console

GOOD = 0
BAD = 1
INPUT = 2

# Where output goes to a file or a pipe, tables may be so wide.
_WIDTH_ELSEWHERE = 160

_Function = TypeVar("_Function", bound=Callable[..., Any])


class CliError(Exception):
    """Ends the program with one line and a status."""

    def __init__(self, text: str, status: int = INPUT) -> None:
        super().__init__(text)
        self.status = status


def examples(*lines: str) -> str:
    """The end of a help text: click must not fill these lines."""
    return "\n".join(["\b", "Examples:", *(f"  {one}" for one in lines)])


def console(*, stderr: bool = False) -> Console:
    """Colours only on a terminal; NO_COLOR is heard."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_ELSEWHERE
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def print_json(value: Any) -> None:
    """One line."""
    print(json.dumps(value), flush=True)


def json_option(function: _Function) -> _Function:
    """--json."""
    option = click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
    return option(function)


def complete_topologies(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """For the shell."""
    from railhop import paths  # noqa: PLC0415  only for completion

    names = [one.stem for one in sorted(paths.topologies_dir().glob("*.topology"))]
    return [name for name in ["default", *names] if name.startswith(incomplete)]


def topology_option(help_text: str, *, name: str = "--fabric") -> Callable[[_Function], _Function]:
    """--fabric TOPOLOGY."""
    return click.option(
        name, "topology", metavar="TOPOLOGY", shell_complete=complete_topologies, help=help_text
    )


def need_nics(what: str, folder: pathlib.Path = pathlib.Path("/sys/class/infiniband")) -> None:
    """Errors: CliError if this machine has no RDMA device.

    Args:
      what: what is to be done with them, for the text.
      folder: where the kernel lists them.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        raise CliError(
            "no fabric and no NIC: this machine has no RDMA device; say --fabric two-hosts-4nic "
            f"to {what} on software NICs ('railhop fabric topology' lists more)"
        )


def words_in(text: str) -> str:
    """An API word for people: "port down"."""
    return text.replace("_", " ")


def cause_in(cause: object) -> str:
    """The first sign of a fault for people; empty if there was none."""
    if str(cause) in ("none", "unknown"):
        return ""
    return "told by peer" if str(cause) == "peer" else words_in(str(cause))


def writable_folder(path: str) -> None:
    """Errors: CliError if a file cannot be made there; before long work, not behind it."""
    # What is there is written over, a device such as /dev/null too.
    if os.path.exists(path) and not os.path.isdir(path):
        if not os.access(path, os.W_OK):
            raise CliError(f"{path}: no right to write it")
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise CliError(f"{path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise CliError(f"{path}: no right to write into {folder}")


def not_over(outputs: Mapping[str, Optional[str]], inputs: Sequence[Optional[str]] = ()) -> None:
    """Errors: CliError if a file would be written over one that is read, or over another's.

    Args:
      outputs: option -> the file that it writes; None or empty if it was not given.
      inputs: files that are read; what is none does no harm.
    """
    seen = [("", name) for name in inputs]
    for option, name in outputs.items():
        for other, taken in seen:
            if name and taken and _same_file(name, taken):
                why = f"{other} writes it too" if other else "it is read by this command"
                raise CliError(f"{option} {name}: {why}; name another file")
        seen.append((option, name))


def _same_file(one: str, other: str) -> bool:
    # A device keeps nothing that could be lost; what is not there yet is known by its name.
    if os.path.exists(one) and not os.path.isfile(one):
        return False
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)
    return False
