"""Pairs of verbs programs over a software fabric: a server, a client, and faults between them."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Sequence

from railhop.testing.fabric import Fabric

# Far more than any of these programs needs, for machines that are busy.
TIMEOUT_S = 120.0


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a program ended."""

    status: int
    output: str


def free_port() -> int:
    """A TCP port that nobody listens on, for the programs' own handshake."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":
                return True
    return False


class Pair:
    """A program as server on soft1 and as client on soft0. Both are ended on leaving."""

    def __init__(self, fabric: Fabric, program: str, options: Sequence[str] = ()) -> None:
        """Starts both; returns when the client has been started."""
        port = free_port()
        command = [program, *options, "-p", str(port)]
        self.server = fabric.popen([*command, "-d", "soft1"])
        deadline = time.monotonic() + TIMEOUT_S
        while not _listens(port):
            assert self.server.poll() is None, self.server.communicate()[0]
            assert time.monotonic() < deadline, f"{program} does not listen"
            time.sleep(0.01)
        self.client = fabric.popen([*command, "-d", "soft0", "127.0.0.1"])

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.client, self.server):
            if process.poll() is None:
                process.kill()
            process.communicate()

    def wait_client(self) -> Ended:
        """The client's end."""
        return _wait(self.client)

    def wait_server(self) -> Ended:
        """The server's end."""
        return _wait(self.server)


def _wait(process: subprocess.Popen[str]) -> Ended:
    output, _ = process.communicate(timeout=TIMEOUT_S)
    return Ended(process.returncode, output)


class Control:
    """The control program, acting on a fabric by its name."""

    def __init__(self, name: str) -> None:
        self._program = os.environ["RAILHOP_TEST_CONTROL"]
        self._name = name

    def fault(self, *words: str) -> None:
        """Puts a fault in, such as `"soft0", "down"`."""
        subprocess.run([self._program, "fault", "--fabric", self._name, *words], check=True)


def sent_messages(fabric: Fabric, device: str) -> int:
    """Messages that a device's first port has sent."""
    devices = fabric.snapshot()["devices"]
    ports = next(d for d in devices if d["name"] == device)["ports"]
    count: int = ports[0]["counters"]["tx_messages"]
    return count


def wait_for_traffic(fabric: Fabric, messages: int = 1000) -> None:
    """Returns when soft0 and soft1 have sent so many messages more."""

    def total() -> int:
        return sent_messages(fabric, "soft0") + sent_messages(fabric, "soft1")

    start = total()
    deadline = time.monotonic() + TIMEOUT_S
    while total() - start < messages:
        assert time.monotonic() < deadline, "no traffic"
        time.sleep(0.01)
