"""The wheel in an empty environment of the Python that it was made for: no compiler, no network.

Installs it as a user does, tries what is inside, puts a newer one over an older one, takes it out
and looks for what was left behind.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import zipfile
from collections.abc import Iterator

import pytest

from tools.wheel import make_wheel

_PYTHON = os.environ["RAILHOP_TEST_PYTHON"]
_WHEEL = next(pathlib.Path(os.environ["RAILHOP_TEST_WHEEL"]).absolute().glob("*.whl"))
_HOUSE = pathlib.Path(os.environ["RAILHOP_TEST_WHEELHOUSE"].split()[0]).absolute().parent
_VERSION = _WHEEL.name.split("-")[1]


class Environment:
    """A virtual environment with pip and nothing else."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.home = folder.with_name("home")
        self.home.mkdir()
        # Nothing but the environment's own programs can be found.
        self.variables = {
            "PATH": str(folder / "bin"), "HOME": str(self.home), "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1", "LC_ALL": "C.UTF-8",
            "PIP_FIND_LINKS": str(_HOUSE), "PIP_NO_CACHE_DIR": "1", "TMPDIR": str(self.home),
        }  # fmt: skip
        self._run([_PYTHON, "-m", "venv", str(folder)])

    def _run(self, command: list[str], **more: str) -> str:
        done = subprocess.run(
            command, env={**self.variables, **more}, cwd="/", check=False, text=True,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def pip(self, *words: str) -> str:
        return self._run([str(self.folder / "bin/python"), "-m", "pip", "-q", *words])

    def python(self, code: str, **more: str) -> str:
        """What the program prints."""
        return self._run([str(self.folder / "bin/python"), "-c", code], **more).strip()

    def complaint(self, *words: str) -> str:
        """What the program `railhop` says to bad input: one line, with status 2."""
        done = subprocess.run(
            [str(self.folder / "bin/railhop"), *words], env=self.variables, cwd="/", check=False,
            text=True, stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert done.stdout == ""
        assert done.stderr.startswith("railhop: "), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def program(self, *words: str) -> str:
        """What a program of the environment prints."""
        return self._run([str(self.folder / "bin" / words[0]), *words[1:]]).strip()

    def files(self) -> set[str]:
        """All that is there, without the caches of compiled Python."""
        return {
            str(path.relative_to(self.folder.parent))
            for path in self.folder.parent.rglob("*")
            if "__pycache__" not in path.parts and not path.is_dir()
        }


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """With the wheel in it."""
    made = Environment(tmp_path_factory.mktemp("installed") / "env")
    made.pip("install", str(_WHEEL))
    yield made


def test_it_imports_and_finds_its_files(environment: Environment) -> None:
    said = json.loads(
        environment.python(
            "import json, sys, railhop, railhop.testing.fabric\n"
            "paths = [railhop.paths.plugin_path(), railhop.paths.netperf_path(),\n"
            "         railhop.paths.fabric_program(), railhop.paths.topologies_dir()]\n"
            "assert railhop.PortState('down') is railhop.PortState.DOWN\n"
            "try: railhop.health()\n"
            "except railhop.NotLoadedError as error: problem = str(error)\n"
            "print(json.dumps({'version': railhop.__version__, 'paths': [str(p) for p in paths],\n"
            "    'there': all(p.exists() for p in paths), 'problem': problem,\n"
            "    'modules': sorted(sys.modules), 'exports': railhop.environment()}))"
        )
    )
    assert said["version"] == _VERSION
    assert said["there"]
    assert all(path.startswith(str(environment.folder)) for path in said["paths"])
    assert "NCCL_NET_PLUGIN" in said["problem"]
    assert said["exports"]["LD_LIBRARY_PATH"] == os.path.dirname(said["paths"][0])
    # Users' environments pin their own.
    assert not [name for name in said["modules"] if name.startswith("google")]


def test_what_it_depends_on_is_there(environment: Environment) -> None:
    environment.pip("check")
    environment.python("import click, rich")


def test_traffic_goes_over_the_fabric_that_comes_with_it(environment: Environment) -> None:
    code = (
        "import subprocess, railhop\n"
        "print(subprocess.run([railhop.paths.fabric_program(), 'run',\n"
        "    '--topology', railhop.paths.topologies_dir() / 'two-hosts-4nic.topology',\n"
        "    '--', railhop.paths.netperf_path(), '--plugin', railhop.paths.plugin_path(),\n"
        "    '--json', '--hosts', 'alpha,beta', '--size', '40001', '--count', '50',\n"
        "    '--metric', 'bandwidth', '--check', 'all'],\n"
        "    check=True, stdout=subprocess.PIPE, text=True).stdout)"
    )
    figures = json.loads(environment.python(code, NCCL_SOCKET_IFNAME="lo").splitlines()[-1])
    assert figures["messages"] >= 50
    assert figures["wrong_bytes"] == 0


def test_the_command_line_sets_a_job_up(environment: Environment) -> None:
    exports = environment.program("railhop", "env")
    assert "export NCCL_NET_PLUGIN=railhop" in exports
    assert str(environment.folder) in exports
    assert _VERSION in environment.program("railhop", "--version")


def test_every_command_explains_itself_and_bad_input_is_one_line(environment: Environment) -> None:
    """With the versions of click and rich that a user of this Python may have."""
    helped = environment.program("railhop", "--help")
    commands = helped.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    names = [line.split()[0] for line in commands if line[2] != " "]
    assert {"env", "run", "status", "drill", "netperf"} <= set(names)
    for name in names:
        assert "Examples:" in environment.program("railhop", name, "--help"), name
    assert "no command 'stauts'" in environment.complaint("stauts")
    assert "see 'railhop run --help'" in environment.complaint("run")
    assert "--interval" in environment.complaint("status", "--interval", "never")
    assert "NAME=VALUE" in environment.complaint("config", "--set", "RAILHOP_HOLD_DOWN")
    assert "no-such.json" in environment.complaint(
        "report", "/no-such.json", "-o", "/tmp/page.html"
    )
    assert "no process with Railhop" in environment.complaint("failover", "mlx5_0")


def test_a_job_can_be_watched_from_inside(environment: Environment) -> None:
    code = (
        "import railhop\n"
        "from railhop import _transport\n"
        "plugin = _transport.Plugin(str(railhop.paths.plugin_path()))\n"
        "health = railhop.health()\n"
        "print(len(plugin.devices()), len(health.ports), health.process.running)"
    )
    said = environment.program(
        "railhop", "run", "--fabric", "two-hosts-4nic", "--", "python", "-c", code
    )
    assert said.splitlines()[-1] == "4 4 True"


def _older(folder: pathlib.Path) -> pathlib.Path:
    """The same wheel as version 0.0.1, with a module that the newer one has not."""
    info = f"railhop-{_VERSION}.dist-info"
    contents = {}
    with zipfile.ZipFile(_WHEEL) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            if name == f"{info}/METADATA":
                data = data.replace(f"Version: {_VERSION}\n".encode(), b"Version: 0.0.1\n")
            if not name.endswith("/RECORD"):
                contents[name.replace(info, "railhop-0.0.1.dist-info")] = data
    contents["railhop/gone.py"] = b""
    path = folder / _WHEEL.name.replace(f"-{_VERSION}-", "-0.0.1-")
    make_wheel.write(path, contents, "railhop-0.0.1.dist-info")
    return path


def test_upgrading_and_removing_leave_nothing_behind(tmp_path: pathlib.Path) -> None:
    (tmp_path / "all").mkdir()
    environment = Environment(tmp_path / "all/env")
    before = environment.files()
    environment.pip("install", "click", "rich")
    with_needed = environment.files()
    environment.pip("install", str(_older(tmp_path)))
    environment.python("import railhop.gone")
    environment.pip("install", "--upgrade", str(_WHEEL))
    upgraded = environment.files()
    assert not [name for name in upgraded if "gone.py" in name or "0.0.1" in name]
    environment.python("import railhop; railhop.Health")
    environment.pip("uninstall", "-y", "railhop")
    assert environment.files() == with_needed
    assert not list(environment.folder.rglob("*railhop*"))
    assert before < with_needed
