"""The picture is well-formed and shows what it is given."""

import xml.etree.ElementTree as ET

from integration.gpu import faults_page, picture


def _line(problem: str = "") -> dict[str, object]:
    return {
        "run": "railhop, fault",
        "problem": problem,
        "error": "NCCL error",
        "exits": [-6, None],
        "median_ms": 15.0,
        "longest_ms": 300.0,
        "faults": [[3.0, "alpha/soft0 down for 4s"]],
        "rounds": [[0.0, 15.0], [0.015, 15.0], [3.0, 300.0]],
        "ports": ["alpha/soft0", "alpha/soft1", "beta/soft0"],
        "moved": [[0.0, 0, 0, 0], [0.5, 500_000_000, 0, 1], [1.0, 500_000_000, 1_000_000_000, 1]],
    }


def test_rates_are_bytes_by_seconds() -> None:
    moved = [[0.0, 0, 0], [0.5, 500_000_000, 0], [0.5, 1, 1], [1.0, 500_000_000, 10]]
    assert picture.rates(moved, 0)[0] == (0.25, 1.0)
    assert len(picture.rates(moved, 0)) == 2


def test_draw_is_xml_and_names_hosts_ports_only() -> None:
    text = picture.draw("a <heading>", [faults_page.claim_run(_line())], 14)
    ET.fromstring(text)
    assert "alpha/soft1" in text
    assert "beta/soft0" not in text
    assert "the job is over" not in text


def test_draw_run_that_died_is_marked() -> None:
    text = picture.draw("x", [faults_page.claim_run(_line("rank 0: ended with status -6"))], 14)
    assert "the job is over" in text


def test_spans_fault_without_end_lasts() -> None:
    spans = faults_page.spans({"faults": [[1.0, "a/b down for 1500ms"], [2.0, "a/b remove"]]})
    assert spans[0] == (1.0, 2.5)
    assert spans[1][1] > 1e6
