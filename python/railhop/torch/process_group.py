"""The c10d backend `railhop`: CPU tensors over the plugin's own ABI.

It is for rehearsals: scripts of DDP or FSDP run unchanged but for the backend's name, without a
GPU, over a software fabric whose links can be made to fail. The results are the same to the last
bit, with faults and without (railhop._transport.collectives says why).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import distributed as dist

from railhop._transport.collectives import Collectives
from railhop._transport.group import KINDS, Group
from railhop._transport.native import Operation
from railhop.torch.tensors import TensorArrays, flat, operator_of, put_back
from railhop.torch.work import MessageWork, QueuedWork, Worker

__all__ = ["ProcessGroupRailhop", "groups", "register"]

NAME = "railhop"
_MESSAGE = 0  # of KINDS

_groups: list[ProcessGroupRailhop] = []


def groups() -> list[ProcessGroupRailhop]:
    """The groups of this process that are open, in the order in which they were made.

    Example:
        >>> [group.getBackendName() for group in railhop.torch.groups()]
        ['railhop']
    """
    return list(_groups)


class ProcessGroupRailhop(dist.ProcessGroup):
    """A process group of backend `railhop`: CPU tensors over the plugin's own ABI.

    `init_process_group("railhop")` and `new_group(backend="railhop")` make it; torch.distributed
    calls it. Results are the same to the last bit, with faults and without. For rehearsals: jobs
    on GPUs use NCCL, which loads Railhop as its plugin.

    Example:
        >>> ones = torch.ones(3)
        >>> dist.all_reduce(ones)
        >>> ones
        tensor([2., 2., 2.])
        >>> pair = dist.new_group(backend="railhop")
        >>> work = dist.broadcast(ones, 0, group=pair, async_op=True)
        >>> work.wait()
        True
        >>> dist.destroy_process_group(pair)
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self._name = ""
        self._desc = ""
        self._timeout_s = timeout.total_seconds()
        self.group = Group(rank, size, store, timeout_s=self._timeout_s)
        self._collectives = Collectives(self.group, TensorArrays())
        self._worker: Optional[Worker] = Worker(f"railhop-group-{rank}")
        _groups.append(self)

    # ---- What c10d asks of a group.

    def getBackendName(self) -> str:  # noqa: N802 (c10d's name)
        return NAME

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupDesc(self, desc: str) -> None:  # noqa: N802
        self._desc = desc

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._desc

    def shutdown(self) -> None:
        """Ends what is under way, says goodbye to the others. May be repeated.

        `destroy_process_group` calls it, and forgets the group as well.

        Example:
            >>> other = dist.new_group(backend="railhop")
            >>> len(railhop.torch.groups())
            2
            >>> railhop.torch.groups()[-1].shutdown()
            >>> len(railhop.torch.groups())
            1
        """
        self._end(2.0)

    def abort(self) -> None:
        """As shutdown, but waits for nobody: what is under way fails.

        Example:
            >>> other = dist.new_group(backend="railhop")
            >>> railhop.torch.groups()[-1].abort()
            >>> len(railhop.torch.groups())
            1
        """
        self._end(0.0)

    def _end(self, goodbye_s: float) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if goodbye_s > 0:
            worker.stop(goodbye_s)
        self.group.close(goodbye_s)
        worker.stop(5.0)
        if self in _groups:
            _groups.remove(self)

    # ---- Collectives.

    def _queue(
        self,
        run: Callable[[], None],
        results: Sequence[torch.Tensor],
        backs: Sequence[tuple[torch.Tensor, torch.Tensor]],
    ) -> QueuedWork:
        """Backs: (tensor, its flat array) of what `run` fills."""
        if self._worker is None:
            raise RuntimeError("the process group has been shut down")

        def whole() -> None:
            run()
            for tensor, array in backs:
                put_back(tensor, array)

        return self._worker.submit(QueuedWork(whole, results))

    def _all_reduce(self, tensors: Sequence[torch.Tensor], operator: Any) -> QueuedWork:
        name = operator_of(operator)
        arrays = [flat(tensor) for tensor in tensors]

        def run() -> None:
            for array in arrays:
                self._collectives.all_reduce(array, name)

        return self._queue(run, tensors, list(zip(tensors, arrays)))

    def allreduce(self, tensors: Any, opts: Any = None) -> QueuedWork:
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        operator = dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)
        return self._all_reduce(tensors, operator)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> QueuedWork:
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any) -> QueuedWork:
        arrays = [flat(tensor) for tensor in tensors]
        root = int(opts.rootRank)

        def run() -> None:
            for array in arrays:
                self._collectives.broadcast(array, root)

        return self._queue(run, tensors, list(zip(tensors, arrays)))

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> QueuedWork:
        arrays = [flat(tensor) for tensor in tensors]
        root, name = int(opts.rootRank), operator_of(opts.reduceOp)

        def run() -> None:
            for array in arrays:
                self._collectives.reduce(array, root, name)

        return self._queue(run, tensors, list(zip(tensors, arrays)))

    def _all_gather(self, outs: list[list[torch.Tensor]], sources: Any) -> QueuedWork:
        pairs = [([flat(one) for one in group], flat(src)) for group, src in zip(outs, sources)]

        def run() -> None:
            for arrays, source in pairs:
                self._collectives.all_gather(arrays, source)

        backs = [
            (tensor, array)
            for group, (arrays, _) in zip(outs, pairs)
            for tensor, array in zip(group, arrays)
        ]
        return self._queue(run, [one for group in outs for one in group], backs)

    def allgather(self, outs: Any, sources: Any, opts: Any = None) -> QueuedWork:
        return self._all_gather(outs, sources)

    def allgather_coalesced(self, outs: Any, sources: Any, opts: Any = None) -> QueuedWork:
        by_source = [[group[i] for group in outs] for i in range(len(sources))]
        return self._all_gather(by_source, sources)

    def _gather_tensors(self, outs: Sequence[Any], sources: Sequence[Any]) -> QueuedWork:
        """Each `out` holds the source of every rank, one after the other."""
        arrays = [flat(out) for out in outs]
        pairs = [(self._split(out), flat(source)) for out, source in zip(arrays, sources)]
        for (parts, source), out in zip(pairs, outs):
            self._require_equal("all_gather", parts[0], source, out)

        def run() -> None:
            for parts, source in pairs:
                self._collectives.all_gather(parts, source)

        return self._queue(run, outs, list(zip(outs, arrays)))

    def _allgather_base(self, out: Any, source: Any, opts: Any = None) -> QueuedWork:
        return self._gather_tensors([out], [source])

    def allgather_into_tensor_coalesced(
        self, outs: Any, sources: Any, opts: Any = None
    ) -> QueuedWork:
        return self._gather_tensors(outs, sources)

    def _split(self, array: torch.Tensor) -> list[torch.Tensor]:
        """One equal piece for each rank."""
        size = self.group.size
        if array.numel() % size:
            raise ValueError(f"{array.numel()} elements cannot be shared by {size} ranks")
        return list(array.split(array.numel() // size)) if array.numel() else [array] * size

    @staticmethod
    def _require_equal(what: str, one: torch.Tensor, other: torch.Tensor, shown: Any) -> None:
        if one.numel() != other.numel() or one.dtype != other.dtype:
            raise ValueError(
                f"{what}: {other.numel()} elements of {other.dtype} do not fit "
                f"{tuple(shown.shape)} of {shown.dtype}"
            )

    def reduce_scatter(self, outs: Any, sources: Any, opts: Any) -> QueuedWork:
        name = operator_of(opts.reduceOp)
        arrays = [flat(out) for out in outs]
        parts = [[flat(one) for one in group] for group in sources]

        def run() -> None:
            for out, mine in zip(arrays, parts):
                self._collectives.reduce_scatter(out, mine, name)

        return self._queue(run, outs, list(zip(outs, arrays)))

    def _scatter_tensors(
        self, outs: Sequence[Any], sources: Sequence[Any], operator: Any
    ) -> QueuedWork:
        name = operator_of(operator)
        arrays = [flat(out) for out in outs]
        parts = [self._split(flat(source)) for source in sources]
        for out, mine, source in zip(arrays, parts, sources):
            self._require_equal("reduce_scatter", mine[0], out, source)

        def run() -> None:
            for out, mine in zip(arrays, parts):
                self._collectives.reduce_scatter(out, mine, name)

        return self._queue(run, outs, list(zip(outs, arrays)))

    def _reduce_scatter_base(self, out: Any, source: Any, opts: Any) -> QueuedWork:
        return self._scatter_tensors([out], [source], opts.reduceOp)

    def reduce_scatter_tensor_coalesced(self, outs: Any, sources: Any, opts: Any) -> QueuedWork:
        return self._scatter_tensors(outs, sources, opts.reduceOp)

    def alltoall(self, outs: Any, sources: Any, opts: Any = None) -> QueuedWork:
        arrays = [flat(out) for out in outs]
        parts = [flat(source) for source in sources]
        run = lambda: self._collectives.all_to_all(arrays, parts)  # noqa: E731
        return self._queue(run, outs, list(zip(outs, arrays)))

    def alltoall_base(
        self, out: Any, source: Any, out_sizes: Any, source_sizes: Any, opts: Any = None
    ) -> QueuedWork:
        array = flat(out)
        outs = self._split_by(array, out, out_sizes)
        parts = self._split_by(flat(source), source, source_sizes)
        run = lambda: self._collectives.all_to_all(outs, parts)  # noqa: E731
        return self._queue(run, [out], [(out, array)])

    def _split_by(self, array: torch.Tensor, tensor: Any, sizes: Any) -> list[torch.Tensor]:
        """Sizes: rows of the tensor for each rank; equal if there are none."""
        if not sizes:
            return self._split(array)
        rows = tensor.shape[0] if tensor.dim() else 1
        if sum(sizes) != rows:
            raise ValueError(f"all_to_all: split sizes {list(sizes)} do not add up to {rows} rows")
        row = array.numel() // rows if rows else 0
        return list(array.split([size * row for size in sizes]))

    def gather(self, outs: Any, sources: Any, opts: Any) -> QueuedWork:
        root, source = int(opts.rootRank), flat(sources[0])
        tensors = outs[0] if outs else []
        arrays = [flat(out) for out in tensors]
        run = lambda: self._collectives.gather(arrays, source, root)  # noqa: E731
        return self._queue(run, tensors, list(zip(tensors, arrays)))

    def scatter(self, outs: Any, sources: Any, opts: Any) -> QueuedWork:
        root, out = int(opts.rootRank), flat(outs[0])
        parts = [flat(source) for source in sources[0]] if sources else []
        run = lambda: self._collectives.scatter(out, parts, root)  # noqa: E731
        return self._queue(run, outs, [(outs[0], out)])

    def barrier(self, opts: Any = None) -> QueuedWork:
        return self._queue(self._collectives.barrier, [], [])

    # ---- Messages.

    def _message(
        self, operation: Operation, peer: int, tensor: torch.Tensor, array: torch.Tensor
    ) -> MessageWork:
        def finish(operations: Sequence[Operation], timeout_s: Optional[float]) -> None:
            self.group.wait([(peer, one) for one in operations], KINDS[_MESSAGE], timeout_s)
            put_back(tensor, array)

        return MessageWork([operation], [tensor], finish)

    def send(self, tensors: Sequence[torch.Tensor], peer: int, tag: int = 0) -> MessageWork:
        array = flat(tensors[0])
        memory = TensorArrays().memory(array)
        # What is sent is not put back.
        return self._message(self.group.send(peer, _MESSAGE, tag, memory), peer, array, array)

    def recv(self, tensors: Sequence[torch.Tensor], peer: int, tag: int = 0) -> MessageWork:
        array = flat(tensors[0])
        memory = TensorArrays().memory(array)
        operation = self.group.receive(peer, _MESSAGE, tag, memory)
        return self._message(operation, peer, tensors[0], array)

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> MessageWork:
        return self.recv(tensors, -1, tag)


def _create(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> ProcessGroupRailhop:
    return ProcessGroupRailhop(store, rank, size, timeout)


def register() -> None:
    """Makes `init_process_group("railhop")` work. Importing railhop.torch does it; may be repeated.

    Example:
        >>> railhop.torch.register()
        >>> dist.is_backend_available("railhop")
        True
    """
    if NAME.upper() not in getattr(dist.Backend, "_plugins", {}):
        dist.Backend.register_backend(NAME, _create, devices=["cpu"])
