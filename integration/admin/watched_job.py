"""A job whose admin sockets are in a folder of its own, and handles to its processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Optional

import railhop
from railhop.testing.surroundings import apart

from integration.failover.job import Job


class Watched:
    """A running job, with `alpha`, which sends, and `beta`, which receives."""

    def __init__(self, job: Job, name: str) -> None:
        self.job = job
        self.name = name
        self.alpha = railhop.attach(pid=job.pid("alpha"))
        self.beta = railhop.attach(pid=job.pid("beta"))

    def wait_proved(self) -> None:
        """Until alpha may use every port: before that, one may be the last path."""

        def proved() -> bool:
            health = self.alpha.health()
            good = {path.port for path in health.paths if path.state == "good"}
            return good == {port.name for port in health.ports}

        self.job.wait("every port proved", proved)

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
    with apart() as folder:
        variables = {"RAILHOP_ADMIN_DIR": folder, "RAILHOP_JOB_ID": name, **(env or {})}
        with Job(*options, env=variables, **more) as job:
            job.wait_traffic()
            one = Watched(job, name)
            if one.alpha.info().failover:
                one.wait_proved()
            yield one
