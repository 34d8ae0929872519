"""The software fabric that a job runs over: faults in, counters and events out."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import threading
import time
from typing import Any

SAMPLE_EVERY_S = 0.1


@dataclasses.dataclass(frozen=True)
class Sample:
    """Counters of all ports ("alpha/soft0") at one time (CLOCK_MONOTONIC, s)."""

    time_s: float
    moved: dict[str, int]  # bytes out and in
    dropped: dict[str, int]
    active: dict[str, bool]


class Watch:
    """Reads counters every SAMPLE_EVERY_S from a thread of its own; commands from the caller's."""

    def __init__(self, tool: pathlib.Path) -> None:
        self._tool = str(tool)
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _call(self, *words: str) -> str:
        done = subprocess.run([self._tool, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_EVERY_S):
            self._samples.append(self.sample())

    def _devices(self) -> list[dict[str, Any]]:
        devices: list[dict[str, Any]] = json.loads(self._call("show", "--json"))["devices"]
        return devices

    def sample(self) -> Sample:
        """The counters now."""
        devices = self._devices()
        moved, dropped, active = {}, {}, {}
        for device in devices:
            name = f"{device['host']}/{device['name']}"
            port = device["ports"][0]
            counters = port["counters"]
            moved[name] = counters["tx_bytes"] + counters["rx_bytes"]
            dropped[name] = counters["dropped"]
            active[name] = port["state"] == "ACTIVE" and not device["removed"]
        return Sample(time.monotonic(), moved, dropped, active)

    def samples(self, since_s: float) -> list[Sample]:
        """What the thread has read since then."""
        return [sample for sample in self._samples if sample.time_s >= since_s]

    def busiest(self, host: str, over_s: float = 0.3) -> list[str]:
        """The host's devices, the one that moves most bytes first."""
        before = self.sample()
        time.sleep(over_s)
        after = self.sample()
        names = [name for name in after.moved if name.startswith(f"{host}/")]
        return sorted(names, key=lambda name: before.moved[name] - after.moved[name])

    def fault(self, words: str) -> None:
        """Puts a fault in: "alpha/soft0 down for 2s"."""
        self._call("fault", *words.split())

    def heal(self, timeout_s: float = 10) -> None:
        """Takes all faults out and waits until every port is there and active."""
        for device in self._devices():
            name = f"{device['host']}/{device['name']}"
            self._call("fault", name, "clear")
            if device["removed"]:
                self._call("fault", name, "return")
        until = time.monotonic() + timeout_s
        while not all(self.sample().active.values()):
            if time.monotonic() > until:
                raise RuntimeError("a port does not come back")
            time.sleep(0.05)

    def position(self) -> int:
        """Where the fabric's log ends, for `events`."""
        log: list[dict[str, Any]] = json.loads(self._call("log", "--json"))
        return int(log[-1]["position"]) + 1 if log else 0

    def events(self, since: int) -> list[dict[str, Any]]:
        """The fabric's log from `since` on: what the faults did."""
        log: list[dict[str, Any]] = json.loads(self._call("log", "--json"))
        return [entry for entry in log if entry["position"] >= since]

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()
