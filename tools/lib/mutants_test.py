"""Mutant files are read, refused with a reason, and applied; the table says what survives."""

import pathlib

import pytest

from tools.lib import mutants

GOOD = """# A comment.
rule: 5
what: completions do not carry the epoch
tests: //a:b //c:d
runs: //e:f --seeds 7
=== x/y.cc
  one();
--- becomes
  two();
  three();
=== x/z.cc
gone;
--- becomes
"""


def test_parse_good_has_all() -> None:
    mutant = mutants.parse("05-x", GOOD)
    assert (mutant.rule, mutant.tests, mutant.runs) == (5, ("//a:b", "//c:d"), ("//e:f --seeds 7",))
    assert mutant.edits == (
        mutants.Edit("x/y.cc", "  one();", "  two();\n  three();"),
        mutants.Edit("x/z.cc", "gone;", ""),
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rule: 5", "rule: 17", "rule '17' (allowed: 1 to 16)"),
        ("rule: 5", "role: 5", "m:2: unknown field 'role'"),
        ("tests: //a:b //c:d\nruns: //e:f --seeds 7\n", "", "needs an edit, and tests or runs"),
        ("  two();\n  three();", "  one();", "x/y.cc: changes nothing"),
    ],
)
def test_parse_bad_says_why(old: str, new: str, said: str) -> None:
    with pytest.raises(mutants.MutantError) as caught:
        mutants.parse("m", GOOD.replace(old, new))
    assert said in str(caught.value)


def test_apply_replaces_and_wants_each_text_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/y.cc").write_text("a\n  one();\nb\n")
    (tmp_path / "x/z.cc").write_text("gone;\nkept;\n")
    mutant = mutants.parse("m", GOOD)
    changed = mutants.apply(mutant, tmp_path)
    assert changed == {"x/y.cc": "a\n  two();\n  three();\nb\n", "x/z.cc": "\nkept;\n"}
    (tmp_path / "x/y.cc").write_text("  one();\n  one();\n")
    with pytest.raises(mutants.MutantError, match=r"'one\(\);' is there 2 times"):
        mutants.apply(mutant, tmp_path)


def test_check_tree_names_rules_without_a_mutant(tmp_path: pathlib.Path) -> None:
    complaints = mutants.check_tree(tmp_path)
    assert len(complaints) == mutants.RULES
    assert "no mutant for rule 1" in complaints[0]


def test_markdown_says_what_survives() -> None:
    mutant = mutants.parse("05-x", GOOD)
    rows = [mutants.Row(mutant, "//a:b T.A", 3), mutants.Row(mutant, "", 4)]
    page = mutants.markdown(rows, "abc")
    assert "1 of 2 mutants caught, for 1 of 16 rules" in page
    assert "//a:b T.A" in page and "**survives**" in page
