"""One rank of the built-in collectives: a program that railhop.drills.collectives starts.

Every round has data of its own, so that what is lost, late or doubled shows; each rank knows what
must come out and compares all of it. Rank 0 says in the data itself which round is the last, so
that all end together; SIGTERM asks it to.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time

import numpy

from railhop._transport.collectives import Collectives
from railhop._transport.group import Group
from railhop._transport.numpy_arrays import NumpyArrays
from railhop.drills.tcp_store import TcpStore

_INTEGER = numpy.int64


def _values(rank: int, number: int, count: int) -> numpy.ndarray:
    """What a rank gives in a round; element 0 is left for the sign of the end."""
    start = (rank + 1) * 1_000_003 + number * 7919
    return numpy.arange(start, start + count, dtype=_INTEGER)


class _Rank:
    """A rank and its rounds."""

    def __init__(self, kind: str, count: int) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._count = count
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._store = TcpStore(address, port, serve=self.rank == 0)
        self.group = Group(self.rank, self.size, self._store)
        self._collectives = Collectives(self.group, NumpyArrays())
        self.turn = {"all-reduce": self._all_reduce, "all-gather": self._all_gather}[kind]

    def close(self) -> None:
        """Nobody closes before all have all: who is slow would take it for a death."""
        with contextlib.suppress(OSError):  # rank 0, which serves the store, may go first
            self._store.set(f"done/{self.rank}", "1")
            for rank in range(self.size):
                self._store.get(f"done/{rank}")
        self.group.close()

    def _all_reduce(self, number: int, last: bool) -> tuple[bool, int]:
        """Whether it was the last round, and how many bytes were wrong."""
        data = _values(self.rank, number, self._count)
        data[0] = int(last and self.rank == 0)
        self._collectives.all_reduce(data, "sum")
        parts = [_values(rank, number, self._count) for rank in range(self.size)]
        wanted = numpy.sum(parts, axis=0)
        wrong = numpy.count_nonzero(data[1:] != wanted[1:])
        return bool(data[0]), int(wrong) * data.itemsize

    def _all_gather(self, number: int, last: bool) -> tuple[bool, int]:
        data = _values(self.rank, number, self._count)
        data[0] = int(last and self.rank == 0)
        outs = [numpy.empty_like(data) for _ in range(self.size)]
        self._collectives.all_gather(outs, data)
        wrong = 0
        for rank, out in enumerate(outs):
            wrong += int(numpy.count_nonzero(out[1:] != _values(rank, number, self._count)[1:]))
        return bool(outs[0][0]), wrong * data.itemsize


def main(kind: str, size_bytes: int, seconds: float) -> int:
    """Rounds until the time is over; notes steps and wrong bytes for the drill."""
    rank = _Rank(kind, max(2, size_bytes // _INTEGER().itemsize))
    end_s = time.monotonic() + seconds
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    wrong = number = 0
    with open(os.environ.get("RAILHOP_DRILL_LOG", os.devnull), "a", encoding="ascii") as log:

        def note(**words: object) -> None:
            log.write(json.dumps(words) + "\n")
            log.flush()

        over = False
        while not over:
            begin = time.monotonic()
            over, bad = rank.turn(number, asked.is_set() or time.monotonic() >= end_s)
            wrong += bad
            if rank.rank == 0:
                spent_ms = (time.monotonic() - begin) * 1e3
                note(step=number, ms=round(spent_ms, 3), time_unix_ns=time.time_ns())
            number += 1
        note(wrong_bytes=wrong)
    rank.close()
    print(f"rank {rank.rank}: {number} rounds, {wrong} wrong bytes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
