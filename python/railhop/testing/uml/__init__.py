"""Guests with the Linux kernel's software RDMA: see guest.py and docs/kernel-fabric.md."""

from railhop.testing.uml.channel import GuestError
from railhop.testing.uml.guest import Completed, Guest, GuestProcess, Link, LinkState
from railhop.testing.uml.kernel import KernelMissingError, find_kernel
from railhop.testing.uml.two_hosts import TwoHosts

__all__ = [
    "Completed",
    "Guest",
    "GuestError",
    "GuestProcess",
    "KernelMissingError",
    "Link",
    "LinkState",
    "TwoHosts",
    "find_kernel",
]
