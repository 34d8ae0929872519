"""Processes for tests of the command line: what railhop.attach would give, without a job."""

from __future__ import annotations

from typing import Any, Optional

import railhop

PORTS = ("mlx5_0:1", "mlx5_1:1")


class Record:
    """A result of the API."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)
        self._fields = fields

    def to_dict(self) -> dict[str, Any]:
        return dict(self._fields)


def port(name: str, state: str = "up", **changes: Any) -> dict[str, Any]:
    return {
        "name": name, "device": name.split(":", maxsplit=1)[0], "number": 1, "state": state,
        "cause": "none", "since_unix_ns": 0, "link_layer": "Ethernet", "speed_mbps": 400_000,
        "mtu_bytes": 4096, "gid": "::ffff:10.0.0.1", "lid": 0, "rail": 0, "covered": True,
        "connections": 4, "lanes": 16, "lanes_backup": 0, "flaps": 0, "hold_down_ns": 0,
        "held_by_command": False, **changes,
    }  # fmt: skip


def episode() -> dict[str, Any]:
    return {
        "id": 1, "begin_unix_ns": 1_700_000_000_000_000_000, "end_unix_ns": 1, "port": "mlx5_1:1",
        "peer_host": "node-17", "peer_port": "mlx5_1:1", "cause": "port_down",
        "blame": "local_port", "connections": 4, "bytes_resent": 524288, "detect_ns": 0,
        "agree_ns": 900_000, "resume_ns": 1_900_000, "ports_after": ["mlx5_0:1"],
        "recovered": True,
    }  # fmt: skip


class FakeProcess:
    """Two ports, two connections; refuses to lose its last port."""

    def __init__(self, pid: int, job: str = "", *, refuses: bool = False) -> None:
        self.pid, self.job, self.host = pid, job, "node-16"
        self.instance = f"{pid:016x}"
        self.said: list[tuple[str, ...]] = []
        self.verdict = "ok"
        # The direction of both.
        self.direction = "send"
        self.ids = ("1f", "20")
        self._refuses = refuses
        self._held: set[str] = set()

    # ---- Reading.

    def _process(self) -> dict[str, Any]:
        return {
            "pid": self.pid, "host": self.host, "job": self.job, "program": "python train.py",
            "version": "0.1", "start_unix_ns": 0, "now_unix_ns": 1_700_000_100_000_000_000,
            "failover": True, "running": True, "instance": self.instance,
        }  # fmt: skip

    def health(self) -> Record:
        states = {one: "held" if one in self._held else "up" for one in PORTS}
        connection = {
            "id": self.ids[0], "direction": self.direction, "peer_host": "node-17",
            "peer_instance": "a1b2c3d4e5f60718",
            "label": "mlx5_0 to node-17", "state": "healthy", "epoch": 1,
            "ports": ["mlx5_0:1"], "home_ports": ["mlx5_0:1"], "lanes": 4, "lanes_backup": 0,
            "bytes": 123_000_000, "messages": 10, "outstanding": 0, "hindered_ns": 0, "episodes": 0,
        }  # fmt: skip
        return Record(
            process=self._process(),
            verdict=self.verdict,
            devices=[],
            ports=[port(one, state) for one, state in states.items()],
            paths=[
                {"port": "mlx5_1:1", "peer_host": "node-17", "peer_port": "mlx5_1:1",
                 "peer_instance": "a1b2c3d4e5f60718", "state": "failed", "probes_sent": 9,
                 "probes_lost": 3}
            ],
            connections=[connection, {**connection, "id": self.ids[1], "state": "on_backup"}],
            episodes=[episode()],
        )  # fmt: skip

    def stats(self) -> Record:
        return Record(
            process=self._process(),
            ports=[
                {"name": one, "sent_bytes": 5_000_000_000, "received_bytes": 0,
                 "sent_messages": 1000, "received_messages": 0, "resent_bytes": 0, "stalls": 0,
                 "faults": 1}
                for one in PORTS
            ],
            faults={"port_down": 1},
            episodes_begun=1,
            episodes_recovered=1,
            gave_up=0,
            bytes_resent=524288,
            histograms=[
                {"name": "resume", "unit": "ns", "bounds": [1_000_000, 2_000_000],
                 "counts": [0, 1, 0], "sum": 1_900_000, "count": 1, "max": 1_900_000}
            ],
        )  # fmt: skip

    def events(self, after: int = 0, limit: int = 1024, wait_s: float = 0.0) -> Record:
        entries = [
            Record(
                serial=serial, time_unix_ns=1_700_000_000_000_000_000 + serial * self.pid,
                kind="episode_recovered", severity="warning", episode=1, port="mlx5_1:1",
                peer_host="node-17", peer_port="mlx5_1:1", connection="", epoch=0,
                cause="port_down", blame="local_port", value=1_900_000, bytes=524288, text="",
            )
            for serial in range(1, 4)
            if serial > after
        ]  # fmt: skip
        if wait_s and not entries:
            raise railhop.StaleSocketError(f"{self.pid}.sock: nobody listens; it has ended")
        return Record(events=entries[:limit], gone=0, last_serial=3)

    def config(self) -> list[Record]:
        def option(name: str, value: str, source: str) -> Record:
            return Record(name=name, value=value, default="1s", source=source, unit="", range="",
                          doc="", changeable=True)  # fmt: skip

        return [
            option("RAILHOP_STALL_THRESHOLD", "1s", "default"),
            option("RAILHOP_HOLD_DOWN", "5s", "environment"),
        ]

    def set_option(self, name: str, value: str) -> Record:
        if name != "RAILHOP_HOLD_DOWN":
            raise railhop.NotFoundError(f"no option '{name}' (there is: RAILHOP_HOLD_DOWN)")
        return Record(name=name, value=value, source="command", note="")

    # ---- Commands.

    def _do(self, verb: str, target: str, *more: str) -> Record:
        name = target.split(":", maxsplit=1)[0]
        if target and name not in ("mlx5_0", "mlx5_1", "connection"):
            raise railhop.NotFoundError(f"no device '{name}' (devices: mlx5_0, mlx5_1)")
        if self._refuses:
            raise railhop.RefusedError(f"{target} is the last path of 4 connections")
        self.said.append((verb, target, *more))
        return Record(ports=[target], connections=4, text=f"{verb} {target}".strip())

    def force_failover(self, target: str, mode: str = "drain") -> Record:
        return self._do("failover", target, mode)

    def fail_back(self, target: Optional[str] = None) -> Record:
        return self._do("failback", target or "")

    def hold(self, target: str) -> Record:
        return self._do("hold", target)

    def release(self, target: str) -> Record:
        return self._do("release", target)
