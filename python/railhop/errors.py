"""What goes wrong, as one family: every text is one line that says what to do.

Example:
    >>> import railhop
    >>> try:
    ...     railhop.attach(pid=1)
    ... except railhop.Error as error:
    ...     print(type(error).__name__)
    NotFoundError
"""

from __future__ import annotations

__all__ = [
    "Error",
    "InternalError",
    "InvalidError",
    "NoAnswerError",
    "NotAllowedError",
    "NotFoundError",
    "NotLoadedError",
    "RefusedError",
    "StaleSocketError",
]


class Error(Exception):
    """All of these; catch it to catch any.

    Example:
        >>> issubclass(railhop.RefusedError, railhop.Error)
        True
    """


class NotLoadedError(Error):
    """The plugin is not in this process, or NCCL has not started it yet.

    NCCL loads it with the first communicator; before that there is nothing to ask.

    Example:
        >>> try:
        ...     verdict = str(railhop.health().verdict)
        ... except railhop.NotLoadedError:
        ...     verdict = "no communicator yet"
        >>> verdict
        'ok'
    """


class NotFoundError(Error):
    """No such process, job, device, port, connection or option; the text lists what there is.

    Example:
        >>> try:
        ...     railhop.hold("mlx5_7")
        ... except railhop.NotFoundError as error:
        ...     print("mlx5_0" in str(error))
        True
    """


class InvalidError(Error, ValueError):
    """A value that means nothing: the text names it and what is allowed.

    Example:
        >>> try:
        ...     railhop.force_failover("mlx5_0", mode="gently")
        ... except railhop.InvalidError as error:
        ...     print("drain" in str(error))
        True
    """


class StaleSocketError(Error):
    """A process has ended and left its socket: nobody answers there.

    Example:
        >>> issubclass(railhop.StaleSocketError, railhop.Error)
        True
    """


class NotAllowedError(Error, PermissionError):
    """The job of another user. Its owner and root may.

    Example:
        >>> issubclass(railhop.NotAllowedError, PermissionError)
        True
    """


class RefusedError(Error):
    """It would leave a connection without a path, or cannot be done as things are. Nothing changed.

    Example:
        >>> try:
        ...     for port in railhop.health().ports:
        ...         _ = railhop.hold(port.name)
        ... except railhop.RefusedError:
        ...     print("the last one stays")
        ... finally:
        ...     for port in railhop.health().ports:
        ...         _ = railhop.release(port.name)
        the last one stays
    """


class NoAnswerError(Error, TimeoutError):
    """No answer in the time given. The process may be stopped; asking again does no harm.

    Example:
        >>> issubclass(railhop.NoAnswerError, TimeoutError)
        True
    """


class InternalError(Error):
    """The system or the other end misbehaves: worth a bug report.

    Example:
        >>> issubclass(railhop.InternalError, railhop.Error)
        True
    """
