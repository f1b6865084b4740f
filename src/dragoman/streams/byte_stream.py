"""The interface of a byte stream that the line writes on: a socket, or a pipe of a simulated world."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from dragoman.carriers.carrier import Frame


@mypyc_attr(allow_interpreted_subclasses=True)
class ByteStream:
    __slots__ = ("backlog", "closed_in_order", "received", "sent")

    sent: int  # bytes that the kernel has taken
    received: int  # bytes that have been read
    backlog: int  # bytes handed over that the kernel has not taken
    closed_in_order: bool  # the other side has closed it, and has received all that was sent

    def write(self, buffers: list[Frame]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def read_dry(self) -> bool:
        """Take in all that has arrived already. Tells whether the connection is still open."""
        raise NotImplementedError

    def unread(self) -> int:
        """How many bytes, of the last that were sent, the peer cannot have read. To be asked before `close`."""
        raise NotImplementedError
