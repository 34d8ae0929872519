"""The pytest plugin of Railhop: fixtures for failover tests, over software NICs or real nodes.

    def test_a_drained_nic_is_survived(railhop_job, force_failover):
        with railhop_job() as job:                     # streams over two software hosts
            force_failover("mlx5_0", job=job)
            job.wait_bytes(port="beta/mlx5_1")
            assert job.finish().wrong_bytes == 0

    @pytest.mark.rdma_nodes(2)
    def test_on_nodes(rdma_nodes):                     # pytest --rdma-nodes node-16,node-17
        assert "mlx5_0" in rdma_nodes[0].run("ibv_devices").stdout

Nothing is imported for those who use no fixture of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

import pytest

if TYPE_CHECKING:
    from railhop.drills.job import Job
    from railhop.drills.node_job import NodeJob
    from railhop.testing.fabric import Fabric

_TOPOLOGY = "two-hosts-4nic"
_SHELL = "ssh -o BatchMode=yes {node} -- {command}"
_VARIABLE = "RAILHOP_NODES"

Command = Union[str, Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Node:
    """A machine with RDMA NICs, reached through a command.

    shell: with {node} and {command}, the words for a shell there as one quoted word.
    """

    name: str
    shell: str = _SHELL

    def words(self, command: Command, env: Optional[Mapping[str, str]] = None) -> list[str]:
        """What is run here so that `command` runs there; a string is for the node's shell."""
        text = command if isinstance(command, str) else shlex.join(command)
        exports = "".join(f"export {k}={shlex.quote(v)}; " for k, v in (env or {}).items())
        parts = shlex.split(self.shell)
        return [
            one.replace("{node}", self.name).replace("{command}", exports + text) for one in parts
        ]

    def run(
        self,
        command: Command,
        *,
        env: Optional[Mapping[str, str]] = None,
        timeout_s: float = 300.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command there to its end. Raises CalledProcessError if it fails and `check`."""
        return subprocess.run(
            self.words(command, env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=check,
        )

    def start(
        self, command: Command, *, env: Optional[Mapping[str, str]] = None
    ) -> subprocess.Popen[str]:
        """Starts one there; output, both streams, at `stdout`."""
        return subprocess.Popen(
            self.words(command, env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


class Hooks:
    """What a conftest.py may define."""

    @pytest.hookspec(firstresult=True)
    def pytest_railhop_nodes(self, config: pytest.Config) -> Optional[Sequence[Any]]:
        """The nodes, if not those of --rdma-nodes: objects with `name`, `run` and `start`."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """For pytest."""
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    """For pytest."""
    group = parser.getgroup("railhop")
    group.addoption(
        "--rdma-nodes",
        default=os.environ.get(_VARIABLE, ""),
        metavar="NAME,...",
        help=f"machines with RDMA NICs for tests marked rdma_nodes (${_VARIABLE})",
    )
    group.addoption(
        "--rdma-shell",
        default=_SHELL,
        metavar="WORDS",
        help=f"how a command gets there ({_SHELL})",
    )
    group.addoption(
        "--rdma-railhop",
        default="railhop",
        metavar="WORDS",
        help="how a node's shell calls railhop (railhop)",
    )
    group.addoption(
        "--rdma-required",
        action="store_true",
        help="too few nodes are a failure, not a skip",
    )
    group.addoption(
        "--railhop-topology",
        default=_TOPOLOGY,
        metavar="TOPOLOGY",
        help=f"of the software fabric, where a test does not say ({_TOPOLOGY})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """For pytest."""
    config.addinivalue_line("markers", "rdma_nodes(count): needs so many machines with RDMA NICs")
    config.addinivalue_line("markers", "railhop_topology(name): of the test's software fabric")


def _nodes(config: pytest.Config) -> list[Any]:
    found = config.hook.pytest_railhop_nodes(config=config)
    if found is not None:
        return list(found)
    names = [one.strip() for one in str(config.getoption("--rdma-nodes")).split(",")]
    shell = str(config.getoption("--rdma-shell"))
    if "{command}" not in shell:
        raise pytest.UsageError(f"--rdma-shell '{shell}' has no {{command}} in it")
    return [Node(name, shell) for name in names if name]


@pytest.fixture(scope="session")
def _all_rdma_nodes(pytestconfig: pytest.Config) -> list[Any]:
    return _nodes(pytestconfig)


@pytest.fixture
def rdma_nodes(request: pytest.FixtureRequest, _all_rdma_nodes: list[Any]) -> list[Any]:
    """As many nodes as the marker asks for (1 without it).

    With too few the test is skipped, or fails under --rdma-required.
    """
    mark = request.node.get_closest_marker("rdma_nodes")
    count = int(mark.args[0]) if mark and mark.args else 1
    if len(_all_rdma_nodes) < count:
        text = (
            f"needs {count} node(s) with RDMA NICs, there are {len(_all_rdma_nodes)}; "
            "give them with --rdma-nodes NAME,..."
        )
        if request.config.getoption("--rdma-required"):
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    return _all_rdma_nodes[:count]


def _topology(request: pytest.FixtureRequest) -> str:
    mark = request.node.get_closest_marker("railhop_topology")
    return str(mark.args[0] if mark else request.config.getoption("--railhop-topology"))


@pytest.fixture
def railhop_fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """A fresh software fabric: `fault`, `popen`, `snapshot`, `environment`.

    Of the topology that the marker railhop_topology names, else of --railhop-topology.
    """
    from railhop import paths  # noqa: PLC0415
    from railhop.errors import InvalidError  # noqa: PLC0415
    from railhop.testing.fabric import Fabric  # noqa: PLC0415

    try:
        made = Fabric(_topology(request), library_dir=paths.fabric_dir())
    except (RuntimeError, ValueError) as error:
        raise InvalidError(" ".join(str(error).split())) from None
    with made as fabric:
        yield fabric


@pytest.fixture
def railhop_job(
    request: pytest.FixtureRequest, railhop_fabric: Fabric
) -> Iterator[Callable[..., Job]]:
    """Starts a job over `railhop_fabric`; arguments: command=None, *, each_host=False, env=None.

    Gives a railhop.drills.job.Job whose traffic has begun. Without a command streams run between
    the first two hosts and every byte is compared. What still runs at the test's end is ended.
    """
    from railhop.drills import Command as Workload  # noqa: PLC0415
    from railhop.drills import Streams  # noqa: PLC0415
    from railhop.drills.job import Job  # noqa: PLC0415
    from railhop.drills.world import World  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        world = World(_topology(request), fabric=railhop_fabric)
        stack.callback(world.discard)

        def start(
            command: Optional[Sequence[str]] = None,
            *,
            each_host: bool = False,
            env: Optional[dict[str, str]] = None,
        ) -> Job:
            if command is None:
                return stack.enter_context(Job(world, Streams(environment=env)))
            workload = Workload(command, each_host=each_host, echo_fd=2, extra=env)
            return stack.enter_context(Job(world, workload))

        yield start


def _on_node(
    stack: contextlib.ExitStack, job: NodeJob, target: str, mode: str, rank: int
) -> dict[str, Any]:
    """Of a rank of a job between nodes."""
    (outcome,) = job.railhop(rank, "failover", target, "--mode", mode)

    def give_back() -> None:
        if job.health(rank) is not None:
            job.railhop(rank, "release", target)
            job.railhop(rank, "failback", target)

    stack.callback(give_back)
    return dict(outcome)


@pytest.fixture
def railhop_node_job(
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., NodeJob]]:
    """Starts a job between nodes; arguments: nodes, *, command=None, env=None.

    Gives a railhop.drills.node_job.NodeJob that runs. Without a command it is an all-reduce of one
    rank on each node, every element compared. What still runs at the test's end is ended.
    """
    from railhop.drills.node_job import NodeJob  # noqa: PLC0415

    program = str(request.config.getoption("--rdma-railhop"))
    with contextlib.ExitStack() as stack:

        def start(nodes: Sequence[Any], **words: Any) -> NodeJob:
            return stack.enter_context(NodeJob(nodes, program=program, **words))

        yield start


@pytest.fixture
def force_failover() -> Iterator[Callable[..., list[Any]]]:
    """Moves traffic away; arguments: target, mode="drain", *, job=None, host="", pid=None.

    In the processes of a job (of its first host unless said; of a job between nodes `host` is the
    rank), in another process, or in this one.
    Gives the outcomes. At the test's end what was taken out is given back.
    """
    from railhop.drills.node_job import NodeJob  # noqa: PLC0415
    from railhop.forced import drill  # noqa: PLC0415

    with contextlib.ExitStack() as stack:

        def force(
            target: str,
            mode: str = "drain",
            *,
            job: Job | NodeJob | None = None,
            host: str = "",
            pid: Optional[int] = None,
        ) -> list[Any]:
            if job is None:
                return stack.enter_context(drill(target=target, mode=mode, pid=pid)).outcomes
            if isinstance(job, NodeJob):
                return [_on_node(stack, job, target, mode, int(host or 0))]
            found = []
            for process in job.processes(host or job.world.hosts[0]):
                held = stack.enter_context(drill(target=target, mode=mode, process=process))
                found += held.outcomes
            return found

        yield force
