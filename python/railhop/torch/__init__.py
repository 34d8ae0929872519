"""Railhop for PyTorch, 2.1 or later: a c10d backend for rehearsals, and a monitor of steps.

`import railhop` alone never imports torch; importing this registers the backend.
docs/operating/training.md is the guide.

Example:
    >>> import railhop.torch
    >>> with railhop.torch.StepMonitor(f"steps-{dist.get_rank()}.jsonl") as monitor:
    ...     for batch in torch.ones(3, 100_000):
    ...         with monitor.step():
    ...             dist.all_reduce(batch)
    >>> len(monitor.steps)
    3
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"railhop.torch needs PyTorch 2.1 or later: pip install 'railhop[torch]' ({error})",
        name=error.name,
    ) from error

from railhop.torch.monitor import Step, StepMonitor
from railhop.torch.process_group import ProcessGroupRailhop, groups, register

__all__ = ["ProcessGroupRailhop", "Step", "StepMonitor", "groups", "register"]

register()
