"""That each option of the data path shows in what the plugin does with its queue pairs.

A verbs library that writes everything down stands between the built plugin and the fabric.
"""

from __future__ import annotations

import collections
import os
import pathlib
import re
import subprocess
import time
from collections.abc import Callable

import pytest

_PROGRAM = os.environ["RAILHOP_TEST_PROGRAM"]
_PLUGIN = str(pathlib.Path(os.environ["RAILHOP_TEST_PLUGIN"]).resolve())
_RECORDER = str(pathlib.Path(os.environ["RAILHOP_TEST_RECORDER"]).resolve())
_LAUNCHER = os.environ["RAILHOP_TEST_LAUNCHER"]
_LIBRARY_DIR = str(pathlib.Path(os.environ["RAILHOP_TEST_LIBRARY"]).parent)

_SIZE = 64 * 1024
_COUNT = 8


class Record:
    """What was written down: lines of a word and its fields."""

    def __init__(self, status: int, lines: list[str], log: str) -> None:
        self.status = status
        self.lines = lines
        self.log = log

    def rows(self, word: str) -> list[dict[str, str]]:
        return [
            dict(field.split("=") for field in line.split()[1:])
            for line in self.lines
            if line.split()[0] == word and "=" in line
        ]

    def values(self, word: str, field: str) -> set[int]:
        return {int(row[field]) for row in self.rows(word)}

    def data_posts(self) -> list[dict[str, str]]:
        """Posts of the sending end: those of queue pairs that carried much."""
        big = {r["qp"] for r in self.rows("post") if int(r["bytes"]) >= 4096}
        return [r for r in self.rows("post") if r["qp"] in big]

    def small_posts(self) -> list[dict[str, str]]:
        """Clear-to-send writes: those of the other queue pairs."""
        data = {r["qp"] for r in self.data_posts()}
        return [r for r in self.rows("post") if r["qp"] not in data]


