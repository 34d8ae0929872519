"""Made-up results and journals for tests: a drill in which one NIC of four is lost and regained."""

from __future__ import annotations

import json
from typing import Any

from railhop.drills.result import Failback, Happening, Result, Series, Verdict

START_UNIX_NS = 1_700_000_000_000_000_000
SECONDS = 12.0
_STEP_S = 0.05
_NIC_BYTES_PER_S = 50e6


def _series() -> Series:
    series = Series()
    for index in range(int(SECONDS / _STEP_S) + 1):
        time_s = index * _STEP_S
        series.times_s.append(round(time_s, 4))
        for host in ("alpha", "beta"):
            for nic in range(4):
                port = f"{host}/mlx5_{nic}:1"
                moved = series.moved_bytes.setdefault(port, [])
                lost = nic == 0 and 3.0 < time_s <= 8.1
                more = 0 if lost else _NIC_BYTES_PER_S * _STEP_S * (1 + 0.04 * (index % 3))
                moved.append(int((moved[-1] if moved else 0) + more))
                is_down = host == "alpha" and nic == 0 and 3.0 <= time_s < 7.0
                series.up.setdefault(port, []).append(not is_down)
    return series


def episode(host: str = "alpha", **changes: Any) -> dict[str, Any]:
    """As Episode.to_dict() with the drill's tags."""
    return {
        "id": 1,
        "begin_unix_ns": START_UNIX_NS + 3_001_000_000,
        "end_unix_ns": START_UNIX_NS + 3_012_000_000,
        "port": "mlx5_0:1",
        "peer_host": "node-17",
        "peer_port": "mlx5_0:1",
        "cause": "port_down",
        "blame": "local_port",
        "connections": 8,
        "bytes_resent": 524288,
        "detect_ns": 150_000,
        "agree_ns": 900_000,
        "resume_ns": 2_900_000,
        "ports_after": ["mlx5_1:1", "mlx5_2:1", "mlx5_3:1"],
        "recovered": True,
        "host": host,
        "process": 4242,
        **changes,
    }


def steps(count: int = 60, *, dip: bool = True) -> list[dict[str, Any]]:
    """Of a training, one longer than the others."""
    return [
        {
            "time_s": 0.2 * (index + 1),
            "step": index,
            "ms": 640.0 if dip and index == 15 else 180.0 + index % 5,
            "loss": 2.5 / (1 + 0.1 * index),
        }
        for index in range(count)
    ]


def drill(**changes: Any) -> Result:
    """One that passed."""
    result = Result(
        title="nic-down on two-hosts-4nic",
        fabric="two-hosts-4nic",
        workload="netperf streams, every byte compared",
        scenario={"name": "nic-down", "about": "The cable of one NIC is out for four seconds."},
        started_unix_ns=START_UNIX_NS,
        seconds=SECONDS,
        verdict=Verdict(
            passed=True,
            survived=True,
            wrong_bytes=0,
            gap_ms=37.3,
            gap_from="messages",
            gap_ms_max=2000.0,
            gap_before_ms=12.9,
            before_gb_per_s=0.208,
            during_gb_per_s=0.156,
            after_gb_per_s=0.207,
            failback=Failback(True, 1068.1),
        ),
        messages=43146,
        happenings=[Happening(3.0, 7.0, "alpha/mlx5_0:1", "alpha/mlx5_0 down for 4s")],
        episodes=[episode(), episode("beta", cause="peer", blame="remote_nic", bytes_resent=0)],
        series=_series(),
    )
    for name, value in changes.items():
        setattr(result, name, value)
    return result


def dead() -> Result:
    """The same without failover: it died."""
    result = drill(title="the same with RAILHOP_FAILOVER=0", seconds=4.4, episodes=[])
    result.verdict = Verdict(
        survived=False,
        wrong_bytes=0,
        problems=["the workload died: mlx5_0:1: completion with status 12"],
    )
    result.happenings = [Happening(3.0, None, "alpha/mlx5_0:1", "alpha/mlx5_0 down")]
    return result


def journal() -> str:
    """As `railhop events --json` prints it: two processes, two episodes, a command."""
    lines: list[str] = []

    def add(at_s: float, kind: str, process: int = 4242, **fields: Any) -> None:
        entry = {
            "process": process, "host": "node-17", "serial": len(lines) + 1,
            "time_unix_ns": START_UNIX_NS + int(at_s * 1e9), "kind": kind, "severity": "info",
            "episode": 0, "port": "", "peer_host": "", "peer_port": "", "connection": "",
            "epoch": 0, "cause": "none", "blame": "unknown", "value": 0, "bytes": 0, "text": "",
        }  # fmt: skip
        lines.append(json.dumps({**entry, **fields}))

    for process, shift in ((4242, 0.0), (4243, 0.0004)):
        add(0.0 + shift, "port_state", process, port="mlx5_0:1", text="up")
        add(0.0 + shift, "port_state", process, port="mlx5_1:1", text="up")
        add(5.0 + shift, "port_state", process, port="mlx5_0:1", text="down")
        add(5.0001 + shift, "episode_begun", process, episode=1, port="mlx5_0:1", cause="port_down",
            blame="local_port", peer_host="node-18", peer_port="mlx5_0:1")  # fmt: skip
        add(5.001 + shift, "resumed", process, episode=1, connection="1f", epoch=2, bytes=65536)
        add(5.002 + shift, "lanes_added", process, episode=1, connection="1f", port="mlx5_1:1")
        add(5.003 + shift, "episode_recovered", process, episode=1, value=2_900_000, bytes=65536)
        add(9.0 + shift, "port_state", process, port="mlx5_0:1", text="up")
    add(12.0, "command", text="hold mlx5_1")
    add(12.0, "port_state", port="mlx5_1:1", text="held")
    add(14.0, "episode_begun", episode=2, port="mlx5_0:1", cause="stall", blame="path")
    return "\n".join(lines) + "\n"
