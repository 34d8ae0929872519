"""The built-in collectives as a workload: one rank on each host, every element compared."""

from __future__ import annotations

import importlib.util
import sys
from typing import Optional

from railhop.drills.command import Command
from railhop.drills.errors import DrillError
from railhop.drills.world import AnyWorld, World

KINDS = ("all-reduce", "all-gather")
_SIZE_BYTES = 4 << 20


class Collectives(Command):
    """All-reduce or all-gather again and again, over the plugin without NCCL and without a GPU."""

    def __init__(
        self,
        kind: str,
        seconds: float,
        *,
        size_bytes: int = _SIZE_BYTES,
        extra: Optional[dict[str, str]] = None,
    ) -> None:
        """Makes it.

        Args:
          kind: one of KINDS.
          seconds: how long.
          size_bytes: of a round's data.
          extra: further variables.

        Errors: DrillError for an unknown kind, or without NumPy.
        """
        if kind not in KINDS:
            raise DrillError(f"no collective '{kind}' (allowed: {', '.join(KINDS)})")
        if importlib.util.find_spec("numpy") is None:
            raise DrillError("collectives need NumPy: pip install numpy")
        words = [sys.executable, "-m", "railhop.drills.collective_rank", kind, str(size_bytes)]
        super().__init__(
            [*words, str(seconds)],
            each_host=True,
            echo_fd=-1,
            extra={
                "PYTHONPATH": ":".join(one for one in sys.path if one),
                **(extra or {}),
            },
        )
        self._kind = kind

    @property
    def about(self) -> str:
        """For people."""
        return f"{self._kind} over all hosts, every element compared"

    def start(self, world: AnyWorld) -> None:
        """See Workload."""
        if not isinstance(world, World) or len(world.hosts) < 2:
            raise DrillError(f"{self._kind} needs software NICs of two hosts or more: say --fabric")
        super().start(world)
