"""tools/uml: build the guest kernel, run a command in a guest."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn, Optional

from railhop.testing.uml import kernel
from railhop.testing.uml.channel import GuestError
from railhop.testing.uml.guest import MTU_DEFAULT, Guest, GuestProcess
from railhop.testing.uml.two_hosts import TwoHosts

DESCRIPTION = """\
Linux guests (User-mode Linux) with software RDMA devices, on any machine and without privileges.

  tools/uml build               builds the kernel once (minutes), checks it, prints its path
  tools/uml run -- CMD ARG...   runs a command in a guest
"""
EPILOG = """\
In the guest: devices rxa0.. (rank A) and rxb0.. (rank B), a rail for each number. With --two-hosts
the command runs on both hosts; RAILHOP_HOST (a or b) says which one, and RAILHOP_OOB_ADDRESS and
RAILHOP_OOB_PEER are for sockets. The host's files are visible read-only; $RAILHOP_SCRATCH is
writable and shared with the host. `railhop-link` puts faults in (`railhop-link --help`).

exit status: the command's (128 + n for signal n; with --two-hosts the first that is not 0), 124
after a timeout, 125 if the guest does not work, 127 if the command cannot be started, 2 for wrong
arguments. docs/kernel-fabric.md says more.
"""
STATUS_TIMEOUT = 124  # As timeout(1) has it.
STATUS_GUEST_FAILED = 125
COPY_POLL_S = 0.02

# Of the host's environment these mean something else in a guest.
ENVIRONMENT_KEPT_OUT = (
    "GLIBC_TUNABLES",
    "TMPDIR",
    "PYTHONPATH",
    "RAILHOP_PYTHONPATH",
    "PWD",
    "OLDPWD",
    "_",
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/uml",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="do", required=True, metavar="build | run")
    commands.add_parser(
        "build", help="build the guest kernel if the cache has none, print its path"
    )
    run = commands.add_parser(
        "run",
        help="run a command in a guest",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "-n", "--rails", type=_Number(0, 32), default=2, help="number of rails (default 2)"
    )
    run.add_argument(
        "-t",
        "--timeout",
        type=float,
        default=300,
        metavar="S",
        help="end all after S seconds (300)",
    )
    run.add_argument(
        "-m",
        "--memory",
        type=_Number(64, 16384),
        default=512,
        metavar="MB",
        help="of a guest (512)",
    )
    run.add_argument(
        "--mtu", type=_Number(256, 9000), default=MTU_DEFAULT, help=f"of NICs ({MTU_DEFAULT})"
    )
    run.add_argument(
        "--two-hosts", action="store_true", help="two guests: A's devices in one, B's in the other"
    )
    run.add_argument(
        "--scratch", type=Path, metavar="DIR", help="share this folder (default: a temporary one)"
    )
    run.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command and its arguments"
    )
    options = parser.parse_args(arguments)
    if options.do == "run":
        if options.command[:1] == ["--"]:
            del options.command[0]
        if not options.command:
            parser.error("run: a command is missing")
        if options.scratch and not options.scratch.is_dir():
            parser.error(f"--scratch {options.scratch}: not a folder")
    return options


class _Number:
    """An argparse type: a whole number within a range."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def __call__(self, word: str) -> int:
        if not word.isdigit() or not self._low <= int(word) <= self._high:
            raise argparse.ArgumentTypeError(
                f"{word!r} is not a number between {self._low} and {self._high}"
            )
        return int(word)


def check_boot(path: Path) -> None:
    """Raises KernelMissingError unless the kernel boots and has a working RDMA device."""
    try:
        with Guest(rails=1, kernel=path) as guest:
            for device in guest.devices:
                guest.link(device).wait_port("ACTIVE")
    except (GuestError, TimeoutError) as error:
        raise kernel.KernelMissingError(f"{path} does not work here: {error}") from error


