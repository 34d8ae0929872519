"""Faults from Python under real traffic: what the kernel's RDMA makes of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Optional

import pytest

from railhop.testing.uml import Guest, GuestProcess, TwoHosts

PERFTEST_PORT = 18515
WAIT_S = 60.0
# 260 MB at 37 MB/s take 7 s at least, so writes cannot end before the cable is out.
SLOW_BITS_PER_SECOND = 300e6
SLOW_WORDS = "-n 4000 -s 65536"


@pytest.fixture(scope="module", name="shared")
def _shared() -> Iterator[Guest]:
    with Guest(rails=1) as guest:
        yield guest


@pytest.fixture(name="guest")
def _guest(shared: Guest) -> Iterator[Guest]:
    """The same guest for all tests, without faults at the start of each."""
    yield shared
    for device in shared.devices:
        shared.link(device).clear()
    for device in shared.devices:
        shared.link(device).wait_port("ACTIVE")


def sent_bytes(guest: Guest, netdev: str) -> int:
    """What a network device has sent so far."""
    return int(guest.read(f"/sys/class/net/{netdev}/statistics/tx_bytes"))


def received_bytes(guest: Guest, netdev: str) -> int:
    """What a network device has received so far."""
    return int(guest.read(f"/sys/class/net/{netdev}/statistics/rx_bytes"))


def wait_traffic(guest: Guest, netdev: str, sender: GuestProcess) -> None:
    """Waits until a network device has received 2 MB more: the sender's data arrives."""
    goal = received_bytes(guest, netdev) + 2_000_000
    deadline = time.monotonic() + WAIT_S
    while received_bytes(guest, netdev) < goal:
        assert sender.poll() is None, sender.output()
        assert time.monotonic() < deadline, f"nothing arrives at {netdev}: {sender.output()}"
        time.sleep(0.02)


def wait_silence(guest: Guest, netdev: str) -> None:
    """Waits until hardly anything arrives at a network device for a while (ARP may)."""
    deadline = time.monotonic() + WAIT_S
    before = received_bytes(guest, netdev)
    while True:
        time.sleep(0.3)
        now = received_bytes(guest, netdev)
        if now - before < 10000:
            return
        assert time.monotonic() < deadline, f"traffic still arrives at {netdev}"
        before = now


def start_writes(guest: Guest, words: str) -> tuple[GuestProcess, GuestProcess]:
    """ib_write_bw from rxb0 to rxa0. Its retry count is 7, which rxe takes as "for ever"."""
    server = guest.start(f"ib_write_bw -d rxa0 -x 1 -F {words}")
    guest.wait_listening(PERFTEST_PORT)
    client = guest.start(f"ib_write_bw -d rxb0 -x 1 -F {words} 127.0.0.1")
    wait_traffic(guest, "a0", client)
    return server, client


def start_cm_writes(hosts: TwoHosts, retry_count: int) -> tuple[GuestProcess, GuestProcess]:
    """The same between two hosts, with a retry count (perftest takes one only with rdma_cm).

    Connecting may fail at first, above all on a busy machine, so it is tried again.
    """
    hosts.link("rxb0").rate(SLOW_BITS_PER_SECOND, "tx")
    words = f"-R -F -x 1 --retry_count={retry_count} {SLOW_WORDS}"
    for attempt in range(3):
        server = hosts.a.start(f"ib_write_bw -d rxa0 {words}")
        deadline = time.monotonic() + WAIT_S
        while "LISTEN" not in hosts.a.run("rdma resource show cm_id").output:
            assert time.monotonic() < deadline, server.output()
        client = hosts.b.start(f"ib_write_bw -d rxb0 {words} 10.0.0.1")
        try:
            wait_traffic(hosts.a, "a0", client)
            break
        except AssertionError:
            if attempt == 2:
                raise
            client.kill()
            server.kill()
    return server, client


