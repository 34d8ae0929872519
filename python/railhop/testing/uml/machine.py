"""One User-mode Linux process tree on the host: started, watched and ended whole.

The kernel is a process, each process of the guest is another one, and the kernel has helpers. They
all stay in one process group, in a session of its own. A watcher, which is a shell, ends that group
and removes its files when this process is gone, however it went: a test runner that is killed
leaves nothing behind, even if the guest hangs.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

GUEST_DIR = Path(__file__).resolve().parent.parent / "uml_guest"
CONSOLE_TAIL_BYTES = 3000
GROUP_GONE_TIMEOUT_S = 5.0

# $1 is the process group, the rest are folders. Standard input is a pipe that only this process can
# write to: a line says that all is cleaned up; the end without a line, that this process is gone.
WATCHER = """
read -r _ && exit
kill -s KILL -- "-$1"
shift
rm -rf -- "$@"
"""


class Machine:
    """A running guest kernel, its scratch folder and the line to its agent."""

    def __init__(
        self,
        kernel: Path,
        *,
        name: str,
        settings: Mapping[str, str],
        devices: Sequence[str],
        pass_fds: Sequence[int],
        memory_mb: int,
        scratch: Optional[Path],
    ) -> None:
        """Starts the kernel; the agent reports over `line` when the guest is up.

        settings: what init.sh reads. devices: further words of the kernel's command line.
        scratch: an existing folder that both sides can write; None makes a temporary one.
        """
        # The kernel's own files are away from `scratch`, which may be the user's.
        self._folders = [_new_folder()]
        self.console = self._folders[0] / "console.log"
        if scratch is None:
            self._folders.append(_new_folder())
        self.scratch = (scratch or self._folders[-1]).resolve()
        self.line, guest_line = socket.socketpair()
        try:
            self._write_init({"GUEST_NAME": name, "SCRATCH": str(self.scratch), **settings})
            words = self._command_line(kernel, name, memory_mb, guest_line.fileno())
            with open(self.console, "wb") as console:
                self._process = subprocess.Popen(
                    [*words, *devices],
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    pass_fds=[guest_line.fileno(), *pass_fds],
                    start_new_session=True,
                    env=_environment(memory_mb),
                    cwd="/",
                )
        except BaseException:
            self.line.close()
            self._remove_files()
            raise
        finally:
            guest_line.close()
        self._watcher = self._start_watcher()

    @property
    def process_group(self) -> int:
        """The process group of all processes of the guest."""
        return self._process.pid

    def console_tail(self) -> str:
        """The end of what the guest's kernel has printed, for messages."""
        try:
            data = self.console.read_bytes()[-CONSOLE_TAIL_BYTES:]
        except FileNotFoundError:
            return ""
        text = data.decode(errors="replace").replace("\r", "").strip()
        return f"; its console ends with:\n{text}" if text else "; its console is empty"

    def kill(self) -> None:
        """Ends every process of the guest at once and removes its files. To be called once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # The others are not our children. They end by the same signal, but a moment may pass.
        deadline = time.monotonic() + GROUP_GONE_TIMEOUT_S
        while group_members(self._process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        self._remove_files()
        self._watcher.communicate(b"done\n")

    def _write_init(self, settings: Mapping[str, str]) -> None:
        """Puts the guest's first program and its settings where the kernel finds them."""
        init = self._folders[0] / "init"
        shutil.copyfile(GUEST_DIR / "init.sh", init)
        init.chmod(0o755)
        # The guest runs this very interpreter: it sees the host's files under the same paths.
        python = sys.executable or "/usr/bin/python3"
        settings = {"PYTHON": python, "GUEST_DIR": str(GUEST_DIR), **settings}
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in settings.items()]
        (self._folders[0] / "guest.env").write_text("".join(lines), encoding="utf-8")

    def _command_line(self, kernel: Path, name: str, memory_mb: int, line: int) -> list[str]:
        return [
            str(kernel),
            f"mem={memory_mb}M",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            f'init="{self._folders[0]}/init"',
            "quiet",
            "loglevel=4",
            "panic=-1",
            "con=null",
            "con0=null,fd:1",
            "ssl=null",
            f"ssl0=fd:{line}",
            f"uml_dir={self._folders[0]}",
            f"umid={name}",
        ]

    def _start_watcher(self) -> subprocess.Popen[bytes]:
        words = [str(self._process.pid), *map(str, self._folders)]
        return subprocess.Popen(
            ["sh", "-c", WATCHER, "railhop-watcher", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def _remove_files(self) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="railhop-uml-")).resolve()


def _environment(memory_mb: int) -> dict[str, str]:
    # The kernel keeps the guest's memory in a file that it unlinks at once, in TMPDIR. A file
    # system in memory is the fast one, but a container's may be too small.
    try:
        shm = os.statvfs("/dev/shm")
        fits = os.access("/dev/shm", os.W_OK) and shm.f_bavail * shm.f_frsize > memory_mb << 20
    except OSError:
        fits = False
    place = "/dev/shm" if fits else tempfile.gettempdir()
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TMPDIR": place}


def group_members(group: int) -> list[int]:
    """The living processes of a process group.

    Zombies do not count: they wait for process 1 to look at them, which may take it seconds.
    """
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                    # Source: proc(5). After the name in parentheses: state, parent, process group.
                    state, _, pgrp = stat.read().rpartition(")")[2].split()[:3]
            except OSError:
                continue  # It has just ended.
            if int(pgrp) == group and state not in "ZX":
                members.append(int(entry))
    return members


def vector_device(number: int, fd: int, mac: str, mtu: int) -> str:
    """The word of the command line for a network device that sends and receives on a socket."""
    return f"vec{number}:transport=fd,fd={fd},mac={mac},mtu={mtu},depth=128"


def joined_sockets() -> list[socket.socket]:
    """Two ends of a cable between two guests: datagram sockets with room for a burst."""
    pair = list(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
    for end in pair:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
    return pair
