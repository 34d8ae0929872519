"""Works: collectives that run in order on a thread of the group, and messages that run at once."""

from __future__ import annotations

import contextlib
import datetime
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch._C._distributed_c10d import Work

from railhop._transport.errors import TransportTimeoutError
from railhop._transport.native import Operation

__all__ = ["MessageWork", "QueuedWork", "Worker"]


def _seconds(timeout: Optional[datetime.timedelta]) -> Optional[float]:
    """None for no limit of the caller's own: c10d says that with zero or less."""
    if timeout is None or timeout.total_seconds() <= 0:
        return None
    return timeout.total_seconds()


class QueuedWork(Work):
    """A collective: under way on the group's thread, or done."""

    def __init__(self, run: Callable[[], None], result: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._run = run
        self._result = list(result)
        self._over = threading.Event()
        self._problem: Optional[BaseException] = None
        self._base: torch.futures.Future[Any] = torch.futures.Future()
        # A future of torch's own that fails as C++ expects it: one that `then` made.
        self._future = self._base.then(self._unwrap)

    def _unwrap(self, _base: Any) -> list[torch.Tensor]:
        if self._problem is not None:
            raise self._problem
        return self._result

    def execute(self) -> None:
        """On the group's thread, once."""
        try:
            self._run()
        except BaseException as problem:
            self._problem = problem
        del self._run
        self._over.set()
        self._base.set_result(None)

    def fail(self, problem: BaseException) -> None:
        """Instead of execute."""
        self._problem = problem
        self._over.set()
        self._base.set_result(None)

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        if not self._over.wait(_seconds(timeout)):
            raise TransportTimeoutError(f"not done after {timeout}")
        if self._problem is not None:
            raise self._problem
        return True

    def is_completed(self) -> bool:
        return self._over.is_set()

    def is_success(self) -> bool:
        return self._over.is_set() and self._problem is None

    def exception(self) -> Optional[BaseException]:
        return self._problem

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future

    def synchronize(self) -> None:
        self.wait()


class MessageWork(Work):
    """A send or receive: the group's messenger moves it, whatever else waits."""

    def __init__(
        self,
        operations: Sequence[Operation],
        result: Sequence[torch.Tensor],
        finish: Callable[[Sequence[Operation], Optional[float]], None],
    ) -> None:
        """Args:
        operations: what has to be done.
        result: what the future carries.
        finish: waits for them and puts what was received in its place; is called once.
        """
        super().__init__()
        self._operations = list(operations)
        self._result = list(result)
        self._finish: Optional[Callable[[Sequence[Operation], Optional[float]], None]] = finish
        self._problem: Optional[BaseException] = None
        self._lock = threading.Lock()

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        with self._lock:
            if self._finish is not None:
                try:
                    self._finish(self._operations, _seconds(timeout))
                except BaseException as problem:
                    self._problem = problem
                self._finish = None
        if self._problem is not None:
            raise self._problem
        return True

    def is_completed(self) -> bool:
        return self._finish is None or all(one.done for one in self._operations)

    def is_success(self) -> bool:
        return self.is_completed() and self._problem is None

    def exception(self) -> Optional[BaseException]:
        return self._problem

    def source_rank(self) -> int:
        return self._operations[0].source

    def _source_rank(self) -> int:
        return self.source_rank()

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        base: torch.futures.Future[Any] = torch.futures.Future()

        def outcome(_base: Any) -> list[torch.Tensor]:
            if self._problem is not None:
                raise self._problem
            return self._result

        future = base.then(outcome)

        def run() -> None:
            with contextlib.suppress(BaseException):  # outcome raises it
                self.wait()
            base.set_result(None)

        threading.Thread(target=run, name="railhop-message", daemon=True).start()
        return future

    def synchronize(self) -> None:
        self.wait()


class Worker:
    """The thread that runs a group's collectives, in the order in which they were called."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Optional[QueuedWork]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work.execute()
            del work

    def submit(self, work: QueuedWork) -> QueuedWork:
        self._queue.put(work)
        return work

    def stop(self, timeout_s: float) -> None:
        """Ends once what was submitted is over; waits for that at most `timeout_s`."""
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
