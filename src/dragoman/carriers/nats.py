"""NATS, the protocol between a client and a NATS server: the side of the client.

The protocol is text, line by line; a line ends with CR LF, and its words are separated by spaces. Verbs of the server:

    INFO {json}                                        first of all, and again when its facts change (`nats_info.py`)
    MSG  subject sid [reply] size CR LF payload        a message of the subscription `sid`
    HMSG subject sid [reply] head size CR LF both      the same with headers; `size` counts headers and payload
    PING, PONG, +OK, -ERR 'text'

*Handshake*: the server sends INFO. This side sends CONNECT and PING, and the connection is `ready` with the PONG. With
TLS the INFO comes first and is plain, then both sides start TLS (`begins_tls`), then CONNECT follows inside of it; or
TLS is first, if the server and this side are set up so. Facts of a plain INFO decide nothing that TLS would protect.

*Messages.* `encode` takes `[subject, reply, headers, payload]`, where reply and headers may be empty, and writes PUB or
HPUB. It takes a single frame as a line of control: `nats_lines.py` makes those. `feed` returns

    [sid, subject, reply, headers, payload]    MSG or HMSG; headers are the whole block, unchecked (`nats_headers.py`)
    [b"INFO", json]                            `info` has changed
    [b"-ERR", text]                            an error; the server closes the connection after most of them
    [b"PONG"]                                  the server has processed everything before this `FLUSH`

PING of the server is answered, +OK is dropped, and a PONG of a heartbeat, too. An error before the connection is ready
is its `failure`.

**Parsing.** The result does not depend on how the stream was cut (I18). Between two calls the object is in one step:

    INFO         the beginning of the first line is in `_held`
    BETWEEN      nothing is pending
    HOLDING      the beginning of a line or of a small message is in `_held`; `_need` bytes make it complete, if known
    LARGE        a large payload is read into its own buffer; `gap` is the place for its next bytes
    SKIPPING     a message over a limit is being dropped
    ENDING       CR LF after a large or a dropped payload is missing
    PLAIN        INFO has come, and TLS must begin before the next byte
    FAILED       `failure` is the error; further bytes are ignored

**Limits.** A line, INFO, headers and payload have limits (`NatsLimits`). A message over `max_payload` or `max_headers`
is dropped while it arrives, and `TooLarge` is returned when it ends: another client may send it, and the connection is
that of the server. The limit of the server for messages to it is `info.max_payload`: it closes the connection beyond.

**Speed.** The loop in `feed` takes MSG and HMSG that are complete in the chunk, and calls no other method for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from dragoman.carriers.carrier import UNBOUNDED, Carrier, Frame, Message, Messages, TooLarge, size_of
from dragoman.carriers.large_frame import LARGE_FRAME, MIB, NOTHING, LargeFrame
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.nats_connect import NO_OPTIONS, ConnectOptions, connect_line
from dragoman.carriers.nats_info import ServerInfo, read_info
from dragoman.carriers.nats_lines import DEFAULT_LIMITS, PING_LINE, PONG_LINE, NatsLimits, is_word

INFO: Final = 0
BETWEEN: Final = 1
HOLDING: Final = 2
LARGE: Final = 3
SKIPPING: Final = 4
ENDING: Final = 5
PLAIN: Final = 6
FAILED: Final = 7

CRLF: Final = b"\r\n"
GREETING: Final = b"INFO "
PASSED_THROUGH: Final = 16 * 1024  # bytes; `encode` does not copy payloads of this size or more
MOST_DIGITS: Final = 10  # of a size; `hard_cap` is below
LETTER_M: Final = 0x4D
LETTER_H: Final = 0x48


class Encryption(Enum):
    """The place of TLS in the handshake."""

    NONE = auto()
    AFTER_INFO = auto()  # as NATS servers have it by default
    BEFORE_INFO = auto()  # `handshake_first` of a server


class Nats(Carrier):
    """A connection to a NATS server: bytes in, messages out. Its own lines collect in `outgoing`."""

    # fmt: off
    __slots__ = (
        "_begins_tls", "_dropped", "_encryption", "_held", "_large", "_limits", "_need", "_options", "_pings", "_skip",
        "_step", "_words", "info",
    )
    # fmt: on

    def __init__(
        self,
        options: ConnectOptions = NO_OPTIONS,
        *,
        encryption: Encryption = Encryption.NONE,
        limits: NatsLimits = DEFAULT_LIMITS,
    ) -> None:
        self.outgoing: list[bytes] = []
        self.ready = False
        self.failure: Malformed | None = None
        self.peer_identity = b""  # NATS has none
        self.gap: memoryview | None = None
        self.most = UNBOUNDED
        self.rest = b""
        self.info = ServerInfo()  # the defaults, until INFO has come
        self._begins_tls = encryption is not Encryption.AFTER_INFO
        self._options = options
        self._encryption = encryption
        self._limits = limits
        self._pings: deque[bool] = deque()  # PINGs without a PONG; True: of `FLUSH`
        self._step = INFO
        self._held = bytearray()
        self._need = 0  # bytes that complete the held message; 0: its line has no end yet
        self._words: Message = []  # of a message whose payload is large or dropped: sid, subject, reply, headers
        self._large = NOTHING
        self._skip = 0  # bytes of a dropped message still to come
        self._dropped = 0  # bytes of the dropped message, else 0

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return the buffers of a message or of a line of control."""
        if len(frames) == 1:
            if frames[0] == PING_LINE:
                self._pings.append(True)
            return [frames[0]]
        subject, reply, headers, payload = frames
        size = len(payload)
        total = len(headers) + size
        assert is_word(subject), "a subject is one word"
        assert not reply or is_word(reply), "a subject for replies is one word"
        assert total <= self.info.max_payload, f"{total} bytes; the server accepts {self.info.max_payload}"
        if headers:
            assert self.info.has_headers, "this server has no headers"
            sizes = b"%d %d\r\n" % (len(headers), total)
            line = b" ".join((b"HPUB", subject, reply, sizes) if reply else (b"HPUB", subject, sizes)) + headers
        else:
            sizes = b"%d\r\n" % size
            line = b" ".join((b"PUB", subject, reply, sizes) if reply else (b"PUB", subject, sizes))
        if size < PASSED_THROUGH:
            return [b"".join((line, payload, CRLF))]
        return [line, payload, CRLF]

    def feed(self, data: bytes) -> Messages:
        """Parse bytes that were read. Returns the messages that ended in them, in order."""
        messages: Messages = []
        try:
            pos = 0
            if self._step != BETWEEN:
                data, pos = self._resume(data, messages)
            end_of_data = len(data)
            limits = self._limits
            most = limits.max_line if end_of_data <= limits.max_payload else 0  # else a payload may be too large
            while pos < end_of_data:
                line_end = data.find(CRLF, pos)
                if self.ready and 0 < line_end - pos <= most:
                    letter = data[pos]
                    if letter == LETTER_M and data.startswith(b"MSG ", pos):
                        words = data[pos + 4 : line_end].split()
                        count = len(words)
                        if (count == 3 or count == 4) and _is_size(words[-1]):
                            start = line_end + 2
                            end = start + int(words[-1])
                            if end + 2 <= end_of_data and data.startswith(CRLF, end):
                                reply = words[2] if count == 4 else b""
                                messages.append([words[1], words[0], reply, b"", data[start:end]])
                                pos = end + 2
                                continue
                    elif letter == LETTER_H and data.startswith(b"HMSG ", pos):
                        words = data[pos + 5 : line_end].split()
                        count = len(words)
                        if (count == 4 or count == 5) and _is_size(words[-2]) and _is_size(words[-1]):
                            head = int(words[-2])
                            start = line_end + 2
                            end = start + int(words[-1])
                            body = start + head
                            if head <= limits.max_headers and body <= end and end + 2 <= end_of_data:
                                if data.startswith(CRLF, end):
                                    reply = words[2] if count == 5 else b""
                                    messages.append([words[1], words[0], reply, data[start:body], data[body:end]])
                                    pos = end + 2
                                    continue
                pos = self._careful_line(data, pos, line_end, messages)
        except Malformed as failure:
            self.failure = failure
            self.release()
        return messages

    def fill(self, count: int) -> Messages:
        """Accept `count` bytes that were read into `gap`. No message ends with them: CR LF follows."""
        if self.gap is not None:
            self._large.fill(count)
            self._update_large()
        return []

    @property
    def holding(self) -> int:
        """Number of bytes kept of an unfinished message."""
        return size_of(self._words) + len(self._held) + len(self._large)

    def release(self) -> None:
        """Drop all kept bytes, because the connection has ended. Further bytes are ignored."""
        self._step = FAILED
        self.gap = None
        self._held = bytearray()
        self._words = []
        self._large = NOTHING

    @property
    def has_ping(self) -> bool:
        return self.ready

    def ping(self) -> bytes | None:
        """Return a PING whose PONG is not returned. It must be sent, because PONGs are told apart by their order."""
        self._pings.append(False)
        return PING_LINE

    @property
    def begins_tls(self) -> bool:
        return self._begins_tls

    def enter_tls(self) -> None:
        if self._step == PLAIN:
            self._step = BETWEEN

    # ---- what the loop in `feed` does not take

    def _resume(self, data: bytes, messages: Messages) -> tuple[bytes, int]:
        """Continue after the previous `feed`. Returns the bytes to parse as lines, and the position to start at."""
        step = self._step
        if step in (INFO, HOLDING):
            return self._resume_held(data)
        if step == LARGE:
            pos = self._large.pour(data, 0)
            self._update_large()
            return data, pos if self.gap is not None else self._take_end(data, pos, messages)
        if step == SKIPPING:
            return data, self._skip_bytes(data, 0, messages)
        if step == ENDING:
            data = b"".join((self._held, data))
            return data, self._take_end(data, 0, messages)
        if step == PLAIN and data:
            raise _bytes_before_tls()
        return b"", 0

    def _resume_held(self, data: bytes) -> tuple[bytes, int]:
        held, need = self._held, self._need
        if len(held) + len(data) < need or (not need and b"\n" not in data):
            held += data
            if not need:
                self._check_line(bytes(held[: len(GREETING)]), len(held) - held.endswith(b"\r"))
            return b"", 0
        data = b"".join((held, data))
        self._held = bytearray()
        self._need = 0
        if self._step == HOLDING:
            self._step = BETWEEN
        return data, 0

    def _careful_line(self, data: bytes, pos: int, line_end: int, messages: Messages) -> int:
        """Take the line at `pos`, with its payload if it has one, or what has arrived. Returns the next position."""
        is_whole = line_end >= 0
        size = line_end - pos if is_whole else len(data) - pos - data.endswith(b"\r")
        self._check_line(data[pos : pos + len(GREETING)], size)
        if not is_whole:
            return self._hold(data, pos, 0)
        after = line_end + 2
        words = data[pos:line_end].split(None, 1)
        verb = words[0].upper() if words else b""
        rest = words[1].strip() if len(words) > 1 else b""
        if verb == b"MSG" or verb == b"HMSG":
            return self._careful_message(verb == b"HMSG", rest.split(), data, pos, after, messages)
        if verb == b"INFO":
            self._take_info(rest, messages)
            if self._step == PLAIN and after < len(data):
                raise _bytes_before_tls()
        elif verb == b"PING":
            self.outgoing.append(PONG_LINE)
        elif verb == b"PONG":
            self._take_pong(messages)
        elif verb == b"-ERR":
            self._take_error(rest.strip(b"'"), messages)
        elif verb != b"+OK":
            raise Malformed("unknown verb", f"a line begins with {verb[:16].hex(' ') or 'nothing'}; that is no verb")
        return after

    def _check_line(self, first: bytes, size: int) -> None:
        """Check a line of which at least `size` bytes have come. Raises Malformed at the first wrong byte."""
        if self._step == INFO:
            _check_greeting(first)
        if size >= len(GREETING):
            limits = self._limits
            most = limits.max_info if first.upper() == GREETING else limits.max_line
            if size > most:
                raise Malformed("line too long", f"a line is over {most} bytes")

    def _take_info(self, text: bytes, messages: Messages) -> None:
        self.info = info = read_info(text)
        if self.ready:
            messages.append([b"INFO", text])
        if self._step != INFO:
            return
        if self._encryption is Encryption.NONE and info.tls_required:
            raise Malformed("tls required", "the server requires TLS: write tls:// in the address, and ca= if needed")
        if self._encryption is Encryption.AFTER_INFO and not (info.tls_required or info.tls_available):
            raise Malformed("no tls", "the server has no TLS: set it up there, or write nats:// in the address")
        line = connect_line(self._options, info, is_encrypted=self._encryption is not Encryption.NONE)
        self.outgoing.append(line + PING_LINE)
        self._step = BETWEEN if self._begins_tls else PLAIN
        self._begins_tls = True

    def _take_pong(self, messages: Messages) -> None:
        if not self.ready:
            self.ready = True
        elif self._pings and self._pings.popleft():
            messages.append([b"PONG"])

    def _take_error(self, text: bytes, messages: Messages) -> None:
        if not self.ready:
            shown = text[:200].decode("ascii", "backslashreplace")
            raise Malformed("refused", f"the server refused the connection: {shown}; check credentials and its log")
        messages.append([b"-ERR", text])

    def _careful_message(
        self, has_headers: bool, words: list[bytes], data: bytes, pos: int, start: int, messages: Messages
    ) -> int:
        """Take a message, or what has arrived. `words`: of its line. `start`: the position behind its line."""
        sizes = words[-2:] if has_headers else words[-1:]
        count = len(words) - len(sizes)
        if not 2 <= count <= 3 or not all(map(_is_size, sizes)):
            raise Malformed("bad message", "a message is not subject, number, optional reply, and sizes in bytes")
        if not self.ready:
            raise Malformed("early message", "a message came before the handshake was done")
        head, size = int(sizes[0]) if has_headers else 0, int(sizes[-1])
        limits = self._limits
        if head > size or size > limits.hard_cap:
            problem = f"headers of {head} bytes in a message of {size}; hard_cap is {limits.hard_cap}"
            raise Malformed("bad size", problem)
        self._words = [words[1], words[0], words[2] if count == 3 else b""]
        if head > limits.max_headers or size - head > limits.max_payload:
            self._skip = self._dropped = size
            return self._skip_bytes(data, start, messages)
        end = start + size
        body = start + head
        if end + 2 <= len(data):
            self._words.append(data[start:body])
            self._finish(data[body:end], data, end, messages)
            return end + 2
        if size - head < LARGE_FRAME or body > len(data):
            self._words = []
            return self._hold(data, pos, end + 2 if size - head < LARGE_FRAME else body)
        self._words.append(data[start:body])
        self._step = LARGE
        self._large = LargeFrame(size - head, len(data) - body, LARGE_FRAME, MIB)
        pos = self._large.pour(data, body)
        self._update_large()
        return pos if self.gap is not None else self._take_end(data, pos, messages)

    def _hold(self, data: bytes, pos: int, end: int) -> int:
        """Keep an unfinished line, or a message until the bytes up to `end` have arrived."""
        self._held = bytearray(memoryview(data)[pos:])
        self._need = end - pos if end else 0
        if self._step != INFO:
            self._step = HOLDING
        return len(data)

    def _update_large(self) -> None:
        """Update `gap`; without a gap the payload is complete."""
        self.gap = self._large.gap
        if self.gap is None:
            self._step = ENDING

    def _skip_bytes(self, data: bytes, pos: int, messages: Messages) -> int:
        """Drop bytes of a message over a limit. Returns the position after it."""
        left = len(data) - pos
        if left < self._skip:
            self._skip -= left
            self._step = SKIPPING
            return len(data)
        return self._take_end(data, pos + self._skip, messages)

    def _take_end(self, data: bytes, pos: int, messages: Messages) -> int:
        """Take the CR LF behind a large or a dropped payload. Returns the position after it."""
        if len(data) - pos < 2:
            self._held = bytearray(memoryview(data)[pos:])
            self._step = ENDING
            return len(data)
        self._held = bytearray()
        self._step = BETWEEN
        large, self._large = self._large, NOTHING
        self._finish(large.buffer, data, pos, messages)
        return pos + 2

    def _finish(self, payload: Frame, data: bytes, end: int, messages: Messages) -> None:
        """End a message whose payload ended at `end`. Raises Malformed if CR LF does not follow."""
        if not data.startswith(CRLF, end):
            raise Malformed("bad end", "a payload does not end with CR LF where its size says")
        words, self._words = self._words, []
        if self._dropped:
            messages.append(TooLarge(words, self._dropped))
            self._dropped = self._skip = 0
        else:
            words.append(payload)
            messages.append(words)


def _is_size(word: bytes) -> bool:
    return word.isdigit() and len(word) <= MOST_DIGITS


def _check_greeting(first: bytes) -> None:
    """Raise Malformed at the first byte that is not of `INFO `."""
    for count in range(1, 1 + len(first)):
        if first[count - 1] != GREETING[count - 1]:
            began = first[:count].hex(" ")
            raise Malformed("not nats", f"the peer is no NATS server: it began with {began}, and not with INFO")


def _bytes_before_tls() -> Malformed:
    return Malformed("bytes before TLS", "the server sent more than INFO before TLS began; nothing proves who sent it")
