"""A guest with software RDMA devices: programs, faults, results.

    with Guest(rails=2) as guest:
        server = guest.start("ib_write_bw -d rxa0 -x 1 -F -D 10")
        client = guest.start("ib_write_bw -d rxb0 -x 1 -F -D 10 127.0.0.1")
        guest.link("rxa0").cable_out()
        guest.link("rxa0").cable_in()
        assert client.wait(60) == 0

Rail n joins rank A's device rxa<n> (10.0.n.1) and rank B's rxb<n> (10.0.n.2) through a switch; all
are in this one guest, and loopback carries the out-of-band sockets. GID index 1 is the RoCE v2 GID
of the IPv4 address. `TwoHosts` has the two ranks in guests of their own.

The guest sees the host's files read-only under their own paths, /tmp included (what it writes to
/tmp is its own); `guest.scratch` is a folder that both can write. It has one processor: programs
that poll without ever sleeping wait for each other's time slice.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Optional, Union

from railhop.testing.uml.channel import Channel, GuestError
from railhop.testing.uml.kernel import find_kernel
from railhop.testing.uml.machine import Machine

BOOT_TIMEOUT_S = 120.0  # A second on an idle machine; this is for one that is not idle.
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
OUTPUT_TAIL_CHARS = 3000  # In messages.
MTU_DEFAULT = 4500  # rxe then has an active MTU of 4096; 1500 gives 1024.

Command = Union[str, Sequence[str]]


@dataclass(frozen=True)
class LinkState:
    """What `Link.state()` returns."""

    device: str
    port: str
    """The RDMA port's state as sysfs has it: "ACTIVE" or "DOWN"."""
    cable: str
    """ "in" or "out"."""
    up: bool
    """Administratively up."""
    mtu: int
    """Of the network device, in bytes."""
    addresses: list[str]
    """IPv4, with prefix length."""
    gids: dict[int, str]
    """GIDs by index, without the empty ones."""
    faults: dict[str, dict[str, str]]
    """Faults in force by direction ("tx", "rx") and name."""


