"""Finds the CPythons that a wheel can be made for, one of each version from 3.9 to 3.13.

A candidate is any python3.N on PATH, in /usr/bin, in /usr/local/bin or under pyenv's versions; it
counts if it runs, is CPython with the GIL, and has Python.h. The hard case is a pyenv shim, which
is on PATH for versions that are not switched on and then fails: so each candidate is run, and the
next one tried. Of two with the same version /usr/bin's wins. RAILHOP_PYTHONS, a list of programs
joined by colons, replaces the search.

Prints a JSON list: {"tag", "version", "python", "include", "suffix"}.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from collections.abc import Iterator

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")

_ASK = """
import json, os, platform, sys, sysconfig
include = sysconfig.get_paths()["include"]
print(json.dumps({
    "cpython": platform.python_implementation() == "CPython",
    "gil": not sysconfig.get_config_var("Py_GIL_DISABLED"),
    "short": "%d.%d" % sys.version_info[:2],
    "version": platform.python_version(),
    "python": os.path.realpath(sys.executable),
    "include": include,
    "headers": os.path.exists(os.path.join(include, "Python.h")),
    "suffix": sysconfig.get_config_var("EXT_SUFFIX"),
}))
"""


def candidates(environ: dict[str, str], version: str) -> Iterator[str]:
    """Programs that may be Python `version`, best first."""
    if chosen := environ.get("RAILHOP_PYTHONS"):
        yield from chosen.split(":")
        return
    folders = ["/usr/bin", "/usr/local/bin", *environ.get("PATH", "").split(":")]
    yield from (os.path.join(folder, f"python{version}") for folder in folders if folder)
    home = environ.get("HOME", "/root")
    for root in (environ.get("PYENV_ROOT", ""), os.path.join(home, ".pyenv")):
        if root:
            installed = glob.glob(f"{glob.escape(root)}/versions/{version}.*/bin/python{version}")
            yield from sorted(installed, reverse=True)


def ask(program: str) -> dict[str, object]:
    """What the interpreter says of itself; empty if it does not run or cannot be used."""
    if not os.access(program, os.X_OK):
        return {}
    try:
        done = subprocess.run(
            [program, "-I", "-c", _ASK], check=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        said: dict[str, object] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return said if said["cpython"] and said["gil"] and said["headers"] else {}


def find(environ: dict[str, str]) -> list[dict[str, object]]:
    """One of each version that there is, oldest first."""
    found = []
    for version in VERSIONS:
        for program in candidates(environ, version):
            said = ask(program)
            if said and said["short"] == version:
                kept = {key: said[key] for key in ("version", "python", "include", "suffix")}
                found.append({"tag": "cp" + version.replace(".", ""), **kept})
                break
    return found


if __name__ == "__main__":
    json.dump(find(dict(os.environ)), sys.stdout, indent=1)
