"""Messages behind a length: eight bytes, little-endian, then as many bytes, then bytes that only those can count.

This is how Worker-Controller's people put protobuf on a Unix socket; their document is silent about it. A message has
two parts. The *head* comes behind its length. The *extra* bytes come behind the head, raw, and how many there are is
written in the head, in the dialect's own way: so whoever makes this carrier passes in `extra_of`, which reads the count
from a head, and may raise Malformed. Messages are handed up as `[head, extra]`, with an empty extra if there is none.
An empty head is a head: eight bytes of 0 are a whole message, if the dialect counts no extra bytes in nothing.

There is no greeting, no identity and no life sign: the peer may be spoken to as soon as its stream stands. There may be
any number of messages in a stream; where a dialect has one only, `is_alone` tells whether it was (R81).

**Where bytes go.** `feed` is given whatever was read and returns the messages that ended in it. Between two feeds the
object is in one of these steps; how the stream was cut never changes what comes out (I18).

    BETWEEN    nothing is pending
    HEAD       a length and what there is of its head wait in `_held`; parsing goes on when `_need` bytes are there
    EXTRA      `_head` is whole, and few extra bytes wait in `_held`, likewise
    LARGE      `_head` is whole, and many extra bytes are read into a buffer of their own: `gap` is where more belong
    FAILED     `failure` says why; what is fed now is ignored

**What a peer can cost us.** A length over `max_head` is the end of the connection at once, and so is a count of extra
bytes over `max_payload` as soon as the head is there: nothing of either is read. A claim allocates nothing by itself:
the buffer of many extra bytes grows with what came (`large.py`, R100).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.carriers.carrier import Carrier, Frame, Messages
from dragoman.carriers.large_frame import LARGE_FRAME, MIB, NOTHING, LargeFrame
from dragoman.carriers.malformed import Malformed

BETWEEN: Final = 0
HEAD: Final = 1
EXTRA: Final = 2
LARGE: Final = 3
FAILED: Final = 4

LENGTH_SIZE: Final = 8
PASSED_THROUGH: Final = 16 * 1024  # from here on `encode` hands the extra bytes on instead of copying them


@dataclass(frozen=True, slots=True)
class LengthPrefixLimits:
    """What one peer may make us hold, in bytes."""

    max_head: int = 64 * 1024
    max_payload: int = 64 * MIB  # of extra bytes

    def __post_init__(self) -> None:
        if self.max_head < 1 or self.max_payload < 1:
            raise ValueError(f"max_head and max_payload must be above 0: {self}")


DEFAULT_LIMITS: Final = LengthPrefixLimits()


class LengthPrefix(Carrier):
    """One peer's stream: bytes in, messages out. It says nothing itself."""

    # fmt: off
    __slots__ = (
        "_count", "_extra_of", "_head", "_held", "_large", "_limits", "_need", "_refusal", "_single", "_step",
    )
    # fmt: on

    def __init__(
        self,
        extra_of: Callable[[bytes], int],
        *,
        single: bool = False,
        refusal: bytes = b"",
        limits: LengthPrefixLimits = DEFAULT_LIMITS,
    ) -> None:
        """`single`: one message is all that may come; with bytes behind it, it is not handed up (R81).
        `refusal`: the head that says so to a peer which failed."""
        self.outgoing: list[bytes] = []
        self.ready = True
        self.failure: Malformed | None = None
        self.peer_identity = b""  # there is none
        self.gap: memoryview | None = None
        self._extra_of = extra_of
        self._limits = limits
        self._single = single
        self._refusal = refusal
        self._count = 0  # messages that were handed up
        self._step = BETWEEN
        self._held = bytearray()
        self._need = 0
        self._head = b""
        self._large = NOTHING

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        """The buffers to write for a head, and for its extra bytes if they are given."""
        assert 1 <= len(frames) <= 2, f"{len(frames)} frames, where a head and its extra bytes may be"
        head = frames[0]
        length = len(head).to_bytes(LENGTH_SIZE, "little")
        if len(frames) == 1:
            return [length + head]
        extra = frames[1]
        if len(extra) < PASSED_THROUGH:
            return [b"".join((length, head, extra))]
        return [length + head, extra]

    def feed(self, data: bytes) -> Messages:
        """Takes what was read; returns the messages that ended in it, in order."""
        messages: Messages = []
        try:
            pos = 0
            if self._step != BETWEEN:
                data, pos = self._resume(data, messages)
            while pos < len(data):
                pos = self._take_head(data, pos, messages)
        except Malformed as failure:
            self._fail(failure)
        return self._counted(messages)

    def fill(self, count: int) -> Messages:
        """`count` bytes were read into `gap`; returns the message that ended with them, if one did."""
        messages: Messages = []
        if self.gap is not None:
            self._large.fill(count)
            self._look_at_large(messages)
        return self._counted(messages)

    @property
    def holding(self) -> int:
        """Bytes of an unfinished message that wait here for the rest of it."""
        return len(self._held) + len(self._head) + len(self._large)

    @property
    def is_alone(self) -> bool:
        """One message has come, and not a byte behind it.

        For a session that hears the first message: others may have come whole with it, or too broken to be held.
        """
        return self._count == 1 and self._step == BETWEEN

    def release(self) -> None:
        """The conversation is over: let go of all that is held. What is fed now is ignored."""
        self._step = FAILED
        self.gap = None
        self._held = bytearray()
        self._head = b""
        self._large = NOTHING

    def ping(self) -> None:
        """There is no life sign."""

    def _counted(self, messages: Messages) -> Messages:
        if not messages:
            return messages
        self._count += len(messages)
        if self._single and not self.is_alone:
            if self.failure is None:
                self._fail(Malformed("bytes behind the message", "one message is spoken, and nothing else"))
            return []
        return messages

    def _fail(self, failure: Malformed) -> None:
        self.failure = failure
        self.release()
        if self._refusal:
            self.outgoing += [bytes(each) for each in self.encode([self._refusal])]

    # ---- piece by piece

    def _resume(self, data: bytes, messages: Messages) -> tuple[bytes, int]:
        """Goes on where the last feed stopped; returns the bytes to parse as messages, and from where."""
        step = self._step
        if step == LARGE:
            pos = self._large.pour(data, 0)
            self._look_at_large(messages)
            return data, pos
        if step == FAILED:
            return b"", 0
        held, need = self._held, self._need
        if len(held) + len(data) < need:
            held += data
            return b"", 0
        self._held = bytearray()
        self._step = BETWEEN
        data = b"".join((held, data))
        if step == HEAD:
            return data, 0
        self._hand_up(data[:need], messages)
        return data, need

    def _take_head(self, data: bytes, pos: int, messages: Messages) -> int:
        """Takes the message at `pos`, or as much of it as there is; returns where the next begins."""
        start = pos + LENGTH_SIZE
        if start > len(data):
            return self._hold(HEAD, data, pos, start)
        length = int.from_bytes(data[pos:start], "little")
        if length > self._limits.max_head:
            raise Malformed("head too long", f"a head of {length} bytes; max_head is {self._limits.max_head}")
        end = start + length
        if end > len(data):
            return self._hold(HEAD, data, pos, end)
        return self._take_extra(data[start:end], data, end, messages)

    def _take_extra(self, head: bytes, data: bytes, pos: int, messages: Messages) -> int:
        """Takes the extra bytes at `pos` that belong to `head`, or as many as there are; returns where they end."""
        count = self._extra_of(head)
        assert count >= 0, f"{count} extra bytes"
        if count > self._limits.max_payload:
            detail = f"a head that counts {count} extra bytes; max_payload is {self._limits.max_payload}"
            raise Malformed("over max_payload", detail)
        end = pos + count
        if end <= len(data):
            messages.append([head, data[pos:end]])
            return end
        self._head = head
        if count < LARGE_FRAME:
            return self._hold(EXTRA, data, pos, end)
        self._step = LARGE
        self._large = LargeFrame(count, len(data) - pos)
        pos = self._large.pour(data, pos)
        self._look_at_large(messages)
        return pos

    def _hold(self, step: int, data: bytes, pos: int, end: int) -> int:
        """Keeps an unfinished part, until there is as much of it as would end at `end`."""
        self._step = step
        self._held += memoryview(data)[pos:]
        self._need = end - pos
        return len(data)

    def _look_at_large(self, messages: Messages) -> None:
        """Its gap has moved; if there is none left, the message is whole."""
        large = self._large
        self.gap = large.gap
        if large.gap is None:
            self._large = NOTHING
            self._step = BETWEEN
            self._hand_up(large.buffer, messages)

    def _hand_up(self, extra: Frame, messages: Messages) -> None:
        messages.append([self._head, extra])
        self._head = b""