Run = Callable[..., Record]


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    """Sends messages with these variables; what was written down."""

    def call(
        variables: dict[str, str],
        *,
        topology: str = "two-hosts-4nic",
        size: int = _SIZE,
        traffic_class: int = -1,
        devices: tuple[int, ...] = (0,),
    ) -> Record:
        record = tmp_path / "record"
        record.write_text("")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "RAILHOP_"))}
        # Probes have queue pairs of their own; what is read here is the connections'.
        environment = {
            "RAILHOP_FAILOVER": "0",
            **kept,
            "HOME": "/nonexistent",
            "NCCL_SOCKET_IFNAME": "lo",
            "RAILHOP_VERBS_LIBRARY": _RECORDER,
            "RAILHOP_TEST_RECORD": str(record),
            **variables,
        }
        program = [_PROGRAM, _PLUGIN, "12", str(size), str(_COUNT), str(traffic_class)]
        done = subprocess.run(
            [_LAUNCHER, "run", "--library-dir", _LIBRARY_DIR]
            + ["--topology", f"testdata/topologies/{topology}.topology", "--"]
            + program
            + [str(d) for d in devices],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Record(done.returncode, record.read_text().splitlines(), done.stderr)

    return call


def test_defaults_are_nccls(run: Run) -> None:
    record = run({})
    assert record.status == 0, record.log
    assert record.lines[0] == "fork_init", "before any device is used"
    assert record.values("rts", "timeout") == {20}
    assert record.values("rts", "retry") == {7}
    assert record.values("init", "pkey") == {0}
    assert record.values("rtr", "sl") == {0}
    assert record.values("rtr", "tc") == {0}
    assert record.values("rtr", "gid") == {3}


@pytest.mark.parametrize(
    ("text", "timeout"), [("18", 18), ("0x12", 18), ("022", 18), ("0", 0), ("40", 0), ("", 20)]
)
def test_timeout(run: Run, text: str, timeout: int) -> None:
    assert run({"NCCL_IB_TIMEOUT": text}).values("rts", "timeout") == {timeout}


@pytest.mark.parametrize(("text", "retry"), [("3", 3), ("15", 7), ("many", 0)])
def test_retry_cnt(run: Run, text: str, retry: int) -> None:
    assert run({"NCCL_IB_RETRY_CNT": text}).values("rts", "retry") == {retry}


def test_pkey(run: Run) -> None:
    record = run({"NCCL_IB_PKEY": "1"}, topology="two-hosts-infiniband")
    assert record.values("init", "pkey") == {1}


def test_sl_and_tc(run: Run) -> None:
    record = run({"NCCL_IB_SL": "3", "NCCL_IB_TC": "106"})
    assert record.values("rtr", "sl") == {3}
    assert record.values("rtr", "tc") == {106}


def test_traffic_class_of_the_communicator(run: Run) -> None:
    assert run({}, traffic_class=42).values("rtr", "tc") == {42}
    assert run({"NCCL_IB_TC": "106"}, traffic_class=42).values("rtr", "tc") == {106}


def test_fifo_tc_is_for_the_receiving_end(run: Run) -> None:
    record = run({"NCCL_IB_TC": "106", "NCCL_IB_FIFO_TC": "84"})
    assert record.values("rtr", "tc") == {106, 84}
    tc = {row["qp"]: row["tc"] for row in record.rows("rtr")}
    assert {tc[row["qp"]] for row in record.data_posts()} == {"106"}
    assert {tc[row["qp"]] for row in record.small_posts()} == {"84"}


def test_gid_index(run: Run) -> None:
    assert run({"NCCL_IB_GID_INDEX": "2"}).values("rtr", "gid") == {2}


@pytest.mark.parametrize("count", [1, 2, 4])
def test_qps_per_connection(run: Run, count: int) -> None:
    one = len(run({}).rows("rtr"))
    record = run({"NCCL_IB_QPS_PER_CONNECTION": str(count)})
    assert record.status == 0, record.log
    assert len(record.rows("rtr")) - one == 2 * (count - 1)


def _queue_pairs_of_each_message(record: Record) -> set[int]:
    """How many queue pairs carried data of one message, over all messages."""
    per_message: dict[int, set[str]] = collections.defaultdict(set)
    carried = 0
    for row in record.data_posts():
        per_message[carried // _SIZE].add(row["qp"])
        carried += int(row["bytes"])
    return {len(pairs) for pairs in per_message.values()}


def test_split_data_on_qps(run: Run) -> None:
    variables = {"NCCL_IB_QPS_PER_CONNECTION": "4"}
    assert _queue_pairs_of_each_message(run(variables)) == {1}
    split = run({**variables, "NCCL_IB_SPLIT_DATA_ON_QPS": "1"})
    assert _queue_pairs_of_each_message(split) == {4}
    assert {int(r["bytes"]) % 128 for r in split.data_posts()} == {0}


def test_adaptive_routing_and_its_threshold(run: Run) -> None:
    def announced_apart(variables: dict[str, str], topology: str = "two-hosts-4nic") -> bool:
        record = run(variables, topology=topology)
        assert record.status == 0, record.log
        return any(
            row["opcode"] == "write" and int(row["bytes"]) == _SIZE for row in record.rows("post")
        )

    assert not announced_apart({})
    assert announced_apart({}, "two-hosts-infiniband")
    assert announced_apart({"NCCL_IB_ADAPTIVE_ROUTING": "1"})
    assert not announced_apart({"NCCL_IB_ADAPTIVE_ROUTING": "0"}, "two-hosts-infiniband")
    assert not announced_apart({"NCCL_IB_ADAPTIVE_ROUTING": "1", "NCCL_IB_AR_THRESHOLD": "65536"})
    assert announced_apart({"NCCL_IB_ADAPTIVE_ROUTING": "1", "NCCL_IB_AR_THRESHOLD": "65535"})


def test_use_inline(run: Run) -> None:
    assert {r["inline"] for r in run({}).small_posts()} == {"0"}
    assert "1" in {r["inline"] for r in run({"NCCL_IB_USE_INLINE": "1"}).small_posts()}


def test_ece_enable(run: Run) -> None:
    assert any("set_ece options=0x30000002" in line for line in run({}).lines)
    assert not any("ece" in line for line in run({"NCCL_IB_ECE_ENABLE": "0"}).lines)


def test_pci_relaxed_ordering(run: Run) -> None:
    def relaxed(text: str) -> set[str]:
        rows = run({"NCCL_IB_PCI_RELAXED_ORDERING": text}).rows("reg_mr")
        return {row["relaxed"] for row in rows if int(row["bytes"]) >= _SIZE}

    assert relaxed("2") == {"1"}
    assert relaxed("1") == {"1"}
    assert relaxed("0") == {"0"}


_ETIMEDOUT, _EINVAL = 110, 22


def test_mqp_retry(run: Run) -> None:
    quick = {"NCCL_IB_MQP_RETRY_SLEEP_MSEC": "1"}
    failing = {**quick, "RAILHOP_TEST_FAIL_MODIFY": f"{_ETIMEDOUT}:5"}
    assert run(failing).status == 0
    assert run({**failing, "NCCL_IB_MQP_RETRY_CNT": "3"}).status == 4
    other = {**quick, "RAILHOP_TEST_FAIL_MODIFY": f"{_EINVAL}:5"}
    assert run(other).status == 4
    assert run({**other, "NCCL_IB_MQP_RETRY_ALL": "1"}).status == 0


def test_mqp_retry_sleep_grows(run: Run) -> None:
    failing = {"RAILHOP_TEST_FAIL_MODIFY": f"{_ETIMEDOUT}:4"}
    start = time.monotonic()
    assert run({**failing, "NCCL_IB_MQP_RETRY_SLEEP_MSEC": "100"}).status == 0
    assert time.monotonic() - start >= 1.0, "100 + 200 + 300 + 400 ms"


def test_fused_devices_use_every_part(run: Run) -> None:
    record = run({}, devices=(0, 1, 2, 3))
    assert record.status == 0, record.log
    assert len({row["qp"] for row in record.data_posts()}) == 4
    refused = run({"NCCL_IB_MERGE_NICS": "0"}, devices=(0, 1))
    assert refused.status == 4
    assert re.search(r"not fused.*NCCL_IB_MERGE_NICS=0", refused.log)


def test_socket_buffers(run: Run) -> None:
    preloaded = {"LD_PRELOAD": _RECORDER}
    record = run({**preloaded, "NCCL_SOCKET_RCVBUF": "70000", "NCCL_SOCKET_SNDBUF": "80000"})
    assert record.status == 0, record.log
    assert {row.get("rcvbuf") for row in record.rows("socket")} >= {"70000"}
    assert {row.get("sndbuf") for row in record.rows("socket")} >= {"80000"}
    assert not run(preloaded).rows("socket")
