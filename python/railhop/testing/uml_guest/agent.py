"""The guest's process 1: does what the host asks for over a serial line.

Each order and each answer is one line of JSON. The line carries nothing else: what programs and the
kernel print goes to files and to the console, so noise there cannot be taken for an answer.

Orders (all have "id", which the answer repeats; an answer has "ok", and "error" where it is false):
  start   details (a file with argv, cwd and env), stdout, stderr (files, maybe one and the same):
          starts a program in a session of its own. When it has ended, the line
          {"event": "exit", "id": ..., "status": ...} follows.
  signal  start, signal: signals the whole process group of that start.
  link    words: a line of the fault grammar (link.py). The answer has "text".
  read    path: the answer has the file's "text".
  stop    writes back what is not on the host yet and powers off. There is no answer.

The line is hung up when the host's process ends, whatever way it ends: then the guest stops too.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tty
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from railhop.testing.uml_guest import link
else:
    import link  # In the guest this file is a program, and link.py lies beside it.

LINE = "/dev/ttyS0"
REBOOT_POWER_OFF = 0x4321FEDC  # Source: reboot(2), LINUX_REBOOT_CMD_POWER_OFF.


def power_off() -> NoReturn:
    """Ends the guest. The host sees its process exit."""
    import ctypes  # noqa: PLC0415 (takes 100 ms here, and only the end needs it)

    os.sync()
    ctypes.CDLL(None).reboot(REBOOT_POWER_OFF)
    raise SystemExit(1)


def _said(error: Exception) -> str:
    """The error without Python's way of writing it: "nosuch: No such file or directory"."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


class Agent:
    """Reads orders from `line` (a file descriptor of a terminal) and answers them."""

    def __init__(self, line: int) -> None:
        self._line = line
        self._buffer = b""
        self._running: dict[int, int] = {}  # process id -> id of its start order

    def send(self, message: dict[str, Any]) -> None:
        """Sends one line to the host."""
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._line, data) :]

    def start(self, order: dict[str, Any]) -> dict[str, Any]:
        """Starts a program; its output goes to files that the host reads."""
        with open(order["details"], encoding="utf-8") as file:
            details = json.load(file)
        with contextlib.ExitStack() as files:
            stdout, stderr = (
                files.enter_context(open(order[name], "ab", buffering=0))
                for name in ("stdout", "stderr")
            )
            process = subprocess.Popen(
                details["argv"],
                cwd=details["cwd"],
                env={**os.environ, **details["env"]},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        process.returncode = 0  # Reaped by reap() below, not by Popen.
        self._running[process.pid] = order["id"]
        return {"pid": process.pid}

    def signal(self, order: dict[str, Any]) -> dict[str, Any]:
        """Signals a process group; one that has ended is no error."""
        for pid, start in self._running.items():
            if start == order["start"]:
                os.killpg(pid, order["signal"])
        return {}

    def link(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carries out one line of the fault grammar."""
        return {"text": link.apply(order["words"])}

    def read_file(self, order: dict[str, Any]) -> dict[str, Any]:
        """Reads a small file, such as one of sysfs."""
        return {"text": link.read(order["path"])}

    def reap(self) -> None:
        """Collects ended processes, also orphans, and reports those that the host started."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            start = self._running.pop(pid, None)
            if start is not None:
                code = os.waitstatus_to_exitcode(status)
                self.send(
                    {"event": "exit", "id": start, "status": code if code >= 0 else 128 - code}
                )

    def answer(self, text: bytes) -> None:
        """Carries out one order and answers it."""
        order = json.loads(text)
        if order["do"] == "stop":
            power_off()
        orders = {
            "start": self.start,
            "signal": self.signal,
            "link": self.link,
            "read": self.read_file,
        }
        try:
            self.send({"id": order["id"], "ok": True, **orders[order["do"]](order)})
        except (OSError, ValueError) as error:
            self.send({"id": order["id"], "ok": False, "error": _said(error)})

    def read(self) -> None:
        """Reads what has come and carries out each whole line of it."""
        try:
            data = os.read(self._line, 65536)
        except OSError:
            data = b""
        if not data:
            power_off()
        *orders, self._buffer = (self._buffer + data).split(b"\n")
        for order in orders:
            self.answer(order)


def main() -> NoReturn:
    line = os.open(LINE, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    agent = Agent(line)
    # A child's end wakes the loop through a pipe.
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake_end)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    selector = selectors.DefaultSelector()
    selector.register(line, selectors.EVENT_READ)
    selector.register(wake, selectors.EVENT_READ)
    with open("/proc/uptime", encoding="ascii") as uptime:
        agent.send({"event": "ready", "uptime_s": float(uptime.read().split()[0])})
    while True:
        ready = {key.fd for key, _ in selector.select()}
        if wake in ready:
            os.read(wake, 4096)
            agent.reap()
        if line in ready:
            agent.read()


if __name__ == "__main__":
    with open("/dev/console", "w", buffering=1, encoding="utf-8") as console:
        sys.stdout = sys.stderr = console
        main()
