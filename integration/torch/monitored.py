"""One rank: steps of an all-reduce each; rank 0's monitor writes lines, and for TensorBoard.

It goes on until an episode of failover has been seen, and five steps more.
"""

from __future__ import annotations

import contextlib
import json
import sys

import railhop.torch
import torch
import torch.distributed as dist


def main() -> int:
    torch.set_num_threads(1)
    dist.init_process_group("railhop")
    monitor = None
    if dist.get_rank() == 0:
        monitor = railhop.torch.StepMonitor(sys.argv[1], tensorboard=sys.argv[2])
    numbers = torch.ones(300_000)
    after = 0
    stop = torch.zeros(1)
    while not stop.item():
        with monitor.step() if monitor else contextlib.nullcontext() as step:
            dist.all_reduce(numbers, dist.ReduceOp.MAX)
            if step is not None:
                step.values["loss"] = 1.0 / (1 + step.number)
                step.values["optimizer/rate"] = 1e-4 * step.number
        if monitor is not None:
            print(json.dumps({"step": monitor.steps[-1].number}), flush=True)
            after += 1 if after or monitor.steps[-1].episodes else 0
        stop = torch.tensor([float(after > 5)])
        dist.all_reduce(stop, dist.ReduceOp.MAX)
    if monitor is not None:
        monitor.close()
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
