"""ZMTP 3.1 and 3.0 with the NULL mechanism: what a ZeroMQ socket puts on TCP and on ipc.

A conversation (RFC 37 of the ZeroMQ project; RFC 23 for 3.0) begins with a greeting and a handshake, which are in
`zmtp_handshake.py`. The rest is here.

*Traffic*: messages and commands, made of frames. A frame is a byte of flags (1 more, 2 long, 4 command), the length of
its body in one byte or, if long, eight, and the body. A message is the frames up to the first without *more*. Commands
(PING, PONG and those we do not know) come between frames: between messages, says the RFC; inside one, too, does libzmq.

**Where bytes go.** `feed` is given whatever was read and returns the messages that ended in it. Between two feeds the
object is in one of these steps; how the stream was cut never changes what comes out (I18).

    HANDSHAKE             bytes collect in `_held` until greeting and handshake are done
    BETWEEN               nothing is pending but whole frames of an unfinished message, in `_frames`
    HOLDING               the beginning of a small frame waits in `_held`; parsing goes on when `_need` bytes are there
    LARGE                 a large frame is being read into a buffer of its own; `gap` is where its next bytes belong,
                          and the caller may read straight into it and say `fill(count)`, or just go on feeding
    SKIPPING              the body of a frame of a message over `max_payload` is passing by, unseen
    FAILED                `failure` says why; what is fed now is ignored

**What a peer can cost us.** All limits are counted on the *unfinished* message, when a frame's header is there and not
when its body is (R48). Over `max_payload` the message is dropped while it arrives, and `TooLarge` is handed up when it
ends (R16). A claimed length allocates nothing by itself: a large frame's buffer grows with what came (`large.py`).

**What is fast.** `feed` is the hot path of the broker. Its loop takes only frames that lie whole in the chunk, and only
if the whole chunk fits under `max_payload`, so that no message in it needs counting; it calls nothing of ours for them.
All the rest (commands, partial frames, large ones, errors) goes through `_careful_frame`, one frame at a time. What
breaks the rules is raised as `Malformed` wherever it is found, and caught at the one place that makes a failure of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.carriers.carrier import Carrier, Frame, Message, Messages, TooLarge, size_of
from dragoman.carriers.large_frame import LARGE_FRAME, NOTHING, LargeFrame
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.zmtp_commands import COMMAND, LONG, MORE, answer_to, check_command_flags, ping
from dragoman.carriers.zmtp_handshake import Handshake
from dragoman.carriers.zmtp_limits import DEFAULT_LIMITS, KIB, MIB, ZmtpLimits

HANDSHAKE: Final = 0
BETWEEN: Final = 1
HOLDING: Final = 2
LARGE: Final = 3
SKIPPING: Final = 4
FAILED: Final = 5

PASSED_THROUGH: Final = 16 * KIB  # from here on `encode` hands a frame on instead of copying it


def encode(frames: Sequence[Frame]) -> list[Frame]:
    """The buffers to write for a message, in order: small frames joined, frames from 16 KiB on as they are."""
    pieces: list[Frame] = []
    size = 0
    for frame in frames:
        size = len(frame)
        if size < 256:
            head = SHORT_MORE[size]
        elif size < PASSED_THROUGH:
            head = b"\x03" + size.to_bytes(8, "big")
        else:
            return _encode_large(frames)
        pieces.append(head)
        pieces.append(frame)
    assert pieces, "a message has at least one frame"
    pieces[-2] = SHORT_LAST[size] if size < 256 else b"\x02" + size.to_bytes(8, "big")
    return [b"".join(pieces)]


SHORT_LAST: Final = tuple(bytes((0, size)) for size in range(256))
SHORT_MORE: Final = tuple(bytes((MORE, size)) for size in range(256))


def _encode_large(frames: Sequence[Frame]) -> list[Frame]:
    buffers: list[Frame] = []
    joined = bytearray()
    more_to_come = len(frames)
    for frame in frames:
        more_to_come -= 1
        size = len(frame)
        if size < 256:
            joined += SHORT_MORE[size] if more_to_come else SHORT_LAST[size]
        else:
            joined += (b"\x03" if more_to_come else b"\x02") + size.to_bytes(8, "big")
        if size < PASSED_THROUGH:
            joined += frame
        else:
            buffers += (bytes(joined), frame)
            joined.clear()
    if joined:
        buffers.append(bytes(joined))
    return buffers


class Zmtp(Carrier):
    """One peer's stream: bytes in, messages out; what it wants to say itself collects in `outgoing`."""

    # fmt: off
    __slots__ = (
        "_frames", "_handshake", "_held", "_large", "_limits", "_max_frames", "_max_payload", "_more", "_need",
        "_over_count", "_over_size", "_skip", "_step", "peer_socket_type", "peer_version",
    )
    # fmt: on

    def __init__(
        self, socket_type: str, identity: bytes = b"", *, dials: bool = False, limits: ZmtpLimits = DEFAULT_LIMITS
    ) -> None:
        handshake = Handshake(socket_type, identity, dials, limits)
        self._handshake: Handshake | None = handshake  # None once it is done
        self.outgoing: list[bytes] = handshake.take_outgoing()
        self.ready = False
        self.peer_identity = b""
        self.peer_socket_type = ""
        self.peer_version = (0, 0)
        self.failure: Malformed | None = None
        self.gap: memoryview | None = None
        self._limits = limits
        self._max_payload = limits.max_payload
        self._max_frames = limits.max_frames
        self._step = HANDSHAKE
        self._held = bytearray()
        self._need = 0
        self._frames: Message = []
        self._more = 0  # the flag of the large or skipped frame under way
        self._large = NOTHING
        self._skip = 0  # bytes of the skipped frame still to come
        self._over_size = 0  # 0, or the size so far of a message that is over max_payload
        self._over_count = 0  # the same in frames

    def feed(self, data: bytes) -> Messages:
        """Takes what was read; returns the messages that ended in it, in order."""
        messages: Messages = []
        try:
            pos = 0
            if self._step != BETWEEN:
                data, pos = self._resume(data, messages)
            frames = self._frames
            end_of_data = len(data)
            carried = self._over_size
            if frames:
                carried += size_of(frames)
            # No message that ends by `safe` can be over max_payload.
            safe = end_of_data if carried + end_of_data <= self._max_payload else 0
            last = end_of_data - 1  # a header has two bytes at least
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
                    continue
                frames.append(data[start:end])
                pos = end
                if not flags & MORE:
                    messages.append(frames)
                    frames = []
                elif len(frames) >= self._max_frames:
                    raise _too_many_frames(self._max_frames)
            self._frames = frames
            if pos == last:
                self._careful_frame(data, pos, messages)
        except Malformed as failure:
            self._fail(failure)
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
        return size_of(self._frames) + len(self._held) + len(self._large)

    def release(self) -> None:
        """The conversation is over: let go of all that is held. What is fed now is ignored."""
        self._step = FAILED
        self.gap = None
        self._frames = []
        self._held = bytearray()
        self._large = NOTHING
        self._over_size = self._over_count = 0

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        return encode(frames)

    def ping(self, ttl_tenths: int = 0, context: bytes = b"") -> bytes | None:
        """A PING command, encoded; None for a peer of 3.0, which does not know it. Its PONG is not handed up.

        `ttl_tenths`: the peer may drop us if it hears nothing for so many tenths of a second; 0 asks for nothing.
        """
        encoded = ping(ttl_tenths, context)
        return encoded if self.peer_version >= (3, 1) else None

    # ---- traffic, as far as the loop in `feed` does not do it itself

    def _resume(self, data: bytes, messages: Messages) -> tuple[bytes, int]:
        """Goes on where the last feed stopped; returns the bytes to parse as frames, and from where."""
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
            return data, self._pour(data, 0, messages)
        if step == SKIPPING:
            return data, self._skip_bytes(data, 0, messages)
        if step == FAILED:
            return b"", 0
        self._held += data
        return self._shake_hands(), 0

    def _shake_hands(self) -> bytes:
        """Goes as far as the held bytes allow; returns those that came after the handshake."""
        handshake = self._handshake
        assert handshake is not None
        try:
            rest = handshake.advance(bytes(self._held))
        finally:
            self.outgoing += handshake.take_outgoing()
            self.peer_version = handshake.peer_version
        if rest is None:
            return b""
        self.peer_identity = handshake.peer_identity
        self.peer_socket_type = handshake.peer_socket_type
        self._handshake = None
        self._held = bytearray()
        self._step = BETWEEN
        self.ready = True
        return rest

    def _careful_frame(self, data: bytes, pos: int, messages: Messages) -> int:
        """Takes the frame at `pos`, or as much of it as there is; returns where the next begins.

        A check never needs more bytes than the one after it, so that no cut can change which of them speaks.
        """
        flags = data[pos]
        frames = self._frames
        count = (self._over_count or len(frames)) + 1
        if flags >= COMMAND:
            check_command_flags(flags)
            # RFC 37 has commands between messages only, but libzmq 4.3.5 was seen to send a PING or a PONG that falls
            # due while a large frame is being written right after that frame, be it the last or not. So we take them.
        elif flags & MORE and count >= self._max_frames:
            raise _too_many_frames(self._max_frames)
        start = pos + (9 if flags & LONG else 2)
        end_of_data = len(data)
        if start > end_of_data:
            return self._hold(data, pos, start)
        length = int.from_bytes(data[pos + 1 : start], "big")
        end = start + length
        limits = self._limits
        if flags & COMMAND:
            if length > limits.max_command:
                raise Malformed("command too large", f"{length} bytes are over max_command {limits.max_command}")
            if end > end_of_data:
                return self._hold(data, pos, end)
            answer = answer_to(data[start:end])
            if answer is not None:
                self.outgoing.append(answer)
            return end
        more = flags & MORE
        size = (self._over_size or size_of(frames)) + length
        if size > limits.hard_cap:
            raise Malformed("over hard cap", f"a message of {size} bytes or more; hard_cap is {limits.hard_cap}")
        if size > limits.max_payload:
            self._frames = _leading_small(frames)
            self._over_size, self._over_count = size, count
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
        return self._pour(data, start, messages)

    def _end_frame(self, frame: Frame, more: int, messages: Messages) -> None:
        self._frames.append(frame)
        if not more:
            messages.append(self._frames)
            self._frames = []

    def _hold(self, data: bytes, pos: int, end: int) -> int:
        """Keeps an unfinished small frame or header, until there is as much of it as would end at `end`."""
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
        """Its gap has moved; if there is none left, the frame is whole."""
        large = self._large
        self.gap = large.gap
        if large.gap is None:
            self._large = NOTHING
            self._step = BETWEEN
            self._end_frame(large.buffer, self._more, messages)

    def _skip_bytes(self, data: bytes, pos: int, messages: Messages) -> int:
        """Lets a frame of a message over max_payload pass by; returns its end."""
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

    def _fail(self, failure: Malformed) -> None:
        self.failure = failure
        self.release()


def _too_many_frames(max_frames: int) -> Malformed:
    return Malformed("too many frames", f"a message of more than {max_frames} frames, which is max_frames")


def _leading_small(frames: Message) -> Message:
    for index, frame in enumerate(frames):
        if len(frame) >= LARGE_FRAME:
            return frames[:index]
    return frames
