"""railhop-link: faults for the NICs of a guest. Runs in the guest, as a command and for the agent.

A NIC (RDMA device rxa0, network device a0) is plugged into a switch port (pa0). Pulling its cable
takes that port down, so the NIC loses its carrier and the other end of the rail keeps its own, as
with a real switch. What a NIC sends passes the queue of a0; what it receives passes the queue of
pa0: loss, delay, rate and black holes are netem on one of the two, or on both.

The words mean what they mean for the software fabric, except that `down` is administrative (as `ip
link set a0 down`): rxe then fails sends at once with LOC_QP_OP_ERR. `cable out` is the port that
loses its link.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Callable

USAGE = """\
usage: railhop-link [show [--json]]
       railhop-link DEVICE cable out | in
       railhop-link DEVICE down | up                 administratively
       railhop-link DEVICE blackhole [tx|rx] | blackhole off
       railhop-link DEVICE loss 1% [tx|rx]
       railhop-link DEVICE delay 5ms [tx|rx]
       railhop-link DEVICE rate 100Mb/s|none [tx|rx]  (b: bits, B: bytes)
       railhop-link DEVICE address 10.0.9.1[/24]|none
       railhop-link DEVICE mtu 1500
       railhop-link DEVICE clear                     no fault, cable in, up
Without tx or rx both directions are meant. A new value takes the place of the old one."""

STATE_DIR = "/run/railhop-link"
RDMA_DIR = "/sys/class/infiniband"
NET_DIR = "/sys/class/net"
IFF_UP = 1  # Source: netdevice(7).
PREFIX_LENGTH = 24
GID_ENTRIES = 8  # rxe has 1024; a NIC here never fills more than the first few.
# Packets that netem may hold: 100 ms at 10 Gb/s with the largest MTU. Its default of 1000 would
# turn a delay into loss.
QUEUE_PACKETS = 30000
MTU_MIN, MTU_MAX = 256, 9000

VERBS = (
    "cable",
    "down",
    "up",
    "blackhole",
    "loss",
    "delay",
    "rate",
    "cap",
    "address",
    "mtu",
    "clear",
)
DIRECTIONS = ("tx", "rx")
DELAY_UNITS_US = {"us": 1, "ms": 1000, "s": 1000000}
RATE_UNITS_BIT = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}

# What is wrong with one direction: the arguments of netem by name.
Faults = dict[str, str]


class LinkError(ValueError):
    """The words or the device are wrong, or a command of the guest failed."""


def parse_percent(word: str) -> str:
    """Reads "1%" or "0.5%": between 0 and 100, with its sign."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%", word)
    if not match or float(match.group(1)) > 100:
        raise LinkError(f"loss {word!r}: not a percentage between 0% and 100%")
    return "" if float(match.group(1)) == 0 else word


