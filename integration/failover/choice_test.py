"""Which ports take over, and with what: C16, C18, C25, C31 to C35, C37 to C39, C42."""

from __future__ import annotations

import re
import time

import pytest

from integration.failover.job import Job, assert_right, assert_told

_PORT = "alpha/mlx5_0"
# Probes are writes of no bytes; clear-to-send entries are 64.
_NOTHING = 2000


def test_c16_address_at_another_index_is_followed() -> None:
    with Job("--bidirectional") as job:
        job.wait_traffic()
        job.fault(f"{_PORT} gid move 3 8")
        job.fault(f"{_PORT} down for 300ms")
        job.wait_elsewhere("beta/mlx5_0")
        time.sleep(0.4)
        job.wait_bytes(_PORT)
        ended = job.end()
    assert_right(ended)


def test_c16_pinned_index_stays_on_the_other_nic_and_says_why() -> None:
    with Job("--bidirectional", env={"NCCL_IB_GID_INDEX": "3"}) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} gid move 3 8")
        job.fault(f"{_PORT} down for 300ms")
        job.wait_elsewhere("beta/mlx5_0")
        time.sleep(1.5)
        before = job.bytes_of(_PORT)
        time.sleep(0.5)
        assert job.bytes_of(_PORT) - before < _NOTHING
        ended = job.end()
    assert_right(ended)
    assert "NCCL_IB_GID_INDEX" in "\n".join(ended.text("alpha").splitlines()[12:]), ended.show()


def test_c18_lid_change_is_followed_and_sm_change_is_nothing() -> None:
    with Job("--bidirectional", topology="two-hosts-infiniband") as job:
        job.wait_traffic("beta/ibp0")
        job.fault("alpha/ibp0 smlid 2")
        time.sleep(0.7)
        assert not re.search(r"journal \d+ (episode|suspect):", job.log_text())
        job.fault("alpha/ibp0 lid 77")
        time.sleep(0.5)
        job.wait_bytes("beta/ibp0", 1_000_000)
        ended = job.end()
    assert_right(ended)


def test_c25_breaker_of_a_nic_whose_new_queue_pairs_all_fail() -> None:
    with Job("--bidirectional", before=["alpha/mlx5_1 fail modify_qp rts EIO"]) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} down")
        job.wait_elsewhere("beta/mlx5_0", "beta/mlx5_1")
        time.sleep(2)
        assert job.bytes_of("alpha/mlx5_1") < _NOTHING
        ended = job.end()
    assert_right(ended)
    assert len(ended.warnings("alpha")) <= 6, ended.show()


def test_c25_breaker_of_a_nic_whose_queue_pairs_fail_in_use() -> None:
    with Job("--bidirectional") as job:
        job.wait_traffic()
        job.fault("alpha/mlx5_1 complete status 12 count 100000")
        job.fault(f"{_PORT} down")
        job.wait_elsewhere("beta/mlx5_0", "beta/mlx5_1")
        time.sleep(2)
        ended = job.end()
    assert_right(ended)
    assert len(ended.warnings("alpha")) <= 12, ended.show()


_ISLAND = "".join(
    f"{head}\n"
    + "".join(
        f"  device mlx5_{n} pci 0000:0{n + 1}:00.0\n"
        f"    port 1 net {'island' if n == 1 and host == 0 else 'lan'} "
        f"address 10.0.{host}.{n + 1}\n"
        for n in range(3)
    )
    for host, head in enumerate(("nets lan island\nhost alpha", "host beta"))
)


def test_c31_backup_that_cannot_reach_the_peer_is_never_chosen() -> None:
    with Job("--bidirectional", topology=_ISLAND) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} down")
        job.wait_bytes("alpha/mlx5_2", 2_000_000)
        assert job.counters("alpha/mlx5_1")["rx_bytes"] == 0
        assert job.counters("alpha/mlx5_1")["tx_bytes"] < _NOTHING
        ended = job.end()
    assert_right(ended)


