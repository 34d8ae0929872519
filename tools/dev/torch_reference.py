"""Prints docs/reference/torch.md: railhop.torch, from its own docstrings.

It imports railhop.torch, so the interpreter that tools/lib/torch_env.sh makes has to run it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import railhop.torch
import torch

from tools.dev.python_reference import call_entry, doc_of, markdown

_HEAD = """\
# railhop.torch

Made from the docstrings: `bazel run //integration/torch:make_reference`. How to use it:
`docs/operating/training.md`. The rest of the package: `python.md`.

In the examples `import pathlib, torch`, `import torch.distributed as dist` and
`dist.init_process_group("railhop")` came before; two ranks run them, over the software fabric.
"""


def _public(one: type) -> Iterator[tuple[str, Any]]:
    """Those of its own that say what they are for: c10d's own calls are torch's to explain."""
    for name, value in vars(one).items():
        said = not name.startswith("_") and getattr(value, "__doc__", None)
        if said and (callable(value) or isinstance(value, property)):
            yield name, value


def documented() -> dict[str, object]:
    """Everything public that has a docstring: name -> object."""
    found: dict[str, object] = {"railhop.torch": railhop.torch}
    for name in railhop.torch.__all__:
        value = getattr(railhop.torch, name)
        found[name] = value
        if inspect.isclass(value):
            found.update({f"{name}.{inner}": one for inner, one in _public(value)})
    return found


def _field_types(lines: Iterator[str], one: type) -> Iterator[str]:
    """The list of a dataclass's fields, with the type of each."""
    types = {field.name: str(field.type) for field in dataclasses.fields(one)}
    for line in lines:
        yield re.sub(
            r"^- `(\w+)`:", lambda found: f"- `{found[1]}: {types.get(found[1], '')}`:", line
        )


def _class(name: str, one: type) -> Iterator[str]:
    if dataclasses.is_dataclass(one):
        yield f"## `{name}`"
        yield ""
        yield from _field_types(markdown(doc_of(one)), one)
        yield ""
    elif issubclass(one, torch.distributed.ProcessGroup):
        # Users do not make it.
        yield f"## `{name}`"
        yield ""
        yield from markdown(doc_of(one))
        yield ""
    else:
        yield from call_entry(name, one, "##")
    for inner, value in _public(one):
        if isinstance(value, property):
            kind = value.fget.__annotations__["return"]
            yield f"### `{name}.{inner}: {kind}`"
            yield ""
            yield from markdown(doc_of(value))
            yield ""
        else:
            yield from call_entry(f"{name}.{inner}", value, "###")


def page() -> str:
    """The whole page."""
    parts = [_HEAD, *markdown(doc_of(railhop.torch)), ""]
    for name in railhop.torch.__all__:
        value = getattr(railhop.torch, name)
        lines = _class(name, value) if inspect.isclass(value) else call_entry(name, value, "##")
        parts.extend(lines)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
