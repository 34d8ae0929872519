"""Makes docs/reference/cli.md from the help texts."""

from __future__ import annotations

import sys

import click

from railhop.cli.main import cli

_HEAD = """# The command line

<!-- Made by `bazel run //python/railhop/cli:make_reference` from click's help. -->

The wheel brings it: `tools/build`, then `pip install dist/railhop-*-cp311-*.whl` (your Python's,
cp39 to cp313). `--json` gives one line of JSON on standard output; colours and progress
bars are for terminals, and `NO_COLOR` is heard. Completion: `railhop completion bash`, `zsh` or
`fish`.

| exit status | meaning |
| --- | --- |
| 0 | good |
| 1 | failed, or judged bad: a drill that did not pass, `status --check` that is not ok |
| 2 | bad input: one line on standard error names it and what to do; nothing has changed |
| 126, 127 | `run`, `netperf`, `fabric`: the program cannot be run, was not found |
| 130 | interrupted |

A process that does not answer in time, such as a stopped one, is named. `status --check` is then
not ok, nor is it with no process at all; `failover`, `failback`, `hold`, `release` and
`config --set` change nothing anywhere, with status 2: `--pid` picks a process that answers.

`run`, `netperf` and `fabric start` become the program that they start: status and signals are its
own.
"""


def _section(command: click.Command, path: str, depth: int) -> list[str]:
    context = click.Context(
        command, info_name=path, max_content_width=100, terminal_width=100,
        help_option_names=["-h", "--help"],
    )  # fmt: skip
    parts = [f"{'#' * depth} {path}", "", "```", command.get_help(context), "```", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                parts += _section(child, f"{path} {name}", depth + 1)
    return parts


def markdown() -> str:
    """The page."""
    context = click.Context(cli, info_name="railhop")
    parts = [_HEAD]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None, name
        parts += _section(command, f"railhop {name}", 2)
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
