"""A store for ranks that share no folder: rank 0 serves it, all ask by TCP."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import time
from typing import Any

_LINE_BYTES_MAX = 1 << 20


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        self.values: dict[str, str] = {}
        self.changed = threading.Condition()
        super().__init__(address, _Handler)


class _Handler(socketserver.StreamRequestHandler):
    """One question: a line there, a line back."""

    server: _Server

    def handle(self) -> None:
        asked = json.loads(self.rfile.readline(_LINE_BYTES_MAX))
        key, value = str(asked["key"]), asked.get("value")
        with self.server.changed:
            if value is not None:
                self.server.values[key] = str(value)
                self.server.changed.notify_all()
            else:
                self.server.changed.wait_for(
                    lambda: key in self.server.values, timeout=float(asked["timeout_s"])
                )
            answer = self.server.values.get(key)
        self.wfile.write(json.dumps({"value": answer}).encode() + b"\n")


class TcpStore:
    """What railhop._transport's groups need: `set`, and `get`, which waits."""

    def __init__(self, address: str, port: int, *, serve: bool, timeout_s: float = 60.0) -> None:
        """Makes it.

        Args:
          address: of rank 0.
          port: of rank 0.
          serve: whether this is rank 0.
          timeout_s: how long the others and their values may take.
        """
        self._address = (address, port)
        self._timeout_s = timeout_s
        self._server = _Server(("", port)) if serve else None
        if self._server is not None:
            threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _ask(self, **words: Any) -> Any:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                with socket.create_connection(self._address, timeout=self._timeout_s + 5) as link:
                    link.sendall(json.dumps(words).encode() + b"\n")
                    with link.makefile("rb") as answers:
                        return json.loads(answers.readline(_LINE_BYTES_MAX))["value"]
            except (ConnectionError, socket.gaierror):
                # Rank 0 is not there yet.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def set(self, key: str, value: Any) -> None:
        """Text, or bytes of text."""
        self._ask(key=key, value=value.decode() if isinstance(value, bytes) else str(value))

    def get(self, key: str) -> bytes:
        """Waits until it is there. Raises TimeoutError."""
        value = self._ask(key=key, timeout_s=self._timeout_s)
        if value is None:
            raise TimeoutError(f"nobody has set {key} within {self._timeout_s:g} s")
        return str(value).encode()
