"""Rules of the house that no linter knows: READMEs, header guards, TODOs."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable

README_LINES_MAX = 15
# Pages rather than signposts: they may be longer.
_LONG_READMES = ("README.md", "docs/README.md")
_TODO = re.compile(r"\bTODO\b(?!\(#\d+\))")
_CODE = (".h", ".cc", ".c", ".py", ".sh", ".bzl", ".bazel", ".proto", ".lds")
# They speak of the word itself.
_TODO_EXEMPT = ("tools/dev/house.py", "tools/dev/house_test.py")


def check_readmes(root: pathlib.Path, files: Iterable[str]) -> list[str]:
    """Each folder with a file of the project has a README, of at most README_LINES_MAX lines.

    Folders that hold data for the folder above (no BUILD file, no code) need none.
    """
    files = list(files)
    present = set(files)
    found = []
    folders = {
        str(pathlib.PurePosixPath(name).parent)
        for name in files
        if pathlib.PurePosixPath(name).name in ("BUILD", "BUILD.bazel") or name.endswith(_CODE)
    }
    folders |= {str(pathlib.PurePosixPath(name).parent) for name in files if name.endswith(".sh")}
    for folder in sorted(folders):
        readme = "README.md" if folder == "." else f"{folder}/README.md"
        inside_stand_in = re.match(r"third_party/rules_\w+/", folder)
        if readme not in present and not inside_stand_in:
            found.append(f"{folder}: no README.md")
    for name in files:
        if pathlib.PurePosixPath(name).name != "README.md" or name in _LONG_READMES:
            continue
        lines = (root / name).read_text(encoding="utf-8").count("\n")
        if lines > README_LINES_MAX:
            found.append(f"{name}: {lines} lines, at most {README_LINES_MAX} are allowed")
    return found


def expected_guard(path: str) -> str:
    """cc/base/units.h -> RAILHOP_CC_BASE_UNITS_H_."""
    return "RAILHOP_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"


def check_header(path: str, text: str) -> list[str]:
    """A header has the guard that its path asks for."""
    guard = expected_guard(path)
    if f"#ifndef {guard}\n#define {guard}\n" in text:
        return []
    return [f"{path}: no header guard {guard}"]


def check_todos(path: str, text: str) -> list[str]:
    """A TODO names its issue: TODO(#7)."""
    if path in _TODO_EXEMPT:
        return []
    return [
        f"{path}:{number}: TODO without an issue number; write TODO(#N)"
        for number, line in enumerate(text.splitlines(), 1)
        if _TODO.search(line)
    ]


def check_tree(root: pathlib.Path, files: Iterable[str]) -> list[str]:
    """What is wrong in these files of the tree, one sentence each."""
    files = list(files)
    found = check_readmes(root, files)
    for path in files:
        if path.startswith("third_party/") or not path.endswith(_CODE):
            continue
        text = (root / path).read_text(encoding="utf-8")
        found += check_todos(path, text)
        if path.endswith(".h"):
            found += check_header(path, text)
    return found
