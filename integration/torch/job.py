"""Jobs of torch processes over a fabric of their own, with faults while they run.

Each rank is a process of the environment that tools/lib/torch_env.sh makes; ranks take the hosts of
the topology in turn. Standard output has JSON lines, which a test can wait for.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Optional

import railhop
from railhop.testing.fabric import Fabric

# Where ranks find the package, and the modules of this folder and of tools/dev.
PYTHON_PATH = os.pathsep.join([str(pathlib.Path(railhop.__file__).parents[1]), os.getcwd()])

# Far more than anything here takes, for machines that are busy.
PATIENCE_S = 240.0

# Short, so that no test waits long for silence to count.
OPTIONS = {
    "RAILHOP_STALL_THRESHOLD": "300ms",
    "RAILHOP_PROBE_INTERVAL": "100ms",
    "RAILHOP_HOLD_DOWN": "200ms",
    "RAILHOP_PORT_POLL_INTERVAL": "100ms",
    "RAILHOP_GIVE_UP_TIME": "30s",
    "NCCL_DEBUG": "WARN",
    "NCCL_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
}


def torch_python() -> str:
    """The interpreter with torch. It must be there: without it nothing here is tested."""
    chosen = os.environ.get("RAILHOP_TORCH_PYTHON")
    if chosen:
        return chosen
    caches = [pathlib.Path("/var/cache/railhop"), pathlib.Path.home() / ".cache/railhop"]
    for cache in caches:
        for made in sorted(cache.glob("torch/*/.complete")):
            return str(made.parent / "bin/python3")
    raise FileNotFoundError("no environment with torch: run tools/lib/torch_env.sh")


def free_port() -> int:
    """A TCP port that nobody listens on, for the rendezvous."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class TorchJob:
    """See the file's comment. Ends everything on leaving."""

    def __init__(
        self,
        script: str,
        *arguments: str,
        size: int = 2,
        topology: str = "two-hosts-4nic",
        hosts: Sequence[str] = ("alpha", "beta"),
        faults: Sequence[str] = (),
        env: Optional[dict[str, str]] = None,
    ) -> None:
        """Starts it.

        Args:
          script: of this folder.
          arguments: of the script.
          size: ranks.
          topology: a name of testdata/topologies.
          hosts: of rank 0, 1 and so on, in turn.
          faults: put in before anything runs (with `after N messages` they strike later).
          env: variables beside OPTIONS.
        """
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        library = pathlib.Path(os.environ["RAILHOP_TEST_LIBRARY"]).resolve()
        self.fabric = Fabric(f"testdata/topologies/{topology}.topology", library_dir=library.parent)
        for words in faults:
            self.fabric.fault(words)
        plugin = pathlib.Path(os.environ["RAILHOP_TEST_PLUGIN"]).resolve()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "RAILHOP_"))}
        common = {
            **kept,
            **OPTIONS,
            "NCCL_NET_PLUGIN": str(plugin),
            "RAILHOP_ADMIN_DIR": str(self.folder),
            "PYTHONPATH": PYTHON_PATH,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(size),
            **(env or {}),
        }
        command = [torch_python(), f"integration/torch/{script}", *arguments]
        self.lines: list[list[dict[str, Any]]] = [[] for _ in range(size)]
        self.logs: list[list[str]] = [[] for _ in range(size)]
        self._changed = threading.Condition()
        self.processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        for rank in range(size):
            host = hosts[rank % len(hosts)]
            process = subprocess.Popen(
                [one.replace("{folder}", str(self.folder)) for one in command],
                env={**common, "RANK": str(rank), **self.fabric.environment(host)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self.processes.append(process)
            for read in (self._read_out, self._read_log):
                reader = threading.Thread(target=read, args=(rank, process))
                reader.start()
                self._readers.append(reader)

    def _read_out(self, rank: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            with self._changed:
                if text.startswith("{"):
                    self.lines[rank].append(json.loads(text))
                else:
                    self.logs[rank].append(text.rstrip("\n"))
                self._changed.notify_all()

    def _read_log(self, rank: int, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for text in process.stderr:
            with self._changed:
                self.logs[rank].append(text.rstrip("\n"))
                self._changed.notify_all()

    def __enter__(self) -> TorchJob:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for reader in self._readers:
            reader.join()
        self.fabric.close()
        self._folder.cleanup()

    def show(self) -> str:
        """For messages of assertions."""
        texts = []
        for rank, log in enumerate(self.logs):
            status = self.processes[rank].poll()
            texts.append(f"--- rank {rank}, status {status}: {self.lines[rank][-1:]}")
            texts += log[-60:]
        return "\n".join(texts)

    def text(self) -> str:
        """All that was said and is no JSON line."""
        return "\n".join(line for log in self.logs for line in log)

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Until something printed makes it true."""
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                ended = all(process.poll() is not None for process in self.processes)
                if left <= 0 or (ended and not self._changed.wait(1.0) and not condition()):
                    raise AssertionError(f"no {what}\n{self.show()}")
                self._changed.wait(min(left, 1.0))

    def wait_step(self, step: int) -> None:
        """Until rank 0 has done it."""
        self.wait(f"step {step}", lambda: any(one.get("step") == step for one in self.lines[0]))

    def join(self) -> list[int]:
        """The exit statuses of all ranks."""
        statuses = []
        deadline = time.monotonic() + PATIENCE_S
        for process in self.processes:
            try:
                statuses.append(process.wait(max(deadline - time.monotonic(), 1.0)))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"the job does not end\n{self.show()}") from None
        for reader in self._readers:
            reader.join()
        return statuses

    def succeed(self) -> list[list[dict[str, Any]]]:
        """The lines of each rank of a job in which all went well."""
        assert self.join() == [0] * len(self.processes), self.show()
        left = [one["queue_pairs"] for one in self.fabric.snapshot()["processes"]]
        assert not any(left), self.show()
        return self.lines

    def losses(self) -> list[list[str]]:
        """Of each rank and step; the job has to succeed."""
        return [[one["loss"] for one in lines if "loss" in one] for lines in self.succeed()]

    def episodes(self) -> list[str]:
        """The lines that say that an episode of failover is over."""
        return re.findall(r"NET/Railhop : (.*recovered after .*)", self.text())
