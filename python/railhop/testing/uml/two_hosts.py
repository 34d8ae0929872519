"""Two guests as two hosts: each has one rank's NICs and a switch; cables join the switches.

    with TwoHosts(rails=2) as hosts:
        server = hosts.a.start("ib_write_bw -d rxa0 -x 1 -F")
        client = hosts.b.start("ib_write_bw -d rxb0 -x 1 -F $RAILHOP_OOB_PEER")

A cable between two guests is a pair of datagram sockets. One cable more, `oob0`, is the network for
out-of-band sockets; no fault reaches it. Each guest has a processor of its own.
"""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Optional

from railhop.testing.uml.guest import MTU_DEFAULT, Guest, Link
from railhop.testing.uml.kernel import find_kernel
from railhop.testing.uml.machine import joined_sockets, vector_device

OOB_ADDRESSES = {"a": "192.168.77.1", "b": "192.168.77.2"}


def oob_environment(host: str) -> dict[str, str]:
    """What programs on a host are told: its name, its out-of-band address and the peer's."""
    peer = "b" if host == "a" else "a"
    return {
        "RAILHOP_HOST": host,
        "RAILHOP_OOB_ADDRESS": OOB_ADDRESSES[host],
        "RAILHOP_OOB_PEER": OOB_ADDRESSES[peer],
    }


class TwoHosts:
    """Two running guests, `a` with rxa0.. and `b` with rxb0... Arguments are those of Guest.

    scratch: an existing folder that both share with the host.
    """

    def __init__(
        self,
        rails: int = 2,
        *,
        mtu: int = MTU_DEFAULT,
        memory_mb: int = 512,
        kernel: Optional[Path] = None,
        scratch: Optional[Path] = None,
    ) -> None:
        kernel = kernel or find_kernel()
        cables = [joined_sockets() for _ in range(rails + 1)]
        guests: list[Guest] = []
        try:
            for end, host in enumerate("ab"):
                fds = [cable[end].fileno() for cable in cables]
                guests.append(
                    Guest(
                        rails,
                        mtu=mtu,
                        memory_mb=memory_mb,
                        kernel=kernel,
                        scratch=scratch,
                        boot=False,
                        name=f"host-{host}",
                        sides=host,
                        oob_address=OOB_ADDRESSES[host],
                        environment=oob_environment(host),
                        devices=_devices(fds, host_number=end + 1, mtu=mtu),
                        pass_fds=fds,
                    )
                )
            for guest in guests:
                guest.wait_ready()
        except BaseException:
            for guest in guests:
                guest.kill()
            raise
        finally:
            _close(cables)
        self.a, self.b = guests

    def link(self, device: str) -> Link:
        """The link of a device of either host."""
        return (self.b if device in self.b.devices else self.a).link(device)

    def close(self) -> None:
        """Ends both guests."""
        try:
            self.a.close()
        finally:
            self.b.close()

    def __enter__(self) -> TwoHosts:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


def _devices(fds: list[int], host_number: int, mtu: int) -> list[str]:
    return [
        vector_device(number, fd, f"02:00:00:00:1{host_number}:{number:02x}", mtu)
        for number, fd in enumerate(fds)
    ]


def _close(cables: list[list[socket.socket]]) -> None:
    # The guests have their own copies.
    for cable in cables:
        for end in cable:
            end.close()
