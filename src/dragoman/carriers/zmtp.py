"""ZMTP 3.1 and 3.0: the protocol of ZeroMQ sockets over TCP and ipc. With CURVE, `zmtp_curve.py` encrypts its frames.

A connection (RFC 37 of the ZeroMQ project; RFC 23 for 3.0) begins with a greeting and a handshake, which are in
`zmtp_handshake.py`. Then messages and commands follow, made of frames. A frame is a byte of flags (1 more, 2 long, 4
command), the length of its body in one byte (eight if long), and the body. A message ends with the first frame without
*more*. Commands come between messages according to the RFC; libzmq sends them inside a message, too.

**Parsing.** The result does not depend on how the stream was cut (I18). Between two calls the object is in one step:

    HANDSHAKE    bytes collect in `_held` until greeting and handshake are done
    BETWEEN      nothing is pending but whole frames of an unfinished message, in `_frames`
    HOLDING      the beginning of a small frame is in `_held`; parsing continues when it has `_need` bytes
    LARGE        a large frame is read into its own buffer; `gap` is the place for its next bytes (`carrier.py`)
    SKIPPING     the body of a frame of a message over `max_payload` is being dropped
    FAILED       `failure` is the error; further bytes are ignored

**Limits** count the *unfinished* message as soon as a frame's header is known, not when its body is (R48). A message
over `max_payload` is dropped while it arrives, and `TooLarge` is returned when it ends (R16). The buffer of a large
frame grows with the bytes that came, not with the claimed length (`large_frame.py`).

**Speed.** `feed` is the hot path of the broker. Its loop takes only frames that are complete in the chunk, and only if
the whole chunk fits under `max_payload`, so that no message needs counting; it calls no other method for them. The rest
(commands, partial and large frames, errors) goes through `_careful_frame`, one frame at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.carriers.carrier import UNBOUNDED, Carrier, Frame, Message, Messages, TooLarge, size_of
from dragoman.carriers.large_frame import LARGE_FRAME, NOTHING, LargeFrame, encode_large, leading_small
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.zmtp_commands import COMMAND, LONG, MORE, answer_to, check_command_flags, framed, ping
from dragoman.carriers.zmtp_handshake import NULL, Handshake, Security
from dragoman.carriers.zmtp_limits import DEFAULT_LIMITS, KIB, MIB, ZmtpLimits, too_many_frames

HANDSHAKE: Final = 0
BETWEEN: Final = 1
HOLDING: Final = 2
LARGE: Final = 3
SKIPPING: Final = 4
FAILED: Final = 5

PASSED_THROUGH: Final = 16 * KIB  # bytes; `encode` does not copy frames of this size or more
SHORT_LAST: Final = tuple(bytes((0, size)) for size in range(256))
SHORT_MORE: Final = tuple(bytes((MORE, size)) for size in range(256))


def encode(frames: Sequence[Frame]) -> list[Frame]:
    """Return the buffers to write for a message: small frames joined, frames of 16 KiB or more as they are."""
    pieces: list[Frame] = []
    size = 0
    for frame in frames:
        size = len(frame)
        if size < 256:
            head = SHORT_MORE[size]
        elif size < PASSED_THROUGH:
            head = b"\x03" + size.to_bytes(8, "big")
        else:
            return encode_large(frames, PASSED_THROUGH)
        pieces.append(head)
        pieces.append(frame)
    assert pieces, "a message has at least one frame"
    pieces[-2] = SHORT_LAST[size] if size < 256 else b"\x02" + size.to_bytes(8, "big")
    return [b"".join(pieces)]


class Zmtp(Carrier):
    """The ZMTP protocol of one connection: bytes in, messages out. Its own replies collect in `outgoing`."""

    # fmt: off
    __slots__ = (
        "_frames", "_handshake", "_held", "_large", "_limits", "_max_frames", "_max_payload", "_more", "_need",
        "_over_count", "_over_size", "_rest_at", "_skip", "_step", "peer_key", "peer_mechanism", "peer_socket_type",
        "peer_token", "peer_version",
    )
    # fmt: on

    def __init__(
        self,
        socket_type: str,
        identity: bytes = b"",
        *,
        dials: bool = False,
        limits: ZmtpLimits = DEFAULT_LIMITS,
        security: Security = NULL,
    ) -> None:
        if security.is_encrypted and not self.is_encrypted:
            raise ValueError("this carrier does not encrypt messages; make one with `zmtp_curve.zmtp_carrier`")
        handshake = security.handshake(socket_type, identity, dials, limits)
        self._handshake: Handshake | None = handshake  # None once it is done
        self.outgoing: list[bytes] = handshake.take_outgoing()
        self.ready = False
        self.peer_identity = b""
        self.peer_socket_type = ""
        self.peer_version = (0, 0)
        self.peer_mechanism = b""  # as its greeting names it; empty until then
        self.peer_key = b""  # the public key that the peer has proven to hold; empty without CURVE
        self.peer_token = b""  # the password that the peer has sent; empty without PLAIN
        self.failure: Malformed | None = None
        self.gap: memoryview | None = None
        self.most = UNBOUNDED
        self.rest = b""
        self._rest_at = 0  # place of the first byte in `rest` that is not decoded
        self._limits = limits
        self._max_payload = limits.max_payload
        self._max_frames = limits.max_frames
        self._step = HANDSHAKE
        self._held = bytearray()
        self._need = 0
        self._frames: Message = []
        self._more = 0  # the flag of the current large or skipped frame
        self._large = NOTHING
        self._skip = 0  # bytes of the skipped frame still to come
        self._over_size = 0  # size so far of a message over max_payload, else 0
        self._over_count = 0  # the same in frames

    def feed(self, data: bytes) -> Messages:
        """Parse bytes that were read. Returns the messages that ended in them, in order."""
        messages: Messages = []
        try:
            pos = 0
            if self.rest:
                data, pos = self._take_rest(data)
            elif self._step != BETWEEN:
                data, pos = self._resume(data, messages)
            frames = self._frames
            most = self.most
            end_of_data = len(data)
            carried = self._over_size
            if frames:
                carried += size_of(frames)
            # No message that ends by `safe` can be over max_payload.
            safe = end_of_data if carried + end_of_data <= self._max_payload else 0
            last = end_of_data - 1  # a header has at least two bytes
            while pos < last:
                flags = data[pos]
                if flags < LONG:
                    start = pos + 2
                    end = start + data[pos + 1]
                elif flags < COMMAND:
                    start = pos + 9
                    end = start + int.from_bytes(data[pos + 1 : start], "big")
                else:
                    start = end = end_of_data + 1
                if end > safe:
                    self._frames = frames
                    pos = self._careful_frame(data, pos, messages)
                    frames = self._frames
                    if len(messages) + len(self.outgoing) >= most:
                        break
                    continue
                frames.append(data[start:end])
                pos = end
                if not flags & MORE:
                    messages.append(frames)
                    frames = []
                    if len(messages) >= most:
                        break
                elif len(frames) >= self._max_frames:
                    raise too_many_frames(self._max_frames)
            self._frames = frames
            if pos == last:
                self._careful_frame(data, pos, messages)
            elif pos < last:
                self.rest, self._rest_at = data, pos
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
        return size_of(self._frames) + len(self._held) + len(self._large) + len(self.rest)

    def release(self) -> None:
        """Drop all kept bytes, because the connection has ended. Further bytes are ignored."""
        self._step = FAILED
        self.gap = None
        self.rest = b""
        self._frames = []
        self._held = bytearray()
        self._large = NOTHING
        self._over_size = self._over_count = 0

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        return encode(frames)

    def ping(self, ttl_tenths: int = 0, context: bytes = b"") -> bytes | None:
        """Return an encoded PING command, or None for a peer of ZMTP 3.0. `feed` does not return its PONG.
        `ttl_tenths`: tenths of a second of silence after which the peer may close the connection; 0 sets no limit."""
        encoded = framed(ping(ttl_tenths, context))
        return encoded if self.peer_version >= (3, 1) else None

    @property
    def is_encrypted(self) -> bool:
        """True if messages are encrypted after the handshake."""
        return False

    def probable_cause(self) -> str:
        """Return a sentence for the case that the peer closes the connection now; empty: nothing is known."""
        return "" if self._handshake is None else self._handshake.probable_cause()

    # ---- traffic that the loop in `feed` does not handle

    def _take_rest(self, data: bytes) -> tuple[bytes, int]:
        """Return the bytes to parse, and the position to start at: those of an earlier `feed`, then `data`."""
        rest, pos, self.rest = self.rest, self._rest_at, b""
        return (rest[pos:] + data, 0) if data else (rest, pos)

    def _resume(self, data: bytes, messages: Messages) -> tuple[bytes, int]:
        """Continue after the previous `feed`. Returns the bytes to parse as frames, and the position to start at."""
        step = self._step
        if step == HOLDING:
            held = self._held
            if len(held) + len(data) < self._need:
                held += data
                return b"", 0
            self._held = bytearray()
            self._step = BETWEEN
            return b"".join((held, data)), 0
        if step == LARGE:
            return data, self._copy_large(data, 0, messages)
        if step == SKIPPING:
            return data, self._skip_bytes(data, 0, messages)
        if step == FAILED:
            return b"", 0
        self._held += data
        return self._advance_handshake(), 0

    def _advance_handshake(self) -> bytes:
        """Advance the handshake with the held bytes. Returns the bytes that came after it."""
        handshake = self._handshake
        assert handshake is not None
        try:
            rest = handshake.advance(bytes(self._held))
        finally:
            self.outgoing += handshake.take_outgoing()
            self.peer_version = handshake.peer_version
            self.peer_mechanism = handshake.peer_mechanism
        if rest is None:
            return b""
        self.peer_identity = handshake.peer_identity
        self.peer_socket_type = handshake.peer_socket_type
        self.peer_key = handshake.peer_key
        self.peer_token = handshake.peer_token
        self._handshake = None
        self._held = bytearray()
        self._step = BETWEEN
        self.ready = True
        return rest

    def _careful_frame(self, data: bytes, pos: int, messages: Messages) -> int:
        """Parse the frame at `pos`, or the part of it that has arrived. Returns the position of the next one.
        No check needs more bytes than the next one, so the way the stream is cut cannot change which of them fails."""
        flags = data[pos]
        frames = self._frames
        count = (self._over_count or len(frames)) + 1
        if flags >= COMMAND:
            check_command_flags(flags)
            # RFC 37 allows commands between messages only, but libzmq 4.3.5 sends a PING or PONG that falls due while
            # it writes a large frame right after that frame, even inside a message. So they are accepted here.
        elif flags & MORE and count >= self._max_frames:
            raise too_many_frames(self._max_frames)
        start = pos + (9 if flags & LONG else 2)
        end_of_data = len(data)
        if start > end_of_data:
            return self._hold(data, pos, start)
        length = int.from_bytes(data[pos + 1 : start], "big")
        end = start + length
        limits = self._limits
        if flags & COMMAND:
            if length > limits.max_command:
                raise Malformed("command too large", f"{length} bytes, over max_command {limits.max_command}")
            if end > end_of_data:
                return self._hold(data, pos, end)
            answer = answer_to(data[start:end])
            if answer is not None:
                self.outgoing.append(framed(answer))
            return end
        more = flags & MORE
        if self._is_over(length, count):
            self._skip, self._more = length, more
            return self._skip_bytes(data, start, messages)
        if end <= end_of_data:
            self._end_frame(data[start:end], more, messages)
            return end
        if length < LARGE_FRAME:
            return self._hold(data, pos, end)
        self._step = LARGE
        self._more = more
        self._large = LargeFrame(length, end_of_data - start, LARGE_FRAME, MIB)
        return self._copy_large(data, start, messages)

    def _is_over(self, length: int, count: int) -> bool:
        """Add a frame to the size of the unfinished message. Returns whether this is over max_payload.
        `count`: number of its frames, with this one. Raises Malformed."""
        limits = self._limits
        size = (self._over_size or size_of(self._frames)) + length
        if size > limits.hard_cap:
            raise Malformed("over hard cap", f"a message of at least {size} bytes, over hard_cap {limits.hard_cap}")
        if size <= limits.max_payload:
            return False
        self._frames = leading_small(self._frames)
        self._over_size, self._over_count = size, count
        return True

    def _end_frame(self, frame: Frame, more: int, messages: Messages) -> None:
        self._frames.append(frame)
        if not more:
            messages.append(self._frames)
            self._frames = []

    def _hold(self, data: bytes, pos: int, end: int) -> int:
        """Keep an unfinished small frame or header until the bytes up to `end` have arrived."""
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
        """Update `gap`; without a gap the frame is complete."""
        large = self._large
        self.gap = large.gap
        if large.gap is None:
            self._large = NOTHING
            self._step = BETWEEN
            self._end_frame(large.buffer, self._more, messages)

    def _skip_bytes(self, data: bytes, pos: int, messages: Messages) -> int:
        """Drop bytes of a message over max_payload. Returns the position after the frame."""
        end = pos + self._skip
        if end > len(data):
            self._skip = end - len(data)
            self._step = SKIPPING
            return len(data)
        self._step = BETWEEN
        if not self._more:
            messages.append(TooLarge(self._frames, self._over_size))
            self._frames = []
            self._over_size = self._over_count = 0
        return end
