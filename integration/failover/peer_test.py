"""Peers, the control channel, ends and errors: C24, C28 to C30, C41, C43, C45."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time

import pytest

from integration.failover.job import Job, assert_nothing_left, assert_right, assert_silent

_PORT = "alpha/mlx5_0"


@pytest.mark.parametrize("status", ["loc_prot_err", "rem_access_err", "loc_len_err"])
def test_c24_bad_memory_is_an_error_and_no_reason_to_move(status: str) -> None:
    with Job("--timeout", "20") as job:
        job.wait_traffic()
        # The first queue pair of the device is a connection's: a probe must not get the fault.
        job.fault(f"{_PORT} complete status {status} qp 0")
        ended = job.join()
    assert ended.status == 1, ended.show()
    assert ended.last["wrong_bytes"] == 0, ended.show()
    assert "success when asked again" not in ended.last["problem"], ended.show()
    assert not ended.journal("moved"), ended.show()
    assert not ended.begun("alpha"), ended.show()
    assert_nothing_left(ended)


@pytest.mark.parametrize("host", ["alpha", "beta"])
def test_c28_peers_process_killed(host: str) -> None:
    other = "beta" if host == "alpha" else "alpha"
    with Job("--outlive", "--timeout", "50") as job:
        job.wait_traffic()
        os.kill(job.pid(host), signal.SIGKILL)
        ended = job.join()
    assert "no message" not in ended.last["after_death"], ended.show()
    assert "success when asked again" not in ended.last["after_death"], ended.show()
    assert 0 < ended.last["after_death_ms"] < 10_000, ended.show()
    assert ended.last["wrong_bytes"] == 0
    # The one that is left: within ten seconds, blamed on the process, not on a healthy NIC.
    assert "process" in ended.text(other), ended.show()
    assert len(ended.warnings(other)) <= 5, ended.show()
    assert ended.last["threads_left"] <= 1 and ended.last["descriptors_left"] <= 1, ended.show()


def test_c28_peers_process_killed_by_its_own_packet() -> None:
    with Job("--outlive", "--timeout", "50") as job:
        job.wait_traffic()
        job.fault("beta/mlx5_0 kill rx after 100 messages")
        ended = job.join()
    assert 0 < ended.last["after_death_ms"] < 10_000, ended.show()
    assert "no message" not in ended.last["after_death"], ended.show()


def test_c28_peers_host_powered_off() -> None:
    with Job("--timeout", "50", env={"RAILHOP_GIVE_UP_TIME": "3s"}) as job:
        job.wait_traffic()
        # A process that does not answer, and no packet to or from its NICs.
        for n in range(4):
            job.fault(f"beta/mlx5_{n} blackhole both")
        os.kill(job.pid("beta"), signal.SIGSTOP)
        job.wait_log("given up", host="alpha")
        os.kill(job.pid("beta"), signal.SIGCONT)
        ended = job.join()
    given_up = [line for line in ended.text("alpha").splitlines() if "given up" in line]
    assert any("the peer's host" in line for line in given_up), ended.show()
    assert not any("the local NIC" in line for line in given_up), ended.show()


def test_c29_tcp_lost_the_job_goes_on() -> None:
    with Job("--bidirectional") as job:
        job.wait_traffic()
        for _ in range(3):
            for host in job.hosts:
                job.cut(host)
            time.sleep(0.2)
            job.wait_bytes("beta/mlx5_0", 1_000_000)
        ended = job.end()
    assert_right(ended)
    assert not ended.journal("episode"), ended.show()
    assert not ended.journal("gave-up"), ended.show()


@pytest.mark.parametrize("fault", ["down", "blackhole both"])
def test_c29_tcp_and_a_link_lost_together(fault: str) -> None:
    with Job("--bidirectional") as job:
        job.wait_traffic()
        for host in job.hosts:
            job.cut(host)
        job.fault(f"{_PORT} {fault}")
        job.wait_elsewhere("beta/mlx5_0")
        ended = job.end()
    assert_right(ended)


def test_c29_no_tcp_path_is_left_and_a_link_fails() -> None:
    with Job("--bidirectional") as job:
        job.wait_traffic()
        for host in job.hosts:
            job.cut(host, listening=True)
        for host in job.hosts:
            job.cut(host)
        time.sleep(1)
        job.fault(f"{_PORT} down")
        # The notice goes over a healthy lane.
        job.wait_elsewhere("beta/mlx5_0")
        ended = job.end()
    assert_right(ended)


def _junk(port: int) -> list[socket.socket]:
    """Connections that nobody with the handle would make; those that stay open."""
    kept = []
    for data in (
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        os.urandom(4096),
        struct.pack("<I", 0xFFFFFFFF) * 64,
        struct.pack("<IHH", 16, 2, 1) + b"\0" * 8,
        b"\0" * 65536,
    ):
        try:
            one = socket.create_connection(("127.0.0.1", port), timeout=5)
            one.sendall(data)
        except OSError:
            continue
        kept.append(one)
    # Some go, some stay silent.
    for one in kept[::2]:
        one.close()
    return kept[1::2]


def test_c30_junk_at_the_control_port_while_links_fail() -> None:
    kept: list[socket.socket] = []
    with Job("--bidirectional") as job:
        job.wait_traffic()
        ports = [port for host in job.hosts for _, port in job.sockets(host, listening=True)]
        assert ports, "nobody listens"
        for port in ports:
            kept += _junk(port)
        job.wait_bytes("beta/mlx5_0")
        job.fault(f"{_PORT} down")
        for port in ports:
            kept += _junk(port)
        job.wait_elsewhere("beta/mlx5_0")
        job.fault(f"{_PORT} up")
        for port in ports:
            kept += _junk(port)
        job.wait_bytes(_PORT)
        ended = job.end()
    for one in kept:
        one.close()
    assert_right(ended)
    assert ended.last["longest_gap_ms"] < 5000, ended.show()
    assert len(ended.warnings("alpha")) <= 6, ended.show()


@pytest.mark.parametrize("side", ["0", "1"])
def test_c41_switched_off_at_one_end_faults_come_through(side: str) -> None:
    # NETPERF's processes differ by their rank alone: a script in front of neither is needed, since
    # the fabric's host picks the option.
    with Job("--timeout", "40", env={"RAILHOP_FAILOVER": "0", "NCCL_IB_TIMEOUT": "10"}) as job:
        job.wait_traffic()
        host = job.hosts[int(side)]
        job.fault(f"{host}/mlx5_0 down")
        ended = job.join()
    assert ended.status == 1, ended.show()
    assert not ended.last["survived"]
    assert not ended.journal("episode"), ended.show()
    assert_nothing_left(ended)


@pytest.mark.parametrize(
    "faults",
    [
        [f"alpha/mlx5_{n} down" for n in range(4)],
        ["alpha/mlx5_0 hang destroy_qp 4s", "alpha/mlx5_0 hang modify_qp err 4s"]
        + [f"alpha/mlx5_{n} down" for n in range(4)],
        [f"beta/mlx5_{n} blackhole both" for n in range(4)],
        [f"alpha/mlx5_{n} remove" for n in range(4)],
    ],
    ids=["down", "hang", "blackhole", "removed"],
)
def test_c43_close_in_the_middle_of_it(faults: list[str]) -> None:
    # Nothing can move: netperf gives up after two seconds and closes while the episode is open.
    with Job("--timeout", "2", "--bidirectional") as job:
        job.wait_traffic()
        for words in faults:
            job.fault(words)
        ended = job.join()
    assert "no message for 2000 ms" in ended.last["problem"], ended.show()
    assert "come back" not in ended.last["problem"], ended.show()
    assert ended.last["wrong_bytes"] == 0
    if "hang" not in faults[0]:
        assert_nothing_left(ended)


def test_c43_given_up_after_its_time_and_said_every_time() -> None:
    with Job("--timeout", "50", env={"RAILHOP_GIVE_UP_TIME": "2s"}) as job:
        job.wait_traffic()
        for n in range(4):
            job.fault(f"alpha/mlx5_{n} down")
        ended = job.join()
    assert "success when asked again" not in ended.last["problem"], ended.show()
    assert "no message" not in ended.last["problem"], ended.show()
    assert "given up" in ended.text(), ended.show()
    assert ended.last["wrong_bytes"] == 0
    assert_nothing_left(ended)


@pytest.mark.parametrize("api", [6, 10, 12])
def test_c43_end_with_and_without_finalize(api: int) -> None:
    with Job("--api", str(api)) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} down")
        job.wait_elsewhere("beta/mlx5_0")
        ended = job.end()
    # Without finalize (before version 11) the devices stay open for the next communicator: four
    # contexts in each process. No thread is left.
    assert_right(ended, contexts=8 if api < 11 else 0)


def test_c45_children_of_a_process_that_fails_over() -> None:
    with Job("--children", "8", "--bidirectional") as job:
        job.wait_traffic()
        job.fault(f"{_PORT} down")
        job.wait_elsewhere("beta/mlx5_0")
        job.fault(f"{_PORT} up")
        job.wait_bytes(_PORT)
        ended = job.end()
    assert_right(ended)


def test_c50_healthy_starts_are_silent() -> None:
    # Each process reads its ports and meets the other in an order of its own.
    for connections in (1, 2, 5, 16):
        with Job("--bidirectional", connections=connections, devices="0,1") as job:
            job.wait_traffic()
            ended = job.end()
        assert_right(ended)
        assert_silent(ended)
