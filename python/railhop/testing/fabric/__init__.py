"""Software RDMA fabrics for tests: make one, run programs over it, put faults in.

    with Fabric(seed=7) as fabric:
        program = fabric.popen(["ib_write_bw", "-d", "soft0"])
        fabric.fault("soft0 down after 5000 messages")

What `railhop-fabric` does on the command line, with the same words for faults.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Optional

from railhop.testing.fabric import native

__all__ = ["Fabric"]

_REFERENCE = "RAILHOP_FABRIC"
_HOST = "RAILHOP_FABRIC_HOST"
_LIBRARY_PATH = "LD_LIBRARY_PATH"


class Fabric:
    """A fabric: made by this process and gone with the object, or joined with `attach`.

    Methods may be called from any thread. A bad topology or fault raises ValueError, which names
    the word and the allowed ones; a fabric that cannot be made or joined raises RuntimeError.
    """

    def __init__(
        self,
        topology: str = "default",
        *,
        name: str = "",
        seed: int = 0,
        time_scale: float = 1.0,
        library_dir: Optional[pathlib.Path] = None,
    ) -> None:
        """Makes a fabric.

        Args:
          topology: a file, or the name of a built-in one; "default" has four devices.
          name: for `attach` and `railhop-fabric --fabric`; made of the pid if empty.
          seed: of all chance; the same seed hits the same packets.
          time_scale: stretches acknowledgement and RNR timeouts, 1e-6 to 1e6.
          library_dir: the folder with libibverbs.so.1 that programs are to find first.
        """
        self._handle = native.Handle.create(topology, name, seed, time_scale)
        self._library_dir = library_dir

    @classmethod
    def attach(cls, name: str = "", *, reference: str = "") -> Fabric:
        """Joins a fabric by name, by reference, or the one that this process runs over."""
        fabric = cls.__new__(cls)
        fabric._library_dir = None
        if not name and not reference:
            reference = os.environ.get(_REFERENCE, "")
        fabric._handle = native.Handle.attach(reference, name)
        return fabric

    def __enter__(self) -> Fabric:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends a fabric that this object made; programs over it see dead links. May be repeated."""
        self._handle.close()

    def fault(self, words: str) -> str:
        """Puts a fault in: "soft0 loss 1% for 2s" (docs/reference/faults.md).

        Returns what it lists, if the word is `list`.
        """
        return self._handle.fault(words)

    def snapshot(self) -> dict[str, Any]:
        """State and counters, as `railhop-fabric show --json` has them."""
        whole: dict[str, Any] = json.loads(self._handle.snapshot())
        return whole

    def log(self) -> list[dict[str, Any]]:
        """The event log, oldest first, as `railhop-fabric log --json` has it."""
        return [json.loads(line) for line in self._handle.log()]

    def environment(
        self, host: str = "", base: Optional[Mapping[str, str]] = None
    ) -> dict[str, str]:
        """The variables that place a program on this fabric, on `host` if it has several.

        What `base`, or this process's environment, has on the search path of libraries stays on it.
        """
        variables = {_REFERENCE: self._handle.reference()}
        if host:
            variables[_HOST] = host
        if self._library_dir is not None:
            before = (os.environ if base is None else base).get(_LIBRARY_PATH, "")
            paths = [str(self._library_dir), *([before] if before else [])]
            variables[_LIBRARY_PATH] = ":".join(paths)
        return variables

    def popen(
        self, command: Sequence[str], *, host: str = "", env: Optional[Mapping[str, str]] = None
    ) -> subprocess.Popen[str]:
        """Starts a program over the fabric; its output, text, can be read from `stdout`."""
        given = {**os.environ, **(env or {})}
        return subprocess.Popen(
            list(command),
            env={**given, **self.environment(host, given)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