class Link:
    """One NIC's connection to its switch, and what goes wrong with it.

    Each call returns when the guest's kernel has it. A direction is "tx", "rx" or None for both.
    Each is a line of the grammar of `railhop-link`; `railhop-link --help` in a guest prints it.
    """

    def __init__(self, guest: Guest, device: str) -> None:
        self._guest = guest
        self.device = device

    def say(self, *words: str) -> str:
        """Sends words of the grammar, as `railhop-link DEVICE WORDS...` would.

        Raises ValueError that names the wrong word and the allowed ones.
        """
        return self._guest.link_words(self.device, *words)

    def cable_out(self) -> None:
        """Pulls the cable: this port goes down; the other end of the rail sees nothing."""
        self.say("cable", "out")

    def cable_in(self) -> None:
        """Plugs the cable in. RTR may time out just after: address resolution takes a while."""
        self.say("cable", "in")

    def down(self) -> None:
        """Takes the network device down, as an operator would. Sends fail at once."""
        self.say("down")

    def up(self) -> None:
        self.say("up")

    def blackhole(self, direction: Optional[str] = None) -> None:
        """Loses every packet without a sign; the port stays ACTIVE."""
        self.say("blackhole", *_words(direction))

    def blackhole_off(self, direction: Optional[str] = None) -> None:
        self.say("blackhole", "off", *_words(direction))

    def loss(self, percent: float, direction: Optional[str] = None) -> None:
        """Loses this share of the packets, at random; 0 ends it."""
        self.say("loss", f"{percent:.6f}%", *_words(direction))

    def delay(self, seconds: float, direction: Optional[str] = None) -> None:
        """Holds each packet for this long; 0 ends it."""
        self.say("delay", f"{round(seconds * 1e6)}us", *_words(direction))

    def rate(self, bits_per_second: Optional[float], direction: Optional[str] = None) -> None:
        """Caps the bandwidth; None ends it."""
        word = "none" if bits_per_second is None else f"{round(bits_per_second)}b/s"
        self.say("rate", word, *_words(direction))

    def address(self, address: Optional[str]) -> None:
        """Changes the IPv4 address, and so the GID; None leaves only the link-local one.

        An address may have a prefix length ("10.0.9.1/24"; 24 is the default).
        """
        self.say("address", address or "none")

    def mtu(self, size: int) -> None:
        """Changes the network device's MTU, in bytes; the switch keeps its own."""
        self.say("mtu", str(size))

    def clear(self) -> None:
        """Ends all faults, plugs the cable in and brings the device up. Address and MTU stay."""
        self.say("clear")

    def state(self) -> LinkState:
        """How things are."""
        states = json.loads(self._guest.link_words("show", "--json"))
        for state in states:
            if state["device"] == self.device:
                state["gids"] = {int(index): gid for index, gid in state["gids"].items()}
                return LinkState(**state)
        raise ValueError(
            f"{self.device}: no such device (there are: {', '.join(s['device'] for s in states)})"
        )

    def port_state(self) -> str:
        """The RDMA port's state: "ACTIVE" or "DOWN". Quicker than `state()`."""
        return self._guest.read(f"/sys/class/infiniband/{self.device}/ports/1/state").split()[1]

    def wait_port(self, state: str, timeout_s: float = 300) -> None:
        """Waits until the RDMA port is in this state; raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while self.port_state() != state:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.device} is not {state} after {timeout_s:g} s")
            time.sleep(POLL_S)


def _words(direction: Optional[str]) -> list[str]:
    return [] if direction is None else [direction]


class GuestProcess:
    """A program that runs in a guest. Made by `Guest.start`."""

    def __init__(
        self, channel: Channel, start: int, command: str, stdout: Path, stderr: Path
    ) -> None:
        self._channel = channel
        self._start = start
        self.command = command
        self.stdout = stdout
        """The file on the host that has what the program has printed so far."""
        self.stderr = stderr

    def poll(self) -> Optional[int]:
        """The exit status, or None while it runs. 128 + n stands for signal n."""
        return self._channel.exit_status(self._start, 0)

    def wait(self, timeout_s: float = 300) -> int:
        """Waits for the program and returns its exit status.

        Raises TimeoutError with the end of the program's output; the program goes on.
        """
        status = self._channel.exit_status(self._start, timeout_s)
        if status is None:
            raise TimeoutError(
                f"{self.command!r} still runs after {timeout_s:g} s{self._printed()}"
            )
        return status

    def wait_output(self, pattern: str, timeout_s: float = 300) -> re.Match[str]:
        """Waits until the output matches a regular expression (re.MULTILINE).

        Raises TimeoutError, also if the program ends without such output.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            ended = self.poll() is not None
            match = re.search(pattern, self.output(), re.MULTILINE)
            if match:
                return match
            if ended or time.monotonic() > deadline:
                why = "ended" if ended else f"ran {timeout_s:g} s"
                raise TimeoutError(f"{self.command!r} {why} without {pattern!r}{self._printed()}")
            time.sleep(POLL_S)

    def output(self) -> str:
        """What the program has printed so far, errors too unless they have a file of their own."""
        return self.stdout.read_text(encoding="utf-8", errors="replace")

    def _printed(self) -> str:
        return f"; it printed:\n{self.output()[-OUTPUT_TAIL_CHARS:]}"

    def signal(self, number: int) -> None:
        """Signals the program and its children; nothing happens if it has ended."""
        self._channel.order("signal", start=self._start, signal=number)

    def kill(self) -> int:
        """Ends the program and its children with SIGKILL; returns the exit status."""
        self.signal(signal.SIGKILL)
        return self.wait()


@dataclass(frozen=True)
class Completed:
    """What `Guest.run` returns."""

    status: int
    output: str


