"""Verdicts over made-up sightings."""

from __future__ import annotations

import dataclasses

import pytest

from railhop.drills.judge import Gap, Planned, Seen, judge
from railhop.drills.result import Happening, Series
from railhop.scenario import Expectation

STEP_S = 0.05
EXPECT = Expectation(survives=True, gap_ms_max=2000.0, fails_back=True)


def series(seconds: float, *, down: tuple[float, float], back_s: float) -> tuple[Series, list[int]]:
    """Two NICs of 100 MB/s each; the first moves nothing from down[0] until back_s."""
    made = Series(moved_bytes={"a/nic0:1": [], "a/nic1:1": []})
    received = []
    moved = [0, 0]
    for index in range(int(seconds / STEP_S) + 1):
        time_s = index * STEP_S
        made.times_s.append(time_s)
        if not down[0] < time_s <= back_s:
            moved[0] += int(100e6 * STEP_S)
        moved[1] += int(100e6 * STEP_S)
        made.moved_bytes["a/nic0:1"].append(moved[0])
        made.moved_bytes["a/nic1:1"].append(moved[1])
        received.append(sum(moved))
    return made, received


def seen(*, end_s: float = 7.0, back_s: float = 8.0, seconds: float = 12.0) -> Seen:
    made, received = series(seconds, down=(3.0, end_s), back_s=back_s)
    return Seen(
        survived=True,
        wrong_bytes=0,
        problem="",
        seconds=seconds,
        happenings=[Happening(3.0, end_s, "a/nic0:1", "nic0 down for 4s")],
        series=made,
        received=received,
        gaps=[Gap(1.0, 1.01), Gap(3.0, 3.04), Gap(9.0, 9.005)],
    )


def test_a_lost_and_regained_nic_passes_with_its_figures() -> None:
    verdict = judge(seen(), EXPECT)
    assert verdict.passed, verdict.problems
    assert verdict.gap_ms == pytest.approx(40.0)
    assert verdict.gap_before_ms == pytest.approx(10.0)
    assert verdict.gap_from == "messages"
    assert verdict.before_gb_per_s == pytest.approx(0.2, rel=0.02)
    assert verdict.during_gb_per_s == pytest.approx(0.1, rel=0.05)
    assert verdict.after_gb_per_s == pytest.approx(0.2, rel=0.02)
    assert verdict.failback.seen
    assert verdict.failback.after_ms == pytest.approx(1050, abs=60)


def test_a_machine_that_let_nobody_run_before_the_fault_is_judged_by_the_start() -> None:
    one = seen()
    one.series, one.received = series(12.0, down=(0.4, 7.0), back_s=8.0)
    verdict = judge(one, EXPECT)
    assert verdict.failback.seen
    assert verdict.failback.after_ms == pytest.approx(1050, abs=60)


def test_no_failback_is_a_problem_if_one_is_expected() -> None:
    verdict = judge(seen(back_s=100.0), EXPECT)
    assert verdict.failback.seen is False
    assert verdict.problems == ["no failback to the port that was hit: it stayed away"]
    assert judge(seen(back_s=100.0), Expectation(fails_back=None)).passed
    assert judge(seen(back_s=100.0), Expectation(fails_back=False)).passed


def test_a_port_that_was_never_left_has_no_failback() -> None:
    verdict = judge(seen(back_s=3.0), EXPECT)
    assert verdict.failback.seen is None
    assert "traffic never left it" in verdict.problems[0]


def test_a_gap_beyond_the_budget_is_a_problem() -> None:
    one = dataclasses.replace(seen(), gaps=[Gap(3.0, 5.5)])
    assert judge(one, EXPECT).problems == ["nothing arrived for 2500 ms, 2000 ms are allowed"]


def test_a_gap_counts_on_each_side_of_the_first_step_with_its_own_part() -> None:
    one = dataclasses.replace(seen(), gaps=[Gap(2.98, 3.5)])
    verdict = judge(one, EXPECT)
    assert verdict.gap_before_ms == pytest.approx(20.0)
    assert verdict.gap_ms == pytest.approx(500.0)


def test_a_death_leaves_open_what_nobody_knows() -> None:
    one = dataclasses.replace(seen(back_s=100.0), survived=False, gaps=[], seconds=6.0)
    verdict = judge(one, EXPECT)
    assert (verdict.wrong_bytes, verdict.gap_ms, verdict.after_gb_per_s) == (None, None, None)
    assert verdict.failback.seen is None
    assert verdict.before_gb_per_s == pytest.approx(0.2, rel=0.02)


def test_death_and_wrong_bytes_are_problems() -> None:
    one = dataclasses.replace(seen(), survived=False, problem="status 12", wrong_bytes=3)
    verdict = judge(one, EXPECT)
    assert not verdict.passed
    assert verdict.problems == ["the workload died: status 12", "3 bytes arrived wrong"]


def test_an_expected_death_passes_and_a_survival_does_not() -> None:
    deadly = Expectation(survives=False)
    assert judge(dataclasses.replace(seen(), survived=False), deadly).passed
    assert not judge(seen(), deadly).passed


def test_without_messages_steps_tell_the_gap() -> None:
    steps = [(float(i), 100.0) for i in range(1, 12)]
    steps[4] = (5.0, 900.0)
    verdict = judge(dataclasses.replace(seen(), gaps=None, steps=steps), EXPECT)
    assert verdict.gap_from == "steps"
    assert verdict.gap_ms == pytest.approx(800.0)
    assert verdict.gap_before_ms == 0.0


