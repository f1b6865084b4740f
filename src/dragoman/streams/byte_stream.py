"""Interface of a byte stream: a socket, TLS on a socket, or a pipe in the simulation."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from dragoman.carriers.carrier import Frame, Messages


@mypyc_attr(allow_interpreted_subclasses=True)
class ByteStream:
    """A two-way stream of bytes that counts what it carried. With TLS the counts are of plain bytes."""

    __slots__ = ("backlog", "closed_in_order", "received", "sent")

    sent: int  # bytes that the kernel has taken
    received: int  # bytes that have been read
    backlog: int  # bytes accepted by `write` that the kernel has not taken
    closed_in_order: bool  # the remote side closed the connection after it had received everything that was sent

    def start(self, arrived: Callable[[Messages], None], ended: Callable[[str], None]) -> None:
        """Start reading. Calls `arrived` with messages, and `ended` once with the reason."""
        raise NotImplementedError

    def write(self, buffers: list[Frame]) -> None:
        raise NotImplementedError

    def when_low(self, mark: int, call: Callable[[], None]) -> None:
        """Call once when at most this many bytes are left to write. Streams that do not wait for a kernel ignore it."""

    def pause(self) -> None:
        """Read nothing until `resume`: the other side waits. Its end is seen later, too."""

    def resume(self) -> None:
        """Read again."""

    def finish(self) -> None:
        """Shut down writing, and continue to read. Call it when nothing is left to write."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def read_dry(self) -> bool:
        """Read everything that has arrived. Returns whether the connection is still open."""
        raise NotImplementedError

    def unread(self) -> int:
        """Number of the last bytes sent that the remote side certainly did not read. Call it before `close`."""
        raise NotImplementedError

    def take_turn(self) -> None:
        """Read, or continue with undecoded bytes (`turn.py`)."""
        raise NotImplementedError

    @property
    def is_queued(self) -> bool:
        """True if bytes that have arrived wait for a turn."""
        return False

    @property
    def is_ready(self) -> bool:
        """True if the stream's own handshake is done. A stream without TLS has none."""
        return True

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the remote side (DER), or None if it has shown none."""
        return None

    @property
    def wire_sent(self) -> int:
        """Bytes that the kernel has taken, as they travel: with TLS, encrypted bytes and handshakes."""
        return self.sent

    @property
    def wire_received(self) -> int:
        """Bytes that have been read, as they travel."""
        return self.received
