"""A frame of a chart: from seconds and values to places, with axes. SVG by hand, no library.

Colours are classes of style.py, so that a picture follows the reader's light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from xml.sax.saxutils import escape


def nice_step(span: float, count: int) -> float:
    """1, 2 or 5 times a power of ten, so that about `count` of them make up `span`."""
    if span <= 0 or count < 1:
        return 1.0
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    for factor in (1, 2, 5):
        if factor * power >= rough * 0.999:
            return factor * power
    return 10 * power


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round values from `low` to `high`."""
    step = nice_step(high - low, count)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def place(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def text(x: float, y: float, words: str, css: str = "", anchor: str = "start") -> str:
    """One line of words."""
    kind = f' class="{css}"' if css else ""
    return (
        f'<text x="{place(x)}" y="{place(y)}"{kind} text-anchor="{anchor}">{escape(words)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, css: str, *, title: str = "") -> str:
    """A straight line; `title` is shown under the pointer."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<line x1="{place(x1)}" y1="{place(y1)}" x2="{place(x2)}" y2="{place(y2)}" '
        f'class="{css}">{inner}</line>'
    )


def box(x: float, y: float, width: float, height: float, css: str, *, title: str = "") -> str:
    """A rectangle; `title` is shown under the pointer."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{place(x)}" y="{place(y)}" width="{place(max(0.0, width))}" '
        f'height="{place(max(0.0, height))}" class="{css}">{inner}</rect>'
    )


def svg(width: float, height: float, parts: Iterable[str], label: str) -> str:
    """A picture as wide as its column; `label` is for those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {place(width)} {place(height)}" role="img" '
        f'aria-label="{escape(label, {chr(34): "&quot;"})}">{"".join(parts)}</svg>'
    )


def _parts(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """What is between NaNs, of two points or more."""
    parts: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if math.isnan(point[1]):
            parts.append([])
        else:
            parts[-1].append(point)
    return [part for part in parts if len(part) > 1]


def highest(points: Iterable[tuple[float, float]]) -> float:
    """Of the values that are known; 0 if there is none."""
    return max((value for _, value in points if not math.isnan(value)), default=0.0)


class Frame:
    """A rectangle of a picture with a scale for each direction."""

    def __init__(
        self,
        *,
        left: float,
        top: float,
        width: float,
        height: float,
        x_range: tuple[float, float],
        y_range: tuple[float, float],
    ) -> None:
        self.left, self.top, self.width, self.height = left, top, width, height
        self._x0, self._x1 = x_range
        self._y0, self._y1 = y_range

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width

    def x(self, value: float) -> float:
        span = self._x1 - self._x0 or 1.0
        share = (value - self._x0) / span
        return self.left + min(max(share, 0.0), 1.0) * self.width

    def y(self, value: float) -> float:
        span = self._y1 - self._y0 or 1.0
        share = (value - self._y0) / span
        return self.bottom - min(max(share, 0.0), 1.0) * self.height

    def curve(self, points: Sequence[tuple[float, float]], css: str) -> str:
        """A line through points, broken where one is NaN."""
        paths = [self._path(part) for part in _parts(points)]
        return f'<path d="M{"M".join(paths)}" class="{css}"/>' if paths else ""

    def _path(self, points: Sequence[tuple[float, float]]) -> str:
        return "L".join(f"{place(self.x(x))} {place(self.y(y))}" for x, y in points)

    def area(self, points: Sequence[tuple[float, float]], css: str) -> str:
        """The surface below points, with nothing where one is NaN."""
        low = place(self.bottom)
        paths = []
        for part in _parts(points):
            first, last = place(self.x(part[0][0])), place(self.x(part[-1][0]))
            paths.append(f"M{first} {low}L{self._path(part)}L{last} {low}Z")
        return f'<path d="{"".join(paths)}" class="{css}"/>' if paths else ""

    def x_axis(self, unit: str, count: int = 10) -> str:
        """Ticks with numbers below; the last one has the unit."""
        values = ticks(self._x0, self._x1, count)
        parts = [line(self.left, self.bottom, self.right, self.bottom, "axis")]
        for value in values:
            x = self.x(value)
            parts.append(line(x, self.bottom, x, self.bottom + 4, "axis"))
            words = f"{value:g}" + (f" {unit}" if value == values[-1] else "")
            parts.append(text(x, self.bottom + 16, words, "tick", "middle"))
        return "".join(parts)

    def y_axis(self, name: Callable[[float], str], count: int = 4) -> str:
        """Lines across with values left."""
        parts = []
        for value in ticks(self._y0, self._y1, count):
            y = self.y(value)
            parts.append(line(self.left, y, self.right, y, "grid"))
            parts.append(text(self.left - 6, y + 4, name(value), "tick", "end"))
        return "".join(parts)
