"""ZMTP: bytes in, messages out, however the stream is cut (I18); and what a peer may not do."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.zmtp import Zmtp, encode
from dragoman.carriers.zmtp_commands import ACCEPTED, OUR_GREETING
from dragoman.carriers.zmtp_limits import Limits

KIB = 1024
MIB = 1024 * KIB

# What libzmq 4.3.5 wrote to a plain socket that answered it as a ROUTER (as a DEALER to the last two). Note the
# ninth byte: libzmq puts the length of its identity plus one there.
LIBZMQ_TAIL = b"\x7f\x03\x01NULL" + bytes(16) + bytes(32)
LIBZMQ_DEALER = (
    b"\xff\x00\x00\x00\x00\x00\x00\x00\x09" + LIBZMQ_TAIL + b"\x041\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
    b"\x08Identity\x00\x00\x00\x08worker-1\x01\x00\x00\x05hello"
)
LIBZMQ_REQ = (
    b"\xff\x00\x00\x00\x00\x00\x00\x00\x01" + LIBZMQ_TAIL + b"\x04&\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ"
    b"\x08Identity\x00\x00\x00\x00\x01\x00\x00\x02hi"
)
LIBZMQ_LONG_REQ = (
    b"\xff\x00\x00\x00\x00\x00\x00\x00\x04" + LIBZMQ_TAIL + b"\x04)\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ"
    b"\x08Identity\x00\x00\x00\x03abc\x01\x00\x02\x00\x00\x00\x00\x00\x00\x01," + b"x" * 300
)
LIBZMQ_HEARTBEAT = (
    b"\xff\x00\x00\x00\x00\x00\x00\x00\x01" + LIBZMQ_TAIL + b"\x04)\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
    b"\x08Identity\x00\x00\x00\x00\x04\x07\x04PING\x00\x1e"
)
LIBZMQ_REP = (
    b"\xff\x00\x00\x00\x00\x00\x00\x00\x01" + LIBZMQ_TAIL + b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REP"
)
LIBZMQ_ROUTER = (
    b"\xff\x00\x00\x00\x00\x00\x00\x00\x02" + LIBZMQ_TAIL + b"\x04*\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"
    b"\x08Identity\x00\x00\x00\x01R"
)


def greeting(version: bytes = b"\x03\x01", mechanism: bytes = b"NULL") -> bytes:
    return b"\xff" + bytes(8) + b"\x7f" + version + mechanism.ljust(20, b"\0") + bytes(32)


def command(name: bytes, rest: bytes = b"") -> bytes:
    body = bytes([len(name)]) + name + rest
    if len(body) < 256:
        return b"\x04" + bytes([len(body)]) + body
    return b"\x06" + len(body).to_bytes(8, "big") + body


def prop(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value


def ready(socket_type: bytes = b"DEALER", identity: bytes = b"") -> bytes:
    return command(b"READY", prop(b"Socket-Type", socket_type) + prop(b"Identity", identity))


def wire(*messages: list[bytes]) -> bytes:
    return b"".join(b"".join(encode(message)) for message in messages)


def started(limits: Limits | None = None, version: bytes = b"\x03\x01") -> Zmtp:
    """A ROUTER of ours after the handshake with a DEALER."""
    zmtp = Zmtp("ROUTER", limits=limits or Limits())
    assert zmtp.feed(greeting(version) + ready()) == []
    assert zmtp.ready
    zmtp.outgoing.clear()
    return zmtp


def reason_of(zmtp: Zmtp) -> str:
    assert zmtp.failure is not None, "a failure was expected"
    assert zmtp.failure.detail
    assert str(zmtp.failure).startswith(zmtp.failure.reason)
    return zmtp.failure.reason


def pieces_of(stream: bytes, size: int) -> Iterator[bytes]:
    for pos in range(0, len(stream), size):
        yield stream[pos : pos + size]


def random_pieces(stream: bytes, rng: random.Random) -> Iterator[bytes]:
    pos = 0
    while pos < len(stream):
        size = rng.choice((1, 2, 3, 9, 64, 1000, 70_000))
        yield stream[pos : pos + size]
        pos += size


def feed_all(zmtp: Zmtp, pieces: Iterator[bytes]) -> list[Message | TooLarge]:
    return [message for piece in pieces for message in zmtp.feed(piece)]


def read_into_gap(zmtp: Zmtp, stream: bytes, size: int) -> list[Message | TooLarge]:
    """As a BufferedProtocol does: into the gap while there is one, else into a buffer that is fed."""
    messages: list[Message | TooLarge] = []
    pos = 0
    while pos < len(stream):
        gap = zmtp.gap
        if gap is None:
            messages += zmtp.feed(stream[pos : pos + size])
            pos += size
        else:
            count = min(size, len(gap), len(stream) - pos)
            gap[:count] = stream[pos : pos + count]
            messages += zmtp.fill(count)
            pos += count
    return messages


# ---- greeting and handshake


def test_our_greeting_waits_to_be_written_before_anything_came() -> None:
    zmtp = Zmtp("ROUTER")
    assert zmtp.outgoing == [greeting()]
    assert len(OUR_GREETING) == 64
    assert not zmtp.ready


def test_ready_is_sent_once_the_greeting_is_whole() -> None:
    zmtp = Zmtp("DEALER", b"me", dials=True)
    zmtp.outgoing.clear()
    zmtp.feed(greeting()[:63])
    assert zmtp.outgoing == []
    zmtp.feed(greeting()[63:])
    assert zmtp.outgoing == [ready(b"DEALER", b"me")]
    assert not zmtp.ready


@pytest.mark.parametrize(("ours", "theirs"), [(ours, theirs) for ours in ACCEPTED for theirs in ACCEPTED[ours]])
@pytest.mark.parametrize("dials", [False, True])
def test_every_accepted_pair_shakes_hands_in_both_roles(ours: str, theirs: str, dials: bool) -> None:
    left = Zmtp(ours, b"left", dials=dials)
    right = Zmtp(theirs, b"right", dials=not dials)
    talk(left, right)
    assert (left.ready, right.ready) == (True, True)
    assert (left.peer_identity, left.peer_socket_type, left.peer_version) == (b"right", theirs, (3, 1))
    assert (right.peer_identity, right.peer_socket_type, right.peer_version) == (b"left", ours, (3, 1))
    assert right.feed(wire([b"", b"hello"])) == [[b"", b"hello"]]
    assert left.feed(wire([b"", b"world"])) == [[b"", b"world"]]


def talk(left: Zmtp, right: Zmtp) -> None:
    while left.outgoing or right.outgoing:
        from_left, from_right = b"".join(left.outgoing), b"".join(right.outgoing)
        left.outgoing.clear()
        right.outgoing.clear()
        right.feed(from_left)
        left.feed(from_right)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ours, theirs)
        for ours in ACCEPTED
        for theirs in (*ACCEPTED, "PUB", "router", "")
        if theirs not in ACCEPTED[ours]
    ],
)
def test_every_other_pair_is_told_and_refused(ours: str, theirs: str) -> None:
    zmtp = Zmtp(ours)
    zmtp.feed(greeting() + ready(theirs.encode()))
    assert reason_of(zmtp) == "socket type"
    assert zmtp.outgoing[-1][2:8] == b"\x05ERROR"
    assert ours.encode() in zmtp.outgoing[-1]
    assert not zmtp.ready


def test_two_of_ours_that_do_not_fit_both_learn_why() -> None:
    left, right = Zmtp("REP"), Zmtp("ROUTER")
    talk(left, right)
    assert {reason_of(left), reason_of(right)} == {"socket type"}


def test_a_peer_without_a_socket_type_is_refused() -> None:
    zmtp = Zmtp("ROUTER")
    zmtp.feed(greeting() + command(b"READY"))
    assert reason_of(zmtp) == "socket type"


@pytest.mark.parametrize(
    ("ours", "stream", "socket_type", "identity", "messages"),
    [
        ("ROUTER", LIBZMQ_DEALER, "DEALER", b"worker-1", [[b"", b"hello"]]),
        ("ROUTER", LIBZMQ_REQ, "REQ", b"", [[b"", b"hi"]]),
        ("ROUTER", LIBZMQ_LONG_REQ, "REQ", b"abc", [[b"", b"x" * 300]]),
        ("ROUTER", LIBZMQ_HEARTBEAT, "DEALER", b"", []),
        ("DEALER", LIBZMQ_REP, "REP", b"", []),
        ("DEALER", LIBZMQ_ROUTER, "ROUTER", b"R", []),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_what_libzmq_really_sends_is_understood(
    ours: str, stream: bytes, socket_type: str, identity: bytes, messages: list[Message], size: int
) -> None:
    zmtp = Zmtp(ours)
    assert feed_all(zmtp, pieces_of(stream, size)) == messages
    assert zmtp.failure is None
    assert (zmtp.ready, zmtp.peer_socket_type, zmtp.peer_identity) == (True, socket_type, identity)
    assert zmtp.peer_version == (3, 1)


def test_the_heartbeat_of_libzmq_is_answered() -> None:
    zmtp = Zmtp("ROUTER")
    zmtp.feed(LIBZMQ_HEARTBEAT)
    assert zmtp.outgoing[-1] == command(b"PONG")


@pytest.mark.parametrize(
    ("version", "understood"),
    [(b"\x03\x00", (3, 0)), (b"\x03\x01", (3, 1)), (b"\x03\x02", (3, 1)), (b"\x03\xff", (3, 1)), (b"\x04\x00", (3, 1))],
)
def test_newer_peers_are_spoken_to_as_3_1_and_3_0_peers_as_3_0(version: bytes, understood: tuple[int, int]) -> None:
    zmtp = started(version=version)
    assert zmtp.peer_version == understood
    assert zmtp.feed(wire([b"", b"hello"])) == [[b"", b"hello"]]


def test_names_of_properties_are_the_same_in_any_case_and_unknown_ones_are_ignored() -> None:
    zmtp = Zmtp("ROUTER")
    zmtp.feed(
        greeting()
        + command(b"READY", prop(b"X-Own", b"1") + prop(b"SOCKET-type", b"REQ") + prop(b"iDENTITY", b"\x00i"))
    )
    assert (zmtp.ready, zmtp.peer_socket_type, zmtp.peer_identity) == (True, "REQ", b"\x00i")


def test_ready_in_a_long_frame_is_understood() -> None:
    body = ready()[2:]
    zmtp = Zmtp("ROUTER")
    zmtp.feed(greeting() + b"\x06" + len(body).to_bytes(8, "big") + body)
    assert zmtp.ready


def test_an_identity_of_255_bytes_is_taken_and_one_of_256_is_not() -> None:
    longest, too_long = Zmtp("ROUTER"), Zmtp("ROUTER")
    longest.feed(greeting() + ready(identity=b"i" * 255))
    too_long.feed(greeting() + ready(identity=b"i" * 256))
    assert longest.peer_identity == b"i" * 255
    assert reason_of(too_long) == "identity too long"


def test_mistakes_of_our_own_are_value_errors() -> None:
    with pytest.raises(ValueError, match="socket type"):
        Zmtp("PUB")
    with pytest.raises(ValueError, match="max_identity"):
        Zmtp("ROUTER", b"i" * 256)
    with pytest.raises(ValueError, match="hard_cap"):
        Limits(max_payload=11, hard_cap=10)
    with pytest.raises(ValueError, match="context"):
        Zmtp("ROUTER").ping(context=bytes(17))


# ---- strangers and old peers


@pytest.mark.parametrize(
    ("stream", "name"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /v1/jobs HTTP/1.1\r\n", "HTTP"),
        (b"HEAD / HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP/2"),
        (b"\x00SP\x00\x00\x30\x00\x00", "NNG"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"SSH-2.0-OpenSSH_9.2", "SSH"),
        (b"\x07\x07", "07 07"),
    ],
)
def test_a_stranger_is_named(stream: bytes, name: str) -> None:
    whole, bytewise = Zmtp("ROUTER"), Zmtp("ROUTER")
    whole.feed(stream)
    feed_all(bytewise, pieces_of(stream, 1))
    assert reason_of(whole) == reason_of(bytewise) == "not zmtp"
    assert whole.failure is not None
    assert name in whole.failure.detail
    assert str(whole.failure) == str(bytewise.failure)


def test_the_detail_says_which_side_dialled() -> None:
    called, dialled = Zmtp("ROUTER"), Zmtp("DEALER", dials=True)
    called.feed(b"GET /")
    dialled.feed(b"HTTP/1.1 400")
    assert "connected" in str(called.failure)
    assert "dialled" in str(dialled.failure)


def test_a_signature_that_ends_wrong_is_refused_at_its_last_byte() -> None:
    zmtp = Zmtp("ROUTER")
    zmtp.feed(b"\xff" + bytes(8))
    assert zmtp.failure is None
    zmtp.feed(b"\x55")
    assert reason_of(zmtp) == "not zmtp"


@pytest.mark.parametrize(
    "stream",
    [
        b"\x01\x00",  # ZMTP 1, anonymous
        b"\x05\x00abcd",  # ZMTP 1 with an identity
        b"\xff" + bytes(7) + b"\x01" + b"\x00",  # ZMTP 1 with a long length
        b"\xff" + bytes(7) + b"\x01" + b"\x7f\x01\x05",  # ZMTP 2, a DEALER
        b"\xff" + bytes(7) + b"\x01" + b"\x7f\x00",
    ],
)
def test_an_old_peer_is_recognised_before_its_greeting_would_be_whole(stream: bytes) -> None:
    whole, bytewise = Zmtp("ROUTER"), Zmtp("ROUTER")
    whole.feed(stream)
    feed_all(bytewise, pieces_of(stream, 1))
    assert reason_of(whole) == reason_of(bytewise) == "old zmtp"


@pytest.mark.parametrize("mechanism", [b"PLAIN", b"CURVE", b"", b"NULLX", b"\xff\n\x00x"])
def test_another_mechanism_is_told_and_refused(mechanism: bytes) -> None:
    zmtp = Zmtp("ROUTER")
    zmtp.feed(greeting(mechanism=mechanism)[:32])
    assert reason_of(zmtp) == "mechanism"
    assert zmtp.outgoing[-1][2:8] == b"\x05ERROR"
    assert "\n" not in str(zmtp.failure)


# ---- a handshake that goes wrong


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"\x00\x05hello", "traffic before ready"),
        (b"\x01", "traffic before ready"),
        (b"\x0c", "bad flags"),
        (b"\x05", "bad flags"),
        (command(b"PING", b"\0\0"), "bad handshake"),
        (command(b"HELLO", b""), "bad handshake"),
        (b"\x06" + (16 * KIB).to_bytes(8, "big"), "bad handshake"),
        (b"\x06\xff" + bytes(7), "bad handshake"),
        (b"\x04\x00", "bad command"),
        (b"\x04\x01\x00", "bad command"),
        (b"\x04\x05\x05READ", "bad command"),
        (command(b"READY", b"\x00\x00\x00\x00\x00"), "bad metadata"),
        (command(b"READY", b"\x0bSocket-Type"), "bad metadata"),
        (command(b"READY", b"\x0bSocket-Type\x00\x00\x00"), "bad metadata"),
        (command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x07DEALER"), "bad metadata"),
        (command(b"READY", b"\x0bSocket-Type\xff\xff\xff\xffDEALER"), "bad metadata"),
        (command(b"READY", b"\xffSocket-Type\x00\x00\x00\x06DEALER"), "bad metadata"),
        (command(b"READY", prop(b"Identity", b"a") + prop(b"identity", b"b")), "bad metadata"),
        (command(b"READY", prop(b"X", bytes(8 * KIB))), "bad metadata"),
        (command(b"ERROR", b"\x04nope"), "peer error"),
        (command(b"ERROR"), "peer error"),
    ],
)
def test_a_broken_handshake_is_refused_however_it_is_cut(stream: bytes, reason: str) -> None:
    whole, bytewise = Zmtp("ROUTER"), Zmtp("ROUTER")
    whole.feed(greeting() + stream)
    feed_all(bytewise, pieces_of(greeting() + stream, 1))
    assert reason_of(whole) == reason_of(bytewise) == reason
    assert not whole.ready


def test_the_reason_a_peer_gives_is_kept_short_and_escaped() -> None:
    zmtp = Zmtp("ROUTER")
    zmtp.feed(greeting() + command(b"ERROR", b"\xc8" + b"bad\nline \x1b[31m".ljust(200, b"!")))
    detail = str(zmtp.failure)
    assert r"bad\nline \x1b[31m" in detail
    assert len(detail) < 200


# ---- traffic

SIZES = [0, 1, 100, 255, 256, 65535, 65536, 65537, MIB]
VARIED = [
    *([bytes([size % 251]) * size] for size in SIZES),
    [b"", b"a" * 100],
    [b"", b"b" * 300, b"", b"c" * 70_000, b""],
    [bytes([n]) * n for n in range(40)],
    [b"tail"],
]
CUTS: dict[str, Callable[[Zmtp, bytes], list[Message | TooLarge]]] = {
    "whole": lambda zmtp, stream: zmtp.feed(stream),
    "by 1 KiB": lambda zmtp, stream: feed_all(zmtp, pieces_of(stream, KIB)),
    "by 64 KiB": lambda zmtp, stream: feed_all(zmtp, pieces_of(stream, 64 * KIB)),
    "at random": lambda zmtp, stream: feed_all(zmtp, random_pieces(stream, random.Random(7))),
    "gap by 1000": lambda zmtp, stream: read_into_gap(zmtp, stream, 1000),
    "gap by 64 KiB": lambda zmtp, stream: read_into_gap(zmtp, stream, 64 * KIB),
    "gap by MiB": lambda zmtp, stream: read_into_gap(zmtp, stream, MIB),
}


@pytest.mark.parametrize("cut", CUTS)
def test_messages_of_all_sizes_come_out_alike_however_they_are_cut(cut: str) -> None:
    """I18."""
    zmtp = started()
    assert CUTS[cut](zmtp, wire(*VARIED)) == VARIED
    assert zmtp.failure is None
    assert zmtp.gap is None


def test_messages_fed_byte_by_byte_come_out_alike() -> None:
    """I18. A frame of 60 KiB and a large one are among them, so work that grows with the square would be felt here."""
    messages: list[list[bytes]] = [[b"", b"x" * 100], [b"a", b"", b"y" * 60 * KIB], [b"z" * 70_000, b"end"]]
    zmtp = started()
    assert feed_all(zmtp, pieces_of(wire(*messages), 1)) == messages


@pytest.mark.parametrize("tail", [1, 2, 3, 50])
def test_a_tail_waits_for_its_rest(tail: int) -> None:
    first, second = wire([b"", b"first"]), wire([b"", b"s" * 100])
    zmtp = started()
    assert zmtp.feed(first + second[:tail]) == [[b"", b"first"]]
    assert zmtp.feed(b"") == []
    assert zmtp.feed(second[tail:]) == [[b"", b"s" * 100]]


def test_messages_that_came_with_the_handshake_are_handed_up() -> None:
    zmtp = Zmtp("ROUTER")
    assert zmtp.feed(greeting() + ready() + wire([b"", b"one"], [b"two"])) == [[b"", b"one"], [b"two"]]


def test_a_short_body_in_a_long_frame_is_legal() -> None:
    zmtp = started()
    assert zmtp.feed(b"\x03" + bytes(8) + b"\x02" + (2).to_bytes(8, "big") + b"hi") == [[b"", b"hi"]]


def test_a_message_list_is_not_touched_after_it_was_handed_up() -> None:
    zmtp = started()
    (first,) = zmtp.feed(wire([b"", b"one"]))
    zmtp.feed(wire([b"", b"two"]))
    assert first == [b"", b"one"]


# ---- large frames


def test_a_gap_opens_for_a_large_frame_and_closes_when_it_is_full() -> None:
    stream = wire([b"", b"x" * 100_000])
    zmtp = started()
    zmtp.feed(stream[:50_000])
    assert zmtp.gap is not None
    rest = stream[50_000:]
    assert len(zmtp.gap) == len(rest)
    zmtp.gap[:] = rest
    assert zmtp.fill(len(rest)) == [[b"", b"x" * 100_000]]
    assert zmtp.gap is None


def test_feeding_while_a_gap_is_open_goes_into_the_gap_and_beyond() -> None:
    stream = wire([b"x" * 100_000], [b"next"])
    zmtp = started()
    zmtp.feed(stream[:50_000])
    assert zmtp.feed(stream[50_000:]) == [[b"x" * 100_000], [b"next"]]


def test_a_large_frame_that_is_not_the_last_waits_for_the_others() -> None:
    stream = wire([b"x" * 100_000, b"y" * 100_000, b"z"])
    assert read_into_gap(started(), stream, 30_000) == [[b"x" * 100_000, b"y" * 100_000, b"z"]]


def test_a_mebibyte_whose_beginning_came_in_one_read_gets_its_buffer_at_once() -> None:
    zmtp = started()
    stream = wire([b"x" * MIB])
    zmtp.feed(stream[: 64 * KIB])
    assert zmtp.gap is not None
    assert len(zmtp.gap) == len(stream) - 64 * KIB


def test_a_view_that_is_still_held_does_not_hinder_growing() -> None:
    """uvloop releases the buffer only after `buffer_updated` returned; resizing it would raise BufferError."""
    body = random.Random(1).randbytes(6 * MIB)
    stream = wire([body])
    zmtp = started()
    views = []
    pos = 100
    messages = zmtp.feed(stream[:pos])
    while zmtp.gap is not None:
        view = zmtp.gap
        views.append(memoryview(view))
        count = min(len(view), 64 * KIB)
        view[:count] = stream[pos : pos + count]
        pos += count
        messages += zmtp.fill(count)
    assert messages == [[body]]


def test_filling_more_than_the_gap_is_our_mistake() -> None:
    zmtp = started()
    assert zmtp.fill(10) == []
    zmtp.feed(b"\x02" + (100_000).to_bytes(8, "big"))
    with pytest.raises(ValueError, match="gap"):
        zmtp.fill(100_001)


# ---- commands


def test_a_ping_between_messages_is_answered_with_its_context() -> None:
    zmtp = started()
    stream = wire([b"", b"one"]) + command(b"PING", b"\x00\x1econtext") + wire([b"two"])
    assert zmtp.feed(stream) == [[b"", b"one"], [b"two"]]
    assert zmtp.outgoing == [command(b"PONG", b"context")]


def test_our_ping_is_answered_by_our_pong_and_the_pong_is_not_handed_up() -> None:
    left, right = Zmtp("DEALER", dials=True), Zmtp("ROUTER")
    talk(left, right)
    assert left.ping(30, b"0123456789abcdef") == command(b"PING", b"\x00\x1e0123456789abcdef")
    assert right.feed(left.ping(30, b"0123456789abcdef")) == []
    assert right.outgoing == [command(b"PONG", b"0123456789abcdef")]
    assert left.feed(right.outgoing[0]) == []
    assert (left.failure, left.outgoing) == (None, [])


def test_unknown_commands_are_ignored_in_short_and_long_frames() -> None:
    zmtp = started()
    stream = command(b"SUBSCRIBE", b"x") + command(b"JOIN", bytes(1000)) + ready() + wire([b"hi"])
    assert feed_all(zmtp, pieces_of(stream, 10)) == [[b"hi"]]
    assert zmtp.outgoing == []


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"\x08", "bad flags"),
        (b"\x80\x00", "bad flags"),
        (b"\xff", "bad flags"),
        (b"\x05\x01x", "bad flags"),
        (b"\x07", "bad flags"),
        (command(b"PING", b"\0\0" + bytes(17)), "bad ping"),
        (command(b"PING", b"\0"), "bad ping"),
        (b"\x04\x00", "bad command"),
        (b"\x04\x02\x09x", "bad command"),
        (b"\x06" + (64 * KIB + 1).to_bytes(8, "big"), "command too large"),
        (command(b"ERROR", b"\x03bye"), "peer error"),
        (b"\x02\x80" + bytes(7), "over hard cap"),
        (b"\x02" + b"\xff" * 8, "over hard cap"),
        (b"\x02" + (1024 * MIB + 1).to_bytes(8, "big"), "over hard cap"),
        (b"\x01\x00" * 64, "too many frames"),
    ],
)
def test_what_breaks_the_rules_fails_however_it_is_cut_and_after_what_was_good(stream: bytes, reason: str) -> None:
    """R48, I18."""
    stream = wire([b"", b"good"]) + stream
    whole, bytewise = started(), started()
    assert whole.feed(stream + wire([b"never"])) == [[b"", b"good"]]
    assert feed_all(bytewise, pieces_of(stream, 1)) == [[b"", b"good"]]
    assert reason_of(whole) == reason_of(bytewise) == reason
    assert whole.outgoing == bytewise.outgoing == []


def test_nothing_is_heard_after_a_failure() -> None:
    zmtp = started()
    zmtp.feed(b"\x01\x03abc\xff")
    failure = zmtp.failure
    assert zmtp.feed(wire([b"", b"hello"])) == []
    assert zmtp.feed(command(b"PING", b"\0\0")) == []
    assert zmtp.feed(b"\x04\x00") == []
    assert zmtp.fill(5) == []
    assert zmtp.failure is failure
    assert zmtp.outgoing == []


# ---- limits

SMALL = Limits(max_payload=1000, hard_cap=100_000, max_frames=8)


def test_64_frames_pass_and_65_do_not() -> None:
    """R48."""
    zmtp = started()
    assert zmtp.feed(wire([b""] * 64)) == [[b""] * 64]
    assert zmtp.feed(wire([b"x"] * 65)) == []
    assert reason_of(zmtp) == "too many frames"


def test_exactly_max_payload_passes() -> None:
    zmtp = started(SMALL)
    message = [b"", b"a" * 400, b"b" * 600]
    assert zmtp.feed(wire(message, message)) == [message, message]


@pytest.mark.parametrize("size", [1, 2, 100, 10_000])
def test_a_message_over_max_payload_is_skipped_and_traffic_goes_on(size: int) -> None:
    """R16: the frames that came before it went over are kept, to know whom to answer."""
    big = [b"", b"id", b"a" * 900, b"b" * 200, b"c", b"d" * 3000]
    stream = wire([b"", b"before"], big, [b"", b"after"], [b"e" * 1001], [b"f" * 1000])
    zmtp = started(SMALL)
    assert feed_all(zmtp, pieces_of(stream, size)) == [
        [b"", b"before"],
        TooLarge([b"", b"id", b"a" * 900], 4103),
        [b"", b"after"],
        TooLarge([], 1001),
        [b"f" * 1000],
    ]
    assert zmtp.failure is None


@pytest.mark.parametrize("cut", CUTS)
def test_a_large_frame_before_the_one_that_went_over_is_let_go(cut: str) -> None:
    """R16: frames after it are let go, too, so that those that are left stand where they stood."""
    stream = wire([b"", b"id", b"x" * 100_000, b"small", b"y" * 200_000], [b"next"])
    zmtp = started(Limits(max_payload=250_000))
    assert CUTS[cut](zmtp, stream) == [TooLarge([b"", b"id"], 300_007), [b"next"]]


def test_too_large_is_handed_up_with_the_last_byte_and_leaves_nothing_behind() -> None:
    """R16."""
    zmtp = started(SMALL)
    assert zmtp.feed(wire([b"a", b"x" * 1001])) == [TooLarge([b"a"], 1002)]
    zmtp.feed(command(b"PING", b"\0\0"))
    assert zmtp.outgoing == [command(b"PONG")]
    assert zmtp.feed(wire([b"y" * 125] * 8)) == [[b"y" * 125] * 8]


def test_a_claim_over_max_payload_opens_no_gap() -> None:
    zmtp = started(Limits(max_payload=100_000))
    zmtp.feed(b"\x02" + (200_000).to_bytes(8, "big") + b"x" * 70_000)
    assert zmtp.gap is None
    assert zmtp.failure is None


def test_frames_are_counted_in_a_skipped_message_too() -> None:
    """R48."""
    zmtp = started(SMALL)
    assert feed_all(zmtp, pieces_of(wire([b"x" * 1001] * 9), 100)) == []
    assert reason_of(zmtp) == "too many frames"


@pytest.mark.parametrize("size", [1, 30, 5000])
def test_a_heartbeat_inside_a_message_is_answered_and_the_message_goes_on(size: int) -> None:
    """libzmq 4.3.5 sends PING and PONG after a large frame, be it the last or not; refusing them cut workers off."""
    zmtp = started(SMALL)
    ping, pong = command(b"PING", b"\0\0c"), command(b"PONG")
    stream = (
        b"\x01\x01a" + ping + b"\x00\x01b" + b"\x03" + (1001).to_bytes(8, "big") + bytes(1001) + pong + b"\x00\x01c"
    )
    assert feed_all(zmtp, pieces_of(stream, size)) == [[b"a", b"b"], TooLarge([], 1002)]
    assert zmtp.outgoing == [command(b"PONG", b"c")]


def test_the_sum_of_a_skipped_message_is_held_against_the_hard_cap() -> None:
    """R16, R48."""
    zmtp = started(SMALL)
    assert feed_all(zmtp, pieces_of(wire([b"x" * 40_000] * 3), 5000)) == []
    assert reason_of(zmtp) == "over hard cap"


def test_limits_of_handshake_identity_and_commands_can_be_set() -> None:
    limits = Limits(max_identity=3, max_metadata=60, max_handshake=200, max_command=20)
    reasons = []
    for stream in (
        ready(identity=b"four"),
        command(b"READY", prop(b"X", bytes(70))),
        b"\x04\xff",
        ready() + command(b"JOIN", bytes(30)),
    ):
        zmtp = Zmtp("ROUTER", limits=limits)
        zmtp.feed(greeting() + stream)
        reasons.append(reason_of(zmtp))
    assert reasons == ["identity too long", "bad metadata", "bad handshake", "command too large"]


def test_a_command_of_exactly_max_command_passes() -> None:
    zmtp = started(Limits(max_command=20))
    assert zmtp.feed(command(b"JOIN", bytes(15)) + wire([b"hi"])) == [[b"hi"]]


# ---- memory


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_a_claim_alone_costs_64_kib() -> None:
    """R48: bytearray(n) touches n bytes, so a buffer must follow what came and not what was claimed."""
    zmtp = started()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    zmtp.feed(b"\x02" + (60 * MIB).to_bytes(8, "big") + b"some")
    assert tracemalloc.get_traced_memory()[1] - before < 70 * KIB


@pytest.mark.usefixtures("traced")
def test_a_buffer_grows_with_what_really_came() -> None:
    zmtp = started()
    piece = bytes(64 * KIB)
    before = tracemalloc.get_traced_memory()[0]
    zmtp.feed(b"\x02" + (60 * MIB).to_bytes(8, "big"))
    for count in range(1, 100):
        zmtp.feed(piece)
        held = tracemalloc.get_traced_memory()[0] - before
        assert held <= max(MIB, 4 * count * len(piece)) + 64 * KIB


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("frame_size", [0, 1, 1000, 60_000, 100_000, 900_000, 2_000_000])
def test_an_unfinished_message_holds_no_more_than_the_limit_and_64_kib(frame_size: int) -> None:
    """R48, I18: libzmq held 610 MiB for 30 MB of one-byte parts."""
    frame = b"\x03" + frame_size.to_bytes(8, "big") + bytes(frame_size)
    zmtp = started(Limits(max_payload=MIB))
    stream = frame * 63 if frame_size < MIB else frame * 4
    pieces = list(pieces_of(stream, 10_000))
    before = tracemalloc.get_traced_memory()[0]
    most = 0
    for piece in pieces:
        assert zmtp.feed(piece) == []
        most = max(most, tracemalloc.get_traced_memory()[0] - before)
    assert zmtp.failure is None
    assert most <= MIB + 64 * KIB


# ---- encoding


@pytest.mark.parametrize(
    ("frames", "buffers"),
    [
        ([b""], [b"\x00\x00"]),
        ([b"", b"hi"], [b"\x01\x00\x00\x02hi"]),
        ([b"x" * 255], [b"\x00\xff" + b"x" * 255]),
        ([b"x" * 256, b""], [b"\x03" + (256).to_bytes(8, "big") + b"x" * 256 + b"\x00\x00"]),
        ([b"a", bytearray(b"b")], [b"\x01\x01a\x00\x01b"]),
        ([b"a", b"x" * 300], [b"\x01\x01a\x02" + (300).to_bytes(8, "big") + b"x" * 300]),
    ],
)
def test_small_frames_are_joined(frames: list[Frame], buffers: list[bytes]) -> None:
    encoded = encode(frames)
    assert encoded == buffers
    assert type(encoded[0]) is bytes


def test_large_frames_are_passed_on_uncopied() -> None:
    first, second = b"f" * 16 * KIB, bytearray(b"s" * MIB)
    encoded = encode([b"", first, b"m" * 300, second])
    assert encoded == [
        b"\x01\x00\x03" + (16 * KIB).to_bytes(8, "big"),
        first,
        b"\x03" + (300).to_bytes(8, "big") + b"m" * 300 + b"\x02" + MIB.to_bytes(8, "big"),
        second,
    ]
    assert encoded[1] is first
    assert encoded[3] is second


def test_what_follows_a_large_frame_is_written_after_it() -> None:
    assert encode([b"x" * 16 * KIB, b"", b"y"]) == [
        b"\x03" + (16 * KIB).to_bytes(8, "big"),
        b"x" * 16 * KIB,
        b"\x01\x00\x00\x01y",
    ]
