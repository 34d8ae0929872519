"""Jobs between nodes, with shells of this machine as nodes and a program that plays `railhop`.

With real ranks: integration/nodes/nodes_test.py.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any, Optional

import pytest

from railhop.drills import node_job
from railhop.drills.errors import DrillError
from railhop.drills.node_job import NodeJob

_READY = (
    '[{"process": {"pid": 1}, "ports": [{"name": "mlx5_0:1"}],'
    ' "paths": [{"port": "mlx5_0:1", "state": "good"}]}]'
)


@dataclasses.dataclass
class _Shell:
    """As railhop.pytest_plugin.Node."""

    name: str

    def start(self, command: str, *, env: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", "-c", command], env={**os.environ, **env}, stdout=subprocess.PIPE, text=True
        )

    def run(
        self, command: str, *, env: Optional[Mapping[str, str]] = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", command],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=check,
        )


def _job(program: pathlib.Path | str, rank: str = "exec sleep 600") -> NodeJob:
    return NodeJob([_Shell("one"), _Shell("two")], command=rank, program=str(program))


def _program(folder: pathlib.Path, script: str) -> str:
    path = folder / "railhop"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return shlex.quote(str(path))


def test_a_rank_that_has_not_made_its_folder_is_waited_for(tmp_path: pathlib.Path) -> None:
    asked = tmp_path / "asked"
    program = _program(
        tmp_path,
        f"echo >> {asked}\n"
        f"case $(wc -l < {asked}) in\n"
        "1) echo 'the folder does not exist' >&2; exit 2 ;;\n"
        "2) echo '[]'; echo 'nobody is here' ;;\n"
        f"*) echo '{_READY}' ;;\n"
        "esac",
    )
    with _job(program) as job:
        assert job.health(1) is not None
    assert asked.read_text(encoding="utf-8").count("\n") == 5


def test_what_a_rank_lacks_is_told(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_job, "PATIENCE_S", 0.5)
    with pytest.raises(DrillError, match="traffic on all ports; one: who am I"):
        _enter(_job(_program(tmp_path, "echo 'who am I' >&2; exit 2")))
    with pytest.raises(DrillError, match="; one: no process with Railhop yet"):
        _enter(_job(_program(tmp_path, "echo '[]'")))
    bad = _READY.replace("good", "failed")
    with pytest.raises(DrillError, match="; one: no good path from mlx5_0:1"):
        _enter(_job(_program(tmp_path, f"echo '{bad}'")))


def test_a_program_that_is_not_there_is_not_waited_for() -> None:
    with pytest.raises(DrillError, match=r"one: .*no-such-program"):
        _enter(_job("no-such-program"))


def test_a_rank_that_ends_is_named(tmp_path: pathlib.Path) -> None:
    rank = "[ $RANK = 0 ] || exec sleep 600; echo bad luck; exit 1"
    with pytest.raises(DrillError, match=r"rank 0 ended before traffic.*bad luck"):
        _enter(_job(_program(tmp_path, "echo '[]'"), rank))


def _enter(job: NodeJob) -> Any:
    with job:
        pytest.fail("it is ready")


def test_a_node_that_says_something_else_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DrillError, match="no JSON in what the node printed: 'Welcome to one'"):
        _enter(_job(_program(tmp_path, "echo Welcome to one")))
    with pytest.raises(DrillError, match="several lines of JSON in what the node printed"):
        _enter(_job(_program(tmp_path, "echo '[]'; echo '[]'")))
