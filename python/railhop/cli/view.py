"""A process's health as tables."""

from __future__ import annotations

import collections
import os
import time
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from railhop.cli.common import words_in
from railhop.report.units import milliseconds, size

_STYLES = {
    "ok": "green", "up": "green", "good": "green", "healthy": "green",
    "degraded": "yellow", "suspect": "yellow", "hold_down": "yellow", "draining": "yellow",
    "held": "yellow", "on_backup": "yellow", "recovering": "yellow", "doubted": "yellow",
    "no_path": "bold red", "down": "red", "removed": "red", "failed": "red", "ended": "red",
}  # fmt: skip
# Longer lists are counted, not shown.
_ROWS = 12
_EPISODES = 6
_PROGRAM = 70


def _word(state: Any) -> Text:
    return Text(words_in(str(state)), style=_STYLES.get(str(state), ""))


def _since(unix_ns: int, now_unix_ns: int) -> str:
    if not unix_ns:
        return "start"
    seconds = max(0, now_unix_ns - unix_ns) / 1e9
    for limit, unit, count in ((86400, "d", 86400), (3600, "h", 3600), (60, "min", 60)):
        if seconds >= limit:
            return f"{seconds / count:.0f} {unit}"
    return f"{seconds:.0f} s"


def _table(*heads: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        table.add_column(head, justify="right" if head in right else "left", no_wrap=True)
    return table


def short_program(program: str) -> str:
    """A command line without the way to its program, cut."""
    name, blank, rest = program.partition(" ")
    text = os.path.basename(name) + blank + rest
    return text if len(text) <= _PROGRAM else text[: _PROGRAM - 3] + "..."


def ports(health: dict[str, Any]) -> Table:
    """A row each."""
    now = health["process"]["now_unix_ns"]
    right = ("connections", "lanes", "for others", "speed")
    table = _table("port", "state", "since", "connections", "lanes", "for others", "speed", "why",
                   right=right)  # fmt: skip
    for one in health["ports"]:
        cause = str(one["cause"])
        why = "" if cause in ("none", "unknown") else words_in(cause)
        if one["held_by_command"]:
            why = "by command"
        table.add_row(
            one["name"], _word(one["state"]), _since(one["since_unix_ns"], now),
            str(one["connections"]), str(one["lanes"]), str(one["lanes_backup"]),
            f"{one['speed_mbps'] // 1000} Gb/s", why,
        )  # fmt: skip
    return table


def connections(health: dict[str, Any]) -> list[RenderableType]:
    """How many are how; a row for each that is not as it should be."""
    every = health["connections"]
    states = collections.Counter(str(one["state"]) for one in every)
    line = Text(f"{len(every)} connections: " if every else "no connections")
    for index, (state, count) in enumerate(states.most_common()):
        line.append(", " if index else "")
        line.append(f"{count} {words_in(state)}", style=_STYLES.get(state, ""))
    odd = [one for one in every if str(one["state"]) not in ("healthy", "unprotected")]
    if not odd:
        return [line]
    table = _table("connection", "", "state", "now on", "own", "bytes", right=("bytes",))
    for one in odd[:_ROWS]:
        table.add_row(
            one["id"], one["label"], _word(one["state"]), " ".join(one["ports"]),
            " ".join(one["home_ports"]), size(one["bytes"]),
        )  # fmt: skip
    more = [Text(f"and {len(odd) - _ROWS} more", style="dim")] if len(odd) > _ROWS else []
    return [line, table, *more]


def paths(health: dict[str, Any]) -> list[RenderableType]:
    """Those that are not good."""
    odd = [one for one in health["paths"] if str(one["state"]) not in ("good", "unproved")]
    if not odd:
        return [Text(f"{len(health['paths'])} paths, none in doubt")]
    table = _table("path", "peer", "state", "probes lost", right=("probes lost",))
    for one in odd[:_ROWS]:
        peer = f"{one['peer_host']} {one['peer_port']}"
        lost = f"{one['probes_lost']} of {one['probes_sent']}"
        table.add_row(one["port"], peer, _word(one["state"]), lost)
    more = [Text(f"and {len(odd) - _ROWS} more", style="dim")] if len(odd) > _ROWS else []
    return [Text(f"{len(health['paths'])} paths, {len(odd)} not good"), table, *more]


def episodes(health: dict[str, Any]) -> list[RenderableType]:
    """The last ones."""
    if not health["episodes"]:
        return [Text("no episodes")]
    table = _table(
        "episode", "port", "peer", "first sign", "to blame", "moving after", "sent again",
        right=("moving after", "sent again"),
    )  # fmt: skip
    for one in health["episodes"][-_EPISODES:]:
        clock = time.strftime("%H:%M:%S", time.localtime(one["begin_unix_ns"] / 1e9))
        over = milliseconds(one["resume_ns"] / 1e6) if one["recovered"] else "not yet"
        table.add_row(
            clock, one["port"], one["peer_host"], words_in(str(one["cause"])),
            words_in(str(one["blame"])), over, size(one["bytes_resent"]),
        )  # fmt: skip
    return [table]


def parts(health: dict[str, Any]) -> list[RenderableType]:
    """All of one process."""
    process = health["process"]
    head = Text(f"{process['pid']} {short_program(process['program'])}", style="bold")
    if process["job"]:
        head.append(f"  job {process['job']}", style="")
    head.append("  ")
    head.append(_word(health["verdict"]))
    if not process["failover"]:
        head.append("  failover is off", style="yellow")
    return [
        head, ports(health), *connections(health), *paths(health), *episodes(health), Text(""),
    ]  # fmt: skip
