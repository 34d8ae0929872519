"""The variables that put Railhop under a job: what `railhop env` prints and `railhop run` sets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Optional

from railhop import paths
from railhop.errors import NotFoundError

if TYPE_CHECKING:
    from railhop.testing.fabric import Fabric

__all__ = ["environment"]

LIBRARY_PATH = "LD_LIBRARY_PATH"


def _before(folders: list[str], old: str) -> str:
    """A search path with these first, each once."""
    kept = [one for one in old.split(":") if one and one not in folders]
    return ":".join([*folders, *kept])


def unfused(base: Mapping[str, str]) -> dict[str, str]:
    """NCCL_NET_MERGE_LEVEL=LOC for a job over a software fabric, unless `base` sets it.

    Software NICs have no place on the machine's PCI bus; NCCL 2.28 fuses all of one host into one,
    which then has no place in its graph either: "Could not find NET with id 0".
    """
    name = "NCCL_NET_MERGE_LEVEL"
    return {} if name in base else {name: "LOC"}


def environment(
    fabric: Fabric | str | None = None,
    *,
    host: str = "",
    base: Optional[Mapping[str, str]] = None,
) -> dict[str, str]:
    """The variables that a process of a job needs to run with Railhop, and no others.

    NCCL takes the plugin by its name from the search path of libraries, which works with every NCCL
    from 2.13 on; the loader reads that path as a program starts, so set these before, not in it.
    NCCL_NET=Railhop makes NCCL stop if the plugin cannot serve, where it would else go on
    unprotected without a word.

    Args:
      fabric: a software fabric that the job is to run over, or the name of one that is there.
      host: whose devices of the fabric, where it has several hosts.
      base: the variables that are set already; this process's own if not given.

    Raises:
      NotFoundError: The package's files are not there, or no fabric of that name; the text lists
        those that run.

    Example:
        >>> for name, value in sorted(railhop.environment(base={}).items()):
        ...     print(name, "=", value.split("/")[-1])
        LD_LIBRARY_PATH = plugin
        NCCL_NET = Railhop
        NCCL_NET_PLUGIN = railhop
    """
    base = os.environ if base is None else base
    folders = [str(paths.plugin_dir())]
    variables = {"NCCL_NET_PLUGIN": "railhop", "NCCL_NET": "Railhop"}
    if fabric is not None:
        if isinstance(fabric, str):
            # Compiled, and of no use without a fabric.
            from railhop.testing.fabric import Fabric  # noqa: PLC0415

            try:
                fabric = Fabric.attach(fabric)
            except (RuntimeError, ValueError) as error:
                raise NotFoundError(" ".join(str(error).split())) from None
        variables.update(fabric.environment(host))
        variables.update(unfused(base))
        folders.append(str(paths.fabric_dir()))
    variables[LIBRARY_PATH] = _before(folders, base.get(LIBRARY_PATH, ""))
    return variables
