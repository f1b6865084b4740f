"""Interface of a carrier: a pure object that turns the byte stream of one connection into messages and back.

`feed` takes bytes that were read, cut anywhere, and returns the messages that ended in them. While a large frame
arrives, `gap` is the place for its next bytes: the caller may read into it and call `fill(count)`, or continue with
`feed`. The carrier's own bytes (a greeting, a heartbeat) collect in `outgoing`.

A carrier of a listener decodes at most `most` messages in one call, so that thousands of short messages that came in
one read do not hold up everything else. The undecoded bytes stay in `rest`, and `feed(b"")` continues with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from mypy_extensions import mypyc_attr

from dragoman.carriers.malformed import Malformed

Frame = bytes | bytearray  # a large frame is the bytearray it was read into; it never changes after it was returned
Message = list[Frame]
UNBOUNDED: Final = 1 << 62  # the `most` of a carrier whose owner has not set it


@final
@dataclass(frozen=True, slots=True)
class TooLarge:
    """Replaces a message over `max_payload`.

    `frames`: the leading frames before the first large one that arrived before the limit was exceeded, in their places:
    enough to find the sender to respond to. `size`: bytes of all frames.
    """

    frames: Message
    size: int

    def malformed(self) -> Malformed:
        """Return the message as an error of the peer."""
        return Malformed("too large", f"a message of {self.size} bytes")


Messages = list[Message | TooLarge]


def size_of(frames: list[Frame]) -> int:
    """Return the total size in bytes. Compiled, this loop costs a fraction of `sum(map(len, frames))`."""
    size = 0
    for frame in frames:
        size += len(frame)
    return size


@mypyc_attr(allow_interpreted_subclasses=True)
class Reader:
    """The part of a carrier that a stream needs."""

    __slots__ = ("gap", "most", "rest")

    gap: memoryview | None
    most: int  # messages, and replies of the carrier itself, that one `feed` decodes; set by a stream with turns
    rest: bytes  # bytes that are not decoded yet because a `feed` had `most` messages, and a decoded part before them

    @property
    def begins_tls(self) -> bool:
        """True once TLS may begin, on a stream with TLS: at once, unless the protocol has a plain greeting (NATS)."""
        return True

    def enter_tls(self) -> None:
        """Expect decrypted bytes from now on. Called when TLS begins after a plain greeting."""

    def feed(self, data: bytes) -> Messages:
        raise NotImplementedError

    def fill(self, count: int) -> Messages:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Carrier(Reader):
    """Translates between the bytes of one connection and messages."""

    __slots__ = ("failure", "outgoing", "peer_identity", "ready")

    outgoing: list[bytes]
    ready: bool  # the handshake is done, and messages may be sent
    failure: Malformed | None  # the error that ended the connection, if any
    peer_identity: bytes  # the routing id that the peer chose, or empty

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return the buffers to write for a message, in order."""
        raise NotImplementedError

    def ping(self) -> bytes | None:
        """Return a heartbeat that requests a reply, or None if the peer's version of the carrier has none (D12)."""
        raise NotImplementedError

    @property
    def has_ping(self) -> bool:
        """True if the peer's version of the carrier has a heartbeat."""
        return self.ping() is not None

    def release(self) -> None:
        """Drop all kept bytes, because the connection has ended."""
        raise NotImplementedError

    @property
    def holding(self) -> int:
        """Number of bytes kept of an unfinished message."""
        raise NotImplementedError
