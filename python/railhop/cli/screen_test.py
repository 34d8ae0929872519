"""The live view of `railhop status`, as a person sees it in a terminal."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator

import pytest

from railhop.cli.terminal import Terminal
from railhop.drills.job import Job
from railhop.drills.streams import Streams
from railhop.drills.world import World

STATUS = [sys.executable, "-m", "railhop.cli.main", "status", "--interval", "0.2"]
PORTS = [f"mlx5_{index}:1" for index in range(4)]


@pytest.fixture(autouse=True)
def _sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", ":".join(os.path.abspath(one) for one in sys.path))
    # Short, for a socket's path; and no other job of this machine is seen.
    with tempfile.TemporaryDirectory(prefix="railhop-", dir="/tmp") as folder:
        monkeypatch.setenv("RAILHOP_ADMIN_DIR", folder)
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


def recovered(shown: list[list[str]]) -> bool:
    """Whether the last line of the last of them is an episode that is over."""
    last = shown[-1][-1] if shown else ""
    return bool(re.match(r"\d\d:\d\d:\d\d  mlx5_0:1 .* ms +\S+ k?B", last))


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
        screen = terminal.wait("two processes", lambda text: len(processes(text)) == 2)
        whole(screen)
        for lines in processes(screen):
            assert " ok " in lines[0], screen
            assert lines[1].split()[:4] == ["port", "state", "since", "connections"], screen
            shown = [line.split()[:2] for line in lines[2:6]]
            assert shown == [[port, "up"] for port in PORTS], screen
            assert all("200 Gb/s" in line for line in lines[2:6]), screen
            rest = ["4 connections: 4 healthy", "4 paths, none in doubt", "no episodes"]
            assert lines[6:] == rest, screen
        job.fault("alpha/mlx5_0 down")
        screen = terminal.wait("an episode", lambda text: recovered(processes(text)[:1]))
        whole(screen)
        both = [processes(screen)[0]]
        # There may be a line too many.
        terminal.press("\x1b[6~")
        screen = terminal.wait("the other end's", lambda text: recovered(processes(text)[-1:]))
        whole(screen)
        both.append(processes(screen)[-1])
        pids = [lines[0].split()[1] for lines in both]
        assert pids[0] != pids[1], screen
        for lines, peer in zip(both, reversed(pids)):
            host = lines[0].split()[3]
            text = "\n".join(lines)
            assert re.match(rf"process \d+ on {host}  degraded ", text), text
            assert re.search(r"^mlx5_0:1  down ", text, re.M), text
            assert "3 healthy, 1 on backup" in text, text
            # The other end is told from this one, though both are on one host.
            row = rf"^mlx5_0 (to|from) {host}:{peer}  on backup  mlx5_1:1 mlx5_2:1 mlx5_3:1  mlx5_0"
            assert re.search(row, text, re.M), text
            assert re.search(rf"^mlx5_0:1  {host}:{peer} mlx5_\d:1  failed ", text, re.M), text
        terminal.press("q")
        assert terminal.end() == 0
        given_back(terminal)


def test_a_narrow_one_leaves_columns_out_and_scrolls(job: Job) -> None:
    job.fault("alpha/mlx5_0 down")
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
        screen = terminal.wait("its end", lambda text: "lines 1 to 19" not in text)
        whole(screen)
        last = re.search(r"lines \d+ to (\d+) of (\d+)", screen)
        assert last, screen
        assert last[1] == last[2], screen
        terminal.press("\x1b[A")
        terminal.wait("a line up", lambda text: f"to {int(last[1]) - 1} of" in text)
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
