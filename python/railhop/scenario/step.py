"""The data of a scenario."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

# Commands are Railhop's own; every other first word begins a fault of the fabric.
COMMANDS = ("failover", "failback", "hold", "release")
# Statements about the scenario itself.
SETTINGS = ("about", "lasts", "gap", "expect")


class ScenarioError(ValueError):
    """A scenario that cannot be understood or carried out; the text is one line."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing that happens.

    Attributes:
      at_s: seconds after traffic began.
      verb: "fault", or one of COMMANDS.
      host: where; "" is the first host of the fabric.
      target: the device or port ("mlx5_0", "mlx5_0:1"), or "connection:ID"; "" for all (failback).
      words: of a fault, what follows its target ("down for 5s"); of failover its mode or "".
      for_s: how long it holds, if said.
      source: where it was written, "nic-down.scenario:4", for messages.
    """

    at_s: float
    verb: str
    host: str
    target: str
    words: str
    for_s: Optional[float]
    source: str

    @property
    def place(self) -> str:
        """The target with its host."""
        return f"{self.host}/{self.target}" if self.host else self.target

    @property
    def text(self) -> str:
        """As it could be written."""
        if self.verb == "fault":
            return f"{self.place} {self.words}"
        return " ".join(word for word in (self.verb, self.place, self.words) if word)

    @property
    def end_s(self) -> Optional[float]:
        """When it is over, if said."""
        return None if self.for_s is None else self.at_s + self.for_s


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What a drill of it is judged by.

    Attributes:
      survives: False: the job has to die (scenarios that nothing can survive).
      gap_ms_max: the longest time without a message that is still good; 0 for no limit.
      fails_back: True: traffic has to return to the port; False: it must not; None: either.
    """

    survives: bool = True
    gap_ms_max: float = 0.0
    fails_back: Optional[bool] = None


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Steps in order of time.

    Attributes:
      name: of the file, or the words themselves.
      about: one sentence.
      steps: in order of time.
      lasts_s: how long a built-in workload runs.
      expect: what it is judged by.
    """

    name: str
    about: str
    steps: tuple[Step, ...]
    lasts_s: float
    expect: Expectation

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "about": self.about,
            "lasts_s": self.lasts_s,
            "steps": [
                {"at_s": one.at_s, "for_s": one.for_s, "text": one.text} for one in self.steps
            ],
        }
