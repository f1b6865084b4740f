"""PLAIN: every byte, every state with every command, and everything that must be refused."""

from __future__ import annotations

import pytest
from cut_streams import feed_all, pieces_of, reason_of
from zmtp_wire import command, prop, ready, talk, wire

from case_tables import check_every_row
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_commands import ACCEPTED
from dragoman.carriers.zmtp_plain import PlainClient, PlainServer

NAME, PASSWORD = b"token", b"dgm_secret"
METADATA = prop(b"Socket-Type", b"DEALER") + prop(b"Identity", b"us")
HELLO = command(b"HELLO", b"\x05token\x0adgm_secret")
WELCOME = command(b"WELCOME")
INITIATE = command(b"INITIATE", METADATA)
READY = ready(b"ROUTER", b"us")


def greeting(is_server: bool = False) -> bytes:
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"PLAIN".ljust(20, b"\0") + bytes([is_server]) + bytes(31)


def server(socket_type: str = "ROUTER") -> Zmtp:
    return Zmtp(socket_type, b"us", security=PlainServer(lambda name, password: (name, password) == (NAME, PASSWORD)))


def client(name: bytes = NAME, password: bytes = PASSWORD, socket_type: str = "DEALER") -> Zmtp:
    return Zmtp(socket_type, b"us", dials=True, security=PlainClient(name, password))


def test_every_byte_of_both_sides_is_as_in_rfc_24() -> None:
    ours, theirs = server(), client()
    assert (ours.outgoing, theirs.outgoing) == ([greeting(is_server=True)], [greeting()])
    ours.feed(greeting() + HELLO + INITIATE)
    theirs.feed(greeting(is_server=True) + WELCOME + READY)
    assert ours.outgoing[1:] == [WELCOME, READY]
    assert theirs.outgoing[1:] == [HELLO, INITIATE]
    assert (ours.ready, ours.failure, ours.peer_token, ours.peer_key) == (True, None, PASSWORD, b"")
    assert (theirs.ready, theirs.failure, theirs.peer_token, theirs.peer_key) == (True, None, b"", b"")
    assert (ours.peer_socket_type, ours.peer_identity) == ("DEALER", b"us")


@pytest.mark.parametrize(("ours", "theirs"), [(ours, theirs) for ours in ACCEPTED for theirs in ACCEPTED[ours]])
def test_every_accepted_pair_of_sockets_shakes_hands_and_talks_as_with_null(ours: str, theirs: str) -> None:
    left, right = server(ours), client(socket_type=theirs)
    talk(left, right)
    assert (left.ready, right.ready) == (True, True)
    assert right.feed(wire([b"", b"hello"])) == [[b"", b"hello"]]
    assert left.feed(wire([b"world"])) == [[b"world"]]


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_a_handshake_fed_in_pieces_is_the_same(size: int) -> None:
    ours, theirs = server(), client()
    assert feed_all(ours, pieces_of(greeting() + HELLO + INITIATE + wire([b"hello"]), size)) == [[b"hello"]]
    assert feed_all(theirs, pieces_of(greeting() + WELCOME + READY + wire([b"world"]), size)) == [[b"world"]]


COMMANDS = {
    "HELLO": HELLO,
    "WELCOME": WELCOME,
    "INITIATE": INITIATE,
    "READY": READY,
    "ERROR": command(b"ERROR", b"\x03500"),
    "MESSAGE": command(b"MESSAGE", bytes(30)),
    "PING": command(b"PING", b"\0\0"),
    "no name": b"\x04\x00",
    "empty name": b"\x04\x01\x00",
    "frame": b"\x00\x05hello",
    "reserved flags": b"\x0c\x00",
    "command with more": b"\x05\x00",
}
STATES = {
    "server before HELLO": greeting(),
    "server before INITIATE": greeting() + HELLO,
    "client before WELCOME": greeting(),
    "client before READY": greeting() + WELCOME,
}
LEGAL = {
    ("server before HELLO", "HELLO"),
    ("server before INITIATE", "INITIATE"),
    ("client before WELCOME", "WELCOME"),
    ("client before READY", "READY"),
}
REASONS = {
    "no name": "bad command",
    "empty name": "bad command",
    "frame": "traffic before ready",
    "reserved flags": "bad flags",
    "command with more": "bad flags",
}


