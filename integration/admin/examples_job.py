"""One process of a job of two that loads the plugin itself, as NCCL does, and sends all the time.

Started by examples_test with the variables of railhop.environment. `beta` receives; `alpha` sends,
and meanwhile runs the examples of everything public, each when the job is well. Handles and the end
are files in a folder.
"""

from __future__ import annotations

import contextlib
import doctest
import json
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable

import railhop
from railhop import _transport as transport

from tools.dev import python_reference

_PATIENCE_S = 60.0
_SIZE = 40_001
# A message that says that it is the last.
_LAST = 255


def wait(what: str, true: Callable[[], bool]) -> None:
    """Until `true()` is."""
    deadline = time.monotonic() + _PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_PATIENCE_S} s: {what}")
        time.sleep(0.01)


def pattern(number: int) -> bytes:
    """What message `number` is."""
    return bytes((number + at) % _LAST for at in range(251)) * (_SIZE // 251 + 1)


def receive(folder: pathlib.Path) -> int:
    """Takes messages until the last; each byte is looked at."""
    plugin = transport.Plugin(str(railhop.paths.plugin_path()))
    listener = plugin.listen(0)
    (folder / "handle.new").write_bytes(listener.handle)
    (folder / "handle.new").rename(folder / "handle")
    connection = listener.accept(_PATIENCE_S)
    into = bytearray(_SIZE)
    memory = connection.register(into)
    number = 0
    while True:
        memory.post().wait(_PATIENCE_S)
        if into[0] == _LAST:
            break
        if into != pattern(number)[:_SIZE]:
            print(f"message {number} is wrong", file=sys.stderr)
            return 1
        number += 1
    connection.close()
    plugin.close()
    return 0


class Sender:
    """Sends from a thread of its own until told to end."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._plugin = transport.Plugin(str(railhop.paths.plugin_path()))
        wait("the peer's handle", (folder / "handle").exists)
        handle = (folder / "handle").read_bytes()
        self._connection = self._plugin.connect(0, handle, timeout_s=_PATIENCE_S)
        self._buffer = bytearray(_SIZE)
        self._memory = self._connection.register(self._buffer)
        self._over = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self._buffer[:] = pattern(self.sent)[:_SIZE]
            self._memory.post().wait(_PATIENCE_S)
            self.sent += 1
        self._buffer[0] = _LAST
        self._memory.post().wait(_PATIENCE_S)

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._connection.close()
        self._plugin.close()


def only_this_job(name: str) -> None:
    """The machine may have other jobs, which the examples do not speak of."""
    found = railhop.processes

    def processes(job: str | None = None, *, timeout_s: float = 1.0) -> list[railhop.FoundProcess]:
        return found(job or name, timeout_s=timeout_s)

    processes.__doc__ = found.__doc__
    railhop.processes = processes


def well() -> bool:
    """Every port is up and in service, here and at the other end."""
    return all(
        (health := found.attach().health()).verdict == "ok"
        and all(port.state == "up" for port in health.ports)
        for found in railhop.processes()
    )


def run_examples() -> dict[str, dict[str, object]]:
    """Name -> how many examples it has, and what was wrong with them."""
    parser = doctest.DocTestParser()
    results: dict[str, dict[str, object]] = {}
    modules = {"railhop": railhop, "railhop.paths": railhop.paths}
    texts = {
        name: getattr(value, "__doc__", None) or ""
        for name, value in (python_reference.documented() | modules).items()
    }
    texts["python.md"] = pathlib.Path("docs/operating/python.md").read_text(encoding="utf-8")
    for name, text in texts.items():
        examples = parser.get_doctest(text, {"railhop": railhop}, name, None, None)
        # Each finds the job as a reader's would be.
        wait(f"the job is well, before {name}", well)
        said: list[str] = []
        runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        runner.run(examples, out=said.append)
        results[name] = {"examples": len(examples.examples), "problem": "".join(said)}
    return results


def main() -> int:
    role, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if role == "beta":
        return receive(folder)
    sender = Sender(folder)
    wait("traffic", lambda: sender.sent > 10)
    only_this_job(os.environ["RAILHOP_JOB_ID"])
    wait("both processes", lambda: len(railhop.processes()) == 2)
    results = run_examples()
    before = sender.sent
    wait("traffic goes on", lambda: sender.sent > before)
    sender.end()
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"sent": sender.sent, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
