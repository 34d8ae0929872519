"""Faults that nothing announces, and slowness that is none: C05, C06, C11, C23, C26, C47."""

from __future__ import annotations

import time

import pytest

from integration.failover.job import Job, assert_nothing_left, assert_right, assert_silent

_PORT = "alpha/mlx5_0"
# What the NIC itself would wait: 17 s and seven times that. It must not matter.
_NEVER = {"NCCL_IB_TIMEOUT": "22"}
_PEER_DEAD = ("the peer's process", "the peer's host")


@pytest.mark.parametrize("fault", ["blackhole both", "wedge count 64", "wedge rx count 64"])
def test_c05_silent_wedge(fault: str) -> None:
    with Job("--bidirectional", env=_NEVER) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} {fault}")
        job.wait("recovered", lambda: job.recovered() >= 1)
        if fault == "blackhole both":
            job.wait_elsewhere("beta/mlx5_0")
        else:
            # A wedge stops queue pairs one by one: new ones on the same port may do.
            job.wait_elsewhere()
        ended = job.end()
    assert_right(ended)
    assert not any(word in ended.text() for word in _PEER_DEAD), ended.show()
    assert ended.last["longest_gap_ms"] < 10_000, ended.show()


@pytest.mark.parametrize(
    "fault",
    [
        "alpha/mlx5_0 blackhole tx data",
        "alpha/mlx5_0 blackhole rx acks",
        "beta/mlx5_0 blackhole tx all",
        "beta/mlx5_0 blackhole rx all",
    ],
)
def test_c06_loss_in_one_direction(fault: str) -> None:
    with Job("--bidirectional", env=_NEVER) as job:
        job.wait_traffic()
        job.fault(fault)
        job.wait_elsewhere("beta/mlx5_0")
        job.wait("recovered", lambda: job.recovered() >= 2)
        ended = job.end()
    assert_right(ended)
    assert not any(word in ended.text() for word in _PEER_DEAD), ended.show()


def test_c05_silence_is_found_while_idle() -> None:
    # The sender computes: nothing is under way when the path dies.
    with Job(
        "--pause-every", "150", "--pause-ms", "3000", "--pause-side", "sender", connections=1
    ) as job:
        job.wait_traffic(more=300_000)
        time.sleep(0.3)
        job.fault(f"{_PORT} blackhole both")
        job.wait_elsewhere("beta/mlx5_0")
        ended = job.end()
    assert_right(ended)


@pytest.mark.parametrize(
    "faults",
    [
        ["beta/mlx5_0 blackhole tx data", "beta/mlx5_0 down"],
        ["beta/mlx5_0 duplicate 30% data", "alpha/mlx5_0 down"],
        ["alpha/mlx5_0 delay 200ms acks", "beta/mlx5_0 down"],
        ["alpha/mlx5_0 hold tx acks 20%", "beta/mlx5_0 down", "alpha/mlx5_0 release"],
    ],
    ids=["lost", "doubled", "late", "held"],
)
def test_c11_clear_to_send_under_way_when_the_queue_pair_fails(faults: list[str]) -> None:
    with Job("--bidirectional", "--group", "2") as job:
        job.wait_traffic()
        for words in faults:
            job.fault(words)
            time.sleep(0.1)
        job.wait_elsewhere("beta/mlx5_0")
        ended = job.end()
    assert_right(ended)


def test_late_packets_of_the_old_lane_change_nothing() -> None:
    with Job("--bidirectional", "--group", "3") as job:
        job.wait_traffic()
        job.fault(f"{_PORT} delay 900ms jitter 500ms 30%")
        job.fault(f"{_PORT} duplicate 20%")
        time.sleep(0.2)
        job.fault("beta/mlx5_0 down for 300ms")
        job.wait_elsewhere("beta/mlx5_0")
        time.sleep(2)
        job.fault(f"{_PORT} clear")
        job.wait_bytes(_PORT)
        ended = job.end()
    assert_right(ended)


@pytest.mark.parametrize("fault", ["speed 100Gb/s", "loss 1% seed 3", "cap 2Gb/s"])
def test_c23_slower_or_lossy_is_not_down(fault: str) -> None:
    with Job(env={"NCCL_IB_TIMEOUT": "10"}) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} {fault}")
        time.sleep(2)
        ended = job.end()
    assert_right(ended)
    assert "the port is down" not in ended.text(), ended.show()
    assert len(ended.journal("episode")) <= 2, ended.show()


