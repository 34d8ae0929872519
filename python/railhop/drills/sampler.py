"""Reads the counters of all ports again and again while a drill runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from railhop.drills.result import Series

EVERY_S = 0.05


class PortCount(NamedTuple):
    """Of one port at one time."""

    received_bytes: int
    sent_bytes: int
    up: bool


class Sampler:
    """A thread that calls `read` every EVERY_S until `stop`."""

    def __init__(self, read: Callable[[], dict[str, PortCount]]) -> None:
        self._read = read
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="railhop-sampler", daemon=True)
        self._samples: list[tuple[float, dict[str, PortCount]]] = []

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it with one last sample. May be repeated."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            ended = self._stop.is_set()
            self._samples.append((time.monotonic(), self._read()))
            if ended:
                return
            self._stop.wait(EVERY_S)

    def received_bytes(self) -> int:
        """Received by all ports so far."""
        if not self._samples:
            return 0
        return sum(one.received_bytes for one in self._samples[-1][1].values())

    def series(self, start_s: float) -> tuple[Series, list[int]]:
        """All samples, since `start_s` of time.monotonic; and bytes received by all ports.

        Ports come and go with the processes that tell of them: where a sample lacks one, what was
        known of it before stands there, at the start nothing moved.
        """
        samples = list(self._samples)
        names = list(dict.fromkeys(name for _, ports in samples for name in ports))
        series = Series([], {name: [] for name in names}, {name: [] for name in names})
        known = dict.fromkeys(names, PortCount(0, 0, True))
        received = []
        for time_s, ports in samples:
            known.update(ports)
            series.times_s.append(round(time_s - start_s, 4))
            received.append(sum(one.received_bytes for one in known.values()))
            for name, count in known.items():
                series.moved_bytes[name].append(count.received_bytes + count.sent_bytes)
                series.up[name].append(count.up)
        return series, received
