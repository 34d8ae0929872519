"""A program in a terminal of its own: what a person would see, as text.

A pseudo-terminal carries the bytes both ways and pyte draws them. What is drawn anew from the upper
left corner shows once all of it is there: when the next one begins, or at the end.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Optional

import pyte

PATIENCE_S = 120.0
_HOME = b"\x1b[H"


class Terminal:
    """See the file's comment. Ends the program on leaving."""

    def __init__(self, command: Sequence[str], *, columns: int, lines: int) -> None:
        """Starts the program.

        Args:
          command: with its arguments; it is the leader of the terminal's session.
          columns: width of the terminal, in characters.
          lines: its height.
        """
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = threading.Condition()
        self.raw = b""
        self._held = b""
        self._own, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._other: Optional[int] = other
        self.settings = self.settings_after = termios.tcgetattr(other)
        env = {**os.environ, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            env.pop(name, None)
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command], stdin=other, stdout=other, stderr=other, env=env
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._own, 65536)
            except OSError:  # nobody has the other end any more
                return
            if not data:
                return
            with self._changed:
                self.raw += data
                self._held += data
                begun = max(self._held.rfind(_HOME), 0)
                self._stream.feed(self._held[:begun])
                self._held = self._held[begun:]
                self._changed.notify_all()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._hang_up()
        os.close(self._own)

    def _hang_up(self) -> None:
        """The reader ends when it has read what is left; then all of it shows."""
        if self._other is None:
            return
        self.settings_after = termios.tcgetattr(self._other)
        os.close(self._other)
        self._other = None
        self._reader.join()
        self._stream.feed(self._held)

    def text(self) -> str:
        """The screen, its lines without the blanks at their ends."""
        with self._changed:
            return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def cursor_hidden(self) -> bool:
        with self._changed:
            return bool(self._screen.cursor.hidden)

    def wait(self, what: str, true: Callable[[str], bool]) -> str:
        """Until `true(screen)` is; the screen then."""
        deadline = time.monotonic() + PATIENCE_S
        while not true(text := self.text()):
            assert self.process.poll() is None, f"it ended before {what}:\n{text}"
            assert time.monotonic() < deadline, f"not on the screen: {what}\n{text}"
            with self._changed:
                self._changed.wait(0.2)
        return text

    def press(self, keys: str) -> None:
        """As typed."""
        os.write(self._own, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """As a person who drags the window's corner."""
        with self._changed:
            self._screen.resize(lines, columns)
        fcntl.ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self) -> int:
        """The program's exit status. From then on all that it wrote shows.

        `settings_after` is what termios says then, `settings` what it said before.
        """
        status = self.process.wait(PATIENCE_S)
        self._hang_up()
        return status
