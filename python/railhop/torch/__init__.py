"""Railhop for PyTorch, 2.1 or later: a c10d backend for rehearsals, and a monitor of steps.

    import railhop.torch
    torch.distributed.init_process_group("railhop")     # CPU tensors over the plugin

    with railhop.torch.StepMonitor("steps.jsonl") as monitor:
        for batch in batches:
            with monitor.step():
                train(batch)

`import railhop` alone never imports torch. docs/operating/training.md is the guide.
"""

from __future__ import annotations

from railhop.torch.monitor import Step, StepMonitor
from railhop.torch.process_group import ProcessGroupRailhop, groups, register

__all__ = ["ProcessGroupRailhop", "Step", "StepMonitor", "groups", "register"]

register()
