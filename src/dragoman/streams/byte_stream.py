"""Interface of the byte stream that the runner writes to: a socket, or a pipe in the simulation."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from dragoman.carriers.carrier import Frame


@mypyc_attr(allow_interpreted_subclasses=True)
class ByteStream:
    """A two-way stream of bytes that counts what it carried."""

    __slots__ = ("backlog", "closed_in_order", "received", "sent")

    sent: int  # bytes that the kernel has taken
    received: int  # bytes that have been read
    backlog: int  # bytes accepted by `write` that the kernel has not taken
    closed_in_order: bool  # the remote side closed the connection after it had received everything that was sent

    def write(self, buffers: list[Frame]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def read_dry(self) -> bool:
        """Read everything that has arrived. Returns whether the connection is still open."""
        raise NotImplementedError

    def unread(self) -> int:
        """Number of the last bytes sent that the remote side certainly did not read. Call it before `close`."""
        raise NotImplementedError
