"""A job between nodes, for tests: one rank on each, steered through the node's shell."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Optional

from railhop.drills.errors import DrillError

PATIENCE_S = 120.0
_POLL_S = 0.2
_PORT = 29511
# A shell's statuses for a program that is not there, or is none.
_CANNOT_START = (126, 127)
# Ends with SIGTERM to rank 0; these seconds are for a test that forgets it.
_RANK = "python3 -m railhop.drills.collective_rank all-reduce 65536 600"


def _answer(text: str) -> Any:
    """The line of JSON in what a node's shell printed, which may have its own words around it.

    Errors: DrillError.
    """
    found = []
    for line in text.splitlines():
        if line.startswith(("[", "{")):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    if len(found) == 1:
        return found[0]
    what = "several lines of JSON" if found else "no JSON"
    raise DrillError(f"{what} in what the node printed: {text.strip()[:200]!r}")


class NodeJob:
    """Starts on entering, is ended on leaving; `finish` ends it in good order.

    A node has `name`, `run` and `start` as railhop.pytest_plugin.Node; `address`, if it has one, is
    where the others reach it.
    """

    def __init__(
        self,
        nodes: Sequence[Any],
        *,
        command: str = _RANK,
        program: str = "railhop",
        env: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Makes it.

        Args:
          nodes: rank 0 first.
          command: of each rank, for the node's shell; else an all-reduce, every element compared.
          program: how a node's shell calls railhop.
          env: further variables, of every rank and of railhop.
        """
        self.nodes = list(nodes)
        self._command, self._program, self._env = command, program, dict(env or {})
        self._processes: list[Any] = []
        self._lacks = ""  # what a rank that is not ready says

    def __enter__(self) -> NodeJob:
        address = getattr(self.nodes[0], "address", self.nodes[0].name)
        try:
            for rank, node in enumerate(self.nodes):
                ranks = {"RANK": str(rank), "WORLD_SIZE": str(len(self.nodes)), "LOCAL_RANK": "0"}
                master = {"MASTER_ADDR": address, "MASTER_PORT": str(_PORT)}
                env = {**self._env, **ranks, **master}
                self._processes.append(node.start(self._command, env=env))
            self.wait("traffic on all ports", self._ready)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """Ends all ranks at once."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()

    def railhop(self, rank: int, *words: str) -> Any:
        """What `railhop WORDS --json` says on a rank's node.

        Errors: DrillError with its own line.
        """
        done = self._run(rank, *words)
        if done.returncode != 0:
            raise self._said(rank, done)
        return _answer(done.stdout)

    def _run(self, rank: int, *words: str) -> Any:
        command = f"{self._program} {shlex.join(words)} --json"
        return self.nodes[rank].run(command, env=self._env, check=False)

    def _said(self, rank: int, done: Any) -> DrillError:
        return DrillError(f"{self.nodes[rank].name}: {(done.stderr or done.stdout).strip()}")

    def health(self, rank: int) -> Optional[dict[str, Any]]:
        """Of the rank's process; None if there is none."""
        found = self.railhop(rank, "status")
        return dict(found[0]) if found else None

    def received_bytes(self, rank: int, port: str = "") -> int:
        """By a port of a rank, or by all."""
        ports = self.railhop(rank, "stats")[0]["ports"]
        return sum(one["received_bytes"] for one in ports if port in ("", one["name"]))

    def _ready(self) -> bool:
        for rank in range(len(self.nodes)):
            done = self._run(rank, "status")
            if done.returncode in _CANNOT_START:
                raise self._said(rank, done)
            if done.returncode != 0:
                # The folder of the sockets need not be there before the rank has made it.
                self._lacks = f"; {self._said(rank, done)}"
                return False
            found = _answer(done.stdout)
            if not found:
                self._lacks = f"; {self.nodes[rank].name}: no process with Railhop yet"
                return False
            (health, *_) = found
            good = {one["port"] for one in health["paths"] if one["state"] == "good"}
            bad = [one["name"] for one in health["ports"] if one["name"] not in good]
            if not good or bad:
                self._lacks = f"; {self.nodes[rank].name}: no good path from {', '.join(bad)}"
                return False
        self._lacks = ""
        return True

    def wait(self, what: str, true: Callable[[], bool]) -> None:
        """Until `true()` is. Errors: DrillError if a rank ends before, or it takes too long."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            for rank, process in enumerate(self._processes):
                if process.poll() is not None:
                    said = str(process.communicate()[0]).strip().splitlines()
                    raise DrillError(f"rank {rank} ended before {what}: {said[-1:]}")
            if time.monotonic() > deadline:
                raise DrillError(f"not within {PATIENCE_S:g} s: {what}{self._lacks}")
            time.sleep(_POLL_S)

    def wait_bytes(self, more: int = 200_000, *, rank: int = 0, port: str = "") -> None:
        """Until a rank, or a port of it, has received so many more bytes."""
        start = self.received_bytes(rank, port)
        what = f"{more} bytes at {self.nodes[rank].name} {port}"
        self.wait(what, lambda: self.received_bytes(rank, port) - start >= more)

    def output(self) -> str:
        """What all ranks said, once they have ended; for messages."""
        return "\n".join(str(process.communicate()[0]) for process in self._processes)

    def finish(self) -> list[int]:
        """Ends it in good order; the status of each rank, 0 if all its data was right."""
        health = self.health(0)
        if health is not None:
            self.nodes[0].run(f"kill -TERM {health['process']['pid']}")
        return [int(process.wait(PATIENCE_S)) for process in self._processes]
