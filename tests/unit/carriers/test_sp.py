"""SP messages, cut anywhere (I18), and violations of the protocol."""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import product

import pytest
from cut_streams import KIB, MIB, feed_all, pieces_of, random_pieces, read_into_gap, reason_of

from case_tables import check_every_row
from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.sp import PROTOCOLS, Sp, SpLimits

ID = b"\x80\x00\x00\x01"
HOP = b"\x00\x00\x00\x07"

# What libnng 1.11.0 wrote to a plain socket: a REQ that asked "hi", over TCP and over ipc, and the answer of a REP to a
# question that had seven hops.
NNG_REQ_TCP = b"\x00SP\x00\x000\x00\x00" + b"\x00\x00\x00\x00\x00\x00\x00\x06" + b"\xc7S}\xdchi"
NNG_REQ_IPC = b"\x00SP\x00\x000\x00\x00" + b"\x01\x00\x00\x00\x00\x00\x00\x00\x06" + b"\xaf\x98]\nhi"
NNG_REP_TCP = b"\x00SP\x00\x001\x00\x00" + b"\x00\x00\x00\x00\x00\x00\x00$" + HOP * 7 + ID + b"re:x"


def greeting(number: int = 0x30, reserved: bytes = b"\0\0") -> bytes:
    return b"\0SP\0" + number.to_bytes(2, "big") + reserved


def head(size: int, ipc: bool = False) -> bytes:
    return (b"\x01" if ipc else b"") + size.to_bytes(8, "big")


def wire(*messages: bytes, ipc: bool = False) -> bytes:
    return b"".join(head(len(message), ipc) + message for message in messages)


def started(limits: SpLimits | None = None, ipc: bool = False) -> Sp:
    """Return a REP carrier after the greeting of a REQ."""
    sp = Sp("REP", ipc=ipc, limits=limits or SpLimits())
    assert sp.feed(greeting()) == []
    assert sp.ready
    sp.outgoing.clear()
    return sp


@pytest.fixture(params=["tcp", "ipc"])
def ipc(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "ipc")


# ---- greeting


@pytest.mark.parametrize(("protocol", "number"), [("REQ", 0x30), ("REP", 0x31)])
def test_our_greeting_waits_to_be_written_before_anything_came(protocol: str, number: int, ipc: bool) -> None:
    sp = Sp(protocol, ipc=ipc)
    assert sp.outgoing == [greeting(number)]
    assert not sp.ready


def test_a_req_and_a_rep_greet_and_talk_both_ways(ipc: bool) -> None:
    responder, answerer = Sp("REQ", ipc=ipc), Sp("REP", ipc=ipc)
    answerer.feed(b"".join(responder.outgoing))
    responder.feed(b"".join(answerer.outgoing))
    assert (responder.ready, answerer.ready) == (True, True)
    ((route, body),) = answerer.feed(b"".join(responder.encode([ID, b"question"])))
    assert (route, body) == (ID, b"question")
    assert responder.feed(b"".join(answerer.encode([route, b"", b"answer"]))) == [[ID, b"answer"]]


def test_the_peer_is_ready_with_the_eighth_byte_and_not_before() -> None:
    sp = Sp("REP")
    for byte in greeting():
        assert not sp.ready
        assert sp.feed(bytes([byte])) == []
    assert sp.ready
    assert (sp.failure, sp.holding) == (None, 0)


def test_messages_that_came_with_the_greeting_are_handed_up(ipc: bool) -> None:
    sp = Sp("REP", ipc=ipc)
    assert sp.feed(greeting() + wire(ID + b"one", ID + b"two", ipc=ipc)) == [[ID, b"one"], [ID, b"two"]]


@pytest.mark.parametrize("wrong", range(4))
@pytest.mark.parametrize("value", [0x00, 0x01, 0x47, 0x53, 0xFF])
def test_a_stranger_is_refused_at_its_first_wrong_byte(wrong: int, value: int) -> None:
    if greeting()[wrong] == value:
        value = 0x20
    stream = greeting()[:wrong] + bytes([value])
    bytewise, whole = Sp("REP"), Sp("REP")
    feed_all(bytewise, pieces_of(stream[:-1], 1))
    assert bytewise.failure is None
    bytewise.feed(stream[-1:])
    whole.feed(stream + b"and so on, more than eight bytes")
    assert reason_of(bytewise) == reason_of(whole) == "not sp"
    assert str(bytewise.failure) == str(whole.failure)
    assert stream.hex(" ") in str(whole.failure)
    assert not whole.ready


