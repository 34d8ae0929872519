"""Pictures of trainings: how long steps took, and the loss, of one run or of several."""

from __future__ import annotations

from collections.abc import Sequence

from railhop.report import units
from railhop.report.chart import Frame, box, line, svg, text
from railhop.report.pictures import WIDTH
from railhop.report.run import Run

_LEFT, _RIGHT = 96.0, 24.0


def steps_picture(run: Run) -> str:
    """A bar for each step at the time of its end, as high as it took."""
    high = max(one.ms for one in run.steps) * 1.08 or 1.0
    width = WIDTH - _LEFT - _RIGHT
    frame = Frame(
        left=_LEFT, top=14, width=width, height=120, x_range=(0.0, run.seconds), y_range=(0.0, high)
    )
    parts = [frame.y_axis(units.milliseconds, 3)]
    for band in run.bands:
        x1, x2 = frame.x(band.from_s), frame.x(band.to_s)
        parts.append(box(x1, frame.top, x2 - x1, frame.height, "band", title=band.text))
    bar = max(1.0, min(10.0, width / max(1, len(run.steps)) * 0.7))
    for one in run.steps:
        x, y = frame.x(one.at_s), frame.y(one.ms)
        title = f"step {one.number}: {units.milliseconds(one.ms)}"
        parts.append(box(x - bar / 2, y, bar, frame.bottom - y, "bar", title=title))
    parts.append(frame.x_axis("s"))
    return svg(WIDTH, frame.bottom + 24, parts, f"{run.title}: time of each training step")


def loss_picture(runs: Sequence[Run]) -> str:
    """The loss over steps; runs lie over each other, so a difference shows."""
    curves = [
        (run.title, [(float(one.number), one.loss) for one in run.steps if one.loss is not None])
        for run in runs
    ]
    curves = [(title, points) for title, points in curves if len(points) > 1]
    if not curves:
        return ""
    values = [y for _, points in curves for _, y in points]
    last = max(x for _, points in curves for x, _ in points)
    low, high = min(0.0, *values), max(values) * 1.05
    top = 12 + 16 * len(curves)
    frame = Frame(
        left=_LEFT,
        top=top,
        width=WIDTH - _LEFT - _RIGHT,
        height=180,
        x_range=(0.0, last),
        y_range=(low, high),
    )
    parts = [frame.y_axis(units.short)]
    for index, (title, points) in enumerate(curves):
        css = f"run{index % 4}"
        parts.append(frame.curve(points, f"loss {css}"))
        x, y = points[-1]
        if x < last:
            # It ended before the others did.
            cx, cy = frame.x(x), frame.y(y)
            parts.append(line(cx - 5, cy - 5, cx + 5, cy + 5, f"cross {css}"))
            parts.append(line(cx - 5, cy + 5, cx + 5, cy - 5, f"cross {css}"))
        parts.append(line(_LEFT, 10 + 16 * index, _LEFT + 24, 10 + 16 * index, f"loss {css}"))
        words = f"{title}: {len(points)} steps, loss {units.short(y)} at the end"
        parts.append(text(_LEFT + 32, 14 + 16 * index, words, "tick"))
    parts.append(frame.x_axis("steps"))
    return svg(WIDTH, frame.bottom + 24, parts, "loss over steps")
