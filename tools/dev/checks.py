"""Formats and lints (tools/dev/check): each check is a row of CHECKS and one test case in CI."""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable

from tools.dev import house, knobs, layers, tidy
from tools.lib import junit, mutants, workspace

ROOT = workspace.ROOT
PYRIGHT = "node_modules/pyright/index.js"
BUILDIFIER = "node_modules/@bazel/buildifier/buildifier-linux_amd64"


@dataclasses.dataclass(frozen=True)
class Check:
    """name: on the command line and in reports. run: complaints about these files, or none."""

    name: str
    run: Callable[[list[str]], list[str]]


def _tool(command: list[str], files: list[str]) -> list[str]:
    """Runs a linter over files; its output if it fails."""
    if not files:
        return []
    done = subprocess.run(
        [*command, *files],
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return [done.stdout.strip() or f"status {done.returncode}"] if done.returncode else []


def cc_files(files: list[str]) -> list[str]:
    return [f for f in files if f.endswith((".h", ".cc", ".c"))]


def python_files(files: list[str]) -> list[str]:
    return [f for f in files if f.endswith((".py", ".pyi"))]


def bazel_files(files: list[str]) -> list[str]:
    names = ("BUILD", "BUILD.bazel", "WORKSPACE", "MODULE.bazel")
    return [f for f in files if f.rsplit("/", 1)[-1] in names or f.endswith((".bzl", ".BUILD"))]


def shell_files(files: list[str]) -> list[str]:
    """Shell scripts, known by their ending or their first line."""
    found = []
    for name in files:
        if name.endswith(".sh"):
            found.append(name)
        elif "." not in name.rsplit("/", 1)[-1]:
            with open(ROOT / name, "rb") as file:
                first = file.readline(64)
            if first.startswith(b"#!") and first.rstrip().endswith(b"sh"):
                found.append(name)
    return found


def _clang_format(files: list[str]) -> list[str]:
    return _tool(["clang-format-14", "--dry-run", "-Werror"], cc_files(files))


def _clang_tidy(_files: list[str]) -> list[str]:
    return tidy.check(os.cpu_count() or 1)


def _clang_build(_files: list[str]) -> list[str]:
    """Compiles our own code with clang; nothing is linked and no library is built."""
    options = ["--config=ci", "--config=clang", "--output_groups=compilation_outputs"]
    done = subprocess.run(
        workspace.bazel_command("build", *options, "//..."),
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return [done.stdout[-20000:]] if done.returncode else []


def _buildifier(files: list[str]) -> list[str]:
    return _tool([BUILDIFIER, "-mode=check", "-lint=warn"], bazel_files(files))


def _ruff(files: list[str]) -> list[str]:
    return _tool([".venv/bin/ruff", "check", "--quiet"], python_files(files)) + _tool(
        [".venv/bin/ruff", "format", "--check", "--quiet"], python_files(files)
    )


def _mypy(files: list[str]) -> list[str]:
    cache = workspace.cache_dir() / "mypy"
    return _tool(
        [".venv/bin/mypy", f"--cache-dir={cache}", "--no-error-summary"], python_files(files)
    )


def _pyright(_files: list[str]) -> list[str]:
    """The types that users see, as editors see them; which files: pyproject.toml."""
    return _tool(["node", PYRIGHT, "--warnings", "--pythonpath", ".venv/bin/python3"], ["-p", "."])


def _shellcheck(files: list[str]) -> list[str]:
    return _tool(["shellcheck", "-x"], shell_files(files))


CHECKS = (
    Check("clang-format", _clang_format),
    Check("buildifier", _buildifier),
    Check("ruff", _ruff),
    Check("mypy", _mypy),
    Check("pyright", _pyright),
    Check("shellcheck", _shellcheck),
    Check("layers", lambda files: layers.check_tree(ROOT, files)),
    Check("house", lambda files: house.check_tree(ROOT, files)),
    Check("knobs", lambda _files: knobs.check_tree(ROOT)),
    Check("mutants", lambda _files: mutants.check_tree(ROOT)),
    Check("clang-tidy", _clang_tidy),
    Check("clang-build", _clang_build),
)


def main() -> int:
    names = [check.name for check in CHECKS]
    parser = argparse.ArgumentParser(prog="tools/dev/check", description=__doc__)
    parser.add_argument("--junit", metavar="FILE", help="also write the outcomes there")
    parser.add_argument("names", nargs="*", metavar="CHECK", help=f"of {', '.join(names)} (all)")
    args = parser.parse_args()
    for name in args.names:
        if name not in names:
            parser.error(f"no check '{name}' (allowed: {', '.join(names)})")

    files = workspace.tracked_files()
    outcomes = []
    for check in CHECKS:
        if args.names and check.name not in args.names:
            continue
        start = time.monotonic()
        complaints = check.run(files)
        for complaint in complaints:
            print(complaint, flush=True)
        verdict = f"{len(complaints)} complaints" if complaints else "ok"
        seconds = time.monotonic() - start
        print(f"check {check.name}: {verdict} ({seconds:.1f} s)", flush=True)
        outcomes.append((check.name, complaints[0] if complaints else ""))
    if args.junit:
        junit.write(args.junit, "check", outcomes)
    return 1 if any(reason for _, reason in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
