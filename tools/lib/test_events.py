"""Reads what Bazel says of a test run (its build event file) into outcomes of test cases."""

from __future__ import annotations

import dataclasses
import json
import urllib.parse
from collections.abc import Iterable
from typing import Any

from tools.lib import junit

TIERS = ("unit", "sim", "torch", "fabric", "kernel", "gpu")


@dataclasses.dataclass
class TargetOutcome:
    """What came of one test target."""

    label: str
    tier: str
    cases: junit.Cases


def tier_of(tags: Iterable[str]) -> str:
    """The tier that a target's tags name; unit if none does."""
    for tier in TIERS:
        if tier in tags:
            return tier
    return "unit"


def _read_file(uri: str) -> str:
    path = urllib.parse.unquote(urllib.parse.urlparse(uri).path)
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _cases_of(result: dict[str, Any]) -> junit.Cases:
    """Outcome of one shard's last attempt."""
    status = result.get("status", "NO_STATUS")
    xml = [out for out in result.get("testActionOutput", []) if out.get("name") == "test.xml"]
    if xml and "uri" in xml[0]:
        cases = junit.parse(_read_file(xml[0]["uri"]))
    else:
        cases = junit.Cases()
        cases.fail("", "wrote no test.xml")
    # A sanitizer's report at the end fails the program after all of its cases have passed.
    if status != "PASSED" and not cases.failed:
        cases.fail("", f"ended with {status}, though no case failed")
    return cases


def outcomes(lines: Iterable[str]) -> list[TargetOutcome]:
    """All test targets of a run, in order of their labels.

    A target that was asked for and did not build, or was not run, is one with a failed case.
    """
    tags: dict[str, list[str]] = {}
    broken: set[str] = set()
    summed_up: set[str] = set()
    results: dict[tuple[str, int], tuple[int, dict[str, Any]]] = {}
    for line in lines:
        event = json.loads(line)
        ident = event.get("id", {})
        if "targetConfigured" in ident and "configured" in event:
            label = ident["targetConfigured"]["label"]
            tags[label] = event["configured"].get("tag", [])
        elif "targetCompleted" in ident:
            if not event.get("completed", {}).get("success", False):
                broken.add(ident["targetCompleted"]["label"])
        elif "testSummary" in ident:
            summed_up.add(ident["testSummary"]["label"])
        elif "testResult" in ident and "testResult" in event:
            key = (ident["testResult"]["label"], ident["testResult"].get("shard", 1))
            attempt = ident["testResult"].get("attempt", 1)
            if key not in results or attempt >= results[key][0]:
                results[key] = (attempt, event["testResult"])

    by_label: dict[str, junit.Cases] = {}
    for (label, _), (_, result) in sorted(results.items(), key=lambda item: item[0]):
        cases = _cases_of(result)
        total = by_label.setdefault(label, junit.Cases())
        total.passed += cases.passed
        total.failed += cases.failed
    for label in (broken | summed_up) - by_label.keys():
        cases = by_label.setdefault(label, junit.Cases())
        cases.fail("", "did not build" if label in broken else "was not run")
    return [
        TargetOutcome(label, tier_of(tags.get(label, [])), cases)
        for label, cases in sorted(by_label.items())
    ]
