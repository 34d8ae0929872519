"""Collectives over a Group, on flat arrays of any library.

Each piece of a result is reduced by one rank, in the order of ranks, and then sent to the others:
every rank has the same bits, and every run has, whatever order messages come in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from railhop._transport.group import KINDS, Group
from railhop._transport.native import Operation

OPERATORS = ("sum", "avg", "min", "max", "product", "band", "bor", "bxor")

# Up to here everyone sends everyone all of it: one round trip instead of two.
_SMALL_BYTES = 32 * 1024

(_, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL, REDUCE, GATHER, SCATTER,
 BARRIER) = range(len(KINDS))  # fmt: skip


class Arrays(Protocol):
    """What a library of arrays has to offer. Arrays are flat and contiguous."""

    def memory(self, array: Any) -> tuple[int, int, Any]:
        """Its address, its bytes, and the object that keeps them."""

    def count(self, array: Any) -> int:
        """Its elements."""

    def empty(self, like: Any, count: int) -> Any:
        """A new array of this type."""

    def copy(self, target: Any, source: Any) -> None:
        """Elements of one to the other."""

    def reduce(self, operator: str, parts: Sequence[Any], out: Any) -> None:
        """Out of parts, in their order; `out` may be one of them."""


class Collectives:
    """One caller at a time, and every rank in the same order."""

    def __init__(self, group: Group, arrays: Arrays) -> None:
        self.group = group
        self._arrays = arrays
        self._others = [peer for peer in range(group.size) if peer != group.rank]

    def _exchange(
        self,
        kind: int,
        tag: int,
        sends: Sequence[tuple[int, Any]],
        receives: Sequence[tuple[int, Any]],
    ) -> None:
        """Sends and receives (peer, array), all at once."""
        group = self.group
        started: list[tuple[int, Operation]] = []
        for peer, array in receives:
            started.append((peer, group.receive(peer, kind, tag, self._arrays.memory(array))))
        for peer, array in sends:
            started.append((peer, group.send(peer, kind, tag, self._arrays.memory(array))))
        group.wait(started, KINDS[kind])

    def _pieces(self, array: Any) -> list[Any]:
        """One for each rank, of nearly the same size."""
        count, size = self._arrays.count(array), self.group.size
        ends = [count * rank // size for rank in range(size + 1)]
        return [array[start:end] for start, end in zip(ends, ends[1:])]

    def _reduce_parts(
        self, kind: int, tag: int, out: Any, parts: Sequence[Any], operator: str
    ) -> None:
        """Sends parts[peer] to each peer and reduces what comes for this rank into `out`."""
        mine = parts[self.group.rank]
        come = [
            mine if rank == self.group.rank else self._arrays.empty(mine, self._arrays.count(mine))
            for rank in range(self.group.size)
        ]
        self._exchange(
            kind,
            tag,
            [(peer, parts[peer]) for peer in self._others],
            [(peer, come[peer]) for peer in self._others],
        )
        self._arrays.reduce(operator, come, out)

    def all_reduce(self, array: Any, operator: str) -> None:
        """In place."""
        tag = self.group.next_tag()
        if self.group.size == 1:
            return
        if self._arrays.memory(array)[1] <= _SMALL_BYTES:
            own = self._arrays.empty(array, self._arrays.count(array))
            self._arrays.copy(own, array)
            self._reduce_parts(ALL_REDUCE, tag, array, [own] * self.group.size, operator)
            return
        pieces = self._pieces(array)
        mine = pieces[self.group.rank]
        self._reduce_parts(ALL_REDUCE, tag, mine, pieces, operator)
        self._exchange(
            ALL_REDUCE,
            tag | 1,
            [(peer, mine) for peer in self._others],
            [(peer, pieces[peer]) for peer in self._others],
        )

    def reduce_scatter(self, out: Any, parts: Sequence[Any], operator: str) -> None:
        """`parts`: one array for each rank, as large as its `out`."""
        self._reduce_parts(REDUCE_SCATTER, self.group.next_tag(), out, parts, operator)

    def all_gather(self, outs: Sequence[Any], source: Any) -> None:
        """`outs`: one array for each rank."""
        self._exchange(
            ALL_GATHER,
            self.group.next_tag(),
            [(peer, source) for peer in self._others],
            [(peer, outs[peer]) for peer in self._others],
        )
        self._arrays.copy(outs[self.group.rank], source)

    def broadcast(self, array: Any, root: int) -> None:
        """In place. The root sends each rank one piece, and they send it on to each other."""
        tag = self.group.next_tag()
        group = self.group
        if group.size == 1:
            return
        if group.size == 2 or self._arrays.memory(array)[1] <= _SMALL_BYTES:
            if group.rank == root:
                self._exchange(BROADCAST, tag, [(peer, array) for peer in self._others], [])
            else:
                self._exchange(BROADCAST, tag, [], [(root, array)])
            return
        pieces = self._pieces(array)
        mine = pieces[group.rank]
        if group.rank == root:
            self._exchange(BROADCAST, tag, [(peer, pieces[peer]) for peer in self._others], [])
        else:
            self._exchange(BROADCAST, tag, [], [(root, mine)])
        self._exchange(
            BROADCAST,
            tag | 1,
            [(peer, mine) for peer in self._others if peer != root],
            [(peer, pieces[peer]) for peer in self._others if group.rank != root],
        )

    def all_to_all(self, outs: Sequence[Any], sources: Sequence[Any]) -> None:
        """Both: one array for each rank, of any size."""
        self._exchange(
            ALL_TO_ALL,
            self.group.next_tag(),
            [(peer, sources[peer]) for peer in self._others],
            [(peer, outs[peer]) for peer in self._others],
        )
        self._arrays.copy(outs[self.group.rank], sources[self.group.rank])

    def gather(self, outs: Sequence[Any], source: Any, root: int, kind: int = GATHER) -> None:
        """`outs` is looked at on the root only."""
        tag = self.group.next_tag()
        if self.group.rank != root:
            self._exchange(kind, tag, [(root, source)], [])
            return
        self._exchange(kind, tag, [], [(peer, outs[peer]) for peer in self._others])
        self._arrays.copy(outs[root], source)

    def scatter(self, out: Any, sources: Sequence[Any], root: int) -> None:
        """`sources` is looked at on the root only."""
        tag = self.group.next_tag()
        if self.group.rank != root:
            self._exchange(SCATTER, tag, [], [(root, out)])
            return
        self._exchange(SCATTER, tag, [(peer, sources[peer]) for peer in self._others], [])
        self._arrays.copy(out, sources[root])

    def reduce(self, array: Any, root: int, operator: str) -> None:
        """In place on the root; the others' stay as they are."""
        if self.group.rank != root:
            self.gather([], array, root, REDUCE)
            return
        count = self._arrays.count(array)
        parts = [self._arrays.empty(array, count) for _ in range(self.group.size)]
        self.gather(parts, array, root, REDUCE)
        self._arrays.reduce(operator, parts, array)

    def barrier(self) -> None:
        """Until every rank has called it."""
        tag = self.group.next_tag()
        nothing = bytearray(1)
        started: list[tuple[int, Operation]] = []
        for peer in self._others:
            started.append((peer, self.group.receive(peer, BARRIER, tag, (0, 0, nothing))))
        for peer in self._others:
            started.append((peer, self.group.send(peer, BARRIER, tag, (0, 0, nothing))))
        self.group.wait(started, "barrier")
