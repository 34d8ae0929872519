"""A job whose admin sockets are in a folder of its own, and handles to its processes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any, Optional

import railhop

from integration.failover.job import Job


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


class Watched:
    """A running job, with `alpha`, which sends, and `beta`, which receives."""

    def __init__(self, job: Job, name: str) -> None:
        self.job = job
        self.name = name
        self.alpha = railhop.attach(pid=job.pid("alpha"))
        self.beta = railhop.attach(pid=job.pid("beta"))

    def wait_state(self, port: str, *states: str) -> railhop.Port:
        """Until a port of alpha is in one of these states."""
        self.job.wait(f"{port} in {states}", lambda: self.port(port).state in states)
        return self.port(port)

    def port(self, name: str) -> railhop.Port:
        """Of alpha."""
        return next(one for one in self.alpha.health().ports if one.name == name)

    def wait_ok(self) -> None:
        """Until both ends are well."""
        for end in (self.alpha, self.beta):
            self.job.wait("well", lambda end=end: end.health().verdict == "ok")  # type: ignore[misc]

    def bytes_by(self, port: str) -> int:
        """Sent by alpha."""
        found = next(one for one in self.alpha.stats().ports if one.name == port)
        return found.sent_bytes


@contextlib.contextmanager
def watched(*options: str, env: Optional[dict[str, str]] = None, **more: Any) -> Iterator[Watched]:
    """Starts it; ended with the block, if that has not ended it."""
    name = f"job-{os.getpid()}"
    with admin_folder() as folder:
        variables = {"RAILHOP_ADMIN_DIR": folder, "RAILHOP_JOB_ID": name, **(env or {})}
        with Job(*options, env=variables, **more) as job:
            job.wait_traffic()
            yield Watched(job, name)
