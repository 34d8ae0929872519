"""Two guests as two hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from railhop.testing.uml import TwoHosts

PERFTEST_PORT = 18515


@pytest.fixture(scope="module", name="hosts")
def _hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    with TwoHosts(rails=2, scratch=tmp_path_factory.mktemp("shared")) as hosts:
        yield hosts


def test_each_host_has_its_own_devices(hosts: TwoHosts) -> None:
    assert hosts.a.devices == ["rxa0", "rxa1"]
    assert hosts.b.devices == ["rxb0", "rxb1"]
    assert "rxb0" not in hosts.a.run(["ibv_devices"]).output


def test_hosts_know_their_names(hosts: TwoHosts) -> None:
    assert hosts.a.run("hostname; echo $RAILHOP_HOST").output == "host-a\na\n"
    assert hosts.b.run("hostname; echo $RAILHOP_HOST").output == "host-b\nb\n"


@pytest.mark.parametrize("rail", [0, 1])
def test_writes_run_over_each_rail(hosts: TwoHosts, rail: int) -> None:
    before = _received_bytes(hosts, rail)
    words = "-x 1 -F -n 100 -s 65536"
    server = hosts.a.start(f"ib_write_bw -d rxa{rail} {words}")
    hosts.a.wait_listening(PERFTEST_PORT)
    client = hosts.b.start(f"ib_write_bw -d rxb{rail} {words} $RAILHOP_OOB_PEER")
    assert client.wait() == 0, client.output()
    assert server.wait() == 0, server.output()
    assert _received_bytes(hosts, rail) - before > 100 * 65536


def test_a_pulled_cable_leaves_sockets_and_the_other_host_alone(hosts: TwoHosts) -> None:
    hosts.link("rxb0").cable_out()
    hosts.link("rxb0").wait_port("DOWN")
    try:
        assert hosts.link("rxa0").port_state() == "ACTIVE"
        server = hosts.a.start(
            ["python3", "-c", "import socket; socket.create_server(('', 7000)).accept()"]
        )
        hosts.a.wait_listening(7000)
        assert hosts.b.run("exec 3<>/dev/tcp/$RAILHOP_OOB_PEER/7000").status == 0
        assert server.wait() == 0
    finally:
        hosts.link("rxb0").cable_in()
        hosts.link("rxb0").wait_port("ACTIVE")


def test_iwarp_connects(hosts: TwoHosts) -> None:
    for guest, netdev in ((hosts.a, "a1"), (hosts.b, "b1")):
        # Without rxe, rdma_cm has no choice which device of the address to take.
        words = f"rdma link delete rx{netdev} && rdma link add siw{netdev} type siw netdev {netdev}"
        assert guest.run(words).status == 0
    server = hosts.a.start("rping -s -C 10 -a 10.0.1.1 -p 7174")
    try:
        hosts.a.wait_listening(7174)
        client = hosts.b.run("rping -c -C 10 -a 10.0.1.1 -p 7174")
        assert client.status == 0, client.output
        assert server.wait() == 0, server.output()
    finally:
        server.kill()
        for guest, netdev in ((hosts.a, "a1"), (hosts.b, "b1")):
            words = (
                f"rdma link delete siw{netdev} && rdma link add rx{netdev} type rxe netdev {netdev}"
            )
            assert guest.run(words).status == 0


def test_both_hosts_share_the_scratch_folder(hosts: TwoHosts) -> None:
    assert hosts.a.scratch == hosts.b.scratch
    assert hosts.a.run("echo from a >$OUT/a", env={"OUT": str(hosts.a.scratch)}).status == 0
    assert (Path(hosts.b.scratch) / "a").read_text() == "from a\n"
    assert hosts.b.run(f"cat {hosts.b.scratch}/a").output == "from a\n"


def _received_bytes(hosts: TwoHosts, rail: int) -> int:
    return int(hosts.a.read(f"/sys/class/net/a{rail}/statistics/rx_bytes"))
