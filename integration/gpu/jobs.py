"""Jobs of two ranks over a chosen transport, driven side by side (rank.py)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Optional

RANK = "integration.gpu.rank"
WORLD = 2


@dataclasses.dataclass(frozen=True)
class Transport:
    """What a job's traffic goes over, as environment variables."""

    name: str
    env: dict[str, str]


def sockets() -> Transport:
    """NCCL's own socket transport."""
    return Transport("sockets", {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"})


def _devices(count: int, fused: bool) -> dict[str, str]:
    names = ",".join(f"soft{i}" for i in range(count))
    merge = {} if fused else {"NCCL_NET_MERGE_LEVEL": "LOC"}
    return {"NCCL_IB_HCA": f"={names}", **merge}


def nccl_ib(count: int = 1, fused: bool = False) -> Transport:
    """NCCL's IB transport over the fabric. GIN's probe crashes NCCL 2.28 without type 2."""
    env = {"NCCL_NET": "IB", "NCCL_NET_PLUGIN": "none", "NCCL_GIN_TYPE": "2"}
    return Transport(
        f"nccl-ib-{count}{'-fused' if fused else ''}", {**env, **_devices(count, fused)}
    )


def railhop(plugin: pathlib.Path, count: int = 1, fused: bool = False) -> Transport:
    """Railhop over the software fabric."""
    env = {"NCCL_NET": "Railhop", "NCCL_NET_PLUGIN": str(plugin), "NCCL_GIN_TYPE": "2"}
    return Transport(
        f"railhop-{count}{'-fused' if fused else ''}", {**env, **_devices(count, fused)}
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class JobError(RuntimeError):
    """A rank died, hung, or answered with an error; the text has the end of its output."""


class Job:
    """Two ranks that wait for commands."""

    def __init__(
        self,
        transport: Transport,
        folder: pathlib.Path,
        start_s: float = 90,
        prefixes: Sequence[Sequence[str]] = ((),) * WORLD,
        rank_module: str = RANK,
    ) -> None:
        """Starts the ranks and waits until they have met.

        Args:
          transport: what the traffic goes over.
          folder: for the ranks' logs, NAME.RANK.log.
          start_s: how long they may take.
          prefixes: for each rank, words before its command (a program that puts it on a host).
          rank_module: the ranks' program, to be found from the working directory.
        """
        self.transport = transport
        self._logs = [folder / f"{transport.name}.{rank}.log" for rank in range(WORLD)]
        self._program = [sys.executable, "-m", rank_module]
        port = _free_port()
        self._ranks = [self._start(rank, port, prefixes[rank]) for rank in range(WORLD)]
        self._answers: list[queue.Queue[Optional[str]]] = [queue.Queue() for _ in range(WORLD)]
        self._marks: list[list[dict[str, Any]]] = [[] for _ in range(WORLD)]
        for rank in range(WORLD):
            threading.Thread(target=self._read, args=(rank,), daemon=True).start()
        try:
            self.versions = self._collect(start_s)[0]
        except JobError:
            self.abort()
            raise

    def _start(self, rank: int, port: int, prefix: Sequence[str]) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(WORLD),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            # Ranks with names of hosts of their own may share a GPU and use the network only.
            "NCCL_HOSTID": f"railhop-host-{rank}",
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET",
            **self.transport.env,
        }
        self._logs[rank].write_text("")
        # Appended to, as what comes on standard output is.
        with self._logs[rank].open("a") as log:
            return subprocess.Popen(
                [*prefix, *self._program],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def _read(self, rank: int) -> None:
        stdout = self._ranks[rank].stdout
        assert stdout is not None
        with self._logs[rank].open("a", buffering=1) as log:
            for line in stdout:
                if line.startswith('{"mark"'):
                    self._marks[rank].append({**json.loads(line), "read": time.monotonic()})
                elif line.startswith("{"):
                    self._answers[rank].put(line)
                else:
                    log.write(line)  # NCCL's own lines come on standard output
        self._answers[rank].put(None)

    def _collect(self, timeout_s: float) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        for rank in range(WORLD):
            try:
                line = self._answers[rank].get(timeout=timeout_s)
            except queue.Empty:
                raise self._problem(rank, f"no answer within {timeout_s:.0f} s") from None
            if line is None:
                raise self._problem(rank, f"ended with status {self._ranks[rank].wait()}")
            answer = json.loads(line)
            if "error" in answer:
                raise self._problem(rank, answer["error"])
            answers.append(answer)
        return answers

    def _problem(self, rank: int, what: str) -> JobError:
        lines = self._logs[rank].read_text(errors="replace").splitlines()
        warnings = [line for line in lines if "WARN" in line or "Error" in line]
        text = "\n".join((warnings or lines)[-8:])
        return JobError(f"{self.transport.name}, rank {rank}: {what}\n{text}")

    def log(self, since: Sequence[int] = (0,) * WORLD) -> str:
        """What both ranks have logged, each from byte `since` on."""
        texts = []
        for log, start in zip(self._logs, since, strict=True):
            texts.append(log.read_bytes()[start:].decode(errors="replace"))
        return "".join(texts)

    def do(self, what: str, timeout_s: float = 120, **arguments: Any) -> list[dict[str, Any]]:
        """Gives a command to both ranks; their answers. Raises JobError."""
        self.begin(what, **arguments)
        return self._collect(timeout_s)

    def begin(self, what: str, **arguments: Any) -> None:
        """The first half of `do`; forgets older marks."""
        for marks in self._marks:
            marks.clear()
        line = json.dumps({"do": what, **arguments}) + "\n"
        for rank in self._ranks:
            assert rank.stdin is not None
            try:
                rank.stdin.write(line)
                rank.stdin.flush()
            except BrokenPipeError:
                pass  # _collect says how it ended

    def finish(self, timeout_s: float, grace_s: float = 5) -> list[dict[str, Any]]:
        """The second half. A rank that ends leaves the other `grace_s`, then both have failed."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and any(answers.empty() for answers in self._answers):
            if any(rank.poll() is not None for rank in self._ranks):
                until = min(until, time.monotonic() + grace_s)
                ended = next(i for i in range(WORLD) if self._ranks[i].poll() is not None)
                while time.monotonic() < until and None in self.exits():
                    time.sleep(0.02)
                raise self._problem(ended, f"ended with status {self._ranks[ended].poll()}")
            time.sleep(0.02)
        for rank, answers in enumerate(self._answers):
            if answers.empty():
                raise self._problem(rank, f"no answer within {timeout_s:.0f} s")
        return self._collect(1)

    def marks(self, rank: int) -> list[dict[str, Any]]:
        """What this rank has told of the present command's progress (steady.py)."""
        return list(self._marks[rank])

    def exits(self) -> list[Optional[int]]:
        """Exit status of each rank, None while it runs."""
        return [rank.poll() for rank in self._ranks]

    def log_sizes(self) -> list[int]:
        """Bytes of each rank's log so far, for `log`."""
        return [log.stat().st_size for log in self._logs]

    def abort(self) -> None:
        """Kills both ranks."""
        for rank in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()

    def close(self) -> None:
        """Ends both ranks; by force if they do not end by themselves."""
        for rank in self._ranks:
            assert rank.stdin is not None
            try:
                rank.stdin.write('{"do": "quit"}\n')
                rank.stdin.close()
            except (BrokenPipeError, ValueError):
                pass
        for rank in self._ranks:
            try:
                rank.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.abort()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()