@pytest.mark.parametrize("side", ["receiver", "sender"])
def test_c26_slow_peer_is_no_fault(side: str) -> None:
    with Job(
        "--pause-every", "40", "--pause-ms", "1200", "--pause-side", side, "--bidirectional"
    ) as job:
        job.wait_traffic()
        time.sleep(4)
        ended = job.end()
    assert_right(ended)
    assert_silent(ended)


def test_c26_receives_that_are_not_posted_and_delayed_packets() -> None:
    with Job("--pause-every", "500", "--pause-ms", "700", "--pause-side", "receiver") as job:
        job.wait_traffic()
        # No jitter: packets that overtake each other are lost, and little gets through.
        job.fault(f"{_PORT} delay 20ms")
        time.sleep(3)
        ended = job.end()
    assert_right(ended)
    assert_silent(ended)


@pytest.mark.parametrize("quirk", ["no_uc", "dead_after_reset", "random_error_fields"])
def test_c47_habits_of_providers(quirk: str) -> None:
    habits = [f"{host}/mlx5_{n} quirk {quirk}" for host in ("alpha", "beta") for n in range(4)]
    with Job("--bidirectional", env={"NCCL_IB_TIMEOUT": "10"}, before=habits) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} complete status 12 vendor 129 qp 0")
        job.wait("recovered", lambda: job.recovered() >= 1)
        job.fault("beta/mlx5_0 down")
        job.wait_elsewhere("beta/mlx5_0")
        ended = job.end()
    assert_right(ended)


def test_c47_a_nic_with_short_completion_queues_is_no_backup() -> None:
    # 64 entries: not even one lane fits.
    short = [f"{host}/mlx5_1 quirk short_cq" for host in ("alpha", "beta")]
    with Job("--bidirectional", before=short) as job:
        job.wait_traffic()
        before = job.bytes_of("beta/mlx5_1")
        job.fault(f"{_PORT} down")
        job.wait_elsewhere("beta/mlx5_0", "beta/mlx5_1")
        assert job.bytes_of("beta/mlx5_1") - before < 100_000
        ended = job.end()
    assert_right(ended)


def test_c47_retries_that_never_end() -> None:
    with Job(before=[f"{_PORT} quirk retry7_forever"], env={"NCCL_IB_TIMEOUT": "10"}) as job:
        job.wait_traffic()
        job.fault(f"{_PORT} blackhole both")
        job.wait_elsewhere("beta/mlx5_0")
        ended = job.end()
    assert_right(ended)


def test_a_deregistration_that_hangs_holds_nobody() -> None:
    with Job("--bidirectional") as job:
        job.wait_traffic()
        job.fault(f"{_PORT} hang dereg_mr 8s")
        job.fault(f"{_PORT} down")
        # A fence does not need it.
        job.wait_elsewhere("beta/mlx5_0")
        job.wait("recovered", lambda: job.recovered() >= 1)
        job.wait_elsewhere("beta/mlx5_0")
        job.fault(f"{_PORT} clear hang")
        ended = job.end()
    assert_right(ended)
    assert ended.last["longest_turn_ms"] < 5000, ended.show()


def test_acknowledged_but_never_written_is_never_silent() -> None:
    with Job(connections=1) as job:
        job.wait_traffic()
        job.fault("beta/mlx5_0 unwritten rx")
        time.sleep(0.2)
        job.fault("beta/mlx5_0 down")
        job.wait("an end or traffic", lambda: "given up" in job.log_text() or job.recovered() > 0)
        ended = job.end()
    assert ended.last["wrong_bytes"] == 0, ended.show()
    assert ended.last["wrong_sizes"] == 0, ended.show()
    if not ended.last["survived"]:
        assert "acknowledged" in ended.text(), ended.show()
    assert_nothing_left(ended)


def test_acknowledged_but_never_written_is_resent_when_sends_wait_for_the_receiver() -> None:
    with Job(connections=1, env={"RAILHOP_CONFIRM_RECEIVES": "1"}) as job:
        job.wait_traffic()
        job.fault("beta/mlx5_0 unwritten rx")
        time.sleep(0.2)
        job.fault("beta/mlx5_0 down")
        job.wait_elsewhere("beta/mlx5_0")
        ended = job.end()
    assert_right(ended)
