"""Reads a stream of bytes in several cuts, and checks that the result is the same (I18)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, cycle
from types import ModuleType
from zlib import crc32

from dragoman.carriers.carrier import Carrier, Message, TooLarge


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that can be observed of a carrier after it has read a stream."""

    messages: list[Message | tuple[Message, int]]
    failure: str
    outgoing: bytes
    ready: bool
    peer: dict[str, object]

    @property
    def whole_messages(self) -> list[Message]:
        """The messages that were not too large."""
        return [each for each in self.messages if isinstance(each, list)]


def seen_in_all_cuts(make: Callable[[], Carrier], stream: bytes, most: int, *, uncut: int = 0) -> Seen:
    """Read a stream at once, byte by byte and in pieces; one of them by `feed` alone, the other with `fill`.

    A carrier of `make` is new each time. `most`: bytes that it may hold. `uncut`: bytes at the beginning that come in
    one piece, which saves time where their cuts are not tested.
    """
    whole = read(make(), stream, [len(stream)], most)
    seed = crc32(stream)
    pieces = random.Random(seed).choices(range(1, 40), k=11)
    for sizes, uses_gap in (([1], bool(seed & 1)), (pieces, not seed & 1)):
        seen = read(make(), stream, sizes, most, uses_gap=uses_gap, uncut=uncut)
        assert seen == whole, f"cut into {sizes}, with the gap: {uses_gap}: {seen}; at once: {whole}"
    return whole


def read(
    carrier: Carrier, stream: bytes, sizes: Sequence[int], most: int, *, uses_gap: bool = False, uncut: int = 0
) -> Seen:
    """Read a stream in pieces of these sizes, again and again, after `uncut` bytes in one piece."""
    messages: list[Message | tuple[Message, int]] = []
    pos = 0
    for size in chain([uncut] if uncut else [], cycle(sizes)):
        if pos >= len(stream):
            break
        gap = carrier.gap
        if uses_gap and gap is not None:
            piece = stream[pos : pos + min(size, len(gap))]
            gap[: len(piece)] = piece
            came = carrier.fill(len(piece))
        else:
            piece = stream[pos : pos + size]
            came = carrier.feed(piece)
        pos += len(piece)
        messages += [_copied(each) for each in came]
        assert carrier.holding <= most, f"{carrier.holding} bytes are held; {most} are allowed"
        assert carrier.gap is None or len(carrier.gap) > 0
        assert carrier.failure is None or not carrier.holding
    facts = ("peer_identity", "peer_socket_type", "peer_version", "peer_key", "peer_token", "is_alone")
    peer = {each: getattr(carrier, each, None) for each in facts}
    return Seen(messages, str(carrier.failure or ""), b"".join(carrier.outgoing), carrier.ready, peer)


def _copied(message: Message | TooLarge) -> Message | tuple[Message, int]:
    if isinstance(message, TooLarge):
        return [bytes(each) for each in message.frames], message.size
    return [bytes(each) for each in message]


@contextmanager
def small_sizes(*modules: ModuleType, **sizes: object) -> Iterator[None]:
    """Replace constants of modules, so that short inputs reach every step of a carrier."""
    before = [(module, name, getattr(module, name)) for module in modules for name in sizes if hasattr(module, name)]
    for module, name, _ in before:
        setattr(module, name, sizes[name])
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
