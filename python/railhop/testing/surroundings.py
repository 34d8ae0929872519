"""What a test's processes have around them, and no others."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def apart() -> Iterator[str]:
    """Lets this process and its children see no other job of the machine; gives the admin folder.

    It is short, whatever the test's other folders are, as a socket's path has to be. Children find
    the modules that this process has.
    """
    temporary = tempfile.TemporaryDirectory(prefix="railhop-", dir="/tmp")
    with temporary as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAILHOP_ADMIN_DIR", folder)
        patch.setenv("PYTHONPATH", ":".join(os.path.abspath(one) for one in sys.path))
        yield folder
