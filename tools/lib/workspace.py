"""Where things are on this machine, and how the tools call Bazel."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def cache_dir() -> pathlib.Path:
    """Folder for what outlives a checkout: tools/lib/common.sh decides the same way."""
    if chosen := os.environ.get("RAILHOP_CACHE"):
        return pathlib.Path(chosen)
    if os.geteuid() == 0:
        return pathlib.Path("/var/cache/railhop")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "railhop"


def debsrc_dir() -> pathlib.Path:
    """Where tools/setup has unpacked Debian's sources: it has written that down for Bazel."""
    text = (ROOT / ".bazelrc.local").read_text(encoding="utf-8")
    found = re.search(r"DEBSRC_ROOT=(\S+)", text)
    return pathlib.Path(found.group(1) if found else "/opt/debsrc")


def in_ci() -> bool:
    return bool(os.environ.get("CI"))


def bazel_command(command: str, *args: str) -> list[str]:
    """The command line of a Bazel command.

    Every checkout has an output base of its own, by its path, and shares what was built through the
    disk cache. One output base for all of CI's checkouts does not work: the runfiles of tests that
    run outside the sandbox are links into the checkout that was there first. In CI no links are
    left in the checkout, which comes and goes.
    """
    links = ["--symlink_prefix=/"] if in_ci() and command in ("build", "test") else []
    return ["bazel", command, *links, *args]


def bazel_output(command: str, *args: str) -> str:
    """Standard output of a Bazel command, which must succeed; the rest goes to standard error."""
    argv = bazel_command(command, *args)
    return subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def bazel_run(command: str, *args: str) -> int:
    """Runs a Bazel command with its output on standard error; returns its exit status."""
    argv = bazel_command(command, *args)
    return subprocess.run(argv, cwd=ROOT, check=False, stdout=sys.stderr).returncode


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
