"""Messages with a length prefix: eight bytes, little-endian, then a head of this length, then extra bytes.

Worker-Controller's programs send protobuf over a Unix socket this way; their document does not describe it. A message
has two parts: the *head*, which follows its length, and the *extra* bytes, which follow the head. Their count is in the
head, in the dialect's encoding: the constructor takes `extra_of`, which reads the count from a head and may raise
Malformed. `feed` returns messages as `[head, extra]`, with an empty extra if there is none. An empty head is valid:
eight bytes of 0 are a complete message, if the dialect finds no extra bytes in it.

There is no greeting, identity or heartbeat: messages may be sent as soon as the stream is connected. A stream may have
any number of messages; in a dialect that allows one, `is_alone` tells if it was the only one (R81).

**Parsing.** `feed` takes the bytes that were read and returns the messages that ended in them. Between two calls the
object is in one of these steps. The result does not depend on how the stream was cut (I18).

    BETWEEN    nothing is pending
    HEAD       a length and the beginning of its head are in `_held`; parsing continues when it has `_need` bytes
    EXTRA      `_head` is complete, and a few extra bytes are in `_held`, likewise
    LARGE      `_head` is complete, and many extra bytes are read into their own buffer; `gap` is the place for more
    FAILED     `failure` is the error; further bytes are ignored

**Limits.** A length over `max_head` ends the connection at once. So does a count of extra bytes over `max_payload` as
soon as the head is complete: nothing of either is read. A claim allocates nothing: the buffer of many extra bytes grows
with the bytes that arrived (`large_frame.py`, R100).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.carriers.carrier import UNBOUNDED, Carrier, Frame, Messages
from dragoman.carriers.large_frame import LARGE_FRAME, MIB, NOTHING, LargeFrame
from dragoman.carriers.malformed import Malformed

BETWEEN: Final = 0
HEAD: Final = 1
EXTRA: Final = 2
LARGE: Final = 3
FAILED: Final = 4

LENGTH_SIZE: Final = 8
OVER_LIMIT: Final = "over max_payload"  # reason of a failure
PASSED_THROUGH: Final = 16 * 1024  # bytes; `encode` does not copy extra bytes of this size or more


@dataclass(frozen=True, slots=True)
class LengthPrefixLimits:
    """Maximum number of bytes kept for one connection."""

    max_head: int = 64 * 1024
    max_payload: int = 64 * MIB  # of extra bytes

    def __post_init__(self) -> None:
        if self.max_head < 1 or self.max_payload < 1:
            raise ValueError(f"max_head and max_payload must be above 0: {self}")


DEFAULT_LIMITS: Final = LengthPrefixLimits()


class LengthPrefix(Carrier):
    """The stream of one connection: bytes in, messages out. It sends nothing on its own but `refusal`."""

    # fmt: off
    __slots__ = (
        "_count", "_extra_of", "_head", "_held", "_large", "_limits", "_need", "_refusal", "_rest_at", "_single",
        "_step",
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
        """`single`: only one message may come; if bytes follow it, it is not returned (R81).
        `refusal`: the head to send to a peer whose stream failed."""
        self.outgoing: list[bytes] = []
        self.ready = True
        self.failure: Malformed | None = None
        self.peer_identity = b""  # there is none
        self.gap: memoryview | None = None
        self.most = UNBOUNDED
        self.rest = b""
        self._rest_at = 0  # place of the first byte in `rest` that is not decoded
        self._extra_of = extra_of
        self._limits = limits
        self._single = single
        self._refusal = refusal
        self._count = 0  # messages that were returned
        self._step = BETWEEN
        self._held = bytearray()
        self._need = 0
        self._head = b""
        self._large = NOTHING

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return the buffers to write for a head and its extra bytes, if given."""
        assert 1 <= len(frames) <= 2, f"{len(frames)} frames; a head and its extra bytes are allowed"
        head = frames[0]
        length = len(head).to_bytes(LENGTH_SIZE, "little")
        if len(frames) == 1:
            return [length + head]
        extra = frames[1]
        if len(extra) < PASSED_THROUGH:
            return [b"".join((length, head, extra))]
        return [length + head, extra]

    def feed(self, data: bytes) -> Messages:
        """Parse bytes that were read. Returns the messages that ended in them, in order."""
        messages: Messages = []
        try:
            pos = 0
            if self.rest:
                data, pos = self._take_rest(data)
            elif self._step != BETWEEN:
                data, pos = self._resume(data, messages)
            while pos < len(data):
                if len(messages) >= self.most:
                    self.rest, self._rest_at = data, pos
                    break
                pos = self._take_head(data, pos, messages)
        except Malformed as failure:
            self._fail(failure)
        return self._counted(messages)

    def fill(self, count: int) -> Messages:
        """Accept `count` bytes that were read into `gap`. Returns the message that ended with them, if any."""
        messages: Messages = []
        if self.gap is not None:
            self._large.fill(count)
            self._update_large(messages)
        return self._counted(messages)

    @property
    def holding(self) -> int:
        """Number of bytes kept: of an unfinished message, and those that are not decoded yet."""
        return len(self._held) + len(self._head) + len(self._large) + len(self.rest)

    @property
    def is_alone(self) -> bool:
        """Tell if one message has come and no byte after it.

        For a broker side that receives the first message: others may have come with it, complete or malformed.
        """
        return self._count == 1 and self._step == BETWEEN

    def release(self) -> None:
        """Drop all kept bytes, because the connection has ended. Further bytes are ignored."""
        self._step = FAILED
        self.gap = None
        self.rest = b""
        self._held = bytearray()
        self._head = b""
        self._large = NOTHING

    def ping(self) -> None:
        """Do nothing: there is no heartbeat."""

    def _counted(self, messages: Messages) -> Messages:
        if not messages:
            return messages
        self._count += len(messages)
        if self._single and not self.is_alone:
            if self.failure is None:
                self._fail(Malformed("bytes behind the message", "only one message is allowed"))
            return []
        return messages

    def _fail(self, failure: Malformed) -> None:
        self.failure = failure
        self.release()
        if self._refusal:
            self.outgoing += [bytes(each) for each in self.encode([self._refusal])]

    # ---- the parts of a message

    def _take_rest(self, data: bytes) -> tuple[bytes, int]:
        """Return the bytes to parse, and the position to start at: those of an earlier `feed`, then `data`."""
        rest, pos, self.rest = self.rest, self._rest_at, b""
        return (rest[pos:] + data, 0) if data else (rest, pos)

    def _resume(self, data: bytes, messages: Messages) -> tuple[bytes, int]:
        """Continue after the previous `feed`. Returns the bytes to parse as messages, and the position to start at."""
        step = self._step
        if step == LARGE:
            pos = self._large.pour(data, 0)
            self._update_large(messages)
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
        self._finish(data[:need], messages)
        return data, need

    def _take_head(self, data: bytes, pos: int, messages: Messages) -> int:
        """Take the message at `pos`, or the part of it that has arrived. Returns the position of the next one."""
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
        """Take the extra bytes of `head` at `pos`, or those that have arrived. Returns the position after them."""
        count = self._extra_of(head)
        assert count >= 0, f"{count} extra bytes"
        if count > self._limits.max_payload:
            raise Malformed(OVER_LIMIT, f"{count} bytes is over max_payload {self._limits.max_payload}")
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
        self._update_large(messages)
        return pos

    def _hold(self, step: int, data: bytes, pos: int, end: int) -> int:
        """Keep an unfinished part until the bytes up to `end` have arrived."""
        self._step = step
        self._held += memoryview(data)[pos:]
        self._need = end - pos
        return len(data)

    def _update_large(self, messages: Messages) -> None:
        """Update `gap`; without a gap the message is complete."""
        large = self._large
        self.gap = large.gap
        if large.gap is None:
            self._large = NOTHING
            self._step = BETWEEN
            self._finish(large.buffer, messages)

    def _finish(self, extra: Frame, messages: Messages) -> None:
        messages.append([self._head, extra])
        self._head = b""
