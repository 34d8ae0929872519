"""Where a test's admin sockets are: not among those of other jobs of the machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def admin_folder() -> Iterator[str]:
    """Where this process looks for sockets first; short, as a socket's path has to be."""
    before = os.environ.get("RAILHOP_ADMIN_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        os.environ["RAILHOP_ADMIN_DIR"] = folder
        try:
            yield folder
        finally:
            if before is None:
                del os.environ["RAILHOP_ADMIN_DIR"]
            else:
                os.environ["RAILHOP_ADMIN_DIR"] = before
