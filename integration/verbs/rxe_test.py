"""The conformance suite on the kernel's rdma_rxe, in a guest.

The suite runs in parts, each in a guest of its own, so that a kernel that gets stuck costs
one part. Every case of the suite is a test here: it passes when it is what `rxe.expect` declares.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from railhop.testing.uml import Guest

_FOLDER = Path("integration/verbs")
_PROGRAM = os.path.realpath(_FOLDER / "verbs_conformance")
_EXPECT = os.path.realpath(_FOLDER / "rxe.expect")
# The suite's words for faults are those of the software fabric; a guest's cables have their own.
_FAULT = """#!/bin/sh
device=$1; shift
case "$*" in
  down) exec railhop-link "$device" cable out ;;
  up) exec railhop-link "$device" cable in ;;
  *) exec railhop-link "$device" "$@" ;;
esac
"""
_PARTS = {
    "objects": "Device.*:Port.*:Gid.*:Names.*:Objects.*:Pd.*:Mr.*:Cq.*:Qp.*:Ece.*:Pkey.*:"
    "QpAttr.*:Scale.*:Capability.*",
    "states": "QpState.*:Err.*:Sqd.*:Reset.*:Retry.*:Rnr.*",
    "data": "Rc.*:Atomic.*:Sge.*:Inline.*:WrApi.*:Uc.*:Ud.*:Srq.*:Order.*",
    "errors": "Key.*:LocalError.*:Receive.*:Flush.*:Channel.*",
    "world": "Lossy.*:Event.*:Link.*:Silence.*:Threads.*:Processes.*",
}
# 100 s on an idle machine.
_PART_TIMEOUT_S = 1500.0


def _names() -> list[str]:
    listed = subprocess.run([_PROGRAM, "--list"], check=True, stdout=subprocess.PIPE, text=True)
    names: list[str] = [case["name"] for case in json.loads(listed.stdout)["cases"]]
    return names


def _part_of(name: str) -> str:
    """The only part that runs a case; anything else is a mistake in _PARTS."""
    (part,) = (
        part
        for part, patterns in _PARTS.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split(":"))
    )
    return part


@functools.cache
def _run_part(part: str) -> dict[str, dict[str, Any]]:
    """Results of one part by name of the case. The first test of a part runs it."""
    with Guest(rails=1) as guest:
        fault = Path(guest.scratch) / "fault"
        fault.write_text(_FAULT, encoding="utf-8")
        fault.chmod(0o755)
        report = Path(guest.scratch) / "report.json"
        done = guest.run(
            [
                _PROGRAM,
                "--devices=rxa0,rxb0",
                "--gid-index=1",
                "--fabric=rxe",
                f"--expect={_EXPECT}",
                f"--fault-command={fault}",
                f"--filter={_PARTS[part]}",
                f"--report={report}",
                "--time-factor=3",
            ],
            timeout_s=_PART_TIMEOUT_S,
        )
        sys.stdout.write(done.output)
        cases = json.loads(report.read_text(encoding="utf-8"))["cases"]
        return {case["name"]: case for case in cases}


def _by_part(name: str) -> tuple[str, str]:
    return _part_of(name), name


_ORDERED: list[str] = sorted(_names(), key=_by_part)


@pytest.mark.parametrize("name", _ORDERED)
def test_rxe_does_as_declared(name: str) -> None:
    result = _run_part(_part_of(name))[name]
    assert result["outcome"] != "failed", result["detail"]


def test_rxe_lacks_what_is_declared() -> None:
    probes = {n: r for n, r in _run_part("objects").items() if n.startswith("Capability.")}
    assert probes
    for name, result in probes.items():
        assert result["outcome"] == "unsupported", f"{name}: {result['detail']}"
