"""The pictures of a run: bandwidth in all, bandwidth of each NIC, the phases of each episode."""

from __future__ import annotations

from collections.abc import Sequence

from railhop.report import units
from railhop.report.chart import Frame, box, highest, line, svg, text
from railhop.report.run import Episode, Run, Track

WIDTH = 1000.0
_LEFT, _RIGHT = 96.0, 24.0
_MARK_TOP = 40.0


def _frame(run: Run, top: float, height: float, high: float) -> Frame:
    return Frame(
        left=_LEFT,
        top=top,
        width=WIDTH - _LEFT - _RIGHT,
        height=height,
        x_range=(0.0, run.seconds),
        y_range=(0.0, high),
    )


def _room(x: float, words: str) -> tuple[float, float, str]:
    """From where to where a mark's words reach, and which end of them is at the mark."""
    wide = 6.9 * len(words) + 8
    return (x - wide, x, "end") if x + wide > WIDTH else (x, x + wide, "start")


def _marks(run: Run, frame: Frame, bottom: float, host: str = "") -> list[str]:
    """A line for each mark through the whole picture, its words above in one of two rows.

    Words that have no room are left out; the line stays, and has them as its title.
    """
    parts = []
    taken: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for mark in sorted(run.marks, key=lambda one: one.at_s):
        if host and mark.host not in ("", host):
            continue
        x = frame.x(mark.at_s)
        low, high, anchor = _room(x, mark.text)
        free = [
            row for row in (0, 1) if all(high < start or low > end for start, end in taken[row])
        ]
        top = _MARK_TOP - 26 + 15 * (free[0] if free else 1)
        parts.append(line(x, top, x, bottom, f"mark {mark.kind}", title=mark.text))
        if free:
            taken[free[0]].append((low, high))
            shift = -4 if anchor == "end" else 4
            parts.append(text(x + shift, top + 9, mark.text, f"word {mark.kind}", anchor))
    return parts


def _means(run: Run, frame: Frame) -> list[str]:
    """Lines for the means before, during and after, with their value."""
    if run.verdict is None or not run.bands:
        return []
    first = min(one.from_s for one in run.bands)
    last = max(one.to_s for one in run.bands)
    back = last + (run.verdict["failback"]["after_ms"] or 0.0) / 1e3
    parts = []
    for key, from_s, to_s in (
        ("before", 0.0, first), ("during", first, last), ("after", back, run.seconds)
    ):  # fmt: skip
        mean = run.verdict.get(f"{key}_gb_per_s")
        if mean is None or to_s - from_s <= 0:
            continue
        y = frame.y(mean * 1e9)
        x1, x2 = frame.x(from_s) + 3, frame.x(to_s) - 3
        parts.append(line(x1, y, x2, y, "mean"))
        words = f"{key} {units.rate(mean * 1e9)}"
        if x2 - x1 > 7 * len(words):
            parts.append(text((x1 + x2) / 2, y + 16, words, "meanword", "middle"))
    return parts


def total_picture(run: Run) -> str:
    """What all ports received together."""
    high = highest(run.total) * 1.08 or 1.0
    frame = _frame(run, _MARK_TOP, 170, high)
    parts = [frame.y_axis(units.rate)]
    for band in run.bands:
        x1, x2 = frame.x(band.from_s), frame.x(band.to_s)
        parts.append(box(x1, frame.top, x2 - x1, frame.height, "band", title=band.text))
    parts.append(frame.area(run.total, "area"))
    parts.append(frame.curve(run.total, "curve"))
    parts += _means(run, frame)
    parts += _marks(run, frame, frame.bottom)
    parts.append(frame.x_axis("s"))
    return svg(WIDTH, frame.bottom + 24, parts, f"{run.title}: bandwidth of all NICs over time")


