"""Traffic with CURVE: messages, commands and limits after the handshake."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from curve_wire import (
    CLIENT,
    SERVER,
    Counted,
    curve_server,
    message,
    opened,
    started_client,
    started_server,
)
from cut_streams import KIB, MIB, feed_all, pieces_of, random_pieces, read_into_gap, reason_of
from zmtp_wire import command, talk

from case_tables import check_every_row
from dragoman.carriers import nacl_box
from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_curve import zmtp_carrier
from dragoman.carriers.zmtp_curve_handshake import CurveClient, CurveServer
from dragoman.carriers.zmtp_limits import ZmtpLimits

CUTS: dict[str, Callable[[Zmtp, bytes], list[Message | TooLarge]]] = {
    "whole": lambda carrier, stream: carrier.feed(stream),
    "byte by byte": lambda carrier, stream: feed_all(carrier, pieces_of(stream, 1)),
    "by 1 KiB": lambda carrier, stream: feed_all(carrier, pieces_of(stream, KIB)),
    "by 64 KiB": lambda carrier, stream: feed_all(carrier, pieces_of(stream, 64 * KIB)),
    "at random": lambda carrier, stream: feed_all(carrier, random_pieces(stream, random.Random(7))),
    "gap by 1000": lambda carrier, stream: read_into_gap(carrier, stream, 1000),
    "gap by 64 KiB": lambda carrier, stream: read_into_gap(carrier, stream, 64 * KIB),
    "gap by MiB": lambda carrier, stream: read_into_gap(carrier, stream, MIB),
}
# With 33 bytes around it, a frame of 222 bytes is the longest with a short head.
SIZES = (0, 1, 222, 223, 256, 999, 1000, 1001, 16 * KIB, 64 * KIB - 34, 64 * KIB - 33, 64 * KIB, 300 * KIB)


@pytest.fixture(params=["direct", "bindings"], autouse=True)
def way_to_pynacl(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both ways to PyNaCl must behave the same."""
    import nacl

    if request.param == "bindings":
        monkeypatch.setattr(nacl, "_sodium", SimpleNamespace(lib=SimpleNamespace()))
    nacl_box.direct_sodium.cache_clear()
    yield
    nacl_box.direct_sodium.cache_clear()


def sent_by(carrier: Zmtp, *messages: list[bytes]) -> bytes:
    return b"".join(b"".join(carrier.encode(each)) for each in messages)


# ---- messages


def test_every_byte_of_a_message_is_as_in_rfc_26() -> None:
    server, client = started_server(), started_client()
    assert sent_by(client, [b"", b"hello"]) == message(b"", 3, 1) + message(b"hello", 4)
    expected = message(b"", 2, 1, from_client=False) + message(b"x" * 223, 3, from_client=False)
    assert sent_by(server, [b"", b"x" * 223]) == expected
    assert [expected[0], message(b"x" * 222, 1)[0], message(b"x" * 223, 1)[0]] == [0, 0, 2]


@pytest.mark.parametrize("cut", CUTS)
def test_messages_arrive_in_every_cut_with_frames_of_every_size(cut: str) -> None:
    server, client = started_server(), started_client()
    messages = [
        [b"", bytes(index % 251 for index in range(size))] for size in SIZES if size < 64 * KIB or cut[:4] != "byte"
    ]
    messages.append([b"a", *(bytes([index]) * 50 for index in range(40)), b"z"])
    received = CUTS[cut](server, sent_by(client, *messages))
    assert server.failure is None
    assert received == messages
    assert CUTS[cut](client, sent_by(server, *messages)) == messages
    assert server.gap is None
    assert server.holding == 0


def test_a_small_frame_is_bytes_and_a_large_one_is_the_buffer_it_was_read_into() -> None:
    server, client = started_server(), started_client()
    ((small, large),) = read_into_gap(server, sent_by(client, [b"key", bytes(100 * KIB)]), 64 * KIB)
    assert (type(small), type(large)) == (bytes, bytearray)
    assert isinstance(large, bytearray)
    del large[:4]  # nothing refers to the buffer any more
    assert len(large) == 100 * KIB - 4


def test_a_large_frame_that_does_not_open_fails_where_it_was_read_into_the_gap() -> None:
    server, client = started_server(), started_client()
    stream = bytearray(sent_by(client, [bytes(100 * KIB)]))
    stream[-1] ^= 1
    assert read_into_gap(server, bytes(stream), 10_000) == []
    assert reason_of(server) == "forged"
    assert (server.gap, server.holding) == (None, 0)


