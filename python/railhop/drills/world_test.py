"""A drill's jobs have an admin folder of their own."""

from __future__ import annotations

import os
import pathlib
import stat
import tempfile

import pytest

from railhop import drills, scenario
from railhop.drills.job import Job
from railhop.drills.world import World

_OTHERS = ("RAILHOP_ADMIN_DIR", "RAILHOP_JOB_ID")
# Notes what it was given, and moves nothing.
_TELL = "import os, sys; print([os.environ[one] for one in sys.argv[1:]]); sys.exit(1)"


def test_it_is_private_deeper_than_where_root_looks_and_removed() -> None:
    with World("two-hosts-4nic") as world:
        folder = pathlib.Path(world.defaults()["RAILHOP_ADMIN_DIR"])
        assert world.defaults()["RAILHOP_ADMIN_DIR"] == str(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        assert not folder.name.startswith("railhop-")
        assert world.defaults()["RAILHOP_JOB_ID"] == f"drill-{os.getpid()}"
        assert world.defaults()["NCCL_NET_MERGE_LEVEL"] == "LOC"
    assert not folder.parent.exists()


def test_a_socket_in_it_has_a_path_that_is_short_enough(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with World("two-hosts-4nic") as world:
        folder = world.defaults()["RAILHOP_ADMIN_DIR"]
        assert len(f"{folder}/4194304.sock") <= 107


def test_what_the_user_has_set_goes_first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in _OTHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAILHOP_ADMIN_DIR", str(tmp_path))
    program = ["python3", "-c", _TELL, *_OTHERS]
    with pytest.raises(drills.DrillError, match=rf"\['{tmp_path}', 'drill-{os.getpid()}'\]"):
        drills.rehearse("two-hosts-4nic", scenario.find("nic-down"), drills.Command(program))
    mine = drills.Command(program, extra={"RAILHOP_JOB_ID": "mine"})
    with pytest.raises(drills.DrillError, match=rf"\['{tmp_path}', 'mine'\]"):
        drills.rehearse("two-hosts-4nic", scenario.find("nic-down"), mine)


def test_a_port_that_is_not_there_is_named_at_once() -> None:
    with World("two-hosts-4nic") as world:
        job = Job(world, drills.Streams())
        with pytest.raises(drills.DrillError, match=r"no port 'beta/mlx5_77' \(ports: alpha/mlx5"):
            job.wait_bytes(port="beta/mlx5_77")
        assert job.received_bytes("beta/mlx5_1") == job.received_bytes("beta/mlx5_1:1") == 0
