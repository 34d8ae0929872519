"""Where the package's files are found, and what a job's variables are made of."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

import railhop
from railhop.testing.fabric import Fabric


def test_every_file_is_there() -> None:
    for path in (
        railhop.paths.plugin_path(),
        railhop.paths.fabric_dir() / "libibverbs.so.1",
        railhop.paths.fabric_program(),
        railhop.paths.netperf_path(),
        railhop.paths.topologies_dir() / "two-hosts-4nic.topology",
    ):
        assert path.is_absolute()
        assert path.is_file()
    assert railhop.paths.plugin_dir() == railhop.paths.plugin_path().parent


def test_a_home_comes_first(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAILHOP_HOME", str(tmp_path))
    with pytest.raises(railhop.NotFoundError, match=r"RAILHOP_HOME=.* has no plugin/.*unset it"):
        railhop.paths.plugin_path()
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin/libnccl-net-railhop.so").touch()
    assert railhop.paths.plugin_path() == tmp_path / "plugin/libnccl-net-railhop.so"


def test_the_environment_keeps_what_was_on_the_path() -> None:
    own = str(railhop.paths.plugin_dir())
    given = railhop.environment(base={"LD_LIBRARY_PATH": f"/opt/a:{own}::/opt/b"})
    assert given == {
        "NCCL_NET_PLUGIN": "railhop",
        "NCCL_NET": "Railhop",
        "LD_LIBRARY_PATH": f"{own}:/opt/a:/opt/b",
    }


@pytest.mark.parametrize("by_name", [False, True])
def test_the_environment_of_a_fabric_puts_a_program_on_it(by_name: bool) -> None:
    topology = str(railhop.paths.topologies_dir() / "two-hosts-4nic.topology")
    with Fabric(topology, name=f"paths-{os.getpid()}") as fabric:
        given = railhop.environment(
            f"paths-{os.getpid()}" if by_name else fabric, host="beta", base={"PATH": "/usr/bin"}
        )
        shown = subprocess.run(
            [railhop.paths.fabric_program(), "show"],
            env=given, check=True, stdout=subprocess.PIPE, text=True,
        ).stdout  # fmt: skip
    assert given["RAILHOP_FABRIC_HOST"] == "beta"
    assert given["LD_LIBRARY_PATH"] == f"{railhop.paths.plugin_dir()}:{railhop.paths.fabric_dir()}"
    assert "mlx5_3" in shown
    # NCCL loses what it fuses of NICs that have no place on a bus.
    assert given["NCCL_NET_MERGE_LEVEL"] == "LOC"


def test_the_environment_leaves_what_nccl_is_to_fuse_to_the_user() -> None:
    topology = str(railhop.paths.topologies_dir() / "two-hosts-4nic.topology")
    with Fabric(topology) as fabric:
        given = railhop.environment(fabric, base={"NCCL_NET_MERGE_LEVEL": "PORT"})
    assert "NCCL_NET_MERGE_LEVEL" not in given
    assert "NCCL_NET_MERGE_LEVEL" not in railhop.environment(base={})


def test_an_unknown_fabric_is_an_error() -> None:
    with pytest.raises(railhop.NotFoundError, match="no-such-fabric"):
        railhop.environment("no-such-fabric")
