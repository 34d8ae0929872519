"""What the built plugin shows of the topologies, and what it says, as options and fabrics vary.

Each case is a process of its own inside a fabric of its own, since options are read once.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess

import pytest

_PROGRAM = os.environ["RAILHOP_TEST_PROGRAM"]
_PLUGIN = str(pathlib.Path(os.environ["RAILHOP_TEST_PLUGIN"]).resolve())
_LAUNCHER = os.environ["RAILHOP_TEST_LAUNCHER"]
_LIBRARY_DIR = str(pathlib.Path(os.environ["RAILHOP_TEST_LIBRARY"]).parent)


@dataclasses.dataclass(frozen=True)
class Shown:
    """status: of the program. devices: lines without their index. log: standard error."""

    status: int
    name: str
    devices: list[str]
    log: str

    @property
    def names(self) -> list[str]:
        return [line.split()[0] for line in self.devices]

    def warnings(self) -> list[str]:
        return [line for line in self.log.splitlines() if line.startswith("NCCL WARN")]


def _environment(variables: dict[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "RAILHOP_"))}
    return {**kept, "HOME": "/nonexistent", "NCCL_SOCKET_IFNAME": "lo", **variables}


def run(
    topology: str, variables: dict[str, str] | None = None, *, version: int = 12, shell: str = ""
) -> Shown:
    """Runs the program over a fabric of the topology; `shell` replaces the plain call."""
    path = topology if "/" in topology else f"testdata/topologies/{topology}.topology"
    command = ["sh", "-c", shell] if shell else [_PROGRAM, _PLUGIN, str(version)]
    done = subprocess.run(
        [_LAUNCHER, "run", "--library-dir", _LIBRARY_DIR, "--topology", path, "--", *command],
        env=_environment(variables or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = done.stdout.splitlines()
    devices = [line.split(" ", 1)[1] for line in lines if line[:1].isdigit()]
    name = next((line.split(" ", 1)[1] for line in lines if line.startswith("name ")), "")
    return Shown(done.returncode, name, devices, done.stderr)


def test_flat_four_nics_are_shown_in_pci_order() -> None:
    shown = run("two-hosts-4nic")
    assert shown.status == 0, shown.log
    assert shown.devices == [
        "mlx5_0:1 200000 0000:17:00.0 -1 -1 1",
        "mlx5_1:1 200000 0000:37:00.0 -1 -1 1",
        "mlx5_2:1 200000 0000:57:00.0 -1 -1 1",
        "mlx5_3:1 200000 0000:77:00.0 -1 -1 1",
    ]
    assert not shown.warnings()
    assert "GID 3 10.0.1.1" in shown.log


@pytest.mark.parametrize("version", [6, 8, 9, 10, 11, 12])
def test_every_version_shows_the_same_devices(version: int) -> None:
    assert run("two-hosts-8nic", version=version).names == [f"mlx5_{n}:1" for n in range(8)]


def test_one_nic_with_defaults() -> None:
    assert run("laptop-1nic").names == ["soft0:1"]


def test_both_ports_of_a_card_are_two_devices() -> None:
    shown = run("two-hosts-dual-port")
    assert shown.names == ["mlx5_0:1", "mlx5_0:3", "mlx5_1:1", "mlx5_1:3"]


def test_infiniband_ports_use_gid_0() -> None:
    shown = run("two-hosts-infiniband")
    assert shown.names == ["ibp0:1", "ibp1:1"]
    assert "IB speed 200000 Mb/s, GID 0 fec0" in shown.log


def test_lopsided_container_names_what_does_not_open_in_one_line() -> None:
    shown = run("container-lopsided")
    assert shown.names == ["mlx5_3:1"]
    assert len(shown.warnings()) == 1
    assert "devices that cannot be opened: mlx5_0" in shown.warnings()[0]
    assert not run("container-lopsided", {"NCCL_IB_HCA": "mlx5_3"}).warnings()


@pytest.mark.parametrize(
    ("hca", "names"),
    [
        ("mlx5_1", ["mlx5_1:1"]),
        ("=mlx5_2", ["mlx5_2:1"]),
        ("^mlx5_1,mlx5_2", ["mlx5_0:1", "mlx5_3:1"]),
        ("^=mlx5_1", ["mlx5_0:1", "mlx5_2:1", "mlx5_3:1"]),
        ("mlx5_0:1,mlx5_3:2", ["mlx5_0:1"]),
    ],
)
def test_hca_filter(hca: str, names: list[str]) -> None:
    assert run("two-hosts-4nic", {"NCCL_IB_HCA": hca}).names == names


def test_hca_filter_gives_rail_and_plane() -> None:
    shown = run("two-hosts-4nic", {"NCCL_IB_HCA": "mlx5_0:1:4:2,mlx5_1::5"})
    assert shown.devices == [
        "mlx5_0:1 200000 0000:17:00.0 4 2 1",
        "mlx5_1:1 200000 0000:37:00.0 5 -1 1",
    ]


@pytest.mark.parametrize(
    ("variables", "gid"),
    [
        ({}, "GID 3 10.1.1.1"),
        ({"NCCL_IB_ROCE_VERSION_NUM": "1"}, "GID 2 10.1.1.1"),
        ({"NCCL_IB_ADDR_FAMILY": "AF_INET6"}, "GID 5 fd00:1::1:1"),
        ({"NCCL_IB_ADDR_FAMILY": "AF_INET6", "NCCL_IB_ADDR_RANGE": "fd00:1::/32"}, "GID 5 fd00"),
        ({"NCCL_IB_GID_INDEX": "4"}, "GID 4 fd00:1::1:1"),
        ({"NCCL_IB_GID_INDEX": "0x2"}, "GID 2 10.1.1.1"),
    ],
)
def test_gid_knobs(variables: dict[str, str], gid: str) -> None:
    shown = run("two-hosts-dual-port", variables)
    assert f"device [0] mlx5_0:1 RoCE speed 200000 Mb/s, {gid}" in shown.log


def test_ipv6_only_fabric_takes_the_routable_address(tmp_path: pathlib.Path) -> None:
    topology = tmp_path / "v6.topology"
    topology.write_text("nets lan\nhost a\n  device d0\n    port 1 address fd00::7\n")
    shown = run(str(topology))
    assert "GID 3 fd00::7" in shown.log
    assert not shown.warnings()


def test_pkey_index_that_a_port_does_not_have_is_named() -> None:
    assert run("two-hosts-infiniband", {"NCCL_IB_PKEY": "0"}).names == ["ibp0:1", "ibp1:1"]
    shown = run("two-hosts-infiniband", {"NCCL_IB_PKEY": "7"})
    assert shown.status == 3
    assert len(shown.warnings()) == 1
    assert "NCCL_IB_PKEY=7 is no entry of its P_Key table" in shown.warnings()[0]


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE is set"),
        ({"NCCL_IB_HCA": "none"}, "NCCL_IB_HCA selects none of the 4 devices"),
        ({"RAILHOP_VERBS_LIBRARY": "/no/such.so"}, "/no/such.so"),
        ({"NCCL_SOCKET_IFNAME": "nosuch0"}, "NCCL_SOCKET_IFNAME"),
        # The loopback interface has no IPv6 address that counts.
        ({"NCCL_SOCKET_FAMILY": "AF_INET6"}, "NCCL_SOCKET_IFNAME"),
    ],
)
def test_cannot_serve_says_why_in_one_warning(variables: dict[str, str], reason: str) -> None:
    shown = run("two-hosts-4nic", variables)
    assert shown.status == 3
    assert len(shown.warnings()) == 1, shown.log
    assert "cannot serve" in shown.warnings()[0]
    assert "UNPROTECTED" in shown.warnings()[0]
    assert reason in shown.warnings()[0]


def test_all_ports_down_says_so(tmp_path: pathlib.Path) -> None:
    topology = tmp_path / "down.topology"
    topology.write_text("nets lan\nhost a\n  device d0\n    port 1 address 10.0.0.1 state down\n")
    shown = run(str(topology))
    assert shown.status == 3
    assert "no port is up (waiting: d0:1)" in shown.warnings()[0]


def test_port_down_at_start_joins_when_it_comes_up(tmp_path: pathlib.Path) -> None:
    topology = tmp_path / "half.topology"
    topology.write_text(
        "nets lan\nhost a\n"
        "  device d0 pci 0000:01:00.0\n    port 1 address 10.0.0.1 state down\n"
        "  device d1 pci 0000:02:00.0\n    port 1 address 10.0.0.2\n"
    )
    fifo = tmp_path / "out"
    shell = (
        f"mkfifo {fifo}; {_PROGRAM} {_PLUGIN} 12 2 >{fifo} & "
        f'while read -r line; do echo "$line"; '
        f'[ "$line" = ready ] && {_LAUNCHER} fault d0 up; done <{fifo}; wait'
    )
    shown = run(str(topology), shell=shell)
    assert shown.names == ["d1:1", "d0:1"], shown.log
    assert "ports that are down and join when they come up: d0:1" in shown.log
    assert "port d0:1 has come up and joins as net device 1" in shown.log


def test_net_name() -> None:
    assert run("laptop-1nic").name == "Railhop"
    assert run("laptop-1nic", {"RAILHOP_NET_NAME": "IB"}).name == "IB"
    shown = run("laptop-1nic", {"RAILHOP_NET_NAME": "my net"})
    assert shown.name == "Railhop"
    assert "RAILHOP_NET_NAME='my net'" in shown.warnings()[0]


def test_options_are_printed_with_their_sources(tmp_path: pathlib.Path) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text("# tuned\nNCCL_IB_TC=106\nNCCL_IB_TIMEOUT=22\nRAILHOP_PORT_POLL_INTERVAL=2s\n")
    shown = run("laptop-1nic", {"NCCL_CONF_FILE": str(conf), "NCCL_IB_TIMEOUT": "19"})
    assert f"option NCCL_IB_TC=106 ({conf}:2)" in shown.log
    assert "option NCCL_IB_TIMEOUT=19 (environment)" in shown.log
    assert f"option RAILHOP_PORT_POLL_INTERVAL=2s ({conf}:4)" in shown.log
    assert "NCCL_IB_RETRY_CNT=7" in shown.log


def test_what_cannot_apply_is_named() -> None:
    shown = run(
        "laptop-1nic", {"NCCL_IB_OOO_RQ": "1", "NCCL_IB_RETRY_CNT": "15", "RAILHOP_FAIL_OVER": "0"}
    )
    assert shown.status == 0
    assert "NCCL_IB_OOO_RQ='1' (environment) is not used" in shown.log
    assert "NCCL_IB_RETRY_CNT=15 does not fit its field; 7 is used" in shown.log
    assert len(shown.warnings()) == 1
    assert "did you mean RAILHOP_FAILOVER?" in shown.warnings()[0]


def test_log_threshold() -> None:
    assert "device [0]" in run("laptop-1nic").log
    assert run("laptop-1nic", {"RAILHOP_LOG": "warn"}).log.count("NCCL INFO") == 0


def test_device_initiated_traffic_is_warned_of() -> None:
    shown = run("laptop-1nic", {"NCCL_GIN_TYPE": "2"})
    assert "GIN or RMA: NCCL_GIN_TYPE=2" in shown.warnings()[0]


def test_knob_of_the_other_link_is_named() -> None:
    shown = run("two-hosts-infiniband", {"NCCL_IB_GID_INDEX": "3"})
    assert shown.status == 0
    assert "NCCL_IB_GID_INDEX=3 has no effect: it is for RoCE" in shown.log
