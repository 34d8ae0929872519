"""A journal's entries to what the page shows: no bandwidth, but states and episodes."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from railhop.report.run import Band, Episode, Mark, Run, Track

# States in which a port carries nothing.
_OUT = ("down", "held", "draining", "removed", "hold_down")
# Around the first and last entry.
_MARGIN_S = 1.0


def _key(entry: dict[str, Any]) -> tuple[Any, Any]:
    """Of the process that wrote it: episodes and serials are counted in each."""
    return entry.get("host", ""), entry.get("process", 0)


def _label(key: tuple[Any, Any], keys: int) -> str:
    host, process = key
    if keys == 1 and not process:
        return str(host or "this process")
    return f"{host} process {process}".strip()


class _Reader:
    """Goes through the entries of one process."""

    def __init__(self, label: str, start_ns: int, seconds: float) -> None:
        self.label = label
        self._start_ns, self._seconds = start_ns, seconds
        self._out_since: dict[str, float] = {}
        self.downs: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.episodes: dict[int, Episode] = {}
        self._touched: dict[int, set[str]] = defaultdict(set)
        self.marks: list[Mark] = []

    def read(self, entry: dict[str, Any]) -> None:
        at_s = (entry["time_unix_ns"] - self._start_ns) / 1e9
        port = entry.get("port") or ""
        if port:
            self.downs.setdefault(port, [])
        kind = entry["kind"]
        if kind == "port_state" and port:
            self._state(port, at_s, str(entry.get("text", "")))
        elif kind == "episode_begun":
            self._begin(entry, at_s, port)
        elif kind == "command":
            self.marks.append(Mark(at_s, str(entry.get("text", "")), "failover", self.label))
        elif entry.get("episode") in self.episodes:
            self._go_on(self.episodes[entry["episode"]], entry, at_s)

    def _state(self, port: str, at_s: float, state: str) -> None:
        if state.split(":", maxsplit=1)[0].strip() in _OUT:
            self._out_since.setdefault(port, at_s)
        elif port in self._out_since:
            self.downs[port].append((self._out_since.pop(port), at_s))

    def _begin(self, entry: dict[str, Any], at_s: float, port: str) -> None:
        self.episodes[entry["episode"]] = Episode(
            at_s=at_s,
            where=port,
            peer=" ".join(x for x in (entry.get("peer_host"), entry.get("peer_port")) if x),
            cause=str(entry.get("cause", "")),
            blame=str(entry.get("blame", "")),
            connections=0,
            detect_ms=0.0,
            agree_ms=0.0,
            resume_ms=0.0,
            bytes_resent=0,
            ports_after=[],
            recovered=False,
        )
        self.marks.append(Mark(at_s, f"{port} left", "fault", self.label))

    def _go_on(self, episode: Episode, entry: dict[str, Any], at_s: float) -> None:
        kind = entry["kind"]
        if entry.get("connection"):
            self._touched[entry["episode"]].add(entry["connection"])
            episode.connections = len(self._touched[entry["episode"]])
        if kind == "resumed":
            episode.agree_ms = episode.agree_ms or (at_s - episode.at_s) * 1e3
        elif kind == "lanes_added" and entry.get("port"):
            if entry["port"] not in episode.ports_after:
                episode.ports_after.append(entry["port"])
        elif kind == "episode_recovered":
            episode.recovered = True
            episode.resume_ms = int(entry.get("value") or 0) / 1e6 or (at_s - episode.at_s) * 1e3
            episode.bytes_resent = int(entry.get("bytes") or 0)

    def tracks(self) -> list[Track]:
        for port, since in self._out_since.items():
            self.downs[port].append((since, self._seconds))
        return [Track(port, [], downs) for port, downs in sorted(self.downs.items())]


def run_of_journal(entries: list[dict[str, Any]], name: str) -> Run:
    """What a journal tells."""
    entries = sorted(entries, key=lambda one: int(one["time_unix_ns"]))
    start_ns = entries[0]["time_unix_ns"] - int(_MARGIN_S * 1e9)
    seconds = (entries[-1]["time_unix_ns"] - start_ns) / 1e9 + _MARGIN_S
    keys = sorted({_key(one) for one in entries}, key=str)
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(start_ns / 1e9))
    run = Run(
        title=f"Journal {name}",
        about="",
        seconds=seconds,
        facts=[
            ("entries", str(len(entries))),
            ("processes", str(len(keys))),
            ("begins", began),
            ("spans", f"{seconds:.1f} s"),
        ],
    )
    for key in keys:
        reader = _Reader(_label(key, len(keys)), start_ns, seconds)
        for entry in entries:
            if _key(entry) == key:
                reader.read(entry)
        tracks = reader.tracks()
        if tracks:
            run.tracks[reader.label] = tracks
        for episode in reader.episodes.values():
            end_s = episode.at_s + episode.resume_ms / 1e3 if episode.recovered else seconds
            port = f"{reader.label}/{episode.where}"
            run.bands.append(Band(episode.at_s, end_s, port, f"{episode.where}: {episode.cause}"))
            if len(keys) > 1:
                episode.where = f"{key[1]} {episode.where}"
            run.episodes.append(episode)
        run.marks += reader.marks
    run.episodes.sort(key=lambda one: one.at_s)
    return run