def test_every_state_times_every_command() -> None:
    """After READY all is as with NULL, which other tests cover."""

    def check(state: str, name: str) -> None:
        for size in (1, 10_000):
            carrier = server() if state.startswith("server") else client()
            carrier.feed(STATES[state])
            sent = len(carrier.outgoing)
            feed_all(carrier, pieces_of(COMMANDS[name], size))
            if (state, name) in LEGAL:
                assert carrier.failure is None
                assert carrier.ready == (name in ("INITIATE", "READY"))
                continue
            expected = REASONS.get(name, "bad handshake")
            if name == "ERROR" and state.startswith("client"):
                expected = "peer error"
            assert reason_of(carrier) == expected
            assert not carrier.ready
            assert len(carrier.outgoing) == sent

    check_every_row(check, [(state, name) for state in STATES for name in COMMANDS])


@pytest.mark.parametrize(("name", "password"), [(NAME, b"wrong"), (b"", b""), (b"other", PASSWORD), (NAME, b"x" * 255)])
def test_an_unknown_password_gets_400_and_is_not_in_the_log(name: bytes, password: bytes) -> None:
    ours, theirs = server(), client(name, password)
    talk(ours, theirs)
    assert (reason_of(ours), reason_of(theirs)) == ("unknown password", "rejected")
    assert "start the peer again" in str(ours.failure)
    assert "does not accept this name and password" in str(theirs.failure)
    assert (ours.ready, theirs.ready, ours.peer_token) == (False, False, b"")
    assert not password or password.decode() not in str(ours.failure)
    refused = server()
    refused.feed(greeting() + command(b"HELLO", b"\0\0"))
    assert refused.outgoing[-1] == command(b"ERROR", b"\x03400")


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\x00",
        b"\x05token",
        b"\x05token\x0b" + PASSWORD,
        b"\x05token\x09" + PASSWORD,
        b"\x05token\x0a" + PASSWORD + b"\0",
        b"\xfftoken\x0a" + PASSWORD,
        b"\x06token",
    ],
)
def test_a_hello_that_is_no_name_and_password_is_refused_before_it_is_checked(rest: bytes) -> None:
    carrier = server()
    carrier.feed(greeting() + command(b"HELLO", rest))
    assert reason_of(carrier) == "bad handshake"
    assert carrier.outgoing == [greeting(is_server=True)]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (command(b"WELCOME", b"x"), "bad handshake"),
        (WELCOME + command(b"READY", b"\0"), "bad metadata"),
        (WELCOME + ready(b"PUB"), "socket type"),
        (WELCOME + command(b"ERROR", b"\x03400"), "rejected"),
        (command(b"ERROR", b"\x03300"), "peer error"),
    ],
)
def test_every_check_of_the_client_refuses(sent: bytes, reason: str) -> None:
    carrier = client()
    carrier.feed(greeting() + sent)
    assert reason_of(carrier) == reason
    assert all(b"ERROR" not in each for each in carrier.outgoing), "a client sends no ERROR"


def test_a_socket_that_does_not_fit_gets_an_error_with_the_reason() -> None:
    ours, theirs = server("REP"), client(socket_type="ROUTER")
    talk(ours, theirs)
    assert (reason_of(ours), reason_of(theirs)) == ("socket type", "peer error")
    assert "ROUTER came to a REP" in str(theirs.failure)


@pytest.mark.parametrize("field", ["name", "password"])
def test_a_name_or_password_over_255_bytes_is_a_value_error(field: str) -> None:
    with pytest.raises(ValueError, match=f"a {field} of 256 bytes; PLAIN allows 255"):
        PlainClient(**{"name": b"", "password": b"", field: bytes(256)})


def test_passwords_are_not_in_the_text_of_a_security() -> None:
    assert "secret" not in repr(PlainClient(NAME, PASSWORD))
