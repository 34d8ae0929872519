"""Hands the process over to a program: its output, status and signals are then its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from railhop.cli.common import CliError

_NOT_FOUND, _CANNOT = 127, 126


def become(command: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Runs the command in place of this process.

    Errors: CliError with status 127 or 126, as a shell has them.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], list(command), dict(env))
    except FileNotFoundError:
        raise CliError(f"'{command[0]}' was not found", _NOT_FOUND) from None
    except OSError as error:
        raise CliError(f"'{command[0]}' cannot be run: {error.strerror}", _CANNOT) from None