class _Copier:
    """Copies to a stream what a file grows by."""

    def __init__(self, source: Path, sink: BinaryIO, prefix: bytes) -> None:
        self._source = open(source, "rb")  # noqa: SIM115 (closed by the last copy)
        self._sink = sink
        self._prefix = prefix
        self._rest = b""

    def copy(self, last: bool = False) -> None:
        data = self._source.read()
        if self._prefix:
            # Lines of two hosts must not mix, so a line waits for its end.
            lines = (self._rest + data).splitlines(keepends=True)
            self._rest = (
                lines.pop() if lines and not lines[-1].endswith(b"\n") and not last else b""
            )
            data = b"".join(self._prefix + line for line in lines)
        if data:
            self._sink.write(data)
            self._sink.flush()
        if last:
            self._source.close()


class _Job:
    """A command that runs in a guest, with its output copied here."""

    def __init__(
        self, guest: Guest, command: Sequence[str], environment: dict[str, str], prefix: str
    ) -> None:
        merged = _same_file(1, 2)
        err = None if merged else guest.scratch / f".stderr-{os.getpid()}{prefix}"
        out = guest.scratch / f".stdout-{os.getpid()}{prefix}"
        environment = {**environment, "RAILHOP_SCRATCH": str(guest.scratch)}
        self.files = [out] if err is None else [out, err]
        self.process: GuestProcess = guest.start(command, env=environment, stdout=out, stderr=err)
        mark = f"{prefix}| ".encode() if prefix else b""
        self.copiers = [_Copier(out, sys.stdout.buffer, mark)]
        if err:
            self.copiers.append(_Copier(err, sys.stderr.buffer, mark))

    def finish(self) -> None:
        for copier in self.copiers:
            copier.copy(last=True)
        for file in self.files:
            file.unlink(missing_ok=True)


def _same_file(first: int, second: int) -> bool:
    one, two = os.fstat(first), os.fstat(second)
    return (one.st_dev, one.st_ino, one.st_rdev) == (two.st_dev, two.st_ino, two.st_rdev)


def _environment() -> dict[str, str]:
    """The host's environment, for the command."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ENVIRONMENT_KEPT_OUT
    }
    environment["PATH"] = f"/run/bin:{environment.get('PATH', '')}:/usr/sbin:/sbin"
    if os.environ.get("RAILHOP_PYTHONPATH"):
        environment["PYTHONPATH"] = os.environ["RAILHOP_PYTHONPATH"]
    return environment


def _follow(jobs: list[_Job], timeout_s: float) -> Optional[int]:
    """Copies output until all jobs have ended; the exit status, or None after the timeout."""
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            statuses = [job.process.poll() for job in jobs]
            for job in jobs:
                for copier in job.copiers:
                    copier.copy()
            known = [status for status in statuses if status is not None]
            if len(known) == len(jobs):
                return next((status for status in known if status), 0)
            time.sleep(COPY_POLL_S)
        return None
    finally:
        for job in jobs:
            job.finish()


def run(options: argparse.Namespace) -> int:
    """Runs the command in one guest or two; returns the exit status."""
    settings = {"mtu": options.mtu, "memory_mb": options.memory, "scratch": options.scratch}
    environment = _environment()
    if not options.two_hosts:
        guest = Guest(options.rails, **settings)
        guests, world = {"": guest}, guest
    else:
        hosts = TwoHosts(options.rails, **settings)
        guests, world = {"a": hosts.a, "b": hosts.b}, hosts  # type: ignore[assignment]
    try:
        jobs = [_Job(guest, options.command, environment, name) for name, guest in guests.items()]
        status = _follow(jobs, options.timeout)
        if status is None:
            print(f"tools/uml: still running after {options.timeout:g} s; ended", file=sys.stderr)
            for guest in guests.values():
                guest.kill()
            return STATUS_TIMEOUT
        return status
    finally:
        world.close()


def _terminated(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(143)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    # So that a guest is ended and its files are removed.
    signal.signal(signal.SIGTERM, _terminated)
    try:
        if options.do == "build":
            print(kernel.build(check_boot))
            return 0
        return run(options)
    except ValueError as error:
        print(f"tools/uml: {error}", file=sys.stderr)
        return 127
    except (GuestError, TimeoutError, kernel.KernelMissingError) as error:
        print(f"tools/uml: {error}", file=sys.stderr)
        return STATUS_GUEST_FAILED
    except KeyboardInterrupt:
        return 130
