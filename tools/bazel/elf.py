"""What a shared library exports and needs, as readelf (binutils) prints it."""

from __future__ import annotations

import dataclasses
import re
import subprocess

_NEEDED = re.compile(r"\(NEEDED\).*\[(.*)\]")
_SONAME = re.compile(r"\(SONAME\).*\[(.*)\]")
_GLIBC = re.compile(r"Name: GLIBC_(\d+(?:\.\d+)+)\b")


@dataclasses.dataclass(frozen=True)
class Library:
    """soname: DT_SONAME or "". needed: DT_NEEDED in order. exports: "name" or "name@@VERSION".
    glibc: newest GLIBC_ version required, or (0,). nodelete: DF_1_NODELETE.
    """

    soname: str
    needed: list[str]
    exports: list[str]
    glibc: tuple[int, ...]
    nodelete: bool


def parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def parse_exports(symbols: str) -> list[str]:
    """Exported names in the output of `readelf -W --dyn-syms`.

    Local symbols are left out: gold keeps some in .dynsym, which export nothing. So are the version
    names themselves, which are absolute symbols.
    """
    found = []
    for line in symbols.splitlines():
        field = line.split()
        if len(field) < 8 or not field[0].rstrip(":").isdigit():
            continue
        bind, index, name = field[4], field[6], field[7]
        if bind in ("GLOBAL", "WEAK", "UNIQUE") and index not in ("UND", "ABS"):
            found.append(name)
    return sorted(found)


def parse_glibc(versions: str) -> tuple[int, ...]:
    """Newest GLIBC version in the output of `readelf -W --version-info`."""
    return max((parse_version(v) for v in _GLIBC.findall(versions)), default=(0,))


def _readelf(path: str, *options: str) -> str:
    return subprocess.run(
        ["readelf", "-W", *options, path], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def read(path: str) -> Library:
    """Reads the file. Raises CalledProcessError if it is not ELF."""
    dynamic = _readelf(path, "-d")
    soname = _SONAME.search(dynamic)
    return Library(
        soname=soname.group(1) if soname else "",
        needed=_NEEDED.findall(dynamic),
        exports=parse_exports(_readelf(path, "--dyn-syms")),
        glibc=parse_glibc(_readelf(path, "--version-info")),
        nodelete="NODELETE" in dynamic,
    )
