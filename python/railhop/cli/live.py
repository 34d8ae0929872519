"""A page that fills the terminal until a person has seen enough.

The keyboard is read key by key meanwhile. Hard case: whatever ends it, the terminal is given back
as it was: the cursor, the screen behind, the echo of keys.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from railhop.cli import ending

__all__ = ["show"]

# Several may come in one read: held down, pasted, or while the machine was busy.
_KEY = re.compile(rb"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|.", re.DOTALL)
_END = (b"q", b"Q")
# Key -> lines to go, or pages.
_LINES = {b"j": 1, b"\x1b[B": 1, b"\x1bOB": 1, b"k": -1, b"\x1b[A": -1, b"\x1bOA": -1}
_PAGES = {b" ": 1, b"\x1b[6~": 1, b"b": -1, b"\x1b[5~": -1}

Draw = Callable[[int], RenderableType]


class _Page:
    """What fits of a picture, from a line on, above a line that says how to go on."""

    def __init__(self) -> None:
        self._draw: Draw = lambda _width: ""
        self._clock = ""
        self._top = 0
        self._room = 1

    def set(self, draw: Draw) -> None:
        """draw: the picture, as wide as it is told."""
        self._draw = draw
        self._clock = time.strftime("%H:%M:%S")

    def scroll(self, key: bytes) -> bool:
        """Whether the key is one that scrolls."""
        if key not in _LINES and key not in _PAGES:
            return False
        self._top = max(0, self._top + _LINES.get(key, 0) + _PAGES.get(key, 0) * self._room)
        return True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.size
        self._room = max(1, height - 1)
        inner = options.update(width=width, height=None)
        lines = console.render_lines(self._draw(width), inner, pad=False)
        while lines and not "".join(segment.text for segment in lines[-1]).strip():
            lines.pop()
        self._top = min(self._top, max(0, len(lines) - self._room))
        shown = lines[self._top : self._top + self._room]
        for line in shown:
            yield from line
            yield Segment.line()
        for _ in range(self._room - len(shown)):
            yield Segment.line()
        foot = f"{self._clock}; q ends"
        if len(lines) > self._room:
            last = self._top + len(shown)
            foot += f"; lines {self._top + 1} to {last} of {len(lines)}, arrows scroll"
        yield Text(foot, style="dim", no_wrap=True, overflow="ellipsis")


class _Keys:
    """The keys pressed; none where standard input is no terminal."""

    def __init__(self) -> None:
        self._file = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[Any] = []

    def __enter__(self) -> _Keys:
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            # Ctrl-C stays a signal.
            tty.setcbreak(self._file)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> list[bytes]:
        """Those that have come, in order; none if there is none in that time."""
        if self._file is None:
            time.sleep(seconds)
            return []
        if not select.select([self._file], [], [], seconds)[0]:
            return []
        read = os.read(self._file, 1024)
        if not read:  # hung up: not to be asked again
            self._file = None
        return _KEY.findall(read)


def show(look: Callable[[], Draw], console: Console, interval_s: float) -> None:
    """Until q or Ctrl-C.

    Args:
      look: gives the picture anew; what it raises ends this.
      console: on a terminal.
      interval_s: seconds from one look to the next.
    """
    page = _Page()
    page.set(look())
    with contextlib.suppress(KeyboardInterrupt), ending.in_order(), _Keys() as keys, Live(
        page, console=console, screen=True, auto_refresh=False
    ) as live:  # fmt: skip
        while True:
            deadline = time.monotonic() + interval_s
            while (left := deadline - time.monotonic()) > 0:
                pressed = keys.wait(left)
                if any(key in _END for key in pressed):
                    return
                if sum(page.scroll(key) for key in pressed):
                    live.refresh()
            page.set(look())
            live.refresh()
