"""The other rank's process is killed: an error in bounded time that blames the process."""

from __future__ import annotations

import pytest
from railhop.testing.uml import Guest

from integration.kernel import job as jobs
from integration.kernel.job import RANK_A, RANK_B, SHORT_RETRIES, Job

booted = jobs.booted_guest
guest = jobs.clean_guest

BOUND_MS = 20_000


@pytest.mark.parametrize("rank", [RANK_A, RANK_B])
def test_peer_killed_is_an_error_that_blames_its_process(guest: Guest, rank: str) -> None:
    with Job(guest, "--outlive", env=SHORT_RETRIES) as job:
        job.wait_traffic(0)
        (pid,) = [pid for pid, its_rank in job.ranks().items() if its_rank == rank]
        assert guest.run(f"kill -KILL {pid}").status == 0
        ended = job.join()
    assert "no message" not in ended.last["after_death"], ended.show()
    assert 0 < ended.last["after_death_ms"] < BOUND_MS, ended.show()
    assert ended.last["wrong_bytes"] == 0, ended.show()
    left = RANK_B if rank == RANK_A else RANK_A
    assert "the peer's process" in ended.text(left), ended.show()
    # A dead peer takes no healthy NIC out of service.
    assert "the local" not in "\n".join(ended.warnings(left)), ended.show()
    assert len(ended.warnings(left)) <= 5, ended.show()
