"""The admin API without a job: what it says where there is no plugin, and of bad input."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

import railhop


def _one_line(error: railhop.Error) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "call",
    [
        railhop.health, railhop.stats, railhop.events, railhop.config, railhop.fail_back,
        lambda: railhop.hold("mlx5_0"), lambda: railhop.release("mlx5_0"),
        lambda: railhop.force_failover("mlx5_0"), lambda: railhop.set_option("A", "B"),
        lambda: next(railhop.follow()),
    ],
)  # fmt: skip
def test_without_the_plugin_every_call_says_how_to_get_it(call: Callable[[], object]) -> None:
    with pytest.raises(railhop.NotLoadedError, match="NCCL_NET_PLUGIN") as raised:
        call()
    _one_line(raised.value)


def test_a_pid_without_the_plugin_is_named() -> None:
    with pytest.raises(railhop.NotFoundError, match=str(os.getpid())) as raised:
        railhop.attach(pid=os.getpid())
    assert "NCCL has not loaded" in _one_line(raised.value)


@pytest.mark.parametrize("pid", [0, -1, 2**31, 2**40])
def test_a_pid_that_there_is_not_is_named(pid: int) -> None:
    with pytest.raises(railhop.NotFoundError, match=str(pid)):
        railhop.attach(pid=pid)


def test_an_unknown_job_is_named() -> None:
    with pytest.raises(railhop.NotFoundError, match="job no-such-job"):
        railhop.attach(job="no-such-job")
    assert railhop.processes(job="no-such-job") == []


def test_attach_wants_one_name() -> None:
    with pytest.raises(railhop.InvalidError, match=r"pid=.*job=.*path="):
        railhop.attach()
    with pytest.raises(ValueError, match=r"pid=.*job=.*path="):
        railhop.attach(pid=1, job="a")


def test_a_path_without_a_socket_is_named() -> None:
    with pytest.raises(railhop.NotFoundError, match=r"/nonexistent/1\.sock"):
        railhop.attach(path="/nonexistent/1.sock")


def test_a_stale_socket_is_told_apart_and_listed_with_its_problem(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The path of a socket is short.
    folder = pathlib.Path(os.path.relpath(tmp_path))
    tmp_path.chmod(0o700)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    path = folder / f"{child.pid}.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    monkeypatch.setenv("RAILHOP_ADMIN_DIR", str(tmp_path))
    with pytest.raises(railhop.StaleSocketError, match=rf"{child.pid}\.sock") as raised:
        railhop.attach(path=str(tmp_path / path.name))
    _one_line(raised.value)
    (found,) = [one for one in railhop.processes() if one.pid == child.pid]
    assert found.info is None
    assert found.problem
    assert found.uid == os.getuid()
    assert found.path == str(tmp_path / path.name)


def test_a_folder_that_is_set_and_not_there_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAILHOP_ADMIN_DIR", str(tmp_path / "misspelt"))
    for call in (railhop.processes, lambda: railhop.attach(job="a")):
        with pytest.raises(railhop.NotFoundError, match=r"misspelt: .* does not exist") as raised:
            call()
        _one_line(raised.value)
    monkeypatch.setenv("RAILHOP_ADMIN_DIR", str(tmp_path))
    assert railhop.processes() == []


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_seconds_that_mean_nothing_are_refused(seconds: float) -> None:
    with pytest.raises(railhop.InvalidError, match="timeout_s="):
        railhop.attach(pid=1, timeout_s=seconds)
    with pytest.raises(railhop.InvalidError, match="timeout_s="):
        railhop.processes(timeout_s=seconds)


def test_words_are_texts() -> None:
    down: str = railhop.PortState.DOWN
    assert down == "down"
    assert str(railhop.PortState.DOWN) == f"{railhop.PortState.DOWN}" == "down"
    assert [word.value for word in railhop.FailoverMode] == ["unknown", "drain", "now"]
    with pytest.raises(ValueError, match="gone"):
        railhop.PortState("gone")


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        railhop.nothing  # type: ignore[attr-defined] # noqa: B018


def test_results_cannot_be_made_or_changed() -> None:
    with pytest.raises(TypeError):
        railhop.Health()
    with pytest.raises(AttributeError):
        railhop.Health.verdict.__set__(railhop.Health, 1)  # type: ignore[attr-defined]
