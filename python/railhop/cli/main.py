"""The program `railhop`: finds the subcommand, and turns every error into one line and a status."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Optional

import click

import railhop
from railhop.cli.common import BAD, GOOD, INPUT, CliError, examples
from railhop.drills.errors import DrillError
from railhop.report.run import ReportError
from railhop.scenario.step import ScenarioError

_INTERRUPTED = 130
# Click before 8.2, the last for Python 3.9, has none: it prints the help and exits.
_NO_WORDS: type[click.UsageError] = getattr(
    click.exceptions, "NoArgsIsHelpError", type("_Never", (click.UsageError,), {})
)

# In the order of the help text; each is COMMAND of railhop.cli.NAME, loaded when it is needed.
COMMANDS = (
    "env", "run", "status", "failover", "failback", "hold", "release", "events", "stats", "config",
    "drill", "report", "fabric", "netperf", "completion",
)  # fmt: skip


class _Lazy(click.Group):
    """Loads a subcommand when it is asked for: `railhop env` needs no tables and no fabric."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"railhop.cli.{cmd_name}").COMMAND
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[Optional[str], Optional[click.Command], list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no command '{args[0]}' (allowed: {', '.join(COMMANDS)})")
        return super().resolve_command(ctx, args)


_EXAMPLES = examples(
    'eval "$(railhop env)"; torchrun train.py                        put it under a job',
    "railhop run -- torchrun train.py                                the same",
    "railhop status                                                  see it",
    "railhop failover mlx5_0                                         steer it",
    "railhop drill --fabric two-hosts-4nic --scenario nic-down       rehearse a failure",
)


@click.group(cls=_Lazy, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(railhop.__version__, message="railhop %(version)s")
def cli() -> None:
    """Keeps NCCL jobs running when NICs and links fail.

    Exit status of all commands: 0 good; 1 failed, or judged bad; 2 bad input, and nothing has
    changed. `run` and `fabric start` give that of the command they run.
    """


def _say(text: str) -> None:
    print(f"railhop: {' '.join(text.split())}", file=sys.stderr)


def _usage(error: click.UsageError) -> str:
    """One line with where to read on."""
    path = error.ctx.command_path if error.ctx is not None else "railhop"
    message = error.format_message().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; see '{path} --help'"


def _run(argv: Optional[Sequence[str]]) -> int:
    result = cli.main(
        args=None if argv is None else list(argv), prog_name="railhop", standalone_mode=False
    )
    return result if isinstance(result, int) else GOOD


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs it; the exit status. argv: without the program's name; sys.argv's if not given."""
    try:
        return _run(argv)
    except _NO_WORDS as error:
        print(error.format_message())
        return INPUT
    except click.UsageError as error:
        _say(_usage(error))
        return INPUT
    except click.ClickException as error:
        _say(error.format_message())
        return INPUT
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except railhop.InternalError as error:
        _say(str(error))
        return BAD
    except CliError as error:
        _say(str(error))
        return error.status
    except (railhop.Error, ScenarioError, DrillError, ReportError) as error:
        _say(str(error))
        return INPUT
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _say(f"{name}{error.strerror or error}")
        return BAD if error.errno in (errno.ENOSPC, errno.EIO) else INPUT
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(last.filename)}:{last.lineno}"
        _say(f"a mistake in railhop itself, at {place}: {type(error).__name__}: {error}")
        return BAD


if __name__ == "__main__":
    sys.exit(main())
