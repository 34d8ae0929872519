"""Checks a shared library against what its BUILD file promises (macro shared_library_test)."""

from __future__ import annotations

import argparse
import fnmatch
import sys

from tools.bazel import elf

_EVERYWHERE = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}


def problems(library: elf.Library, args: argparse.Namespace) -> list[str]:
    """What is wrong, in words; empty if nothing is."""
    found = []
    for needed in library.needed:
        if needed not in _EVERYWHERE and needed not in args.needed:
            found.append(f"needs {needed}, which is neither everywhere nor allowed")
    if library.glibc > elf.parse_version(args.glibc_max):
        newest = ".".join(map(str, library.glibc))
        found.append(f"needs GLIBC_{newest}, newer than GLIBC_{args.glibc_max}")
    for symbol in library.exports:
        if not any(fnmatch.fnmatchcase(symbol, pattern) for pattern in args.export):
            found.append(f"exports {symbol}, which the list does not have")
    for pattern in args.export:
        if not any(fnmatch.fnmatchcase(symbol, pattern) for symbol in library.exports):
            found.append(f"does not export {pattern}")
    if args.nodelete and not library.nodelete:
        found.append("is not marked nodelete")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--glibc-max", required=True)
    parser.add_argument("--needed", action="append", default=[])
    parser.add_argument("--export", action="append", default=[])
    parser.add_argument("--nodelete", action="store_true")
    args = parser.parse_args()
    found = problems(elf.read(args.library), args)
    for problem in found:
        print(f"{args.library}: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
