"""What counts as a case that held."""

import collections

from integration.gpu import fault_cases, plugin_log
from integration.gpu.fabric_watch import Sample

_FAULT = fault_cases.FAULTS[0]
_PORT = "alpha/soft0"
_TRUTH = [{"wrong": 0, "digests": ["a", "b"]}] * 2


def _outcome() -> fault_cases.Outcome:
    said = plugin_log.Said(
        episodes=[{"port": "soft0:1"}], recoveries=[{"port": "soft0:1"}], back=["soft0:1"]
    )
    samples = [
        Sample(9.5, {_PORT: 0}, {_PORT: 0}, {_PORT: True}),
        Sample(9.9, {_PORT: 1000}, {_PORT: 0}, {_PORT: True}),
    ]
    return fault_cases.Outcome(
        answers=[{"wrong": 0, "digests": ["a", "b"]}] * 2,
        problem="",
        error="",
        rounds=[[9.0 + i / 10, 0.1] for i in range(100)],
        begun_s=9.0,
        faults=[(10.0, f"{_PORT} down for 1500ms")],
        ports=[_PORT],
        exits=[None, None],
        said=said,
        events=collections.Counter({f"{_PORT}:1 port_state": 2}),
        samples=samples,
    )


def _bad(outcome: fault_cases.Outcome) -> list[str]:
    checks = fault_cases.judge(outcome, _FAULT, _TRUTH)
    return [name for name, why in checks.items() if why]


def test_judge_good_case_holds() -> None:
    assert _bad(_outcome()) == []


def test_judge_dead_job_is_found() -> None:
    outcome = _outcome()
    outcome.problem, outcome.answers = "rank 0 ended", []
    assert _bad(outcome) == ["survives"]


def test_judge_wrong_words_and_other_digests_are_found() -> None:
    outcome = _outcome()
    outcome.answers = [{"wrong": 1, "digests": ["a", "b"]}, outcome.answers[1]]
    assert _bad(outcome) == ["same bits"]
    outcome.answers = [{"wrong": 0, "digests": ["a", "c"]}, outcome.answers[1]]
    assert _bad(outcome) == ["same bits"]


def test_judge_fault_beside_the_traffic_is_found() -> None:
    outcome = _outcome()
    outcome.samples = [Sample(t, {_PORT: 7}, {}, {}) for t in (9.5, 9.9)]
    assert _bad(outcome) == ["fault hit"]


def test_judge_port_that_goes_on_during_its_fault_is_found() -> None:
    outcome = _outcome()
    outcome.samples += [Sample(t, {_PORT: int(t * 1000)}, {}, {}) for t in (10.4, 10.6, 10.8)]
    assert _bad(outcome) == ["fault hit"]


def test_judge_fault_that_did_nothing_is_found() -> None:
    outcome = _outcome()
    outcome.events = collections.Counter()
    assert _bad(outcome) == ["fault hit"]


def test_judge_silent_plugin_is_found() -> None:
    outcome = _outcome()
    outcome.said = plugin_log.Said()
    assert _bad(outcome) == ["episode logged", "recovery logged", "fails back"]


def test_judge_work_that_ends_with_the_fault_is_found() -> None:
    outcome = _outcome()
    outcome.rounds = outcome.rounds[:12]
    assert _bad(outcome) == ["goes on after"]


def test_same_results_losses_are_compared_step_by_step() -> None:
    truth = [{"wrong": 0, "losses": ["1", "2", "3"], "sums": [1]}] * 2
    good = {"wrong": 0, "losses": ["1", "2"], "sums": [1]}
    assert fault_cases.same_results([good, good], truth) == ""
    bad = {"wrong": 0, "losses": ["1", "9"], "sums": [1]}
    assert fault_cases.same_results([good, bad], truth) == "rank 1: losses differ from number 1 on"
    long = {"wrong": 0, "losses": ["1", "2", "3", "4"], "sums": [1]}
    assert "only 3" in fault_cases.same_results([long, good], truth)
