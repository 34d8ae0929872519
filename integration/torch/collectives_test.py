"""Backend railhop against gloo, over types, shapes and numbers of ranks."""

from __future__ import annotations

from integration.torch.job import TorchJob


def test_every_collective_equals_gloo() -> None:
    with TorchJob("collectives.py", size=3) as job:
        for lines in job.succeed():
            assert lines[-1]["compared"] > 2000, job.show()


def test_hosts_with_unequal_numbers_of_nics() -> None:
    """A removed NIC on one host only: each end uses what it has."""
    with TorchJob("collectives.py", faults=["beta/mlx5_3 remove"]) as job:
        for lines in job.succeed():
            assert lines[-1]["compared"] > 2000, job.show()
