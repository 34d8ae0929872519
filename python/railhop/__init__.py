"""Railhop: a network plugin for NCCL that keeps GPU jobs running when links fail."""

from __future__ import annotations

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
from railhop.version import __version__

__all__ = [
    "Error",
    "InternalError",
    "InvalidError",
    "NoAnswerError",
    "NotAllowedError",
    "NotFoundError",
    "NotLoadedError",
    "RefusedError",
    "StaleSocketError",
    "__version__",
    "environment",
    "paths",
]
