"""The store: values wait for each other, in any order."""

from __future__ import annotations

import socket
import threading

import pytest

from railhop.drills.tcp_store import TcpStore


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_value_is_waited_for_and_read_by_all() -> None:
    port = free_port()
    found = []
    # The asker comes before the server.
    asker = TcpStore("127.0.0.1", port, serve=False)
    waiting = threading.Thread(target=lambda: found.append(asker.get("a/1")))
    waiting.start()
    server = TcpStore("127.0.0.1", port, serve=True)
    asker.set("b", b"\x31\x32")
    server.set("a/1", "value")
    waiting.join(60)
    assert found == [b"value"]
    assert server.get("b") == b"12"
    assert asker.get("a/1") == b"value"


def test_a_value_that_never_comes_is_named() -> None:
    store = TcpStore("127.0.0.1", free_port(), serve=True, timeout_s=0.1)
    with pytest.raises(TimeoutError, match=r"nobody has set devices/1 within 0\.1 s"):
        store.get("devices/1")