@pytest.mark.parametrize("stream", [b"GET / HTTP/1.1\r\n", b"\xff" + bytes(8) + b"\x7f", b"\x16\x03\x01", b"\0SPY"])
def test_other_dialects_greetings_are_refused(stream: bytes) -> None:
    sp = Sp("REP")
    sp.feed(stream)
    assert reason_of(sp) == "not sp"


@pytest.mark.parametrize("ours", ["REQ", "REP"])
@pytest.mark.parametrize("theirs", list(PROTOCOLS))
def test_only_the_counterpart_is_taken(ours: str, theirs: str) -> None:
    bytewise, whole = Sp(ours), Sp(ours)
    stream = greeting(PROTOCOLS[theirs])
    whole.feed(stream)
    feed_all(bytewise, pieces_of(stream, 1))
    assert str(whole.failure) == str(bytewise.failure)
    if {ours, theirs} == {"REQ", "REP"}:
        assert (whole.failure, whole.ready) == (None, True)
    else:
        assert reason_of(whole) == "protocol"
        assert whole.failure is not None
        assert f"a {theirs} (0x{PROTOCOLS[theirs]:04x}) came to a {ours}" in whole.failure.detail


@pytest.mark.parametrize("number", [0, 0x32, 0x3000, 0x0130, 0xFFFF])
def test_a_protocol_nobody_knows_is_refused_by_its_number(number: int) -> None:
    sp = Sp("REP")
    sp.feed(greeting(number)[:6])
    assert reason_of(sp) == "protocol"
    assert f"0x{number:04x}" in str(sp.failure)


@pytest.mark.parametrize("reserved", [b"\x01\x00", b"\x00\x01", b"\xff\xff"])
def test_reserved_bytes_must_be_zero(reserved: bytes) -> None:
    bytewise, whole = Sp("REP"), Sp("REP")
    whole.feed(greeting(reserved=reserved) + wire(ID))
    feed_all(bytewise, pieces_of(greeting(reserved=reserved), 1))
    assert reason_of(whole) == "not sp"
    assert str(whole.failure) == str(bytewise.failure)
    assert not bytewise.ready


