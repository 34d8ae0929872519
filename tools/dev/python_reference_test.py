"""The page is that of the package, and names everything public."""

from __future__ import annotations

import pathlib

from tools.dev import python_reference


def test_the_page_is_up_to_date() -> None:
    kept = pathlib.Path("docs/reference/python.md").read_text(encoding="utf-8")
    remedy = "run: bazel run //tools/dev:python_reference > docs/reference/python.md"
    assert kept == python_reference.page(), remedy


def test_everything_public_is_on_it() -> None:
    page = python_reference.page()
    for name in python_reference.documented():
        assert f"`{name.rpartition('.')[2]}" in page or f"`{name}" in page, name
