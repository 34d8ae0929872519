"""Tests of elf.py on readelf's output and of what shared_library_test makes of it."""

from __future__ import annotations

import argparse

from tools.bazel import elf, shared_library_test

SYMBOLS = """
Symbol table '.dynsym' contains 9 entries:
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND memcpy@GLIBC_2.14 (2)
     2: 0000000000000010     8 TLS     LOCAL  DEFAULT   19 _ZL7stray
     3: 0000000000000000     0 OBJECT  GLOBAL DEFAULT  ABS PROBE_1
     4: 0000000000001234    99 FUNC    GLOBAL DEFAULT   14 probe_b@@PROBE_1
     5: 0000000000001200    12 FUNC    WEAK   DEFAULT   14 probe_a@PROBE_0
     6: 0000000000001300    12 OBJECT  UNIQUE DEFAULT   14 plain
"""

VERSIONS = """
  0x0010: Version: 1  File: libc.so.6  Cnt: 3
  0x0020:   Name: GLIBC_2.9  Flags: none  Version: 5
  0x0030:   Name: GLIBC_2.34  Flags: none  Version: 4
  0x0040:   Name: GLIBC_2.2.5  Flags: none  Version: 3
  0x0050:   Name: GLIBC_PRIVATE  Flags: none  Version: 2
"""


def test_exports_are_defined_symbols_only() -> None:
    assert elf.parse_exports(SYMBOLS) == ["plain", "probe_a@PROBE_0", "probe_b@@PROBE_1"]


def test_newest_glibc_is_found_by_number() -> None:
    assert elf.parse_glibc(VERSIONS) == (2, 34)
    assert elf.parse_glibc("") == (0,)


def _library(
    needed: list[str], exports: list[str], glibc: tuple[int, ...], nodelete: bool
) -> elf.Library:
    return elf.Library("libx.so", needed, exports, glibc, nodelete)


def _problems(library: elf.Library, **changed: object) -> list[str]:
    args = argparse.Namespace(glibc_max="2.34", needed=[], export=["a_*"], nodelete=False)
    vars(args).update(changed)
    return shared_library_test.problems(library, args)


def test_library_that_keeps_its_promises_passes() -> None:
    assert _problems(_library(["libc.so.6", "libgcc_s.so.1"], ["a_1", "a_2"], (2, 34), False)) == []


def test_each_broken_promise_is_named() -> None:
    library = _library(["libc.so.6", "libstdc++.so.6"], ["b"], (2, 36), False)
    found = "\n".join(_problems(library, nodelete=True))
    assert "needs libstdc++.so.6" in found
    assert "needs GLIBC_2.36, newer than GLIBC_2.34" in found
    assert "exports b, which the list does not have" in found
    assert "does not export a_*" in found
    assert "is not marked nodelete" in found


def test_libm_that_is_allowed_passes() -> None:
    assert _problems(_library(["libx.so.1"], ["a_1"], (0,), True), needed=["libx.so.1"]) == []
