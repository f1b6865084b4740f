"""I18 for SP: any bytes, cut anywhere, give the same messages or the same one failure, and never an exception.

The carrier's thresholds (64 KiB, 1 MiB) are tiny here, so that short inputs reach every step; limits are tiny, too.
Random inputs come from fixed seeds: a failure prints the input and can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.carriers import sp as carrier
from dragoman.carriers.carrier import TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.sp import Sp, SpLimits

TINY = SpLimits(max_payload=120, max_header=20, max_words=3)
MOST = 120 + 20 + 4 * 3
INPUTS = 20_000
GREETING = b"\0SP\0\0\x30\0\0"

Outcome = tuple[list[list[bytes]], str, bool, int]


@pytest.fixture(scope="module", autouse=True)
def tiny_sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carrier, "LARGE_FRAME", 24)
        patch.setattr(carrier, "ROOM", 40)
        patch.setattr(carrier, "PASSED_THROUGH", 30)
        yield


def run(stream: bytes, ipc: bool, sizes: Iterator[int], use_gap: bool = False) -> Outcome:
    """Feed the whole stream in pieces of the given sizes, and return everything observable."""
    sp = Sp("REP", ipc=ipc, limits=TINY)
    messages: list[list[bytes]] = []
    pos = 0
    while pos < len(stream):
        count = next(sizes)
        gap = sp.gap
        if use_gap and gap is not None:
            piece = stream[pos : pos + min(count, len(gap))]
            gap[: len(piece)] = piece
            heard = sp.fill(len(piece))
        else:
            piece = stream[pos : pos + count]
            heard = sp.feed(piece)
        pos += len(piece)
        for message in heard:
            assert not isinstance(message, TooLarge)
            route, body = message
            messages.append([bytes(route), bytes(body)])
            assert type(route) is bytes
            assert not isinstance(body, bytearray) or body.append(0) is None  # no memoryview of it exists
        assert sp.holding <= MOST + 9, f"holds {sp.holding} bytes"
        assert sp.gap is None or len(sp.gap) > 0
    assert sp.failure is None or isinstance(sp.failure, Malformed)
    return messages, str(sp.failure or ""), sp.ready, bool(sp.holding)


def assert_cuts_do_not_matter(stream: bytes, ipc: bool, rng: random.Random) -> Outcome:
    whole = run(stream, ipc, repeat(len(stream)))
    assert run(stream, ipc, repeat(1)) == whole, stream
    assert run(stream, ipc, cycle(rng.choices(range(1, 30), k=11))) == whole, stream
    assert run(stream, ipc, cycle(rng.choices(range(1, 12), k=11)), use_gap=True) == whole, stream
    assert run(stream, ipc, cycle(rng.choices(range(1, 90), k=11)), use_gap=True) == whole, stream
    return whole


def random_message(rng: random.Random) -> list[bytes]:
    """Mostly a route and two frames; sometimes too many route entries, none, or too many bytes."""
    hops = b"".join(rng.randrange(1 << 31).to_bytes(4, "big") for _ in range(rng.choice((0, 0, 0, 1, 2, 2, 3))))
    route = hops + (rng.randrange(1 << 31) | 1 << 31).to_bytes(4, "big")
    sizes = rng.choices((0, 0, 1, 5, 20, 24, 30, 41, 60), k=2)
    return [route[: rng.choice((4, 99, 99, 99))], *map(rng.randbytes, sizes)]


def random_conversation(ipc: bool, rng: random.Random) -> bytes:
    responder = Sp("REQ", ipc=ipc)
    buffers = [buffer for _ in range(rng.randint(0, 4)) for buffer in responder.encode(random_message(rng))]
    return responder.outgoing[0] + b"".join(buffers)


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


def noise(ipc: bool, rng: random.Random) -> bytes:
    """Messages with plausible lengths that seldom match."""
    parts = []
    for _ in range(rng.randint(1, 8)):
        size = rng.choice((0, 0, 1, 3, 4, 5, 12, 16, 24, 30, 50, 130, MOST, MOST + (rng.random() < 0.2), 1 << 63))
        kind = rng.choice((b"\x01",) * 9 + (rng.randbytes(1),)) if ipc else b""
        parts.append(kind + size.to_bytes(8, "big") + rng.randbytes(min(size, 300) if rng.random() < 0.9 else 3))
    return b"".join(parts)


@pytest.mark.parametrize("ipc", [False, True], ids=["tcp", "ipc"])
@pytest.mark.parametrize("seed", range(2))
def test_a_valid_conversation_with_something_wrong_is_heard_alike_in_all_cuts(seed: int, ipc: bool) -> None:
    rng = random.Random(f"mutated {seed}")
    for _ in range(INPUTS // 8):
        stream = mutate(random_conversation(ipc, rng), rng)
        assert_cuts_do_not_matter(stream[: rng.randint(0, 3 * len(stream))], ipc, rng)


@pytest.mark.parametrize("ipc", [False, True], ids=["tcp", "ipc"])
@pytest.mark.parametrize("seed", range(2))
def test_noise_after_the_greeting_is_heard_alike_in_all_cuts(seed: int, ipc: bool) -> None:
    rng = random.Random(f"noise {seed}")
    for _ in range(INPUTS // 8):
        begin = GREETING if rng.random() < 0.9 else GREETING[: rng.randint(0, 7)]
        assert_cuts_do_not_matter(begin + noise(ipc, rng), ipc, rng)


def test_every_single_byte_of_the_greeting_may_be_anything() -> None:
    rng = random.Random("greeting")
    for pos in range(len(GREETING)):
        for value in range(256):
            stream = GREETING[:pos] + bytes([value]) + GREETING[pos + 1 :] + (5).to_bytes(8, "big") + b"\x80\0\0\1x"
            told, failure, is_ready, _ = assert_cuts_do_not_matter(stream, False, rng)
            assert is_ready == (value == GREETING[pos]) == (not failure)
            assert told == ([[b"\x80\0\0\1", b"x"]] if is_ready else [])


def test_the_noise_reaches_every_kind_of_end() -> None:
    """Else the tests above would prove little."""
    rng = random.Random("reach")
    ends = [run(GREETING + noise(True, rng), True, repeat(10_000)) for _ in range(2000)]
    assert {failure.partition(":")[0] for _, failure, _, _ in ends} == {"", "bad ipc message type", "over max_payload"}
    routes = {len(route) for told, _, _, _ in ends for route, _ in told}
    assert routes == {0, 4, 8, 12}


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.binary(max_size=300), st.booleans(), st.integers(0, 1 << 32))
def test_any_bytes_give_the_same_end_in_all_cuts(stream: bytes, ipc: bool, seed: int) -> None:
    rng = random.Random(seed)
    assert_cuts_do_not_matter(stream, ipc, rng)
    assert_cuts_do_not_matter(GREETING + stream, ipc, rng)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.binary(max_size=50), max_size=3)), max_size=5),
    st.booleans(),
    st.integers(0, 1 << 32),
)
def test_what_we_encode_comes_back(messages: list[tuple[int, list[bytes]]], ipc: bool, seed: int) -> None:
    rng = random.Random(seed)
    responder = Sp("REQ", ipc=ipc)
    stream, expected = GREETING, []
    for hops, frames in messages:
        route = bytes(4) * hops + (rng.randrange(1 << 31) | 1 << 31).to_bytes(4, "big")
        if len(route) + sum(map(len, frames)) <= MOST:
            stream += b"".join(responder.encode([route, *frames]))
            expected.append([route, b"".join(frames)])
    assert assert_cuts_do_not_matter(stream, ipc, rng) == (expected, "", True, False)
