"""Step times, dips of communication and failover episodes, side by side.

A step that took long is put next to what the network did meanwhile: how many bytes went over each
device, when bytes were under way and none moved (a dip), and which episodes of failover began or
ended. One JSON object a line for each step, and scalars for TensorBoard if wanted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Optional, TextIO

from torch import distributed

import railhop
from railhop.errors import Error
from railhop.torch.process_group import groups

__all__ = ["Step", "StepMonitor"]


@dataclasses.dataclass
class Step:
    """One step: what a line of the monitor's file holds.

    Attributes:
      number: from 0.
      begin_unix_ns: wall clock.
      duration_ns: how long it took.
      communication_ns: how long backend `railhop` waited for others; 0 with another backend.
      device_bytes: port ("mlx5_0:1") to bytes that this process's plugin sent and received there.
      dips: (begin_unix_ns, end_unix_ns) of each time when bytes were under way and none moved;
        empty with another backend.
      episodes: those that began or ended in this step, as railhop.Episode.to_dict() has them.
      values: the user's own, such as the loss.
      rank: of torch.distributed's default group, else of the environment (RANK).
      world_size: how many ranks there are; 1 without any.

    Example:
        >>> with railhop.torch.StepMonitor() as monitor:
        ...     with monitor.step() as step:
        ...         step.values["loss"] = 0.5
        >>> monitor.steps[0].number, monitor.steps[0].values
        (0, {'loss': 0.5})
    """

    number: int
    begin_unix_ns: int
    duration_ns: int
    communication_ns: int = 0
    device_bytes: dict[str, int] = dataclasses.field(default_factory=dict)
    dips: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    episodes: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    rank: int = 0
    world_size: int = 1

    @property
    def dip_ns(self) -> int:
        """How long all dips of the step lasted.

        Example:
            >>> railhop.torch.Step(0, 0, 900, dips=[(100, 250), (400, 450)]).dip_ns
            200
        """
        return sum(end - begin for begin, end in self.dips)

    def to_dict(self) -> dict[str, Any]:
        """The line of the file: all fields, and dip_ns.

        Example:
            >>> sorted(railhop.torch.Step(0, 0, 900).to_dict())[:4]
            ['begin_unix_ns', 'communication_ns', 'device_bytes', 'dip_ns']
        """
        return {**dataclasses.asdict(self), "dip_ns": self.dip_ns}


class _Network:
    """What is known of the network in this process, whichever way its plugin is driven."""

    def device_bytes(self) -> dict[str, int]:
        """Since the start: of the plugin's ports; if it does not tell, of what backend railhop gave
        to each device, wherever the plugin then took it.
        """
        totals: dict[str, int] = {}
        for port in getattr(self._ask("stats"), "ports", []):
            totals[port.name] = port.sent_bytes + port.received_bytes
        if totals:
            return totals
        for group in groups():
            for lane in group.group.report():
                names = group.group.devices
                name = names[lane["device"]] if lane["device"] < len(names) else str(lane["device"])
                totals.setdefault(name, 0)
                totals[name] += lane["sent_bytes"] + lane["received_bytes"]
        return totals

    def busy_ns(self) -> int:
        return sum(group.group.busy_ns for group in groups())

    def dips(self, since_unix_ns: int) -> list[tuple[int, int]]:
        found = {dip for group in groups() for dip in group.group.dips()}
        return sorted(dip for dip in found if dip[1] > since_unix_ns)

    def episodes(self, since_unix_ns: int) -> list[dict[str, Any]]:
        """Those that are open, or ended after that."""
        found = []
        for episode in getattr(self._ask("health"), "episodes", []):
            if not episode.end_unix_ns or episode.end_unix_ns > since_unix_ns:
                found.append(episode.to_dict())
        return found

    def _ask(self, operation: str) -> Any:
        """The plugin's answer; None if it is not in this process, or knows no such question."""
        call = getattr(railhop, operation, None)
        if call is None:
            return None
        try:
            return call()
        except Error:
            return None


def _writer(folder: str) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (optional)
    except ImportError as error:
        raise RuntimeError(
            f"tensorboard={folder!r} needs TensorBoard: pip install tensorboard ({error})"
        ) from error
    return SummaryWriter(folder)


