"""The host's end of the line to a guest's agent: orders, answers, exit events, as JSON."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import Any, Callable, Optional

# The guest's terminal takes in 4,095 bytes before somebody reads them. Once it had to make the
# sender wait, User-mode Linux 6.1 never reads that line again. So orders are short and go one at a
# time.
ORDER_BYTES_MAX = 2000


class GuestError(Exception):
    """A guest did not boot or ended too early. The text has the end of its console."""


class Channel:
    """Sends orders and waits for what comes back. Any thread may use it.

    One thread reads the line all the time, so an answer to one caller never hides another's.
    `explain` is asked for more words when the guest is gone (the end of its console, say).
    """

    def __init__(self, line: socket.socket, explain: Callable[[], str]) -> None:
        self._line = line
        self._explain = explain
        self._turn = threading.Lock()  # Held from an order to its answer.
        self._changed = threading.Condition()
        self._next_id = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._statuses: dict[int, int] = {}
        self._ready: Optional[float] = None
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="guest-line", daemon=True)
        self._reader.start()

    def wait_ready(self, timeout_s: float) -> float:
        """Waits until the agent is there; returns the guest's uptime in seconds by then."""
        self._wait(lambda: self._ready is not None, timeout_s, "boot")
        assert self._ready is not None
        return self._ready

    def post(self, do: str, **arguments: Any) -> int:
        """Sends an order and returns its id, without waiting for the answer."""
        with self._changed:
            self._next_id += 1
            line = json.dumps({"id": self._next_id, "do": do, **arguments}).encode() + b"\n"
            if len(line) > ORDER_BYTES_MAX:
                raise ValueError(f"order {do!r} is {len(line)} bytes long, over {ORDER_BYTES_MAX}")
            try:
                self._line.sendall(line)
            except OSError as error:
                raise GuestError(f"the guest has ended{self._explain()}") from error
            return self._next_id

    def order(self, do: str, timeout_s: float = 120, **arguments: Any) -> dict[str, Any]:
        """Sends an order and returns the answer, which has the order's "id".

        Raises GuestError if the guest has ended or gives no answer, ValueError with the agent's
        words if it refuses.
        """
        with self._turn:
            number = self.post(do, **arguments)
            self._wait(lambda: number in self._answers, timeout_s, f"answer {do!r}")
        with self._changed:
            answer = self._answers.pop(number)
        if not answer["ok"]:
            raise ValueError(answer["error"])
        return answer

    def exit_status(self, start: int, timeout_s: float) -> Optional[int]:
        """The status of the program that order `start` started, or None after `timeout_s`."""
        try:
            self._wait(lambda: start in self._statuses, timeout_s, "end")
        except TimeoutError:
            return None
        return self._statuses[start]

    def wait_ended(self, timeout_s: float) -> bool:
        """Waits until the guest has closed its end; False after `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended, timeout_s)

    def close(self) -> None:
        """Ends the line. The guest's agent powers off when it sees that."""
        with contextlib.suppress(OSError):  # The guest may have been faster.
            self._line.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._line.close()

    def _wait(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._changed.wait_for(lambda: done() or self._ended, deadline - time.monotonic())
            if done():
                return
            if self._ended:
                raise GuestError(f"the guest has ended{self._explain()}")
        raise TimeoutError(f"the guest did not {what} within {timeout_s:g} s{self._explain()}")

    def _read(self) -> None:
        buffer = b""
        while True:
            try:
                data = self._line.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            with self._changed:
                for line in lines:
                    self._take(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        event = message.get("event")
        if event == "ready":
            self._ready = message["uptime_s"]
        elif event == "exit":
            self._statuses[message["id"]] = message["status"]
        else:
            self._answers[message["id"]] = message
