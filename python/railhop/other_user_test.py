"""The job of another user: told as such. The child becomes nobody, who has no jobs."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import pytest

_CHILD = """
import os, sys, railhop
railhop.PortState
os.setuid(65534)
try:
    railhop.attach(path=sys.argv[1])
except railhop.Error as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_users_socket_is_not_ours() -> None:
    # Below /tmp: nobody has to get at it, and pytest's own folders are private.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as theirs:
        os.chmod(folder, 0o755)
        path = pathlib.Path(folder) / "1.sock"
        theirs.bind(str(path))
        theirs.listen()
        path.chmod(0o600)
        said = subprocess.run(
            [sys.executable, "-c", _CHILD, str(path)], check=True, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout  # fmt: skip
    assert said.startswith("NotAllowedError ")
    assert str(path) in said
    assert len(said.splitlines()) == 1
