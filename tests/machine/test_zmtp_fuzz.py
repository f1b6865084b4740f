"""I18 for ZMTP: any bytes, cut anywhere, give the same messages or the same one failure, and never an exception.

The carrier's thresholds (64 KiB, 1 MiB) are tiny here, so that short inputs reach every step; limits are tiny, too.
Random inputs come from fixed seeds: a failure prints the input and can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, cycle, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.carriers import zmtp as carrier
from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.zmtp import Zmtp, encode
from dragoman.carriers.zmtp_commands import OUR_GREETING
from dragoman.carriers.zmtp_limits import ZmtpLimits

TINY = ZmtpLimits(
    max_payload=120, hard_cap=400, max_frames=6, max_identity=10, max_handshake=200, max_metadata=80, max_command=40
)
TINY_LARGE_FRAME = 24
TINY_MIB = 40
INPUTS = 20_000

Outcome = tuple[list[object], str, bytes, bool, bytes, str]


@pytest.fixture(scope="module", autouse=True)
def tiny_sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carrier, "LARGE_FRAME", TINY_LARGE_FRAME)
        patch.setattr(carrier, "MIB", TINY_MIB)
        patch.setattr(carrier, "PASSED_THROUGH", 30)
        yield


def greeting_and_ready(identity: bytes = b"me") -> bytes:
    peer = Zmtp("DEALER", identity)
    peer.feed(OUR_GREETING)
    return b"".join(peer.outgoing)


HANDSHAKE = greeting_and_ready()


def run(stream: bytes, sizes: Iterator[int], use_gap: bool = False) -> Outcome:
    """Feed the whole stream in pieces of the given sizes, and return everything observable."""
    zmtp = Zmtp("ROUTER", limits=TINY)
    messages: list[Message | TooLarge] = []
    pos = 0
    while pos < len(stream):
        count = next(sizes)
        if use_gap and zmtp.gap is not None:
            piece = stream[pos : pos + min(count, len(zmtp.gap))]
            zmtp.gap[: len(piece)] = piece
            messages += zmtp.fill(len(piece))
        else:
            piece = stream[pos : pos + count]
            messages += zmtp.feed(piece)
        pos += len(piece)
        held = len(zmtp._held) + len(zmtp._large) + sum(map(len, zmtp._frames))
        assert held <= TINY.max_payload + TINY.max_handshake, f"holds {held} bytes"
        assert zmtp.gap is None or len(zmtp.gap) > 0
    told: list[object] = [
        ("too large", [*map(bytes, m.frames)], m.size) if isinstance(m, TooLarge) else [*map(bytes, m)]
        for m in messages
    ]
    failure = "" if zmtp.failure is None else str(zmtp.failure)
    return told, failure, b"".join(zmtp.outgoing), zmtp.ready, zmtp.peer_identity, zmtp.peer_socket_type


def assert_cuts_do_not_matter(stream: bytes, rng: random.Random, uncut: int = 0) -> Outcome:
    """`uncut`: bytes of the beginning that come in one piece, which saves time where they are not tested."""
    first = [uncut] if uncut else []
    whole = run(stream, repeat(len(stream)))
    assert run(stream, chain(first, repeat(1))) == whole, stream
    assert run(stream, chain(first, cycle(rng.choices(range(1, 30), k=11)))) == whole, stream
    assert run(stream, chain(first, cycle(rng.choices(range(1, 12), k=11))), use_gap=True) == whole, stream
    return whole


def random_message(rng: random.Random) -> list[bytes]:
    sizes = rng.choices((0, 0, 1, 5, 20, 24, 30, 41, 60, 130, 260), k=rng.choice((1, 2, 2, 2, 3, 6)))
    return [rng.randbytes(size) for size in sizes]


def random_traffic(rng: random.Random) -> bytes:
    parts: list[bytes] = []
    for _ in range(rng.randint(0, 4)):
        if rng.random() < 0.2:
            sender = Zmtp("DEALER")
            sender.peer_version = (3, 1)
            parts.append(sender.ping(rng.randint(0, 9), rng.randbytes(rng.randint(0, 16))) or b"")
        else:
            parts += map(bytes, encode(random_message(rng)))
    return b"".join(parts)


def mutate(stream: bytes, rng: random.Random) -> bytes:
    pos = rng.randrange(len(stream))
    kind = rng.randrange(4)
    if kind == 0:
        return stream[:pos] + bytes([rng.randrange(256)]) + stream[pos + 1 :]
    if kind == 1:
        return stream[:pos] + bytes([stream[pos] ^ 1 << rng.randrange(8)]) + stream[pos + 1 :]
    if kind == 2:
        return stream[:pos] + rng.randbytes(rng.randint(1, 9)) + stream[pos:]
    return stream[:pos] + stream[pos + rng.randint(1, 9) :]


def noise(rng: random.Random) -> bytes:
    """Frames with plausible headers and lengths that seldom match."""
    parts = []
    for _ in range(rng.randint(1, 12)):
        flags = rng.choice((0, 0, 0, 1, 1, 1, 2, 3, 4, 6, rng.randrange(256)))
        size = rng.choice((0, 0, 1, 7, 24, 30, 50, 130, 255, 1 << 63 if flags & 2 else 9))
        head = bytes([flags]) + size.to_bytes(8 if flags & 2 else 1, "big")
        parts.append(head + rng.randbytes(min(size, 300) if rng.random() < 0.9 else 3))
    return b"".join(parts)


@pytest.mark.parametrize("seed", range(4))
def test_a_valid_conversation_with_something_wrong_is_heard_alike_in_all_cuts(seed: int) -> None:
    rng = random.Random(f"mutated {seed}")
    for _ in range(INPUTS // 8):
        assert_cuts_do_not_matter(mutate(HANDSHAKE + random_traffic(rng), rng), rng)


@pytest.mark.parametrize("seed", range(4))
def test_noise_after_the_handshake_is_heard_alike_in_all_cuts(seed: int) -> None:
    rng = random.Random(f"noise {seed}")
    for _ in range(INPUTS // 8):
        assert_cuts_do_not_matter(HANDSHAKE + noise(rng), rng, uncut=len(HANDSHAKE))


def test_every_single_byte_of_the_handshake_may_be_wrong() -> None:
    rng = random.Random("handshake")
    for pos in range(len(HANDSHAKE)):
        for value in (0, 1, 0x7F, 0xFF, HANDSHAKE[pos] ^ 1, HANDSHAKE[pos] ^ 0x20):
            stream = HANDSHAKE[:pos] + bytes([value]) + HANDSHAKE[pos + 1 :] + b"\x00\x01x"
            assert_cuts_do_not_matter(stream, rng)


def test_the_noise_reaches_every_kind_of_end() -> None:
    """Else the tests above would prove little."""
    rng = random.Random("reach")
    reasons = {run(HANDSHAKE + noise(rng), repeat(10_000))[1].partition(":")[0] for _ in range(3000)}
    assert "" in reasons
    assert reasons >= {"bad flags", "bad command", "command too large"}
    assert reasons >= {"over hard cap", "too many frames"}


@settings(derandomize=True, deadline=None, max_examples=500)
@given(st.binary(max_size=300), st.integers(0, 1 << 32))
def test_any_bytes_give_the_same_end_in_all_cuts(stream: bytes, seed: int) -> None:
    rng = random.Random(seed)
    assert_cuts_do_not_matter(stream, rng)
    assert_cuts_do_not_matter(HANDSHAKE + stream, rng)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(st.lists(st.lists(st.binary(max_size=150), min_size=1, max_size=6), max_size=5), st.integers(0, 1 << 32))
def test_arbitrary_frames_come_back_or_are_too_large(messages: list[list[bytes]], seed: int) -> None:
    """R16: exactly those over max_payload are too large."""
    kept = [message for message in messages if sum(map(len, message)) <= TINY.hard_cap]
    stream = HANDSHAKE + b"".join(b"".join(encode(message)) for message in kept)
    told, failure, *_ = assert_cuts_do_not_matter(stream, random.Random(seed), uncut=len(HANDSHAKE))
    assert failure == ""
    assert len(told) == len(kept)
    for message, heard in zip(kept, told, strict=True):
        if sum(map(len, message)) <= TINY.max_payload:
            assert heard == message
        else:
            assert isinstance(heard, tuple)
            assert heard == ("too large", message[: len(heard[1])], sum(map(len, message)))
