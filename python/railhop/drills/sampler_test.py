"""Samples of ports that come and go make curves of one length."""

from __future__ import annotations

from railhop.drills.sampler import PortCount, Sampler


def series_of(
    *samples: dict[str, PortCount],
) -> tuple[list[float], dict[str, list[int]], list[int]]:
    """Times, bytes of each port, bytes received; a sample a second, from 100 s on."""
    sampler = Sampler(dict)
    sampler._samples = [(100.0 + index, one) for index, one in enumerate(samples)]
    series, received = sampler.series(101.0)
    for name, moved in series.moved_bytes.items():
        assert len(series.times_s) == len(moved) == len(series.up[name])
    assert len(received) == len(series.times_s)
    return series.times_s, series.moved_bytes, received


def test_ports_that_appear_late_have_moved_nothing_before() -> None:
    # As on a machine's own NICs: nobody tells of ports before the plugin is loaded.
    times, moved, received = series_of(
        {}, {"a/nic0:1": PortCount(5, 1, True)},
        {"a/nic0:1": PortCount(7, 1, True), "a/nic1:1": PortCount(3, 0, True)},
    )  # fmt: skip
    assert times == [-1.0, 0.0, 1.0]
    assert moved == {"a/nic0:1": [0, 6, 8], "a/nic1:1": [0, 0, 3]}
    assert received == [0, 5, 10]


def test_ports_that_vanish_keep_what_they_had_moved() -> None:
    _, moved, received = series_of(
        {"a/nic0:1": PortCount(5, 0, False), "a/nic1:1": PortCount(2, 0, True)},
        {"a/nic1:1": PortCount(4, 0, True)},
        {},
    )
    assert moved == {"a/nic0:1": [5, 5, 5], "a/nic1:1": [2, 4, 4]}
    assert received == [7, 9, 9]


def test_before_the_first_port_there_are_times_alone() -> None:
    assert series_of({}, {}) == ([-1.0, 0.0], {}, [0, 0])
