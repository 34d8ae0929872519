"""Faults without an event, and no fault at all, through the plugin over rxe."""

from __future__ import annotations

import time

import pytest
from railhop.testing.uml import Guest

from integration.kernel import job as jobs
from integration.kernel.job import ENDLESS_RETRIES, SHORT_RETRIES, Job, assert_right

booted = jobs.booted_guest
guest = jobs.clean_guest


@pytest.mark.parametrize("direction", ["rx", "tx"])
@pytest.mark.parametrize("retries", ["short", "endless"])
def test_black_hole_is_left_and_gone_back_to(guest: Guest, direction: str, retries: str) -> None:
    # What reaches rank B is data; what it sends is acknowledgements and clear-to-send entries.
    link = guest.link("rxb0")
    env = SHORT_RETRIES if retries == "short" else ENDLESS_RETRIES
    with Job(guest, env=env) as job:
        job.wait_traffic(0)
        link.blackhole(direction)
        job.wait_traffic(1)
        job.wait_recovered()
        assert link.port_state() == "ACTIVE"
        link.blackhole_off(direction)
        job.wait_traffic(0)
        ended = job.end()
    assert_right(ended)
    assert ended.begun(), ended.show()
    # Both processes speak over loopback all the time: neither is dead.
    assert "peer's process" not in "\n".join(ended.warnings()), ended.show()
    assert "peer's host" not in "\n".join(ended.warnings()), ended.show()
    # No port has been down, whatever else is found.
    assert "the port is down" not in ended.text(), ended.show()
    if retries == "endless":
        # The kernel never gives up: the plugin's own threshold did.
        assert "a work request ended in error" not in ended.text(), ended.show()


def test_lost_packets_cost_time_and_no_byte(guest: Guest) -> None:
    with Job(guest, env=SHORT_RETRIES) as job:
        job.wait_traffic(0)
        guest.link("rxb0").loss(1, "rx")
        job.wait_traffic(0, 2_000_000)
        ended = job.end()
    assert_right(ended)
    assert "the port is down" not in ended.text(), ended.show()


def test_no_fault_no_word(guest: Guest) -> None:
    with Job(guest, "--bidirectional") as job:
        job.wait_traffic(0)
        time.sleep(3)
        job.wait_traffic(0)
        ended = job.end()
    assert_right(ended)
    assert not ended.begun(), ended.show()
    assert not ended.recovered(), ended.show()
