"""ZMTP handshakes: greetings, socket types, recorded handshakes, other protocols and errors."""

from __future__ import annotations

import pytest
from cut_streams import KIB, feed_all, pieces_of, reason_of
from zmtp_wire import command, greeting, prop, ready, started, talk, wire

from dragoman.carriers.carrier import Message
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_commands import ACCEPTED, OUR_GREETING
from dragoman.carriers.zmtp_limits import ZmtpLimits

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
        ZmtpLimits(max_payload=11, hard_cap=10)
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
