"""What every carrier is: a pure object that turns one peer's byte stream into messages and back.

`feed` is given whatever was read, cut anywhere, and returns the messages that ended in it. While a large frame is on
its way, `gap` is where its next bytes belong: whoever reads may read straight into it and say `fill(count)`, or just go
on feeding. What the carrier has to say itself (a greeting, a life sign) collects in `outgoing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from mypy_extensions import mypyc_attr

from dragoman.carriers.malformed import Malformed

Frame = bytes | bytearray  # a large frame is the bytearray it was read into; it is never changed once handed up
Message = list[Frame]


@final
@dataclass(frozen=True, slots=True)
class TooLarge:
    """Stands where a message over `max_payload` stood.

    `frames`: its leading frames up to the first large one, as far as they came before it went over: enough to know whom
    to answer, each at the place it had. `size`: bytes of all its frames.
    """

    frames: Message
    size: int

    def malformed(self) -> Malformed:
        """The peer's fault, where nothing else is to be made of it."""
        return Malformed("too large", f"a message of {self.size} bytes")


Messages = list[Message | TooLarge]


def size_of(frames: list[Frame]) -> int:
    """Bytes of all of them. A loop: compiled, it costs a fraction of `sum(map(len, frames))`."""
    size = 0
    for frame in frames:
        size += len(frame)
    return size


@mypyc_attr(allow_interpreted_subclasses=True)
class Reader:
    """The part of a carrier that a stream needs."""

    __slots__ = ("gap",)

    gap: memoryview | None

    def feed(self, data: bytes) -> Messages:
        raise NotImplementedError

    def fill(self, count: int) -> Messages:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Carrier(Reader):
    __slots__ = ("failure", "outgoing", "peer_identity", "ready")

    outgoing: list[bytes]
    ready: bool  # the peer has greeted, and may be spoken to
    failure: Malformed | None  # why this is the end, if it is
    peer_identity: bytes  # the routing id that the peer has given itself, or empty

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        """The buffers to write for a message, in order."""
        raise NotImplementedError

    def ping(self) -> bytes | None:
        """A life sign that asks for one, where the peer's edition of the carrier has it (D12)."""
        raise NotImplementedError

    def release(self) -> None:
        """The connection is over: let go of all that is held."""
        raise NotImplementedError

    @property
    def holding(self) -> int:
        """Bytes of an unfinished message."""
        raise NotImplementedError
