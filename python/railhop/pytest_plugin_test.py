"""The pytest plugin, through pytester: suites as users write them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from railhop.testing.surroundings import apart

pytest_plugins = ["pytester"]

# The plugin as an installed wheel's entry point would load it.
_ARGS = ("-p", "railhop.pytest_plugin", "-p", "no:cacheprovider", "-rs")

_NODES = """
    import pytest

    @pytest.mark.rdma_nodes(2)
    def test_two(rdma_nodes):
        names = [node.run("echo here is $WHO", env={"WHO": node.name}).stdout
                 for node in rdma_nodes]
        assert names == ["here is a\\n", "here is b\\n"]
        assert rdma_nodes[0].run(["false"], check=False).returncode == 1
        started = rdma_nodes[1].start(["echo", "it's $HOME"])
        assert started.communicate()[0] == "it's $HOME\\n"
"""


@pytest.fixture(autouse=True)
def _surroundings() -> Iterator[None]:
    with apart():
        yield


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """In a process of its own: this one has its own plugins."""
    return pytester.runpytest_subprocess(*_ARGS, *args)


def test_nodes_are_reached_through_a_shell(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_NODES)
    result = run(pytester, "--rdma-nodes", "a,b", "--rdma-shell", "sh -c {command}")
    result.assert_outcomes(passed=1)


def test_too_few_nodes_skip_or_fail(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_NODES)
    result = run(pytester, "--rdma-nodes", "a")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*needs 2 node(s) with RDMA NICs, there are 1; give them with*"])
    result = run(pytester, "--rdma-required")
    result.assert_outcomes(errors=1)


def test_a_bad_shell_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_NODES)
    result = run(pytester, "--rdma-nodes", "a,b", "--rdma-shell", "ssh {node}")
    assert "--rdma-shell 'ssh {node}' has no {command} in it" in result.stdout.str()


def test_a_conftest_may_bring_nodes_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        from railhop.pytest_plugin import Node

        def pytest_railhop_nodes(config):
            return [Node(name, "sh -c {command}") for name in "ab"]
    """)
    pytester.makepyfile(_NODES)
    run(pytester).assert_outcomes(passed=1)


def test_markers_are_known_and_strict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.railhop_topology("laptop-1nic")
        @pytest.mark.rdma_nodes(0)
        def test_marked(rdma_nodes):
            assert rdma_nodes == []
    """)
    run(pytester, "--strict-markers").assert_outcomes(passed=1)


def test_a_fabric_of_the_marked_topology(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        def hosts(fabric):
            return fabric.snapshot()["hosts"]

        def test_default(railhop_fabric):
            assert hosts(railhop_fabric) == ["alpha", "beta"]

        @pytest.mark.railhop_topology("laptop-1nic")
        def test_marked(railhop_fabric):
            assert len(hosts(railhop_fabric)) == 1
            railhop_fabric.fault(railhop_fabric.snapshot()["devices"][0]["name"] + " down")
    """)
    run(pytester).assert_outcomes(passed=2)


def test_a_wrong_topology_is_an_error_of_railhop(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.railhop_topology("nosuch")
        def test_it(railhop_fabric):
            pass
    """)
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*railhop.errors.InvalidError: *nosuch*"])


def test_a_job_survives_a_lost_nic_and_is_ended(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os

        def test_lost(railhop_job):
            job = railhop_job(env={"RAILHOP_HOLD_DOWN": "300ms"})
            job.fault("alpha/mlx5_0 down")
            job.wait_bytes(port="beta/mlx5_1")
            outcome = job.finish()
            assert outcome.survived and outcome.wrong_bytes == 0 and outcome.messages > 0

        def test_left_running(railhop_job):
            global pid
            pid = railhop_job().workload._group.process.pid

        def test_ended():
            try:
                os.killpg(pid, 0)
            except ProcessLookupError:
                return
            raise AssertionError("it still runs")
    """)
    run(pytester).assert_outcomes(passed=3)


def test_a_job_that_dies_is_a_sentence(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from railhop.drills.errors import DrillError

        def test_dies(railhop_job):
            with pytest.raises(DrillError, match="no data set"):
                railhop_job(["sh", "-c", "echo no data set; exit 3"])
    """)
    run(pytester).assert_outcomes(passed=1)
