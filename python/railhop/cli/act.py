"""What failover, failback, hold and release share: one command, in all processes or in none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Optional

import railhop
from railhop.cli.common import CliError, print_json
from railhop.cli.select import Chosen


def _undo(processes: list[Chosen], undo: Callable[[Chosen], Any]) -> None:
    for process in reversed(processes):
        with contextlib.suppress(railhop.Error):  # it has ended since
            undo(process)


def act(
    chosen: list[Chosen],
    do: Callable[[Chosen], Any],
    undo: Optional[Callable[[Chosen], Any]],
    *,
    as_json: bool,
) -> None:
    """Does it in each; if one refuses, it is undone in those before.

    Args:
      chosen: in which processes.
      do: the command; gives a railhop.Outcome.
      undo: its counterpart; None if there is nothing to undo.
      as_json: one line instead of one for each process.

    Errors: CliError, with the refusing process and its reason.
    """
    done: list[tuple[Chosen, Any]] = []
    for process in chosen:
        try:
            done.append((process, do(process)))
        except railhop.Error as error:
            if undo is not None:
                _undo([before for before, _ in done], undo)
            one = f"process {process.pid}: " if len(chosen) > 1 else ""
            also = f"; undone in {len(done)} other(s)" if done and undo is not None else ""
            raise CliError(f"{one}{error}{also}") from None
    if as_json:
        print_json([{"pid": process.pid, **outcome.to_dict()} for process, outcome in done])
        return
    for process, outcome in done:
        print(f"{process.pid}: {outcome.text}")
