"""The payload of a job whose input is the results of its predecessors.

It is CBOR (RFC 8949), which most languages have a library for: tag 55799, and in it an array of two.

1. A byte string: the payload that was submitted with the job.
2. An array with one entry for each predecessor, in the order in which the job names them. The entry of a job is its
   result as a byte string, or null if the job is not done. The entry of a group is an array of such entries, in the
   order of its members.

The broker looks at no byte of a payload or result: it only adds lengths.
"""

from __future__ import annotations

from typing import Final

from dragoman.core.parts import Payload

PREFIX: Final = b"\xd9\xd9\xf7\x82"  # tag 55799, then an array of two
BYTES: Final = 2  # CBOR's major types
ARRAY: Final = 4
NULL: Final = b"\xf6"
MOST_HEAD: Final = 9  # bytes of the head of a value
SHORT: Final = 24  # numbers below this are in the first byte

Result = Payload | None  # None: the job is not done
Entry = Result | list[Result]


def pack_results(payload: Payload, entries: list[Entry]) -> bytes:
    pieces: list[Payload] = [PREFIX, _head(BYTES, len(payload)), payload, _head(ARRAY, len(entries))]
    for entry in entries:
        if isinstance(entry, list):
            pieces.append(_head(ARRAY, len(entry)))
            for each in entry:
                _add(pieces, each)
        else:
            _add(pieces, entry)
    return b"".join(pieces)


def most_packed_bytes(payload: Payload, entries: list[Entry]) -> int:
    """Return a number of bytes that the packed payload does not exceed."""
    size = len(PREFIX) + 2 * MOST_HEAD + len(payload)
    for entry in entries:
        for each in entry if isinstance(entry, list) else [entry]:
            size += MOST_HEAD + (0 if each is None else len(each))
        size += MOST_HEAD
    return size


def is_packed(payload: Payload) -> bool:
    """True for a payload with results. No payload of a task begins like one: it is an object of names and values."""
    return payload[: len(PREFIX)] == PREFIX


def unpack_results(payload: Payload) -> tuple[bytes, list[Entry]]:
    """Return the submitted payload and the entries of the predecessors. Raises ValueError for any other payload."""
    if not is_packed(payload):
        raise ValueError("the payload has no results: it begins otherwise")
    reader = _Reader(bytes(payload), len(PREFIX))
    submitted = reader.result()
    if submitted is None:
        raise ValueError("the payload has null in place of the submitted payload")
    entries: list[Entry] = [reader.entry() for _ in range(reader.count())]
    if reader.at != len(payload):
        raise ValueError(f"the payload has {len(payload) - reader.at} bytes behind its results")
    return submitted, entries


def _add(pieces: list[Payload], result: Result) -> None:
    if result is None:
        pieces.append(NULL)
    else:
        pieces.append(_head(BYTES, len(result)))
        pieces.append(result)


def _head(kind: int, number: int) -> bytes:
    if number < SHORT:
        return bytes((kind << 5 | number,))
    for length_code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * size:
            return bytes((kind << 5 | length_code,)) + number.to_bytes(size, "big")
    raise AssertionError("a length of more than 64 bits")


class _Reader:
    """Reads the values of a payload from front to back."""

    def __init__(self, payload: bytes, at: int) -> None:
        self._payload = payload
        self.at = at

    def entry(self) -> Entry:
        if self._kind() == ARRAY:
            return [self.result() for _ in range(self.count())]
        return self.result()

    def result(self) -> bytes | None:
        if self._payload[self.at : self.at + 1] == NULL:
            self.at += 1
            return None
        size = self._number(BYTES)
        if size > len(self._payload) - self.at:
            raise ValueError("the payload ends within a result")
        self.at += size
        return self._payload[self.at - size : self.at]

    def count(self) -> int:
        count = self._number(ARRAY)
        if count > len(self._payload) - self.at:
            raise ValueError("the payload has fewer results than it announces")
        return count

    def _kind(self) -> int:
        if self.at >= len(self._payload):
            raise ValueError("the payload ends before its results")
        return self._payload[self.at] >> 5

    def _number(self, kind: int) -> int:
        if self._kind() != kind:
            raise ValueError(f"the payload has a value of another type at byte {self.at}")
        first = self._payload[self.at] & 0x1F
        self.at += 1
        if first < SHORT:
            return first
        size = {24: 1, 25: 2, 26: 4, 27: 8}.get(first, 0)
        if not size or len(self._payload) - self.at < size:
            raise ValueError(f"the payload has an invalid length at byte {self.at - 1}")
        self.at += size
        return int.from_bytes(self._payload[self.at - size : self.at], "big")
