"""Figures and verdict from what was seen. No process, no clock: tests make up what was seen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Optional

from railhop.drills.result import Failback, Happening, Series, Verdict
from railhop.scenario import Expectation

# A port that moves less than this share of what it moved before has been left; it is back when it
# moves more than the second.
_LEFT_SHARE = 0.05
_BACK_SHARE = 0.25
# Traffic is steady so long after its begin or its return, and the last moments of a run are not.
_SETTLE_S = 0.5
_LAST_S = 0.1
# A step is late beyond both, and beyond the gap that a scenario allows: so long, and this share of
# its offset.
_LATE_S = 2.0
_LATE_SHARE = 0.25


@dataclasses.dataclass
class Gap:
    """A time without a message on one connection, in seconds since traffic began."""

    from_s: float
    to_s: float


@dataclasses.dataclass
class Planned:
    """A step of the scenario: when it was to be, and when it had been carried out, if it was."""

    text: str
    at_s: float
    acted_s: Optional[float]


@dataclasses.dataclass
class Seen:
    """What a drill saw; times in seconds since traffic began.

    Attributes:
      survived, wrong_bytes, problem: of the workload.
      gaps: of messages, if the workload tells.
      steps: (end, ms) of a training's steps.
      received: bytes received by all ports, for each time of `series`.
      plan: all steps, if they are known.
      ended_s: when the workload had ended by itself, if it has.
    """

    survived: bool
    wrong_bytes: Optional[int]
    problem: str
    seconds: float
    happenings: Sequence[Happening]
    series: Series
    received: Sequence[int]
    gaps: Optional[Sequence[Gap]] = None
    steps: Sequence[tuple[float, float]] = ()
    plan: Sequence[Planned] = ()
    ended_s: Optional[float] = None


def _mean(seen: Seen, from_s: float, to_s: float) -> Optional[float]:
    """GB/s received between two times; None if they hold no two samples."""
    inside = [i for i, time_s in enumerate(seen.series.times_s) if from_s <= time_s <= to_s]
    if len(inside) < 2:
        return None
    first, last = inside[0], inside[-1]
    seconds = seen.series.times_s[last] - seen.series.times_s[first]
    return (seen.received[last] - seen.received[first]) / seconds / 1e9 if seconds > 0 else None


def _rate(series: Series, port: str, index: int) -> float:
    """Bytes/s of a port between a sample and the one before it."""
    seconds = series.times_s[index] - series.times_s[index - 1]
    moved = series.moved_bytes[port]
    return (moved[index] - moved[index - 1]) / seconds if seconds > 0 else 0.0


def _mean_rate(series: Series, port: str, from_s: float, to_s: float) -> float:
    inside = [i for i, time_s in enumerate(series.times_s) if from_s <= time_s <= to_s]
    if len(inside) < 2:
        return 0.0
    seconds = series.times_s[inside[-1]] - series.times_s[inside[0]]
    moved = series.moved_bytes[port]
    return (moved[inside[-1]] - moved[inside[0]]) / seconds if seconds > 0 else 0.0


def failback_of(series: Series, happening: Happening, seconds: float) -> Failback:
    """Whether a port that was hit was left, and when it carried traffic again."""
    if happening.port not in series.moved_bytes:
        return Failback()
    before = _mean_rate(series, happening.port, _SETTLE_S, happening.at_s)
    if before <= 0:
        # A busy machine may have let nobody run for all of that time.
        before = _mean_rate(series, happening.port, -math.inf, happening.at_s)
    if before <= 0:
        return Failback()
    end_s = seconds if happening.end_s is None else happening.end_s
    left = False
    for index in range(1, len(series.times_s)):
        time_s = series.times_s[index]
        if time_s <= happening.at_s:
            continue
        rate = _rate(series, happening.port, index)
        if rate < _LEFT_SHARE * before:
            left = True
        elif left and time_s >= end_s and rate > _BACK_SHARE * before:
            return Failback(True, round(max(0.0, time_s - end_s) * 1e3, 1))
    return Failback(False if left else None)


def came_back(happenings: Sequence[Happening], series: Series, seconds: float) -> Failback:
    """Of all ports that were hit: seen if each that was left is in use again; the latest counts."""
    last: dict[str, Happening] = {}
    for one in happenings:
        known = last.get(one.port)
        if known is None:
            last[one.port] = dataclasses.replace(one)
        elif known.end_s is not None and one.end_s is not None:
            known.end_s = max(known.end_s, one.end_s)
        else:
            known.end_s = None
    found = [failback_of(series, one, seconds) for one in last.values() if one.port]
    told = [one for one in found if one.seen is not None]
    if not told:
        return Failback()
    if not all(one.seen for one in told):
        return Failback(False)
    return Failback(True, max(one.after_ms or 0.0 for one in told))


def _silences(seen: Seen) -> list[Gap]:
    """Times in which no port received anything."""
    gaps = []
    times = seen.series.times_s
    since = 0
    for index in range(1, len(times)):
        if seen.received[index] != seen.received[index - 1]:
            if index - 1 > since:
                gaps.append(Gap(times[since], times[index]))
            since = index
    if times and len(times) - 1 > since:
        gaps.append(Gap(times[since], times[-1]))
    return gaps


def _longest(gaps: Sequence[Gap], from_s: float, to_s: float) -> float:
    """In ms, of what lies between two times: what a gap has before or behind them is another's."""
    inside = [min(one.to_s, to_s) - max(one.from_s, from_s) for one in gaps]
    return round(max([0.0, *inside]) * 1e3, 1)


