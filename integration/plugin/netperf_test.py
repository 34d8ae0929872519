"""The built plugin under railhop-netperf over the software fabric: all bytes right, in all shapes.

Counts are small: what is proved is that bytes, sizes and guard zones are right, not how fast.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

import pytest

_PROGRAM = os.environ["RAILHOP_TEST_PROGRAM"]
_PLUGIN = str(pathlib.Path(os.environ["RAILHOP_TEST_PLUGIN"]).resolve())
_LAUNCHER = os.environ["RAILHOP_TEST_LAUNCHER"]
_LIBRARY_DIR = str(pathlib.Path(os.environ["RAILHOP_TEST_LIBRARY"]).parent)


def netperf(
    *options: str, status: int = 0, topology: str = "", **variables: str
) -> list[dict[str, Any]]:
    """Its JSON lines, over a fabric of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "RAILHOP_"))}
    shape = ["--topology", f"testdata/topologies/{topology}.topology"] if topology else []
    done = subprocess.run(
        [_LAUNCHER, "run", "--library-dir", _LIBRARY_DIR, *shape, "--"]
        + [_PROGRAM, "--plugin", _PLUGIN, "--json", *options],
        env={**kept, "HOME": "/nonexistent", "NCCL_SOCKET_IFNAME": "lo", **variables},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_right(lines: list[dict[str, Any]]) -> None:
    last = lines[-1]
    assert last["survived"], last
    assert last["messages"] > 0, last
    for key in ("wrong_bytes", "wrong_sizes", "errors"):
        assert last[key] == 0, last


_CHECK_ALL = ("--check", "all", "--metric", "bandwidth")


@pytest.mark.parametrize("connections", ["1", "256"])
@pytest.mark.parametrize("devices", ["0", "0,1", "0,1,2,3"])
def test_devices_and_connections_all_bytes_right(devices: str, connections: str) -> None:
    count = "600" if connections == "1" else "1024"
    lines = netperf(
        *_CHECK_ALL, "--size", "65000", "--count", count, "--in-flight", "4",
        "--devices", devices, "--connections", connections,
    )  # fmt: skip
    assert_right(lines)
    assert lines[0]["messages"] == int(count)


@pytest.mark.parametrize("devices", ["0,1", "0,1,2,3"])
def test_fused_devices_all_bytes_right(devices: str) -> None:
    sizes = "0,1,8,129,4096,65000,1M,3000001"
    lines = netperf("--size", sizes, "--count", "60", "--devices", devices, "--fuse")
    assert_right(lines)
    assert lines[0]["fused"]


@pytest.mark.parametrize("api", ["6", "8", "9", "10", "11", "12"])
def test_each_api_all_bytes_right(api: str) -> None:
    lines = netperf("--size", "0,100,70000", "--count", "100", "--group", "3", "--api", api)
    assert_right(lines)
    assert lines[0]["api"] == int(api)


@pytest.mark.parametrize("group", ["2", "8"])
def test_grouped_receives_all_bytes_right(group: str) -> None:
    lines = netperf("--size", "8,5000", "--count", "400", "--group", group, "--in-flight", "16")
    assert_right(lines)


def test_ring_of_processes_and_both_ways_all_bytes_right() -> None:
    assert_right(netperf(*_CHECK_ALL, "--size", "5000", "--count", "600", "--processes", "3"))
    assert_right(netperf(*_CHECK_ALL, "--size", "5000", "--count", "600", "--bidirectional"))


def test_two_hosts_all_bytes_right() -> None:
    lines = netperf(
        *_CHECK_ALL, "--size", "65000", "--count", "300", "--hosts", "alpha,beta",
        topology="two-hosts-4nic",
    )  # fmt: skip
    assert_right(lines)


def test_command_at_a_message_all_bytes_right() -> None:
    fault = f"{_LAUNCHER} fault soft0 delay 1ms for 100ms"
    lines = netperf(
        "--size", "65000", "--count", "3000", "--at-message", "500", "--run", fault
    )  # fmt: skip
    assert_right(lines)


def test_many_queue_pairs_all_bytes_right() -> None:
    lines = netperf(
        *_CHECK_ALL, "--size", "1,100000", "--count", "300",
        NCCL_IB_QPS_PER_CONNECTION="4", NCCL_IB_SPLIT_DATA_ON_QPS="1",
    )  # fmt: skip
    assert_right(lines)
