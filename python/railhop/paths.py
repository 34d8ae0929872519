"""Where the files of the package are: plugin, software fabric, programs, topologies.

In an installed wheel they lie in the package's own `lib` folder. A checkout has them in `dist`,
made by tools/build. RAILHOP_HOME, a folder with `plugin`, `fabric` and `netperf` in it, comes
before both.
"""

from __future__ import annotations

import os
import pathlib

from railhop.errors import NotFoundError

__all__ = [
    "fabric_dir",
    "fabric_program",
    "netperf_path",
    "plugin_dir",
    "plugin_path",
    "scenarios_dir",
    "topologies_dir",
]

_HOME = "RAILHOP_HOME"
_PACKAGE = pathlib.Path(__file__).absolute().parent
_CHECKOUT = _PACKAGE.parents[1]


def _find(place: str) -> pathlib.Path:
    """The place in the first folder that has it."""
    home = os.environ.get(_HOME)
    if home:
        folders = [pathlib.Path(home).absolute()]
    else:
        folders = [_PACKAGE / "lib", _CHECKOUT / "dist", _CHECKOUT / "testdata"]
    for folder in folders:
        if (folder / place).exists():
            return folder / place
    if home:
        raise NotFoundError(f"{_HOME}={home} has no {place}; unset it to use the package's own")
    raise NotFoundError(
        f"{_PACKAGE} has no lib/{place}; install the wheel again, or run tools/build in a checkout"
    )


def plugin_path() -> pathlib.Path:
    """The file that NCCL loads.

    Example:
        >>> railhop.paths.plugin_path().name
        'libnccl-net-railhop.so'
    """
    return _find("plugin/libnccl-net-railhop.so")


def plugin_dir() -> pathlib.Path:
    """Its folder, for LD_LIBRARY_PATH.

    Example:
        >>> (railhop.paths.plugin_dir() / "libnccl-net-railhop.so").exists()
        True
    """
    return plugin_path().parent


def fabric_dir() -> pathlib.Path:
    """The folder with the software fabric's libibverbs.so.1, for LD_LIBRARY_PATH.

    Example:
        >>> (railhop.paths.fabric_dir() / "libibverbs.so.1").exists()
        True
    """
    return _find("fabric/libibverbs.so.1").parent


def fabric_program() -> pathlib.Path:
    """The program railhop-fabric, which makes fabrics and puts faults in.

    Example:
        >>> railhop.paths.fabric_program().name
        'railhop-fabric'
    """
    return _find("fabric/railhop-fabric")


def netperf_path() -> pathlib.Path:
    """The program railhop-netperf, which drives any NCCL net plugin without a GPU.

    Example:
        >>> railhop.paths.netperf_path().name
        'railhop-netperf'
    """
    return _find("netperf/railhop-netperf")


def topologies_dir() -> pathlib.Path:
    """The folder with the topologies that come with the package.

    Example:
        >>> (railhop.paths.topologies_dir() / "two-hosts-4nic.topology").exists()
        True
    """
    return _find("topologies")


def scenarios_dir() -> pathlib.Path:
    """The folder with the drills' scenarios that come with the package.

    Example:
        >>> railhop.paths.scenarios_dir().name
        'scenarios'
    """
    return _find("scenarios")
