"""SP, the scalability protocols of nanomsg and NNG: the protocol of REQ and REP sockets over TCP and ipc.

A connection has two parts (the RFCs *SP TCP mapping* and *request/reply* of the nanomsg project; only the manual of NNG
describes the ipc mapping).

*Greeting*, 8 bytes each way: 00 'S' 'P' 00, the number of the sender's protocol in two bytes (REQ is 0x0030, REP is
0x0031), and two reserved bytes of 0. A REP accepts only REQs, and the other way round. This side sends its greeting at
once, and checks the other one as its bytes arrive: a client of another protocol may stop halfway and wait.

*Traffic*: messages. On TCP a message is its length in eight bytes and its bytes; on ipc a byte 01 precedes the length.
All numbers are big-endian. There are no frames, commands or heartbeats. A message begins with words of four bytes, the
last of which has its top bit set: that one is the request id, chosen by the requester, and those before it are hops,
added by devices on the way. A reply begins with the same words. So `feed` returns a message as `[route, body]`, where
`route` is all its words: to send `[route, ...]` back is to reply. The frames given to `encode` are written as one
message, since the protocol cannot separate them.

A message without a request id within `max_words` words is returned as `[b"", b""]`. A REP of NNG disconnects if the
message ends before one, and drops it if it has more words; here the dialect decides, as for any unreadable message.

**Parsing.** `feed` takes the bytes that were read and returns the messages that ended in them. Between two calls the
object is in one of these steps. The result does not depend on how the stream was cut (I18).

    GREETING   bytes collect in `_held` until there are eight
    BETWEEN    nothing is pending
    HOLDING    the beginning of a small message is in `_held`; parsing continues when it has `_need` bytes
    LARGE      a large message is being read into its own buffer; `gap` is the place for its next bytes
    FAILED     `failure` is the error; further bytes are ignored

**Limits.** The length of a message is checked as soon as it is known. Over `max_payload` plus the room for a dialect's
header and the route, the connection ends at the length (R80): the route of such a message is not known before its body
comes, so no error reply is possible. NNG's `recv-size-max` does the same. A claimed length allocates nothing: the
buffer of a large message grows with the bytes that arrived (`large_frame.py`).

**Speed.** The loop in `feed` takes messages that are complete in the chunk and have a route of one word, and calls no
other method for them. The byte 01 of ipc and the length after it are read as one number of nine bytes, whose excess
over 2^64 is the length: so the loop is the same for both mappings. Another byte than 01 gives a number that does not
fit and goes through `_careful_message` like the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.carriers.carrier import UNBOUNDED, Carrier, Frame, Messages
from dragoman.carriers.large_frame import LARGE_FRAME, MIB, NOTHING, LargeFrame
from dragoman.carriers.malformed import Malformed

GREETING: Final = 0
BETWEEN: Final = 1
HOLDING: Final = 2
LARGE: Final = 3
FAILED: Final = 4

PROTOCOLS: Final = {
    "PAIR0": 0x10, "PAIR1": 0x11, "PUB": 0x20, "SUB": 0x21, "REQ": 0x30, "REP": 0x31, "PUSH": 0x50, "PULL": 0x51,
    "SURVEYOR": 0x62, "RESPONDENT": 0x63, "BUS": 0x70,
}  # fmt: skip
ACCEPTED: Final = {"REQ": "REP", "REP": "REQ"}
SIGNATURE: Final = b"\0SP\0"
GREETING_SIZE: Final = 8
WORD: Final = 4
IPC_MARK: Final = 1 << 64  # the byte 01 before the eight bytes of the length
ROOM: Final = MIB + LARGE_FRAME  # a payload of round size with route and header fits without growing
PASSED_THROUGH: Final = 16 * 1024  # bytes; `encode` does not copy frames of this size or more


@dataclass(frozen=True, slots=True)
class SpLimits:
    """Maximum number of bytes kept for one connection (`max_words`: in words)."""

    max_payload: int = 64 * MIB
    max_header: int = 64 * 1024  # bytes that a dialect's header may add to a payload
    max_words: int = 8  # of a route, including the request id

    def __post_init__(self) -> None:
        if self.max_payload < 1 or self.max_header < 0 or self.max_words < 1:
            raise ValueError(f"max_payload and max_words must be above 0, max_header at least 0: {self}")


DEFAULT_LIMITS: Final = SpLimits()


class Sp(Carrier):
    """The stream of one connection: bytes in, messages out. It sends only its greeting on its own."""

    # fmt: off
    __slots__ = (
        "_head", "_held", "_large", "_limits", "_mark", "_most", "_need", "_rest_at", "_step", "protocol",
    )
    # fmt: on

    def __init__(self, protocol: str, *, ipc: bool = False, limits: SpLimits = DEFAULT_LIMITS) -> None:
        if protocol not in ACCEPTED:
            raise ValueError(f"protocol {protocol!r} is not one of {', '.join(ACCEPTED)}")
        self.protocol = protocol
        self.outgoing: list[bytes] = [SIGNATURE + PROTOCOLS[protocol].to_bytes(2, "big") + b"\0\0"]
        self.ready = False
        self.failure: Malformed | None = None
        self.peer_identity = b""  # SP has none
        self.gap: memoryview | None = None
        self.most = UNBOUNDED
        self.rest = b""
        self._rest_at = 0  # place of the first byte in `rest` that is not decoded
        self._head, self._mark = (9, IPC_MARK) if ipc else (8, 0)
        self._limits = limits
        self._most = limits.max_payload + limits.max_header + WORD * limits.max_words
        self._step = GREETING
        self._held = bytearray()
        self._need = GREETING_SIZE
        self._large = NOTHING

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return the buffers for one message of all frames: small ones joined, frames of 16 KiB or more as they are."""
        assert frames, "a message has at least one frame"
        size = sum(map(len, frames))
        head = (size + self._mark).to_bytes(self._head, "big")
        if size < PASSED_THROUGH:
            return [b"".join((head, *frames))]
        return _join_small(head, frames)

    def feed(self, data: bytes) -> Messages:
        """Parse bytes that were read. Returns the messages that ended in them, in order."""
        messages: Messages = []
        try:
            pos = 0
            if self.rest:
                data, pos = self._take_rest(data)
            elif self._step != BETWEEN:
                data, pos = self._resume(data, messages)
            most = self.most
            end_of_data = len(data)
            head, mark = self._head, self._mark
            safe = end_of_data if end_of_data <= self._most else 0  # a message that ends before this is not too long
            last = end_of_data - head
            while pos <= last:
                start = pos + head
                end = start + int.from_bytes(data[pos:start], "big") - mark
                body = start + WORD
                if body <= end <= safe and data[start] > 0x7F:
                    messages.append([data[start:body], data[body:end]])
                    pos = end
                else:
                    pos = self._careful_message(data, pos, messages)
                if len(messages) >= most:
                    break
            if pos <= last:
                self.rest, self._rest_at = data, pos
            elif pos < end_of_data:
                self._careful_message(data, pos, messages)
        except Malformed as failure:
            self.failure = failure
            self.release()
        return messages

    def fill(self, count: int) -> Messages:
        """Accept `count` bytes that were read into `gap`. Returns the message that ended with them, if any."""
        messages: Messages = []
        if self.gap is not None:
            self._large.fill(count)
            self._update_large(messages)
        return messages

    @property
    def holding(self) -> int:
        """Number of bytes kept: of an unfinished message, and those that are not decoded yet."""
        return len(self._held) + len(self._large) + len(self.rest)

    def release(self) -> None:
        """Drop all kept bytes, because the connection has ended. Further bytes are ignored."""
        self._step = FAILED
        self.gap = None
        self.rest = b""
        self._held = bytearray()
        self._large = NOTHING

    def ping(self) -> None:
        """Do nothing: SP has no heartbeat."""

    # ---- traffic that the loop in `feed` does not handle

    def _take_rest(self, data: bytes) -> tuple[bytes, int]:
        """Return the bytes to parse, and the position to start at: those of an earlier `feed`, then `data`."""
        rest, pos, self.rest = self.rest, self._rest_at, b""
        return (rest[pos:] + data, 0) if data else (rest, pos)

    def _resume(self, data: bytes, messages: Messages) -> tuple[bytes, int]:
        """Continue after the previous `feed`. Returns the bytes to parse as messages, and the position to start at."""
        step = self._step
        if step == LARGE:
            return data, self._copy_large(data, 0, messages)
        if step == FAILED:
            return b"", 0
        held = self._held
        if step == GREETING:
            _check_greeting(bytes(held) + data[:GREETING_SIZE], self.protocol)
        if len(held) + len(data) < self._need:
            held += data
            return b"", 0
        self._held = bytearray()
        self._step = BETWEEN
        data = b"".join((held, data))
        if step == HOLDING:
            return data, 0
        self.ready = True
        return data, GREETING_SIZE

    def _careful_message(self, data: bytes, pos: int, messages: Messages) -> int:
        """Take the message at `pos`, or the part of it that has arrived. Returns the position of the next one."""
        if self._mark and data[pos] != 1:
            raise Malformed("bad ipc message type", f"a message began with 0x{data[pos]:02x}; 0x01 is the only type")
        start = pos + self._head
        end_of_data = len(data)
        if start > end_of_data:
            return self._hold(data, pos, start)
        length = int.from_bytes(data[pos:start], "big") - self._mark
        if length > self._most:
            allowed = f"max_payload is {self._limits.max_payload}, and {self._most - self._limits.max_payload} more"
            raise Malformed("over max_payload", f"a message of {length} bytes; {allowed} are for route and header")
        end = start + length
        if end <= end_of_data:
            route = _route_of(data[start : min(end, start + WORD * self._limits.max_words)])
            messages.append([route, data[start + len(route) : end] if route else b""])
            return end
        if length < LARGE_FRAME:
            return self._hold(data, pos, end)
        self._step = LARGE
        self._large = LargeFrame(length, end_of_data - start, LARGE_FRAME, ROOM)
        return self._copy_large(data, start, messages)

    def _hold(self, data: bytes, pos: int, end: int) -> int:
        """Keep an unfinished small message or length until the bytes up to `end` have arrived."""
        self._held += memoryview(data)[pos:]
        self._need = end - pos
        self._step = HOLDING
        return len(data)

    def _copy_large(self, data: bytes, pos: int, messages: Messages) -> int:
        """Copy bytes into the gap. Returns the position after them."""
        pos = self._large.pour(data, pos)
        self._update_large(messages)
        return pos

    def _update_large(self, messages: Messages) -> None:
        """Update `gap`; without a gap the message is complete."""
        large = self._large
        self.gap = large.gap
        if large.gap is None:
            self._large = NOTHING
            self._step = BETWEEN
            body = large.buffer
            route = _route_of(bytes(body[: WORD * self._limits.max_words]))
            del body[: len(route)]  # no view of the buffer exists any more, so this copies nothing
            messages.append([route, body] if route else [b"", b""])


