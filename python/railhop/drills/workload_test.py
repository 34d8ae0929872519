"""What is started is ended, whenever a person interrupts."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
import threading
import time

import pytest

from railhop.drills.workload import Group, end_all, uninterrupted


def test_an_interrupt_waits_until_what_is_started_is_known() -> None:
    known: list[Group] = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        group = Group(["sleep", "1000"], {"PATH": "/bin:/usr/bin"})
        signal.raise_signal(signal.SIGINT)
        known.append(group)
    assert len(known) == 1
    known[0].kill()
    assert known[0].status() == -signal.SIGKILL


def test_without_an_interrupt_nothing_is_raised_and_the_next_one_is() -> None:
    before = signal.getsignal(signal.SIGINT)
    with uninterrupted():
        pass
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_error_goes_on_its_way() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="no such program"), uninterrupted():
        raise ValueError("no such program")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_that_is_not_of_python_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    # As where the program that has loaded Python had set one before.
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    with uninterrupted():
        monkeypatch.undo()
        assert signal.getsignal(signal.SIGINT) is before
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_changes_nothing() -> None:
    seen = []
    before = signal.getsignal(signal.SIGINT)

    def run() -> None:
        with contextlib.suppress(ValueError), uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]


# A launcher: a worker in a session of its own, one that is nobody's child any more, and one that
# has taken another environment.
_LAUNCHER = """
import os, pathlib, signal, subprocess, sys, time
folder = pathlib.Path(sys.argv[1])
def note(name, pid):
    (folder / (name + ".new")).write_text(str(pid))
    (folder / (name + ".new")).rename(folder / name)
def ended(*_):
    (folder / "asked").touch()
    if sys.argv[2] == "obey": os._exit(0)
signal.signal(signal.SIGTERM, ended)
worker = subprocess.Popen(["sleep", "1000"], start_new_session=True)
other = subprocess.Popen(["env", "-i", "/bin/sleep", "1000"], start_new_session=True)
code = "import subprocess; print(subprocess.Popen(['sleep', '1000'], stdout=2).pid)"
orphan = subprocess.run([sys.executable, "-c", code], capture_output=False,
    stdout=subprocess.PIPE, start_new_session=True).stdout
note("worker", worker.pid)
note("other", other.pid)
note("orphan", int(orphan))
while True: time.sleep(1)
"""
_WORKERS = ("worker", "other", "orphan")


def _launched(folder: pathlib.Path, how: str) -> tuple[Group, list[int]]:
    group = Group([sys.executable, "-c", _LAUNCHER, str(folder), how], {"PATH": "/bin:/usr/bin"})
    deadline = time.monotonic() + 120
    while not (folder / _WORKERS[-1]).exists():
        if group.status() is not None or time.monotonic() > deadline:
            group.kill()
            raise AssertionError(group.tail())
        time.sleep(0.01)
    pids = [int((folder / name).read_text(encoding="ascii")) for name in _WORKERS]
    assert all(_runs(pid) for pid in pids)
    return group, pids


def _runs(pid: int) -> bool:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return text.rpartition(") ")[2][0] not in "ZX"


def test_all_that_a_launcher_started_ends_with_it(tmp_path: pathlib.Path) -> None:
    group, pids = _launched(tmp_path, "refuse")
    group.kill()
    assert group.status() == -signal.SIGKILL
    assert [pid for pid in pids if _runs(pid)] == []
    assert not (tmp_path / "asked").exists()
    group.kill()


def test_a_launcher_is_asked_first_and_what_it_leaves_ends(tmp_path: pathlib.Path) -> None:
    group, pids = _launched(tmp_path, "refuse")
    end_all([group], 0.2)
    assert (tmp_path / "asked").exists()
    assert group.status() == -signal.SIGKILL
    assert [pid for pid in pids if _runs(pid)] == []


def test_one_that_ends_when_it_is_asked_is_not_killed(tmp_path: pathlib.Path) -> None:
    group, pids = _launched(tmp_path, "obey")
    begin = time.monotonic()
    end_all([group], 3600.0)
    assert group.status() == 0
    assert time.monotonic() - begin < 3000
    # The one without the mark is nobody's by then: a launcher has to end it itself.
    marked = [pids[0], pids[2]]
    assert [pid for pid in marked if _runs(pid)] == []
    with contextlib.suppress(ProcessLookupError):
        os.kill(pids[1], signal.SIGKILL)
