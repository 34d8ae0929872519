"""Tests of bench.py's registrations and figures."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tools.lib import bench

FIGURE: dict[str, Any] = {
    "bench": "fabric",
    "metric": "write_bandwidth_1MiB",
    "value": 10.0,
    "unit": "GB/s",
    "baseline": "process_vm_writev",
    "ratio": 0.83,
    "runs": 5,
}


def test_options_behind_the_names_are_the_programs() -> None:
    assert bench.split_words(["sim", "--seeds", "5"]) == (["sim"], ["--seeds", "5"])
    assert bench.split_words(["a", "b"]) == (["a", "b"], [])
    assert bench.split_words(["--list"]) == (["--list"], [])
    assert bench.split_words(["--list", "-x"]) == (["--list", "-x"], [])


def test_whole_figure_is_good() -> None:
    assert bench.problem_of(FIGURE, "fabric") == ""


@pytest.mark.parametrize("key", bench.FIGURE_KEYS)
def test_each_missing_key_is_named(key: str) -> None:
    figure = {k: v for k, v in FIGURE.items() if k != key}
    assert bench.problem_of(figure, "fabric") == f"keys missing: {key}"


def test_foreign_figure_is_refused() -> None:
    assert bench.problem_of(FIGURE, "other") == "bench is 'fabric', not 'other'"
    assert bench.problem_of([1], "fabric") == "no JSON object"


def test_registration_is_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('doc = "d"\ntarget = "//a:b"\nargs = ["-q"]\nfabric = true\n')
    assert bench.load(path) == bench.Benchmark("x", "d", "//a:b", ("-q",), fabric=True)


@pytest.mark.parametrize(
    ("text", "word"),
    [('doc = "d"\n', "'target' is missing"), ('target = "//a:b"\ndoc = "d"\nn = 1\n', "key 'n'")],
)
def test_bad_registration_is_named(tmp_path: pathlib.Path, text: str, word: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=word) as error:
        bench.load(path)
    assert "x.toml" in str(error.value)


def test_registrations_of_the_tree_are_good() -> None:
    paths = list((pathlib.Path(__file__).parents[1] / "bench.d").glob("*.toml"))
    for path in paths:
        bench.load(path)
