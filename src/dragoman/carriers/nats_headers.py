"""Headers of NATS messages: a block of lines before the payload (ADR-4 of the NATS project).

A block is `NATS/1.0`, optionally a status and a description, then fields `Name: value`, each line ended by CR LF, and
an empty line. The server answers with a status instead of a payload: 503 nobody listens to the subject of a request,
404 and 408 from JetStream, 204 the end of a batch, 100 a heartbeat, 409 a consumer that was deleted.

Names are case-sensitive. A name may occur several times. The carrier passes blocks on without a look at them, because
any client of the server can publish any bytes as headers: a bad block ends no connection, and is the sender's fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from dragoman.carriers.malformed import Malformed

VERSION: Final = b"NATS/1.0"
END: Final = b"\r\n\r\n"
MAX_FIELDS: Final = 1000

NO_RESPONDERS: Final = 503
NOT_FOUND: Final = 404
END_OF_BATCH: Final = 204

FIRST_LINE: Final = re.compile(rb"NATS/1\.0(?: +([1-9][0-9]{2})(?: +([^\r\n]*))?)? *")
NAME: Final = re.compile(rb"[!-9;-~]+")  # visible ASCII but the colon
VALUE: Final = re.compile(rb"[^\r\n]*")

Fields = Sequence[tuple[bytes, bytes]]


class Headers:
    """A block that was read: a status (0 if there is none), its description, and the fields in order."""

    __slots__ = ("description", "fields", "status")

    def __init__(self, status: int, description: bytes, fields: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.description = description
        self.fields = fields

    def get(self, name: bytes) -> bytes | None:
        """Return the first value of a name, or None."""
        for each, value in self.fields:
            if each == name:
                return value
        return None

    def number(self, name: bytes) -> int | None:
        """Return the first value of a name as a number; None if it is missing or not a number."""
        value = self.get(name)
        return int(value) if value is not None and value.isdigit() and len(value) < 20 else None


NO_HEADERS: Final = Headers(0, b"", [])


def read_headers(block: bytes | bytearray) -> Headers:
    """Read a block; an empty one has no fields. Raises Malformed."""
    if not block:
        return NO_HEADERS
    if not block.endswith(END):
        raise Malformed("bad headers", "a block of headers does not end with an empty line")
    lines = bytes(block[: -len(END)]).split(b"\r\n")
    if len(lines) > MAX_FIELDS + 1:
        raise Malformed("bad headers", f"a block of headers has {len(lines) - 1} fields; {MAX_FIELDS} are allowed")
    first = FIRST_LINE.fullmatch(lines[0])
    if first is None:
        raise Malformed("bad headers", "a block of headers does not begin with NATS/1.0")
    fields: list[tuple[bytes, bytes]] = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or NAME.fullmatch(name) is None or b"\r" in value or b"\n" in value:
            raise Malformed("bad headers", "a header is not a name, a colon and a value")
        fields.append((name, value.strip(b" \t")))
    return Headers(int(first[1] or 0), (first[2] or b"").strip(), fields)


def write_headers(fields: Fields, status: int = 0, description: bytes = b"") -> bytes:
    """Return a block. Raises ValueError for a name or a value that a block cannot have."""
    lines = [VERSION]
    if status:
        if not 100 <= status <= 999 or VALUE.fullmatch(description) is None:
            raise ValueError(f"status {status}: a status has three digits, and its description is one line")
        lines[0] += b" %d %b" % (status, description) if description else b" %d" % status
    for name, value in fields:
        if NAME.fullmatch(name) is None or VALUE.fullmatch(value) is None:
            raise ValueError(f"header {name!r}: a name is visible ASCII without a colon, and a value is one line")
        lines.append(name + b": " + value)
    return b"\r\n".join(lines) + END
