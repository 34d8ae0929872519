"""A job of two ranks over the kernel's RDMA in a guest, and what came of it.

Rank A sends from rxa0 and rxa1, rank B receives at rxb0 and rxb1: two processes of railhop-netperf
in one guest, messages of all sizes, every byte and guard zone compared. Rail 0 carries the job
while nothing is wrong; nothing gets from one rail to the other. It runs until `end`, so that a test
waits for what it wants to see, not for a time.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Optional

import pytest
from railhop.testing.uml import Guest

_PROGRAM = os.path.realpath(os.environ["RAILHOP_TEST_PROGRAM"])
_PLUGIN = os.path.realpath(os.environ["RAILHOP_TEST_PLUGIN"])
_NUMBERS = itertools.count(1)

# Far more than anything here takes: guests are slow on busy machines.
PATIENCE_S = 90.0
POLL_S = 0.05
GAP_BOUND_MS = 30_000
LOG_TAIL_LINES = 120

RANK_A, RANK_B = "a", "b"

OPTIONS = {
    "RAILHOP_STALL_THRESHOLD": "1s",
    "RAILHOP_PROBE_INTERVAL": "300ms",
    "RAILHOP_HOLD_DOWN": "300ms",
    "RAILHOP_HOLD_DOWN_MAX": "2s",
    "RAILHOP_PORT_POLL_INTERVAL": "500ms",
    "RAILHOP_GIVE_UP_TIME": "60s",
    "RAILHOP_LOG": "trace",
    "NCCL_DEBUG": "TRACE",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_HCA": "rxa",
    "HOME": "/nonexistent",
}
# A queue pair ends in error after half a second.
SHORT_RETRIES = {"NCCL_IB_TIMEOUT": "14", "NCCL_IB_RETRY_CNT": "6"}
# NCCL's own defaults: in rxe, seven means for ever.
ENDLESS_RETRIES = {"NCCL_IB_TIMEOUT": "20", "NCCL_IB_RETRY_CNT": "7"}


@dataclasses.dataclass(frozen=True)
class Ended:
    """A job that is over."""

    status: int
    last: dict[str, Any]
    """The last line of netperf."""
    log: list[str]
    ranks: dict[str, str]
    """Rank by process id."""

    def lines(self, rank: str = "") -> list[str]:
        """What the plugin said, of one rank or of both."""
        return [line for line in self.log if not rank or self.ranks.get(_pid(line)) == rank]

    def text(self, rank: str = "") -> str:
        return "\n".join(self.lines(rank))

    def warnings(self, rank: str = "") -> list[str]:
        return [line for line in self.lines(rank) if " NCCL WARN " in line]

    def begun(self, rank: str = "") -> list[str]:
        """The lines that say that an episode began."""
        return [line for line in self.warnings(rank) if "leave it for other ports" in line]

    def recovered(self, rank: str = "") -> list[str]:
        """The lines that say that one is over."""
        return [line for line in self.warnings(rank) if ": recovered after " in line]

    def show(self) -> str:
        """For messages of assertions."""
        return f"{json.dumps(self.last)}\n{_tail(self.log)}"


def _pid(line: str) -> str:
    found = re.match(r"\[(\d+)\]", line)
    return found[1] if found else ""


def _tail(log: list[str]) -> str:
    kept = [line for line in log if "NET/Railhop : option" not in line]
    return "\n".join(kept[-LOG_TAIL_LINES:])


class Job:
    """See the file's comment. Ends everything on leaving.

    env: variables of both ranks beside OPTIONS. second_env: of rank B alone.
    """

    def __init__(
        self,
        guest: Guest,
        *options: str,
        env: Optional[dict[str, str]] = None,
        second_env: str = "",
    ) -> None:
        self.guest = guest
        number = next(_NUMBERS)
        second = ",".join(["NCCL_IB_HCA=rxb", *([second_env] if second_env else [])])
        self._process = guest.start(
            [
                _PROGRAM, "--plugin", _PLUGIN, "--json", "--metric", "bandwidth",
                "--second-env", second, "--size", "65000", "--mixed", "--check", "all",
                "--connections", "2", "--timeout", str(int(PATIENCE_S)), "--seconds", "600",
                *options,
            ],
            env={**OPTIONS, **(env or {})},
            stdout=guest.scratch / f"job-{number}.out",
            stderr=guest.scratch / f"job-{number}.log",
        )  # fmt: skip

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()

    def log(self) -> list[str]:
        """What was said so far."""
        return self._process.stderr.read_text(encoding="utf-8", errors="replace").splitlines()

    def ranks(self) -> dict[str, str]:
        """Rank by process id, from the devices that each names."""
        ranks: dict[str, str] = {}
        for line in self.log():
            found = re.match(r"\[(\d+)\].* (?:rx([ab])\d\b)", line)
            if found:
                ranks.setdefault(found[1], found[2])
        return ranks

    def wait(self, what: str, true: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Until `true()` is; a job that has ended by then is a failure."""
        deadline = time.monotonic() + timeout_s
        while not true():
            ended = self._process.poll() is not None
            if (ended and not true()) or time.monotonic() > deadline:
                why = "the job ended before" if ended else f"not within {timeout_s:g} s"
                raise AssertionError(
                    f"{why}: {what}\n{self._process.output()}\n{_tail(self.log())}"
                )
            time.sleep(POLL_S)

    def wait_log(self, pattern: str, timeout_s: float = PATIENCE_S) -> None:
        """Until a line of the plugin matches."""
        compiled = re.compile(pattern)
        self.wait(f"a line with {pattern!r}", lambda: any(map(compiled.search, self.log())),
                  timeout_s)  # fmt: skip

    def wait_recovered(self) -> None:
        """Until an episode is over: lanes are fenced, what was missing is sent again."""
        self.wait_log(": recovered after ")

    def received(self, rail: int) -> int:
        """Bytes that have reached rank B over this rail, since the guest is up."""
        return int(self.guest.read(f"/sys/class/net/b{rail}/statistics/rx_bytes"))

    def wait_traffic(self, rail: int, more: int = 1_000_000) -> None:
        """Until so many more bytes have reached rank B over this rail."""
        start = self.received(rail)
        self.wait(f"{more} bytes over rail {rail}", lambda: self.received(rail) - start >= more)

    def end(self) -> Ended:
        """Ends the job with nothing under way."""
        self._process.signal(2)
        return self.join()

    def join(self) -> Ended:
        """Waits until it has ended by itself."""
        try:
            status = self._process.wait(PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"the job does not end\n{_tail(self.log())}") from None
        figures = [line for line in self._process.output().splitlines() if line.startswith("{")]
        assert figures, f"no result\n{self._process.output()}\n{_tail(self.log())}"
        return Ended(status, json.loads(figures[-1]), self.log(), self.ranks())


def assert_right(ended: Ended) -> None:
    """No error, no wrong byte, nothing left behind."""
    assert ended.status == 0, ended.show()
    assert ended.last["survived"], ended.show()
    assert ended.last["messages"] > 0, ended.show()
    for key in ("wrong_bytes", "wrong_sizes", "errors", "threads_left", "descriptors_left"):
        assert ended.last[key] == 0, f"{key}\n{ended.show()}"
    assert ended.last["longest_gap_ms"] < GAP_BOUND_MS, ended.show()
    assert not [line for line in ended.warnings() if "given up" in line], ended.show()


@pytest.fixture(scope="module", name="booted")
def booted_guest() -> Iterator[Guest]:
    with Guest(rails=2) as guest:
        yield guest


@pytest.fixture(name="guest")
def clean_guest(booted: Guest) -> Iterator[Guest]:
    """The module's guest, with all links as new before each case."""
    yield booted
    for device in booted.devices:
        booted.link(device).clear()
    for device in booted.devices:
        booted.link(device).wait_port("ACTIVE")
