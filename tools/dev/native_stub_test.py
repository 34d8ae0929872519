"""The stub in the tree is that of the module, and what the generator makes of pybind11's words."""

from __future__ import annotations

import importlib
import pathlib

import railhop

from tools.dev import native_stub


def test_the_stub_is_up_to_date() -> None:
    made = native_stub.formatted(native_stub.stub(importlib.import_module("railhop._native")))
    kept = pathlib.Path("python/railhop/_native.pyi").read_text(encoding="utf-8")
    assert kept == made, "run: bazel run //tools/dev:native_stub > python/railhop/_native.pyi"


def test_the_package_has_every_name_of_the_module() -> None:
    module = importlib.import_module("railhop._native")
    names = {name for name in vars(module) if not name.startswith("_")}
    missing = names - set(railhop.__all__)
    assert not missing
    for name in railhop.__all__:
        assert getattr(railhop, name) is not None
    assert set(railhop.__all__) <= set(dir(railhop))


def test_numbers_become_int_and_float() -> None:
    line = "f(self: m.A, a: typing.SupportsInt | typing.SupportsIndex = 0) -> m.B"
    assert native_stub.signature("f", line, "m") == "def f(self, a: int = 0) -> B"
    line = "f(*, t: typing.SupportsFloat | typing.SupportsIndex | None = None) -> list[m.B]"
    assert native_stub.signature("f", line, "m") == "def f(*, t: float | None = None) -> list[B]"


def test_a_property_loses_its_self() -> None:
    assert native_stub.signature("p", "p(arg0: object) -> m.A", "m") == "def p(self) -> A"
