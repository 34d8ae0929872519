"""A drill's result, as its file has it, to what the page shows."""

from __future__ import annotations

import math
import time
from typing import Any

from railhop.report.run import Band, Episode, Mark, ReportError, Run, Track, TrainingStep

# Rates are means over so long: single messages are no news.
_WINDOW_S = 0.2
# Nobody knows what was moved in so long a time without a sample, which is 20 as a rule.
_HOLE_S = 1.0


def _rates(times: list[float], moved: list[int], seconds: float) -> list[tuple[float, float]]:
    """Bytes/s around each sample from 0 s to the end; NaN where samples are missing."""
    if len(times) != len(moved):
        raise ReportError(f"{len(times)} times and {len(moved)} counters do not match")
    found = []
    low = 0
    for high, time_s in enumerate(times):
        while times[low] < time_s - _WINDOW_S:
            low += 1
        if low == high:
            low = max(0, high - 1)
        if high and time_s - times[high - 1] > _HOLE_S:
            low = high
            found.append((min(max(0.0, time_s), seconds), math.nan))
        elif low < high and 0 <= time_s <= seconds:
            rate = (moved[high] - moved[low]) / (time_s - times[low])
            found.append((time_s, max(0.0, rate)))
    return found


def _downs(times: list[float], up: list[bool], seconds: float) -> list[tuple[float, float]]:
    found = []
    since = None
    for time_s, is_up in zip(times, up):
        if not is_up and since is None:
            since = time_s
        elif is_up and since is not None:
            found.append((max(0.0, since), time_s))
            since = None
    if since is not None:
        found.append((max(0.0, since), seconds))
    return found


def episode_of(entry: dict[str, Any], start_unix_ns: int) -> Episode:
    """From Episode.to_dict() of the admin API."""
    return Episode(
        at_s=(entry["begin_unix_ns"] - start_unix_ns) / 1e9,
        where="/".join(one for one in (entry.get("host", ""), entry["port"]) if one),
        peer=" ".join(one for one in (entry["peer_host"], entry["peer_port"]) if one),
        cause=str(entry["cause"]),
        blame=str(entry["blame"]),
        connections=entry["connections"],
        detect_ms=entry["detect_ns"] / 1e6,
        agree_ms=entry["agree_ns"] / 1e6,
        resume_ms=entry["resume_ns"] / 1e6,
        bytes_resent=entry["bytes_resent"],
        ports_after=list(entry["ports_after"]),
        recovered=entry["recovered"],
    )


def _marks(whole: dict[str, Any]) -> list[Mark]:
    marks = []
    ends = []
    for one in whole["happenings"]:
        command = one["text"].split()[0] in ("failover", "hold")
        marks.append(Mark(one["at_s"], one["text"], "failover" if command else "fault"))
        if one["end_s"] is not None and one["at_s"] < one["end_s"] < whole["seconds"]:
            ends.append(one["end_s"])
            marks.append(Mark(one["end_s"], "lifted" if command else "repaired", "repair"))
    after_ms = whole["verdict"]["failback"]["after_ms"]
    if after_ms and ends and max(ends) + after_ms / 1e3 < whole["seconds"]:
        marks.append(Mark(max(ends) + after_ms / 1e3, "failback", "failback"))
    return marks


def run_of_drill(whole: dict[str, Any]) -> Run:
    """Raises what comes of a missing key or a wrong type: load.py makes a sentence of it."""
    seconds = float(whole["seconds"])
    series = whole["series"]
    times = series["times_s"]
    start = time.gmtime(whole["started_unix_ns"] / 1e9)
    run = Run(
        title=whole["title"],
        about=whole["scenario"]["about"],
        seconds=seconds,
        facts=[
            ("fabric", whole["fabric"]),
            ("workload", whole["workload"]),
            ("began", time.strftime("%Y-%m-%d %H:%M:%S UTC", start)),
            ("lasted", f"{seconds:.1f} s"),
        ],
        verdict=whole["verdict"],
        messages=whole["messages"],
        marks=_marks(whole),
    )
    total = [0] * len(times)
    for port, moved in series["moved_bytes"].items():
        host, name = port.split("/", 1)
        track = Track(
            name, _rates(times, moved, seconds), _downs(times, series["up"][port], seconds)
        )
        run.tracks.setdefault(host, []).append(track)
        # Every byte is sent by one port and received by another.
        total = [a + b / 2 for a, b in zip(total, moved)]
    run.total = _rates(times, total, seconds)
    for one in whole["happenings"]:
        end_s = seconds if one["end_s"] is None else min(one["end_s"], seconds)
        run.bands.append(Band(one["at_s"], end_s, one["port"], one["text"]))
    run.episodes = [episode_of(one, whole["started_unix_ns"]) for one in whole["episodes"]]
    run.steps = [
        TrainingStep(one["time_s"], one["step"], one["ms"], one.get("loss"))
        for one in whole["steps"]
    ]
    return run
