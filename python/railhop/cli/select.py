"""Which processes a command is about: one by pid or socket, a job, or all of this node."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable
from typing import Any, Optional, TypeVar

import click

import railhop
from railhop.cli.common import CliError

_Function = TypeVar("_Function", bound=Callable[..., Any])


# What a call on a process that has ended meanwhile raises: its socket is dead, or gone.
ENDED = (railhop.StaleSocketError, railhop.NotFoundError)

# One that did not say who it is gets this long more: the machine may be busy.
_AGAIN_S = 2.0


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


NOBODY = (
    "no process with Railhop runs on this node; start the job with 'railhop run -- CMD', or see "
    "'railhop env'"
)


@dataclasses.dataclass
class Seen:
    """What is on this node: processes that answer, and a line for each that does not.

    hung: there, but without an answer in time (stopped, say); others: ended, of another user;
    nobody: the line if there is none at all.
    """

    here: list[Chosen] = dataclasses.field(default_factory=list)
    hung: list[str] = dataclasses.field(default_factory=list)
    others: list[str] = dataclasses.field(default_factory=list)
    nobody: str = NOBODY


def silent(pid: int, error: object) -> str:
    """The line of a process that does not answer in time."""
    return f"process {pid} does not answer: {error}"


def processes() -> Seen:
    """All of this node.

    Nobody is there either if RAILHOP_ADMIN_DIR names a folder that is not: the first process makes
    it, the last one takes it away.
    """
    seen = Seen()
    try:
        found = railhop.processes()
    except railhop.NotFoundError as error:
        return Seen(nobody=str(error))
    for one in found:
        if one.info is not None:
            # It may end between the two.
            with contextlib.suppress(*ENDED):
                seen.here.append(Chosen(one.pid, one.info.job, one.info.host, one.attach()))
            continue
        try:
            info = one.attach(timeout_s=_AGAIN_S).info()
        except railhop.NoAnswerError as error:
            seen.hung.append(silent(one.pid, error))
        except railhop.Error:
            seen.others.append(one.problem)
        else:
            seen.here.append(Chosen(one.pid, info.job, info.host, one.attach()))
    return seen


def introduced(timeout_s: float = 1.0) -> list[Any]:
    """The railhop.ProcessInfo of each process of this node that says who it is in that time."""
    with contextlib.suppress(railhop.NotFoundError):  # the last one took the folder away
        found = railhop.processes(timeout_s=timeout_s)
        return [one.info for one in found if one.info is not None]
    return []


def process_options(function: _Function) -> _Function:
    """--pid, --job, --socket."""
    for option in (
        click.option("--socket", "path", metavar="PATH", help="The process behind this socket."),
        click.option("--job", metavar="ID", help="The processes of this job on this node."),
        click.option("--pid", type=int, help="This process; else all of this node."),
    ):
        function = option(function)
    return function


def _all(job: Optional[str]) -> Seen:
    seen = processes()
    if job is None:
        return seen
    of_job = [one for one in seen.here if one.job == job]
    # Whose job a process is that does not answer is not known: it may be this one's.
    if not of_job and not seen.hung:
        jobs = sorted({one.job for one in seen.here if one.job})
        nobody = "no job runs here" if seen.nobody == NOBODY else seen.nobody
        there = f"jobs here: {', '.join(jobs)}" if jobs else nobody
        raise CliError(f"no job '{job}' with Railhop on this node ({there})")
    return dataclasses.replace(seen, here=of_job)


def choose(pid: Optional[int], job: Optional[str], path: Optional[str]) -> Seen:
    """The processes that are meant; may be none if nothing was said.

    Errors: railhop.Error for one that is named and not there; CliError for two choices at once.
    """
    if sum(one is not None for one in (pid, job, path)) > 1:
        raise CliError("--pid, --job and --socket exclude each other; give one of them")
    if pid is not None:
        return Seen([attach(pid=pid)])
    if path is not None:
        return Seen([attach(path=path)])
    return _all(job)


def choose_all(pid: Optional[int], job: Optional[str], path: Optional[str]) -> list[Chosen]:
    """As choose, for what changes something: CliError if there is none, or one does not answer."""
    seen = choose(pid, job, path)
    if seen.hung:
        more = f" (and {len(seen.hung) - 1} more)" if len(seen.hung) > 1 else ""
        raise CliError(
            f"{seen.hung[0]}{more}; nothing has changed; --pid picks one process that answers"
        )
    return _some(seen)


def choose_ends(
    target: str, pid: Optional[int], job: Optional[str], path: Optional[str]
) -> list[Chosen]:
    """As choose_all, for what moves TARGET: of a connection only the process of its sending end.

    Errors: as choose_all; CliError if none of several has the connection, or where only its
    receiving end is: that names the process to ask, as far as it is known.
    """
    chosen = choose_all(pid, job, path)
    if not target.startswith("connection:"):
        return chosen
    wanted = target.partition(":")[2].removeprefix("0x").rjust(16, "0")
    ends = []
    for process in chosen:
        for one in process.api.health().to_dict()["connections"]:
            if str(one["id"]).rjust(16, "0") == wanted:
                ends.append((process, one))
    for process, one in ends:
        if str(one["direction"]) == "send":
            return [process]
    if ends:
        raise CliError(_elsewhere(*ends[0]))
    if len(chosen) > 1:
        raise CliError(
            f"none of the {len(chosen)} processes has a connection "
            f"{target.partition(':')[2]}: 'railhop status --json' shows the ids of all"
        )
    return chosen


def _elsewhere(process: Chosen, connection: dict[str, Any]) -> str:
    """Where the sending end is of a connection whose receiving end a process has."""
    host, instance = connection["peer_host"], connection["peer_instance"]
    here = introduced()
    pids = [one.pid for one in here if instance and one.instance == instance]
    which = f"process {pids[0]}: --pid {pids[0]}" if pids else f"instance {instance} there"
    return (
        f"process {process.pid}: the sending end chooses where a connection goes: ask its "
        f"process, on {host} ({which})"
    )


def choose_some(pid: Optional[int], job: Optional[str], path: Optional[str]) -> list[Chosen]:
    """As choose, for what only looks: CliError if there is none; the silent are told."""
    seen = choose(pid, job, path)
    found = _some(seen)
    for line in seen.hung:
        print(f"railhop: {line}", file=sys.stderr)
    return found


def _some(seen: Seen) -> list[Chosen]:
    if seen.here:
        return seen.here
    problems = seen.hung + seen.others
    if problems:
        raise CliError(
            f"no process with Railhop answers on this node; {len(problems)} cannot be asked: "
            f"{problems[0]}"
        )
    raise CliError(seen.nobody)
