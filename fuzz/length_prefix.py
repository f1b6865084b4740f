"""Fuzz target: messages with a length prefix. The first byte of a head is the number of its extra bytes."""

from __future__ import annotations

from typing import Final

from dragoman.carriers import length_prefix
from dragoman.carriers.large_frame import LargeFrame
from dragoman.carriers.length_prefix import LENGTH_SIZE, LengthPrefix, LengthPrefixLimits
from dragoman.carriers.malformed import Malformed
from fuzz.cuts import read, seen_in_all_cuts, small_sizes

LIMITS: Final = LengthPrefixLimits(max_head=40, max_payload=120)
MOST: Final = LENGTH_SIZE + LIMITS.max_head + LIMITS.max_payload
NO_NUMBER: Final = 0xFF


class SmallLargeFrame(LargeFrame):
    """A large frame whose buffer is small at first."""

    __slots__ = ()

    def __init__(self, size: int, shown: int) -> None:
        super().__init__(size, shown, 24, 40)


def extra_of(head: bytes) -> int:
    if head[:1] == bytes((NO_NUMBER,)):
        raise Malformed("bad count", "the head has no number of extra bytes")
    return head[0] if head else 0


def test_one_input(data: bytes) -> None:
    def new(single: bool = False) -> LengthPrefix:
        return LengthPrefix(extra_of, single=single, refusal=b"refused", limits=LIMITS)

    with small_sizes(length_prefix, LARGE_FRAME=24, PASSED_THROUGH=30, LargeFrame=SmallLargeFrame):
        seen = seen_in_all_cuts(new, data, MOST)
        stream = b"".join(b"".join(new().encode(each)) for each in seen.whole_messages)
        assert read(new(), stream, [len(stream)], MOST).messages == seen.whole_messages
        for size in (1, 1 + len(data)):  # the cut decides whether a single message is returned before others follow it
            assert len(read(new(single=True), data, [size], MOST).messages) <= 1
    for head, extra in seen.whole_messages:
        assert len(extra) == extra_of(bytes(head))
    assert seen.outgoing == (b"".join(map(bytes, new().encode([b"refused"]))) if seen.failure else b"")