def _gaps(seen: Seen) -> tuple[Sequence[Gap], str]:
    if seen.gaps is not None:
        return seen.gaps, "messages"
    if len(seen.steps) > 2:
        # What a step took beyond an ordinary one.
        usual = sorted(ms for _, ms in seen.steps)[len(seen.steps) // 2]
        return [Gap(end - max(0.0, ms - usual) / 1e3, end) for end, ms in seen.steps], "steps"
    return _silences(seen), "bytes"


def _problems(seen: Seen, expect: Expectation, verdict: Verdict) -> list[str]:
    problems = []
    if seen.survived and not expect.survives:
        problems.append("the workload survived what the scenario says that it cannot")
    if not seen.survived and expect.survives:
        problems.append(f"the workload died: {seen.problem or 'it ended early'}")
    if seen.wrong_bytes:
        problems.append(f"{seen.wrong_bytes} bytes arrived wrong")
    if not expect.survives or not seen.survived:
        return problems
    if expect.gap_ms_max and verdict.gap_ms is not None and verdict.gap_ms > expect.gap_ms_max:
        problems.append(
            f"nothing arrived for {verdict.gap_ms:g} ms, {expect.gap_ms_max:g} ms are allowed"
        )
    if expect.fails_back and not verdict.failback.seen:
        never = "it carried nothing before, or traffic never left it"
        told = never if verdict.failback.seen is None else "it stayed away"
        problems.append(f"no failback to the port that was hit: {told}")
    if expect.fails_back is False and verdict.failback.seen:
        problems.append("traffic went back to a port that the scenario says is gone")
    return problems


def _lateness(seen: Seen, expect: Expectation) -> tuple[list[str], list[str]]:
    """What of the plan was late or never; and what a workload's end has left out."""
    late, notes = [], []
    for one in seen.plan:
        bound_s = max(_LATE_S, _LATE_SHARE * one.at_s, expect.gap_ms_max / 1e3)
        if one.acted_s is not None:
            if one.acted_s - one.at_s > bound_s:
                late.append(f"step '{one.text}' was {one.acted_s - one.at_s:.0f} s late")
        elif seen.ended_s is None or seen.ended_s - one.at_s > bound_s:
            late.append(f"step '{one.text}', planned at {one.at_s:g} s, was not carried out")
        else:
            notes.append(f"the job had ended before '{one.text}'")
    return late, notes


def _hole(seen: Seen, expect: Expectation, verdict: Verdict) -> list[str]:
    """The longest time without a sample, if it is longer than a gap may be.

    Or so long that a port may have been left and gone back to in it, unseen.
    """
    times = [one for one in seen.series.times_s if one <= seen.seconds]
    holes = [(b - a, a) for a, b in zip(times, times[1:]) if b > 0]
    longest_s, from_s = max(holes, default=(0.0, 0.0))
    bounds = [expect.gap_ms_max / 1e3] if expect.gap_ms_max else []
    if expect.fails_back and verdict.failback.seen is None:
        bounds += [(one.end_s - one.at_s) / 2 for one in seen.happenings if one.end_s]
    if not bounds or longest_s <= min(bounds):
        return []
    return [f"the counters could not be read for {longest_s:.1f} s from {from_s:.1f} s on"]


def _doubt(seen: Seen, expect: Expectation, verdict: Verdict) -> None:
    """Says what speaks against the drill itself, which makes it unusable."""
    late, notes = _lateness(seen, expect)
    verdict.notes += notes
    # A workload that tells its gaps and has passed needs no samples for it.
    if verdict.problems or verdict.gap_from == "bytes":
        late += _hole(seen, expect, verdict)
    if late and not seen.wrong_bytes:
        verdict.usable = False
        verdict.problems = [
            f"{one}: this machine is too busy to judge" for one in late
        ] + verdict.problems


def _forget(verdict: Verdict) -> None:
    """What nobody knows of a workload that has died."""
    verdict.wrong_bytes = verdict.wrong_bytes or None  # not everything was compared
    verdict.gap_ms = verdict.after_gb_per_s = None
    if not verdict.failback.seen:
        verdict.failback = Failback()


def judge(seen: Seen, expect: Expectation) -> Verdict:
    """The verdict."""
    gaps, source = _gaps(seen)
    verdict = Verdict(
        survived=seen.survived,
        wrong_bytes=seen.wrong_bytes,
        gap_from=source,
        gap_ms_max=expect.gap_ms_max,
        failback=came_back(seen.happenings, seen.series, seen.seconds),
    )
    first_s = min((one.at_s for one in seen.happenings), default=seen.seconds)
    ends = [seen.seconds if one.end_s is None else one.end_s for one in seen.happenings]
    last_s = max(ends, default=seen.seconds)
    if source == "bytes" and len(seen.series.times_s) < 2:
        verdict.gap_from = ""
    else:
        verdict.gap_before_ms = _longest(gaps, 0.0, first_s)
        from_s = first_s if seen.happenings else 0.0
        verdict.gap_ms = _longest(gaps, from_s, seen.seconds + 1.0)
    verdict.before_gb_per_s = _mean(seen, min(_SETTLE_S, first_s / 2), first_s)
    if seen.happenings:
        verdict.during_gb_per_s = _mean(seen, first_s, min(last_s, seen.seconds - _LAST_S))
        back_s = last_s + (verdict.failback.after_ms or 0.0) / 1e3 + 0.2
        verdict.after_gb_per_s = _mean(seen, back_s, seen.seconds - _LAST_S)
    for name in ("before_gb_per_s", "during_gb_per_s", "after_gb_per_s"):
        value = getattr(verdict, name)
        setattr(verdict, name, None if value is None else round(value, 4))
    if not seen.survived:
        _forget(verdict)
    verdict.problems = _problems(seen, expect, verdict)
    _doubt(seen, expect, verdict)
    verdict.passed = not verdict.problems
    return verdict
