"""Tells job.py where the built programs are, for programs that Bazel does not start as tests."""

from __future__ import annotations

import os
import pathlib

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BUILT = {
    "RAILHOP_TEST_ADMIN_CLIENT": "cc/admin/admin_client",
    "RAILHOP_TEST_LAUNCHER": "cc/fabric/ctl/railhop-fabric",
    "RAILHOP_TEST_LIBRARY": "cc/fabric/libibverbs.so.1",
    "RAILHOP_TEST_PLUGIN": "cc/plugin/libnccl-net-railhop.so",
    "RAILHOP_TEST_PROGRAM": "cc/netperf/railhop-netperf",
}


def place() -> None:
    """Goes into the folder of this program's files. To be called before job is imported."""
    if "RAILHOP_TEST_PROGRAM" in os.environ:
        return
    folder = pathlib.Path(__file__).absolute().parents[2]
    os.chdir(folder if (folder / _BUILT["RAILHOP_TEST_PROGRAM"]).exists() else _ROOT)
    for name, path in _BUILT.items():
        os.environ.setdefault(name, path)
