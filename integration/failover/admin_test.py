"""The admin API of a running job, over its sockets: what it tells, takes and refuses."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
from typing import Any, Optional

from integration.failover.job import Job, assert_right

_CLIENT = os.environ["RAILHOP_TEST_ADMIN_CLIENT"]
_PORT = "alpha/mlx5_0"
_ALL = {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1"}


class Desk:
    """The admin socket of a job's process."""

    def __init__(self, job: Job, host: str) -> None:
        self.job = job
        self.pid = job.pid(host)
        self.path = job.admin_dir / f"{self.pid}.sock"

    def ask(self, what: str, *, seconds: float = 30, times: int = 1, **fields: Any) -> Any:
        """One request; its answer's body, or the failure."""
        done = subprocess.run(
            [_CLIENT, str(self.path), json.dumps({what: fields}), str(seconds), str(times)],
            stdout=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
        (body,) = json.loads(done.stdout).values()
        return body

    def health(self) -> Any:
        return self.ask("get_health")

    def port(self, name: str) -> Any:
        return next(one for one in self.health()["ports"] if one["name"] == name)

    def wait_verdict(self, word: str) -> None:
        self.job.wait(f"verdict {word}", lambda: self.health()["verdict"] == "VERDICT_" + word)

    def wait_port(self, name: str, state: str) -> None:
        wanted = "PORT_STATE_" + state
        self.job.wait(f"{name} {state}", lambda: self.port(name)["state"] == wanted)

    def events(self) -> list[Any]:
        """All of them, a few at a time."""
        found: list[Any] = []
        while True:
            after = found[-1]["serial"] if found else "0"
            answer = self.ask("get_events", after=after, limit=7)
            assert answer["gone"] == "0"
            if not answer["events"]:
                return found
            found += answer["events"]


def _desks(job: Job) -> tuple[Desk, Desk]:
    job.wait_traffic()
    return Desk(job, "alpha"), Desk(job, "beta")


def _code(answer: Any) -> Optional[str]:
    code: Optional[str] = answer.get("code")
    return code


def test_health_shows_a_port_that_goes_down_and_comes_back() -> None:
    with Job("--bidirectional", env={"RAILHOP_JOB_ID": "job 7"}) as job:
        alpha, _ = _desks(job)
        alpha.wait_verdict("OK")
        health = alpha.health()
        process = health["process"]
        assert int(process["pid"]) == alpha.pid
        assert process["job"] == "job 7"
        assert process["host"] == socket.gethostname()
        assert process["failover"] and process["running"]
        assert "railhop-netperf" in process["program"]
        assert {one["name"] for one in health["ports"]} == _ALL
        assert {one["name"] for one in health["devices"]} == {one[:-2] for one in _ALL}
        for port in health["ports"]:
            assert port["state"] == "PORT_STATE_UP" and port["cause"] == "CAUSE_NONE", port
            assert port["speed_mbps"] > 0 and port["mtu_bytes"] >= 1024 and port["gid"], port
        # Two of each direction.
        assert len(health["connections"]) == 4
        for one in health["connections"]:
            assert one["state"] == "CONNECTION_STATE_HEALTHY", one
            assert one["ports"] == one["home_ports"] == ["mlx5_0:1"], one
            assert int(one["bytes"]) > 0 and int(one["messages"]) > 0, one

        job.fault(f"{_PORT} down")
        alpha.wait_port("mlx5_0:1", "DOWN")
        job.wait("recovered", lambda: alpha.health()["episodes"] != [])
        job.wait("an end", lambda: all(one["recovered"] for one in alpha.health()["episodes"]))
        alpha.wait_verdict("DEGRADED")
        health = alpha.health()
        port = next(one for one in health["ports"] if one["name"] == "mlx5_0:1")
        assert port["cause"] == "CAUSE_PORT_DOWN" and port["lanes"] == 0, port
        assert abs(int(port["since_unix_ns"]) / 1e9 - time.time()) < 120
        for one in health["connections"]:
            assert one["state"] == "CONNECTION_STATE_ON_BACKUP", one
            assert "mlx5_0:1" not in one["ports"] and one["home_ports"] == ["mlx5_0:1"], one
            assert one["episodes"] == "1", one
        (episode,) = health["episodes"]
        assert episode["port"] == "mlx5_0:1" and episode["cause"] == "CAUSE_PORT_DOWN", episode
        assert episode["blame"] == "BLAME_LOCAL_PORT" and episode["connections"] == 4, episode
        assert 0 < int(episode["agree_ns"]) <= int(episode["resume_ns"]) < 60e9, episode
        assert int(episode["begin_unix_ns"]) < int(episode["end_unix_ns"]), episode
        assert set(episode["ports_after"]) <= _ALL - {"mlx5_0:1"}, episode
        assert any(one["state"] == "PATH_STATE_FAILED" for one in health["paths"])
        stats = alpha.ask("get_stats")
        assert stats["episodes_begun"] == stats["episodes_recovered"] == "1", stats
        assert stats["faults"] == [{"cause": "CAUSE_PORT_DOWN", "count": "1"}], stats
        for name in ("detect", "agree", "resume"):
            histogram = next(one for one in stats["histograms"] if one["name"] == name)
            assert histogram["count"] == "1" and sum(map(int, histogram["counts"])) == 1, histogram

        job.fault(f"{_PORT} up")
        alpha.wait_verdict("OK")
        ended = job.end()
    assert_right(ended)
    assert not alpha.path.exists()


def test_stats_count_what_the_job_moves() -> None:
    last: dict[str, Any] = {}
    with Job("--seconds", "3", endless=False) as job:
        alpha, beta = _desks(job)
        while alpha.path.exists() and beta.path.exists():
            now = {"sent": alpha.ask("get_stats"), "received": beta.ask("get_stats")}
            if any("ports" not in one for one in now.values()):
                break
            for end, stats in now.items():
                for port in stats["ports"]:
                    before = last.get(end + port["name"], 0)
                    last[end + port["name"]] = int(port[end + "_bytes"])
                    assert last[end + port["name"]] >= before
            time.sleep(0.02)
        ended = job.join()
    assert_right(ended)
    # As near to the end as a reading came.
    total = ended.last["bytes"]
    for end in ("sent", "received"):
        counted = sum(value for name, value in last.items() if name.startswith(end))
        assert 0.5 * total < counted, (end, last, ended.last)
    assert last["sentmlx5_0:1"] > 0 and last["sentmlx5_3:1"] == 0, last


def test_commands_move_traffic_and_every_byte_is_right() -> None:
    with Job("--bidirectional") as job:
        alpha, beta = _desks(job)
        alpha.wait_verdict("OK")
        # At once, a port.
        done = alpha.ask("force_failover", target="mlx5_0:1", mode="FAILOVER_MODE_NOW")
        assert done["ports"] == ["mlx5_0:1"] and done["connections"] == 4, done
        job.wait_elsewhere("beta/mlx5_0")
        alpha.wait_port("mlx5_0:1", "HELD")
        port = alpha.port("mlx5_0:1")
        assert port["held_by_command"] and port["lanes"] == 0, port
        done = alpha.ask("release", target="mlx5_0:1")
        assert done["ports"] == ["mlx5_0:1"], done
        alpha.wait_verdict("OK")
        job.wait_bytes(_PORT)
        # In order, a device.
        done = alpha.ask("hold", target="mlx5_0")
        assert done["ports"] == ["mlx5_0:1"], done
        alpha.wait_port("mlx5_0:1", "HELD")
        alpha.ask("release", target="mlx5_0")
        alpha.wait_verdict("OK")
        beta.wait_verdict("OK")
        # In order, a connection, at its sending end.
        sends = [
            one for one in alpha.health()["connections"] if one["direction"] == "DIRECTION_SEND"
        ]
        target = "connection:" + sends[0]["id"]

        def ports_of(connection: str) -> list[str]:
            for one in alpha.health()["connections"]:
                if "connection:" + one["id"] == connection:
                    ports: list[str] = one["ports"]
                    return ports
            raise AssertionError(connection)

        done = alpha.ask("force_failover", target=target, mode="FAILOVER_MODE_DRAIN")
        assert done["connections"] == 1, done
        job.wait("it is elsewhere", lambda: "mlx5_0:1" not in ports_of(target))
        assert ports_of("connection:" + sends[1]["id"]) == ["mlx5_0:1"]
        assert alpha.port("mlx5_0:1")["state"] == "PORT_STATE_UP"
        alpha.ask("fail_back", target=target)
        job.wait("it is back", lambda: ports_of(target) == ["mlx5_0:1"])
        # At once.
        alpha.ask("force_failover", target=target, mode="FAILOVER_MODE_NOW")
        job.wait("it is elsewhere", lambda: ports_of(target) not in ([], ["mlx5_0:1"]))
        alpha.ask("fail_back")
        job.wait("it is back", lambda: ports_of(target) == ["mlx5_0:1"])
        # Of the other end.
        answer = beta.ask("force_failover", target=target, mode="FAILOVER_MODE_NOW")
        assert _code(answer) == "ERROR_CODE_REFUSED", answer
        assert "the sending end chooses" in answer["message"], answer
        ended = job.end()
    assert_right(ended)


def test_fail_back_does_not_wait_for_the_hold_down() -> None:
    options = {"RAILHOP_HOLD_DOWN": "10min", "RAILHOP_HOLD_DOWN_MAX": "10min"}
    with Job(env=options) as job:
        alpha, _ = _desks(job)
        job.fault(f"{_PORT} down")
        job.wait_elsewhere("beta/mlx5_0")
        job.fault(f"{_PORT} up")
        alpha.wait_port("mlx5_0:1", "HOLD_DOWN")
        left = int(alpha.port("mlx5_0:1")["hold_down_ns"])
        assert 60e9 < left <= 600e9, left
        alpha.ask("fail_back", target="mlx5_0:1")
        job.wait_bytes(_PORT)
        alpha.wait_verdict("OK")
        ended = job.end()
    assert_right(ended)


def test_draining_the_last_path_is_refused_and_nothing_has_changed() -> None:
    with Job("--bidirectional", topology="two-hosts-4nic", env={"NCCL_IB_HCA": "mlx5_0"}) as job:
        alpha, beta = _desks(job)
        alpha.wait_verdict("OK")
        beta.wait_verdict("OK")
        before = alpha.health()
        requests: list[tuple[str, dict[str, Any]]] = [
            ("force_failover", {"target": "mlx5_0:1", "mode": "FAILOVER_MODE_DRAIN"}),
            ("force_failover", {"target": "mlx5_0:1", "mode": "FAILOVER_MODE_NOW"}),
            ("hold", {"target": "mlx5_0"}),
            (
                "force_failover",
                {
                    "target": "connection:"
                    + next(
                        one["id"]
                        for one in before["connections"]
                        if one["direction"] == "DIRECTION_SEND"
                    ),
                    "mode": "FAILOVER_MODE_NOW",
                },
            ),
        ]
        for what, fields in requests:
            answer = alpha.ask(what, **fields)
            assert _code(answer) == "ERROR_CODE_REFUSED", answer
            assert "mlx5_0:1 is the last path of the connection mlx5_0 " in answer["message"]
        after = alpha.health()
        assert after["verdict"] == "VERDICT_OK"
        for key in ("state", "lanes", "connections", "held_by_command", "since_unix_ns"):
            assert after["ports"][0][key] == before["ports"][0][key], key
        assert not [one for one in alpha.events() if one["kind"] == "EVENT_KIND_COMMAND"]
        job.wait_bytes(_PORT)
        ended = job.end()
    assert_right(ended)


def test_what_is_not_there_is_named_with_what_is() -> None:
    with Job() as job:
        alpha, _ = _desks(job)
        answer = alpha.ask("hold", target="mlx5_9:1")
        assert _code(answer) == "ERROR_CODE_NOT_FOUND", answer
        assert "there is no port or device mlx5_9:1; there are mlx5_0:1, mlx5_1:1" in str(answer)
        answer = alpha.ask("release", target="connection:abc")
        assert _code(answer) == "ERROR_CODE_NOT_FOUND", answer
        assert "there is no connection abc; there are connection:" in answer["message"]
        answer = alpha.ask("hold", target="")
        assert _code(answer) == "ERROR_CODE_INVALID", answer
        answer = alpha.ask("force_failover", target="mlx5_0:1")
        assert _code(answer) == "ERROR_CODE_INVALID", answer
        answer = alpha.ask("set_option", name="RAILHOP_STALL_TRESHOLD", value="1s")
        assert "did you mean RAILHOP_STALL_THRESHOLD" in answer["message"], answer
        answer = alpha.ask("set_option", name="RAILHOP_STALL_THRESHOLD", value="1h")
        assert _code(answer) == "ERROR_CODE_INVALID", answer
        assert "wanted: 10ms to 10min" in answer["message"], answer
        answer = alpha.ask("set_option", name="RAILHOP_COVER", value="all")
        assert _code(answer) == "ERROR_CODE_REFUSED", answer
        assert "these can: RAILHOP_LOG, RAILHOP_STALL_THRESHOLD" in answer["message"], answer
        ended = job.end()
    assert_right(ended)


def test_options_change_while_it_runs() -> None:
    with Job(env={"RAILHOP_STALL_THRESHOLD": "10min"}) as job:
        alpha, beta = _desks(job)
        options = {one["name"]: one for one in alpha.ask("get_config")["options"]}
        stall = options["RAILHOP_STALL_THRESHOLD"]
        assert (stall["value"], stall["source"]) == ("10min", "environment"), stall
        assert stall["changeable"] and not options["RAILHOP_COVER"]["changeable"]
        assert options["RAILHOP_NET_NAME"]["source"] == "default"
        for desk in (alpha, beta):
            changed = desk.ask("set_option", name="RAILHOP_STALL_THRESHOLD", value="200ms")
            assert (changed["value"], changed["source"]) == ("200ms", "command"), changed
        # With ten minutes this would not be noticed within the test.
        job.fault(f"{_PORT} blackhole both")
        job.wait_elsewhere("beta/mlx5_0")
        said = [one["text"] for one in alpha.events() if one["kind"] == "EVENT_KIND_OPTION_SET"]
        assert said == ["RAILHOP_STALL_THRESHOLD=200ms"]
        alpha.ask("set_option", name="RAILHOP_LOG", value="warn")
        ended = job.end()
    assert_right(ended)


def test_events_are_complete_and_wait_for_the_next() -> None:
    with Job() as job:
        alpha, _ = _desks(job)
        last = alpha.events()[-1]["serial"]
        answers: list[Any] = []
        waiting = threading.Thread(
            target=lambda: answers.append(
                alpha.ask("get_events", after=last, wait_ns="30000000000", seconds=60)
            )
        )
        waiting.start()
        # One that waits keeps nobody from asking.
        assert alpha.health()["ports"]
        job.fault(f"{_PORT} down")
        waiting.join()
        assert answers[0]["events"][0]["serial"] == str(int(last) + 1)
        job.wait_elsewhere("beta/mlx5_0")
        job.wait("recovered", lambda: alpha.ask("get_stats")["episodes_recovered"] == "1")
        events = alpha.events()
        ended = job.end()
    assert_right(ended)
    assert [int(one["serial"]) for one in events] == list(range(1, len(events) + 1))
    kinds = [one["kind"] for one in events]
    for kind in ("EPISODE_BEGUN", "LANES_LEFT", "RESUMED", "LANES_ADDED", "EPISODE_RECOVERED"):
        assert "EVENT_KIND_" + kind in kinds, kinds
    begun = next(one for one in events if one["kind"] == "EVENT_KIND_EPISODE_BEGUN")
    assert begun["port"] == "mlx5_0:1" and begun["peer_port"] == "mlx5_0:1", begun
    assert begun["peer_host"] == socket.gethostname(), begun
    assert begun["severity"] == "SEVERITY_WARNING", begun
    # The same as in the log.
    logged = ended.journal("episode", "alpha")
    assert [one["serial"] for one in logged] == [begun["serial"]]


def test_without_failover_it_tells_and_refuses() -> None:
    with Job(env={"RAILHOP_FAILOVER": "0"}) as job:
        alpha, _ = _desks(job)
        health = alpha.health()
        assert not health["process"]["failover"]
        for one in health["connections"]:
            assert one["state"] == "CONNECTION_STATE_UNPROTECTED", one
            assert int(one["bytes"]) > 0, one
        assert all(one["state"] == "PORT_STATE_UP" for one in health["ports"]), health["ports"]
        stats = alpha.ask("get_stats")
        assert int(stats["ports"][0]["sent_bytes"]) > 0, stats
        assert alpha.ask("get_config")["options"]
        assert alpha.ask("get_events")["events"] == []
        answer = alpha.ask("hold", target="mlx5_0:1")
        assert _code(answer) == "ERROR_CODE_REFUSED" and "RAILHOP_FAILOVER=0" in str(answer)
        ended = job.end()
    assert_right(ended)


def test_strange_clients_hold_up_nobody() -> None:
    with Job() as job:
        alpha, _ = _desks(job)
        held: list[socket.socket] = []

        def connect() -> socket.socket:
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            one.connect(str(alpha.path))
            held.append(one)
            return one

        # Bytes that mean nothing, half a request, a request without end, answers never taken.
        connect().sendall(b"GET / HTTP/1.1\r\n\r\n")
        connect().sendall(b"\x08\x00\x00\x00\x12")
        connect().sendall(b"\xff\xff\xff\xff" + b"x" * 100_000)
        slow = connect()
        slow.setblocking(False)
        health = b"\x02\x00\x00\x00\x12\x00"
        try:
            while True:
                slow.send(health * 1000)
        except BlockingIOError:
            pass
        # More than it serves at once, and again and again.
        for _ in range(100):
            connect()
        assert alpha.health()["ports"]
        for one in held:
            one.close()
        assert alpha.ask("get_health", times=200)["ports"]
        # A job that is stopped answers in no time.
        os.kill(alpha.pid, signal.SIGSTOP)
        try:
            assert alpha.ask("get_health", seconds=0.2)["code"] == "timeout"
        finally:
            os.kill(alpha.pid, signal.SIGCONT)
        before = job.bytes_of(_PORT)
        job.wait("traffic", lambda: job.bytes_of(_PORT) > before + 400_000)
        ended = job.end()
    assert_right(ended)


def test_socket_files_are_private_and_the_stale_are_told() -> None:
    with Job() as job:
        alpha, beta = _desks(job)
        for desk in (alpha, beta):
            assert desk.path.stat().st_mode & 0o777 == 0o600
            assert desk.path.parent.stat().st_mode & 0o777 == 0o700
        os.kill(alpha.pid, signal.SIGKILL)
        job.wait("stale", lambda: alpha.ask("get_health").get("code") == "stale_socket")
        answer = alpha.ask("get_health")
        assert "has ended without removing it: remove the file" in answer["message"], answer


def test_no_socket_where_none_is_wanted_or_can_be(tmp_path: pathlib.Path) -> None:
    with Job(env={"RAILHOP_ADMIN": "0"}) as job:
        job.wait_traffic()
        assert not job.admin_dir.exists()
        ended = job.end()
    assert_right(ended)
    assert not ended.warnings(), ended.show()
    # Where others may write, a name may be anybody's.
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with Job(env={"RAILHOP_ADMIN_DIR": str(shared)}) as job:
        job.wait_traffic()
        assert not list(shared.iterdir())
        ended = job.end()
    assert_right(ended)
    assert f"{shared}: others may write there" in ended.warnings("alpha")[0], ended.show()