def finish(*processes: GuestProcess) -> None:
    for process in processes:
        assert process.wait(WAIT_S) == 0, process.output()


@pytest.mark.parametrize("pulled", ["rxa0", "rxb0"])
def test_a_cable_pulled_and_put_back_under_writes_is_survived(guest: Guest, pulled: str) -> None:
    other = "rxb0" if pulled == "rxa0" else "rxa0"
    guest.link("rxb0").rate(SLOW_BITS_PER_SECOND, "tx")
    server, client = start_writes(guest, SLOW_WORDS)
    guest.link(pulled).cable_out()
    guest.link(pulled).wait_port("DOWN")
    assert guest.link(other).port_state() == "ACTIVE"  # As behind a real switch.
    wait_silence(guest, "a0")
    assert client.poll() is None
    guest.link(pulled).cable_in()
    guest.link(pulled).wait_port("ACTIVE")
    wait_traffic(guest, "a0", client)
    finish(client, server)


@pytest.mark.parametrize("direction", ["tx", "rx", None])
def test_a_black_hole_is_silent_and_ends(guest: Guest, direction: Optional[str]) -> None:
    server, client = start_writes(guest, "--run_infinitely -D 1")
    link = guest.link("rxb0")
    link.blackhole(direction)
    # With only acknowledgements lost, the sender repeats its requests: then look at its own side.
    wait_silence(guest, "b0" if direction == "rx" else "a0")
    assert link.port_state() == "ACTIVE"
    assert guest.link("rxa0").port_state() == "ACTIVE"
    link.blackhole_off(direction)
    wait_traffic(guest, "a0", client)
    client.kill()
    server.kill()


def test_administratively_down_fails_a_sender_at_once(guest: Guest) -> None:
    server, client = start_writes(guest, "--run_infinitely -D 1")
    guest.link("rxb0").down()
    assert client.wait(WAIT_S) != 0
    # LOC_QP_OP_ERR, unlike a pulled cable.
    assert "status 2" in client.output()
    assert guest.link("rxb0").port_state() == "DOWN"
    guest.link("rxb0").up()
    guest.link("rxb0").wait_port("ACTIVE")
    server.kill()


def test_delay_holds_packets(guest: Guest) -> None:
    guest.link("rxb0").delay(0.05)
    start = time.monotonic()
    ping_pong(guest, iterations=10)
    # Each of the ten round trips passes the two queues of rxb0: 100 ms.
    assert time.monotonic() - start > 1


def test_rate_caps_the_bandwidth(guest: Guest) -> None:
    guest.link("rxb0").rate(8e6, "tx")
    server = guest.start("ib_write_bw -d rxa0 -x 1 -F -n 20 -s 65536 -u 20")
    guest.wait_listening(PERFTEST_PORT)
    start = time.monotonic()
    finish(guest.start("ib_write_bw -d rxb0 -x 1 -F -n 20 -s 65536 -u 20 127.0.0.1"), server)
    # 1.3 MB at 1 MB/s.
    assert time.monotonic() - start > 1.3


def test_loss_is_repaired(guest: Guest) -> None:
    guest.link("rxb0").loss(5, "tx")
    ping_pong(guest, iterations=200)
    dropped = guest.run("tc -s qdisc show dev b0").output
    assert "dropped 0," not in dropped, dropped


def test_address_change_moves_the_gid(guest: Guest) -> None:
    link = guest.link("rxb0")
    before = link.state()
    link.address("10.0.0.9")
    after = link.state()
    link.address("10.0.0.2")
    assert before.gids[1].endswith(":ffff:0a00:0002")
    assert after.addresses == ["10.0.0.9/24"]
    assert after.gids[1].endswith(":ffff:0a00:0009")
    assert link.state().gids == before.gids


def test_traffic_runs_from_the_new_address(guest: Guest) -> None:
    guest.link("rxb0").address("10.0.0.9")
    try:
        ping_pong(guest, iterations=100)
    finally:
        guest.link("rxb0").address("10.0.0.2")


