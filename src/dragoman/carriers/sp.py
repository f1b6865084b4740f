"""SP, the scalability protocols of nanomsg and NNG: what a REQ or a REP socket puts on TCP and on ipc.

A conversation has two parts (the RFCs *SP TCP mapping* and *request/reply* of the nanomsg project; the ipc mapping is
written in the manual of NNG only).

*Greeting*, 8 bytes each way: 00 'S' 'P' 00, the number of the sender's protocol in two bytes (REQ is 0x0030, REP is
0x0031), and two bytes that are reserved and 0. A REP takes only REQs, and the other way round. We send ours without
waiting for theirs, and judge theirs as its bytes arrive: a stranger may stop halfway and wait for us.

*Traffic*: messages. On TCP a message is its length in eight bytes and then itself; on ipc a byte 01 comes before the
length. All numbers are big-endian. There are no frames, no commands and no life signs. A message begins with words of
four bytes, the last of which has its top bit set: that one is the request id, which the asker chose, and those before
it are hops, which devices on the way have put in front. Whoever answers puts the very same words before the answer. So
a message is handed up as `[route, body]`, and `route` is all its words: to send `[route, ...]` back is to answer. The
frames given to `encode` are written as one message, since the wire could not tell them apart.

A message in which no request id comes within `max_words` words is handed up as `[b"", b""]`. A REP of NNG hangs up if
it ends before one, and drops it if there are more words; here the dialect decides, as about all else it cannot read.

**Where bytes go.** `feed` is given whatever was read and returns the messages that ended in it. Between two feeds the
object is in one of these steps; how the stream was cut never changes what comes out (I18).

    GREETING   bytes collect in `_held` until there are eight
    BETWEEN    nothing is pending
    HOLDING    the beginning of a small message waits in `_held`; parsing goes on when `_need` bytes are there
    LARGE      a large message is being read into a buffer of its own, and `gap` is where its next bytes belong
    FAILED     `failure` says why; what is fed now is ignored

**What a peer can cost us.** The length of a message is judged as soon as it is there. Over `max_payload`, with what a
dialect's header and the route may add to it, the connection is over at the length (R80): the route of such a message is
not known before its body comes, so nobody could be told, and NNG's own `recv-size-max` does the same. A claimed length
allocates nothing by itself: a large message's buffer grows with what came (`large.py`).

**What is fast.** The loop in `feed` takes messages that lie whole in the chunk and have a route of one word, and calls
nothing of ours for them. The byte 01 of ipc and the length after it are read as one number of nine bytes, whose excess
over 2^64 is the length: so the loop is the same for both mappings, and another byte than 01 gives a number that does
not fit, which goes through `_careful_message` like all the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.carriers.carrier import Carrier, Frame, Messages
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
IPC_MARK: Final = 1 << 64  # the byte 01 before the eight of the length
ROOM: Final = MIB + LARGE_FRAME  # a payload of round size comes with route and header, and need not grow for them
PASSED_THROUGH: Final = 16 * 1024  # from here on `encode` hands a frame on instead of copying it


@dataclass(frozen=True, slots=True)
class SpLimits:
    """What one peer may make us hold, in bytes (`max_words`: in words)."""

    max_payload: int = 64 * MIB
    max_header: int = 64 * 1024  # what a dialect's header may add to a payload
    max_words: int = 8  # of a route, the request id among them

    def __post_init__(self) -> None:
        if self.max_payload < 1 or self.max_header < 0 or self.max_words < 1:
            raise ValueError(f"max_payload and max_words must be above 0, max_header at least 0: {self}")


DEFAULT_LIMITS: Final = SpLimits()


class Sp(Carrier):
    """One peer's stream: bytes in, messages out. Its greeting is all it says itself."""

    # fmt: off
    __slots__ = (
        "_head", "_held", "_large", "_limits", "_mark", "_most", "_need", "_step", "protocol",
    )
    # fmt: on

    def __init__(self, protocol: str, *, ipc: bool = False, limits: SpLimits = DEFAULT_LIMITS) -> None:
        if protocol not in ACCEPTED:
            raise ValueError(f"protocol {protocol!r} is none of {', '.join(ACCEPTED)}")
        self.protocol = protocol
        self.outgoing: list[bytes] = [SIGNATURE + PROTOCOLS[protocol].to_bytes(2, "big") + b"\0\0"]
        self.ready = False
        self.failure: Malformed | None = None
        self.peer_identity = b""  # SP has none
        self.gap: memoryview | None = None
        self._head, self._mark = (9, IPC_MARK) if ipc else (8, 0)
        self._limits = limits
        self._most = limits.max_payload + limits.max_header + WORD * limits.max_words
        self._step = GREETING
        self._held = bytearray()
        self._need = GREETING_SIZE
        self._large = NOTHING

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        """The buffers to write for one message of all the frames: small ones joined, those from 16 KiB on as is."""
        assert frames, "a message has at least one frame"
        size = sum(map(len, frames))
        head = (size + self._mark).to_bytes(self._head, "big")
        if size < PASSED_THROUGH:
            return [b"".join((head, *frames))]
        return _gathered(head, frames)

    def feed(self, data: bytes) -> Messages:
        """Takes what was read; returns the messages that ended in it, in order."""
        messages: Messages = []
        try:
            pos = 0
            if self._step != BETWEEN:
                data, pos = self._resume(data, messages)
            end_of_data = len(data)
            head, mark = self._head, self._mark
            safe = end_of_data if end_of_data <= self._most else 0  # no message that ends by there can be too long
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
            if pos < end_of_data:
                self._careful_message(data, pos, messages)
        except Malformed as failure:
            self.failure = failure
            self.release()
        return messages

    def fill(self, count: int) -> Messages:
        """`count` bytes were read into `gap`; returns the message that ended with them, if one did."""
        messages: Messages = []
        if self.gap is not None:
            self._large.fill(count)
            self._look_at_large(messages)
        return messages

    @property
    def holding(self) -> int:
        """Bytes of an unfinished message that wait here for the rest of it."""
        return len(self._held) + len(self._large)

    def release(self) -> None:
        """The conversation is over: let go of all that is held. What is fed now is ignored."""
        self._step = FAILED
        self.gap = None
        self._held = bytearray()
        self._large = NOTHING

    def ping(self) -> None:
        """SP has no life sign."""

    # ---- traffic, as far as the loop in `feed` does not do it itself

    def _resume(self, data: bytes, messages: Messages) -> tuple[bytes, int]:
        """Goes on where the last feed stopped; returns the bytes to parse as messages, and from where."""
        step = self._step
        if step == LARGE:
            return data, self._pour(data, 0, messages)
        if step == FAILED:
            return b"", 0
        held = self._held
        if step == GREETING:
            _judge_greeting(bytes(held) + data[:GREETING_SIZE], self.protocol)
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
        """Takes the message at `pos`, or as much of it as there is; returns where the next begins."""
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
        return self._pour(data, start, messages)

    def _hold(self, data: bytes, pos: int, end: int) -> int:
        """Keeps an unfinished small message or length, until there is as much of it as would end at `end`."""
        self._held += memoryview(data)[pos:]
        self._need = end - pos
        self._step = HOLDING
        return len(data)

    def _pour(self, data: bytes, pos: int, messages: Messages) -> int:
        """Copies into the gap, as if the caller had read into it; returns the end of what was copied."""
        pos = self._large.pour(data, pos)
        self._look_at_large(messages)
        return pos

    def _look_at_large(self, messages: Messages) -> None:
        """Its gap has moved; if there is none left, the message is whole."""
        large = self._large
        self.gap = large.gap
        if large.gap is None:
            self._large = NOTHING
            self._step = BETWEEN
            body = large.buffer
            route = _route_of(bytes(body[: WORD * self._limits.max_words]))
            del body[: len(route)]  # nobody has a view of it any more, so this copies nothing
            messages.append([route, body] if route else [b"", b""])


