"""One rank of the demo's training: a small model, each rank with its own data.

With torch it is an ordinary DDP script, over backend `railhop` or, on GPUs, over NCCL with Railhop
as its plugin. Without torch the same steps are done in NumPy. Rank 0 notes each step in the file
that RAILHOP_DRILL_LOG names. Steps are paced, as if they computed more: so every run is long enough
for what happens in it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import sys
import time
import traceback
from typing import Any

INPUTS, HIDDEN, OUTPUTS, BATCH = 64, 512, 64, 32
LEARNING_RATE = 0.05


class Log:
    """Paces the steps and notes them."""

    def __init__(self, rank: int, period_s: float) -> None:
        self._rank = rank
        self._period_s = period_s
        self._path = pathlib.Path(os.environ["RAILHOP_DRILL_LOG"])
        self._start = time.monotonic()
        self._began = self._start

    def step(self, number: int, loss: float) -> None:
        """A step has ended."""
        now = time.monotonic()
        ms = (now - self._began) * 1e3
        if self._rank == 0:
            entry = {"step": number, "ms": ms, "loss": loss, "time_unix_ns": time.time_ns()}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        due = self._start + (number + 1) * self._period_s
        if due > now:
            time.sleep(due - now)
        else:
            self._start += now - due  # A busy machine: the rest is as long as it would have been.
        self._began = time.monotonic()


def train_torch(args: argparse.Namespace, rank: int, world: int) -> None:
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    torch.set_num_threads(1)
    if args.arrays == "nccl":
        # Hosts of their own: else NCCL would not use the network.
        os.environ["NCCL_HOSTID"] = f"railhop-host-{rank}"
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        # The rank that hears nothing of the fault waits that long.
        dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=30))
    else:
        import railhop.torch  # noqa: F401, PLC0415

        device = torch.device("cpu")
        dist.init_process_group("railhop")
    torch.manual_seed(3)
    model: Any = nn.Sequential(
        nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(),
        nn.Linear(HIDDEN, OUTPUTS),
    )  # fmt: skip
    model = nn.parallel.DistributedDataParallel(model.to(device))
    teacher = torch.randn(INPUTS, OUTPUTS) / INPUTS**0.5
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + rank)
    log = Log(rank, args.period)
    for number in range(args.steps):
        inputs = torch.randn(BATCH, INPUTS, generator=generator)
        targets = torch.tanh(inputs @ teacher)
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.step(number, loss.item())
    dist.barrier()
    dist.destroy_process_group()


def train_numpy(args: argparse.Namespace, rank: int, world: int) -> None:
    import numpy  # noqa: PLC0415
    from railhop._transport.collectives import Collectives  # noqa: PLC0415
    from railhop._transport.group import FolderStore, Group  # noqa: PLC0415
    from railhop._transport.numpy_arrays import NumpyArrays  # noqa: PLC0415

    folder = pathlib.Path(os.environ["RAILHOP_DRILL_LOG"]).parent
    group = Group(rank, world, FolderStore(str(folder)), timeout_s=600)
    talk = Collectives(group, NumpyArrays())
    start = numpy.random.default_rng(3)
    shapes = [(INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, OUTPUTS)]
    weights = [(start.standard_normal(s) / s[0] ** 0.5).astype(numpy.float32) for s in shapes]
    speeds = [numpy.zeros_like(weight) for weight in weights]
    teacher = (start.standard_normal((INPUTS, OUTPUTS)) / INPUTS**0.5).astype(numpy.float32)
    data = numpy.random.default_rng(100 + rank)
    log = Log(rank, args.period)
    for number in range(args.steps):
        inputs = data.standard_normal((BATCH, INPUTS)).astype(numpy.float32)
        first = numpy.tanh(inputs @ weights[0])
        second = numpy.tanh(first @ weights[1])
        error = second @ weights[2] - numpy.tanh(inputs @ teacher)
        loss = float((error**2).mean())
        back = error * numpy.float32(2 / error.size)
        back_second = (back @ weights[2].T) * (1 - second**2)
        back_first = (back_second @ weights[1].T) * (1 - first**2)
        gradients = [inputs.T @ back_first, first.T @ back_second, second.T @ back]
        flat = numpy.concatenate([gradient.ravel() for gradient in gradients])
        talk.all_reduce(flat, "avg")
        place = 0
        for index, weight in enumerate(weights):
            gradient = flat[place : place + weight.size].reshape(weight.shape)
            speeds[index] = numpy.float32(0.9) * speeds[index] + gradient
            weights[index] = weight - numpy.float32(LEARNING_RATE) * speeds[index]
            place += weight.size
        log.step(number, loss)
    talk.barrier()
    group.close(10.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrays", choices=("torch", "numpy", "nccl"), required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--period", type=float, required=True, help="seconds of a step, at least")
    args = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    status = 0
    try:
        (train_numpy if args.arrays == "numpy" else train_torch)(args, rank, world)
    except Exception:
        traceback.print_exc()
        status = 1
    # All is closed, or has failed: torch takes seconds to unload its libraries, which would be
    # seconds of silence at the end of each picture.
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
