"""The pytest plugin's forced failovers, on jobs that run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from railhop.testing.surroundings import apart

pytest_plugins = ["pytester"]

_ARGS = ("-p", "railhop.pytest_plugin", "-p", "no:cacheprovider", "-rs")


@pytest.fixture(autouse=True)
def _surroundings() -> Iterator[None]:
    with apart():
        yield


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """In a process of its own: this one has its own plugins."""
    return pytester.runpytest_subprocess(*_ARGS, *args)


def test_a_forced_failover_is_taken_back(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        import railhop

        @pytest.fixture
        def job(railhop_job):
            return railhop_job(env={"RAILHOP_HOLD_DOWN": "100ms"})

        @pytest.fixture
        def states(job):
            # Asked for before force_failover, so it sees what that leaves behind.
            (process,) = job.processes("alpha")
            yield lambda: {one.name: str(one.state) for one in process.health().ports}
            assert not any(one.held_by_command for one in process.health().ports)

        @pytest.mark.parametrize("mode", ["drain", "now"])
        def test_forced(job, states, force_failover, mode):
            (outcome,) = force_failover("mlx5_0", mode, job=job)
            assert outcome.ports == ("mlx5_0:1",)
            assert states()["mlx5_0:1"] in ("held", "draining")
            job.wait_bytes(port="beta/mlx5_1")

        def test_the_decorator_and_the_block(job, states):
            (process,) = job.processes("alpha")

            @railhop.drill(device="mlx5_1", process=process)
            def out():
                assert states()["mlx5_1:1"] in ("held", "draining")
                with railhop.drill("mlx5_2", pid=process.info().pid):
                    job.wait_bytes(port="beta/mlx5_3")

            out()
            job.wait_bytes(port="beta/mlx5_1")
    """)
    run(pytester).assert_outcomes(passed=3)