def parse_delay(word: str) -> str:
    """Reads "5ms", "200us" or "1.5s"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", word)
    if not match:
        raise LinkError(f"delay {word!r}: not a number with us, ms or s")
    microseconds = round(float(match.group(1)) * DELAY_UNITS_US[match.group(2)])
    return f"{microseconds}us" if microseconds else ""


def parse_rate(word: str) -> str:
    """Reads "100Mb/s", "12.5MB/s", "1Gb/s" or "none"."""
    if word == "none":
        return ""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kMG]?)([bB])/s", word)
    if not match or float(match.group(1)) == 0:
        raise LinkError(f"rate {word!r}: not a number with b/s, kb/s, Mb/s, Gb/s or B for bytes")
    bits = (
        float(match.group(1)) * RATE_UNITS_BIT[match.group(2)] * (8 if match.group(3) == "B" else 1)
    )
    return f"{round(bits)}bit"


def parse_address(word: str) -> str:
    """Reads an IPv4 address with or without prefix length, or "none"."""
    if word == "none":
        return ""
    try:
        address = ipaddress.IPv4Interface(word if "/" in word else f"{word}/{PREFIX_LENGTH}")
    except ValueError as error:
        raise LinkError(f"address {word!r}: {error}") from error
    return str(address)


def parse_mtu(word: str) -> str:
    """Reads an MTU in bytes."""
    if not word.isdigit() or not MTU_MIN <= int(word) <= MTU_MAX:
        raise LinkError(f"mtu {word!r}: not a number of bytes between {MTU_MIN} and {MTU_MAX}")
    return word


# Verb -> argument of netem, and what reads its value.
SHAPERS: dict[str, tuple[str, Callable[[str], str]]] = {
    "loss": ("loss", parse_percent),
    "delay": ("delay", parse_delay),
    "rate": ("rate", parse_rate),
    "cap": ("rate", parse_rate),  # The software fabric's word.
}


def devices() -> list[str]:
    """RDMA devices of this guest that are plugged into a switch."""
    names = sorted(os.listdir(RDMA_DIR)) if os.path.isdir(RDMA_DIR) else []
    return [name for name in names if os.path.exists(f"{NET_DIR}/p{name[2:]}")]


def run(*argv: str) -> str:
    """Runs a command of the guest and returns what it prints."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LinkError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def read(path: str) -> str:
    """The content of a small file, without the line's end."""
    with open(path, encoding="ascii") as file:
        return file.read().rstrip("\n")


def is_up(netdev: str) -> bool:
    """Administratively up."""
    return bool(int(read(f"{NET_DIR}/{netdev}/flags"), 16) & IFF_UP)


class Nic:
    """One NIC and its switch port."""

    def __init__(self, device: str) -> None:
        if device not in devices():
            raise LinkError(f"{device}: no such device (there are: {', '.join(devices())})")
        self.device = device
        self.netdev = device[2:]
        self.port = "p" + self.netdev

    def faults(self) -> dict[str, Faults]:
        """What is in force in each direction."""
        try:
            with open(f"{STATE_DIR}/{self.netdev}", encoding="ascii") as file:
                state: dict[str, Faults] = json.load(file)
                return state
        except FileNotFoundError:
            return {direction: {} for direction in DIRECTIONS}

    def set_fault(self, name: str, value: str, directions: Sequence[str]) -> None:
        """Makes `value` the fault `name` of these directions; "" takes it away."""
        state = self.faults()
        for direction in directions:
            before = dict(state[direction])
            state[direction].pop(name, None)
            if value:
                state[direction][name] = value
            self._put_netem(direction, before, state[direction])
        self._save(state)

    def clear_faults(self) -> None:
        """Takes all faults away."""
        for direction, before in self.faults().items():
            self._put_netem(direction, before, {})
        self._save({direction: {} for direction in DIRECTIONS})

    def _save(self, state: dict[str, Faults]) -> None:
        os.makedirs(STATE_DIR, exist_ok=True)
        with open(f"{STATE_DIR}/{self.netdev}", "w", encoding="ascii") as file:
            json.dump(state, file)

    def _put_netem(self, direction: str, before: Faults, faults: Faults) -> None:
        netdev = self.netdev if direction == "tx" else self.port
        netem = {name: value for name, value in faults.items() if name != "blackhole"}
        if "blackhole" in faults:
            netem["loss"] = "100%"  # Whatever loss was asked for besides.
        words = [word for pair in netem.items() for word in pair]
        queue = ["dev", netdev, "root", "netem"]
        if words:
            run("tc", "qdisc", "replace", *queue, "limit", str(QUEUE_PACKETS), *words)
        elif before:
            run("tc", "qdisc", "delete", *queue)

    def set_address(self, address: str) -> None:
        """Takes the IPv4 addresses away, then sets this one, so the GID keeps its index."""
        run("ip", "address", "flush", "dev", self.netdev, "scope", "global")
        if address:
            run("ip", "address", "add", address, "dev", self.netdev)

    def set_mtu(self, mtu: str) -> None:
        """Sets the NIC's MTU; the switch keeps its own."""
        run("ip", "link", "set", self.netdev, "mtu", mtu)

    def show(self) -> dict[str, Any]:
        """The NIC's state, for people and tests."""
        lines = run("ip", "-oneline", "-4", "address", "show", "dev", self.netdev).splitlines()
        gids = {}
        for index in range(GID_ENTRIES):
            gid = read(f"{RDMA_DIR}/{self.device}/ports/1/gids/{index}")
            if gid.strip("0:"):
                gids[str(index)] = gid
        return {
            "device": self.device,
            "port": read(f"{RDMA_DIR}/{self.device}/ports/1/state").split()[1],
            "cable": "in" if is_up(self.port) else "out",
            "up": is_up(self.netdev),
            "mtu": int(read(f"{NET_DIR}/{self.netdev}/mtu")),
            "addresses": [line.split()[3] for line in lines],  # number, device, "inet", address
            "gids": gids,
            "faults": self.faults(),
        }


