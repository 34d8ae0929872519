"""Addresses that go, change, or come back at another GID index, through the plugin over rxe."""

from __future__ import annotations

import pytest
from railhop.testing.uml import Guest

from integration.kernel import job as jobs
from integration.kernel.job import SHORT_RETRIES, Job, assert_right

booted = jobs.booted_guest
guest = jobs.clean_guest


@pytest.mark.parametrize("device", ["rxa0", "rxb0"])
@pytest.mark.parametrize("new", ["none", "10.0.0.9"])
def test_address_gone_or_another_then_back(guest: Guest, device: str, new: str) -> None:
    link = guest.link(device)
    old = link.state().addresses[0]
    try:
        with Job(guest, env=SHORT_RETRIES) as job:
            job.wait_traffic(0)
            link.address(new)
            job.wait_recovered()
            link.address(old)
            job.wait_log("are back on it")
            job.wait_traffic(0)
            ended = job.end()
    finally:
        link.address(old)
    assert_right(ended)
    assert link.port_state() == "ACTIVE"


def _move_address(guest: Guest) -> None:
    """Rank B's address of rail 0 goes from GID index 1 to another, behind one that is new."""
    done = guest.run(
        "ip address del 10.0.0.2/24 dev b0; ip address add 10.0.0.77/24 dev b0;"
        " ip address add 10.0.0.2/24 dev b0"
    )
    assert done.status == 0, done.output


def _put_address_back(guest: Guest) -> None:
    guest.run("ip address flush dev b0 scope global; ip address add 10.0.0.2/24 dev b0")


def test_address_at_another_gid_index_is_found_by_its_value(guest: Guest) -> None:
    link = guest.link("rxb0")
    try:
        with Job(guest, env=SHORT_RETRIES) as job:
            job.wait_traffic(0)
            link.cable_out()
            job.wait_traffic(1)
            _move_address(guest)
            link.cable_in()
            job.wait_traffic(0)
            gids = link.state().gids
            ended = job.end()
    finally:
        _put_address_back(guest)
    assert [index for index, gid in gids.items() if gid.endswith("0a00:0002")] != [1], gids
    assert_right(ended)


def test_pinned_gid_index_stays_away_and_says_why(guest: Guest) -> None:
    link = guest.link("rxb0")
    try:
        with Job(guest, env={**SHORT_RETRIES, "NCCL_IB_GID_INDEX": "1"}) as job:
            job.wait_traffic(0)
            link.cable_out()
            job.wait_traffic(1)
            _move_address(guest)
            link.cable_in()
            link.wait_port("ACTIVE")
            before = job.received(0)
            job.wait_traffic(1, 3_000_000)
            job.wait_log("NCCL_IB_GID_INDEX")
            after = job.received(0)
            ended = job.end()
    finally:
        _put_address_back(guest)
    assert_right(ended)
    # Nothing but address resolution and probes that nobody answers.
    assert after - before < 100_000, ended.show()