def _place() -> tuple[int, int]:
    """Rank and number of ranks."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return int(rank) if rank.isdecimal() else 0, int(size) if size.isdecimal() else 1


class StepMonitor:
    """Writes one line for each step: its time, dips of communication and failover episodes.

    One of each rank: give each a file, and a folder for TensorBoard, of its own.

    In a loop of yours `step()` goes around each step; else `hook(optimizer)` finds them. May be
    used with any backend: with NCCL, bytes and episodes come from the plugin that NCCL has loaded.

    Attributes:
      steps: all so far, the oldest first.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> rank = dist.get_rank()
        >>> file = pathlib.Path(f"steps-{rank}.jsonl")
        >>> with railhop.torch.StepMonitor(file, tensorboard=f"runs/{rank}") as monitor:
        ...     for batch in torch.ones(3, 2, 4):
        ...         with monitor.step() as step:
        ...             step.values["loss"] = float(model(batch).sum())
        >>> [step.number for step in monitor.steps]
        [0, 1, 2]
        >>> [f'"rank": {rank},' in line for line in file.read_text().splitlines()]
        [True, True, True]
    """

    def __init__(
        self,
        path: str | pathlib.Path | TextIO | None = None,
        *,
        tensorboard: Optional[str] = None,
    ) -> None:
        """Opens what it writes to.

        Args:
          path: file of this rank that lines are added to, or an open one; None keeps them in
            `steps` only.
          tensorboard: folder for its events; needs the package tensorboard.

        Raises:
          OSError: The file cannot be written.
          RuntimeError: The package tensorboard is not there.
        """
        self.steps: list[Step] = []
        self._network = _Network()
        self._tensorboard = _writer(tensorboard) if tensorboard else None
        self._own = isinstance(path, (str, pathlib.Path))
        self._file: Optional[TextIO] = (
            pathlib.Path(path).open("a", encoding="utf-8")  # noqa: SIM115 (closed by close)
            if isinstance(path, (str, pathlib.Path))
            else path
        )
        # Where a drill reads steps from; of rank 0 alone.
        drill = os.environ.get("RAILHOP_DRILL_LOG", "")
        self._drill = pathlib.Path(drill) if drill and os.environ.get("RANK", "0") == "0" else None
        self._handles: list[Any] = []
        self._before: dict[str, int] = {}

    def __enter__(self) -> StepMonitor:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it: nothing is written any more, and hooks are gone. May be repeated.

        Example:
            >>> monitor = railhop.torch.StepMonitor(f"steps-{dist.get_rank()}.jsonl")
            >>> monitor.close()
        """
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._tensorboard is not None:
            self._tensorboard.close()
            self._tensorboard = None
        if self._own and self._file is not None:
            self._file.close()
        self._file = None

    @contextlib.contextmanager
    def step(self) -> Iterator[Step]:
        """Goes around one step; gives the Step, whose `values` are written with it.

        Written also if the step raises.

        Example:
            >>> monitor = railhop.torch.StepMonitor()
            >>> with monitor.step():
            ...     dist.all_reduce(torch.ones(100_000))
            >>> monitor.steps[0].duration_ns >= monitor.steps[0].communication_ns > 0
            True
        """
        step = self._begin()
        start = time.monotonic_ns()
        try:
            yield step
        finally:
            step.duration_ns = time.monotonic_ns() - start
            self._end(step)

    def hook(self, optimizer: Any) -> None:
        """Each step of the optimizer ends one of the monitor, and begins the next.

        Args:
          optimizer: a torch.optim.Optimizer.

        Example:
            >>> model = torch.nn.Linear(4, 1)
            >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> monitor = railhop.torch.StepMonitor()
            >>> monitor.hook(optimizer)
            >>> for batch in torch.ones(3, 2, 4):
            ...     model(batch).sum().backward()
            ...     optimizer.step()
            >>> len(monitor.steps)
            3
            >>> monitor.close()
        """
        step, start = self._begin(), time.monotonic_ns()

        def ended(*_: Any) -> None:
            nonlocal step, start
            now = time.monotonic_ns()
            step.duration_ns = now - start
            self._end(step)
            step, start = self._begin(), now

        self._handles.append(optimizer.register_step_post_hook(ended))

    def _begin(self) -> Step:
        step = Step(len(self.steps), time.time_ns(), 0)
        step.rank, step.world_size = _place()
        self._before = self._network.device_bytes()
        step.communication_ns = -self._network.busy_ns()
        return step

    def _end(self, step: Step) -> None:
        step.number = len(self.steps)
        step.communication_ns += self._network.busy_ns()
        for device, count in self._network.device_bytes().items():
            step.device_bytes[device] = count - self._before.get(device, 0)
        step.dips = self._network.dips(step.begin_unix_ns)
        step.episodes = self._network.episodes(step.begin_unix_ns)
        self.steps.append(step)
        if self._file is not None:
            self._file.write(json.dumps(step.to_dict()) + "\n")
            self._file.flush()
        if self._drill is not None:
            self._tell_drill(self._drill, step)
        if self._tensorboard is not None:
            self._show(self._tensorboard, step)

    @staticmethod
    def _tell_drill(path: pathlib.Path, step: Step) -> None:
        end_unix_ns = step.begin_unix_ns + step.duration_ns
        entry = {"step": step.number, "ms": step.duration_ns / 1e6, "time_unix_ns": end_unix_ns}
        if "loss" in step.values:
            entry["loss"] = step.values["loss"]
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    @staticmethod
    def _show(writer: Any, step: Step) -> None:
        scalars = {
            "railhop/step_ms": step.duration_ns / 1e6,
            "railhop/communication_ms": step.communication_ns / 1e6,
            "railhop/dip_ms": step.dip_ns / 1e6,
            "railhop/episodes": float(len(step.episodes)),
            **{f"railhop/bytes/{name}": float(n) for name, n in step.device_bytes.items()},
            **step.values,
        }
        for name, value in scalars.items():
            writer.add_scalar(name, value, step.number)
