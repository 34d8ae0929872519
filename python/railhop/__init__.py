"""Railhop: a network plugin for NCCL that keeps GPU jobs running when links fail."""

from __future__ import annotations

from railhop.version import __version__

__all__ = ["__version__"]
