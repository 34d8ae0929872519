"""Two guests as the nodes of a suite."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import pytest
from railhop.testing.uml import TwoHosts
from railhop.testing.uml.guest import Guest, GuestProcess
from railhop.testing.uml.two_hosts import OOB_ADDRESSES

# What every program in a guest is told; its own folders are a guest's, not the host's.
_ENVIRONMENT = {
    "PYTHONPATH": ":".join(os.path.abspath(one) for one in sys.path if one),
    "NCCL_SOCKET_IFNAME": "oob0",
    "NCCL_IB_TIMEOUT": "14",
    "RAILHOP_ADMIN_DIR": "/run/railhop",
    "RAILHOP_HOLD_DOWN": "300ms",
    "RAILHOP_TEST_PROGRAM": f"{sys.executable} -m railhop.cli.main",
}


class _Process:
    """A guest's process with the calls of subprocess.Popen that are used."""

    def __init__(self, process: GuestProcess) -> None:
        self._process = process

    def poll(self) -> Optional[int]:
        return self._process.poll()

    def wait(self, timeout: float) -> int:
        return self._process.wait(timeout)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self) -> tuple[str, str]:
        return self._process.output(), ""


class _GuestNode:
    """As railhop.pytest_plugin.Node."""

    def __init__(self, guest: Guest, side: str) -> None:
        self.name, self.address, self._guest = f"host-{side}", OOB_ADDRESSES[side], guest

    def start(
        self, command: str | Sequence[str], *, env: Optional[Mapping[str, str]] = None
    ) -> _Process:
        python = str(command).replace("python3 ", f"{sys.executable} ", 1)
        return _Process(self._guest.start(python, env={**_ENVIRONMENT, **(env or {})}))

    def run(
        self,
        command: str | Sequence[str],
        *,
        env: Optional[Mapping[str, str]] = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        done = self._guest.run(command, 120, env={**_ENVIRONMENT, **(env or {})})
        if check and done.status != 0:
            raise subprocess.CalledProcessError(done.status, command, done.output)
        return subprocess.CompletedProcess(command, done.status, done.output, done.output)


_HOSTS = pytest.StashKey[TwoHosts]()


def pytest_railhop_nodes(config: pytest.Config) -> list[Any]:
    """Boots the guests when a test first asks for nodes."""
    hosts = TwoHosts(rails=2, memory_mb=512)
    config.stash[_HOSTS] = hosts
    return [_GuestNode(hosts.a, "a"), _GuestNode(hosts.b, "b")]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends them."""
    if _HOSTS in config.stash:
        config.stash[_HOSTS].close()
