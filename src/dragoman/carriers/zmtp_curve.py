"""ZMTP with CURVE after the handshake: each frame travels in the box of a MESSAGE.

A MESSAGE is a frame with the flags 0 or 2 (long), whose body is a name, a counter and a box:

    07 MESSAGE, counter 8, box[flags 1, body]

*More* is 1 in the flags inside the box, and a command is 2: libzmq writes its own flags there, and not those of a frame
(4). PING, PONG and all other commands travel in boxes, too. Frames with the flag 4 outside are accepted from others,
because RFC 26 calls MESSAGE a command; libzmq drops those, so they are never sent. Every other frame after the
handshake fails the connection, as does a counter that does not rise or a box that does not open.

The end of a message is known only when its last frame has been opened. So a single frame over `max_payload` cannot be
skipped: it fails the connection. Messages of several frames are counted and answered as in `zmtp.py`.

A large box is opened in the buffer into which it was read, and made in the buffer that is written: a large payload is
copied once when it is sent, and never when it is received.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.carriers.carrier import Frame, Messages
from dragoman.carriers.large_frame import LARGE_FRAME, LargeFrame
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.nacl_box import TAG, SharedKey
from dragoman.carriers.zmtp import BETWEEN, LARGE, SHORT_LAST, Zmtp
from dragoman.carriers.zmtp_commands import COMMAND, LONG, MORE, answer_to, ping
from dragoman.carriers.zmtp_curve_handshake import COUNTER, CurveHandshake
from dragoman.carriers.zmtp_handshake import NULL, Security
from dragoman.carriers.zmtp_limits import DEFAULT_LIMITS, MIB, ZmtpLimits, too_many_frames

NAME: Final = b"\x07MESSAGE"
BOX: Final = 16  # place of the box in a MESSAGE, after name and counter
BODY: Final = BOX + TAG + 1  # place of the body, after the flags
INNER_COMMAND: Final = 2  # flag inside a box
FLAGS: Final = (b"\x00", b"\x01", b"\x02")
SPACE: Final = bytes(TAG)
IN_PLACE: Final = 1000  # bytes; frames of this size or more are encrypted and decrypted in place


def zmtp_carrier(
    socket_type: str,
    identity: bytes = b"",
    *,
    dials: bool = False,
    limits: ZmtpLimits = DEFAULT_LIMITS,
    security: Security = NULL,
) -> Zmtp:
    """Return a ZMTP carrier for any security mechanism."""
    if security.is_encrypted:
        return CurveZmtp(socket_type, identity, dials=dials, limits=limits, security=security)
    return Zmtp(socket_type, identity, dials=dials, limits=limits, security=security)


class CurveZmtp(Zmtp):
    """The ZMTP protocol of one connection with CURVE."""

    __slots__ = ("_curve", "_receive_prefix", "_received", "_send_prefix", "_sent", "_session", "own_key")

    def __init__(
        self,
        socket_type: str,
        identity: bytes = b"",
        *,
        dials: bool = False,
        limits: ZmtpLimits = DEFAULT_LIMITS,
        security: Security,
    ) -> None:
        super().__init__(socket_type, identity, dials=dials, limits=limits, security=security)
        handshake = self._handshake
        if not isinstance(handshake, CurveHandshake):
            raise ValueError("CurveZmtp needs CurveServer or CurveClient; make carriers with `zmtp_carrier`")
        self._curve: CurveHandshake | None = handshake  # None once it is done
        self.own_key = b""  # the public key under which the peer knows this side; may be an older one of a server
        self._session: SharedKey | None = None
        self._send_prefix = b""
        self._receive_prefix = b""
        self._sent = 0  # counter of the last nonce that was sent
        self._received = 0

    @property
    def is_encrypted(self) -> bool:
        return True

    @property
    def is_server_proven(self) -> bool:
        """True on a client if the server has proven to hold its key. It has not if it closes the connection before."""
        curve = self._curve
        return curve is None or curve.session is not None

    def feed(self, data: bytes) -> Messages:
        """Parse bytes that were read. Returns the messages that ended in them, in order."""
        messages: Messages = []
        try:
            pos = 0
            if self.rest:
                data, pos = self._take_rest(data)
            elif self._step != BETWEEN:
                data, pos = self._resume(data, messages)
            end_of_data = len(data)
            while pos < end_of_data:
                if len(messages) + len(self.outgoing) >= self.most:
                    self.rest, self._rest_at = data, pos
                    break
                pos = self._boxed_frame(data, pos, messages)
        except Malformed as failure:
            self.failure = failure
            self.release()
        return messages

    def fill(self, count: int) -> Messages:
        messages: Messages = []
        try:
            if self.gap is not None:
                self._large.fill(count)
                self._update_large(messages)
        except Malformed as failure:
            self.failure = failure
            self.release()
        return messages

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return the buffer to write for a message. Messages, `outgoing` and pings must be written in the order in
        which they were made, because their counters must rise."""
        assert frames, "a message has at least one frame"
        out = bytearray()
        left = len(frames)
        for frame in frames:
            left -= 1
            self._append_sealed(out, MORE if left else 0, frame)
        return [out]

    def ping(self, ttl_tenths: int = 0, context: bytes = b"") -> bytes | None:
        body = ping(ttl_tenths, context)
        return self._sealed_command(body) if self.ready and self.peer_version >= (3, 1) else None

    def _sealed_command(self, body: bytes) -> bytes:
        out = bytearray()
        self._append_sealed(out, INNER_COMMAND, body)
        return bytes(out)

    def _append_sealed(self, out: bytearray, flags: int, body: Frame) -> None:
        """Append a MESSAGE, and encrypt it there."""
        session = self._session
        assert session is not None, "nothing can be encrypted before the handshake is done"
        self._sent += 1
        counter = self._sent.to_bytes(COUNTER, "big")
        length = len(body)
        size = BODY + length
        head = SHORT_LAST[size] if size < 256 else b"\x02" + size.to_bytes(8, "big")
        if length < IN_PLACE:
            out += head + NAME + counter + session.sealed(FLAGS[flags] + body, self._send_prefix + counter)
            return
        out += head + NAME + counter + SPACE + FLAGS[flags]
        out += body
        session.seal(out, len(out) - size + BOX, 1 + length, self._send_prefix + counter)

    # ---- incoming frames

    def _advance_handshake(self) -> bytes:
        rest = super()._advance_handshake()
        curve = self._curve
        if self.ready and curve is not None:
            self._session = curve.session
            self.own_key = curve.own_key
            self._send_prefix, self._receive_prefix = curve.send_prefix, curve.receive_prefix
            self._sent, self._received = curve.sent, curve.received
            self._curve = None
        return rest

    def _boxed_frame(self, data: bytes, pos: int, messages: Messages) -> int:
        """Parse the MESSAGE at `pos`, or the part of it that has arrived. Returns the position of the next one.
        No check needs more bytes than the next one, so the way the stream is cut cannot change which of them fails."""
        flags = data[pos]
        if flags & ~(LONG | COMMAND):
            raise Malformed("bad flags", f"a frame with flags 0x{flags:02x}; with CURVE 0, 2, 4 and 6 are allowed")
        start = pos + (9 if flags & LONG else 2)
        end_of_data = len(data)
        if start > end_of_data:
            return self._hold(data, pos, start)
        length = int.from_bytes(data[pos + 1 : start], "big")
        if length < BODY:
            raise Malformed(
                "not encrypted", f"a frame of {length} bytes after the handshake; a MESSAGE has {BODY} or more"
            )
        if length - BODY > self._max_payload:
            detail = f"a frame of {length - BODY} bytes, over max_payload {self._max_payload}"
            raise Malformed("too large", f"{detail}; an encrypted frame cannot be skipped")
        end = start + length
        if end <= end_of_data:
            self._end_frame(data[start:end], 0, messages)
            return end
        if length < LARGE_FRAME:
            return self._hold(data, pos, end)
        self._step = LARGE
        self._large = LargeFrame(length, end_of_data - start, LARGE_FRAME, MIB)
        return self._copy_large(data, start, messages)

    def _end_frame(self, frame: Frame, more: int, messages: Messages) -> None:
        """Open a complete MESSAGE, and process the frame in its box. Raises Malformed."""
        session = self._session
        assert session is not None
        if frame[:8] != NAME:
            raise Malformed(
                "not encrypted", "a frame that is no MESSAGE after the handshake; with CURVE every frame is one"
            )
        counter = bytes(frame[8:BOX])
        number = int.from_bytes(counter, "big")
        if number <= self._received:
            detail = f"a MESSAGE has the nonce {number} after {self._received}; nonces must rise"
            raise Malformed("bad nonce", f"{detail}. It was sent twice or in the wrong order")
        body: Frame
        if len(frame) - BODY < IN_PLACE:
            text = session.opened(bytes(frame[BOX:]), self._receive_prefix + counter)
            if text is None:
                raise _forged()
            flags = text[0]
            body = text[1:]
        else:
            buffer = frame if isinstance(frame, bytearray) else bytearray(frame)
            if not session.open(buffer, BOX, len(buffer) - BOX, self._receive_prefix + counter):
                raise _forged()
            flags = buffer[BODY - 1]
            del buffer[:BODY]  # moves a pointer
            body = buffer if len(buffer) >= LARGE_FRAME else bytes(buffer)
        self._received = number
        if flags > MORE:
            self._receive_command(flags, bytes(body))
            return
        count = (self._over_count or len(self._frames)) + 1
        if flags and count >= self._max_frames:
            raise too_many_frames(self._max_frames)
        if count > 1 and self._is_over(len(body), count):  # a single frame is never over
            self._skip, self._more = 0, flags
            self._skip_bytes(b"", 0, messages)
            return
        self._frames.append(body)
        if not flags:
            messages.append(self._frames)
            self._frames = []

    def _receive_command(self, flags: int, body: bytes) -> None:
        if flags != INNER_COMMAND:
            raise Malformed("bad flags", f"flags 0x{flags:02x} in a box; 0, 1 (more) and 2 (command) are allowed")
        if len(body) > self._limits.max_command:
            raise Malformed("command too large", f"{len(body)} bytes, over max_command {self._limits.max_command}")
        answer = answer_to(body)
        if answer is not None:
            self.outgoing.append(self._sealed_command(answer))


def _forged() -> Malformed:
    return Malformed("forged", "the box of a MESSAGE does not open; bytes were changed on the way")
