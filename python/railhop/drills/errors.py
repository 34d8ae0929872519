"""What a drill cannot do."""

from __future__ import annotations


class DrillError(ValueError):
    """A drill that cannot be held, or a workload that failed for its own reasons; one line."""


class GoneError(RuntimeError):
    """A command for processes that are not there, or no more."""
