"""`railhop.drill`: forces a failover around a piece of a test, and takes it back.

    with railhop.drill(device="mlx5_0", mode="drain"):
        train(steps=10)                        # over the other NICs

    @railhop.drill(device="mlx5_0", mode="now")
    def test_a_step_survives() -> None: ...

The hard case is the end: whatever happens inside, the port is given back, and an error inside is
never hidden behind one of giving it back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from types import TracebackType
from typing import Any, Optional

import railhop
from railhop import errors as railhop_errors
from railhop.errors import Error, InvalidError, NoAnswerError, NotFoundError

__all__ = ["drill"]

_POLL_S = 0.02
# Errors of a call that has changed nothing.
_NOTHING_DONE = (
    InvalidError, NotFoundError, railhop_errors.NotAllowedError, railhop_errors.NotLoadedError,
    railhop_errors.RefusedError, railhop_errors.StaleSocketError,
)  # fmt: skip
_LEAVING = ("draining", "recovering")


@dataclasses.dataclass
class _Entered:
    """One use of a drill that is under way."""

    # Each with the ports of the target that somebody held before: they stay held.
    done: list[tuple[Any, set[str]]] = dataclasses.field(default_factory=list)


def _ended(api: Any) -> bool:
    try:
        api.health()
    except (railhop.StaleSocketError, NotFoundError):
        return True
    except Error:
        return False
    return False


class drill(contextlib.ContextDecorator):  # noqa: N801  it is used as a verb
    """Takes a device, port or connection out of use for the time of a block or of a function.

    Acts on this process (the plugin that NCCL has loaded), or on another one of this node, or on
    all of a job's. Leaving brings the traffic back, but not to what was held before. May be used
    again and again, also nested for different devices, and by several threads.

    Attributes:
      outcomes: of entering, a railhop.Outcome for each process; empty before.

    Example:
        >>> with railhop.drill(device="mlx5_0", pid=railhop.processes()[0].pid) as held:
        ...     held.outcomes[0].ports
        ('mlx5_0:1',)
    """

    def __init__(
        self,
        device: Optional[str] = None,
        *,
        target: Optional[str] = None,
        mode: str = "drain",
        pid: Optional[int] = None,
        job: Optional[str] = None,
        process: Any = None,
        wait_s: float = 30.0,
    ) -> None:
        """Makes it; nothing happens before it is entered.

        Args:
          device: "mlx5_0", or a port, "mlx5_0:1".
          target: instead of it "connection:ID", or anything that railhop.force_failover takes.
          mode: "drain": what is under way completes first; "now": as if the device had failed.
          pid: of another process.
          job: all processes of this job on this node.
          process: a railhop.Process; at most one of these three.
          wait_s: how long entering waits until the traffic has left; 0 does not wait.

        Raises:
          InvalidError: Not exactly one of device and target, two processes, or no such mode.
        """
        if (device is None) == (target is None):
            raise InvalidError("say what to take out: device='mlx5_0' or target='connection:ID'")
        if sum(one is not None for one in (pid, job, process)) > 1:
            raise InvalidError("pid, job and process exclude each other; give one of them")
        if mode not in ("drain", "now"):
            raise InvalidError(f"no mode '{mode}' (allowed: drain, now)")
        self._target = device if device is not None else str(target)
        self._mode, self._pid, self._job, self._process = mode, pid, job, process
        self._wait_s = wait_s
        self._threads = threading.local()
        self.outcomes: list[Any] = []

    def _apis(self) -> list[Any]:
        if self._process is not None:
            return [self._process]
        if self._pid is not None:
            return [railhop.attach(pid=self._pid)]
        if self._job is not None:
            found = [one.attach() for one in railhop.processes(job=self._job)]
            if not found:
                raise NotFoundError(f"no process of job '{self._job}' with Railhop on this node")
            return found
        return [railhop]

    def _stack(self) -> list[_Entered]:
        if not hasattr(self._threads, "stack"):
            self._threads.stack = []
        stack: list[_Entered] = self._threads.stack
        return stack

    def __enter__(self) -> drill:
        entered = _Entered()
        outcomes = []
        try:
            for api in self._apis():
                # First, so that a call that is cut short is undone: it may have been done.
                entered.done.append((api, self._held(api)))
                try:
                    outcomes.append(api.force_failover(self._target, mode=self._mode))
                except _NOTHING_DONE:
                    entered.done.pop()
                    raise
            if self._wait_s > 0:
                self._wait([api for api, _ in entered.done])
        except BaseException:
            self._give_back(entered.done, hide=True)
            raise
        self.outcomes = outcomes
        self._stack().append(entered)
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        entered = self._stack().pop()
        self._give_back(entered.done, hide=error is not None)

    def _concerns(self, port: str) -> bool:
        return port == self._target or port.split(":", maxsplit=1)[0] == self._target

    def _held(self, api: Any) -> set[str]:
        """The target's ports that are out of service by command."""
        ports = api.health().ports
        return {one.name for one in ports if one.held_by_command and self._concerns(one.name)}

    def _back(self, api: Any, before: set[str]) -> None:
        """Gives one process's ports back, but for those that were held before."""
        if self._target.startswith("connection:"):
            api.fail_back(self._target)
            return
        targets = [self._target]
        if before:
            names = [one.name for one in api.health().ports if self._concerns(one.name)]
            targets = [name for name in names if name not in before]
        for target in targets:
            api.release(target)
            api.fail_back(target)

    def _left(self, api: Any) -> bool:
        """Whether no traffic is left on the target and nothing is on the move."""
        health = api.health()
        if any(str(one.state) in _LEAVING for one in health.connections):
            return False
        return not any(one.lanes for one in health.ports if self._concerns(one.name))

    def _wait(self, apis: list[Any]) -> None:
        deadline = time.monotonic() + self._wait_s
        for api in apis:
            while not self._left(api):
                if time.monotonic() > deadline:
                    raise NoAnswerError(
                        f"{self._target} still carries traffic after {self._wait_s:g} s; does the "
                        "job run? wait_s=0 does not wait"
                    )
                time.sleep(_POLL_S)

    def _give_back(self, done: list[tuple[Any, set[str]]], *, hide: bool) -> None:
        first: Optional[Error] = None
        for api, before in reversed(done):
            try:
                self._back(api, before)
            except Error as error:
                # With a process that has ended what was held has ended too.
                if not _ended(api):
                    first = first or error
        if first is not None and not hide:
            raise first
