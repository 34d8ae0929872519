"""Which processes a command is about: one by pid or socket, a job, or all of this node."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, Optional, TypeVar

import click

import railhop
from railhop.cli.common import CliError

_Function = TypeVar("_Function", bound=Callable[..., Any])


# What a call on a process that has ended meanwhile raises: its socket is dead, or gone.
ENDED = (railhop.StaleSocketError, railhop.NotFoundError)


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A process with Railhop. api: a railhop.Process."""

    pid: int
    job: str
    host: str
    api: Any


def attach(**words: Any) -> Chosen:
    """As railhop.attach."""
    api = railhop.attach(**words)
    info = api.info()
    return Chosen(info.pid, info.job, info.host, api)


def processes() -> tuple[list[Chosen], list[str]]:
    """All of this node that answer; and why others do not."""
    found, problems = [], []
    for one in railhop.processes():
        if one.info is None:
            problems.append(one.problem)
            continue
        # It may end between the two.
        with contextlib.suppress(*ENDED):
            found.append(Chosen(one.pid, one.info.job, one.info.host, one.attach()))
    return found, problems


def process_options(function: _Function) -> _Function:
    """--pid, --job, --socket."""
    for option in (
        click.option("--socket", "path", metavar="PATH", help="The process behind this socket."),
        click.option("--job", metavar="ID", help="The processes of this job on this node."),
        click.option("--pid", type=int, help="This process; else all of this node."),
    ):
        function = option(function)
    return function


def _all(job: Optional[str]) -> list[Chosen]:
    here, _ = processes()
    if job is None:
        return here
    of_job = [one for one in here if one.job == job]
    if not of_job:
        jobs = sorted({one.job for one in here if one.job})
        there = f"jobs here: {', '.join(jobs)}" if jobs else "no job runs here"
        raise CliError(f"no job '{job}' with Railhop on this node ({there})")
    return of_job


def choose(pid: Optional[int], job: Optional[str], path: Optional[str]) -> list[Chosen]:
    """The processes that are meant; may be none if nothing was said.

    Errors: railhop.Error for one that is named and not there; CliError for two choices at once.
    """
    if sum(one is not None for one in (pid, job, path)) > 1:
        raise CliError("--pid, --job and --socket exclude each other; give one of them")
    if pid is not None:
        return [attach(pid=pid)]
    if path is not None:
        return [attach(path=path)]
    return _all(job)


def choose_some(pid: Optional[int], job: Optional[str], path: Optional[str]) -> list[Chosen]:
    """As choose; CliError if there is none."""
    found = choose(pid, job, path)
    if found:
        return found
    _, problems = processes()
    if problems:
        raise CliError(
            f"no process with Railhop answers on this node; {len(problems)} cannot be asked: "
            f"{problems[0]}"
        )
    raise CliError(
        "no process with Railhop runs on this node; start the job with 'railhop run -- CMD', or "
        "see 'railhop env'"
    )
