"""One rank of a job on real NCCL: takes commands on standard input, answers one JSON line each.

The runner keeps jobs over different transports alive side by side and gives them the same commands
in turn, so that both meet the same noise. Commands are JSON objects with `do`:

  collective  name, bytes, rounds: runs it, returns seconds of each round and a digest of the result
  train       kind (ddp or fsdp), steps: trains a small transformer, returns each step's loss
  groups      bytes: several communicators at once, returns a digest
  steady      name, seconds, rounds, key: work that goes on while faults come and go (steady.py)
  quit
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import nn

from integration.gpu import steady
from integration.gpu.tensors import DTYPE, Model, digest, filled, same_bits_each_time


def make_collective(name: str, nbytes: int) -> tuple[Callable[[], None], Callable[[], str]]:
    """What one round does, and the digest of its result. `nbytes` is what one rank puts in."""
    world, rank = dist.get_world_size(), dist.get_rank()
    count = max(nbytes // DTYPE.itemsize, world) // world * world
    source = filled(count, nbytes)
    if name == "all_reduce":
        target = torch.empty_like(source)

        def all_reduce() -> None:
            target.copy_(source)
            dist.all_reduce(target)

        return all_reduce, lambda: digest(target)
    if name == "all_gather":
        gathered = torch.empty(count * world, device="cuda", dtype=DTYPE)
        return lambda: dist.all_gather_into_tensor(gathered, source), lambda: digest(gathered)
    if name == "reduce_scatter":
        part = torch.empty(count // world, device="cuda", dtype=DTYPE)
        return lambda: dist.reduce_scatter_tensor(part, source), lambda: digest(part)
    if name == "broadcast":
        copy = torch.empty_like(source)

        def broadcast() -> None:
            copy.copy_(source)
            dist.broadcast(copy, src=0)

        return broadcast, lambda: digest(copy)
    if name == "send_recv":
        received = torch.empty_like(source)

        def send_recv() -> None:
            peer = (rank + 1) % world
            before = (rank - 1) % world
            both = [dist.P2POp(dist.isend, source, peer), dist.P2POp(dist.irecv, received, before)]
            for work in dist.batch_isend_irecv(both):
                work.wait()

        return send_recv, lambda: digest(received)
    if name == "all_to_all":
        swapped = torch.empty_like(source)
        return lambda: dist.all_to_all_single(swapped, source), lambda: digest(swapped)
    raise ValueError(f"no collective '{name}'")


def run_collective(command: dict[str, Any]) -> dict[str, Any]:
    """Times `rounds` rounds, each with the GPU idle before and after."""
    once, result = make_collective(command["name"], command["bytes"])
    once()  # connections and buffers
    torch.cuda.synchronize()
    seconds = []
    for _ in range(command["rounds"]):
        start = time.perf_counter()
        once()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "digest": result()}


def wrap(kind: str, model: nn.Module) -> nn.Module:
    """The model under DDP or FSDP2."""
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 (torch 2.4 or later)

        for layer in model.layers.layers:
            fully_shard(layer)
        return fully_shard(model)
    raise ValueError(f"no way to train '{kind}'")


def run_training(command: dict[str, Any]) -> dict[str, Any]:
    """Trains; losses come as hexadecimal floats, so that equal means equal to the last bit."""
    torch.manual_seed(7)
    same_bits_each_time()
    model = wrap(command["kind"], Model().cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator(device="cuda").manual_seed(11 + dist.get_rank())
    losses, seconds = [], []
    for _ in range(command["steps"]):
        start = time.perf_counter()
        tokens = torch.randint(0, 256, (8, 129), generator=generator, device="cuda")
        tokens = tokens // 8 * 8  # something to learn
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()).hex())
        seconds.append(time.perf_counter() - start)
    return {"losses": losses, "seconds": seconds}


def run_groups(command: dict[str, Any]) -> dict[str, Any]:
    """Three more communicators, used in turn with work of all of them under way at once."""
    groups = [dist.new_group() for _ in range(3)]
    tensors = [filled(command["bytes"] // DTYPE.itemsize, 100 + i) for i in range(len(groups))]
    for _ in range(5):
        works = [
            dist.all_reduce(tensor, group=group, async_op=True)
            for tensor, group in zip(tensors, groups, strict=True)
        ]
        for work in works:
            work.wait()
        for tensor in tensors:
            tensor.mul_(0.5)
    torch.cuda.synchronize()
    result = digest(*tensors)
    for group in groups:
        dist.destroy_process_group(group)
    return {"digest": result}


HANDLERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "collective": run_collective,
    "train": run_training,
    "groups": run_groups,
}


def main() -> None:
    """Joins the job that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, then serves."""
    # NCCL writes to standard output from threads of its own, into the middle of lines if need be:
    # what it says goes to the log, and only answers to the runner.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    torch.cuda.set_device(int(os.environ["RANK"]) % torch.cuda.device_count())
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    patience = timedelta(seconds=float(os.environ.get("JOB_TIMEOUT_S", "600")))
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, world, is_master=rank == 0)
    dist.init_process_group("nccl", store=store, rank=rank, world_size=world, timeout=patience)
    dist.barrier()
    HANDLERS["steady"] = lambda command: steady.run(command, store, say)
    version = ".".join(map(str, torch.cuda.nccl.version()))
    say({"ready": True, "nccl": version, "torch": torch.__version__})
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "quit":
            break
        try:
            answer = HANDLERS[command["do"]](command)
        except Exception as error:  # the runner reports it and goes on with other jobs
            answer = {"error": f"{type(error).__name__}: {error}"}
        say(answer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
