"""A suite on nodes: a job between two, a NIC of one taken out in its middle."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.rdma_nodes(2)
@pytest.mark.parametrize("mode", ["drain", "now"])
def test_a_nic_is_taken_out(
    rdma_nodes: Any, railhop_node_job: Any, force_failover: Any, mode: str
) -> None:
    job = railhop_node_job(rdma_nodes)  # an all-reduce, every element compared
    (outcome,) = force_failover("rxa0", mode, job=job)
    assert outcome["ports"] == ["rxa0:1"]
    job.wait_bytes(rank=1, port="rxb1:1")
    assert job.finish() == [0, 0], job.output()