def _route_of(beginning: bytes) -> bytes:
    """Return the words up to the request id, or nothing if it is not among them."""
    for pos in range(0, len(beginning) - WORD + 1, WORD):
        if beginning[pos] > 0x7F:
            return beginning[: pos + WORD]
    return b""


def _check_greeting(data: bytes, ours: str) -> None:
    """Raise Malformed at the first wrong byte; the protocol number is checked when both its bytes have come."""
    for count in range(1, 1 + min(len(data), len(SIGNATURE))):
        if data[count - 1] != SIGNATURE[count - 1]:
            began = data[:count].hex(" ")
            raise Malformed("not sp", f"the peer does not speak SP: it began with {began}, and not with 00 53 50 00")
    theirs = int.from_bytes(data[4:6], "big")
    if len(data) >= 6 and theirs != PROTOCOLS[ACCEPTED[ours]]:
        name = next((name for name, number in PROTOCOLS.items() if number == theirs), "unknown protocol")
        raise Malformed("protocol", f"a {name} (0x{theirs:04x}) came to a {ours}, which accepts {ACCEPTED[ours]} only")
    for reserved in data[6:8]:
        if reserved:
            raise Malformed("not sp", f"a reserved byte of the greeting is 0x{reserved:02x} and not 0")


def _join_small(head: bytes, frames: Sequence[Frame]) -> list[Frame]:
    buffers: list[Frame] = []
    small: list[Frame] = [head]
    for frame in frames:
        if len(frame) < PASSED_THROUGH:
            small.append(frame)
        else:
            if small:
                buffers.append(b"".join(small))
            buffers.append(frame)
            small = []
    if small:
        buffers.append(b"".join(small))
    return buffers
