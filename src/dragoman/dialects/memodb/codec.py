"""Codec of MemoDB: bytes to messages and back. Its only state is a cache of names.

A header is one CBOR array, and only the CBOR types of the MemoDB document are read: unsigned and negative integers,
byte strings, texts, arrays and booleans, all of definite length. Integers and lengths may be encoded longer than
necessary. Each position of the header allows one type, so there is no general parser that a tag, float, map or deeply
nested array could mislead. A claimed length is compared, never allocated.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.core.names import is_name
from dragoman.dialects.memodb.messages import (
    DISCONNECT,
    HEARTBEAT,
    JOB,
    READY,
    RESULT,
    VERSION,
    Disconnect,
    Heartbeat,
    Job,
    ParsedMessage,
    Ready,
    Result,
)

MAX_HEADER: Final = 64 * 1024
MAX_SERVICES: Final = 64
MAX_NAME_BYTES: Final = 128
MAX_SHOWN: Final = 64
CACHE_SIZE: Final = 1024

# The major types of CBOR: the upper three bits of an item's first byte.
UNSIGNED: Final = 0
NEGATIVE: Final = 1
BYTES: Final = 2
TEXT: Final = 3
ARRAY: Final = 4
_KINDS: Final = (
    "an unsigned integer",
    "a negative integer",
    "a byte string",
    "a text",
    "an array",
    "a map",
    "a tag",
    "a simple value or float",
)
FALSE: Final = 0xF4
TRUE: Final = 0xF5

# The lower five bits: up to 23 the value itself; 24 to 27: it follows in 1, 2, 4 or 8 bytes; others are reserved or
# mean an indefinite length.
ONE_BYTE: Final = 24
EIGHT_BYTES: Final = 27

_NAMES: Final = {READY: "READY", JOB: "JOB", RESULT: "RESULT", HEARTBEAT: "HEARTBEAT", DISCONNECT: "DISCONNECT"}
_FEWEST_ITEMS: Final = {READY: 4, JOB: 5, RESULT: 3, HEARTBEAT: 3, DISCONNECT: 3}
_MOST_ITEMS: Final = {READY: 4, JOB: 5, RESULT: 4, HEARTBEAT: 3, DISCONNECT: 3}

_VERSION: Final = VERSION.encode()
_THREE: Final = b"\x83\x66" + _VERSION
_FOUR: Final = b"\x84\x66" + _VERSION
_FIVE: Final = b"\x85\x66" + _VERSION
_RESULT_WITH_ID: Final = _THREE + b"\x03\x50"
_HEARTBEAT_WITH_ID: Final = _THREE + b"\x04\x50"
_JOB_WITHOUT_ID: Final = _FIVE + b"\x02\x40"
_JOB_WITH_ID: Final = _FIVE + b"\x02\x50"
_RESULT_WITHOUT_ID: Final = _THREE + b"\x03\x40"


# Size in bytes of a plain time-out, by its first byte: at most 32 bits, or -1. 0: not plain.
_TIMEOUT_SIZES: Final = bytes(
    1 if first < ONE_BYTE or first == 0x20 else {0x18: 2, 0x19: 3, 0x1A: 5}.get(first, 0) for first in range(256)
)


def read(body: Frame) -> ParsedMessage:
    """Parse a message. Raises Malformed.

    A payload in `bytes` is copied. A bytearray is reused: its header is deleted in place, which moves nothing, and it
    becomes the payload; if the message is malformed it stays unchanged.
    """
    plain = read_plain(body) if type(body) is bytes else None
    if plain is None:
        return _read_carefully(body)
    id, service, timeout, payload = plain
    return Result(id, False, payload) if id else Job(b"", service, timeout, payload)


def read_plain(body: bytes) -> tuple[bytes, str, int, bytes] | None:
    """Parse the most frequent messages, recognised by their first ten bytes, without creating an object: a client's JOB
    as id (empty), service, time-out and payload, or a worker's RESULT as id and payload. Returns None for any other
    message; `_read_carefully` reads all of them alike. Raises Malformed."""
    begin = body[:10]
    if begin == _RESULT_WITH_ID:
        if len(body) >= 26:
            return body[10:26], "", 0, body[26:]
    elif begin == _JOB_WITHOUT_ID and len(body) > 11:
        at = body[10] - 0x55  # end of the name: it begins at 11, and 0x60 is the head of an empty one
        if 11 < at <= 34 and at + 5 <= len(body):
            size = _TIMEOUT_SIZES[body[at]]
            if size:
                end = at + size
                service, timeout = _read_job_tail(body[10:end])
                return b"", service, timeout, body[end:]
    return None


@lru_cache(maxsize=CACHE_SIZE)
def _read_job_tail(tail: bytes) -> tuple[str, int]:
    """Parse service and time-out of a JOB. Cached: few different ones come."""
    service, at = _read_name(tail, 0)
    return service, _read_timeout(tail, at)[0]


# -------------------------------------------------------------------- all messages


def _read_carefully(body: Frame) -> ParsedMessage:
    count, at = _read_head(body, 0, ARRAY, "not a memo01 header")
    at = _read_version(body, at, count)
    kind, at = _read_kind(body, at, count)
    id, at = _read_string(body, at, BYTES, "wrong field")
    if kind == JOB:
        service, at = _read_name(body, at)
        timeout, at = _read_timeout(body, at)
        return Job(id, service, timeout, _take_payload(body, at))
    if kind == RESULT:
        is_leaving = False
        if count == 4:
            is_leaving, at = _read_flag(body, at)
        return Result(id, is_leaving, _take_payload(body, at))
    services: tuple[str, ...] = ()
    if kind == READY:
        services, at = _read_services(body, at)
    if at != len(body):
        raise Malformed("unwanted payload", f"{len(body) - at} bytes follow {_NAMES[kind]}, which has no payload")
    if kind == READY:
        return Ready(services, id)
    return Heartbeat(id) if kind == HEARTBEAT else Disconnect(id)


def _read_version(body: Frame, at: int, count: int) -> int:
    if count == 0:
        raise Malformed("missing field", f"the header is an empty array and should begin with {VERSION!r}")
    version, at = _read_string(body, at, TEXT, "not a memo01 header")
    if version != _VERSION:
        raise Malformed("wrong version", f"the version is {_shown(version)}; only {VERSION!r} is supported")
    return at


def _read_kind(body: Frame, at: int, count: int) -> tuple[int, int]:
    """Return the message type, after checking that it is known and has the right number of items."""
    if count < 3:
        raise Malformed("missing field", f"{count} items; version, type and id are required")
    kind, at = _read_head(body, at, UNSIGNED, "wrong field")
    if kind not in _NAMES:
        raise Malformed("unknown type", f"type {kind} is not one of {READY} to {DISCONNECT}")
    if count < _FEWEST_ITEMS[kind]:
        raise Malformed("missing field", f"{_NAMES[kind]} of {count} items; {_FEWEST_ITEMS[kind]} are required")
    if count > _MOST_ITEMS[kind]:
        raise Malformed("extra field", f"{_NAMES[kind]} of {count} items; at most {_MOST_ITEMS[kind]} are allowed")
    return kind, at


def _read_services(body: Frame, at: int) -> tuple[tuple[str, ...], int]:
    """Return the distinct names in the order of their first occurrence."""
    count, at = _read_head(body, at, ARRAY, "wrong field")
    if not 0 < count <= MAX_SERVICES:
        raise Malformed("bad service list", f"{count} services; 1 to {MAX_SERVICES} are allowed")
    services: dict[str, None] = {}
    for _ in range(count):
        service, at = _read_name(body, at)
        services[service] = None
    return tuple(services), at


def _read_name(body: Frame, at: int) -> tuple[str, int]:
    raw, at = _read_string(body, at, TEXT, "wrong field")
    return _name(raw), at


@lru_cache(maxsize=CACHE_SIZE)
def _name(raw: bytes) -> str:
    """Decode and check a name. Cached: checking each letter takes longest, and few different names come."""
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise Malformed("bad service name", f"{_shown(raw)} is not UTF-8") from None
    if not is_name(name, MAX_NAME_BYTES):
        raise Malformed(
            "bad service name",
            f"{_shown(raw)} of {len(raw)} bytes; 1 to {MAX_NAME_BYTES} of visible text are allowed",
        )
    return name


def _read_timeout(body: Frame, at: int) -> tuple[int, int]:
    """Parse a time-out: -1 or a non-negative integer. The broker side limits its size (R72)."""
    if at < len(body) and body[at] >> 5 == NEGATIVE:
        argument, at = _read_head(body, at, NEGATIVE, "bad timeout")
        if argument:
            raise Malformed("bad timeout", f"{-1 - argument} ms; -1 (no limit) and values from 0 are allowed")
        return -1, at
    return _read_head(body, at, UNSIGNED, "bad timeout")


def _read_flag(body: Frame, at: int) -> tuple[bool, int]:
    if at >= len(body) or at >= MAX_HEADER:
        raise _past_the_end(body, at + 1)
    if body[at] not in (FALSE, TRUE):
        raise Malformed("wrong field", f"{_KINDS[body[at] >> 5]} instead of true or false")
    return body[at] == TRUE, at + 1


def _read_string(body: Frame, at: int, major: int, reason: str) -> tuple[bytes, int]:
    length, begin = _read_head(body, at, major, reason)
    end = begin + length
    if end > len(body) or end > MAX_HEADER:
        raise _past_the_end(body, end)
    return bytes(body[begin:end]), end


def _read_head(body: Frame, at: int, major: int, reason: str) -> tuple[int, int]:
    """Return the value or length at the beginning of an item of this major type, and its end."""
    if at >= len(body) or at >= MAX_HEADER:
        raise _past_the_end(body, at + 1)
    info = body[at] - (major << 5)
    if not 0 <= info <= EIGHT_BYTES:
        raise Malformed(reason, f"{_kind_of(body[at])} instead of {_KINDS[major]}")
    if info < ONE_BYTE:
        return info, at + 1
    end = at + 1 + (1 << info - ONE_BYTE)
    if end > len(body) or end > MAX_HEADER:
        raise _past_the_end(body, end)
    return int.from_bytes(body[at + 1 : end], "big"), end


def _kind_of(first: int) -> str:
    if first & 0x1F > EIGHT_BYTES:
        return f"{_KINDS[first >> 5]} of indefinite or reserved length"
    return _KINDS[first >> 5]


def _past_the_end(body: Frame, end: int) -> Malformed:
    if end > MAX_HEADER:
        return Malformed("header too long", f"a header of at least {end} bytes; at most {MAX_HEADER} are allowed")
    return Malformed("truncated header", f"a header of at least {end} bytes in a message of {len(body)} bytes")


def _shown(name: bytes) -> str:
    longest = 4 * MAX_SHOWN  # a character has at most four bytes
    return repr(name[:longest].decode("utf-8", "replace"))[:MAX_SHOWN]


def _take_payload(body: Frame, begin: int) -> Frame:
    """Return the payload. Called last, because it changes a bytearray."""
    if isinstance(body, bytearray):
        del body[:begin]
        return body
    return body[begin:]


# -------------------------------------------------------------------- headers, to be sent before the payload


def write_ready(services: Iterable[str]) -> bytes:
    names = [_text(service) for service in services]
    return b"".join((_FOUR, b"\x01\x40", _head(ARRAY, len(names)), *names))


def write_job(id: bytes, service: str, timeout: int) -> bytes:
    if len(id) == 16:
        return _JOB_WITH_ID + id + _job_tail(service, timeout)
    return b"".join((_FIVE, b"\x02", _head(BYTES, len(id)), id, _job_tail(service, timeout)))


@lru_cache(maxsize=CACHE_SIZE)
def _job_tail(service: str, timeout: int) -> bytes:
    assert timeout >= -1, f"a time-out of {timeout} ms"
    return _text(service) + (_head(NEGATIVE, 0) if timeout < 0 else _head(UNSIGNED, timeout))


def write_result(id: bytes, is_leaving: bool = False) -> bytes:
    if is_leaving:
        return b"".join((_FOUR, b"\x03", _head(BYTES, len(id)), id, b"\xf5"))
    if not id:
        return _RESULT_WITHOUT_ID
    if len(id) == 16:
        return _RESULT_WITH_ID + id
    return b"".join((_THREE, b"\x03", _head(BYTES, len(id)), id))


def write_heartbeat(id: bytes) -> bytes:
    if len(id) == 16:
        return _HEARTBEAT_WITH_ID + id
    return b"".join((_THREE, b"\x04", _head(BYTES, len(id)), id))


def write_disconnect(id: bytes) -> bytes:
    return b"".join((_THREE, b"\x05", _head(BYTES, len(id)), id))


def _text(text: str) -> bytes:
    raw = text.encode()
    return _head(TEXT, len(raw)) + raw


def _head(major: int, value: int) -> bytes:
    """Encode a head in the shortest form."""
    if value < ONE_BYTE:
        return bytes((major << 5 | value,))
    for info, length in ((24, 1), (25, 2), (26, 4)):
        if value < 1 << 8 * length:
            return bytes((major << 5 | info,)) + value.to_bytes(length, "big")
    return bytes((major << 5 | EIGHT_BYTES,)) + value.to_bytes(8, "big")
