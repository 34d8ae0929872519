"""Tests of the paired figures; they need no GPU."""

from __future__ import annotations

import random

import pytest

from integration.gpu import figures


def test_equal_runs_give_one() -> None:
    assert figures.ratio_interval([2.0] * 30, [2.0] * 30) == (1.0, 1.0, 1.0)


def test_twice_as_fast_is_two() -> None:
    median, low, high = figures.ratio_interval([1.0] * 30, [2.0] * 30)
    assert (median, low, high) == (2.0, 2.0, 2.0)


def test_interval_of_thirty_pairs_has_the_sign_tests_ranks() -> None:
    # With n = 30 the 95 % interval reaches from the 10th to the 21st of the sorted values.
    ratios = [float(i) for i in range(1, 31)]
    median, low, high = figures.ratio_interval([1.0] * 30, ratios)
    assert (median, low, high) == (15.5, 10.0, 21.0)


def test_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    random.seed(3)
    hits = 0
    for _ in range(400):
        theirs = [random.lognormvariate(0.0, 0.5) for _ in range(31)]
        _, low, high = figures.ratio_interval([1.0] * 31, theirs)
        hits += low <= 1.0 <= high
    assert 370 <= hits <= 400


def test_unpaired_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 1 runs"):
        figures.ratio_interval([1.0, 2.0], [1.0])