def change(nic: Nic, verb: str, arguments: Sequence[str]) -> None:
    """Carries out `verb` with its arguments."""
    directions = [word for word in arguments if word in DIRECTIONS]
    values = [word for word in arguments if word not in DIRECTIONS]
    hit = directions or DIRECTIONS
    if verb in SHAPERS and len(values) == 1:
        name, parse = SHAPERS[verb]
        nic.set_fault(name, parse(values[0]), hit)
    elif verb == "blackhole" and values in ([], ["off"]):
        nic.set_fault("blackhole", "" if values else "on", hit)
    elif directions:
        raise _not_understood(nic, verb, arguments)
    elif verb == "cable" and values in (["out"], ["in"]):
        run("ip", "link", "set", nic.port, "down" if values == ["out"] else "up")
    elif verb in ("down", "up") and not values:
        run("ip", "link", "set", nic.netdev, verb)
    elif verb == "address" and len(values) == 1:
        nic.set_address(parse_address(values[0]))
    elif verb == "mtu" and len(values) == 1:
        nic.set_mtu(parse_mtu(values[0]))
    elif verb == "clear" and not values:
        nic.clear_faults()
        run("ip", "link", "set", nic.port, "up")
        run("ip", "link", "set", nic.netdev, "up")
    else:
        raise _not_understood(nic, verb, arguments)


def _not_understood(nic: Nic, verb: str, arguments: Sequence[str]) -> LinkError:
    said = " ".join([verb, *arguments])
    if verb not in VERBS:
        said = verb
    return LinkError(
        f"{nic.device}: {said!r} is not understood (verbs: {', '.join(VERBS)})\n{USAGE}"
    )


def as_text(states: Sequence[dict[str, Any]]) -> str:
    """A line for each NIC."""
    lines = []
    for state in states:
        faults = [
            f"{name}{'' if value == 'on' else ' ' + value} {direction}"
            for direction, values in state["faults"].items()
            for name, value in values.items()
        ]
        lines.append(
            f"{state['device']}: port {state['port']}, cable {state['cable']}, "
            f"{'up' if state['up'] else 'down'}, mtu {state['mtu']}, "
            f"address {' '.join(state['addresses']) or 'none'}, "
            f"faults {', '.join(faults) or 'none'}"
        )
    return "\n".join(lines)


def apply(words: Sequence[str]) -> str:
    """Carries out one line of the grammar and returns what there is to print.

    Raises LinkError, which names the word that is wrong and the ones that are allowed.
    """
    if not words or words[0] == "show":
        states = [Nic(device).show() for device in devices()]
        if list(words[1:]) == ["--json"]:
            return json.dumps(states)
        if words[1:]:
            raise LinkError(f"show {words[1]!r}: only --json is allowed\n{USAGE}")
        return as_text(states)
    if len(words) < 2:
        raise LinkError(f"{words[0]}: a verb is missing (verbs: {', '.join(VERBS)})\n{USAGE}")
    change(Nic(words[0]), words[1], words[2:])
    return ""


def main() -> int:
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    try:
        text = apply(sys.argv[1:])
    except LinkError as error:
        print(f"railhop-link: {error}", file=sys.stderr)
        return 2
    if text:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
