"""A process's health as tables, as wide as there is room.

A column that does not fit is left out whole, the least needed first: half a port's name is worse
than no speed.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any, Optional, Union

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from railhop.cli.common import cause_in, words_in
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
# Between two columns.
_GAP = 2
# Of an instance, to tell processes of one host apart.
_DIGITS = 4

_Cell = Union[str, Text]


@dataclasses.dataclass(frozen=True)
class _Column:
    """rank: the greatest goes first when there is no room; 0 stays."""

    head: str
    rank: int = 0
    right: bool = False


@dataclasses.dataclass(frozen=True)
class View:
    """How much room there is, and who is who.

    width: columns of the terminal; None for no limit. here: instance -> name, of the processes of
    this node.
    """

    width: Optional[int] = None
    here: dict[str, str] = dataclasses.field(default_factory=dict)

    def table(self, columns: Sequence[_Column], rows: Sequence[Sequence[_Cell]]) -> Table:
        """The rows, in the columns that fit."""
        widths = [
            max(cell_len(str(cell)) for cell in (column.head, *(row[index] for row in rows)))
            for index, column in enumerate(columns)
        ]
        kept = list(range(len(columns)))
        while self.width is not None and sum(widths[i] + _GAP for i in kept) - _GAP > self.width:
            last = max(kept, key=lambda index: columns[index].rank)
            if columns[last].rank == 0:
                break
            kept.remove(last)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for index in kept:
            column = columns[index]
            justify = "right" if column.right else "left"
            table.add_column(column.head, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        for row in rows:
            table.add_row(*(row[index] for index in kept))
        return table


class _Peers:
    """What to call the other ends of a process's connections."""

    def __init__(self, health: dict[str, Any], view: View) -> None:
        self._here = view.here
        self._on: dict[str, set[str]] = {}
        for one in [*health["connections"], *health["paths"]]:
            self._on.setdefault(one["peer_host"], set()).add(str(one["peer_instance"]))

    def name(self, host: str, instance: str) -> str:
        """HOST:PID on this node; HOST if one of its processes is a peer, else HOST/INSTANCE."""
        if instance in self._here:
            return self._here[instance]
        if len(self._on.get(host, ())) > 1:
            return f"{host}/{instance[:_DIGITS]}"
        return host

    def of_host(self, host: str) -> str:
        """Where the instance is not known: its name if only one can be meant."""
        instances = self._on.get(host, set())
        return self.name(host, next(iter(instances))) if len(instances) == 1 else host


