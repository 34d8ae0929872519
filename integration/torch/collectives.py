"""One rank: every collective of backend railhop against gloo's result, over types and shapes.

Prints a JSON line with how many were compared. What gloo cannot do (AVG, some types) is compared
with gloo's all-gather of the inputs and the same reduction in float64.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import railhop.torch  # noqa: F401
import torch
import torch.distributed as dist

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SHAPES: Sequence[tuple[int, ...]] = ((), (0,), (1,), (5,), (3, 7), (4, 0, 2), (33_000,), (401, 97))


class Compare:
    """Runs collectives on both groups."""

    def __init__(self) -> None:
        dist.init_process_group("railhop")
        self.gloo = dist.new_group(backend="gloo")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.count = 0
        self._generator = torch.Generator().manual_seed(5)

    def make(self, shape: tuple[int, ...], dtype: torch.dtype, *, own: bool = True) -> torch.Tensor:
        """Small whole numbers, different on each rank: exact in every type."""
        numbers = torch.randint(1, 4, shape, generator=self._generator)
        if own:
            numbers = (numbers + self.rank) % 3 + 1
        return numbers.to(dtype)

    def equal(self, what: str, mine: torch.Tensor, right: torch.Tensor) -> None:
        self.count += 1
        if not torch.equal(mine, right):
            raise AssertionError(f"{what}, rank {self.rank}: {mine} where gloo has {right}")

    def gathered(self, tensor: torch.Tensor) -> torch.Tensor:
        """Of all ranks, by gloo, in float64."""
        source = tensor.double().contiguous()
        outs = [torch.empty_like(source) for _ in range(self.size)]
        dist.all_gather(outs, source, group=self.gloo)
        return torch.stack(outs)

    def reductions(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        reduce: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "SUM": lambda all_: all_.sum(0),
            "PRODUCT": lambda all_: all_.prod(0),
            "MIN": lambda all_: all_.amin(0),
            "MAX": lambda all_: all_.amax(0),
            "AVG": lambda all_: (
                all_.mean(0) if dtype.is_floating_point else torch.trunc(all_.mean(0))
            ),
        }
        for name, right in reduce.items():
            operator = getattr(dist.ReduceOp, name)
            what = f"{name} of {dtype} {shape}"
            tensor = self.make(shape, dtype)
            expected = right(self.gathered(tensor)).to(dtype)
            mine = tensor.clone()
            dist.all_reduce(mine, operator)
            self.equal(f"all_reduce {what}", mine, expected)
            if name != "AVG" and dtype in (torch.float32, torch.float64, torch.int64):
                other = tensor.clone()
                dist.all_reduce(other, operator, group=self.gloo)
                self.equal(f"gloo's all_reduce {what}", mine, other)
            mine = tensor.clone()
            dist.reduce(mine, self.size - 1, operator)
            own = self.rank == self.size - 1
            self.equal(f"reduce {what}", mine, expected if own else tensor)
            whole = torch.stack([self.make(shape, dtype) for _ in range(self.size)])
            right_part = right(self.gathered(whole))[self.rank].to(dtype)
            part = torch.empty(shape, dtype=dtype)
            dist.reduce_scatter(part, list(whole), operator)
            self.equal(f"reduce_scatter {what}", part, right_part)
            if shape:
                flat = torch.empty_like(part)
                dist.reduce_scatter_tensor(flat, whole.flatten(0, 1), operator)
                self.equal(f"reduce_scatter_tensor {what}", flat, right_part)

    def movements(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        what = f"of {dtype} {shape}"
        size, rank = self.size, self.rank
        tensor = self.make(shape, dtype)
        everyone = self.gathered(tensor).to(dtype)
        outs = [torch.empty_like(tensor) for _ in range(size)]
        dist.all_gather(outs, tensor)
        self.equal(f"all_gather {what}", torch.stack(outs), everyone)
        if shape:
            joined = torch.empty((size * shape[0], *shape[1:]), dtype=dtype)
            dist.all_gather_into_tensor(joined, tensor)
            self.equal(f"all_gather_into_tensor {what}", joined, everyone.flatten(0, 1))
        for root in {0, size - 1}:
            mine = tensor.clone()
            dist.broadcast(mine, root)
            self.equal(f"broadcast {what}", mine, everyone[root])
        outs = [torch.empty_like(tensor) for _ in range(size)]
        dist.gather(tensor, outs if rank == 0 else None, 0)
        if rank == 0:
            self.equal(f"gather {what}", torch.stack(outs), everyone)
        mine = torch.empty_like(tensor)
        dist.scatter(mine, [tensor + i for i in range(size)] if rank == 0 else None, 0)
        self.equal(f"scatter {what}", mine, everyone[0] + rank)
        dist.all_to_all(outs, [tensor + i for i in range(size)])
        self.equal(f"all_to_all {what}", torch.stack(outs), everyone + rank)
        if shape:
            source = torch.cat([tensor] * size)
            swapped = torch.empty_like(source)
            dist.all_to_all_single(swapped, source)
            self.equal(f"all_to_all_single {what}", swapped, everyone.flatten(0, 1))

    def uneven_all_to_all(self) -> None:
        size, rank = self.size, self.rank
        source = torch.arange(float(size * (size + 1) // 2 * 3)).reshape(-1, 3) + 100 * rank
        give = [peer + 1 for peer in range(size)]
        take = [rank + 1] * size
        mine, right = torch.empty(sum(take), 3), torch.empty(sum(take), 3)
        dist.all_to_all_single(mine, source, take, give)
        dist.all_to_all_single(right, source, take, give, group=self.gloo)
        self.equal("uneven all_to_all_single", mine, right)

    def not_contiguous(self) -> None:
        tensor = self.make((60, 50), torch.float32).t()
        expected = self.gathered(tensor).sum(0).float()
        dist.all_reduce(tensor)
        self.equal("all_reduce of a transposed tensor", tensor, expected)
        wide = self.make((40, 90), torch.bfloat16)
        right = self.gathered(wide[:, ::3])[0].bfloat16()
        before = wide.clone()
        dist.broadcast(wide[:, ::3], 0)
        self.equal("broadcast of every third column", wide[:, ::3], right)
        self.equal("the columns between", wide[:, 1::3], before[:, 1::3])

    def bits(self) -> None:
        flags = self.make((77,), torch.int32) > 2
        expected = self.gathered(flags).amax(0).bool()
        mine = flags.clone()
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        self.equal("MAX of bool", mine, expected)
        numbers = self.make((1000,), torch.int32)
        for operator in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
            mine, right = numbers.clone(), numbers.clone()
            dist.all_reduce(mine, operator)
            dist.all_reduce(right, operator, group=self.gloo)
            self.equal(str(operator), mine, right)
        waves = torch.complex(self.make((9,), torch.float32), self.make((9,), torch.float32))
        mine, right = waves.clone(), waves.clone()
        dist.all_reduce(mine)
        dist.all_reduce(right, group=self.gloo)
        self.equal("SUM of complex64", mine, right)

    def messages(self) -> None:
        """Around the ring, in an order that would hang if sends waited for receives."""
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for shape in SHAPES:
            tensor = self.make(shape, torch.float32)
            expected = self.gathered(tensor)[before].float()
            mine = torch.empty_like(tensor)
            sent = dist.isend(tensor, after)
            assert sent is not None
            dist.recv(mine, before)
            sent.wait()
            self.equal(f"send of {shape}", mine, expected)
        numbers = [torch.full((i + 1,), float(i)) for i in range(5)]
        sends = [dist.isend(one, after, tag=i) for i, one in enumerate(numbers)]
        mine = [torch.empty(i + 1) for i in range(5)]
        receives = [dist.irecv(mine[i], before, tag=i) for i in reversed(range(5))]
        for work in [*receives, *sends]:
            assert work is not None
            work.wait()
        for i in range(5):
            self.equal(f"tag {i}", mine[i], numbers[i])
        anyone = torch.empty(3)
        if self.rank == 0:
            for _ in range(self.size - 1):
                source = dist.recv(anyone, tag=9)
                self.equal("recv from anyone", anyone, torch.full((3,), float(source)))
        else:
            dist.send(torch.full((3,), float(self.rank)), 0, tag=9)
        both = [
            dist.P2POp(dist.isend, numbers[4], after),
            dist.P2POp(dist.irecv, mine[4].zero_(), before),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        self.equal("batch_isend_irecv", mine[4], numbers[4])

    def asynchronous(self) -> None:
        """Many at once finish in order, and each gives its own result."""
        tensors = [self.make((1 + 5000 * i,), torch.float32) for i in range(8)]
        expected = [self.gathered(tensor).sum(0).float() for tensor in tensors]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in reversed(works):
            assert work is not None
            work.wait()
            assert work.is_completed()
        for mine, right in zip(tensors, expected):
            self.equal("asynchronous all_reduce", mine, right)
        future = dist.all_reduce(tensors[0], async_op=True)
        assert future is not None
        doubled = future.get_future().then(lambda done: done.value()[0] * 2).wait()
        self.equal("then", doubled, tensors[0] * 2)

    def subgroups(self) -> None:
        evens = list(range(0, self.size, 2))
        odds = list(range(1, self.size, 2))
        groups = [dist.new_group(ranks, backend="railhop") for ranks in (evens, odds) if ranks]
        for ranks, group in zip((evens, odds), groups):
            if self.rank not in ranks:
                continue
            mine = torch.full((5000,), float(self.rank))
            dist.all_reduce(mine, group=group)
            self.equal(f"all_reduce in {ranks}", mine, torch.full((5000,), float(sum(ranks))))
            mine = torch.full((3,), float(self.rank))
            dist.broadcast(mine, ranks[-1], group=group)
            self.equal(f"broadcast in {ranks}", mine, torch.full((3,), float(ranks[-1])))

    def objects(self) -> None:
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, {"rank": self.rank})
        assert everyone == [{"rank": rank} for rank in range(self.size)]
        self.count += 1

    def refusals(self) -> None:
        for call, word in (
            (lambda: dist.all_reduce(torch.zeros(3, device="meta")), "CPU tensors"),
            (lambda: dist.all_reduce(torch.eye(3).to_sparse()), "dense"),
            (lambda: dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(5)), ""),
        ):
            try:
                call()
            except (ValueError, RuntimeError, NotImplementedError) as error:
                assert word in str(error), error
                self.count += 1
                continue
            raise AssertionError(f"not refused: {word}")


def main() -> int:
    torch.set_num_threads(1)
    compare = Compare()
    for dtype in (*FLOATS, *INTEGERS):
        for shape in SHAPES:
            compare.reductions(shape, dtype)
            compare.movements(shape, dtype)
    compare.uneven_all_to_all()
    compare.not_contiguous()
    compare.bits()
    compare.messages()
    compare.asynchronous()
    compare.subgroups()
    compare.objects()
    compare.refusals()
    dist.barrier()
    print(json.dumps({"compared": compare.count}), flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
