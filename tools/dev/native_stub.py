"""Prints python/railhop/_native.pyi: the types of the compiled module, as it says them itself.

pybind11 writes a call's types into the first line of its docstring; the rest of the docstring comes
along, for editors. Hard case: what pybind11 says differs a little from what users should write
(any number where an int is meant), and its enums are Python's own.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
import types

_HEAD = '''"""The compiled part of railhop. Made by //tools/dev:native_stub: do not edit."""

from collections.abc import Iterator
from typing import Any, ClassVar

from railhop.words import Word
'''

# What pybind11 says -> what it means.
_TYPES = (
    ("typing.SupportsInt | typing.SupportsIndex", "int"),
    ("typing.SupportsFloat | typing.SupportsIndex", "float"),
    ("collections.abc.Iterator", "Iterator"),
    ("dict[str, object]", "dict[str, Any]"),
)
_SELF = re.compile(r"\((self|arg0): [\w.]+(, )?")
# Python has them for every class, or they are pybind11's.
_PASSED_OVER = ("__module__", "__doc__", "__new__", "__init__", "_pybind11_conduit_v1_")


def signature(name: str, first_line: str, module: str) -> str:
    """`def` line, without its colon, of what pybind11 says of a call."""
    text = first_line.replace(f"{module}.", "")
    for said, meant in _TYPES:
        text = text.replace(said, meant)
    text = _SELF.sub(lambda found: "(self" + (", " if found[2] else ""), text, count=1)
    if name == "__eq__":
        text = "__eq__(self, other: object, /) -> bool"
    return f"def {text}"


def split(doc: str) -> tuple[str, str]:
    """The signature of a docstring, and what follows it."""
    first, _, rest = doc.partition("\n")
    return first, rest.strip()


def _docstring(text: str) -> str:
    return f'"""{text.strip()}\n"""' if "\n" in text.strip() else f'"""{text.strip()}"""'


def _call(name: str, doc: str, module: str) -> str:
    first, rest = split(doc)
    line = signature(name, first, module)
    if not rest:
        return f"{line}: ..."
    return f"{line}:\n{textwrap.indent(_docstring(rest), '    ')}"


def _member(name: str, value: object, module: str) -> str:
    if isinstance(value, property):
        first, _ = split(value.fget.__doc__ or "")
        doc = _docstring(value.__doc__ or "")
        line = signature(name, name + first.strip(), module)
        return f"@property\n{line}:\n{textwrap.indent(doc, '    ')}"
    if name == "__hash__" and value is None:
        return "__hash__: ClassVar[None]  # type: ignore[assignment]"
    return _call(name, getattr(value, "__doc__", "") or "", module)


def _class(one: type, module: str) -> str:
    body = [_docstring(one.__doc__ or "")]
    if issubclass(one, enum.Enum):
        head = f"class {one.__name__}(Word):"
        body += [f'{member.name} = "{member.value}"' for member in one]
        return f"{head}\n{textwrap.indent(chr(10).join(body), '    ')}"
    for name, value in vars(one).items():
        if name not in _PASSED_OVER:
            body.append(_member(name, value, module))
    return f"class {one.__name__}:\n{textwrap.indent(chr(10).join(body), '    ')}"


def stub(module: types.ModuleType) -> str:
    """The text of the .pyi file, not yet formatted."""
    parts = [_HEAD]
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if inspect.isclass(value):
            parts.append(_class(value, module.__name__))
        else:
            parts.append(_call(name, value.__doc__ or "", module.__name__))
    return "\n".join(parts) + "\n"


def formatted(text: str, settings: str = "pyproject.toml") -> str:
    """As tools/dev/format leaves it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "_native.pyi", "-q",
               "--no-cache", "--config", settings, "-"]  # fmt: skip
    done = subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


if __name__ == "__main__":
    sys.stdout.write(formatted(stub(importlib.import_module("railhop._native"))))
