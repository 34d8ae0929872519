"""Where things are on this machine, and how the tools call Bazel."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]


def cache_dir() -> pathlib.Path:
    """Folder for what outlives a checkout: tools/lib/common.sh decides the same way."""
    if chosen := os.environ.get("RAILHOP_CACHE"):
        return pathlib.Path(chosen)
    if os.geteuid() == 0:
        return pathlib.Path("/var/cache/railhop")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "railhop"


def in_ci() -> bool:
    return bool(os.environ.get("CI"))


def bazel_command() -> list[str]:
    """How to call Bazel.

    CI's checkouts come and go, each in a folder of its own, so they share one output base; a
    developer's checkouts each have their own, as Bazel has it by default.
    """
    if in_ci():
        return ["bazel", f"--output_base={cache_dir() / 'bazel-ci'}"]
    return ["bazel"]


def bazel_output(*args: str) -> str:
    """Standard output of a Bazel command, which must succeed."""
    return subprocess.run(
        bazel_command() + list(args), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def bazel_run(args: Sequence[str]) -> int:
    """Runs a Bazel command with its output on standard error; returns its exit status."""
    return subprocess.run(
        bazel_command() + list(args), cwd=ROOT, check=False, stdout=sys.stderr
    ).returncode


def tracked_files() -> list[str]:
    """Paths of all files of the project, relative to ROOT: what git has, or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.split("\0")
    return sorted({name for name in listed if name and (ROOT / name).is_file()})


def say(text: str) -> None:
    """Progress, on standard error."""
    print(f"railhop: {text}", file=sys.stderr, flush=True)
