"""What TensorBoard reads of a monitored run is what the lines of the monitor say."""

from __future__ import annotations

import json
import os
import pathlib
import struct
import subprocess
from typing import Any

from integration.torch.job import PYTHON_PATH, TorchJob, torch_python


def float32(value: float) -> float:
    """As an event's file keeps it."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def expected(line: dict[str, Any]) -> dict[str, float]:
    """The scalars of a step, from its line."""
    return {
        "railhop/step_ms": line["duration_ns"] / 1e6,
        "railhop/communication_ms": line["communication_ns"] / 1e6,
        "railhop/dip_ms": line["dip_ns"] / 1e6,
        "railhop/episodes": len(line["episodes"]),
        **{f"railhop/bytes/{port}": count for port, count in line["device_bytes"].items()},
        **line["values"],
    }


def scalars(folder: pathlib.Path) -> dict[str, dict[int, float]]:
    """Name -> step -> value, read by TensorBoard."""
    said = subprocess.run(
        [torch_python(), "integration/torch/scalars.py", str(folder)],
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    return {name: dict(rows) for name, rows in json.loads(said).items()}


def test_scalars_are_those_of_the_lines_through_an_episode() -> None:
    with TorchJob("monitored.py", "{folder}/steps.jsonl", "{folder}/runs") as job:
        job.wait_step(5)
        job.fabric.fault("alpha/mlx5_0 blackhole for 900ms")
        job.succeed()
        text = (job.folder / "steps.jsonl").read_text(encoding="utf-8")
        found = scalars(job.folder / "runs")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["number"] for line in lines] == list(range(len(lines)))
    assert {(line["rank"], line["world_size"]) for line in lines} == {(0, 2)}
    right: dict[str, dict[int, float]] = {}
    for line in lines:
        for name, value in expected(line).items():
            right.setdefault(name, {})[line["number"]] = float32(value)
    assert found == right
    # The fault is in the picture, and so are the user's own values.
    assert max(found["railhop/episodes"].values()) >= 1, text
    assert max(found["railhop/dip_ms"].values()) > 100, text
    assert found["loss"][3] == 0.25
    ports = {f"railhop/bytes/mlx5_{index}:1" for index in range(4)}
    assert ports <= set(found), sorted(found)
    assert all(sum(found[port].values()) > 0 for port in ports), text


def test_without_tensorboard_it_says_what_to_install() -> None:
    code = """
import sys
sys.modules["tensorboard"] = None
import railhop.torch
try:
    railhop.torch.StepMonitor(tensorboard="runs")
except RuntimeError as error:
    print(error)
railhop.torch.StepMonitor().close()
"""
    said = subprocess.run(
        [torch_python(), "-c", code], env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    assert said.startswith("tensorboard='runs' needs TensorBoard: pip install tensorboard"), said
