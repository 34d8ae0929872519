"""Drills: rehearse a link failure, and see what came of it.

    result = drills.rehearse("two-hosts-4nic", scenario.find("nic-down"), drills.Streams())
    assert result.verdict.survived and result.verdict.wrong_bytes == 0

`railhop.drill` is the context manager for tests on running jobs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from railhop.drills.command import LOG_VARIABLE, Command
    from railhop.drills.errors import DrillError
    from railhop.drills.rehearsal import rehearse
    from railhop.drills.result import Result, Verdict
    from railhop.drills.streams import Streams

__all__ = ["LOG_VARIABLE", "Command", "DrillError", "Result", "Streams", "Verdict", "rehearse"]

_PLACES = {
    "LOG_VARIABLE": "command",
    "Command": "command",
    "DrillError": "errors",
    "Result": "result",
    "Streams": "streams",
    "Verdict": "result",
    "rehearse": "rehearsal",
}


def __getattr__(name: str) -> Any:
    # Only what holds a drill needs the fabric, a compiled module; reports do not.
    if name not in _PLACES:
        raise AttributeError(f"module 'railhop.drills' has no attribute '{name}'")
    return getattr(importlib.import_module(f"railhop.drills.{_PLACES[name]}"), name)
