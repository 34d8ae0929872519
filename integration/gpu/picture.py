"""The picture of several runs of one job: step times left, bytes by NIC right. SVG by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

_WIDTH, _ROW, _TOP, _LEFT, _GAP = 1080, 168, 64, 64, 84
_PLOT_WIDTH, _PLOT_HEIGHT = (_WIDTH - _LEFT - _GAP - 24) // 2, 96
_COLOURS = ("#1f6fb4", "#d9822b", "#4b9b4b", "#8a5fb0")


@dataclasses.dataclass(frozen=True)
class Run:
    """One row. Times are seconds since its first step."""

    title: str
    note: str
    rounds: Sequence[Sequence[float]]  # start, milliseconds
    faults: Sequence[tuple[float, float]]  # from, to
    ports: Sequence[str]
    moved: Sequence[Sequence[float]]  # time, bytes of each port so far
    ended: bool  # the job went on to its end


def rates(moved: Sequence[Sequence[float]], port: int) -> list[tuple[float, float]]:
    """(time, GB/s) between samples of a counter."""
    found = []
    for before, after in zip(moved, moved[1:], strict=False):
        seconds = after[0] - before[0]
        if seconds > 0:
            speed = (after[1 + port] - before[1 + port]) / seconds / 1e9
            found.append(((before[0] + after[0]) / 2, speed))
    return found


class _Plot:
    """A frame with its axes; y is log10 of milliseconds or linear."""

    def __init__(self, left: float, top: float, span_s: float, low: float, high: float) -> None:
        self.left, self.top, self.span_s = left, top, span_s
        self.low, self.high = low, high

    def x(self, seconds: float) -> float:
        clipped = min(max(seconds, 0.0), self.span_s)
        return self.left + clipped / self.span_s * _PLOT_WIDTH

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.top + _PLOT_HEIGHT * (1 - min(max(share, 0.0), 1.0))

    def frame(
        self, ticks: Sequence[tuple[float, str]], faults: Sequence[tuple[float, float]]
    ) -> str:
        parts = []
        for start, end in faults:
            width = self.x(end) - self.x(start)
            parts.append(
                f'<rect x="{self.x(start):.1f}" y="{self.top}" width="{width:.1f}" '
                f'height="{_PLOT_HEIGHT}" fill="#f6d5d5"/>'
            )
        for value, text in ticks:
            y = self.y(value)
            parts.append(
                f'<path d="M{self.left} {y:.1f}h{_PLOT_WIDTH}" stroke="#dddddd"/>'
                f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
            )
        for second in range(0, int(self.span_s) + 1, 2):
            y = self.top + _PLOT_HEIGHT
            parts.append(
                f'<text x="{self.x(second):.1f}" y="{y + 15}" text-anchor="middle">{second}</text>'
            )
        parts.append(
            f'<rect x="{self.left}" y="{self.top}" width="{_PLOT_WIDTH}" height="{_PLOT_HEIGHT}" '
            'fill="none" stroke="#888888"/>'
        )
        return "".join(parts)


def _steps(run: Run, top: float, span_s: float) -> str:
    plot = _Plot(_LEFT, top, span_s, 0, 4)
    ticks = [(0.0, "1 ms"), (1.0, "10 ms"), (2.0, "100 ms"), (3.0, "1 s"), (4.0, "10 s")]
    # Steps that fall on the same half of a pixel are one point.
    points = {
        (round(plot.x(start + ms / 1e3) * 2), round(plot.y(math.log10(max(ms, 1e-3))) * 2))
        for start, ms in run.rounds
        if start < span_s
    }
    path = "".join(f"M{x / 2:g} {y / 2:g}h.01" for x, y in sorted(points))
    text = plot.frame(ticks, run.faults)
    text += f'<path d="{path}" stroke="#1f6fb4" stroke-width="3" stroke-linecap="round"/>'
    if not run.ended and run.rounds:
        start, ms = run.rounds[-1]
        x = plot.x(start + ms / 1e3)
        y = top + _PLOT_HEIGHT / 2
        text += f'<path d="M{x:.1f} {top}v{_PLOT_HEIGHT}" stroke="#b00020" stroke-width="2"/>'
        text += f'<text x="{x + 6:.1f}" y="{y:.1f}" fill="#b00020">the job is over</text>'
    return text


def _bytes(run: Run, top: float, span_s: float, most: float) -> str:
    plot = _Plot(_LEFT + _PLOT_WIDTH + _GAP, top, span_s, 0, most)
    step = max(1, math.ceil(most / 4))
    ticks = [(float(v), str(v)) for v in range(0, int(most) + 1, step)]
    text = plot.frame(ticks, run.faults)
    for port, name in enumerate(run.ports):
        points = [(t, v) for t, v in rates(run.moved, port) if 0 <= t <= span_s]
        line = "L".join(f"{plot.x(t):.1f} {plot.y(v):.1f}" for t, v in points)
        colour = _COLOURS[port % len(_COLOURS)]
        if line:
            # Lines that lie on each other are both to be seen.
            dash = ' stroke-dasharray="5 4"' if port % 2 else ""
            text += f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>'
        x = plot.left + _PLOT_WIDTH - 84 * (len(run.ports) - port)
        text += f'<text x="{x}" y="{top - 6}" fill="{colour}">{escape(name)}</text>'
    return text


def draw(heading: str, runs: Sequence[Run], span_s: float) -> str:
    """The whole SVG; every row has the same axes."""
    height = _TOP + _ROW * len(runs) + 8
    fastest = [
        v for run in runs for port in range(len(run.ports)) for _, v in rates(run.moved, port)
    ]
    most = max(1.0, math.ceil(max(fastest, default=1.0)))
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12" fill="#222222">'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
        f'<text x="{_LEFT}" y="22" font-size="16">{escape(heading)}</text>'
        f'<text x="{_LEFT}" y="42" fill="#666666">left: time of each step; right: '
        "bytes out and in, GB/s, by NIC of alpha; x: seconds; red: the port is down</text>"
    )
    for row, run in enumerate(runs):
        top = _TOP + _ROW * row + 26
        text += f'<text x="{_LEFT}" y="{top - 8}" font-weight="bold">{escape(run.title)}</text>'
        text += f'<text x="{_LEFT}" y="{top + _PLOT_HEIGHT + 32}" fill="#666666">'
        text += f"{escape(run.note)}</text>"
        text += _steps(run, top, span_s) + _bytes(run, top, span_s, most)
    return text + "</svg>\n"
