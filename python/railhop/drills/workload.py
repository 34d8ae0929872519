"""What runs in a drill: the interface, and a process group whose output is read."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import os
import pathlib
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional, Protocol

from railhop.drills.errors import DrillError
from railhop.drills.judge import Gap
from railhop.drills.world import AnyWorld

# How long a workload may take to its end when it is asked for it.
PATIENCE_S = 60.0
# How long a command may take when it is ended before its time.
GRACE_S = 5.0
_REAP_S = 2.0
# In the environment of a group and of all that it starts, whatever becomes of sessions and parents.
_MARK = "_RAILHOP_DRILL"
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_PRCTL = ctypes.CDLL(None).prctl


@dataclasses.dataclass
class Outcome:
    """What a workload says of itself; times of CLOCK_MONOTONIC in seconds."""

    survived: bool
    problem: str = ""
    wrong_bytes: Optional[int] = None
    messages: Optional[int] = None
    gaps: Optional[list[Gap]] = None
    steps: list[dict[str, float]] = dataclasses.field(default_factory=list)


class Workload(Protocol):
    """Started once, ended once."""

    @property
    def about(self) -> str:
        """For people: what it does."""

    @property
    def endless(self) -> bool:
        """Whether it runs until `end`."""

    def start(self, world: AnyWorld) -> None:
        """Starts its processes."""

    def running(self) -> bool:
        """Whether it has not ended by itself."""

    def ended_well(self) -> bool:
        """Whether it has ended by itself, without an error."""

    def end(self) -> Outcome:
        """Ends it in good order, if it runs, and says what came of it."""

    def complaint(self) -> str:
        """The last thing that it said, for messages."""

    def kill(self) -> None:
        """Ends it with all that it started, if need be by force. May be repeated."""


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: what is started in it is known to who will end it.

    Elsewhere than in the main thread, which alone is interrupted, it does nothing; nor where the
    handler is not Python's, which could not be put back.
    """
    of_python = signal.getsignal(signal.SIGINT) is not None
    if threading.current_thread() is not threading.main_thread() or not of_python:
        yield
        return
    came = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def _end_with(parent: int) -> None:
    """In a child before its program: it ends when the thread that started it does, however."""
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _proc(pid: str, name: str) -> bytes:
    try:
        return pathlib.Path("/proc", pid, name).read_bytes()
    except OSError:
        return b""


def _runs(pid: int) -> bool:
    return _proc(str(pid), "stat").rpartition(b") ")[2][:1] not in (b"", b"Z", b"X")


def _family(root: int, mark: str) -> set[int]:
    """A process's descendants and all that have the mark; not it itself, none that has ended."""
    children: dict[int, list[int]] = {}
    found = set()
    needle = f"{_MARK}={mark}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        state, _, rest = _proc(pid, "stat").rpartition(b") ")[2].partition(b" ")
        if not rest or state in (b"Z", b"X"):
            continue
        children.setdefault(int(rest.split()[0]), []).append(int(pid))
        if needle in _proc(pid, "environ").split(b"\0"):
            found.add(int(pid))
    # Also those that have taken another environment, as under sudo.
    todo = [root, *found]
    while todo:
        for child in children.get(todo.pop(), []):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found - {root, os.getpid()}


class Group:
    """A process in a session of its own; its output goes to `echo_fd`, its end is kept.

    It does not outlive the thread that made it, even if that is killed: it gets SIGTERM then.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], *, echo_fd: int = -1
    ) -> None:
        """Starts it.

        Errors: DrillError if the program is not there.
        """
        self._echo_fd = echo_fd
        self._tail: collections.deque[str] = collections.deque(maxlen=20)
        parent = os.getpid()
        self._mark = f"{parent}-{secrets.token_hex(8)}"
        try:
            self.process = subprocess.Popen(
                list(command),
                env={**env, _MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # It calls nothing but the kernel.
                preexec_fn=lambda: _end_with(parent),  # noqa: PLW1509
            )
        except OSError as error:
            raise DrillError(f"'{command[0]}' cannot be started: {error.strerror}") from None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._tail.append(line.decode(errors="replace").rstrip())
            if self._echo_fd >= 0:
                try:
                    os.write(self._echo_fd, line)
                except OSError:
                    self._echo_fd = -1

    def status(self) -> Optional[int]:
        """Its exit status, None while it runs."""
        return self.process.poll()

    def _settle(self) -> None:
        """What it said at its end may still be on the way."""
        if self.process.poll() is not None:
            self._reader.join(1)

    def tail(self) -> list[str]:
        """The last lines."""
        self._settle()
        return list(self._tail)

    def last_line(self) -> str:
        """The last one that says something."""
        self._settle()
        return next((line for line in reversed(self._tail) if line.strip()), "")

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Its status; killed if it takes longer."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self.process.wait()
        self._reader.join(5)
        return status

    def send(self, number: int) -> None:
        """A signal to the process itself."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """The process and all that it has started; returns when nothing of it is left.

        A launcher's workers have sessions of their own, and are nobody's children once it has
        ended: the mark finds them.
        """
        deadline = time.monotonic() + _REAP_S
        family = _family(self.process.pid, self._mark)
        self._stop(self.process.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        family |= _family(self.process.pid, self._mark)
        # One that is killed takes a moment to its end.
        told: set[int] = set()
        while family:
            for pid in family - told:
                self._stop(pid)
            told |= family
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)
            family = _family(self.process.pid, self._mark) | {one for one in told if _runs(one)}

    def _stop(self, pid: int) -> None:
        if pid == self.process.pid and self.process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def end_all(groups: Sequence[Group], grace_s: float = GRACE_S) -> None:
    """Asks all that run to end, by SIGTERM, and ends by force what is left after a while.

    A launcher ends its workers when it is asked. Who is interrupted once more does not wait.
    """
    try:
        for group in groups:
            group.send(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while any(group.status() is None for group in groups) and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        with uninterrupted():
            for group in groups:
                group.kill()


def status_text(status: int) -> str:
    """Of an exit status, in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
