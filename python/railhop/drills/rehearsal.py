"""Holds a drill: starts the workload, puts the scenario in, watches, judges."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Optional

from railhop.drills.episodes import EpisodeWatch
from railhop.drills.errors import DrillError, GoneError
from railhop.drills.judge import Planned, Seen, came_back, judge
from railhop.drills.node import NodeWorld
from railhop.drills.result import Happening, Result
from railhop.drills.sampler import Sampler
from railhop.drills.workload import Workload
from railhop.drills.world import AnyWorld, World
from railhop.scenario import Player, Scenario, Step, placed

# Called again and again: seconds since traffic began, seconds in all (0 if nobody knows), and what
# is going on.
Progress = Callable[[float, float, str], None]

# Traffic has begun when so much has arrived, and has to within so long.
_FIRST_BYTES = 200_000
_BEGIN_S = 120.0
# A failback that the scenario expects is waited for, this long beyond the drill's time and asked so
# often: how soon a path is proved again depends on how busy the machine is.
_FAILBACK_S = 30.0
_FAILBACK_EVERY_S = 0.25
# How long a job may take to its end when its processes with Railhop are gone.
_ENDING_S = 20.0
# Faults that are over as soon as they have hit.
_MOMENTARY = ("complete", "event", "kill", "release", "wedge")


def _silent(_seconds: float, _total: float, _text: str) -> None:
    pass


class _Drill:
    """One drill; only for rehearse()."""

    def __init__(self, world: AnyWorld, workload: Workload, scenario: Scenario, progress: Progress):
        self._world, self._workload, self._progress = world, workload, progress
        self.scenario = placed(scenario, world.devices)
        world.check(self.scenario)
        self.sampler = Sampler(world.counts)
        self.watch = EpisodeWatch(world.processes)
        self.player = Player(self.scenario, self._act)
        self.start_s = 0.0
        self.start_unix_ns = 0
        # When the workload had ended by itself, or its processes with Railhop were gone.
        self.ended_s: Optional[float] = None

    def _act(self, step: Step) -> None:
        if step.verb == "fault":
            self._world.fault(step)
        else:
            self.watch.command(step)

    def begin(self) -> None:
        """Starts the workload and waits for its traffic."""
        self._progress(0.0, 0.0, "starting")
        self._workload.start(self._world)
        self.sampler.start()
        deadline = time.monotonic() + _BEGIN_S
        while self.sampler.received_bytes() < _FIRST_BYTES:
            if not self._workload.running():
                raise DrillError(self._no_traffic())
            if time.monotonic() > deadline:
                raise DrillError(
                    f"the workload moved nothing within {_BEGIN_S:g} s: "
                    f"{self._workload.about}; does it use NCCL or the backend 'railhop'?"
                )
            time.sleep(0.01)
        self.start_s = time.monotonic()
        self.start_unix_ns = time.time_ns()
        self.watch.start()
        self.player.start()

    def attend(self) -> None:
        """Until the time is over (an endless workload) or the workload ends."""
        total_s = self.scenario.lasts_s if self._workload.endless else 0.0
        while self._workload.running():
            now_s = time.monotonic() - self.start_s
            if self.player.error:
                if self._job_was_gone():
                    break
                raise DrillError(self.player.error)
            last = self.player.acted[-1][0].text if self.player.acted else "before the first step"
            if total_s and now_s >= total_s:
                if now_s >= total_s + _FAILBACK_S or not self._waits_for_failback(now_s):
                    return
                last = "waiting for the failback"
            self._progress(min(now_s, total_s), total_s, last)
            time.sleep(0.05)
        if self.ended_s is None:
            self.ended_s = time.monotonic() - self.start_s
        # It may be about to say why: a job that has ended does not take commands.
        self.player.stop()
        if self.player.error and not self._job_was_gone():
            raise DrillError(self.player.error)
        if self.scenario.steps and not self.player.acted:
            raise DrillError(self._ended_early())

    def _failed(self) -> str:
        return (
            "the workload failed for its own reasons, before the first step: "
            f"{self._workload.about} {self._workload.complaint()}"
        )

    def _no_traffic(self) -> str:
        """Of a workload that has ended before enough had arrived."""
        if not self._workload.ended_well():
            return self._failed()
        moved = sum(one.received_bytes for one in self._world.counts().values())
        if moved:
            return (
                f"the workload ended well after {moved:,} bytes, before the drill began: "
                f"{self._workload.about}; let it run longer"
            )
        return (
            "the workload ended well, but has moved nothing over Railhop: "
            f"{self._workload.about}; does it use NCCL or the backend 'railhop'?"
        )

    def _ended_early(self) -> str:
        """Of a workload that has ended before the first step."""
        if not self._workload.ended_well():
            return self._failed()
        return (
            f"the workload ended well, but before the first step: {self._workload.about}; let it "
            "run longer, or put the step earlier"
        )

    def _job_was_gone(self) -> bool:
        """Whether a step failed because the job was ending, and steps had been taken before.

        Its processes are gone a moment before what has started them.
        """
        if self.player.failed is None or not isinstance(self.player.failed[1], GoneError):
            return False
        now_s = time.monotonic()
        if self.ended_s is None:
            self.ended_s = now_s - self.start_s
        while self._workload.running():
            if time.monotonic() > now_s + _ENDING_S:
                return False
            time.sleep(0.05)
        return bool(self.player.acted) or self._workload.ended_well()

    def plan(self) -> list[Planned]:
        """All steps, with when they had been carried out."""
        acted = {id(step): acted_s - self.start_s for step, acted_s in self.player.acted}
        return [Planned(step.text, step.at_s, acted.get(id(step))) for step in self.scenario.steps]

    def _waits_for_failback(self, now_s: float) -> bool:
        if not self.scenario.expect.fails_back:
            return False
        time.sleep(_FAILBACK_EVERY_S)
        series, _ = self.sampler.series(self.start_s)
        return came_back(self.happenings(now_s), series, now_s).seen is False

    def happenings(self, seconds: float) -> list[Happening]:
        """What was put in; commands are undone by their counterpart."""
        found: list[Happening] = []
        for step, acted_s in self.player.acted:
            at_s = round(acted_s - self.start_s, 4)
            port = step.place
            if port and ":" not in port:
                port += ":1"
            if step.verb in ("failback", "release"):
                for one in found:
                    if one.end_s is None and one.port in ("", port):
                        one.end_s = at_s
                continue
            over = step.verb == "fault" and step.words.split()[0] in ("up", "clear", "return")
            if over:
                for one in found:
                    if one.port == port:
                        one.end_s = min(at_s, one.end_s or at_s)
                continue
            end_s = None
            if step.verb == "fault" and step.words.split()[0] in _MOMENTARY:
                end_s = at_s
            elif step.verb == "fault" and step.for_s is not None:
                end_s = min(round(at_s + step.for_s, 4), seconds)
            found.append(Happening(at_s, end_s, port, step.text))
        return found


def rehearse(
    topology: Optional[str],
    scenario: Scenario,
    workload: Workload,
    *,
    nic_rate: Optional[str] = None,
    seed: int = 0,
    title: str = "",
    node: Optional[NodeWorld] = None,
    progress: Optional[Progress] = None,
) -> Result:
    """Holds a drill over a fresh software fabric, or on real NICs.

    Args:
      topology: a file, or a name of the fabric's own; None for this machine's own NICs.
      scenario: what to put in.
      workload: what runs; started and ended here.
      nic_rate: "400Mb/s": what each NIC sends at most, so that a lost one shows.
      seed: of the fabric.
      title: of the report.
      node: this machine, if it is looked at in another way than usual.
      progress: told what goes on.

    Errors: DrillError and ScenarioError, with nothing left running.
    """
    with contextlib.ExitStack() as stack:
        world: AnyWorld = (
            node or NodeWorld()
            if topology is None
            else stack.enter_context(World(topology, seed=seed))
        )
        stack.callback(workload.kill)
        drill = _Drill(world, workload, scenario, progress or _silent)
        stack.callback(drill.sampler.stop)
        stack.callback(drill.watch.stop)
        stack.callback(drill.player.stop)
        if nic_rate:
            world.cap(nic_rate)
        drill.begin()
        drill.attend()
        seconds = time.monotonic() - drill.start_s
        drill.player.stop()
        drill.watch.stop()
        (progress or _silent)(seconds, seconds, "judging")
        outcome = workload.end()
        drill.sampler.stop()
        series, received = drill.sampler.series(drill.start_s)
        for gap in outcome.gaps or []:
            gap.from_s -= drill.start_s
            gap.to_s -= drill.start_s
        steps = [
            {**one, "time_s": round((one["time_unix_ns"] - drill.start_unix_ns) / 1e9, 4)}
            for one in outcome.steps
        ]
        happenings = drill.happenings(seconds)
        seen = Seen(
            survived=outcome.survived,
            wrong_bytes=outcome.wrong_bytes,
            problem=outcome.problem,
            seconds=seconds,
            happenings=happenings,
            series=series,
            received=received,
            gaps=outcome.gaps,
            steps=[(one["time_s"], one["ms"]) for one in steps],
            plan=drill.plan(),
            ended_s=drill.ended_s,
        )
        return Result(
            title=title or f"{scenario.name} on {world.topology}",
            fabric=world.topology,
            workload=workload.about,
            scenario=drill.scenario.to_dict(),
            started_unix_ns=drill.start_unix_ns,
            seconds=round(seconds, 3),
            verdict=judge(seen, scenario.expect),
            messages=outcome.messages,
            happenings=happenings,
            episodes=drill.watch.episodes(),
            events=drill.watch.events(),
            steps=steps,
            series=series,
        )