def test_without_either_silence_of_all_ports_tells_it() -> None:
    one = seen()
    for index, time_s in enumerate(one.series.times_s):
        if 3.0 < time_s < 4.0:
            one.received[index] = one.received[60]  # type: ignore[index]
    verdict = judge(dataclasses.replace(one, gaps=None), EXPECT)
    assert verdict.gap_from == "bytes"
    assert verdict.gap_ms == pytest.approx(1000, abs=120)


def test_a_fault_without_an_end_lasts_to_the_end() -> None:
    one = seen(back_s=100.0)
    one.happenings[0].end_s = None
    verdict = judge(one, Expectation(fails_back=False))
    assert verdict.passed
    assert verdict.during_gb_per_s == pytest.approx(0.1, rel=0.05)
    assert verdict.after_gb_per_s is None


def test_nothing_seen_is_nothing_told() -> None:
    verdict = judge(Seen(True, None, "", 1.0, [], Series(), []), Expectation())
    assert verdict.passed
    assert (verdict.gap_ms, verdict.gap_from, verdict.before_gb_per_s) == (None, "", None)


@pytest.mark.parametrize(
    ("at_s", "acted_s", "usable"),
    [(3.0, 3.4, True), (3.0, 4.9, True), (3.0, 5.1, False), (40.0, 48.0, True), (4.0, 40.0, False)],
)
def test_a_step_that_was_late_makes_a_drill_unusable(
    at_s: float, acted_s: float, usable: bool
) -> None:
    verdict = judge(dataclasses.replace(seen(), plan=[Planned("release a", at_s, acted_s)]), EXPECT)
    assert verdict.usable == usable
    assert verdict.passed == usable
    if acted_s == 40.0:
        assert verdict.problems == [
            "step 'release a' was 36 s late: this machine is too busy to judge"
        ]


def test_a_scenario_that_allows_long_gaps_allows_late_steps() -> None:
    one = dataclasses.replace(seen(), plan=[Planned("release a", 4.0, 40.0)])
    assert judge(one, dataclasses.replace(EXPECT, gap_ms_max=60_000.0)).usable
    assert not judge(one, dataclasses.replace(EXPECT, gap_ms_max=0.0)).usable


def test_a_step_that_never_happened_makes_a_drill_unusable() -> None:
    verdict = judge(dataclasses.replace(seen(), plan=[Planned("nic1 down", 3.0, None)]), EXPECT)
    assert not verdict.usable
    assert verdict.problems == [
        "step 'nic1 down', planned at 3 s, was not carried out: this machine is too busy to judge"
    ]
    assert not verdict.notes


def test_a_step_after_the_jobs_end_is_a_note() -> None:
    plan = [Planned("hold a", 3.0, 3.0), Planned("release a", 11.5, None)]
    verdict = judge(dataclasses.replace(seen(), plan=plan, ended_s=12.0), EXPECT)
    assert verdict.passed, verdict.problems
    assert verdict.notes == ["the job had ended before 'release a'"]
    # Long before it the workload's end is no reason.
    plan[1].at_s = 5.0
    assert not judge(dataclasses.replace(seen(), plan=plan, ended_s=12.0), EXPECT).usable


def test_a_hole_in_the_samples_makes_a_bad_verdict_unusable() -> None:
    one = dataclasses.replace(seen(), gaps=[Gap(3.0, 6.0)])
    kept = [i for i, time_s in enumerate(one.series.times_s) if not 3.0 < time_s < 5.9]
    one.series.times_s = [one.series.times_s[i] for i in kept]
    one.received = [one.received[i] for i in kept]
    for name, moved in one.series.moved_bytes.items():
        one.series.moved_bytes[name] = [moved[i] for i in kept]
    verdict = judge(one, EXPECT)
    assert not verdict.usable
    assert verdict.problems[0] == (
        "the counters could not be read for 2.9 s from 3.0 s on: this machine is too busy to judge"
    )
    # The messages were good: they were counted elsewhere.
    assert judge(dataclasses.replace(one, gaps=[]), EXPECT).usable
    # Without them only samples tell.
    assert not judge(dataclasses.replace(one, gaps=None), EXPECT).usable


def test_an_outage_that_no_sample_saw_makes_the_drill_unusable() -> None:
    one = seen(back_s=7.0)
    kept = [i for i, time_s in enumerate(one.series.times_s) if not 3.0 < time_s < 7.2]
    one.series.times_s = [one.series.times_s[i] for i in kept]
    one.received = [one.received[i] for i in kept]
    for moved in one.series.moved_bytes.values():
        # As if it had caught up at once.
        moved[:] = [int(100e6 * time_s) for time_s in one.series.times_s]
    long_gaps = dataclasses.replace(EXPECT, gap_ms_max=60_000.0)
    verdict = judge(one, long_gaps)
    assert verdict.failback.seen is None
    assert not verdict.usable
    assert "4.2 s from 3.0 s on" in verdict.problems[0]


def test_wrong_bytes_are_never_the_machines_fault() -> None:
    plan = [Planned("release a", 3.0, 40.0)]
    verdict = judge(dataclasses.replace(seen(), plan=plan, wrong_bytes=8), EXPECT)
    assert verdict.usable
    assert verdict.problems == ["8 bytes arrived wrong"]
