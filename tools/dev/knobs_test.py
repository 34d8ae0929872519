from __future__ import annotations

import pathlib

from tools.dev import knobs


def _tree(root: pathlib.Path, table: str) -> pathlib.Path:
    for name in (knobs.OPTION_TABLE, knobs.PAGE):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / knobs.OPTION_TABLE).write_text(table, encoding="utf-8")
    return root


def test_options_are_found_in_the_table() -> None:
    first = '    {kDevices, "NCCL_A", T::kNcclInt,\n     "see RAILHOP_X"},\n'
    text = first + '    {kOurs, "RAILHOP_B_2", x},\n'
    assert knobs.options_in(text) == ["NCCL_A", "RAILHOP_B_2"]


def test_tests_are_found_in_both_languages() -> None:
    cc = "TEST(A, B_c) {\nTEST_F(D, E) {\nTYPED_TEST(F, G) {\n  TEST(H, I)\n"
    assert knobs.tests_in("x_test.cc", cc) == {"A.B_c", "D.E", "F.G"}
    assert knobs.tests_in("x_test.py", "def test_a() -> None:\ndef other():\n") == {"test_a"}


def test_option_without_a_test_and_missing_test_are_named(tmp_path: pathlib.Path) -> None:
    found = knobs.check_tree(_tree(tmp_path, '    {kOurs, "RAILHOP_NEW", x},\n'))
    assert f"{knobs.OPTION_TABLE}: no test proves RAILHOP_NEW" in found
    assert "tools/dev/knobs.py: no option NCCL_IB_TC" in found
    assert any("has no test test_timeout" in line for line in found)
    assert any(line.startswith(knobs.PAGE) for line in found)


def test_page_has_a_row_for_each_option() -> None:
    page = knobs.page(["NCCL_IB_TC", "RAILHOP_LOG"])
    assert "| `NCCL_IB_TC` | `test_sl_and_tc` (integration/plugin/knobs_test.py);" in page
    assert "| `RAILHOP_LOG` |" in page
