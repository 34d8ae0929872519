"""Tests of test_events.py on hand-made build event files."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from tools.lib import test_events

GOOD = '<testsuites><testsuite><testcase classname="S" name="{}"/></testsuite></testsuites>'


def _configured(label: str, tags: list[str]) -> dict[str, Any]:
    return {
        "id": {"targetConfigured": {"label": label}},
        "configured": {"targetKind": "cc_test rule", "tag": tags},
    }


def _completed(label: str, success: bool) -> dict[str, Any]:
    completed = {"success": True} if success else {}
    return {"id": {"targetCompleted": {"label": label}}, "completed": completed}


def _result(
    label: str, status: str, xml: pathlib.Path | None, shard: int = 1, attempt: int = 1
) -> dict[str, Any]:
    outputs = [{"name": "test.log", "uri": "file:///nowhere"}]
    if xml:
        outputs.append({"name": "test.xml", "uri": xml.as_uri()})
    return {
        "id": {"testResult": {"label": label, "shard": shard, "attempt": attempt}},
        "testResult": {"status": status, "testActionOutput": outputs},
    }


def _xml(folder: pathlib.Path, name: str) -> pathlib.Path:
    path = folder / f"{name} with blank.xml"
    path.write_text(GOOD.format(name))
    return path


def _outcomes(events: list[dict[str, Any]]) -> list[test_events.TargetOutcome]:
    return test_events.outcomes(json.dumps(event) for event in events)


def test_cases_of_all_shards_are_counted_under_their_tier(tmp_path: pathlib.Path) -> None:
    found = _outcomes(
        [
            _configured("//a:t", ["fabric", "exclusive"]),
            _configured("//b:t", []),
            _completed("//a:t", True),
            _result("//a:t", "PASSED", _xml(tmp_path, "one"), shard=1),
            _result("//a:t", "PASSED", _xml(tmp_path, "two"), shard=2),
            _result("//b:t", "PASSED", _xml(tmp_path, "three")),
        ]
    )
    assert [(o.label, o.tier, o.cases.passed, o.cases.failed) for o in found] == [
        ("//a:t", "fabric", ["S.one", "S.two"], []),
        ("//b:t", "unit", ["S.three"], []),
    ]


def test_target_that_did_not_build_is_a_failure() -> None:
    (found,) = _outcomes([_configured("//a:t", []), _completed("//a:t", False)])
    assert found.cases.failed == [("", "did not build")]


def test_target_that_was_not_run_is_a_failure() -> None:
    summary = {"id": {"testSummary": {"label": "//a:t"}}, "testSummary": {}}
    (found,) = _outcomes([_configured("//a:t", []), _completed("//a:t", True), summary])
    assert found.cases.failed == [("", "was not run")]


def test_bad_end_after_good_cases_is_a_failure(tmp_path: pathlib.Path) -> None:
    (found,) = _outcomes([_result("//a:t", "FAILED", _xml(tmp_path, "one"))])
    assert found.cases.passed == ["S.one"]
    assert found.cases.failed == [("", "ended with FAILED, though no case failed")]


def test_run_without_a_file_is_a_failure() -> None:
    (found,) = _outcomes([_result("//a:t", "TIMEOUT", None)])
    assert found.cases.failed == [("", "wrote no test.xml")]


def test_last_attempt_counts(tmp_path: pathlib.Path) -> None:
    (found,) = _outcomes(
        [
            _result("//a:t", "FAILED", None, attempt=1),
            _result("//a:t", "PASSED", _xml(tmp_path, "one"), attempt=2),
        ]
    )
    assert found.cases.failed == []