def _route_of(beginning: bytes) -> bytes:
    """The words up to the request id; empty if it is not among them."""
    for pos in range(0, len(beginning) - WORD + 1, WORD):
        if beginning[pos] > 0x7F:
            return beginning[: pos + WORD]
    return b""


def _judge_greeting(came: bytes, ours: str) -> None:
    """Raises Malformed at the first byte that is wrong; of the protocol's number both bytes are awaited."""
    for count in range(1, 1 + min(len(came), len(SIGNATURE))):
        if came[count - 1] != SIGNATURE[count - 1]:
            began = came[:count].hex(" ")
            raise Malformed("not sp", f"the peer does not speak SP: it began with {began}, and not with 00 53 50 00")
    theirs = int.from_bytes(came[4:6], "big")
    if len(came) >= 6 and theirs != PROTOCOLS[ACCEPTED[ours]]:
        name = next((name for name, number in PROTOCOLS.items() if number == theirs), "protocol unknown to us")
        raise Malformed("protocol", f"a {name} (0x{theirs:04x}) came to a {ours}, which takes {ACCEPTED[ours]} only")
    for reserved in came[6:8]:
        if reserved:
            raise Malformed("not sp", f"a reserved byte of the greeting is 0x{reserved:02x} and not 0")


def _gathered(head: bytes, frames: Sequence[Frame]) -> list[Frame]:
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
