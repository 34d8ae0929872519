"""An end by signal that still cleans up.

Python dies of SIGTERM and SIGHUP on the spot: what a command has started would go on, and the
terminal would stay as it is.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Optional

__all__ = ["in_order"]


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP (a terminal that is closed) leave as SystemExit: 128 + number.

    A signal that is ignored, as nohup wants it, stays so. Main thread only.
    """

    def end(number: int, _frame: Optional[FrameType]) -> None:
        sys.exit(128 + number)

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
