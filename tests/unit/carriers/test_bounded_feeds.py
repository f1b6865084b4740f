"""A carrier of a listener decodes at most `most` messages in one call, and continues with the others (R214)."""

from __future__ import annotations

from collections.abc import Callable

import curve_wire
import zmtp_wire
from cut_streams import pieces_of

from dragoman.carriers.carrier import Carrier, Message, TooLarge
from dragoman.carriers.length_prefix import LengthPrefix
from dragoman.carriers.sp import Sp
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_commands import framed, ping

COUNT = 500
MOST = 7


def sp() -> Sp:
    carrier = Sp("REP")
    carrier.feed(b"\0SP\0\0\x30\0\0")
    return carrier


def sp_message(number: int) -> bytes:
    body = b"\x80\0\0\1" + b"%d" % number
    return len(body).to_bytes(8, "big") + body


def prefixed_message(number: int) -> bytes:
    text = b"%d" % number
    return len(text).to_bytes(8, "little") + text


def curve_messages() -> bytes:
    return b"".join(curve_wire.message(b"%d" % number, 100 + number) for number in range(COUNT))


def length_prefix() -> LengthPrefix:
    return LengthPrefix(lambda head: 0)


CARRIERS: dict[str, tuple[Callable[[], Carrier], bytes]] = {
    "zmtp": (zmtp_wire.started, b"".join(zmtp_wire.wire([b"", b"%d" % number]) for number in range(COUNT))),
    "zmtp, messages over 255 bytes": (
        zmtp_wire.started,
        b"".join(zmtp_wire.wire([b"%d" % number, bytes(300)]) for number in range(COUNT)),
    ),
    "curve": (curve_wire.started_server, curve_messages()),
    "sp": (sp, b"".join(map(sp_message, range(COUNT)))),
    "length prefix": (length_prefix, b"".join(map(prefixed_message, range(COUNT)))),
}


def feed_in_turns(carrier: Carrier, pieces: list[bytes], most: int) -> list[Message | TooLarge]:
    """Feed each piece, and continue until nothing is left, as a stream does."""
    carrier.most = most
    messages: list[Message | TooLarge] = []
    for piece in pieces:
        found = carrier.feed(piece)
        while True:
            assert len(found) <= most
            messages += found
            if not carrier.rest:
                break
            found = carrier.feed(b"")
            assert found or not carrier.rest, "each call decodes something"
    return messages


def test_a_feed_has_at_most_so_many_messages_and_none_is_lost() -> None:
    for name, (make, stream) in CARRIERS.items():
        expected = make().feed(stream)
        assert len(expected) == COUNT, name
        for pieces in ([stream], list(pieces_of(stream, 61)), [stream[:-1], stream[-1:]]):
            assert feed_in_turns(make(), pieces, MOST) == expected, name


def test_bytes_that_arrive_while_others_wait_come_after_them() -> None:
    for name, (make, stream) in CARRIERS.items():
        carrier, half = make(), len(stream) // 2
        expected = make().feed(stream)
        carrier.most = MOST
        messages = [*carrier.feed(stream[:half]), *carrier.feed(stream[half:])]
        assert len(messages) == 2 * MOST, name
        assert carrier.holding > 0
        while carrier.rest:
            messages += carrier.feed(b"")
        assert messages == expected, name


def test_messages_before_malformed_bytes_are_returned_before_the_failure() -> None:
    carrier = zmtp_wire.started()
    stream = b"".join(zmtp_wire.wire([b"%d" % number]) for number in range(10)) + b"\xff\xff"
    carrier.most = 4
    assert (len(carrier.feed(stream)), carrier.failure) == (4, None)
    assert (len(carrier.feed(b"")), carrier.failure) == (4, None)
    assert len(carrier.feed(b"")) == 2
    assert carrier.failure is not None
    assert (carrier.rest, carrier.holding) == (b"", 0)


def test_replies_of_the_carrier_itself_count_as_messages() -> None:
    """A read of PINGs of the carrier is thousands of commands, each of which is answered."""
    carrier = zmtp_wire.started()
    carrier.outgoing.clear()
    carrier.most = MOST
    data, answered = framed(ping(0, b"")) * COUNT, 0
    while data or carrier.rest:
        assert carrier.feed(data) == []
        data = b""
        assert 0 < len(carrier.outgoing) <= MOST
        answered += len(carrier.outgoing)
        carrier.outgoing.clear()
    assert answered == COUNT


def test_a_released_carrier_has_no_rest() -> None:
    for name, (make, stream) in CARRIERS.items():
        carrier = make()
        carrier.most = 1
        carrier.feed(stream)
        assert carrier.rest, name
        carrier.release()
        assert (carrier.rest, carrier.holding, carrier.feed(b"")) == (b"", 0, []), name


def test_clients_have_no_such_limit() -> None:
    assert len(Zmtp("DEALER").feed(b"")) == 0
    carrier = zmtp_wire.started()
    assert len(carrier.feed(zmtp_wire.wire([b"x"]) * 30_000)) == 30_000
