"""MemoDB headers written by hand, and ways to read them."""

from __future__ import annotations

import cbor2
import pytest

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.memodb import codec
from dragoman.dialects.memodb.messages import ParsedMessage

ID = bytes(range(16))
MEMO01 = bytes.fromhex("66 6d656d6f3031")
KIB_64 = 65_536
UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY = range(5)
MOST = 2**64 - 1
REASONS = {
    "not a memo01 header",
    "truncated header",
    "header too long",
    "wrong version",
    "unknown type",
    "missing field",
    "extra field",
    "wrong field",
    "bad service name",
    "bad service list",
    "bad timeout",
    "unwanted payload",
}


def header(*items: object) -> bytes:
    """Encode deterministically, with an independent library."""
    return cbor2.dumps(list(items), canonical=True)


def head(major: int, value: int, length: int) -> bytes:
    """Encode a head with its value in this many bytes; 0: in the first byte."""
    if length == 0:
        return bytes([major << 5 | value])
    return bytes([major << 5 | 24 + (1, 2, 4, 8).index(length)]) + value.to_bytes(length, "big")


def malformed(body: Frame) -> Malformed:
    with pytest.raises(Malformed) as caught:
        codec.read(body)
    assert caught.value.reason in REASONS
    assert caught.value.detail
    return caught.value


def outcome(body: Frame) -> ParsedMessage | tuple[str, str]:
    try:
        return codec.read(body)
    except Malformed as error:
        return error.reason, error.detail


def both_ways(body: bytes) -> ParsedMessage | tuple[str, str]:
    """Read as bytes, by the fast path where there is one, and as a bytearray, never by it."""
    careful = outcome(bytearray(body))
    assert outcome(body) == careful, body.hex()
    return careful
