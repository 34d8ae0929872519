"""Journals are read to their end, commands reach the right processes."""

from __future__ import annotations

import types
from typing import Any

import pytest

import railhop
from railhop.drills.episodes import EpisodeWatch
from railhop.drills.errors import GoneError
from railhop.scenario import Step


class Entry:
    """An event or an episode."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def to_dict(self) -> dict[str, Any]:
        return dict(self.fields)


class FakeJournal:
    """Two pages of events, one episode; notes commands."""

    def __init__(self) -> None:
        self.said: list[tuple[str, ...]] = []
        self.serials = [1, 2, 3]
        self.gone = False

    def health(self) -> Any:
        if self.gone:
            raise railhop.NotFoundError("it has ended")
        return Entry(episodes=[{"begin_unix_ns": 5, "id": 1}])

    def events(self, after: int = 0) -> Any:
        page = [one for one in self.serials if one > after][:2]
        found = [Entry(serial=one, time_unix_ns=10 - one, kind="session") for one in page]
        return types.SimpleNamespace(events=found)

    def force_failover(self, target: str, mode: str = "drain") -> None:
        self.said.append(("failover", target, mode))

    def fail_back(self, target: str = "") -> None:
        self.said.append(("failback", target))

    def hold(self, target: str) -> None:
        if self.gone:
            raise railhop.StaleSocketError("it has ended")
        if target == "mlx5_9":
            raise railhop.NotFoundError("no port mlx5_9")
        self.said.append(("hold", target))

    def release(self, target: str) -> None:
        self.said.append(("release", target))


def step(verb: str, target: str, words: str = "", host: str = "alpha") -> Step:
    return Step(0.0, verb, host, target, words, None, "words:1")


def watch(journals: dict[int, FakeJournal]) -> EpisodeWatch:
    hosts = {1: "alpha", 2: "beta", 3: "beta"}

    def attach(pid: int) -> FakeJournal:
        if pid not in journals:
            raise LookupError("no plugin")
        return journals[pid]

    return EpisodeWatch(lambda: hosts, attach)


def test_everything_is_read_once_with_process_and_host() -> None:
    watched = watch({1: FakeJournal(), 2: FakeJournal()})
    watched.start()
    watched.stop()
    events = watched.events()
    assert len(events) == 6
    assert [one["time_unix_ns"] for one in events] == sorted(one["time_unix_ns"] for one in events)
    assert {(one["process"], one["host"]) for one in events} == {(1, "alpha"), (2, "beta")}
    assert len(watched.episodes()) == 2


def test_a_process_that_has_ended_keeps_what_it_said() -> None:
    journal = FakeJournal()
    watched = watch({1: journal})
    watched.command(step("hold", "mlx5_0"))
    journal.gone = True
    watched.start()
    watched.stop()
    assert len(watched.events()) == 3
    assert len(watched.episodes()) == 1


def test_commands_go_to_the_processes_of_the_host() -> None:
    one, two = FakeJournal(), FakeJournal()
    watched = watch({1: one, 2: two})
    watched.command(step("failover", "mlx5_0", "now"))
    watched.command(step("failover", "mlx5_1"))
    watched.command(step("failback", "mlx5_0"))
    watched.command(step("hold", "mlx5_2", host="beta"))
    watched.command(step("release", "mlx5_2", host="beta"))
    assert one.said == [
        ("failover", "mlx5_0", "now"),
        ("failover", "mlx5_1", "drain"),
        ("release", "mlx5_0"),
        ("failback", "mlx5_0"),
    ]
    assert two.said == [("hold", "mlx5_2"), ("release", "mlx5_2")]


def test_a_host_without_railhop_is_named() -> None:
    with pytest.raises(RuntimeError, match="no process with Railhop runs on beta"):
        watch({1: FakeJournal()}).command(step("hold", "mlx5_0", host="beta"))


def test_processes_that_have_ended_are_passed_by_and_all_of_them_are_an_error() -> None:
    one, two = FakeJournal(), FakeJournal()
    watched = watch({2: one, 3: two})
    watched.command(step("hold", "mlx5_0", host="beta"))
    one.gone = True
    watched.command(step("hold", "mlx5_1", host="beta"))
    assert (len(one.said), len(two.said)) == (1, 2)
    two.gone = True
    with pytest.raises(GoneError, match="no process with Railhop runs on beta"):
        watched.command(step("hold", "mlx5_1", host="beta"))


def test_a_target_that_is_not_there_is_no_end_of_the_job() -> None:
    with pytest.raises(railhop.NotFoundError, match="no port mlx5_9"):
        watch({1: FakeJournal()}).command(step("hold", "mlx5_9"))