def test_c31_backup_that_drops_silently_is_never_chosen() -> None:
    with Job("--bidirectional", before=["alpha/mlx5_1 blackhole both"]) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} down")
        job.wait_elsewhere("beta/mlx5_0")
        time.sleep(0.5)
        assert job.counters("alpha/mlx5_1")["rx_bytes"] == 0
        ended = job.end()
    assert_right(ended)


def test_c32_backup_with_a_smaller_mtu() -> None:
    with Job(before=["alpha/mlx5_1 mtu 1024", "beta/mlx5_2 mtu 512"]) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} down")
        job.wait_elsewhere("beta/mlx5_0")
        job.fault("alpha/mlx5_1 down")
        job.wait_elsewhere("beta/mlx5_0", "beta/mlx5_1")
        job.fault(f"{_PORT} up")
        job.wait_bytes(_PORT)
        ended = job.end()
    assert_right(ended)


def _with_pkeys(second: str) -> str:
    text = "nets a\n"
    for host, name in enumerate(("alpha", "beta")):
        text += f"host {name}\n"
        for n in range(3):
            keys = second if n == 1 and host == 0 else "pkey 0xffff pkey 0x8001"
            text += (
                f"  device ibp{n} pci 0000:0{n + 1}:00.0\n"
                f"    port 1 link infiniband net a lid {16 + 4 * host + n} {keys}\n"
            )
    return text


def test_c33_backup_without_the_partition_is_not_used() -> None:
    topology = _with_pkeys("pkey 0xffff pkey 0x8002")
    with Job("--bidirectional", topology=topology, env={"NCCL_IB_PKEY": "1"}) as job:
        job.wait_traffic("beta/ibp0")
        job.fault("alpha/ibp0 down")
        job.wait_bytes("alpha/ibp2", 1_000_000)
        assert job.counters("alpha/ibp1")["rx_bytes"] < _NOTHING
        ended = job.end()
    assert_right(ended)


def test_c33_partition_at_another_index_is_found_by_its_value() -> None:
    topology = _with_pkeys("pkey 0x8001 pkey 0xffff")
    with Job("--bidirectional", topology=topology, env={"NCCL_IB_PKEY": "1"}) as job:
        job.wait_traffic("beta/ibp0")
        job.fault("alpha/ibp0 down")
        job.wait_bytes("alpha/ibp1", 1_000_000)
        ended = job.end()
    assert_right(ended)


def test_c35_backup_whose_memory_cannot_be_registered() -> None:
    with Job("--bidirectional", before=["alpha/mlx5_1 fail reg_mr ENOMEM"]) as job:
        job.wait_traffic()
        job.wait_log(r"WARN .*mlx5_1:1: no cover: .*Cannot allocate memory", host="alpha")
        job.fault(f"{_PORT} down")
        job.wait_elsewhere("beta/mlx5_0")
        assert job.counters("alpha/mlx5_1")["tx_bytes"] < _NOTHING
        ended = job.end()
    assert_right(ended)


_FEW = (
    "nets lan\n"
    "host alpha\n"
    "  device mlx5_0 pci 0000:01:00.0\n    port 1 address 10.0.0.1\n"
    "  device mlx5_1 pci 0000:02:00.0 cap max_qp 3\n    port 1 address 10.0.0.2\n"
    "  device mlx5_2 pci 0000:03:00.0\n    port 1 address 10.0.0.3\n"
    "host beta\n"
    "  device mlx5_0 pci 0000:01:00.0\n    port 1 address 10.0.1.1\n"
    "  device mlx5_1 pci 0000:02:00.0\n    port 1 address 10.0.1.2\n"
)


def test_c35_backup_with_too_few_queue_pairs() -> None:
    with Job(topology=_FEW, connections=8) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} down")
        job.wait("recovered", lambda: job.recovered() >= 1)
        job.wait_elsewhere("beta/mlx5_0")
        ended = job.end()
    assert_right(ended)


