"""railhop.drill with made-up processes: what is taken out is given back, whatever happens."""

from __future__ import annotations

import types
from typing import Any

import pytest

import railhop
from railhop.forced import drill


class FakeApi:
    """Lanes leave after a few looks."""

    def __init__(self, *, refuses: bool = False, looks: int = 2) -> None:
        self.said: list[tuple[str, ...]] = []
        self.refuses, self.looks = refuses, looks
        self.held: set[str] = set()

    def force_failover(self, target: str, mode: str = "drain") -> str:
        if self.refuses:
            raise railhop.RefusedError(f"{target} is the last path")
        self.said.append(("failover", target, mode))
        return f"left {target}"

    def health(self) -> Any:
        self.looks -= 1
        lanes = 4 if self.looks >= 0 else 0
        ports = [
            types.SimpleNamespace(name="mlx5_0:1", lanes=lanes),
            types.SimpleNamespace(name="mlx5_0:2", lanes=0),
            types.SimpleNamespace(name="mlx5_1:1", lanes=4),
        ]
        for one in ports:
            one.held_by_command = one.name in self.held
        return types.SimpleNamespace(ports=ports, connections=[])

    def release(self, target: str) -> None:
        self.said.append(("release", target))

    def fail_back(self, target: str) -> None:
        self.said.append(("failback", target))


BACK = [("release", "mlx5_0"), ("failback", "mlx5_0")]


def test_a_block_takes_out_and_gives_back() -> None:
    api = FakeApi()
    with drill(device="mlx5_0", mode="now", process=api) as held:
        assert held.outcomes == ["left mlx5_0"]
        assert api.said == [("failover", "mlx5_0", "now")]
        assert api.looks < 0, "it has waited until the lanes were gone"
    assert api.said[1:] == BACK


def test_a_function_is_decorated_and_may_be_called_twice() -> None:
    api = FakeApi()

    @drill(device="mlx5_0", process=api)
    def step(number: int) -> int:
        assert api.said[-1] == ("failover", "mlx5_0", "drain")
        return number + 1

    assert step(1) == 2
    assert step(2) == 3
    assert api.said == 2 * [("failover", "mlx5_0", "drain"), *BACK]


def test_an_error_inside_comes_out_and_the_port_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()

    def fail(_target: str) -> None:
        raise railhop.InternalError("no")

    monkeypatch.setattr(api, "fail_back", fail)
    with pytest.raises(ZeroDivisionError), drill(device="mlx5_0", process=api):
        raise ZeroDivisionError
    assert ("release", "mlx5_0") in api.said
    with pytest.raises(railhop.InternalError), drill(device="mlx5_0", process=api):
        pass


def test_a_refusal_undoes_the_processes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    apis = [FakeApi(), FakeApi(refuses=True)]
    found = [types.SimpleNamespace(attach=lambda api=api: api) for api in apis]
    monkeypatch.setattr(railhop, "processes", lambda job: found, raising=False)
    with pytest.raises(railhop.RefusedError), drill(device="mlx5_0", job="a"):
        pytest.fail("never reached")
    assert apis[0].said == [("failover", "mlx5_0", "drain"), *BACK]
    assert apis[1].said == []
    monkeypatch.setattr(railhop, "processes", lambda job: [], raising=False)
    with pytest.raises(railhop.NotFoundError, match="no process of job 'a'"):
        drill(device="mlx5_0", job="a").__enter__()


def test_what_an_operator_held_before_stays_held() -> None:
    api = FakeApi()
    api.held = {"mlx5_0:1"}
    with drill(device="mlx5_0", process=api):
        pass
    assert api.said[1:] == [("release", "mlx5_0:2"), ("failback", "mlx5_0:2")]
    api.held = {"mlx5_0:1", "mlx5_0:2", "mlx5_1:1"}
    with drill(device="mlx5_0", process=api):
        del api.said[:]
    assert api.said == []


def test_a_call_without_an_answer_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()

    def late(target: str, mode: str = "drain") -> None:
        api.said.append(("failover", target, mode))
        raise railhop.NoAnswerError("no answer")

    monkeypatch.setattr(api, "force_failover", late)
    with pytest.raises(railhop.NoAnswerError):
        drill(device="mlx5_0", process=api).__enter__()
    assert api.said[1:] == BACK


def test_traffic_that_stays_is_an_error_after_a_while() -> None:
    api = FakeApi(looks=10**9)
    with pytest.raises(railhop.NoAnswerError, match="still carries traffic"):
        drill(device="mlx5_0", process=api, wait_s=0.05).__enter__()
    assert api.said[1:] == BACK
    with drill(device="mlx5_0", process=api, wait_s=0):
        pass


def test_a_connection_is_failed_back_but_never_released() -> None:
    api = FakeApi()
    with drill(target="connection:1f", process=api):
        pass
    assert api.said == [("failover", "connection:1f", "drain"), ("failback", "connection:1f")]


def test_a_process_that_has_ended_inside_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()

    def gone(*_words: str) -> None:
        raise railhop.NotFoundError("there is no such socket")

    with drill(device="mlx5_0", process=api):
        monkeypatch.setattr(api, "release", gone)
        monkeypatch.setattr(api, "health", gone)


def test_bad_words_are_named() -> None:
    with pytest.raises(railhop.InvalidError, match="say what to take out"):
        drill()
    with pytest.raises(railhop.InvalidError, match="exclude each other"):
        drill("mlx5_0", pid=1, job="a")
    with pytest.raises(railhop.InvalidError, match="no mode 'gently'"):
        drill("mlx5_0", mode="gently")
