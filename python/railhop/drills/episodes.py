"""What Railhop itself says while a drill runs: its journal and episodes, over the admin API."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Optional

import railhop
from railhop.drills.errors import GoneError
from railhop.scenario import Step

EVERY_S = 0.2


Attach = Callable[[int], Any]


def attach(pid: int) -> Any:
    """The railhop.Process of a pid. Errors: railhop.Error."""
    return railhop.attach(pid=pid)


class _Watched:
    """One process: how far its journal was read, and what it said."""

    def __init__(self, pid: int, host: str, journal: Any) -> None:
        self.host, self.journal = host, journal
        self._tags = {"process": pid, "host": host}
        self._after = 0
        self.events: list[dict[str, Any]] = []
        self.episodes: list[dict[str, Any]] = []

    def read(self) -> None:
        """What is new."""
        while True:
            page = [one.to_dict() for one in self.journal.events(after=self._after).events]
            self.events += [{**one, **self._tags} for one in page]
            if not page:
                break
            self._after = page[-1]["serial"]
        health = self.journal.health().to_dict()
        self.episodes = [{**one, **self._tags} for one in health["episodes"]]

    def ended(self) -> bool:
        """Whether the process answers no more because it is not there."""
        try:
            self.journal.health()
        except (railhop.StaleSocketError, railhop.NotFoundError):
            return True
        except railhop.Error:
            return False
        return False


def _carry_out(journal: Any, step: Step) -> None:
    if step.verb == "failover":
        journal.force_failover(step.target, mode=step.words or "drain")
    elif step.verb == "failback":
        # A device that was told to leave stays out until it is released.
        if step.target and not step.target.startswith("connection:"):
            journal.release(step.target)
        journal.fail_back(step.target)
    elif step.verb == "hold":
        journal.hold(step.target)
    else:
        journal.release(step.target)


class EpisodeWatch:
    """A thread that reads the journals of all processes of a drill until `stop`.

    Processes without the plugin (a launcher) are passed by; one that ends keeps what it said.
    """

    def __init__(
        self, processes: Callable[[], dict[int, str]], attach_to: Optional[Attach] = None
    ) -> None:
        """processes: pid to host, as they are now. attach_to: for tests."""
        self._processes = processes
        self._attach = attach_to or attach
        self._watched: dict[int, _Watched] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="railhop-episodes", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Reads one last time and ends. May be repeated."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            ended = self._stop.is_set()
            with self._lock:
                self._look()
            if ended:
                return
            self._stop.wait(EVERY_S)

    def _look(self) -> None:
        for pid, host in self._processes().items():
            if pid not in self._watched:
                try:
                    self._watched[pid] = _Watched(pid, host, self._attach(pid))
                except Exception:
                    continue
        for watched in self._watched.values():
            try:
                watched.read()
            except Exception:
                continue

    def command(self, step: Step) -> None:
        """Carries a command out in the processes of its host.

        Errors: GoneError if none is left; what the process says when it refuses.
        """
        with self._lock:
            self._look()
            there = [one for one in self._watched.values() if one.host == step.host]
            left = 0
            for watched in there:
                try:
                    _carry_out(watched.journal, step)
                    left += 1
                except railhop.Error:
                    if not watched.ended():
                        raise
            if not left:
                raise GoneError(f"no process with Railhop runs on {step.host}")

    def events(self) -> list[dict[str, Any]]:
        """All entries of all processes, in order of time."""
        found = [one for watched in self._watched.values() for one in watched.events]
        return sorted(found, key=lambda one: int(one["time_unix_ns"]))

    def episodes(self) -> list[dict[str, Any]]:
        """Of all processes, in order of time."""
        found = [one for watched in self._watched.values() for one in watched.episodes]
        return sorted(found, key=lambda one: int(one["begin_unix_ns"]))
