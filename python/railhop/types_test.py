"""A user's program as a type checker sees it: mypy and pyright read this, and it imports.

The functions are checked and not called; that the values are of these types, job_test shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

import railhop


def reads(process: railhop.Process) -> None:
    assert_type(railhop.health(), railhop.Health)
    health = process.health()
    assert_type(health.verdict, railhop.Verdict)
    assert_type(health.ports, tuple[railhop.Port, ...])
    assert_type(health.ports[0].state, railhop.PortState)
    assert_type(health.ports[0].hold_down_ns, int)
    assert_type(health.connections[0].ports, tuple[str, ...])
    assert_type(health.process.failover, bool)
    assert_type(health.to_dict(), dict[str, Any])
    assert_type(process.stats().faults, dict[railhop.Cause, int])
    assert_type(railhop.config()[0].changeable, bool)


def follows(process: railhop.Process) -> Iterator[str]:
    events = process.events(after=0, limit=10, wait_s=0.5)
    assert_type(events, railhop.EventList)
    assert_type(events[0], railhop.Event)
    for event in process.follow(timeout_s=None):
        assert_type(event, railhop.Event)
        word: str = event.kind
        if event.cause == railhop.Cause.STALL:
            yield word


def steers(process: railhop.Process) -> None:
    assert_type(process.force_failover("mlx5_0", mode="now"), railhop.Outcome)
    assert_type(railhop.force_failover("mlx5_0", railhop.FailoverMode.DRAIN), railhop.Outcome)
    assert_type(process.fail_back(), railhop.Outcome)
    assert_type(process.fail_back("mlx5_0:1").ports, tuple[str, ...])
    assert_type(process.set_option("RAILHOP_STALL_THRESHOLD", "2s"), railhop.Option)


def finds() -> None:
    assert_type(railhop.attach(pid=1), railhop.Process)
    assert_type(railhop.processes(), list[railhop.FoundProcess])
    for found in railhop.processes(job="7"):
        assert_type(found.info, railhop.ProcessInfo | None)
        assert_type(found.attach(timeout_s=1.0), railhop.Process)
    assert_type(railhop.environment(), dict[str, str])
    assert_type(railhop.paths.plugin_path().name, str)


def test_every_name_that_is_used_is_there() -> None:
    for name in set(reads.__code__.co_names + steers.__code__.co_names) & set(railhop.__all__):
        assert hasattr(railhop, name)