def test_what_is_held_of_a_large_frame_is_counted() -> None:
    server, client = started_server(), started_client()
    stream = sent_by(client, [bytes(100 * KIB)])
    server.feed(stream[: 50 * KIB])
    assert 50 * KIB <= server.holding <= 101 * KIB
    server.release()
    assert server.holding == 0
    assert server.feed(stream[50 * KIB :]) == []


# ---- counters


def test_the_counter_of_a_message_must_rise() -> None:
    for numbers, good in (((3, 3), 1), ((4, 3), 1), ((2,), 0), ((1,), 0), ((0,), 0), ((3, 4, 9, 2**64 - 1, 5), 4)):
        server = started_server()
        received = server.feed(b"".join(message(b"%d" % number, number) for number in numbers))
        assert received == [[b"%d" % number] for number in numbers[:good]]
        assert reason_of(server) == "bad nonce"
    client = started_client()
    assert client.feed(message(b"x", 1, from_client=False)) == []
    assert reason_of(client) == "bad nonce"


def test_a_gap_between_counters_is_legal() -> None:
    """A ping that was made and not sent leaves one."""
    server = started_server()
    assert server.feed(message(b"a", 3) + message(b"b", 1000)) == [[b"a"], [b"b"]]
    assert server.failure is None


def test_everything_that_is_sent_has_the_next_counter() -> None:
    server = started_server()
    stream = sent_by(server, [b"", b"a"])
    server.feed(message(command(b"PING", b"\0\0ctx")[2:], 3, 2))
    stream += b"".join(server.outgoing)
    stream += server.ping(7, b"mine") or b""
    stream += sent_by(server, [b"b"])
    assert opened(stream) == [
        (2, 1, b""),
        (3, 0, b"a"),
        (4, 2, b"\x04PONGctx"),
        (5, 2, b"\x04PING\x00\x07mine"),
        (6, 0, b"b"),
    ]


def test_a_message_of_the_other_direction_does_not_open() -> None:
    """A message that an attacker sends back is not taken for one of the peer."""
    server = started_server()
    sent_by(server, [b"1"], [b"2"])
    server.feed(sent_by(server, [b"3"]))
    assert reason_of(server) == "forged"


def test_a_message_of_another_connection_does_not_open() -> None:
    """Both have the same long-term keys, and transient keys of their own."""
    server = zmtp_carrier("ROUTER", security=CurveServer((SERVER,), lambda key: True, Counted(0x10)))
    client = zmtp_carrier("DEALER", security=CurveClient(CLIENT, SERVER[0], Counted(0x20)))
    talk(server, client)
    assert server.feed(sent_by(client, [b"of this one"])) == [[b"of this one"]]
    server.feed(message(b"of another", 4))
    assert reason_of(server) == "forged"


@pytest.mark.parametrize("pos", range(2, 2 + 33 + 5))
def test_every_changed_byte_of_a_message_is_noticed(pos: int) -> None:
    stream = bytearray(message(b"hello", 3))
    stream[pos] ^= 1
    server = started_server()
    assert server.feed(bytes(stream)) == []
    assert reason_of(server) in ("not encrypted", "bad nonce", "forged")


# ---- flags


def test_outer_flags_of_message() -> None:
    """0 and 2 are those of libzmq, 4 and 6 those of RFC 26."""

    def check(flags: int) -> None:
        server = started_server()
        stream = message(b"hello", 3, outer=flags)
        bytewise = started_server()
        assert server.feed(stream) == feed_all(bytewise, pieces_of(stream, 1))
        if flags in (0, 2, 4, 6):
            assert (server.failure, bytewise.failure) == (None, None)
        else:
            assert reason_of(server) == reason_of(bytewise) == "bad flags"

    check_every_row(check, [(flags,) for flags in range(256)])


def test_command_bit_inside_box_is_two() -> None:
    """libzmq writes 2. A PING with 4, the flag of a frame, is neither a command nor a message."""
    ping = command(b"PING", b"\0\0")[2:]

    def check(flags: int) -> None:
        server = started_server()
        received = server.feed(message(ping, 3, flags))
        if flags == 2:
            assert opened(b"".join(server.outgoing)) == [(2, 2, b"\x04PONG")]
            assert (received, server.failure) == ([], None)
        elif flags < 2:
            assert (received, server.failure) == ([] if flags else [[ping]], None)
        else:
            assert received == []
            assert reason_of(server) == "bad flags"

    check_every_row(check, [(flags,) for flags in range(256)])


