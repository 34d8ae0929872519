"""Tests of junit.py: a skip, a disabled case and an empty file must not look like success."""

from __future__ import annotations

import pathlib

import pytest

from tools.lib import junit

GTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" failures="1" disabled="1" name="AllTests">
  <testsuite name="Split" tests="4">
    <testcase name="Good" status="run" result="completed" classname="Split" />
    <testcase name="Bad" status="run" result="completed" classname="Split">
      <failure message="x_test.cc:3&#x0A;Expected equality" type=""/>
    </testcase>
    <testcase name="DISABLED_Old" status="notrun" result="suppressed" classname="Split" />
    <testcase name="Skip" status="run" result="skipped" classname="Split">
      <skipped message="x_test.cc:9&#x0A;no device&#x0A;"/>
    </testcase>
  </testsuite>
</testsuites>
"""

PYTEST = """<testsuites><testsuite name="pytest">
<testcase classname="a" name="test_good" />
<testcase classname="a" name="test_skip"><skipped type="pytest.skip" message="why" /></testcase>
<testcase classname="a" name="test_broken"><error message="fixture failed">...</error></testcase>
</testsuite></testsuites>
"""


def test_gtest_file_is_counted() -> None:
    cases = junit.parse(GTEST)
    assert cases.passed == ["Split.Good"]
    assert cases.failed == [
        ("Split.Bad", "x_test.cc:3 Expected equality"),
        ("Split.DISABLED_Old", "skipped: disabled"),
        ("Split.Skip", "skipped: x_test.cc:9 no device"),
    ]


def test_pytest_file_is_counted() -> None:
    cases = junit.parse(PYTEST)
    assert cases.passed == ["a.test_good"]
    assert [reason for _, reason in cases.failed] == ["skipped: why", "fixture failed"]


@pytest.mark.parametrize("text", ["", "<testsuites>", "<testsuites/>", "no xml"])
def test_unusable_file_is_a_failure(text: str) -> None:
    cases = junit.parse(text)
    assert cases.passed == []
    assert len(cases.failed) == 1


def test_written_file_is_read_back(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "out.xml"
    junit.write(str(file), "check", [("ruff", ""), ("mypy", "a.py:1: <wrong> & more")])
    cases = junit.parse(file.read_text(encoding="utf-8"))
    assert cases.passed == ["check.ruff"]
    assert cases.failed == [("check.mypy", "a.py:1: <wrong> & more")]
