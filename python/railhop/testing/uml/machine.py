"""One User-mode Linux process tree on the host: started, watched and ended whole.

The kernel is a process, each process of the guest is another one, and the kernel has helpers. They
all stay in one process group that is a session of its own, with one watcher more: a shell that ends
the group when this process is gone, however it went. So a test runner that is killed leaves nothing
behind, even if the guest hangs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence

GUEST_DIR = Path(__file__).resolve().parent.parent / "uml_guest"
CONSOLE_TAIL_BYTES = 3000

# $1 is the read end of a pipe whose other end only this process holds: reading it ends when this
# process does. $2 are the guest's descriptors. The watcher must not keep those open, or the other
# sides would never see that the guest is gone.
WATCHER = """
watch=$1 others=$2
shift 2
(for fd in $others; do eval "exec $fd<&-"; done; read -r _ <&"$watch"; kill -KILL 0) </dev/null >/dev/null 2>&1 &
eval "exec $watch<&-"
exec "$@"
"""


def find_python() -> str:
    """The interpreter for the guest's agent: this one, which hostfs shows under the same path."""
    return sys.executable or "/usr/bin/python3"


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
        self.owns_scratch = scratch is None
        self.scratch = scratch.resolve() if scratch else Path(tempfile.mkdtemp(prefix="railhop-uml-")).resolve()
        # The kernel's own files. Away from `scratch`, which may be the user's.
        self._private = Path(tempfile.mkdtemp(prefix="railhop-uml-")).resolve()
        self.console = self._private / "console.log"
        self._write_init({"GUEST_NAME": name, "PYTHON": find_python(), "GUEST_DIR": str(GUEST_DIR), **settings})
        self.line, guest_line = socket.socketpair()
        fds = [guest_line.fileno(), *pass_fds]
        watched, self._watch_end = os.pipe()
        words = [
            str(kernel),
            f"mem={memory_mb}M",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            f'init="{self._private}/init"',
            "quiet",
            "loglevel=4",
            "panic=-1",
            "con=null",
            "con0=null,fd:1",
            "ssl=null",
            f"ssl0=fd:{guest_line.fileno()}",
            f"uml_dir={self._private}",
            f"umid={name}",
            *devices,
        ]
        try:
            with open(self.console, "wb") as console:
                self._process = subprocess.Popen(
                    ["bash", "-c", WATCHER, "railhop-guest", str(watched), " ".join(map(str, fds)), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    pass_fds=[watched, *fds],
                    start_new_session=True,
                    env=self._environment(),
                    cwd="/",
                )
        except BaseException:
            os.close(self._watch_end)
            self._remove_files()
            raise
        finally:
            guest_line.close()
            os.close(watched)

    def console_tail(self) -> str:
        """The end of what the guest's kernel has printed, for messages."""
        try:
            text = self.console.read_bytes()[-CONSOLE_TAIL_BYTES:].decode(errors="replace").replace("\r", "")
        except FileNotFoundError:
            return ""
        return f"; its console ends with:\n{text.strip()}" if text.strip() else "; its console is empty"

    def kill(self) -> None:
        """Ends every process of the guest at once and removes its files. To be called once."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        os.close(self._watch_end)
        self._wait_group_gone()
        self._remove_files()

    def _write_init(self, settings: Dict[str, str]) -> None:
        shutil.copyfile(GUEST_DIR / "init.sh", self._private / "init")
        (self._private / "init").chmod(0o755)
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in settings.items()]
        lines.append(f"SCRATCH={shlex.quote(str(self.scratch))}\n")
        (self._private / "guest.env").write_text("".join(lines), encoding="utf-8")

    def _environment(self) -> Dict[str, str]:
        # The kernel keeps the guest's memory in a file that it unlinks at once. It looks for a place
        # in TMPDIR first; a file system in memory is the fast one.
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
        environment["TMPDIR"] = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
        return environment

    def _wait_group_gone(self) -> None:
        # The others are not our children. They end by the same signal, but a moment may pass.
        deadline = time.monotonic() + 5
        while group_members(self._process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _remove_files(self) -> None:
        shutil.rmtree(self._private, ignore_errors=True)
        if self.owns_scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)


def group_members(group: int) -> List[int]:
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


def joined_sockets() -> List[socket.socket]:
    """Two ends of a cable between two guests: datagram sockets with room for a burst."""
    pair = list(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
    for end in pair:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
    return pair
