"""Work that goes on for seconds while faults come and go, every round of it checked on the GPU.

One round is one step of the work: a collective with its own data, a pass through a pipeline, a step
of training. The data of the last rounds is told apart (SOURCES sets of it in turn) and targets are
spoilt in between, so that a stale, lost or doubled piece cannot look right. While it runs, each
rank prints marks, so that the steps of a job that dies are known as well:

    {"mark": round, "rounds": [[start, seconds], ...]}      (start: CLOCK_MONOTONIC, s)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from integration.gpu.tensors import DTYPE, Model, digest, filled, same_bits_each_time

# No divisor of the number of pieces that NCCL keeps in its staging buffers (8).
SOURCES = 5
# A rank asks whether to go on every so many rounds.
ASK_EVERY = 4
MARK_EVERY_S = 0.05


class Work:
    """Base: what one round does, and what is known of it in the end."""

    def __init__(self) -> None:
        self.wrong = torch.zeros((), dtype=torch.int64, device="cuda")

    def once(self, number: int) -> None:
        """Round `number`; its end may still be under way on the GPU."""
        raise NotImplementedError

    def check(self, number: int) -> None:
        """Compares round `number` with what it had to give."""

    def result(self) -> dict[str, Any]:
        """For the answer: `digests` of all reference data."""
        raise NotImplementedError


class Exchange(Work):
    """Rounds whose results are some tensors, one reference for each set of sources."""

    def __init__(self, counts: list[int], seed: int) -> None:
        super().__init__()
        self.sources = [
            [filled(count, seed * 100 + turn * 10 + i) for i, count in enumerate(counts)]
            for turn in range(SOURCES)
        ]
        self.targets = [torch.empty(count, device="cuda", dtype=DTYPE) for count in counts]
        self.references: list[list[torch.Tensor]] = []

    def prepare(self) -> Exchange:
        """One round with each set of sources, kept as reference; the runner compares digests."""
        for turn in range(SOURCES):
            self.once(turn)
            torch.cuda.synchronize()
            self.references.append([target.clone() for target in self.targets])
        return self

    def check(self, number: int) -> None:
        for target, reference in zip(self.targets, self.references[number % SOURCES], strict=True):
            self.wrong += (target.view(torch.int32) != reference.view(torch.int32)).sum()

    def result(self) -> dict[str, Any]:
        return {"digests": [digest(*reference) for reference in self.references]}


class AllReduce(Exchange):
    """Sums 16 MiB and a bit."""

    def __init__(self) -> None:
        super().__init__([(4 << 20) + 37], 1)

    def once(self, number: int) -> None:
        self.targets[0].copy_(self.sources[number % SOURCES][0])
        dist.all_reduce(self.targets[0])


class Broadcast(Exchange):
    """New weights from rank 0: tensors of many sizes, most of them odd."""

    def __init__(self) -> None:
        super().__init__([1, 257, 65_537, 1_000_003, 1 << 20, 2_500_001], 2)

    def once(self, number: int) -> None:
        for target, source in zip(self.targets, self.sources[number % SOURCES], strict=True):
            if dist.get_rank() == 0:
                target.copy_(source)
            else:
                target.fill_(float("nan"))
            dist.broadcast(target, src=0)


class Pipeline(Exchange):
    """Rank 0 sends activations of four micro-batches on, and gets a small answer for each."""

    BATCHES = 4
    COUNT = 1_000_033
    ANSWER = 16_411

    def __init__(self) -> None:
        count = self.COUNT if dist.get_rank() == 1 else self.ANSWER
        super().__init__([self.COUNT] * self.BATCHES, 3)
        self.targets = [torch.empty(count, device="cuda", dtype=DTYPE) for _ in range(self.BATCHES)]

    def once(self, number: int) -> None:
        for target in self.targets:
            target.fill_(float("nan"))
        if dist.get_rank() == 0:
            for source in self.sources[number % SOURCES]:
                dist.send(source, dst=1)
            for target in self.targets:
                dist.recv(target, src=1)
        else:
            for target in self.targets:
                dist.recv(target, src=0)
            for target in self.targets:
                dist.send(target[: self.ANSWER] * 2, dst=0)


class AllToAll(Exchange):
    """Both ranks swap halves of 16 MiB."""

    def __init__(self) -> None:
        super().__init__([2 * ((2 << 20) + 19)], 4)

    def once(self, number: int) -> None:
        self.targets[0].fill_(float("nan"))
        dist.all_to_all_single(self.targets[0], self.sources[number % SOURCES][0])


class Training(Work):
    """Steps of DDP; results are the losses, and sums of the weights' bits every SUM_EVERY steps."""

    SUM_EVERY = 50

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        same_bits_each_time()
        self.model = nn.parallel.DistributedDataParallel(Model().cuda())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.generator = torch.Generator(device="cuda").manual_seed(11 + dist.get_rank())
        self.losses: list[str] = []
        self.sums: list[int] = []

    def once(self, number: int) -> None:
        tokens = torch.randint(0, 256, (8, 129), generator=self.generator, device="cuda")
        tokens = tokens // 8 * 8  # something to learn
        logits = self.model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(float(loss.detach()).hex())

    def check(self, number: int) -> None:
        if number % self.SUM_EVERY == 0:
            total = torch.zeros((), dtype=torch.int64, device="cuda")
            for weight in self.model.parameters():
                total += weight.detach().view(torch.int32).sum(dtype=torch.int64)
            self.sums.append(int(total))

    def result(self) -> dict[str, Any]:
        return {"losses": self.losses, "sums": self.sums}


def make(name: str) -> Work:
    """The work of this name."""
    if name == "ddp":
        return Training()
    exchanges = {
        "all_reduce": AllReduce,
        "broadcast": Broadcast,
        "send_recv": Pipeline,
        "all_to_all": AllToAll,
    }
    if name not in exchanges:
        raise ValueError(f"no work '{name}'; there are ddp, {', '.join(exchanges)}")
    return exchanges[name]().prepare()


def run(
    command: dict[str, Any], store: dist.Store, say: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Rounds until `seconds` have passed or `rounds` are done; rank 0 decides, by the store."""
    work = make(command["name"])
    key, limit, most = command["key"], float(command["seconds"]), int(command["rounds"])
    torch.cuda.synchronize()
    begun = last = time.monotonic()
    fresh: list[list[float]] = []
    number = 0
    while _goes_on(store, key, number, begun + limit, most):
        start = time.monotonic()
        work.once(number)
        torch.cuda.synchronize()
        end = time.monotonic()
        work.check(number)
        fresh.append([round(start, 6), round(end - start, 6)])
        number += 1
        if end - last >= MARK_EVERY_S or number == 1:
            say({"mark": number, "rounds": fresh})
            fresh, last = [], end
    say({"mark": number, "rounds": fresh})
    torch.cuda.synchronize()
    return {"rounds": number, "wrong": int(work.wrong), **work.result()}


def _goes_on(store: dist.Store, key: str, number: int, until: float, most: int) -> bool:
    if number % ASK_EVERY != 0:
        return True
    name = f"{key}/{number}"
    if dist.get_rank() == 0:
        going = number < most and time.monotonic() < until
        store.set(name, "on" if going else "end")
        return going
    return bool(store.get(name) == b"on")
