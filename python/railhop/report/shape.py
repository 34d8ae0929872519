"""Whether what was read from a file is what a dataclass was written as."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

_NAMES = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text",
    list: "a list", dict: "an object",
}  # fmt: skip


def _fits(value: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def mistake(value: Any, hint: Any, where: str = "") -> str:
    """The first thing that is not as `hint`, a type or dataclass, has it; "" if all is.

    What a dataclass has as default may be missing: it is put in, as older versions did not have it.
    """
    if hint is Any:
        return ""
    parts = typing.get_args(hint)
    if type(None) in parts:
        inner = next(one for one in parts if one is not type(None))
        told = "" if value is None else mistake(value, inner, where)
        return told and f"{told} or null"
    if dataclasses.is_dataclass(hint):
        return _fields(value, hint, where)
    kind = typing.get_origin(hint) or hint
    if not _fits(value, kind):
        return f"'{where}' is not {_NAMES[kind]}"
    inside: list[tuple[str, Any]] = []
    if kind is list:
        inside = [(f"{where}[{index}]", one) for index, one in enumerate(value)]
    elif kind is dict:
        inside = [(f"{where}.{name}", one) for name, one in value.items()]
    if not parts:
        return ""
    return next(filter(None, (mistake(one, parts[-1], name) for name, one in inside)), "")


def _fields(value: Any, hint: Any, where: str) -> str:
    if not isinstance(value, dict):
        return f"'{where}' is not an object"
    hints = typing.get_type_hints(hint)
    for field in dataclasses.fields(hint):
        name = f"{where}.{field.name}" if where else field.name
        if field.name not in value:
            if field.default is not dataclasses.MISSING:
                value[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                made = field.default_factory()
                plain = dataclasses.is_dataclass(made) and not isinstance(made, type)
                value[field.name] = dataclasses.asdict(made) if plain else made
            else:
                return f"'{name}' is missing"
        told = mistake(value[field.name], hints[field.name], name)
        if told:
            return told
    return ""
