"""What tools/fuzz makes of libFuzzer's output, and that every target has inputs."""

from __future__ import annotations

import re

from tools.lib import fuzz, workspace

DONE = """\
INFO: seed corpus: files: 3 min: 1b max: 20b total: 40b rss: 31Mb
#4	INITED cov: 10 ft: 12 corp: 3/40b exec/s: 0 rss: 32Mb
#99	NEW    cov: 317 ft: 901 corp: 64/5241b lim: 394 exec/s: 3036 rss: 205Mb L: 355/355 MS: 1 X-
#45607	DONE   cov: 317 ft: 902 corp: 65/5241b lim: 394 exec/s: 2850 rss: 206Mb
Done 45607 runs in 16 second(s)
stat::number_of_executed_units: 45607
"""

BROKEN = """\
#4	INITED cov: 10 ft: 12 corp: 3/40b exec/s: 0 rss: 32Mb
property does not hold: what is written can be read
subject: a down
==17== ERROR: libFuzzer: deadly signal
SUMMARY: libFuzzer: deadly signal
artifact_prefix='/c/fuzz/fault/'; Test unit written to /c/fuzz/fault/crash-12ab
"""

SLOW = DONE + "artifact_prefix='/c/'; Test unit written to /c/slow-unit-12ab\n"


def test_finished_run_gives_figures() -> None:
    outcome = fuzz.parse_log("x", DONE)
    assert outcome == fuzz.Outcome("x", 16, 45607, 902, 317, 65)


def test_broken_property_names_input_and_command() -> None:
    problem = fuzz.parse_log("fault", BROKEN).problem
    assert problem == (
        "property does not hold: what is written can be read; input /c/fuzz/fault/crash-12ab; "
        "repeat: tools/fuzz --repeat /c/fuzz/fault/crash-12ab fault"
    )


def test_sanitizer_report_is_the_reason() -> None:
    log = BROKEN.replace("property does not hold", "a.cc:3:5: runtime error")
    assert fuzz.parse_log("fault", log).problem.startswith("a.cc:3:5: runtime error")


def test_slow_input_is_no_failure() -> None:
    assert not fuzz.parse_log("x", SLOW).problem


def test_every_target_has_inputs_and_they_are_few() -> None:
    build = (workspace.ROOT / "cc/fuzz/BUILD.bazel").read_text(encoding="utf-8")
    targets = re.findall(r"railhop_fuzz_target\(\n    name = \"(\w+)\"", build)
    assert sorted(targets) == fuzz.names()
    assert all(any((fuzz.CORPORA / name).iterdir()) for name in targets)
    assert sum(1 for path in fuzz.CORPORA.rglob("*") if path.is_file()) < 200
