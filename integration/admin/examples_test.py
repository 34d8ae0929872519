"""The example of every public docstring, run in a process that NCCL's place is taken in.

The job runs over the software fabric and keeps sending; every byte that arrives is compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import railhop
from railhop.testing.fabric import Fabric
from railhop.testing.surroundings import apart

from tools.dev import python_reference

# Short, so that no example waits long for a port to be taken back.
_OPTIONS = {
    "RAILHOP_PROBE_INTERVAL": "100ms",
    "RAILHOP_HOLD_DOWN": "200ms",
    "RAILHOP_HOLD_DOWN_MAX": "400ms",
    "NCCL_SOCKET_IFNAME": "lo",
    "HOME": "/nonexistent",
}
_NAMES = [*python_reference.documented(), "railhop", "railhop.paths", "python.md"]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What alpha printed."""
    folder = tmp_path_factory.mktemp("job")
    topology = str(railhop.paths.topologies_dir() / "two-hosts-4nic.topology")
    with apart() as admin, Fabric(topology) as fabric:

        def start(host: str) -> subprocess.Popen[str]:
            variables = {
                **os.environ, **_OPTIONS, **railhop.environment(fabric, host=host),
                "RAILHOP_ADMIN_DIR": admin, "RAILHOP_JOB_ID": f"examples-{os.getpid()}",
                "PYTHONPATH": os.pathsep.join(sys.path),
            }  # fmt: skip
            return subprocess.Popen(
                [sys.executable, "-m", "integration.admin.examples_job", host, str(folder)],
                env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip

        beta = start("beta")
        try:
            alpha = start("alpha")
            try:
                printed, _ = alpha.communicate(timeout=600)
                assert alpha.returncode == 0
                assert beta.wait(60) == 0, "bytes were wrong"
            finally:
                alpha.kill()
                alpha.wait()
        finally:
            beta.kill()
            beta.communicate()
        assert not os.listdir(admin), "a socket was left"
    yield json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize("name", _NAMES)
def test_the_example_does_what_it_says(name: str, said: dict[str, Any]) -> None:
    result = said["results"][name]
    assert not result["problem"], result["problem"]
    # The paths' own text lists files; each call there has its example.
    assert result["examples"] > 0 or name == "railhop.paths", f"{name} has no example"


def test_messages_went_on_all_the_while(said: dict[str, Any]) -> None:
    assert said["sent"] > 100
