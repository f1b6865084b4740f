"""Finds the end of a request's head and body in a stream of bytes, and checks both. Pure.

The parser is strict, but it keeps an unfinished field of any size, takes the end of an upgrade for the end of a
message, and reports trailers as fields. So it gets complete heads only, and of a body exactly the body's bytes. Nothing
on which both must agree can be smuggled between them (T15).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dragoman.http.hosts import Hosts, is_foreign_page, is_own_origin
from dragoman.http.limits import HttpLimits
from dragoman.http.url_secrets import has_secret

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]{0,17}+) ([!-~]++) HTTP/1\.([01])\r\n")
HEAD = re.compile(REQUEST_LINE.pattern + rb"(?:" + TOKEN + rb":[\t -~\x80-\xff]*+\r\n)*+\r\n")
LONGEST_METHOD = 32  # bytes, including the version after the target
IN_CHUNKS = -1
LENGTH = re.compile(rb"[0-9]{1,18}")

# Fields that are checked, and must not be repeated; every other field costs one lookup in this set.
WATCHED = frozenset(
    (
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"cookie",
        b"host",
        b"origin",
        b"sec-fetch-site",
        b"transfer-encoding",
    )
)
UPGRADE = re.compile(rb"\r\nupgrade:[^\r]*", re.IGNORECASE)

SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[\t -~]*+)?\r\n")
LONGEST_LINE = 128
MANY_CHUNKS = 1024
SMALLEST_AVERAGE = 16


@dataclass(frozen=True, slots=True)
class RequestError:
    """Reason for rejecting a request: a word for programs, a sentence for people. It never quotes the input."""

    status: int
    reason: str
    title: str
    detail: str


class BadRequest(Exception):
    """The request is rejected."""

    def __init__(self, fault: RequestError) -> None:
        super().__init__(fault.reason)
        self.fault = fault


def malformed(reason: str, detail: str) -> RequestError:
    return RequestError(400, reason, "Malformed request", detail)


LINE_END = malformed("bare-line-end", "A line ends with CR or LF alone; lines must end with CR LF.")
FOLDED = malformed("folded-field", "A field continues on the next line; each must be on one line.")
BAD_FIELD = malformed(
    "malformed-field", "A field must be a name, a colon and a value; no blanks around the name, no control characters."
)
BAD_LINE = malformed("malformed-request-line", "The first line is not a method, a target and HTTP/1.1 or HTTP/1.0.")
BAD_CHUNK = malformed("malformed-chunk", "The chunks of the body are not well formed.")
TRAILERS = malformed("trailers", "Fields after the body are not supported.")
TINY_CHUNKS = malformed(
    "tiny-chunks", f"A body of many chunks must have at least {SMALLEST_AVERAGE} bytes per chunk on average."
)


BAD_REQUEST = malformed("malformed-request", "The request is not HTTP/1.1, or its method is not known.")
TWO_LENGTHS = malformed("two-lengths", "Content-Length and Transfer-Encoding exclude each other.")
BAD_LENGTH = malformed("malformed-length", "Content-Length must be a number of bytes of at most 18 digits.")
BAD_CODING = malformed("malformed-coding", "Transfer-Encoding must be chunked, once, or absent.")
FOREIGN_HOST = RequestError(
    403, "foreign-host", "Foreign host", "This server does not serve the requested host name; see the option hosts."
)
FOREIGN_ORIGIN = RequestError(
    403, "foreign-origin", "Foreign origin", "Pages from another origin may not send requests to this server."
)
SECRET_IN_URL = malformed(
    "secret-in-url",
    "The URL has a token, a user name or a password, which may be logged on its way; send `Authorization: Bearer` "
    "instead, and replace the secret, because it may be known now.",
)
FORWARDED = RequestError(
    403,
    "forwarded",
    "Forwarded request",
    "A proxy is in front: write auth=token in the listener's URL, because the users behind a proxy are not known; "
    "loopback=anyone admits them all.",
)
ENCODED = RequestError(
    415, "content-encoding", "Encoded body", "Encoded bodies are not supported; send no Content-Encoding."
)
MULTIPART = RequestError(
    415, "multipart", "Multipart body", "Multipart bodies are not supported; send the payload itself."
)


def head_too_large(limits: HttpLimits) -> RequestError:
    return RequestError(431, "head-too-large", "Head too large", f"max_head is {limits.max_head} bytes.")


def target_too_long(limits: HttpLimits) -> RequestError:
    return RequestError(414, "target-too-long", "Target too long", f"max_target is {limits.max_target} bytes.")


def too_many_fields(limits: HttpLimits) -> RequestError:
    return RequestError(431, "too-many-fields", "Too many fields", f"max_fields is {limits.max_fields}.")


def payload_too_large(limits: HttpLimits) -> RequestError:
    return RequestError(413, "too-large", "Too large", f"max_payload is {limits.max_payload} bytes.")


def repeated(name: bytes) -> RequestError:
    return malformed("repeated-field", f"{name.decode()} is given more than once.")


def read_head(head: bytes, limits: HttpLimits) -> re.Match[bytes]:
    """Match a complete head, including its empty line: method, target and minor version. Raises BadRequest."""
    found = HEAD.fullmatch(head)
    if found is None:
        raise BadRequest(check_part(head, limits) or _form(head))
    if found.end(2) - found.start(2) > limits.max_target:
        raise BadRequest(target_too_long(limits))
    if len(head) > limits.max_head:
        raise BadRequest(head_too_large(limits))
    if head.count(b"\n") - 2 > limits.max_fields:
        raise BadRequest(too_many_fields(limits))
    return found


def check_part(part: bytes, limits: HttpLimits) -> RequestError | None:
    """Check the beginning of a head. Returns an error as soon as one is certain."""
    if not b"A" <= part[:1] <= b"Z":
        return BAD_LINE
    ends = part.count(b"\r\n")
    if part.count(b"\n") != ends or part.count(b"\r", 0, len(part) - 1) > ends:
        return LINE_END
    if not ends:
        if len(part) > limits.max_target + LONGEST_METHOD:
            return target_too_long(limits)
        if len(part) > LONGEST_METHOD and b" " not in part[:LONGEST_METHOD]:
            return BAD_LINE
    else:
        found = REQUEST_LINE.match(part)
        if found is None:
            return BAD_LINE
        if found.end(2) - found.start(2) > limits.max_target:
            return target_too_long(limits)
    if len(part) > limits.max_head:
        return head_too_large(limits)
    if ends - 1 > limits.max_fields + 1:
        return too_many_fields(limits)
    return None


def without_upgrade(head: bytes) -> bytes:
    """Remove the Upgrade field, which a server may ignore (RFC 9110, 7.8)."""
    return UPGRADE.sub(b"", head)


def _form(head: bytes) -> RequestError:
    return FOLDED if b"\r\n " in head or b"\r\n\t" in head else BAD_FIELD


def parser_error(head: re.Match[bytes]) -> RequestError:
    """Return the error of a well-formed head that the parser rejects without a reason."""
    lines = [line.partition(b":") for line in head[0].split(b"\r\n")[1:]]
    lengths = [value.strip() for name, _, value in lines if name.lower() == b"content-length"]
    has_coding = any(name.lower() == b"transfer-encoding" for name, _, _ in lines)
    if lengths and has_coding:
        return TWO_LENGTHS
    if len(lengths) > 1:
        return repeated(b"content-length")
    if lengths and LENGTH.fullmatch(lengths[0]) is None:
        return BAD_LENGTH
    return BAD_CODING if has_coding else BAD_REQUEST


def body_length(fields: list[tuple[bytes, bytes]], head: re.Match[bytes], limits: HttpLimits, hosts: Hosts) -> int:
    """Check the fields, named in lower case. Returns the length of the body, or IN_CHUNKS. Raises BadRequest."""
    watched: dict[bytes, bytes] = {}
    for name, value in fields:
        if name in WATCHED:
            if name in watched:
                raise BadRequest(repeated(name))
            watched[name] = value
    host = watched.pop(b"host", None)
    if host is None:
        if head[3] == b"1":
            raise BadRequest(malformed("no-host", "HTTP/1.1 requests have a field Host."))
    elif not hosts.allows(host):
        raise BadRequest(FOREIGN_HOST)
    method, target = head[1], head[2]
    if has_secret(target):
        raise BadRequest(SECRET_IN_URL)
    if target[:1] != b"/":
        _check_target(method, target, hosts)
    if is_foreign_page(watched.get(b"sec-fetch-site", b""), method, target):
        raise BadRequest(FOREIGN_ORIGIN)
    origin = watched.get(b"origin")
    if origin is not None and not is_own_origin(origin, host or b"", is_tls=hosts.is_tls):
        raise BadRequest(FOREIGN_ORIGIN)
    return _body_length(watched, head[3], limits) if watched else 0


def is_forwarded(fields: list[tuple[bytes, bytes]]) -> bool:
    """Tell if a proxy has forwarded the request: it has Forwarded or X-Forwarded-*. Names are in lower case."""
    return bool([name for name, _ in fields if name == b"forwarded" or name[:12] == b"x-forwarded-"])


def _check_target(method: bytes, target: bytes, hosts: Hosts) -> None:
    if method == b"CONNECT":
        raise BadRequest(RequestError(501, "tunnel", "No tunnels", "This is not a proxy."))
    if target == b"*" and method == b"OPTIONS":
        return
    if b"://" not in target:
        raise BadRequest(BAD_LINE)
    if not hosts.allows_target(target):
        raise BadRequest(FOREIGN_HOST)


def _body_length(watched: dict[bytes, bytes], version: bytes, limits: HttpLimits) -> int:
    length = 0
    stated = watched.get(b"content-length")
    coding = watched.get(b"transfer-encoding")
    if coding is not None:
        if stated is not None:
            raise BadRequest(TWO_LENGTHS)
        if version == b"0":
            raise BadRequest(malformed("chunks-in-http-1.0", "HTTP/1.0 has no Transfer-Encoding."))
        if coding.lower() != b"chunked":
            raise BadRequest(
                RequestError(501, "transfer-encoding", "Unknown transfer encoding", "Only chunked is supported.")
            )
        length = IN_CHUNKS
    elif stated is not None:
        if LENGTH.fullmatch(stated) is None:
            raise BadRequest(BAD_LENGTH)
        length = int(stated)
        if length > limits.max_payload:
            raise BadRequest(payload_too_large(limits))
    if watched.get(b"content-encoding", b"identity").lower() != b"identity":
        raise BadRequest(ENCODED)
    if watched.get(b"content-type", b"")[:10].lower() == b"multipart/":
        raise BadRequest(MULTIPART)
    return length


class Chunks:
    """Finds the end of a chunked body."""

    __slots__ = ("_awaits", "_count", "_left", "_limits", "_line", "total")

    def __init__(self, limits: HttpLimits) -> None:
        self.total = 0
        self._limits = limits
        self._count = 0
        self._left = 0  # bytes of this chunk's data
        self._line = b""  # the beginning of a line
        self._awaits = "size"

    def end(self, data: bytes) -> int | None:
        """Return the position after the body's last byte, if it is in `data`. Raises BadRequest."""
        at = 0
        while True:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
            if at == len(data):
                return None
            end = data.find(b"\n", at, at + LONGEST_LINE) + 1
            line = self._line + data[at : end or len(data)]
            if len(line) > LONGEST_LINE:
                raise BadRequest(BAD_CHUNK)
            if not end:
                self._line = line
                return None
            self._line = b""
            at = end
            if self._is_last(line):
                return at

    def _is_last(self, line: bytes) -> bool:
        if self._awaits == "size":
            found = SIZE_LINE.fullmatch(line)
            if found is None:
                raise BadRequest(BAD_CHUNK)
            self._begin_chunk(int(found[1], 16))
            return False
        if line != b"\r\n":
            raise BadRequest(BAD_CHUNK if self._awaits == "end of chunk" else TRAILERS)
        is_last = self._awaits == "end"
        self._awaits = "size"
        return is_last

    def _begin_chunk(self, size: int) -> None:
        self._awaits = "end of chunk" if size else "end"
        self._left = size
        self._count += 1
        self.total += size
        if self.total > self._limits.max_payload:
            raise BadRequest(payload_too_large(self._limits))
        if self._count > MANY_CHUNKS and self.total < self._count * SMALLEST_AVERAGE:
            raise BadRequest(TINY_CHUNKS)