@pytest.mark.parametrize(
    ("hca", "excluded"),
    [("^mlx5_1", [1]), ("^=mlx5_1,mlx5_2", [1, 2]), ("mlx5_0,mlx5_3", [1, 2])],
)
def test_c37_excluded_nic_is_never_a_backup(hca: str, excluded: list[int]) -> None:
    with Job("--bidirectional", env={"NCCL_IB_HCA": hca}) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} down")
        job.wait_bytes("alpha/mlx5_3" if 2 in excluded else "alpha/mlx5_2")
        for host in job.hosts:
            for n in excluded:
                counters = job.counters(f"{host}/mlx5_{n}")
                assert counters["tx_packets"] == counters["rx_packets"] == 0
        ended = job.end()
    assert_right(ended)


def test_c38_container_with_one_nic_and_a_peer_with_eight() -> None:
    with Job("--bidirectional", topology="container-lopsided", hosts="container,peer") as job:
        job.wait_traffic("peer/mlx5_0")
        job.fault("peer/mlx5_0 down")
        job.wait_elsewhere("peer/mlx5_0")
        ended = job.end()
    assert_right(ended)


def test_c38_only_nic_lost_for_a_while() -> None:
    with Job(topology="container-lopsided", hosts="container,peer") as job:
        job.wait_traffic("peer/mlx5_0")
        job.fault("container/mlx5_3 down for 1s")
        time.sleep(1)
        job.wait_bytes("container/mlx5_3", 1_000_000)
        ended = job.end()
    assert_right(ended)


_SHUFFLED = (
    "nets red green blue\n"
    "host alpha\n"
    "  device mlx5_0 pci 0000:01:00.0\n    port 1 net red address 10.1.0.1\n"
    "  device mlx5_1 pci 0000:02:00.0\n    port 1 net green address 10.2.0.1\n"
    "  device mlx5_2 pci 0000:03:00.0\n    port 1 net blue address 10.3.0.1\n"
    "host beta\n"
    "  device rocep9 pci 0000:01:00.0\n    port 1 net red address 10.1.0.2\n"
    "  device rocep2 pci 0000:02:00.0\n    port 1 net blue address 10.3.0.2\n"
    "  device rocep5 pci 0000:03:00.0\n    port 1 net green address 10.2.0.2\n"
)


def test_c39_names_and_order_differ_pairs_are_found_by_reach() -> None:
    with Job("--bidirectional", topology=_SHUFFLED) as job:
        job.wait_traffic("beta/rocep9")
        job.fault(f"{_PORT} down")
        job.wait_elsewhere("beta/rocep9")
        job.fault("beta/rocep5 down")
        job.wait_bytes("beta/rocep2", 1_000_000)
        ended = job.end()
    assert_right(ended)


def test_c39_rail_aligned_hosts_move_to_the_next_rail() -> None:
    with Job("--bidirectional", topology="two-hosts-8nic") as job:
        job.wait_traffic()
        job.fault(f"{_PORT} down")
        job.wait_elsewhere("beta/mlx5_0")
        ended = job.end()
    assert_right(ended)
    # The nearest: the same socket.
    assert re.search(r"go on over mlx5_[123]:1", "\n".join(ended.recovered("alpha"))), ended.show()


def test_c42_many_connections_lose_one_nic_at_once_others_see_nothing() -> None:
    with Job("--in-flight", "2", connections=128, devices="0,1", size=5001) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} down")
        job.wait("recovered", lambda: job.recovered() >= 1)
        job.wait_elsewhere("beta/mlx5_0")
        ended = job.end()
    assert_right(ended)
    assert_told(ended, "mlx5_0:1")
    assert "64 connection(s)" in ended.begun("alpha")[0], ended.show()
    for host in job.hosts:
        assert len(ended.warnings(host)) <= 5, ended.show()
