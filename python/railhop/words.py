"""The base of the API's words: enums whose members are their texts."""

from __future__ import annotations

import enum

__all__ = ["Word"]


class Word(str, enum.Enum):
    """A word of the API: an enum's member that is also its text.

    Example:
        >>> railhop.PortState.DOWN == "down"
        True
        >>> f"the port is {railhop.PortState.DOWN}"
        'the port is down'
        >>> railhop.PortState("hold_down")
        <PortState.HOLD_DOWN: 'hold_down'>
    """

    # Python 3.9 to 3.13 each have their own mind about these.
    __str__ = str.__str__

    def __format__(self, format_spec: str) -> str:
        return format(str.__str__(self), format_spec)
