"""The page about conformance is the one that its table makes."""

from __future__ import annotations

import pathlib

from integration.verbs import table

_FOLDER = pathlib.Path("integration/verbs")
_LISTED = """{"capabilities": [{"word": "srq", "meaning": "shared"}], "cases": [
  {"name": "A.One_Works", "clause": "c1", "needs": []},
  {"name": "A.Two_Works", "clause": "c2", "needs": ["srq"]}]}"""
_EXPECT = """# A test.
unsupported | srq | not needed
differs | A.O* | got 2 | man x | it is old
"""


def test_page_in_docs_is_up_to_date() -> None:
    files = [str(_FOLDER / f"{name}.expect") for name in ("softfabric", "simulator", "rxe")]
    made = table.page(str(_FOLDER / "verbs_conformance"), files)
    there = pathlib.Path("docs/reference/conformance.md").read_text(encoding="utf-8")
    assert made == there, (
        "make it again: bazel run //integration/verbs:table -- "
        "--write $PWD/docs/reference/conformance.md"
    )


def test_cells_say_yes_no_or_differs() -> None:
    words, cases = table.parse_cases(_LISTED)
    fabric = table.parse_fabric("f", _EXPECT)
    assert fabric.about == "A test."
    assert [fabric.outcome(case) for case in cases] == ["differs", "no"]
    assert table.parse_fabric("g", "").outcome(cases[0]) == "yes"
    text = table.render(words, cases, [fabric])
    assert "| f | 0 | 1 | 1 | A test. |" in text
    assert "| f | `srq`: shared | not needed |" in text
    assert "| f | `A.O*` | man x | it is old |" in text
    assert "| One_Works | differs | c1 |" in text
