"""What a report shows of one run, whether it comes from a drill or from a journal."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional


@dataclasses.dataclass
class Track:
    """A port over time: (seconds, bytes/s), NaN where that is not known; and when it was not up."""

    port: str
    rates: list[tuple[float, float]]
    down: list[tuple[float, float]]


@dataclasses.dataclass
class Band:
    """A time in which something was wrong. port: "" for all."""

    from_s: float
    to_s: float
    port: str
    text: str


@dataclasses.dataclass
class Mark:
    """A moment with words. kind: fault, repair, failover or failback. host: "" for all tracks."""

    at_s: float
    text: str
    kind: str
    host: str = ""


@dataclasses.dataclass
class Episode:
    """One of Railhop's. Times of phases in ms; detect_ms before the decision, the others after."""

    at_s: float
    where: str
    peer: str
    cause: str
    blame: str
    connections: int
    detect_ms: float
    agree_ms: float
    resume_ms: float
    bytes_resent: int
    ports_after: list[str]
    recovered: bool


@dataclasses.dataclass
class TrainingStep:
    """Of a training; loss is None if it was not told."""

    at_s: float
    number: int
    ms: float
    loss: Optional[float]


@dataclasses.dataclass
class Run:
    """Everything that a section of the page is made of.

    Attributes:
      facts: (what, value) for the line below the title.
      verdict: as in drills.result.Verdict, or None for a journal.
      tracks: host to its ports.
      total: (seconds, bytes/s) received by all ports.
    """

    title: str
    about: str
    seconds: float
    facts: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    verdict: Optional[dict[str, Any]] = None
    messages: Optional[int] = None
    tracks: dict[str, list[Track]] = dataclasses.field(default_factory=dict)
    total: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    bands: list[Band] = dataclasses.field(default_factory=list)
    marks: list[Mark] = dataclasses.field(default_factory=list)
    episodes: list[Episode] = dataclasses.field(default_factory=list)
    steps: list[TrainingStep] = dataclasses.field(default_factory=list)


class ReportError(ValueError):
    """A report that cannot be made; the text is one line."""
