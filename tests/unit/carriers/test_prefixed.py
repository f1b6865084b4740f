"""Messages with a length prefix, cut anywhere (I18), and violations of the limits.

The dialect here writes the number of extra bytes in decimal at the beginning of a head, before a colon.
"""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from cut_streams import KIB, MIB, feed_all, pieces_of, random_pieces, read_into_gap, reason_of

from dragoman.carriers.carrier import Carrier, Frame, Message, TooLarge
from dragoman.carriers.length_prefix import LengthPrefix, LengthPrefixLimits
from dragoman.carriers.malformed import Malformed


def extra_of(head: bytes) -> int:
    count, colon, _ = head.partition(b":")
    if not colon:
        return 0
    if not count.isdigit():
        raise Malformed("bad count", f"{len(count)} bytes that are no number")
    return int(count)


def counted(extra: bytes, more: bytes = b"") -> bytes:
    """Return a head that announces these extra bytes."""
    return b"%d:" % len(extra) + more


def length(size: int) -> bytes:
    return size.to_bytes(8, "little")


def wire(*messages: list[bytes]) -> bytes:
    return b"".join(length(len(head)) + head + extra for head, extra in messages)


def new(limits: LengthPrefixLimits | None = None) -> LengthPrefix:
    return LengthPrefix(extra_of, limits=limits or LengthPrefixLimits())


# ---- before a byte has come


def test_it_is_ready_at_once_and_has_nothing_to_say() -> None:
    carrier: Carrier = new()
    assert carrier.ready
    assert carrier.ping() is None
    assert (carrier.outgoing, carrier.failure, carrier.gap, carrier.holding) == ([], None, None, 0)
    assert carrier.peer_identity == b""


def test_a_connection_costs_little() -> None:
    carrier = new()
    assert not hasattr(carrier, "__dict__")
    assert sys.getsizeof(carrier) < 200