@pytest.mark.parametrize("flags", [0, 4])
def test_a_large_message_with_the_flag_of_a_command_is_accepted(flags: int) -> None:
    """It is not subject to max_command, which is for commands inside."""
    body = bytes(200 * KIB)
    for cut in ("whole", "by 1 KiB", "gap by 64 KiB"):
        assert CUTS[cut](started_server(), message(body, 3, outer=flags | 2)) == [[body]]


# ---- commands


def test_commands_come_inside_of_messages_too() -> None:
    server = started_server()
    stream = message(b"a", 3, 1) + message(b"\x04PING\0\0", 4, 2) + message(b"b", 5)
    assert server.feed(stream) == [[b"a", b"b"]]
    assert opened(b"".join(server.outgoing)) == [(2, 2, b"\x04PONG")]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "bad command"),
        (b"\x00", "bad command"),
        (b"\x05PING", "bad command"),
        (b"\x04PING\0", "bad ping"),
        (b"\x04PING\0\0" + bytes(17), "bad ping"),
        (b"\x05ERROR\x03bye", "peer error"),
        (b"\x04PING" + bytes(64 * KIB), "command too large"),
    ],
)
def test_a_broken_command_is_refused(body: bytes, reason: str) -> None:
    server = started_server()
    server.feed(message(body, 3, 2))
    assert reason_of(server) == reason


def test_unknown_commands_and_pongs_are_ignored() -> None:
    server = started_server()
    server.feed(message(b"\x04PONG", 3, 2) + message(b"\x09SUBSCRIBEx", 4, 2))
    assert (server.failure, server.outgoing) == (None, [])


def test_there_is_no_ping_before_the_handshake_nor_to_a_peer_of_zmtp_3_0() -> None:
    server = curve_server()
    assert server.ping() is None
    assert started_server(version=b"\x03\x00").ping() is None
    assert started_server().ping() is not None
    with pytest.raises(ValueError, match="context"):
        started_server().ping(context=bytes(17))


# ---- limits

LIMITS = ZmtpLimits(max_payload=1000, hard_cap=3000, max_frames=4)


def test_a_frame_over_max_payload_closes() -> None:
    """R16: the end of the message is inside the boxes, so the frame cannot be skipped. It fails before its body has
    come."""
    longest, too_long = started_server(LIMITS), started_server(LIMITS)
    assert longest.feed(message(bytes(1000), 3)) == [[bytes(1000)]]
    assert too_long.feed(message(bytes(1001), 3)[:9]) == []
    assert reason_of(too_long) == "too large"
    assert "max_payload 1000" in str(too_long.failure)


@pytest.mark.parametrize("size", [1, 500, 100_000])
def test_a_message_of_several_frames_over_max_payload_is_dropped_and_the_next_one_arrives(size: int) -> None:
    stream = message(b"id", 3, 1) + message(bytes(600), 4, 1) + message(bytes(600), 5) + message(b"next", 6)
    server = started_server(LIMITS)
    assert feed_all(server, pieces_of(stream, size)) == [TooLarge([b"id", bytes(600)], 1202), [b"next"]]
    assert server.failure is None


def test_a_message_over_the_hard_cap_or_with_too_many_frames_fails() -> None:
    over = started_server(LIMITS)
    assert over.feed(b"".join(message(bytes(999), number, 1) for number in (3, 4, 5))) == []
    assert over.failure is None
    over.feed(message(bytes(4), 6))
    assert reason_of(over) == "over hard cap"
    many = started_server(LIMITS)
    assert many.feed(b"".join(message(b"", number, 1) for number in (3, 4, 5)) + message(b"", 6)) == [[b""] * 4]
    many.feed(b"".join(message(b"", number, 1) for number in (7, 8, 9, 10)))
    assert reason_of(many) == "too many frames"


def test_bytes_after_a_failure_are_ignored() -> None:
    server = started_server()
    server.feed(b"\x01")
    assert server.feed(message(b"x", 3)) == []
    assert reason_of(server) == "bad flags"
