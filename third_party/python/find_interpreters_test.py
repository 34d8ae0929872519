"""The search for Pythons passes over what only looks like one."""

from __future__ import annotations

import pathlib
import stat
import sys

from third_party.python import find_interpreters

_OTHER = '{"cpython": %s, "gil": %s, "headers": %s, "short": "3.9", "version": "3.9.1"}'


def _program(path: pathlib.Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text, encoding="ascii")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_debians_own_is_always_found() -> None:
    found = find_interpreters.find({"PATH": "/nonexistent", "HOME": "/nonexistent"})
    debian = next(one for one in found if one["tag"] == "cp311")
    assert debian["python"] == "/usr/bin/python3.11"
    assert debian["include"] == "/usr/include/python3.11"
    assert debian["suffix"] == ".cpython-311-x86_64-linux-gnu.so"


def test_a_shim_that_fails_gives_way_to_the_next(tmp_path: pathlib.Path) -> None:
    _program(tmp_path / "shims/python3.9", "exit 127\n")
    real = _program(tmp_path / "versions/3.9.1/bin/python3.9", "exit 0\n")
    environ = {"PATH": str(tmp_path / "shims"), "PYENV_ROOT": str(tmp_path), "HOME": "/nonexistent"}
    tried = list(find_interpreters.candidates(environ, "3.9"))
    assert tried.index(str(tmp_path / "shims/python3.9")) < tried.index(real)
    assert find_interpreters.ask(tried[0]) == {}


def test_no_headers_no_gil_or_no_cpython_is_none_of_ours(tmp_path: pathlib.Path) -> None:
    for words in (
        ("false", "true", "true"), ("true", "false", "true"), ("true", "true", "false")
    ):  # fmt: skip
        program = _program(tmp_path / "python3.9", f"echo '{_OTHER % words}'\n")
        assert find_interpreters.ask(program) == {}
    program = _program(tmp_path / "python3.9", f"echo '{_OTHER % (('true',) * 3)}'\n")
    assert find_interpreters.ask(program)["short"] == "3.9"


def test_a_list_replaces_the_search() -> None:
    found = find_interpreters.find({"RAILHOP_PYTHONS": f"/nonexistent:{sys.executable}"})
    assert [one["tag"] for one in found] == ["cp311"]
    assert find_interpreters.find({"RAILHOP_PYTHONS": "/nonexistent"}) == []
