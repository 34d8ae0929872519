"""`railhop events`: the journal, from any past entry on."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, Optional

import click

from railhop.cli.common import cause_in, console, examples, words_in
from railhop.cli.select import ENDED, Chosen, choose_some, process_options

_PAGE = 1024
# Of one question for what is next. Ctrl-C waits for its answer.
_WAIT_S = 0.5


def _tagged(process: Chosen, entry: Any) -> dict[str, Any]:
    return {"process": process.pid, "host": process.host, **entry.to_dict()}


class Reader:
    """Reads the journals of several processes on from where it was."""

    def __init__(self, processes: list[Chosen], after: int) -> None:
        self._after = {process.pid: after for process in processes}
        self._processes = processes

    def new(self, follows: bool) -> list[dict[str, Any]]:
        """What was not read before, in order of time. Processes that have ended are left out.

        follows: more will be asked for; a process knows by the wait that it has to be waited for.
        """
        wait_s = _WAIT_S / 1000 if follows else 0.0
        found: list[dict[str, Any]] = []
        for process in list(self._processes):
            try:
                while page := self._page(process, wait_s):
                    found += page
            except ENDED:
                self._processes.remove(process)
        return sorted(found, key=lambda one: int(one["time_unix_ns"]))

    def follow(self) -> Iterator[dict[str, Any]]:
        """What comes, as it comes, until all have ended.

        One thread for each process waits for the next entry, so that what happens just before the
        process's end is heard too: between two looks at it, it would be lost.

        Errors: railhop.Error that a process gives.
        """
        heard: queue.SimpleQueue[dict[str, Any] | Exception | None] = queue.SimpleQueue()
        over = threading.Event()

        def listen(process: Chosen) -> None:
            try:
                while not over.is_set():
                    for entry in self._page(process, _WAIT_S):
                        heard.put(entry)
            except ENDED:
                pass
            except Exception as error:
                heard.put(error)
            heard.put(None)

        threads: list[threading.Thread] = []
        try:
            for one in self._processes:
                thread = threading.Thread(target=listen, args=(one,))
                thread.start()
                threads.append(thread)
            left = len(threads)
            while left:
                what = heard.get()
                if what is None:
                    left -= 1
                elif isinstance(what, Exception):
                    raise what
                else:
                    yield what
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _page(self, process: Chosen, wait_s: float) -> list[dict[str, Any]]:
        page = process.api.events(after=self._after[process.pid], limit=_PAGE, wait_s=wait_s)
        for entry in page.events:
            self._after[process.pid] = entry.serial
        return [_tagged(process, entry) for entry in page.events]


def text_of(entry: dict[str, Any]) -> str:
    """One line for people."""
    seconds, rest_ns = divmod(entry["time_unix_ns"], 1_000_000_000)
    clock = f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest_ns // 1_000_000:03}"
    words = [words_in(str(entry["kind"]))]
    if entry["port"]:
        words.append(entry["port"])
    if entry["peer_host"]:
        words.append(f"to {entry['peer_host']} {entry['peer_port']}".rstrip())
    if entry["connection"]:
        words.append(f"connection {entry['connection']} epoch {entry['epoch']}")
    if cause := cause_in(entry["cause"]):
        words.append(f"({cause})")
    if entry["text"]:
        words.append(entry["text"])
    if str(entry["kind"]) == "episode_recovered":
        words.append(f"after {entry['value'] / 1e6:.1f} ms, {entry['bytes']} bytes sent again")
    episode = f" episode {entry['episode']}" if entry["episode"] else ""
    return f"{clock} {entry['process']}{episode}: {' '.join(words)}"


@click.command(
    "events",
    short_help="What happened: every change of state.",
    epilog=examples(
        "railhop events",
        "railhop events --follow",
        "railhop events --json --pid 4242 > journal.jsonl",
        "railhop events --after 1200",
    ),
)
@click.option("-f", "--follow", is_flag=True, help="Go on until the jobs end, or Ctrl-C.")
@click.option(
    "--after",
    metavar="SERIAL",
    type=click.IntRange(min=0),
    default=0,
    help="Only entries behind this one, of each process; --json shows serials.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line, for 'railhop report'."
)
@process_options
def COMMAND(  # noqa: N802
    *,
    follow: bool,
    after: int,
    as_json: bool,
    pid: Optional[int],
    job: Optional[str],
    path: Optional[str],
) -> None:
    """What happened: every change of state of ports, paths and connections.

    Each line has the time, the process and its episode, if it belongs to one.
    """
    reader = Reader(choose_some(pid, job, path), after)
    out = console()

    def show(entry: dict[str, Any]) -> None:
        if as_json:
            print(json.dumps(entry), flush=True)
        else:
            style = "yellow" if str(entry["severity"]) == "warning" else ""
            out.print(text_of(entry), style=style, markup=False, soft_wrap=True)

    for entry in reader.new(follow):
        show(entry)
    if follow:
        for entry in reader.follow():
            show(entry)
