"""A job as its operator sees and steers it: by pid, from another process."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest
import railhop

from integration.admin.watched_job import watched
from integration.failover.job import assert_right, assert_silent

_PORTS = [f"mlx5_{number}:1" for number in range(4)]


def test_a_healthy_job_is_shown_whole() -> None:
    with watched(connections=2) as one:
        health = one.alpha.health()
        assert health.verdict is railhop.Verdict.OK
        assert [port.name for port in health.ports] == _PORTS
        assert {port.state for port in health.ports} == {railhop.PortState.UP}
        assert [device.name for device in health.devices] == [f"mlx5_{n}" for n in range(4)]
        assert {end.state for end in health.connections} == {railhop.ConnectionState.HEALTHY}
        assert {end.direction for end in health.connections} == {railhop.Direction.SEND}
        assert health.connections[0].ports == ("mlx5_0:1",)
        assert health.episodes == ()
        process = health.process
        assert process.pid == one.job.pid("alpha")
        assert process.job == one.name
        assert process.version == railhop.__version__
        assert process.failover
        assert abs(process.now_unix_ns - time.time_ns()) < 60e9
        assert process.start_unix_ns <= process.now_unix_ns
        # As JSON, whole and back.
        plain = json.loads(json.dumps(health.to_dict()))
        assert plain["verdict"] == "ok"
        assert plain["ports"][0]["state"] == "up"
        assert len(plain["paths"]) == len(health.paths) > 0
        assert repr(health).startswith("Health(process=ProcessInfo(pid=")
        assert "ports=<4>" in repr(health)
        receiver = one.beta.health().connections
        assert {end.direction for end in receiver} == {railhop.Direction.RECEIVE}
        ended = one.job.end()
    assert_right(ended)
    assert_silent(ended)


def test_its_processes_are_found_by_job_and_by_pid() -> None:
    with watched() as one:
        found = railhop.processes(job=one.name)
        assert {each.pid for each in found} == {one.job.pid("alpha"), one.job.pid("beta")}
        for each in found:
            assert each.problem == ""
            assert each.info is not None
            assert each.info.job == one.name
            assert each.attach().info().pid == each.pid
            assert railhop.attach(path=each.path).info().pid == each.pid
        # Two processes have the name: which is meant has to be said.
        with pytest.raises(railhop.InvalidError, match=str(found[0].pid)):
            railhop.attach(job=one.name)
        assert_right(one.job.end())


def test_a_port_that_fails_and_comes_back_is_told() -> None:
    with watched() as one:
        seen = one.alpha.events().last_serial
        one.job.fault("alpha/mlx5_0 down")
        one.job.wait_elsewhere("beta/mlx5_0")
        port = one.wait_state("mlx5_0:1", "down")
        assert port.cause is railhop.Cause.PORT_DOWN
        assert port.lanes == 0
        one.job.wait("recovered", lambda: one.alpha.stats().episodes_recovered >= 1)
        health = one.alpha.health()
        assert health.verdict is railhop.Verdict.DEGRADED
        episode = health.episodes[-1]
        assert episode.port == "mlx5_0:1"
        assert episode.cause is railhop.Cause.PORT_DOWN
        assert episode.recovered
        assert episode.begin_unix_ns <= episode.end_unix_ns
        assert episode.resume_ns > 0
        assert {end.state for end in health.connections} == {railhop.ConnectionState.ON_BACKUP}
        events = one.alpha.events(after=seen)
        kinds = [event.kind for event in events]
        assert kinds.index(railhop.EventKind.EPISODE_BEGUN) < kinds.index(
            railhop.EventKind.EPISODE_RECOVERED
        )
        assert [event.serial for event in events] == sorted(event.serial for event in events)
        stats = one.alpha.stats()
        assert stats.faults[railhop.Cause.PORT_DOWN] == 1
        assert sum(h.count for h in stats.histograms if h.name == "resume") == 1
        one.job.fault("alpha/mlx5_0 up")
        one.wait_state("mlx5_0:1", "up")
        one.wait_ok()
        assert_right(one.job.end())


@pytest.mark.parametrize("mode", ["drain", "now"])
def test_a_forced_failover_keeps_every_byte(mode: str) -> None:
    with watched("--bidirectional", connections=2) as one:
        outcome = one.alpha.force_failover("mlx5_0", mode=mode)
        assert outcome.ports == ("mlx5_0:1",)
        assert outcome.text
        one.job.wait("it is left", lambda: one.port("mlx5_0:1").lanes == 0)
        assert one.port("mlx5_0:1").held_by_command
        one.job.wait_elsewhere("beta/mlx5_0")
        before = one.bytes_by("mlx5_0:1")
        one.job.wait_elsewhere("beta/mlx5_0")
        assert one.bytes_by("mlx5_0:1") == before
        one.alpha.release("mlx5_0")
        one.alpha.fail_back("mlx5_0")
        one.job.wait("it carries again", lambda: one.bytes_by("mlx5_0:1") > before)
        one.wait_ok()
        assert_right(one.job.end())


def test_the_last_path_is_not_given_away() -> None:
    with watched() as one:
        for port in _PORTS[:3]:
            one.alpha.hold(port)
        with pytest.raises(railhop.RefusedError, match="mlx5_3") as refused:
            one.alpha.hold("mlx5_3:1")
        assert "\n" not in str(refused.value)
        assert not one.port("mlx5_3:1").held_by_command
        one.job.wait("all on the last", lambda: one.port("mlx5_3:1").lanes > 0)
        one.job.wait_bytes("alpha/mlx5_3")
        for port in _PORTS[:3]:
            one.alpha.release(port)
        one.wait_ok()
        assert_right(one.job.end())


def test_bad_input_is_named_and_changes_nothing() -> None:
    with watched() as one:
        before = [(port.name, port.state, port.lanes) for port in one.alpha.health().ports]
        for target in ("mlx5_9", "mlx5_0:7", "connection:ffff", ""):
            for call in (one.alpha.force_failover, one.alpha.hold):
                with pytest.raises((railhop.NotFoundError, railhop.InvalidError)) as raised:
                    call(target)
                assert "\n" not in str(raised.value)
        with pytest.raises(railhop.NotFoundError, match="mlx5_3"):
            one.alpha.hold("mlx5_9")
        with pytest.raises(railhop.InvalidError, match=r"gently.*drain"):
            one.alpha.force_failover("mlx5_0", mode="gently")
        with pytest.raises(railhop.NotFoundError, match="RAILHOP_NO_SUCH"):
            one.alpha.set_option("RAILHOP_NO_SUCH", "1")
        with pytest.raises(railhop.RefusedError, match="NCCL_IB_HCA"):
            one.alpha.set_option("NCCL_IB_HCA", "mlx5_1")
        with pytest.raises(railhop.InvalidError, match="RAILHOP_STALL_THRESHOLD"):
            one.alpha.set_option("RAILHOP_STALL_THRESHOLD", "soon")
        for after, limit, wait_s in ((-1, 1, 0.0), (0, 0, 0.0), (0, 5000, 0.0), (0, 1, -1.0)):
            with pytest.raises(railhop.InvalidError):
                one.alpha.events(after=after, limit=limit, wait_s=wait_s)
        after_all = [(port.name, port.state, port.lanes) for port in one.alpha.health().ports]
        assert after_all == before
        assert_right(one.job.end())


def test_an_option_that_may_change_does() -> None:
    with watched() as one:
        option = one.alpha.set_option("RAILHOP_STALL_THRESHOLD", "2s")
        assert option.source == "command"
        assert option.changeable
        config = {each.name: each for each in one.alpha.config()}
        assert config["RAILHOP_STALL_THRESHOLD"].value == option.value
        assert config["RAILHOP_JOB_ID"].value == one.name
        assert config["RAILHOP_PROBE_INTERVAL"].source == "environment"
        assert_right(one.job.end())


def test_events_come_as_they_happen_and_end_with_the_process() -> None:
    with watched() as one:
        kinds: list[railhop.EventKind] = []
        begun = threading.Event()

        def follow() -> None:
            for event in one.alpha.follow():
                kinds.append(event.kind)
                if event.kind == "episode_begun":
                    begun.set()

        thread = threading.Thread(target=follow)
        thread.start()
        one.job.fault("alpha/mlx5_0 down")
        # The other thread waits in the API all the while.
        assert begun.wait(60)
        one.job.wait_elsewhere("beta/mlx5_0")
        assert_right(one.job.end())
        thread.join(60)
        assert not thread.is_alive()
    assert railhop.EventKind.EPISODE_RECOVERED in kinds


def test_a_wait_lets_other_threads_run_and_ends_with_a_signal() -> None:
    with watched() as one:
        last = one.alpha.events().last_serial
        start = time.monotonic()
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            one.alpha.events(after=last + 1000, wait_s=300)
        assert time.monotonic() - start < 60
        timer.join()
        assert_right(one.job.end())


def test_a_process_that_is_gone_is_told() -> None:
    with watched() as one:
        pid = one.job.pid("alpha")
        assert_right(one.job.end())
        with pytest.raises((railhop.StaleSocketError, railhop.NotFoundError)):
            one.alpha.health()
        with pytest.raises((railhop.StaleSocketError, railhop.NotFoundError), match=str(pid)):
            railhop.attach(pid=pid)
        # It has taken its socket with it.
        assert not list(railhop.processes(job=one.name))
        assert not os.listdir(os.environ["RAILHOP_ADMIN_DIR"])


def test_without_failover_it_can_be_watched_and_not_steered() -> None:
    with watched(env={"RAILHOP_FAILOVER": "0"}) as one:
        health = one.alpha.health()
        assert not health.process.failover
        assert {end.state for end in health.connections} == {railhop.ConnectionState.UNPROTECTED}
        assert one.alpha.stats().ports[0].name == "mlx5_0:1"
        with pytest.raises(railhop.RefusedError, match="RAILHOP_FAILOVER"):
            one.alpha.force_failover("mlx5_0")
        assert_right(one.job.end())
