"""The command line as tests call it: a process of its own, judged by what it says and returns."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = [sys.executable, "-m", "railhop.cli.main"]
PATIENCE_S = 120.0


def run(*words: str, status: int = 0) -> str:
    """What it prints, within apart(); of bad input (status 2) the one line that says so."""
    done = subprocess.run(
        [*PROGRAM, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    if status == 2:
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr
    assert done.stderr == ""
    return done.stdout
