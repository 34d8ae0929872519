"""What goes wrong in railhop._transport; `result` is NCCL's number where the plugin gave one."""

from __future__ import annotations

from railhop.errors import Error


class TransportError(Error, RuntimeError):
    """Any of the below."""

    result: int = 0


class PluginLoadError(TransportError):
    """No such plugin, it does not start, or it finds no device."""


class PluginCallError(TransportError):
    """A call of the plugin gave an error."""


class PeerError(TransportError):
    """A peer has left, or the plugin has given up every path to it."""


class MismatchError(TransportError, ValueError):
    """Both ends did not call the same thing, or an argument fits nothing."""


class TransportTimeoutError(TransportError, TimeoutError):
    """Not done in the time given."""


class ClosedError(TransportError):
    """Used after it was closed, or closed while under way."""
