"""Writes compile_commands.json from what Bazel would run, for clang-tidy and editors.

usage: python3 -m tools.dev.compile_commands [BAZEL FLAG...]
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from typing import Any

from tools.lib import workspace

_GCC_ONLY = {
    "-fno-canonical-system-headers",
    "-Wunused-but-set-parameter",
    "-Wno-free-nonheap-object",
    "-Wno-tsan",
}
# Bazel redefines these so that builds repeat; clang-tidy would complain of it.
_REDACTED = re.compile(r"-D__(DATE|TIME|TIMESTAMP)__=")


@dataclasses.dataclass(frozen=True)
class Command:
    """How one file of our own is compiled: in `directory`, with `arguments`."""

    file: str
    directory: str
    arguments: tuple[str, ...]


def _clean(arguments: list[str]) -> list[str]:
    """Without what only gcc knows and without dependency files."""
    kept = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "-MF":
            skip = True
        elif argument != "-MD" and argument not in _GCC_ONLY and not _REDACTED.match(argument):
            kept.append(argument)
    return kept


def _own_source(arguments: list[str]) -> str | None:
    if "-c" not in arguments:
        return None
    source = arguments[arguments.index("-c") + 1]
    return None if source.startswith(("external/", "bazel-out/")) else source


def collect(flags: list[str]) -> list[Command]:
    """The compile commands of all own sources, by file; each file once."""
    directory = workspace.bazel_output("info", "execution_root").strip()
    text = workspace.bazel_output(
        "aquery",
        "--noshow_progress",
        "--output=jsonproto",
        "--include_aspects=false",
        *flags,
        'mnemonic("CppCompile", //...)',
    )
    actions: list[dict[str, Any]] = json.loads(text).get("actions", [])
    commands: dict[str, Command] = {}
    for action in actions:
        arguments = action["arguments"]
        source = _own_source(arguments)
        if source is None or source in commands:
            continue
        path = str(workspace.ROOT / source)
        cleaned = [path if a == source else a for a in _clean(arguments)]
        commands[source] = Command(source, directory, tuple(cleaned))
    return [commands[name] for name in sorted(commands)]


def main() -> int:
    entries = [
        {
            "directory": command.directory,
            "file": str(workspace.ROOT / command.file),
            "arguments": list(command.arguments),
        }
        for command in collect(sys.argv[1:])
    ]
    (workspace.ROOT / "compile_commands.json").write_text(json.dumps(entries, indent=1))
    print(f"{len(entries)} entries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
