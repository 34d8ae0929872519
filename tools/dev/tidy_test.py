"""Tests of tidy.py: a kept result must not outlive what it was made from."""

from __future__ import annotations

import pathlib

import pytest

from tools.dev import tidy

FLAGS = ("/usr/bin/gcc", "-std=c++20", "-c", "/somewhere/cc/a/x.cc")


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "cc" / "a"
    folder.mkdir(parents=True)
    (folder / "x.cc").write_text('#include "cc/a/x.h"\n#include <vector>\n#include "absl/y.h"\n')
    (folder / "x.h").write_text('#include "cc/a/z.h"\n')
    (folder / "z.h").write_text('#include "cc/a/x.h"\n')
    (folder / "other.h").write_text("")
    (tmp_path / ".clang-tidy").write_text("Checks: x\n")
    return tmp_path


def _key(tree: pathlib.Path, flags: tuple[str, ...] = FLAGS, versions: str = "1") -> str:
    return tidy.key_of(tree, "cc/a/x.cc", flags, versions)


def test_own_headers_are_found_through_one_another(tree: pathlib.Path) -> None:
    assert tidy.own_headers(tree, "cc/a/x.cc") == ["cc/a/x.cc", "cc/a/x.h", "cc/a/z.h"]


def test_key_is_the_same_in_another_checkout(tree: pathlib.Path) -> None:
    assert _key(tree) == _key(tree, (*FLAGS[:-1], "/elsewhere/cc/a/x.cc"))


def test_key_changes_with_all_that_the_result_hangs_on(tree: pathlib.Path) -> None:
    keys = {_key(tree), _key(tree, (*FLAGS, "-DX")), _key(tree, versions="2")}
    for name in ("cc/a/x.cc", "cc/a/x.h", "cc/a/z.h", ".clang-tidy"):
        path = tree / name
        path.write_text(path.read_text() + "\n")
        keys.add(_key(tree))
    assert len(keys) == 7


def test_key_does_not_change_with_other_files(tree: pathlib.Path) -> None:
    before = _key(tree)
    (tree / "cc/a/other.h").write_text("int x;\n")
    assert _key(tree) == before
