"""What is started is ended, whenever a person interrupts."""

from __future__ import annotations

import contextlib
import signal
import threading

import pytest

from railhop.drills.workload import Group, uninterrupted


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
