"""Carries a scenario out, step by step, at its times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Optional

from railhop.scenario.step import Scenario, Step


class Player:
    """Does the steps of a scenario from a thread of its own.

    A step that fails ends the play: `error` is then its text and `done` is set.
    """

    def __init__(self, scenario: Scenario, act: Callable[[Step], None]) -> None:
        """Makes it; `start` starts it.

        Args:
          scenario: what to do; times count from `start`.
          act: does one step; raises what str() makes a message of.
        """
        self._scenario = scenario
        self._act = act
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._play, name="railhop-scenario", daemon=True)
        self._start_s = 0.0
        self.done = threading.Event()
        self.error = ""
        # The step that failed, and of what.
        self.failed: Optional[tuple[Step, Exception]] = None
        # When each step had been done: (step, time.monotonic()).
        self.acted: list[tuple[Step, float]] = []

    def start(self) -> None:
        """Begins; now is the scenario's time 0."""
        self._start_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Does no further step; returns when none is under way."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _play(self) -> None:
        for step in self._scenario.steps:
            left_s = self._start_s + step.at_s - time.monotonic()
            if self._stop.wait(max(0.0, left_s)):
                break
            try:
                self._act(step)
            except Exception as error:
                self.failed = (step, error)
                self.error = f"{step.source}: '{step.text}': {error}"
                break
            self.acted.append((step, time.monotonic()))
        self.done.set()
