"""The live view of `railhop status`, as a person sees it in a terminal."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from railhop.cli.program import PROGRAM
from railhop.cli.terminal import PATIENCE_S, Terminal
from railhop.drills.job import Job
from railhop.drills.streams import Streams
from railhop.drills.world import World
from railhop.testing.surroundings import apart

STATUS = [*PROGRAM, "status", "--interval", "0.2"]
PORTS = [f"mlx5_{index}:1" for index in range(4)]


@pytest.fixture(autouse=True)
def _sockets() -> Iterator[None]:
    with apart():
        yield


@pytest.fixture
def job(_sockets: None) -> Iterator[Job]:
    with World("two-hosts-4nic") as world, Job(world, Streams()) as running:
        yield running


def given_back(terminal: Terminal) -> None:
    """The cursor shows, the screen behind is back, and keys are echoed as before."""
    assert not terminal.cursor_hidden
    assert terminal.raw.rindex(b"\x1b[?1049l") > terminal.raw.rindex(b"\x1b[?1049h")
    assert terminal.settings_after == terminal.settings


def processes(screen: str) -> list[list[str]]:
    """The lines of each process on it."""
    found: list[list[str]] = []
    for line in screen.splitlines()[:-1]:
        if line.startswith("process "):
            found.append([])
        if line and found:
            found[-1].append(line)
    return found


def well(shown: list[list[str]]) -> bool:
    """Whether two processes are on it, and all is well with both."""
    wanted = [rf"{port}  up  +start .* 200 Gb/s" for port in PORTS]
    wanted += [r"process \d+ on \S+  ok  ", r"\d+ paths, none in doubt$", r"no episodes$"]
    wanted.append(r"4 connections: 4 healthy$")
    return len(shown) == 2 and all(has(lines, *wanted) for lines in shown)


def left(shown: list[list[str]], peer: str) -> bool:
    """Whether a process is on it and says all there is to say of mlx5_0 that is down."""
    return bool(shown) and has(
        shown[0],
        r"process \d+ on \S+  degraded  ",
        r"mlx5_0:1  down  .* (port down|told by peer)$",
        r"4 connections: 3 healthy, 1 on backup$",
        # The other end is told from this one, though both are on one host.
        rf"mlx5_0 (to|from) {peer}  on backup  mlx5_1:1 mlx5_2:1 mlx5_3:1  mlx5_0:1 .* [0-9a-f]+$",
        rf"mlx5_0:1  {peer} mlx5_\d:1  failed  +\d+ of \d+$",
        rf"\d\d:\d\d:\d\d  mlx5_0:1  {peer}  .* m?s +\S+ k?B$",
    )


def over(process: Any) -> None:
    """Waits until it has left a port and everything moves again."""
    deadline = time.monotonic() + PATIENCE_S
    health = process.health()
    while health.verdict != "degraded" or not all(one.recovered for one in health.episodes):
        assert time.monotonic() < deadline, health
        time.sleep(0.05)
        health = process.health()


def has(lines: list[str], *patterns: str) -> bool:
    """Whether each begins one of the lines."""
    return all(any(re.match(pattern, line) for line in lines) for pattern in patterns)


def whole(screen: str) -> None:
    """No word is cut, and every line begins as one of ours does: none is the rest of another."""
    first = r"process \d+ on |port |mlx5_\d:1  |\d+ connections?: |connection |mlx5_\d (to|from) |"
    first += r"\d+ paths?, |path |no episodes|episode |\d\d:\d\d:\d\d"
    for line in screen.splitlines():
        assert not line or re.match(first, line), screen
        # Program names may be cut, nothing else.
        assert "\u2026" not in line or line.startswith("process "), screen


def test_ports_paths_connections_and_an_episode_are_on_it(job: Job) -> None:
    with Terminal(STATUS, columns=100, lines=30) as terminal:
        screen = terminal.wait("two processes", lambda text: well(processes(text)))
        whole(screen)
        both = processes(screen)
        for lines in both:
            assert lines[1].split()[:4] == ["port", "state", "since", "connections"], screen
            assert len(lines) == 9, screen
        names = ["{3}:{1}".format(*lines[0].split()) for lines in both]
        job.fault("alpha/mlx5_0 down")
        screen = terminal.wait("one end", lambda text: left(processes(text)[:1], names[1]))
        whole(screen)
        # There may be a line too many for the other.
        terminal.press("\x1b[6~")
        screen = terminal.wait("the other", lambda text: left(processes(text)[-1:], names[0]))
        whole(screen)
        terminal.press("q")
        assert terminal.end() == 0
        given_back(terminal)


def test_a_narrow_one_leaves_columns_out_and_scrolls(job: Job) -> None:
    job.fault("alpha/mlx5_0 down")
    for process in job.processes():
        over(process)
    with Terminal(STATUS, columns=60, lines=20) as terminal:
        screen = terminal.wait("the episode", lambda text: "moving after" in text)
        whole(screen)
        lines = screen.splitlines()
        assert len(processes(screen)[0]) > 10, screen
        assert re.search(r"; lines 1 to 19 of \d+, arrows scroll", lines[-1]), screen
        assert len(lines[0]) <= 60
        (port,) = [line for line in processes(screen)[0] if line.startswith("port ")]
        assert port.split()[:3] == ["port", "state", "since"], screen
        assert "of them backup" not in port, screen
        terminal.press(" ")
        further = re.compile(r"; lines (?!1 to)(\d+) to \d+ of \d+, arrows scroll$")
        screen = terminal.wait("what follows", lambda text: bool(further.search(text)))
        whole(screen)
        first = further.search(screen)
        assert first, screen
        terminal.press("\x1b[A")
        terminal.wait("a line up", lambda text: f"; lines {int(first[1]) - 1} to " in text)
        # A larger window has room for all of it.
        terminal.resize(100, 50)
        screen = terminal.wait("all", lambda text: "lines" not in text and "sent again" in text)
        assert len(processes(screen)) == 2, screen
        terminal.press("\x03")
        assert terminal.end() == 0
        given_back(terminal)


def test_nobody_is_there_then_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    with Terminal(STATUS, columns=60, lines=20) as terminal:
        screen = terminal.wait("nobody", lambda text: "No process with Railhop" in text)
        assert "railhop run -- CMD" in screen.replace("\n", " ")
        with World("two-hosts-4nic") as world, Job(world, Streams()) as job:
            terminal.wait("the job", lambda text: "mlx5_3:1" in text)
            job.finish()
        terminal.wait("its end", lambda text: "No process with Railhop" in text)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
        given_back(terminal)


@pytest.mark.parametrize("keys", [" q", "\x1b[Bq", "a paste with a q in it", "qq"])
def test_an_end_among_other_keys_is_heard(keys: str) -> None:
    with Terminal(STATUS, columns=60, lines=20) as terminal:
        terminal.wait("nobody", lambda text: "No process with Railhop" in text)
        terminal.press(keys)
        assert terminal.end() == 0
        given_back(terminal)


def test_the_one_process_that_is_watched_ends(job: Job) -> None:
    pid = job.processes("beta")[0].info().pid
    command = [*STATUS, "--pid", str(pid)]
    with Terminal(command, columns=100, lines=30) as terminal:
        screen = terminal.wait("one process", lambda text: len(processes(text)) == 1)
        assert f"process {pid} on" in screen, screen
        job.finish()
        assert terminal.end() == 2
        given_back(terminal)
        assert b"railhop: " in terminal.raw.rpartition(b"\x1b[?1049l")[2]