class Guest:
    """A running guest. Boots in the constructor; ends with the `with` block or `close()`.

    rails: number of rails. mtu: of NICs and switches, in bytes. memory_mb: of the guest.
    kernel: the file to boot; None finds it (see kernel.py).
    scratch: an existing folder to share with the guest; None makes one that is deleted at the end.
    boot: False returns before the guest is up; `wait_ready()` then waits.

    Raises KernelMissingError; GuestError with the end of the console if it does not come up.
    """

    def __init__(
        self,
        rails: int = 2,
        *,
        mtu: int = MTU_DEFAULT,
        memory_mb: int = 512,
        kernel: Optional[Path] = None,
        scratch: Optional[Path] = None,
        boot: bool = True,
        name: str = "railhop",
        sides: str = "ab",
        oob_address: str = "",
        environment: Optional[Mapping[str, str]] = None,
        devices: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
    ) -> None:
        # The last five are for TwoHosts: which ranks' NICs this guest has, its address for
        # out-of-band sockets, what programs are told, the devices that join it to the other guest.
        self._machine = Machine(
            kernel or find_kernel(),
            name=name,
            settings={
                "RAILS": str(rails),
                "SIDES": " ".join(sides),
                "MTU": str(mtu),
                "OOB_ADDRESS": oob_address,
            },
            devices=devices,
            pass_fds=pass_fds,
            memory_mb=memory_mb,
            scratch=scratch,
        )
        self.scratch = self._machine.scratch
        """The folder that host and guest share, under the same path."""
        self.devices = [f"rx{side}{rail}" for rail in range(rails) for side in sides]
        self._channel = Channel(self._machine.line, self._machine.console_tail)
        self._environment = dict(environment or {})
        self._name = name
        self._starts = itertools.count(1)  # Safe to use from any thread.
        self._closed = False
        if boot:
            self.wait_ready()

    def wait_ready(self, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Waits until the guest takes orders; ends it if it does not come up."""
        try:
            self._channel.wait_ready(timeout_s)
        except BaseException:
            self._end(gently=False)
            raise

    def start(
        self,
        command: Command,
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[Path] = None,
        stdout: Optional[Path] = None,
        stderr: Optional[Path] = None,
    ) -> GuestProcess:
        """Starts a program: a string is for bash, a sequence is the program and its arguments.

        env: added to the guest's small environment. cwd: default is the host's working directory.
        stdout, stderr: files in `scratch`; errors go with the output unless they have their own.
        Raises ValueError if the program cannot be started.
        """
        argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        number = next(self._starts)
        out = stdout or self.scratch / f".{self._name}-output-{number}"
        err = stderr or out
        for file in (out, err):
            file.touch()
        # An environment may be too long for the line to the agent (channel.py).
        details = self.scratch / f".{self._name}-start-{number}"
        environment = {**self._environment, **(env or {})}
        details.write_text(
            json.dumps({"argv": argv, "env": environment, "cwd": str(cwd or os.getcwd())})
        )
        try:
            answer = self._channel.order(
                "start", details=str(details), stdout=str(out), stderr=str(err)
            )
        finally:
            details.unlink(missing_ok=True)
        said = command if isinstance(command, str) else " ".join(command)
        return GuestProcess(self._channel, answer["id"], said, out, err)

    def run(self, command: Command, timeout_s: float = 300, **start: Any) -> Completed:
        """Starts a program and waits for it; on a timeout ends it and raises TimeoutError."""
        process = self.start(command, **start)
        try:
            status = process.wait(timeout_s)
        except TimeoutError:
            process.kill()
            raise
        return Completed(status, process.output())

    def link(self, device: str) -> Link:
        """The link of an RDMA device, for faults. Raises ValueError for a device it has not."""
        if device not in self.devices:
            raise ValueError(f"{device}: no such device (there are: {', '.join(self.devices)})")
        return Link(self, device)

    @property
    def process_group(self) -> int:
        """The process group that has all of the guest's processes on the host."""
        return self._machine.process_group

    def link_words(self, *words: str) -> str:
        """Sends a line of the fault grammar to the guest and returns what it prints."""
        text: str = self._channel.order("link", words=list(words))["text"]
        return text

    def read(self, path: str) -> str:
        """The content of a small file of the guest, such as one in /sys. Raises ValueError."""
        text: str = self._channel.order("read", path=path)["text"]
        return text

    def wait_listening(self, tcp_port: int, timeout_s: float = 30) -> None:
        """Waits until a program of the guest listens on a TCP port; raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        # Source: proc(5) on /proc/net/tcp: number, local address:port, remote, state (0A: listens).
        listens = re.compile(rf"^ *\d+: [0-9A-F]+:{tcp_port:04X} \S+ 0A ", re.MULTILINE)
        while not any(listens.search(self.read(f"/proc/net/{table}")) for table in ("tcp", "tcp6")):
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing listens on port {tcp_port} after {timeout_s:g} s")
            time.sleep(POLL_S)

    def console(self) -> str:
        """What the guest's kernel has said, for a look at a failure."""
        return self._machine.console_tail()

    def close(self) -> None:
        """Powers the guest off, ends all its processes, and deletes its files on the host."""
        self._end(gently=True)

    def kill(self) -> None:
        """Ends the guest as if its host had lost power."""
        self._end(gently=False)

    def _end(self, gently: bool) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if gently:
                self._channel.post("stop")
                self._channel.wait_ended(STOP_TIMEOUT_S)
        except GuestError:
            pass  # It has ended already.
        finally:
            self._machine.kill()
            self._channel.close()

    def __enter__(self) -> Guest:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()
