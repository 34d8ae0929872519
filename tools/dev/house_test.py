"""Tests of house.py with trees that keep the rules and trees that break them."""

from __future__ import annotations

import pathlib

from tools.dev import house


def _tree(root: pathlib.Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return sorted(files)


def test_good_tree_passes(tmp_path: pathlib.Path) -> None:
    guard = "RAILHOP_CC_A_B_H_"
    files = _tree(
        tmp_path,
        {
            "README.md": "x\n" * 100,
            "cc/a/README.md": "x\n" * 15,
            "cc/a/BUILD.bazel": "",
            "cc/a/b.h": f"// TODO(#12): more.\n#ifndef {guard}\n#define {guard}\n#endif\n",
            "cc/a/data/x.txt": "TODO",
        },
    )
    assert house.check_tree(tmp_path, files) == []


def test_missing_and_long_readme_are_named(tmp_path: pathlib.Path) -> None:
    files = _tree(
        tmp_path,
        {"cc/a/b.cc": "", "cc/c/BUILD.bazel": "", "cc/c/README.md": "x\n" * 16},
    )
    assert house.check_tree(tmp_path, files) == [
        "cc/a: no README.md",
        "cc/c/README.md: 16 lines, at most 15 are allowed",
    ]


def test_wrong_guard_is_named(tmp_path: pathlib.Path) -> None:
    files = _tree(tmp_path, {"cc/a/README.md": "", "cc/a/b.h": "#pragma once\n"})
    assert house.check_tree(tmp_path, files) == ["cc/a/b.h: no header guard RAILHOP_CC_A_B_H_"]


def test_todo_without_number_is_named(tmp_path: pathlib.Path) -> None:
    files = _tree(
        tmp_path, {"cc/a/README.md": "", "cc/a/b.cc": "// fine\n// TODO: later\n// TODO(me): x\n"}
    )
    assert house.check_tree(tmp_path, files) == [
        "cc/a/b.cc:2: TODO without an issue number; write TODO(#N)",
        "cc/a/b.cc:3: TODO without an issue number; write TODO(#N)",
    ]
