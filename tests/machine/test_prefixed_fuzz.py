"""I18 for length-prefixed messages: any bytes, cut anywhere, give the same messages or the same one failure.

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

from dragoman.carriers import length_prefix as carrier_module
from dragoman.carriers.carrier import TooLarge
from dragoman.carriers.length_prefix import LengthPrefix, LengthPrefixLimits
from dragoman.carriers.malformed import Malformed

TINY = LengthPrefixLimits(max_head=40, max_payload=120)
INPUTS = 20_000

Outcome = tuple[list[list[bytes]], str, bool, bool]


@pytest.fixture(scope="module", autouse=True)
def tiny_sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carrier_module, "LARGE_FRAME", 24)
        patch.setattr(carrier_module, "PASSED_THROUGH", 30)
        patch.setattr(carrier_module, "LargeFrame", TinyLarge)
        yield


class TinyLarge(carrier_module.LargeFrame):
    __slots__ = ()

    def __init__(self, size: int, shown: int) -> None:
        super().__init__(size, shown, 24, 40)


def extra_of(head: bytes) -> int:
    """The first byte counts them; nothing counts none, and 0xFF is no number."""
    if head[:1] == b"\xff":
        raise Malformed("bad count", "0xff is no number")
    return head[0] if head else 0


def run(stream: bytes, sizes: Iterator[int], use_gap: bool = False) -> Outcome:
    """Feed the whole stream in pieces of the given sizes, and return everything observable."""
    carrier = LengthPrefix(extra_of, limits=TINY)
    messages: list[list[bytes]] = []
    pos = 0
    while pos < len(stream):
        count = next(sizes)
        gap = carrier.gap
        if use_gap and gap is not None:
            piece = stream[pos : pos + min(count, len(gap))]
            gap[: len(piece)] = piece
            heard = carrier.fill(len(piece))
        else:
            piece = stream[pos : pos + count]
            heard = carrier.feed(piece)
        pos += len(piece)
        for message in heard:
            assert not isinstance(message, TooLarge)
            head, extra = message
            messages.append([bytes(head), bytes(extra)])
            assert type(head) is bytes
            assert not isinstance(extra, bytearray) or extra.append(0) is None  # no memoryview of it exists
        assert carrier.holding <= 40 + 8 + 120, f"holds {carrier.holding} bytes"
        assert carrier.gap is None or len(carrier.gap) > 0
    assert carrier.failure is None or isinstance(carrier.failure, Malformed)
    assert carrier.is_alone == (len(messages) == 1 and carrier.failure is None and not carrier.holding)
    return messages, str(carrier.failure or ""), bool(carrier.holding), carrier.is_alone


def naive(stream: bytes) -> tuple[list[list[bytes]], str]:
    """The same in a few lines, with the whole stream at hand: messages, and the reason of the end."""
    messages = []
    while len(stream) >= 8:
        size = int.from_bytes(stream[:8], "little")
        if size > TINY.max_head:
            return messages, "head too long"
        head, rest = stream[8 : 8 + size], stream[8 + size :]
        if len(head) < size:
            break
        if head[:1] == b"\xff":
            return messages, "bad count"
        count = sum(head[:1])
        if count > TINY.max_payload:
            return messages, "over max_payload"
        if len(rest) < count:
            break
        messages.append([head, rest[:count]])
        stream = rest[count:]
    return messages, ""


def assert_cuts_do_not_matter(stream: bytes, rng: random.Random) -> Outcome:
    whole = run(stream, repeat(len(stream)))
    assert (whole[0], whole[1].partition(":")[0]) == naive(stream), stream
    assert run(stream, repeat(1)) == whole, stream
    assert run(stream, cycle(rng.choices(range(1, 30), k=11))) == whole, stream
    assert run(stream, cycle(rng.choices(range(1, 12), k=11)), use_gap=True) == whole, stream
    assert run(stream, cycle(rng.choices(range(1, 90), k=11)), use_gap=True) == whole, stream
    return whole


def random_message(rng: random.Random) -> list[bytes]:
    extra = rng.randbytes(rng.choice((0, 0, 1, 5, 23, 24, 25, 30, 41, 60, 120, 121)))
    if not extra and rng.random() < 0.5:
        return [b"", b""]
    return [bytes([len(extra)]) + rng.randbytes(rng.choice((0, 1, 5, 39))), extra]


def random_conversation(rng: random.Random) -> bytes:
    carrier = LengthPrefix(extra_of)
    return b"".join(buffer for _ in range(rng.randint(1, 5)) for buffer in carrier.encode(random_message(rng)))


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
    """Messages with plausible lengths and counts that seldom match."""
    parts = []
    for _ in range(rng.randint(1, 8)):
        size = rng.choice(
            (0, 0, 1, 2, 3, 8, 24, 39, 40, 40 + (rng.random() < 0.2), 1 << 63, 256)[: rng.choice((10, 12))]
        )
        count = rng.choice((0, 0, 1, 3, 20, 24, 30, 100, 120, 120 + (rng.random() < 0.2), rng.randrange(256)))
        head = (bytes([count]) + rng.randbytes(39))[: min(size, 40)]
        extra = rng.randbytes(count if head else 0)
        parts.append(size.to_bytes(8, "little") + head + (extra if rng.random() < 0.95 else extra[:3]))
    return b"".join(parts)


@pytest.mark.parametrize("seed", range(4))
def test_a_valid_conversation_with_something_wrong_is_heard_alike_in_all_cuts(seed: int) -> None:
    rng = random.Random(f"mutated {seed}")
    for _ in range(INPUTS // 8):
        stream = mutate(random_conversation(rng), rng)
        assert_cuts_do_not_matter(stream[: rng.randint(0, 3 * len(stream))], rng)


@pytest.mark.parametrize("seed", range(4))
def test_noise_is_heard_alike_in_all_cuts(seed: int) -> None:
    rng = random.Random(f"noise {seed}")
    for _ in range(INPUTS // 8):
        assert_cuts_do_not_matter(noise(rng), rng)


def test_the_noise_reaches_every_kind_of_end() -> None:
    """Else the tests above would prove little."""
    rng = random.Random("reach")
    ends = [run(noise(rng), repeat(10_000)) for _ in range(2000)]
    assert {failure.partition(":")[0] for _, failure, _, _ in ends} == {
        "",
        "bad count",
        "head too long",
        "over max_payload",
    }
    sizes = {len(extra) for told, _, _, _ in ends for _, extra in told}
    assert sizes >= {0, 1, 24, 30, 120}
    assert {(is_holding, is_alone) for _, _, is_holding, is_alone in ends} == {
        (False, False),
        (False, True),
        (True, False),
    }


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.binary(max_size=300), st.integers(0, 1 << 32))
def test_any_bytes_give_the_same_end_in_all_cuts(stream: bytes, seed: int) -> None:
    rng = random.Random(seed)
    assert_cuts_do_not_matter(stream, rng)
    assert_cuts_do_not_matter(b"\x05" + bytes(7) + stream, rng)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.binary(max_size=39), st.binary(max_size=120)), max_size=5), st.integers(0, 1 << 32))
def test_what_we_encode_comes_back(pairs: list[tuple[bytes, bytes]], seed: int) -> None:
    carrier = LengthPrefix(extra_of)
    messages = [[bytes([len(extra)]) + more, extra] for more, extra in pairs]
    stream = b"".join(buffer for message in messages for buffer in carrier.encode(message))
    assert assert_cuts_do_not_matter(stream, random.Random(seed)) == (messages, "", False, len(messages) == 1)
