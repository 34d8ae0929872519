"""Medians of paired runs with an interval that assumes nothing of their distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def ratio_interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Median of theirs/ours over pairs (above 1: we are faster) with its 95 % interval.

    The interval is that of the sign test: the ranks that a binomial of n and 1/2 leaves outside
    with at most 2.5 % at each end.
    """
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"{len(ours)} and {len(theirs)} runs are no pairs")
    ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
    n = len(ratios)
    tail, rank = 0.0, 0
    while rank < n // 2:
        tail += math.comb(n, rank) / 2**n
        if tail > 0.025:
            break
        rank += 1
    low = max(rank - 1, 0)
    return statistics.median(ratios), ratios[low], ratios[n - 1 - low]
