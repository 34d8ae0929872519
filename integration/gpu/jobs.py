"""Jobs of two ranks over a chosen transport, driven side by side (rank.py)."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import queue
import socket
import subprocess
import sys
import threading
from types import TracebackType
from typing import Any, Optional

RANK = pathlib.Path(__file__).with_name("rank.py")
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

    def __init__(self, transport: Transport, folder: pathlib.Path, start_s: float = 90) -> None:
        self.transport = transport
        self._logs = [folder / f"{transport.name}.{rank}.log" for rank in range(WORLD)]
        port = _free_port()
        self._ranks = [self._start(rank, port) for rank in range(WORLD)]
        self._answers: list[queue.Queue[Optional[str]]] = [queue.Queue() for _ in range(WORLD)]
        for rank in range(WORLD):
            threading.Thread(target=self._read, args=(rank,), daemon=True).start()
        self.versions = self._collect(start_s)[0]

    def _start(self, rank: int, port: int) -> subprocess.Popen[str]:
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
        with self._logs[rank].open("w") as log:
            return subprocess.Popen(
                [sys.executable, str(RANK)],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def _read(self, rank: int) -> None:
        stdout = self._ranks[rank].stdout
        assert stdout is not None
        with self._logs[rank].open("a", buffering=1) as log:
            for line in stdout:
                if line.startswith("{"):
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

    def log(self) -> str:
        """What both ranks have logged."""
        return "".join(log.read_text(errors="replace") for log in self._logs)

    def do(self, what: str, timeout_s: float = 120, **arguments: Any) -> list[dict[str, Any]]:
        """Gives a command to both ranks; their answers. Raises JobError."""
        line = json.dumps({"do": what, **arguments}) + "\n"
        for rank in self._ranks:
            assert rank.stdin is not None
            try:
                rank.stdin.write(line)
                rank.stdin.flush()
            except BrokenPipeError:
                pass  # _collect says how it ended
        return self._collect(timeout_s)

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
                rank.kill()
                rank.wait()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()
