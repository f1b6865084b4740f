"""Messages of a shard's log, and their encoding in MessagePack.

    claim     a broker becomes the owner; the sequence of this message is its *epoch*
    commit    batches of rows, or a fragment of them, with the owner's epoch and the next number of that epoch
    release   the owner gives the shard up; numbered like a commit

A batch is all or nothing. Batches that are ready together share a commit. A commit over the limit of a message is cut
into fragments, numbered one by one, and counts with its last one. Rows are not read here.

Times in rows are relative to the moment at which their batch was made. `ages` are the seconds that each batch waited
before this message was sent: that moment is the server's time of the message, minus the age. So no clock of a broker
is compared with another.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.records import UNREADABLE

VERSION: Final = 1
MOST_AGE: Final = 1e9  # seconds


class Claim(msgspec.Struct, array_like=True, frozen=True, tag="E"):
    """`nonce`: random, to recognize this claim. `identity`: of the cluster, made by `cluster init`."""

    version: int
    broker: str
    incarnation: str
    nonce: bytes
    release: str
    identity: str


class Commit(msgspec.Struct, array_like=True, frozen=True, tag="C"):
    """`body`: encoded batches, or a fragment of them. `ages`: of the batches that end in this message."""

    epoch: int
    number: int
    ages: list[float]
    is_last: bool
    body: bytes


class Release(msgspec.Struct, array_like=True, frozen=True, tag="R"):
    epoch: int
    number: int


LogRecord = Claim | Commit | Release

_encoder: Final = msgspec.msgpack.Encoder()
_record: Final = msgspec.msgpack.Decoder(LogRecord)
_batches: Final = msgspec.msgpack.Decoder(list[bytes])


def encode_record(record: LogRecord) -> bytes:
    return _encoder.encode(record)


def read_record(data: bytes | bytearray) -> LogRecord:
    """Raises Malformed."""
    try:
        record: LogRecord = _record.decode(data)
    except UNREADABLE as error:
        raise Malformed("bad log record", str(error)) from None
    if isinstance(record, Commit) and not all(0.0 <= age < MOST_AGE for age in record.ages):
        raise Malformed("bad log record", "an age is not a number of seconds")
    if isinstance(record, Claim) and record.version != VERSION:
        raise Malformed("other version", f"a log of version {record.version}; this release reads {VERSION}; update it")
    return record


def encode_batches(batches: list[bytes]) -> bytes:
    return _encoder.encode(batches)


def read_batches(body: bytes) -> list[bytes]:
    """Raises Malformed."""
    try:
        return _batches.decode(body)
    except UNREADABLE as error:
        raise Malformed("bad log record", str(error)) from None
