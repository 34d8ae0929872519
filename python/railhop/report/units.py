"""Numbers as people read them."""

from __future__ import annotations


def rate(bytes_per_s: float) -> str:
    """Such as "184 MB/s"."""
    for limit, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bytes_per_s >= limit:
            return f"{short(bytes_per_s / limit)} {unit}"
    return f"{bytes_per_s:.0f} B/s"


def size(count: float) -> str:
    """Such as "1.2 MB"."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{short(count / limit)} {unit}"
    return f"{count:.0f} B"


def short(value: float) -> str:
    """Three digits that count."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def milliseconds(value: float) -> str:
    """Such as "1.2 ms" or "1.07 s"."""
    return f"{short(value / 1e3)} s" if value >= 1000 else f"{short(value)} ms"