def _line(*parts: _Cell) -> Text:
    """One line, cut at the edge."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for part in parts:
        text.append(part)
    return text


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


def short_program(program: str) -> str:
    """A command line without the way to its program, cut."""
    name, blank, rest = program.partition(" ")
    text = os.path.basename(name) + blank + rest
    return text if len(text) <= _PROGRAM else text[: _PROGRAM - 3] + "..."


_PORT = (
    _Column("port"), _Column("state"), _Column("since", 2), _Column("connections", 3, right=True),
    _Column("lanes", 5, right=True), _Column("of them backup", 6, right=True),
    _Column("speed", 4, right=True), _Column("why", 1),
)  # fmt: skip


def ports(health: dict[str, Any], view: View) -> Table:
    """A row each."""
    now = health["process"]["now_unix_ns"]
    rows = []
    for one in health["ports"]:
        why = "by command" if one["held_by_command"] else cause_in(one["cause"])
        rows.append((
            one["name"], _word(one["state"]), _since(one["since_unix_ns"], now),
            str(one["connections"]), str(one["lanes"]), str(one["lanes_backup"]),
            f"{one['speed_mbps'] // 1000} Gb/s", why,
        ))  # fmt: skip
    return view.table(_PORT, rows)


_CONNECTION = (
    _Column("connection"), _Column("state"), _Column("now on", 1), _Column("own", 2),
    _Column("bytes", 3, right=True), _Column("id", 4),
)  # fmt: skip


def connections(health: dict[str, Any], view: View) -> list[RenderableType]:
    """How many are how; a row for each that is not as it should be."""
    every, peers = health["connections"], _Peers(health, view)
    states = collections.Counter(str(one["state"]) for one in every)
    line = _line(_many(len(every), "connection") + ": " if every else "no connections")
    for index, (state, count) in enumerate(states.most_common()):
        line.append(", " if index else "")
        line.append(f"{count} {words_in(state)}", style=_STYLES.get(state, ""))
    odd = [one for one in every if str(one["state"]) not in ("healthy", "unprotected")]
    if not odd:
        return [line]
    rows = []
    for one in odd[:_ROWS]:
        peer = peers.name(one["peer_host"], str(one["peer_instance"]))
        label = one["label"]
        if one["peer_host"] and label.endswith(one["peer_host"]):
            label = label.removesuffix(one["peer_host"]) + peer
        rows.append((
            label, _word(one["state"]), " ".join(one["ports"]), " ".join(one["home_ports"]),
            size(one["bytes"]), one["id"],
        ))  # fmt: skip
    more = [Text(f"and {len(odd) - _ROWS} more", style="dim")] if len(odd) > _ROWS else []
    return [line, view.table(_CONNECTION, rows), *more]


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


_PATH = (
    _Column("path"), _Column("peer", 1), _Column("state"), _Column("probes lost", 2, right=True),
)  # fmt: skip


def paths(health: dict[str, Any], view: View) -> list[RenderableType]:
    """Those that are not good."""
    odd = [one for one in health["paths"] if str(one["state"]) not in ("good", "unproved")]
    count = _many(len(health["paths"]), "path")
    if not odd:
        return [_line(f"{count}, none in doubt")]
    peers = _Peers(health, view)
    rows = []
    for one in odd[:_ROWS]:
        peer = peers.name(one["peer_host"], str(one["peer_instance"]))
        lost = f"{one['probes_lost']} of {one['probes_sent']}"
        rows.append((one["port"], f"{peer} {one['peer_port']}", _word(one["state"]), lost))
    more = [Text(f"and {len(odd) - _ROWS} more", style="dim")] if len(odd) > _ROWS else []
    return [_line(f"{count}, {len(odd)} not good"), view.table(_PATH, rows), *more]


_EPISODE = (
    _Column("episode"), _Column("port"), _Column("peer", 3), _Column("first sign"),
    _Column("to blame", 2), _Column("moving after", 1, right=True),
    _Column("sent again", 4, right=True),
)  # fmt: skip


def episodes(health: dict[str, Any], view: View) -> list[RenderableType]:
    """The last ones."""
    if not health["episodes"]:
        return [_line("no episodes")]
    peers = _Peers(health, view)
    rows = []
    for one in health["episodes"][-_EPISODES:]:
        clock = time.strftime("%H:%M:%S", time.localtime(one["begin_unix_ns"] / 1e9))
        over = milliseconds(one["resume_ns"] / 1e6) if one["recovered"] else "not yet"
        rows.append((
            clock, one["port"], peers.of_host(one["peer_host"]), cause_in(one["cause"]),
            words_in(str(one["blame"])), over, size(one["bytes_resent"]),
        ))  # fmt: skip
    return [view.table(_EPISODE, rows)]


def parts(health: dict[str, Any], view: View) -> list[RenderableType]:
    """All of one process."""
    process = health["process"]
    head = _line(Text(f"process {process['pid']} on {process['host']}", style="bold"), "  ")
    head.append(_word(health["verdict"]))
    if not process["failover"]:
        head.append("  failover is off", style="yellow")
    if process["job"]:
        head.append(f"  job {process['job']}")
    head.append(f"  {short_program(process['program'])}", style="dim")
    return [
        head, ports(health, view), *connections(health, view), *paths(health, view),
        *episodes(health, view), Text(""),
    ]  # fmt: skip
