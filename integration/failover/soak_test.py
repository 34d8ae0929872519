"""One minute of each kind of tools/bench soak."""

from __future__ import annotations

import pytest

from integration.failover.soak import soak

_SECONDS = 60


@pytest.mark.parametrize("kind", ["faults", "quiet"])
def test_a_minute_of_it(kind: str) -> None:
    soaked = soak(kind, _SECONDS)
    problems = soaked.problems()
    assert not problems, f"{problems}\n{soaked.ended.show()}"
    assert soaked.ended.last["messages"] > 1000
    if kind == "faults":
        assert soaked.faults >= _SECONDS / 2
        # Faults that nobody noticed would prove nothing.
        assert len(soaked.ended.recovered()) >= 5
