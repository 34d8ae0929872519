"""The job of another user: told as such. The child becomes nobody, who has no jobs."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import pytest

# CI is root; tools/test leaves the target out (needs_root) where the user is not.
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

_CHILD = """
import os, sys, railhop
railhop.PortState
os.setuid(65534)
try:
    %s
except railhop.Error as error:
    print(type(error).__name__, error)
"""


def _as_nobody(call: str, *words: str, **variables: str) -> str:
    """What is raised, in one line."""
    said = subprocess.run(
        [sys.executable, "-c", _CHILD % call, *words], check=True, stdout=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
    ).stdout  # fmt: skip
    assert len(said.splitlines()) == 1
    return said


def test_another_users_socket_is_not_ours() -> None:
    # Below /tmp: nobody has to get at it, and pytest's own folders are private.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as theirs:
        os.chmod(folder, 0o755)
        path = pathlib.Path(folder) / "1.sock"
        theirs.bind(str(path))
        theirs.listen()
        path.chmod(0o600)
        said = _as_nobody("railhop.attach(path=sys.argv[1])", str(path))
    assert said.startswith("NotAllowedError ")
    assert f"{path}: belongs to another user (0)" in said


def test_a_folder_that_may_not_be_looked_into_is_named() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o700)
        why = f"{folder}: may not be looked into: it belongs to another user (0)"
        said = _as_nobody("railhop.processes()", RAILHOP_ADMIN_DIR=folder)
        assert said.startswith(f"NotAllowedError RAILHOP_ADMIN_DIR={why}")
        # Whether there is a socket in it is not known: none is named.
        pid = os.getpid()
        said = _as_nobody(f"railhop.attach(pid={pid})", RAILHOP_ADMIN_DIR=folder)
        assert said.startswith(f"NotAllowedError process {pid}: ")
        assert "may not be looked into: it belongs to another user (0)" in said
        assert ".sock" not in said
