"""Counts the test cases in a JUnit file, as gtest, pytest and Bazel itself write it.

A skip counts as a failure: in a required test nothing may be left out. So does a gtest case that is
disabled, and a file without a case.
"""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET


@dataclasses.dataclass
class Cases:
    """Names of the cases of one test file by outcome; a failed one comes with its reason."""

    passed: list[str] = dataclasses.field(default_factory=list)
    failed: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def fail(self, name: str, reason: str) -> None:
        self.failed.append((name, reason))


def _one_line(text: str | None) -> str:
    """The first few lines as one; empty if there is nothing."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return " ".join(lines[:4])


def _reason(case: ET.Element) -> str:
    """Why the case did not pass; empty if it did."""
    for tag in ("failure", "error"):
        found = case.find(tag)
        if found is not None:
            return _one_line(found.get("message") or found.text) or "failed"
    skipped = case.find("skipped")
    if skipped is not None or case.get("result") == "skipped":
        message = skipped.get("message") if skipped is not None else None
        return f"skipped: {_one_line(message) or 'no reason given'}"
    if case.get("status") == "notrun":
        return "skipped: disabled"
    return ""


def parse(text: str) -> Cases:
    """Reads a JUnit file. A file that is no XML or has no case is one failed case."""
    cases = Cases()
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        cases.fail("", f"unreadable test.xml: {error}")
        return cases
    for case in root.iter("testcase"):
        name = ".".join(part for part in (case.get("classname"), case.get("name")) if part)
        reason = _reason(case)
        if reason:
            cases.fail(name, reason)
        else:
            cases.passed.append(name)
    if not cases.passed and not cases.failed:
        cases.fail("", "no test case in it")
    return cases


def write(path: str, suite: str, outcomes: list[tuple[str, str]]) -> None:
    """Writes a JUnit file from (name, reason) pairs; an empty reason is a pass."""
    root = ET.Element("testsuites")
    element = ET.SubElement(root, "testsuite", name=suite, tests=str(len(outcomes)))
    for name, reason in outcomes:
        case = ET.SubElement(element, "testcase", classname=suite, name=name)
        if reason:
            ET.SubElement(case, "failure", message=reason)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