def test_mistakes_of_our_own_are_value_errors() -> None:
    with pytest.raises(ValueError, match="protocol 'PUB'"):
        Sp("PUB")
    for wrong in ({"max_payload": 0}, {"max_header": -1}, {"max_words": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SpLimits(**wrong)


def test_there_is_no_life_sign_and_no_identity() -> None:
    sp = started()
    sp.ping()
    assert sp.outgoing == []
    assert sp.peer_identity == b""


def test_a_connection_costs_little() -> None:
    """One object a connection, and it shares all that is the same for all."""
    sp = started()
    assert not hasattr(sp, "__dict__")
    assert sys.getsizeof(sp) < 200
    assert sp.holding == 0


# ---- traffic


@pytest.mark.parametrize(
    ("ours", "stream", "is_ipc", "message"),
    [
        ("REP", NNG_REQ_TCP, False, [b"\xc7S}\xdc", b"hi"]),
        ("REP", NNG_REQ_IPC, True, [b"\xaf\x98]\n", b"hi"]),
        ("REQ", NNG_REP_TCP, False, [HOP * 7 + ID, b"re:x"]),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_libnng_really_sends_is_understood(
    ours: str, stream: bytes, is_ipc: bool, message: Message, size: int
) -> None:
    sp = Sp(ours, ipc=is_ipc)
    assert feed_all(sp, pieces_of(stream, size)) == [message]
    assert sp.failure is None


SIZES = [0, 1, 100, 16 * KIB, 65531, 65532, 65533, 65536, 65540, 200_000, MIB]
VARIED: list[list[bytes]] = [
    *([HOP * (number % 8) + ID, bytes([size % 251]) * size] for number, size in enumerate(SIZES)),
    *([HOP * hops + ID, b"h" * hops] for hops in range(8)),
    [ID, b"tail"],
]
CUTS: dict[str, Callable[[Sp, bytes], list[Message | TooLarge]]] = {
    "whole": lambda sp, stream: sp.feed(stream),
    "by 1 KiB": lambda sp, stream: feed_all(sp, pieces_of(stream, KIB)),
    "by 64 KiB": lambda sp, stream: feed_all(sp, pieces_of(stream, 64 * KIB)),
    "at random": lambda sp, stream: feed_all(sp, random_pieces(stream, random.Random(7))),
    "gap by 1000": lambda sp, stream: read_into_gap(sp, stream, 1000),
    "gap by 64 KiB": lambda sp, stream: read_into_gap(sp, stream, 64 * KIB),
    "gap by MiB": lambda sp, stream: read_into_gap(sp, stream, MIB),
}


@pytest.mark.parametrize("cut", CUTS)
def test_messages_of_all_sizes_come_out_alike_however_they_are_cut(cut: str, ipc: bool) -> None:
    """I18."""
    sp = started(ipc=ipc)
    messages = CUTS[cut](sp, wire(*(b"".join(message) for message in VARIED), ipc=ipc))
    assert messages == VARIED
    assert {type(message[0]) for message in messages if isinstance(message, list)} == {bytes}
    assert (sp.failure, sp.gap, sp.holding) == (None, None, 0)


def test_a_short_stream_cut_at_every_byte_comes_out_alike(ipc: bool) -> None:
    """I18: once in two, at every place, and once into single bytes."""
    stream = greeting() + wire(ID + b"one", b"", HOP * 7 + ID, b"\x80", HOP + ID + b"x" * 20, ID, ipc=ipc)
    expected = [[ID, b"one"], [b"", b""], [HOP * 7 + ID, b""], [b"", b""], [HOP + ID, b"x" * 20], [ID, b""]]
    for cut in range(len(stream) + 1):
        sp = Sp("REP", ipc=ipc)
        assert [*sp.feed(stream[:cut]), *sp.feed(stream[cut:])] == expected, cut
    assert feed_all(Sp("REP", ipc=ipc), pieces_of(stream, 1)) == expected


def test_messages_fed_byte_by_byte_come_out_alike(ipc: bool) -> None:
    """I18. 60 KiB and a large one are among them, so work that grows with the square would be felt here."""
    bodies = [b"x" * 100, b"y" * 60 * KIB, b"z" * 70_000, b"end"]
    sp = started(ipc=ipc)
    stream = wire(*(ID + body for body in bodies), ipc=ipc)
    assert feed_all(sp, pieces_of(stream, 1)) == [[ID, body] for body in bodies]


@pytest.mark.parametrize("tail", [1, 7, 8, 9, 10, 12, 13, 50])
def test_a_tail_waits_for_its_rest(tail: int, ipc: bool) -> None:
    first, second = wire(ID + b"first", ipc=ipc), wire(ID + b"s" * 100, ipc=ipc)
    sp = started(ipc=ipc)
    assert sp.feed(first + second[:tail]) == [[ID, b"first"]]
    assert sp.holding == tail
    assert sp.feed(b"") == []
    assert sp.feed(second[tail:]) == [[ID, b"s" * 100]]
    assert sp.holding == 0


# ---- routes


@pytest.mark.parametrize("cut", CUTS)
def test_a_route_is_all_words_up_to_the_request_id(cut: str) -> None:
    """The body may look like words, too."""

    def check(words: int, size: int) -> None:
        route = b"".join(number.to_bytes(4, "big") for number in range(words - 1)) + b"\xff\xff\xff\xff"
        body = (ID * (size // 4 + 1))[:size]
        assert CUTS[cut](started(), wire(route + body)) == [[route, body]]

    check_every_row(check, product(range(1, 9), (0, 100, 100_000)))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x80",
        b"\x80\0\0",
        HOP,
        HOP + b"\x80\0\0",
        HOP * 7 + b"\x80\0\0",
        HOP * 8,
        HOP * 8 + ID,
        HOP * 8 + ID + b"x" * 100_000,
        bytes(MIB),
    ],
    ids=lambda message: f"{len(message)} bytes",
)
@pytest.mark.parametrize("cut", CUTS)
def test_no_request_id_within_8_words_is_an_empty_route_and_traffic_goes_on(message: bytes, cut: str) -> None:
    sp = started()
    stream = wire(ID + b"before", message, ID + b"after")
    assert CUTS[cut](sp, stream) == [[ID, b"before"], [b"", b""], [ID, b"after"]]
    assert sp.failure is None


@pytest.mark.parametrize("cut", CUTS)
def test_the_number_of_words_can_be_set(cut: str) -> None:
    stream = wire(HOP + ID + b"two", HOP * 2 + ID + b"three", HOP * 2 + ID + b"x" * 100_000)
    assert CUTS[cut](started(SpLimits(max_words=2)), stream) == [[HOP + ID, b"two"], [b"", b""], [b"", b""]]


# ---- large messages


def test_a_gap_opens_for_a_large_message_and_closes_when_it_is_full(ipc: bool) -> None:
    stream = wire(ID + b"x" * 100_000, ipc=ipc)
    sp = started(ipc=ipc)
    assert sp.feed(stream[:50_000]) == []
    assert sp.gap is not None
    rest = stream[50_000:]
    assert len(sp.gap) == len(rest)
    sp.gap[:] = rest
    assert sp.fill(len(rest)) == [[ID, b"x" * 100_000]]
    assert (sp.gap, sp.holding) == (None, 0)


def test_a_mebibyte_whose_beginning_came_in_one_read_gets_its_buffer_at_once() -> None:
    sp = started()
    stream = wire(HOP * 7 + ID + bytes(MIB + 1000))
    sp.feed(stream[: 64 * KIB])
    assert sp.gap is not None
    assert len(sp.gap) == len(stream) - 64 * KIB


def test_feeding_while_a_gap_is_open_goes_into_the_gap_and_beyond(ipc: bool) -> None:
    stream = wire(ID + b"x" * 100_000, ID + b"next", ipc=ipc)
    sp = started(ipc=ipc)
    sp.feed(stream[:50_000])
    assert sp.feed(stream[50_000:]) == [[ID, b"x" * 100_000], [ID, b"next"]]


@pytest.mark.parametrize("size", [70_000, MIB, 6 * MIB])
@pytest.mark.parametrize("route", [ID, HOP * 7 + ID], ids=["1 word", "8 words"])
def test_nobody_has_a_view_of_a_large_body_that_was_read_into_the_gap(size: int, route: bytes) -> None:
    """A stream still has the gap in its hand while `fill` runs; a bytearray with a view on it cannot be resized."""
    body = random.Random(1).randbytes(size)
    stream = wire(route + body)
    sp = started()
    pos = 100
    messages = sp.feed(stream[:pos])
    views = []
    while (gap := sp.gap) is not None:
        views.append(gap)
        count = min(len(gap), 256 * KIB)
        gap[:count] = stream[pos : pos + count]
        pos += count
        messages += sp.fill(count)
    assert messages == [[route, body]]
    assert_free(messages[0])
    for view in views:
        with pytest.raises(ValueError, match="released"):
            len(view)


@pytest.mark.parametrize("size", [100, 30_000, 64 * KIB, MIB])
def test_nobody_has_a_view_of_a_large_body_that_was_fed(size: int) -> None:
    (message,) = feed_all(started(), pieces_of(wire(HOP + ID + bytes(2 * MIB)), size))
    assert isinstance(message, list)
    assert len(message[1]) == 2 * MIB
    assert_free(message)


def assert_free(message: Message | TooLarge) -> None:
    """Check that the dialect can delete a header and the owner can append."""
    assert isinstance(message, list)
    body = message[1]
    assert isinstance(body, bytearray)
    size = len(body)
    body.append(1)
    del body[:10]
    assert len(body) == size - 9


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_the_route_of_a_large_message_is_split_off_without_copying_the_body() -> None:
    sp = started()
    stream = wire(HOP + ID + bytes(8 * MIB))
    for piece in pieces_of(stream[:-1], 64 * KIB):
        sp.feed(piece)
    assert sp.gap is not None
    sp.gap[:1] = b"\0"
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    ((_, body),) = sp.fill(1)
    assert tracemalloc.get_traced_memory()[1] - before < 4 * KIB
    assert len(body) == 8 * MIB


def test_filling_more_than_the_gap_is_our_mistake() -> None:
    sp = started()
    assert sp.fill(10) == []
    sp.feed(head(100_000))
    for count in (-1, 100_001):
        with pytest.raises(ValueError, match="gap"):
            sp.fill(count)


# ---- what breaks the rules


@pytest.mark.parametrize("kind", [0, 2, 0x80, 0xFF])
def test_another_ipc_message_type_is_refused_at_its_byte(kind: int) -> None:
    stream = wire(ID + b"good", ipc=True) + bytes([kind])
    whole, bytewise, early = started(ipc=True), started(ipc=True), started(ipc=True)
    assert whole.feed(stream + head(5) + ID + b"x" + wire(ID, ipc=True)) == [[ID, b"good"]]
    assert early.feed(stream) == [[ID, b"good"]]
    assert feed_all(bytewise, pieces_of(stream, 1)) == [[ID, b"good"]]
    assert reason_of(whole) == reason_of(early) == reason_of(bytewise) == "bad ipc message type"
    assert f"0x{kind:02x}" in str(whole.failure)
    assert str(whole.failure) == str(bytewise.failure)


SMALL = SpLimits(max_payload=1000, max_header=100, max_words=2)


@pytest.mark.parametrize("cut", CUTS)
def test_exactly_what_is_allowed_passes(cut: str, ipc: bool) -> None:
    stream = wire(HOP + ID + b"x" * 1100, ID + b"y" * 1104, ipc=ipc)
    sp = started(SMALL, ipc)
    assert CUTS[cut](sp, stream) == [[HOP + ID, b"x" * 1100], [ID, b"y" * 1104]]
    assert sp.failure is None


@pytest.mark.parametrize("length", [1109, 65536, 64 * MIB, 1 << 63, (1 << 64) - 1])
def test_a_message_over_max_payload_ends_it_at_its_length(length: int, ipc: bool) -> None:
    """R80: with the last byte of the length and not before, whether the body is there or not."""
    stream = wire(ID + b"good", ipc=ipc) + head(length, ipc)
    alone, bytewise, followed = started(SMALL, ipc), started(SMALL, ipc), started(SMALL, ipc)
    assert alone.feed(stream) == followed.feed(stream + ID + bytes(3000)) == [[ID, b"good"]]
    feed_all(bytewise, pieces_of(stream[:-1], 1))
    assert bytewise.failure is None
    bytewise.feed(stream[-1:])
    assert reason_of(alone) == "over max_payload"
    assert str(alone.failure) == str(bytewise.failure) == str(followed.failure)
    assert f"{length} bytes" in str(alone.failure)
    assert "max_payload is 1000" in str(alone.failure)
    assert (alone.gap, alone.holding) == (None, 0)


def test_the_defaults_allow_64_mib_and_a_header_and_a_route() -> None:
    most = 64 * MIB + 64 * KIB + 32
    allowed, refused = started(), started()
    allowed.feed(head(most))
    refused.feed(head(most + 1))
    assert allowed.failure is None
    assert reason_of(refused) == "over max_payload"


def test_nothing_is_heard_after_a_failure(ipc: bool) -> None:
    sp = started(ipc=ipc)
    sp.feed(head(1 << 60, ipc))
    failure = sp.failure
    assert sp.feed(wire(ID + b"hello", ipc=ipc)) == []
    assert sp.feed(b"\x02") == []
    assert sp.fill(5) == []
    assert sp.failure is failure
    assert (sp.outgoing, sp.holding) == ([], 0)


@pytest.mark.parametrize("come", [3, 50, 70_000])
def test_release_lets_go_of_all_that_is_held(come: int) -> None:
    sp = started()
    sp.feed(wire(ID + b"x" * 100_000 if come > 50 else ID + b"x" * 100)[:come])
    assert sp.holding >= come - 8
    sp.release()
    assert (sp.gap, sp.holding, sp.failure) == (None, 0, None)
    assert sp.feed(wire(ID)) == []


# ---- memory


@pytest.mark.usefixtures("traced")
def test_a_claim_alone_costs_64_kib() -> None:
    """A buffer must follow what came and not what was claimed."""
    sp = started()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    sp.feed(head(60 * MIB) + b"some")
    assert tracemalloc.get_traced_memory()[1] - before < 70 * KIB


@pytest.mark.usefixtures("traced")
def test_a_buffer_grows_with_what_really_came() -> None:
    sp = started()
    piece = bytes(64 * KIB)
    before = tracemalloc.get_traced_memory()[0]
    sp.feed(head(60 * MIB))
    for count in range(1, 100):
        sp.feed(piece)
        held = tracemalloc.get_traced_memory()[0] - before
        assert held <= max(MIB, 4 * count * len(piece)) + 128 * KIB


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("size", [1, 1000, 60_000, 65_535, 65_536, 900_000, MIB])
def test_an_unfinished_message_holds_no_more_than_the_limit_and_64_kib(size: int, ipc: bool) -> None:
    """I18."""
    limits = SpLimits(max_payload=MIB, max_header=0)
    sp = started(limits, ipc)
    pieces = list(pieces_of(wire(bytes(size), ipc=ipc)[:-1], 10_000))
    before = tracemalloc.get_traced_memory()[0]
    for piece in pieces:
        assert sp.feed(piece) == []
        assert sp.holding <= MIB + 32 + 9
        assert tracemalloc.get_traced_memory()[0] - before <= MIB + 64 * KIB
    assert sp.failure is None


# ---- encoding


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([ID], ID),
        ([b""], b""),
        ([ID, b""], ID),
        ([ID, b"header", b"payload"], ID + b"headerpayload"),
        ([HOP + ID, bytearray(b"h"), b"", b"p", bytearray(b"q")], HOP + ID + b"hpq"),
        ([ID, b"x" * 16_379], ID + b"x" * 16_379),
        ([b"x" * 10_000] * 5, b"x" * 50_000),
    ],
)
def test_small_frames_are_joined_under_one_length(frames: list[Frame], message: bytes, ipc: bool) -> None:
    encoded = Sp("REP", ipc=ipc).encode(frames)
    assert encoded == [wire(message, ipc=ipc)]
    assert type(encoded[0]) is bytes


def test_large_frames_are_passed_on_uncopied(ipc: bool) -> None:
    first, second = b"f" * 16 * KIB, bytearray(b"s" * MIB)
    encoded = Sp("REP", ipc=ipc).encode([ID, b"header", first, second, b"end"])
    assert encoded == [head(4 + 6 + 16 * KIB + MIB + 3, ipc) + ID + b"header", first, second, b"end"]
    assert encoded[1] is first
    assert encoded[2] is second


def test_a_single_large_frame_comes_after_its_length(ipc: bool) -> None:
    frame = ID + b"x" * 16 * KIB
    encoded = Sp("REQ", ipc=ipc).encode((frame,))
    assert encoded == [head(len(frame), ipc), frame]
    assert encoded[1] is frame


@pytest.mark.parametrize("header", [0, 40, 16 * KIB])
@pytest.mark.parametrize("payload", [0, 1, 1000, 16 * KIB, 64 * KIB, MIB])
def test_what_is_encoded_is_understood(header: int, payload: int, ipc: bool) -> None:
    rng = random.Random(payload)
    frames = [HOP + ID, rng.randbytes(header), rng.randbytes(payload)]
    encoded = Sp("REQ", ipc=ipc).encode(frames)
    sp = started(ipc=ipc)
    assert feed_all(sp, (bytes(buffer) for buffer in encoded)) == [[HOP + ID, frames[1] + frames[2]]]


def test_a_message_of_no_frames_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        Sp("REQ").encode([])
