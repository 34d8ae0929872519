"""Prints docs/reference/python.md: the Python API, from its own docstrings and types."""

from __future__ import annotations

import enum
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator

import railhop

from tools.dev import native_stub

_HEAD = """\
# The Python API

Made from the docstrings: `bazel run //tools/dev:python_reference`. How to use it:
`docs/operating/python.md`.

`import railhop` has everything here. The calls act on this process, whose plugin NCCL has loaded;
`attach` gives the same calls for another process of this node. Calls that wait let other threads
run, and may be made from any. Results do not change once they are made. Names carry units:
`_unix_ns` is the wall clock and `_ns` a duration, both in nanoseconds.
"""

_CALLS = ("health", "stats", "events", "follow", "config", "force_failover", "fail_back", "hold",
          "release", "set_option", "drill")  # fmt: skip
_FINDING = ("attach", "processes", "Process", "FoundProcess")
_START = ("environment",)

# Of a docstring: a heading, and whether its text is code.
_SECTION = re.compile(r"^(Args|Raises|Example|Attributes|Returns):$")


def doc_of(value: object) -> str:
    """A docstring without the signature that pybind11 puts before it."""
    doc = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    first, _, rest = doc.partition("\n")
    return rest.strip() if " -> " in first and "(" in first else doc


def markdown(doc: str) -> Iterator[str]:
    """A docstring's text; its lists as lists, its examples as code."""
    section = ""
    for line in doc.splitlines():
        heading = _SECTION.match(line)
        if heading:
            if section == "Example":
                yield "```"
            section = heading[1]
            yield from ([""] if section != "Example" else ["", "```python"])
            if section != "Example":
                yield f"{section}:"
                yield ""
            continue
        if section == "Example":
            if line and not line.startswith(" "):
                yield "```"
                section = ""
            yield line[4:] if line.startswith("    ") else line
        elif section and re.match(r"^  \w[\w ,]*: ", line):
            name, _, text = line.strip().partition(": ")
            yield f"- `{name}`: {text}"
        elif section:
            yield f"  {line.strip()}" if line.strip() else ""
        else:
            yield line
    if section == "Example":
        yield "```"


def _signature(name: str, value: Callable[..., object]) -> str:
    """As one writes a call."""
    doc = value.__doc__ or ""
    first = doc.partition("\n")[0]
    if " -> " in first:
        line = native_stub.signature(name, first, "railhop._native").removeprefix("def ")
        return line.replace("(self, ", "(").replace("(self)", "()")
    said = str(inspect.signature(value)).replace("railhop._native.", "")
    # What is annotated is a text here.
    said = re.sub(r": '([^']*)'", r": \1", said)
    said = re.sub(r"-> '([^']*)'", r"-> \1", said)
    if inspect.isclass(value):
        said = said.removesuffix(" -> None")
    return name + said.replace("(self, ", "(").replace("(self)", "()")


def call_entry(name: str, value: Callable[..., object], level: str = "###") -> Iterator[str]:
    """What the page says of a call or of a class that users make."""
    yield f"{level} `{_signature(name, value)}`"
    yield ""
    doc = doc_of(value)
    if inspect.isclass(value):
        init = inspect.cleandoc(value.__init__.__doc__ or "").partition("\n\n")[2]
        doc = doc.replace("\n\nExample:", f"\n\n{init}\n\nExample:") if init else doc
    yield from markdown(doc)
    yield ""


def _fields(one: type) -> list[tuple[str, property]]:
    return [(name, value) for name, value in vars(one).items() if isinstance(value, property)]


def _record(name: str, one: type) -> Iterator[str]:
    """A class of results: its fields as a table, then its calls."""
    yield f"### `{name}`"
    yield ""
    yield from markdown(doc_of(one))
    yield ""
    fields = _fields(one)
    if fields:
        yield "| field | type | |"
        yield "| --- | --- | --- |"
    for field, value in fields:
        said = value.fget.__doc__ or ""
        kind = native_stub.signature("", said.strip(), "railhop._native").split(" -> ")[-1]
        yield f"| `{field}` | `{kind}` | {doc_of(value)} |".replace(" | None`", " or None`")
    yield ""
    for method, value in vars(one).items():
        if not method.startswith("_") and callable(value) and not isinstance(value, property):
            if method == "to_dict":
                continue
            yield from call_entry(f"{name}.{method}", value, "####")


def _word(name: str, one: type[enum.Enum]) -> Iterator[str]:
    yield f"### `{name}`"
    yield ""
    yield from markdown(doc_of(one))
    yield ""
    yield "Words: " + ", ".join(f"`{member.value}`" for member in one) + "."
    yield ""


def _named(test: Callable[[object], bool]) -> list[str]:
    return [name for name in railhop.__all__ if test(getattr(railhop, name))]


def page() -> str:
    """The whole page."""
    parts: list[str] = [_HEAD]

    def section(title: str, lines: Iterator[str]) -> None:
        parts.append(f"## {title}\n")
        parts.extend(lines)

    def calls(names: tuple[str, ...]) -> Iterator[str]:
        for name in names:
            value = getattr(railhop, name)
            is_result = inspect.isclass(value) and bool(_fields(value))
            yield from _record(name, value) if is_result else call_entry(name, value)

    words = _named(lambda one: inspect.isclass(one) and issubclass(one, enum.Enum))
    errors = _named(lambda one: inspect.isclass(one) and issubclass(one, railhop.Error))
    results = [
        name
        for name in _named(inspect.isclass)
        if name not in {*words, *errors, *_FINDING, *_CALLS}
    ]
    section("This process", calls(_CALLS))
    section("Other processes of this node", calls(_FINDING))
    section("Starting a job", calls(_START))
    parts.append("### `railhop.paths`\n")
    parts.extend(markdown(doc_of(railhop.paths)))
    parts.append("")
    for name in railhop.paths.__all__:
        parts.extend(call_entry(f"paths.{name}", getattr(railhop.paths, name), "####"))
    parts.append("## Results\n")
    parts.append(
        "Each has `to_dict()`: all of it as plain values, which `json` can write, and a `repr`\n"
        "that leaves out what is zero, empty or not known.\n"
    )
    for name in results:
        parts.extend(_record(name, getattr(railhop, name)))
    section("Words", (line for name in words for line in _word(name, getattr(railhop, name))))
    section("Errors", (line for name in errors for line in _error(name)))
    text = "\n".join(parts)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def _error(name: str) -> Iterator[str]:
    one = getattr(railhop, name)
    bases = ", ".join(base.__name__ for base in one.__bases__)
    yield f"### `{name}({bases})`"
    yield ""
    yield from markdown(textwrap.dedent(doc_of(one)))
    yield ""


def documented() -> dict[str, object]:
    """Everything public that has a docstring of its own: name -> object."""
    found: dict[str, object] = {}
    for name in railhop.__all__:
        value = getattr(railhop, name)
        if name.startswith("_") or isinstance(value, types.ModuleType):
            continue
        found[name] = value
        if inspect.isclass(value) and not issubclass(value, enum.Enum):
            for method, inner in vars(value).items():
                public = not method.startswith("_") and method != "to_dict"
                if public and callable(inner) and not isinstance(inner, property):
                    found[f"{name}.{method}"] = inner
    for name in railhop.paths.__all__:
        found[f"paths.{name}"] = getattr(railhop.paths, name)
    return found


if __name__ == "__main__":
    sys.stdout.write(page())