def test_mistakes_of_our_own_are_value_errors() -> None:
    for wrong in ({"max_head": 0}, {"max_payload": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            LengthPrefixLimits(**wrong)


# ---- messages


def test_the_length_is_little_endian_and_of_the_head_only() -> None:
    assert new().feed(b"\x05\0\0\0\0\0\0\0" + b"3:abc" + b"xyz") == [[b"3:abc", b"xyz"]]


def test_eight_bytes_of_zero_are_a_whole_message() -> None:
    carrier = new()
    assert feed_all(carrier, pieces_of(bytes(7), 1)) == []
    assert carrier.holding == 7
    assert carrier.feed(b"\0") == [[b"", b""]]
    assert carrier.holding == 0


def test_an_empty_head_can_count_extra_bytes_if_the_dialect_says_so() -> None:
    assert LengthPrefix(lambda head: 2).feed(bytes(8) + b"xy" + bytes(9)) == [[b"", b"xy"]]


SIZES = [0, 1, 100, 16 * KIB, 65_535, 65_536, 65_540, 200_000, MIB]
VARIED: list[list[bytes]] = [
    *([counted(extra := bytes([size % 251]) * size, b"h" * (size % 77)), extra] for size in SIZES),
    [b"", b""],
    [b"x" * 64 * KIB, b""],
    [b"4:" + b"y" * (64 * KIB - 2), b"tail"],
]
CUTS: dict[str, Callable[[LengthPrefix, bytes], list[Message | TooLarge]]] = {
    "whole": lambda carrier, stream: carrier.feed(stream),
    "by 1 KiB": lambda carrier, stream: feed_all(carrier, pieces_of(stream, KIB)),
    "by 64 KiB": lambda carrier, stream: feed_all(carrier, pieces_of(stream, 64 * KIB)),
    "at random": lambda carrier, stream: feed_all(carrier, random_pieces(stream, random.Random(7))),
    "gap by 1000": lambda carrier, stream: read_into_gap(carrier, stream, 1000),
    "gap by 64 KiB": lambda carrier, stream: read_into_gap(carrier, stream, 64 * KIB),
    "gap by MiB": lambda carrier, stream: read_into_gap(carrier, stream, MIB),
}


@pytest.mark.parametrize("cut", CUTS)
def test_messages_of_all_sizes_come_out_alike_however_they_are_cut(cut: str) -> None:
    """I18."""
    carrier = new()
    messages = CUTS[cut](carrier, wire(*VARIED))
    assert messages == VARIED
    assert {type(message[0]) for message in messages if isinstance(message, list)} == {bytes}
    assert (carrier.failure, carrier.gap, carrier.holding) == (None, None, 0)


def test_a_short_stream_cut_at_every_byte_comes_out_alike() -> None:
    """I18: once in two, at every place, and once into single bytes."""
    expected = [[b"3:", b"one"], [b"", b""], [b"head", b""], [b"20:h", b"x" * 20], [b"", b""]]
    stream = wire(*expected)
    for cut in range(len(stream) + 1):
        carrier = new()
        assert [*carrier.feed(stream[:cut]), *carrier.feed(stream[cut:])] == expected, cut
    assert feed_all(new(), pieces_of(stream, 1)) == expected


def test_messages_fed_byte_by_byte_come_out_alike() -> None:
    """I18. 60 KiB and many extra bytes are among them, so work that grows with the square would be felt here."""
    messages = [[b"x" * 60 * KIB, b""], [b"60000:", b"y" * 60_000], [b"70000:", b"z" * 70_000], [b"end", b""]]
    assert feed_all(new(), pieces_of(wire(*messages), 1)) == messages


@pytest.mark.parametrize("tail", [1, 7, 8, 9, 11, 12, 13, 50])
def test_a_tail_waits_for_its_rest(tail: int) -> None:
    first, second = wire([b"first", b""]), wire([b"100:", b"s" * 100])
    carrier = new()
    assert carrier.feed(first + second[:tail]) == [[b"first", b""]]
    assert carrier.holding == (tail if tail < 12 else tail - 8)  # a head that was read needs no length any more
    assert carrier.feed(b"") == []
    assert carrier.feed(second[tail:]) == [[b"100:", b"s" * 100]]
    assert carrier.holding == 0


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("size", [0, 10, 70_000])
def test_the_count_is_asked_for_once_a_message(cut: str, size: int) -> None:
    asked: list[bytes] = []

    def ask(head: bytes) -> int:
        asked.append(head)
        return size

    stream = wire([b"one", b"x" * size], [b"two", b"y" * size])
    CUTS[cut](LengthPrefix(ask), stream)
    assert asked == [b"one", b"two"]


# ---- one message only


def test_a_message_is_alone_if_nothing_has_come_behind_it() -> None:
    """R81."""
    carrier = new()
    assert not carrier.is_alone
    carrier.feed(length(4) + b"3:")
    assert not carrier.is_alone
    carrier.feed(b"ab" + b"xyz")
    assert carrier.is_alone


@pytest.mark.parametrize(
    "behind",
    [b"\0", bytes(7), bytes(8), bytes(9), b"\xff" * 8, length(3) + b"x:x", wire([b"70000:", bytes(70_000)])[:-1]],
    ids=["1 byte", "7 bytes", "a message", "a message and 1 byte", "a wrong length", "a wrong head", "a large one"],
)
@pytest.mark.parametrize("first", [[b"head", b""], [b"3:", b"xyz"]])
def test_a_message_is_not_alone_whatever_came_with_it(first: list[bytes], behind: bytes) -> None:
    """R81: a broker side that receives the first message can see it, also if all of it has been parsed."""
    carrier = new()
    assert carrier.feed(wire(first) + behind)[0] == first
    assert not carrier.is_alone


def test_a_large_message_is_alone_too() -> None:
    stream = wire([b"70000:", bytes(70_000)])
    filled, fed = new(), new()
    read_into_gap(filled, stream, 1000)
    feed_all(fed, pieces_of(stream, 1000))
    assert (filled.is_alone, fed.is_alone) == (True, True)
    filled.feed(b"x")
    fed.feed(stream)
    assert (filled.is_alone, fed.is_alone) == (False, False)


# ---- many extra bytes


def test_a_gap_opens_for_many_extra_bytes_and_closes_when_it_is_full() -> None:
    stream = wire([b"100000:", b"x" * 100_000])
    carrier = new()
    assert carrier.feed(stream[:50_000]) == []
    assert carrier.gap is not None
    rest = stream[50_000:]
    assert len(carrier.gap) == len(rest)
    carrier.gap[:] = rest
    assert carrier.fill(len(rest)) == [[b"100000:", b"x" * 100_000]]
    assert (carrier.gap, carrier.holding) == (None, 0)


def test_feeding_while_a_gap_is_open_goes_into_the_gap_and_beyond() -> None:
    stream = wire([b"100000:", b"x" * 100_000], [b"next", b""])
    carrier = new()
    carrier.feed(stream[:50_000])
    assert carrier.feed(stream[50_000:]) == [[b"100000:", b"x" * 100_000], [b"next", b""]]


@pytest.mark.parametrize("size", [70_000, MIB, 6 * MIB])
def test_nobody_has_a_view_of_extra_bytes_that_were_read_into_the_gap(size: int) -> None:
    """A stream still has the gap in its hand while `fill` runs; a bytearray with a view on it cannot be resized."""
    extra = random.Random(1).randbytes(size)
    stream = wire([counted(extra), extra])
    carrier = new()
    pos = 100
    messages = carrier.feed(stream[:pos])
    views = []
    while (gap := carrier.gap) is not None:
        views.append(gap)
        count = min(len(gap), 256 * KIB)
        gap[:count] = stream[pos : pos + count]
        pos += count
        messages += carrier.fill(count)
    assert messages == [[counted(extra), extra]]
    assert_free(messages[0])
    for view in views:
        with pytest.raises(ValueError, match="released"):
            len(view)


@pytest.mark.parametrize("size", [100, 30_000, 64 * KIB, MIB])
def test_nobody_has_a_view_of_extra_bytes_that_were_fed(size: int) -> None:
    extra = bytes(2 * MIB)
    (message,) = feed_all(new(), pieces_of(wire([counted(extra), extra]), size))
    assert_free(message)


def assert_free(message: Message | TooLarge) -> None:
    """Check that the owner can change the buffer's size."""
    assert isinstance(message, list)
    extra = message[1]
    assert isinstance(extra, bytearray)
    size = len(extra)
    extra.append(1)
    assert len(extra) == size + 1


def test_filling_more_than_the_gap_is_our_mistake() -> None:
    carrier = new()
    assert carrier.fill(10) == []
    carrier.feed(wire([b"100000:", b""]))
    for count in (-1, 100_001):
        with pytest.raises(ValueError, match="gap"):
            carrier.fill(count)


# ---- what breaks the rules

SMALL = LengthPrefixLimits(max_head=20, max_payload=1000)


@pytest.mark.parametrize("cut", CUTS)
def test_exactly_what_is_allowed_passes(cut: str) -> None:
    messages = [[b"1000:" + b"h" * 15, b"x" * 1000], [b"h" * 20, b""]]
    carrier = new(SMALL)
    assert CUTS[cut](carrier, wire(*messages)) == messages
    assert carrier.failure is None


@pytest.mark.parametrize("size", [21, 256, 65_536, 1 << 32, 1 << 63, (1 << 64) - 1])
def test_a_head_over_max_head_ends_it_at_its_length(size: int) -> None:
    """R81: with the last byte of the length and not before, whether the head is there or not."""
    stream = wire([b"good", b""]) + length(size)
    alone, bytewise, followed = new(SMALL), new(SMALL), new(SMALL)
    assert alone.feed(stream) == followed.feed(stream + bytes(3000)) == [[b"good", b""]]
    feed_all(bytewise, pieces_of(stream[:-1], 1))
    assert bytewise.failure is None
    bytewise.feed(stream[-1:])
    assert reason_of(alone) == "head too long"
    assert str(alone.failure) == str(bytewise.failure) == str(followed.failure)
    assert f"{size} bytes" in str(alone.failure)
    assert "max_head is 20" in str(alone.failure)
    assert (alone.gap, alone.holding) == (None, 0)


@pytest.mark.parametrize("count", [1001, 65_536, 64 * MIB, (1 << 64) - 1])
def test_extra_bytes_over_max_payload_end_it_with_the_head(count: int) -> None:
    """R100: with the last byte of the head and not before, whether the bytes are there or not."""
    limits = LengthPrefixLimits(max_head=64, max_payload=1000)
    stream = wire([b"good", b""], [b"%d:h" % count, b""])
    alone, bytewise, followed = new(limits), new(limits), new(limits)
    assert alone.feed(stream) == followed.feed(stream + bytes(3000)) == [[b"good", b""]]
    feed_all(bytewise, pieces_of(stream[:-1], 1))
    assert bytewise.failure is None
    bytewise.feed(stream[-1:])
    assert reason_of(alone) == "over max_payload"
    assert str(alone.failure) == str(bytewise.failure) == str(followed.failure)
    assert f"{count} bytes is over max_payload 1000" in str(alone.failure)
    assert (alone.gap, alone.holding) == (None, 0)


def test_a_head_whose_count_cannot_be_read_ends_it() -> None:
    carrier = new()
    assert carrier.feed(wire([b"good", b""], [b"x:", b""], [b"more", b""])) == [[b"good", b""]]
    assert reason_of(carrier) == "bad count"


def test_the_defaults_allow_heads_of_64_kib_and_64_mib_behind_them() -> None:
    assert LengthPrefixLimits() == LengthPrefixLimits(max_head=64 * KIB, max_payload=64 * MIB)
    for stream, reason in [
        (length(64 * KIB), None),
        (length(64 * KIB + 1), "head too long"),
        (wire([b"%d:" % (64 * MIB), b""]), None),
        (wire([b"%d:" % (64 * MIB + 1), b""]), "over max_payload"),
    ]:
        carrier = new()
        carrier.feed(stream)
        assert (carrier.failure and carrier.failure.reason) == reason


def test_nothing_is_heard_after_a_failure() -> None:
    carrier = new()
    carrier.feed(length(1 << 60))
    failure = carrier.failure
    assert carrier.feed(wire([b"hello", b""])) == []
    assert carrier.feed(b"\xff" * 8) == []
    assert carrier.fill(5) == []
    assert carrier.failure is failure
    assert (carrier.outgoing, carrier.holding) == ([], 0)


@pytest.mark.parametrize("come", [3, 13, 50, 70_000])
def test_release_lets_go_of_all_that_is_held(come: int) -> None:
    carrier = new()
    extra = b"x" * (100_000 if come > 50 else 100)
    carrier.feed(wire([counted(extra), extra])[:come])
    assert carrier.holding >= come - 8
    carrier.release()
    assert (carrier.gap, carrier.holding, carrier.failure) == (None, 0, None)
    assert carrier.feed(wire([b"", b""])) == []


def test_a_negative_count_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        LengthPrefix(lambda head: -1).feed(bytes(8))


# ---- memory


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("stream", [wire([b"%d:" % (60 * MIB), b""]) + b"some", length(64 * KIB) + b"some"])
def test_a_claim_alone_costs_64_kib(stream: bytes) -> None:
    """R100: a buffer must follow what came and not what was claimed."""
    carrier = new()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    carrier.feed(stream)
    assert tracemalloc.get_traced_memory()[1] - before < 70 * KIB


@pytest.mark.usefixtures("traced")
def test_a_buffer_grows_with_what_really_came() -> None:
    carrier = new()
    piece = bytes(64 * KIB)
    before = tracemalloc.get_traced_memory()[0]
    carrier.feed(wire([b"%d:" % (60 * MIB), b""]))
    for count in range(1, 100):
        carrier.feed(piece)
        held = tracemalloc.get_traced_memory()[0] - before
        assert held <= max(MIB, 4 * count * len(piece)) + 128 * KIB


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("size", [1, 1000, 60_000, 65_535, 65_536, 900_000, MIB])
def test_an_unfinished_message_holds_no_more_than_the_limits_and_64_kib(size: int) -> None:
    """I18."""
    carrier = new(LengthPrefixLimits(max_head=100, max_payload=MIB))
    extra = bytes(size)
    pieces = list(pieces_of(wire([counted(extra, b"h" * 90), extra])[:-1], 10_000))
    before = tracemalloc.get_traced_memory()[0]
    for piece in pieces:
        assert carrier.feed(piece) == []
        assert carrier.holding <= MIB + 100 + 8
        assert tracemalloc.get_traced_memory()[0] - before <= MIB + 64 * KIB
    assert carrier.failure is None


# ---- encoding


@pytest.mark.parametrize(
    ("frames", "stream"),
    [
        ([b""], bytes(8)),
        ([b"head"], length(4) + b"head"),
        ([b"", b""], bytes(8)),
        ([b"5:", b"extra"], length(2) + b"5:extra"),
        ([bytearray(b"1:"), bytearray(b"x")], length(2) + b"1:x"),
        ([b"16383:", b"x" * 16_383], length(6) + b"16383:" + b"x" * 16_383),
    ],
    ids=lambda value: f"{len(value)}",
)
def test_a_head_and_few_extra_bytes_are_one_buffer(frames: list[Frame], stream: bytes) -> None:
    encoded = new().encode(frames)
    assert encoded == [stream]
    assert type(encoded[0]) is bytes


@pytest.mark.parametrize("extra", [b"x" * 16 * KIB, bytearray(MIB)], ids=["bytes", "bytearray"])
def test_many_extra_bytes_are_passed_on_uncopied(extra: Frame) -> None:
    encoded = new().encode((b"head", extra))
    assert encoded == [length(4) + b"head", extra]
    assert encoded[1] is extra


@pytest.mark.parametrize("size", [0, 1, 1000, 16 * KIB, 64 * KIB, MIB])
def test_what_is_encoded_is_understood(size: int) -> None:
    extra = random.Random(size).randbytes(size)
    encoded = new().encode([counted(extra), extra])
    assert feed_all(new(), (bytes(buffer) for buffer in encoded)) == [[counted(extra), extra]]


@pytest.mark.parametrize("frames", [[], [b"head", b"extra", b"more"]])
def test_other_numbers_of_frames_are_our_mistake(frames: list[Frame]) -> None:
    with pytest.raises(AssertionError):
        new().encode(frames)