def _row(run: Run, track: Track, frame: Frame, host: str, *, carries: bool) -> list[str]:
    parts = [box(frame.left, frame.top, frame.width, frame.height, "rowback")]
    for band in run.bands:
        if band.port in (track.port, f"{host}/{track.port}"):
            x1, x2 = frame.x(band.from_s), frame.x(band.to_s)
            parts.append(
                box(x1, frame.top, max(2.0, x2 - x1), frame.height, "band", title=band.text)
            )
    for from_s, to_s in track.down:
        x1, x2 = frame.x(from_s), frame.x(to_s)
        parts.append(
            box(x1, frame.bottom - 4, max(2.0, x2 - x1), 4, "down", title="the port is down")
        )
    if carries:
        parts.append(frame.area(track.rates, "area"))
        parts.append(frame.curve(track.rates, "curve"))
    name = track.port[:-2] if track.port.endswith(":1") else track.port
    parts.append(text(frame.left - 8, frame.top + frame.height / 2 + 4, name, "name", "end"))
    return parts


def top_rate(tracks: Sequence[Track]) -> float:
    """The highest of all rates, which is the height of every row."""
    return max((highest(track.rates) for track in tracks), default=0.0)


def ports_picture(run: Run, host: str, tracks: Sequence[Track]) -> str:
    """A row for each NIC of a host, all to one scale."""
    high = top_rate(tracks)
    carries = high > 0
    row, gap = (44.0 if carries else 22.0), 6.0
    parts: list[str] = []
    frame = _frame(run, _MARK_TOP, row, high * 1.08 or 1.0)
    for index, track in enumerate(tracks):
        frame = _frame(run, _MARK_TOP + index * (row + gap), row, high * 1.08 or 1.0)
        parts += _row(run, track, frame, host, carries=carries)
    parts += _marks(run, frame, frame.bottom, host)
    parts.append(frame.x_axis("s"))
    label = f"{run.title}: bandwidth of each NIC of {host} over time"
    return svg(WIDTH, frame.bottom + 24, parts, label)


_PHASES = (("detect", "p-detect"), ("agree", "p-agree"), ("resume", "p-resume"))


def episodes_picture(episodes: Sequence[Episode], title: str) -> str:
    """Detect, agree and resume of each episode, in ms around the decision."""
    shown = list(episodes)[:12]
    before = max((one.detect_ms for one in shown), default=0.0)
    after = max((max(one.resume_ms, one.agree_ms) for one in shown), default=0.0) or 1.0
    row, gap, top, left = 22.0, 10.0, 26.0, 190.0
    height = len(shown) * (row + gap)
    frame = Frame(
        left=left,
        top=top,
        width=WIDTH - left - 160,
        height=height,
        x_range=(-before, after),
        y_range=(0.0, 1.0),
    )
    parts = []
    x = left
    for name, css in _PHASES:
        parts.append(box(x, 4, 12, 12, css))
        parts.append(text(x + 17, 14, name, "tick"))
        x += 82
    for index, one in enumerate(shown):
        y = top + index * (row + gap) + gap / 2
        edges = ((-one.detect_ms, 0.0), (0.0, one.agree_ms), (one.agree_ms, one.resume_ms))
        for (name, css), (from_ms, to_ms) in zip(_PHASES, edges):
            if to_ms > from_ms:
                x1, x2 = frame.x(from_ms), frame.x(to_ms)
                words = f"{name}: {units.milliseconds(to_ms - from_ms)}"
                parts.append(box(x1, y, max(1.5, x2 - x1), row, css, title=words))
        parts.append(text(left - 8, y + 15, one.where, "name", "end"))
        spent = units.milliseconds(max(one.agree_ms, one.resume_ms))
        words = f"moving after {spent}" if one.recovered else "not over"
        parts.append(text(frame.x(max(one.agree_ms, one.resume_ms)) + 6, y + 15, words, "tick"))
    parts.append(line(frame.x(0), top, frame.x(0), frame.bottom, "mark failover"))
    parts.append(frame.x_axis("ms", 8))
    return svg(WIDTH, frame.bottom + 24, parts, f"{title}: how long each episode took")