def test_no_address_leaves_the_link_local_gid(guest: Guest) -> None:
    link = guest.link("rxb0")
    link.address(None)
    gids = link.state().gids
    link.address("10.0.0.2")
    assert list(gids) == [0]
    assert gids[0].startswith("fe80:")


def test_mtu_changes_the_active_mtu(guest: Guest) -> None:
    link = guest.link("rxa0")
    assert active_mtu(guest, "rxa0") == "4096"
    link.mtu(1500)
    small = active_mtu(guest, "rxa0")
    link.mtu(4500)
    assert small == "1024"
    assert active_mtu(guest, "rxa0") == "4096"


def test_clear_ends_everything(guest: Guest) -> None:
    link = guest.link("rxa0")
    link.loss(10)
    link.delay(0.001, "tx")
    link.rate(1e9, "rx")
    link.blackhole("rx")
    link.cable_out()
    state = link.state()
    assert state.cable == "out"
    assert state.faults == {
        "tx": {"loss": "10.000000%", "delay": "1000us"},
        "rx": {"loss": "10.000000%", "rate": "1000000000bit", "blackhole": "on"},
    }
    link.clear()
    state = link.state()
    assert state.cable == "in"
    assert state.faults == {"tx": {}, "rx": {}}
    link.wait_port("ACTIVE")
    ping_pong(guest, iterations=10)


def test_command_in_the_guest_has_the_same_words(guest: Guest) -> None:
    done = guest.run(
        "railhop-link rxa0 cable out && railhop-link rxa0 loss 1% tx && railhop-link | head -1"
    )
    assert done.output.startswith("rxa0: port DOWN, cable out, up, mtu 4500, address 10.0.0.1/24, ")
    assert done.output.endswith("faults loss 1% tx\n")
    wrong = guest.run("railhop-link rxa0 explode")
    assert wrong.status == 2
    assert "'explode'" in wrong.output
    assert "cable" in wrong.output


def test_a_cable_out_for_longer_than_the_retries_fails_with_status_12() -> None:
    with TwoHosts(rails=1) as hosts:
        server, client = start_cm_writes(hosts, retry_count=1)
        hosts.link("rxa0").cable_out()
        assert client.wait(WAIT_S) != 0
        assert "status 12" in client.output()
        assert hosts.link("rxb0").port_state() == "ACTIVE"
        assert server.poll() is None  # The receiver never learns.


def test_a_cable_back_before_the_retries_end_is_survived() -> None:
    with TwoHosts(rails=1) as hosts:
        server, client = start_cm_writes(hosts, retry_count=6)
        hosts.link("rxb0").cable_out()
        hosts.link("rxb0").wait_port("DOWN")
        hosts.link("rxb0").cable_in()
        wait_traffic(hosts.a, "a0", client)
        finish(client, server)


def ping_pong(guest: Guest, iterations: int) -> None:
    """ibv_rc_pingpong with events between the ends of rail 0.

    RTR may time out if addresses have just changed, so it is tried again, as any program must.
    """
    words = f"-g 1 -e -n {iterations}"
    for attempt in range(3):
        server = guest.start(f"ibv_rc_pingpong -d rxa0 {words}")
        guest.wait_listening(PERFTEST_PORT)
        client = guest.start(f"ibv_rc_pingpong -d rxb0 {words} 127.0.0.1")
        status = client.wait(WAIT_S)
        # The server may wait for the last acknowledgement for ever: if that was lost, nobody is
        # left to repeat it.
        server.kill()
        if status == 0:
            return
        assert attempt < 2, client.output()


def active_mtu(guest: Guest, device: str) -> str:
    """What ibv_devinfo says, in bytes."""
    words = guest.run(["ibv_devinfo", "-d", device]).output.split()
    return words[words.index("active_mtu:") + 1]
