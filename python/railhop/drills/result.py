"""What a drill gives: a verdict in one line, and everything that was seen for the report."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Optional

# Of the file that `railhop drill --save` writes; a reader refuses others.
FORMAT = 1
KEY = "railhop_drill"


@dataclasses.dataclass
class Series:
    """Bytes moved by each port, over time.

    Attributes:
      times_s: of the samples, since traffic began.
      moved_bytes: port ("alpha/mlx5_0:1") to bytes sent and received so far, one for each time.
      up: port to whether it was up, one for each time.
    """

    times_s: list[float] = dataclasses.field(default_factory=list)
    moved_bytes: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    up: dict[str, list[bool]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Happening:
    """A step of the scenario as it was carried out; times since traffic began."""

    at_s: float
    end_s: Optional[float]
    port: str
    text: str


@dataclasses.dataclass
class Failback:
    """Whether traffic went back to the ports that were hit.

    Attributes:
      seen: None if traffic never left them.
      after_ms: from the end of the fault until it was back; None if it was not.
    """

    seen: Optional[bool] = None
    after_ms: Optional[float] = None


@dataclasses.dataclass
class Verdict:
    """The figures of the line that `railhop drill --json` prints.

    Attributes:
      passed: all is as the scenario expects.
      survived: the workload ran to its end without an error.
      wrong_bytes: None if the workload does not count them, or died before all were compared.
      gap_ms: the longest time without a message from the first step on; None if nothing tells, or
        the workload died.
      gap_from: what tells: "messages", "steps" or "bytes".
      gap_ms_max: what the scenario allows; 0 for no limit.
      gap_before_ms: the longest one before the first step.
      *_gb_per_s: received by all ports of the fabric, GB/s (10^9 bytes/s), mean.
      failback: see there.
      problems: why it did not pass, one sentence each.
      usable: False if the drill was not held as planned (a machine that is too busy): it says
        nothing about Railhop then, and has not passed.
      notes: what else is worth knowing, one sentence each.
    """

    passed: bool = False
    survived: bool = False
    wrong_bytes: Optional[int] = None
    gap_ms: Optional[float] = None
    gap_from: str = ""
    gap_ms_max: float = 0.0
    gap_before_ms: Optional[float] = None
    before_gb_per_s: Optional[float] = None
    during_gb_per_s: Optional[float] = None
    after_gb_per_s: Optional[float] = None
    failback: Failback = dataclasses.field(default_factory=Failback)
    problems: list[str] = dataclasses.field(default_factory=list)
    usable: bool = True
    notes: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Result:
    """A drill that is over.

    Attributes:
      title: for the report.
      fabric: topology's name or file.
      workload: what ran.
      scenario: as Scenario.to_dict gives it.
      started_unix_ns: when traffic began.
      seconds: from then to the end.
      verdict: see there.
      messages: how many were received and compared; None if the workload does not say.
      happenings: what was put in.
      episodes: Railhop's own, as `Episode.to_dict` gives them, with `process` and `host`.
      events: journal entries, as `Event.to_dict` gives them, with `process` and `host`.
      steps: of a training: {"time_s", "step", "ms", "loss"}.
      series: see there.
    """

    title: str
    fabric: str
    workload: str
    scenario: dict[str, Any]
    started_unix_ns: int
    seconds: float
    verdict: Verdict
    messages: Optional[int] = None
    happenings: list[Happening] = dataclasses.field(default_factory=list)
    episodes: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    events: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    steps: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    series: Series = dataclasses.field(default_factory=Series)

    def line(self) -> dict[str, Any]:
        """The verdict with what it is about, for one line of JSON."""
        return {
            "scenario": self.scenario["name"],
            "fabric": self.fabric,
            "workload": self.workload,
            **dataclasses.asdict(self.verdict),
            "messages": self.messages,
            "episodes": len(self.episodes),
            "seconds": self.seconds,
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything, for a file that `railhop report` reads."""
        return {KEY: FORMAT, **dataclasses.asdict(self)}

    def dump(self) -> str:
        """The file's text."""
        return json.dumps(self.to_dict()) + "\n"
