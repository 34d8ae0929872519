"""Railhop: a network plugin for NCCL that keeps GPU jobs running when links fail.

In a training script, once NCCL has made a communicator:

    >>> import railhop
    >>> railhop.health().verdict
    <Verdict.OK: 'ok'>

The same from outside, for a process of this node:

    >>> process = railhop.attach(pid=railhop.processes()[0].pid)
    >>> process.force_failover("mlx5_0").ports
    ('mlx5_0:1',)
    >>> process.release("mlx5_0").ports
    ('mlx5_0:1',)

All errors are railhop.Error, and say what to do.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from railhop import paths
from railhop.errors import (
    Error,
    InternalError,
    InvalidError,
    NoAnswerError,
    NotAllowedError,
    NotFoundError,
    NotLoadedError,
    RefusedError,
    StaleSocketError,
)
from railhop.exports import environment
from railhop.forced import drill
from railhop.version import __version__

if TYPE_CHECKING:
    from railhop._native import (
        Blame,
        Cause,
        Connection,
        ConnectionState,
        Device,
        Direction,
        Episode,
        Event,
        EventFollower,
        EventKind,
        EventList,
        FailoverMode,
        FoundProcess,
        Health,
        Histogram,
        Option,
        Outcome,
        Path,
        PathState,
        Port,
        PortState,
        PortStats,
        Process,
        ProcessInfo,
        Severity,
        Stats,
        Verdict,
        attach,
        config,
        events,
        fail_back,
        follow,
        force_failover,
        health,
        hold,
        processes,
        release,
        set_option,
        stats,
    )

__all__ = [
    "Blame",
    "Cause",
    "Connection",
    "ConnectionState",
    "Device",
    "Direction",
    "Episode",
    "Error",
    "Event",
    "EventFollower",
    "EventKind",
    "EventList",
    "FailoverMode",
    "FoundProcess",
    "Health",
    "Histogram",
    "InternalError",
    "InvalidError",
    "NoAnswerError",
    "NotAllowedError",
    "NotFoundError",
    "NotLoadedError",
    "Option",
    "Outcome",
    "Path",
    "PathState",
    "Port",
    "PortState",
    "PortStats",
    "Process",
    "ProcessInfo",
    "RefusedError",
    "Severity",
    "StaleSocketError",
    "Stats",
    "Verdict",
    "__version__",
    "attach",
    "config",
    "drill",
    "environment",
    "events",
    "fail_back",
    "follow",
    "force_failover",
    "health",
    "hold",
    "paths",
    "processes",
    "release",
    "set_option",
    "stats",
]

if not TYPE_CHECKING:
    # The compiled part is loaded when it is first used: paths and variables do not need it.
    _COMPILED = frozenset(name for name in __all__ if name not in globals())

    def __getattr__(name: str) -> object:
        if name not in _COMPILED:
            raise AttributeError(f"module 'railhop' has no attribute '{name}'")
        value = getattr(importlib.import_module("railhop._native"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
