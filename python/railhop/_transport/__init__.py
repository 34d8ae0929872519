"""Drives any NCCL net plugin by its own ABI, without NCCL and without a GPU.

    plugin = Plugin("/opt/railhop/libnccl-net-railhop.so")
    listener = plugin.listen(device=0)          # listener.handle goes to the peer
    connection = listener.accept(timeout_s=10)
    memory = connection.register(bytearray(4096))
    size = memory.post().wait(timeout_s=10)

`Messenger` carries tagged messages between the processes of a group over every device of the
plugin; `group.Group` finds its peers and `collectives` is what `railhop.torch` and drills are
made of.
"""

from __future__ import annotations

from railhop._transport.errors import (
    ClosedError,
    MismatchError,
    PeerError,
    PluginCallError,
    PluginLoadError,
    TransportError,
    TransportTimeoutError,
)
from railhop._transport.native import (
    Connection,
    Device,
    Listener,
    Memory,
    Messenger,
    Operation,
    Plugin,
    Request,
)

__all__ = [
    "ClosedError",
    "Connection",
    "Device",
    "Listener",
    "Memory",
    "Messenger",
    "MismatchError",
    "Operation",
    "PeerError",
    "Plugin",
    "PluginCallError",
    "PluginLoadError",
    "Request",
    "TransportError",
    "TransportTimeoutError",
]
