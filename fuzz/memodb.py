"""Fuzz target: messages of MemoDB. Another CBOR library must agree with each result.

An accepted message means the same to the other library. A rejected one is not a message that the other library finds
valid and deterministically encoded.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final

import cbor2

from dragoman.carriers.malformed import Malformed
from dragoman.core.names import is_name
from dragoman.dialects.memodb import codec
from dragoman.dialects.memodb.messages import Disconnect, Heartbeat, Job, ParsedMessage, Ready, Result

# The limits of the protocol, not those of the codec: a change of the codec must be noticed.
MAX_HEADER: Final = 65_536
MAX_SERVICES: Final = 64
MAX_NAME_BYTES: Final = 128
MAX_TIMEOUT: Final = 2**64


def test_one_input(data: bytes) -> None:
    checked(data)


def checked(data: bytes) -> str:
    """Decode bytes both ways and compare with the other library. Returns the kind of message, or the reason why they
    are malformed."""
    copy = bytearray(data)
    parsed, again = result(data), result(copy)
    item, end = decoded(data)
    if isinstance(parsed, Malformed):
        assert str(again) == str(parsed), data.hex()
        assert copy == data, data.hex()
        if 0 < end <= MAX_HEADER and meaning(item, len(data) - end) is not None:
            assert cbor2.dumps(item, canonical=True) != data[:end], f"{parsed}, but valid: {data.hex()}"
        return parsed.reason
    assert again == parsed, data.hex()
    payload = parsed.payload if isinstance(parsed, Job | Result) else b""
    assert data[end:] == payload, data.hex()
    assert meaning(item, len(payload)) == items_of(parsed), data.hex()
    kind = type(parsed).__name__
    assert codec.read(encoded(parsed)) == parsed, data.hex()
    return kind


def result(body: bytes | bytearray) -> ParsedMessage | Malformed:
    try:
        return codec.read(body)
    except Malformed as error:
        return error


def decoded(body: bytes) -> tuple[object, int]:
    """Return the first item of the other library, and its end; (None, 0) if there is none."""
    stream = BytesIO(body)
    try:
        item = cbor2.CBORDecoder(stream).decode()
    except Exception:  # of any kind: only this codec's errors are tested
        return None, 0
    return item, stream.tell()


def items_of(parsed: ParsedMessage) -> list[object]:
    """Return the items of a header after the version; a flag is always present."""
    match parsed:
        case Ready():
            return [1, parsed.id, list(parsed.services)]
        case Job():
            return [2, parsed.id, parsed.service, parsed.timeout]
        case Result():
            return [3, parsed.id, parsed.is_leaving]
        case Heartbeat():
            return [4, parsed.id]
        case Disconnect():
            return [5, parsed.id]


def encoded(parsed: ParsedMessage) -> bytes:
    match parsed:
        case Ready():  # a worker's READY has no id
            parsed.id = b""
            return codec.write_ready(parsed.services)
        case Job():
            return codec.write_job(parsed.id, parsed.service, parsed.timeout) + parsed.payload
        case Result():
            return codec.write_result(parsed.id, parsed.is_leaving) + parsed.payload
        case Heartbeat():
            return codec.write_heartbeat(parsed.id)
        case Disconnect():
            return codec.write_disconnect(parsed.id)


def meaning(item: object, rest: int) -> list[object] | None:
    """Return a header of the other library in the form of `items_of`; None if no message has it with such a payload."""
    if not isinstance(item, list) or len(item) < 3 or item[0] != "memo01":
        return None
    _, kind, id, *fields = item
    if type(kind) is not int or type(id) is not bytes:
        return None
    match kind, fields:
        case 1, [list() as names] if rest == 0 and 0 < len(names) <= MAX_SERVICES and all(map(is_service, names)):
            return [1, id, list(dict.fromkeys(names))]
        case 2, [name, timeout] if is_service(name) and type(timeout) is int and -1 <= timeout < MAX_TIMEOUT:
            return [2, id, name, timeout]
        case 3, []:
            return [3, id, False]
        case 3, [bool() as flag]:
            return [3, id, flag]
        case ((4 | 5), []) if rest == 0:
            return [kind, id]
    return None


def is_service(name: object) -> bool:
    return isinstance(name, str) and is_name(name, MAX_NAME_BYTES)
