"""Ways to cut a stream of bytes for a carrier, and the reason of its failure."""

from __future__ import annotations

import random
from collections.abc import Iterator

from dragoman.carriers.carrier import Carrier, Message, TooLarge

KIB = 1024
MIB = 1024 * KIB


def reason_of(carrier: Carrier) -> str:
    assert carrier.failure is not None, "a failure was expected"
    assert carrier.failure.detail
    assert str(carrier.failure).startswith(carrier.failure.reason)
    return carrier.failure.reason


def pieces_of(stream: bytes, size: int) -> Iterator[bytes]:
    for pos in range(0, len(stream), size):
        yield stream[pos : pos + size]


def random_pieces(stream: bytes, rng: random.Random) -> Iterator[bytes]:
    pos = 0
    while pos < len(stream):
        size = rng.choice((1, 2, 3, 9, 64, 1000, 70_000))
        yield stream[pos : pos + size]
        pos += size


def feed_all(carrier: Carrier, pieces: Iterator[bytes]) -> list[Message | TooLarge]:
    return [message for piece in pieces for message in carrier.feed(piece)]


def read_into_gap(carrier: Carrier, stream: bytes, size: int) -> list[Message | TooLarge]:
    """Read as a stream does: into the gap while there is one, else into a buffer that is fed."""
    messages: list[Message | TooLarge] = []
    pos = 0
    while pos < len(stream):
        gap = carrier.gap
        if gap is None:
            messages += carrier.feed(stream[pos : pos + size])
            pos += size
        else:
            count = min(size, len(gap), len(stream) - pos)
            gap[:count] = stream[pos : pos + count]
            messages += carrier.fill(count)
            pos += count
    return messages
