"""Ports that go down and come back, through the plugin over rxe."""

from __future__ import annotations

import time

import pytest
from railhop.testing.uml import Guest

from integration.kernel import job as jobs
from integration.kernel.job import ENDLESS_RETRIES, RANK_A, RANK_B, SHORT_RETRIES, Job, assert_right

booted = jobs.booted_guest
guest = jobs.clean_guest


@pytest.mark.parametrize("device", ["rxa0", "rxb0"])
@pytest.mark.parametrize("how", ["cable", "operator"])
def test_port_down_moves_the_job_and_up_brings_it_back(guest: Guest, device: str, how: str) -> None:
    link = guest.link(device)
    with Job(guest, env=SHORT_RETRIES) as job:
        job.wait_traffic(0)
        link.cable_out() if how == "cable" else link.down()
        job.wait_traffic(1)
        job.wait_recovered()
        link.cable_in() if how == "cable" else link.up()
        job.wait_traffic(0)
        job.wait_log("are back on it")
        ended = job.end()
    assert_right(ended)
    own, other = (RANK_A, RANK_B) if device == "rxa0" else (RANK_B, RANK_A)
    # The end that lost its port knows; the other is told, and does not blame itself.
    assert "the local port or its cable" in ended.text(own), ended.show()
    assert "the local" not in "\n".join(ended.warnings(other)), ended.show()
    for rank in (own, other):
        assert ended.begun(rank), ended.show()
        assert ended.recovered(rank), ended.show()
        assert len(ended.warnings(rank)) <= 6, ended.show()


def test_retries_without_end_leave_the_port_event_and_it_is_enough(guest: Guest) -> None:
    with Job(guest, env=ENDLESS_RETRIES) as job:
        job.wait_traffic(0)
        guest.link("rxb0").cable_out()
        job.wait_traffic(1)
        job.wait_recovered()
        guest.link("rxb0").cable_in()
        job.wait_log("are back on it")
        ended = job.end()
    assert_right(ended)
    assert "a work request ended in error" not in ended.text(), ended.show()


def test_flaps_move_no_data_twice_and_end_on_the_first_rail(guest: Guest) -> None:
    with Job(guest, env=SHORT_RETRIES) as job:
        job.wait_traffic(0)
        for device in ("rxa0", "rxb0") * 2:
            guest.link(device).cable_out()
            time.sleep(0.3)
            guest.link(device).cable_in()
            time.sleep(0.3)
        job.wait_traffic(0)
        job.wait_log("are back on it")
        ended = job.end()
    assert_right(ended)
    # One for each flap that was seen, and as many that end it.
    assert len(ended.warnings(RANK_A)) <= 16, ended.show()
