"""The client side of HTTP/1.1 (RFC 9112): requests out, responses in.

`encode` takes a request as `[line, fields, body]`. The line is method and target (`POST /v1/call/echo`). The fields are
further header fields, each ended by CR LF. The carrier adds the version, Host and Content-Length. `feed` returns a
response as `[status, fields, body]`: three digits; the header fields, one per line, as `name:value` with the name in
lower case; and the whole body. Responses with a status of 1xx are dropped, as the RFC demands. A connection carries one
request at a time; the field `connection` of the response tells if another may follow.

HTTP has no greeting. If a `probe` is given, the carrier requests it first, and is ready when the response is `alive`.
Any other response is a failure: this is not the expected server.

**Parsing.** `feed` takes the bytes that were read and returns the responses that ended in them. Between two calls the
object is in one of these steps. The result does not depend on how the stream was cut (I18).

    HEAD       the beginning of a response's head is in `_held`
    BODY       the head is complete, and the beginning of a small body is in `_held`
    LARGE      a large body is read into its own buffer; `gap` is the place for its next bytes
    SIZE       the beginning of a chunk's size line is in `_held`
    CHUNK      `_need` bytes of a chunk and of the CR LF behind it are missing
    TRAILER    the last chunk has come; `_held` has trailer fields, which are dropped
    FAILED     `failure` is the error; further bytes are ignored

**Limits.** A head has at most `max_head` bytes, a body at most `max_payload`. A claimed length allocates nothing
(`large_frame.py`), and the sizes of chunks are summed before their bytes are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.carriers.carrier import UNBOUNDED, Carrier, Frame, Messages
from dragoman.carriers.large_frame import LARGE_FRAME, MIB, NOTHING, LargeFrame
from dragoman.carriers.malformed import Malformed

HEAD: Final = 0
BODY: Final = 1
LARGE: Final = 2
SIZE: Final = 3
CHUNK: Final = 4
TRAILER: Final = 5
FAILED: Final = 6

PASSED_THROUGH: Final = 16 * 1024  # bytes; `encode` does not copy bodies of this size or more
BEGINNING: Final = b"HTTP/1."
LINE_END: Final = b"\r\n"
EMPTY_LINE: Final = b"\r\n\r\n"
STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t -~\x80-\xff]*)?")
FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t ]*([\t -~\x80-\xff]*?)[\t ]*")
LENGTH: Final = re.compile(rb"[0-9]{1,18}")
SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[\t ]*;[\t -~\x80-\xff]*)?")
LONGEST_SIZE_LINE: Final = 1024
FOREIGN_HOST: Final = "foreign host"  # reason of a failure: a broker rejects the field Host


@dataclass(frozen=True, slots=True)
class HttpClientLimits:
    """Maximum number of bytes kept for one response."""

    max_head: int = 64 * 1024
    max_payload: int = 64 * MIB

    def __post_init__(self) -> None:
        if self.max_head < 1 or self.max_payload < 1:
            raise ValueError(f"max_head and max_payload must be above 0: {self}")


DEFAULT_LIMITS: Final = HttpClientLimits()


class HttpClient(Carrier):
    """One connection to a server: responses in, requests out. It sends nothing on its own but the probe."""

    # fmt: off
    __slots__ = (
        "_alive", "_body", "_fields", "_held", "_host", "_large", "_limits", "_need", "_pending", "_status", "_step",
    )
    # fmt: on

    def __init__(
        self,
        host: str,
        *,
        probe: bytes = b"",
        alive: bytes = b"",
        fields: bytes = b"",
        limits: HttpClientLimits = DEFAULT_LIMITS,
    ) -> None:
        """`host`: the value of the field Host, such as `127.0.0.1:7480`. `probe`: a path for which the expected server
        returns the body `alive`. `fields`: header fields of every request but the probe, each ended by CR LF."""
        self.failure: Malformed | None = None
        self.peer_identity = b""  # HTTP has none
        self.gap: memoryview | None = None
        self.most = UNBOUNDED
        self.rest = b""
        self._host = b" HTTP/1.1\r\nhost: " + host.encode("ascii") + b"\r\n"
        self._limits = limits
        self._pending = 0  # requests without a response
        self._step = HEAD
        self._held = bytearray()
        self._need = 0
        self._status = b""
        self._fields = b""
        self._body = bytearray()  # of a chunked response, the part that has arrived
        self._large = NOTHING
        self._alive = alive
        self.ready = not probe
        self.outgoing: list[bytes] = []
        if probe:
            self.outgoing += [bytes(each) for each in self.encode([b"GET " + probe, b"", b""])]
        self._host += fields  # not in the probe: before its response, the server may be another one

    def encode(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return the buffers to write for a request. A GET or a DELETE without a body has no Content-Length."""
        line, fields, body = frames
        self._pending += 1
        size = len(body)
        length = b"" if not size and not line.startswith(b"P") else b"content-length: %d\r\n" % size
        head = b"".join((line, self._host, length, fields, b"\r\n"))
        if size < PASSED_THROUGH:
            return [head + body]
        return [head, body]

    def feed(self, data: bytes) -> Messages:
        """Parse bytes that were read. Returns the responses that ended in them, in order."""
        messages: Messages = []
        try:
            pos = 0
            if self._step == LARGE:
                pos = self._large.pour(data, 0)
                self._update_large(messages)
            if self._held and self._step != FAILED:
                data = bytes(self._held) + data[pos:]
                pos = 0
                self._held = bytearray()
            while pos < len(data) or (self._step == BODY and not self._need):
                pos = self._take(data, pos, messages)
        except Malformed as failure:
            self.failure = failure
            self.release()
        return messages

    def fill(self, count: int) -> Messages:
        """Accept `count` bytes that were read into `gap`. Returns the response that ended with them, if any."""
        messages: Messages = []
        if self.gap is not None:
            self._large.fill(count)
            try:
                self._update_large(messages)
            except Malformed as failure:
                self.failure = failure
                self.release()
        return messages

    @property
    def holding(self) -> int:
        """Number of bytes kept of an unfinished response."""
        return len(self._held) + len(self._fields) + len(self._body) + len(self._large)

    def release(self) -> None:
        """Drop all kept bytes, because the connection has ended. Further bytes are ignored."""
        self._step = FAILED
        self.gap = None
        self._held = bytearray()
        self._fields = b""
        self._body = bytearray()
        self._large = NOTHING

    def ping(self) -> None:
        """Do nothing: HTTP has no heartbeat."""

    # ---- the parts of a response: each method takes bytes at `pos` and returns the position after them

    def _take(self, data: bytes, pos: int, messages: Messages) -> int:
        step = self._step
        if step == HEAD:
            return self._take_head(data, pos, messages)
        if step == BODY:
            return self._take_body(data, pos, messages)
        if step == SIZE:
            return self._take_size(data, pos)
        if step == CHUNK:
            return self._take_chunk(data, pos)
        if step == TRAILER:
            return self._take_trailer(data, pos, messages)
        return len(data)  # FAILED

    def _take_head(self, data: bytes, pos: int, messages: Messages) -> int:
        if not self._pending:
            raise Malformed("unasked", "a response came without a request")
        _check_beginning(data[pos : pos + len(BEGINNING)])
        end = data.find(EMPTY_LINE, pos)
        if _known_end(data, end, EMPTY_LINE) - pos > self._limits.max_head:
            raise Malformed("head too long", f"a response's head is over {self._limits.max_head} bytes")
        if end < 0:
            return self._hold(data, pos)
        self._read_head(data[pos:end])
        if self._step == HEAD and self._status:  # there is no body
            self._finish(b"", messages)
        return end + len(EMPTY_LINE)

    def _read_head(self, head: bytes) -> None:
        """Check a head, and choose the step that reads its body."""
        lines = head.split(b"\r\n")
        found = STATUS_LINE.fullmatch(lines[0])
        if found is None:
            raise Malformed("bad status line", "the first line of a response is not a version, a status and a phrase")
        status = found[2]
        lengths: list[bytes] = []
        codings: list[bytes] = []
        fields: list[bytes] = []
        for line in lines[1:]:
            field = FIELD.fullmatch(line)
            if field is None:
                raise Malformed("bad field", "a header field is not a name, a colon and a value")
            name, value = field[1].lower(), field[2]
            fields.append(name + b":" + value)
            if name == b"content-length":
                lengths.append(value)
            elif name == b"transfer-encoding":
                codings.append(value.lower())
        if status.startswith(b"1"):
            if status == b"101":
                raise Malformed("upgrade", "the server changed the protocol without a request to do so")
            return
        if found[1] == b"0":
            fields.append(b"connection:close")
        self._status = status
        self._fields = b"\n".join(fields)
        if status in (b"204", b"304"):
            return
        self._choose_step(lengths, codings)

    def _choose_step(self, lengths: list[bytes], codings: list[bytes]) -> None:
        if codings:
            if codings != [b"chunked"] or lengths:
                raise Malformed("bad coding", "Transfer-Encoding is not chunked, or there is a Content-Length, too")
            self._step = SIZE
            return
        if not lengths:
            raise Malformed("no length", "a response has neither Content-Length nor chunks")
        if LENGTH.fullmatch(lengths[0]) is None or any(each != lengths[0] for each in lengths):
            raise Malformed("bad length", "Content-Length is not one number of bytes")
        self._need = int(lengths[0])
        self._check_size(self._need)
        self._step = BODY

    def _check_size(self, size: int) -> None:
        if size > self._limits.max_payload:
            most = self._limits.max_payload
            raise Malformed("over max_payload", f"a response of at least {size} bytes; max_payload is {most}")

    def _take_body(self, data: bytes, pos: int, messages: Messages) -> int:
        end = pos + self._need
        if end <= len(data):
            self._finish(data[pos:end], messages)
            return end
        if self._need < LARGE_FRAME:
            return self._hold(data, pos)
        self._step = LARGE
        self._large = LargeFrame(self._need, len(data) - pos)
        pos = self._large.pour(data, pos)
        self._update_large(messages)
        return pos

    def _take_size(self, data: bytes, pos: int) -> int:
        end = data.find(LINE_END, pos)
        if _known_end(data, end, LINE_END) - pos > LONGEST_SIZE_LINE:
            raise Malformed("bad chunk", f"the size line of a chunk is over {LONGEST_SIZE_LINE} bytes")
        if end < 0:
            return self._hold(data, pos)
        found = SIZE_LINE.fullmatch(data[pos:end])
        if found is None:
            raise Malformed("bad chunk", "a chunk does not begin with its size")
        size = int(found[1], 16)
        if size:
            self._check_size(len(self._body) + size)
            self._need = size + 2
            self._step = CHUNK
        else:
            self._step = TRAILER
        return end + 2

    def _take_chunk(self, data: bytes, pos: int) -> int:
        end = min(len(data), pos + self._need)
        inside = min(end, pos + max(0, self._need - 2))  # the rest is CR LF
        self._body += memoryview(data)[pos:inside]
        ending = data[inside:end]
        expected = b"\r\n"[2 - self._need :] if self._need < 2 else b"\r\n"
        if not expected.startswith(ending):
            raise Malformed("bad chunk", "a chunk does not end where its size says")
        self._need -= end - pos
        if not self._need:
            self._step = SIZE
        return end

    def _take_trailer(self, data: bytes, pos: int, messages: Messages) -> int:
        end = data.find(LINE_END, pos)
        if _known_end(data, end, LINE_END) - pos > self._limits.max_head:
            raise Malformed("head too long", f"a trailer field is over {self._limits.max_head} bytes")
        if end < 0:
            return self._hold(data, pos)
        if end == pos:
            body, self._body = self._body, bytearray()
            self._finish(body, messages)
        return end + 2

    def _hold(self, data: bytes, pos: int) -> int:
        self._held = bytearray(memoryview(data)[pos:])
        return len(data)

    def _update_large(self, messages: Messages) -> None:
        """Update `gap`; without a gap the response is complete."""
        large = self._large
        self.gap = large.gap
        if large.gap is None:
            self._large = NOTHING
            self._finish(large.buffer, messages)

    def _finish(self, body: Frame, messages: Messages) -> None:
        if self.ready:
            messages.append([self._status, self._fields, body])
        elif self._status != b"200" or body != self._alive:
            status = self._status.decode()
            if self._status == b"403" and b'"urn:dragoman:foreign-host"' in body:
                raise Malformed(FOREIGN_HOST, "it is a broker that does not serve the host name of this address")
            raise Malformed(
                "no broker", f"it speaks HTTP, but is no broker: its answer to the first request was {status}"
            )
        self.ready = True
        self._status = self._fields = b""
        self._need = 0
        self._pending -= 1
        self._step = HEAD


def _known_end(data: bytes, end: int, mark: bytes) -> int:
    """Return the end of a text before `mark`. If the mark has not come: the least that it can be, because the last
    bytes may begin the mark."""
    if end >= 0:
        return end
    for count in range(len(mark) - 1, 0, -1):
        if data.endswith(mark[:count]):
            return len(data) - count
    return len(data)


def _check_beginning(data: bytes) -> None:
    """Raise Malformed at the first wrong byte."""
    for count in range(1, 1 + len(data)):
        if data[count - 1] != BEGINNING[count - 1]:
            began = data[:count].hex(" ")
            raise Malformed("not http", f"the peer does not speak HTTP: it began with {began}, and not with HTTP/1.")
