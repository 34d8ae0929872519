"""An ordinary training script: DDP or FSDP2, started once for each rank as torchrun would.

Nothing in it knows of Railhop but the backend's name. It prints one JSON line for each step, with
the loss as a hexadecimal float, so that equal means equal to the last bit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Optional

import torch
import torch.distributed as dist
from torch import nn


class Model(nn.Module):
    """A small language model of bytes."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def wrap(kind: str, model: Model) -> nn.Module:
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 (torch 2.4 or later)
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def steer(step: int, at: Optional[int]) -> None:
    """From inside the job, as an operator's script would: a port is left, later used again."""
    import railhop  # noqa: PLC0415

    if step == at:
        outcome = railhop.force_failover(railhop.health().ports[0].name, mode="now")
        print(json.dumps({"forced": outcome.to_dict()}), flush=True)
    if at is not None and step == at + 10:
        outcome = railhop.release(railhop.health().ports[0].name)
        print(json.dumps({"released": outcome.to_dict()}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--backend", default="railhop")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--monitor", help="file for the lines of a StepMonitor (rank 0)")
    parser.add_argument("--failover-at", type=int, help="step in which rank 0 forces a failover")
    args = parser.parse_args()

    torch.set_num_threads(1)
    if args.backend == "railhop":
        import railhop.torch  # noqa: PLC0415
    dist.init_process_group(args.backend)
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = wrap(args.kind, Model(args.width, args.depth))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    monitor = None
    if args.monitor and rank == 0:
        monitor = railhop.torch.StepMonitor(args.monitor)
        monitor.hook(optimizer)
    generator = torch.Generator().manual_seed(11 + rank)
    for step in range(args.steps):
        start = time.perf_counter()
        if rank == 0:
            steer(step, args.failover_at)
        tokens = torch.randint(0, 64, (4, 17), generator=generator) // 8 * 8
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        line = {"step": step, "loss": loss.item().hex(), "seconds": time.perf_counter() - start}
        print(json.dumps(line), flush=True)
    if monitor is not None:
        monitor.close()
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
