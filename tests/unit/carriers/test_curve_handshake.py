"""Handshakes of CURVE: every byte, every state with every command, and everything that must be refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from curve_wire import (
    CLIENT,
    CLIENT_TRANSIENT,
    OLD_SERVER,
    OTHER,
    SERVER,
    SERVER_TRANSIENT,
    Counted,
    curve_client,
    curve_greeting,
    curve_server,
    error,
    hello,
    initiate,
    message,
    metadata,
    ready,
    vouch,
    welcome,
)
from cut_streams import feed_all, pieces_of, reason_of
from zmtp_wire import command, greeting, prop, talk

from case_tables import check_every_row
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_commands import ACCEPTED
from dragoman.carriers.zmtp_curve import CurveZmtp, zmtp_carrier
from dragoman.carriers.zmtp_curve_handshake import CurveClient, CurveServer
from dragoman.carriers.zmtp_handshake import NULL
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.carriers.zmtp_plain import PlainClient, PlainServer

GREETING_HELLO = curve_greeting() + hello()
LOW_ORDER = bytes(32)


# ---- every byte


def test_every_byte_of_the_server_is_as_in_rfc_26() -> None:
    carrier = curve_server()
    assert carrier.outgoing == [curve_greeting(is_server=True)]
    carrier.outgoing.clear()
    carrier.feed(curve_greeting())
    assert carrier.outgoing == []
    carrier.feed(hello())
    assert carrier.outgoing == [welcome()]
    carrier.outgoing.clear()
    carrier.feed(initiate())
    assert carrier.outgoing == [ready()]
    assert (carrier.ready, carrier.failure, carrier.peer_key, carrier.peer_token) == (True, None, CLIENT[0], b"")
    assert (carrier.peer_socket_type, carrier.peer_identity, carrier.peer_version) == ("DEALER", b"us", (3, 1))


def test_every_byte_of_the_client_is_as_in_rfc_26() -> None:
    carrier = curve_client()
    assert carrier.outgoing == [curve_greeting()]
    carrier.outgoing.clear()
    carrier.feed(curve_greeting(is_server=True))
    assert carrier.outgoing == [hello()]
    carrier.outgoing.clear()
    carrier.feed(welcome())
    assert carrier.outgoing == [initiate()]
    carrier.outgoing.clear()
    carrier.feed(ready())
    assert carrier.outgoing == []
    assert (carrier.ready, carrier.failure, carrier.peer_key, carrier.peer_token) == (True, None, SERVER[0], b"")
    assert (carrier.peer_socket_type, carrier.peer_identity, carrier.peer_version) == ("ROUTER", b"us", (3, 1))


def test_sizes_and_flags_of_the_commands_are_those_of_the_table() -> None:
    """HELLO has 200 bytes, WELCOME 168, both with flag 4; INITIATE 257 and its metadata, with flags 4 and 2; READY 30
    and its metadata."""
    assert [hello()[:2], welcome()[:2]] == [b"\x04\xc8", b"\x04\xa8"]
    assert initiate()[:9] == b"\x06" + (257 + len(metadata(b"DEALER"))).to_bytes(8, "big")
    assert ready()[:2] == bytes([4, 30 + len(metadata(b"ROUTER"))])


@pytest.mark.parametrize("as_server", [0, 1, 0xFF])
def test_the_as_server_flag_of_the_peer_is_not_judged(as_server: int) -> None:
    """libzmq leaves it 0 as a server, too."""
    theirs = bytearray(curve_greeting())
    theirs[32] = as_server
    server, client = curve_server(), curve_client()
    server.feed(bytes(theirs) + hello() + initiate())
    client.feed(bytes(theirs) + welcome() + ready())
    assert (server.ready, client.ready) == (True, True)


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_a_handshake_fed_in_pieces_is_the_same(size: int) -> None:
    server, client = curve_server(), curve_client()
    stream = GREETING_HELLO + initiate() + message(b"", 3, 1) + message(b"hello", 4)
    assert feed_all(server, pieces_of(stream, size)) == [[b"", b"hello"]]
    stream = curve_greeting() + welcome() + ready() + message(b"world", 2, from_client=False)
    assert feed_all(client, pieces_of(stream, size)) == [[b"world"]]
    assert b"".join(server.outgoing) == curve_greeting(is_server=True) + welcome() + ready()
    assert b"".join(client.outgoing) == curve_greeting() + hello() + initiate()


@pytest.mark.parametrize(("ours", "theirs"), [(ours, theirs) for ours in ACCEPTED for theirs in ACCEPTED[ours]])
def test_every_accepted_pair_of_sockets_shakes_hands_and_talks(ours: str, theirs: str) -> None:
    left, right = curve_server(socket_type=ours), curve_client(socket_type=theirs)
    talk(left, right)
    assert (left.ready, right.ready) == (True, True)
    assert right.feed(b"".join(left.encode([b"", b"hello"]))) == [[b"", b"hello"]]
    assert left.feed(b"".join(right.encode([b"world"]))) == [[b"world"]]


def test_the_server_may_dial_and_the_client_may_listen() -> None:
    left = zmtp_carrier("ROUTER", dials=True, security=CurveServer((SERVER,), lambda key: True, Counted(1)))
    right = zmtp_carrier("DEALER", security=CurveClient(CLIENT, SERVER[0], Counted(9)))
    talk(left, right)
    assert (left.ready, right.ready) == (True, True)


# ---- every state with every command

COMMANDS = {
    "HELLO": hello(),
    "WELCOME": welcome(),
    "INITIATE": initiate(),
    "READY": ready(),
    "ERROR": error(b"500"),
    "MESSAGE": message(b"x", 9),
    "MESSAGE as a command": message(b"x", 9, outer=4),
    "PING": command(b"PING", b"\0\0"),
    "PONG": command(b"PONG"),
    "SUBSCRIBE": command(b"SUBSCRIBE", b"x"),
    "no name": b"\x04\x00",
    "empty name": b"\x04\x01\x00",
    "name that ends beyond": b"\x04\x02\x05R",
    "frame": b"\x00\x05hello",
    "frame with more": b"\x01\x05hello",
    "empty frame": b"\x00\x00",
    "reserved flags": b"\x08\x00",
    "reserved flags of a command": b"\x0c\x00",
    "command with more": b"\x05\x00",
}
SERVER_STATES = {
    "before HELLO": curve_greeting(),
    "before INITIATE": GREETING_HELLO,
    "ready": GREETING_HELLO + initiate(),
}
CLIENT_STATES = {
    "before WELCOME": curve_greeting(),
    "before READY": curve_greeting() + welcome(),
    "ready": curve_greeting() + welcome() + ready(),
}
LEGAL = {
    ("before HELLO", "HELLO"),
    ("before INITIATE", "INITIATE"),
    ("ready", "MESSAGE"),
    ("ready", "MESSAGE as a command"),
    ("before WELCOME", "WELCOME"),
    ("before READY", "READY"),
}
IN_HANDSHAKE = {
    "no name": "bad command",
    "empty name": "bad command",
    "name that ends beyond": "bad command",
    "frame": "traffic before ready",
    "frame with more": "traffic before ready",
    "empty frame": "traffic before ready",
    "MESSAGE": "traffic before ready",
    "reserved flags": "bad flags",
    "reserved flags of a command": "bad flags",
    "command with more": "bad flags",
}
WHEN_READY = {
    "frame with more": "bad flags",
    "reserved flags": "bad flags",
    "reserved flags of a command": "bad flags",
    "command with more": "bad flags",
}


def expected_reason(state: str, name: str, is_server: bool) -> str:
    if (state, name) in LEGAL:
        return ""
    if state == "ready":
        return WHEN_READY.get(name, "not encrypted")
    if name == "ERROR" and not is_server:
        return "peer error"
    return IN_HANDSHAKE.get(name, "bad handshake")


def test_every_state_times_every_command() -> None:
    def check(role: str, state: str, name: str) -> None:
        is_server = role == "server"
        for size in (1, 10_000):
            carrier = curve_server() if is_server else curve_client()
            before = (SERVER_STATES if is_server else CLIENT_STATES)[state]
            carrier.feed(before)
            was_ready, sent = carrier.ready, len(carrier.outgoing)
            assert carrier.failure is None
            sample = COMMANDS[name]
            if not is_server and name.startswith("MESSAGE"):
                sample = message(b"x", 9, from_client=False, outer=4 if "command" in name else None)
            messages = feed_all(carrier, pieces_of(sample, size))
            expected = expected_reason(state, name, is_server)
            assert ("" if carrier.failure is None else reason_of(carrier)) == expected
            assert messages == ([[b"x"]] if state == "ready" and not expected else [])
            if expected:
                assert carrier.ready == was_ready
                assert len(carrier.outgoing) == sent, "nothing is sent to a peer that breaks the protocol"

    rows = [("server", state, name) for state in SERVER_STATES for name in COMMANDS]
    rows += [("client", state, name) for state in CLIENT_STATES for name in COMMANDS]
    check_every_row(check, rows)


# ---- refusals of the server

AFTER_HELLO = {
    "INITIATE too short": command(b"INITIATE", bytes(247)),
    "another cookie": initiate(cookie=bytes(96)),
    "one bit of the cookie": initiate(cookie=b"\x51" * 95 + b"\x50"),
    "nonce of HELLO again": initiate(number=1),
    "nonce 0": initiate(number=0),
    "vouch for another server": initiate(vouched=vouch(server=OTHER[0])),
    "vouch for another transient key": initiate(vouched=vouch(transient=OTHER[0])),
    "vouch of another client": initiate(vouched=vouch(client=OTHER)),
    "another client than vouched for": initiate(client=OTHER[0]),
    "client key of low order": initiate(client=LOW_ORDER),
    "broken metadata": initiate(properties=b"\x00"),
    "no socket type": initiate(properties=b""),
    "socket type": initiate(properties=metadata(b"PUB")),
    "identity": initiate(properties=metadata(b"DEALER", b"i" * 256)),
    "metadata over max_metadata": initiate(properties=metadata(b"DEALER") + prop(b"X", bytes(8192))),
    "over max_handshake": command(b"INITIATE", bytes(16 * 1024)),
    "box": command(b"INITIATE", initiate()[18:-1] + b"\0"),
}
REASONS_AFTER_HELLO = {
    "nonce of HELLO again": "bad nonce",
    "nonce 0": "bad nonce",
    "vouch for another server": "bad vouch",
    "vouch for another transient key": "bad vouch",
    "vouch of another client": "bad vouch",
    "another client than vouched for": "bad vouch",
    "client key of low order": "bad vouch",
    "broken metadata": "bad metadata",
    "no socket type": "socket type",
    "socket type": "socket type",
    "identity": "identity too long",
    "metadata over max_metadata": "bad metadata",
    "box": "forged",
}


def test_every_check_of_initiate_refuses() -> None:
    def check(name: str) -> None:
        carriers = curve_server(), curve_server()
        carriers[0].feed(GREETING_HELLO + AFTER_HELLO[name])
        feed_all(carriers[1], pieces_of(GREETING_HELLO + AFTER_HELLO[name], 1))
        for carrier in carriers:
            assert reason_of(carrier) == REASONS_AFTER_HELLO.get(name, "bad handshake")
            assert (carrier.ready, carrier.peer_key) == (False, b"")

    check_every_row(check, [(name,) for name in AFTER_HELLO])


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (command(b"HELLO", hello()[8:-1]), "bad handshake"),
        (hello(tail=b"\0"), "bad handshake"),
        (command(b"HELLO"), "bad handshake"),
        (hello(version=b"\x01\x01"), "bad handshake"),
        (hello(version=b"\x02\x00"), "bad handshake"),
        (hello(padding=bytes(71) + b"\1"), "bad handshake"),
        (hello(padding=b"\1" + bytes(71)), "bad handshake"),
        (hello(number=0), "bad nonce"),
        (hello(text=bytes(63) + b"\1"), "bad handshake"),
        (hello(server=OTHER[0]), "wrong server key"),
        (hello(transient=(OTHER[0], CLIENT_TRANSIENT[1])), "wrong server key"),
        (hello(transient=(LOW_ORDER, CLIENT_TRANSIENT[1])), "wrong server key"),
    ],
)
def test_every_check_of_hello_refuses(sent: bytes, reason: str) -> None:
    carrier = curve_server()
    carrier.feed(curve_greeting() + sent)
    assert reason_of(carrier) == reason
    assert carrier.outgoing == [curve_greeting(is_server=True)]


def test_a_first_nonce_above_one_and_a_gap_are_accepted() -> None:
    carrier = curve_server()
    carrier.feed(curve_greeting() + hello(number=7) + initiate(number=2**63))
    assert carrier.ready


def test_an_unknown_key_gets_400_and_the_log_says_which() -> None:
    asked: list[bytes] = []

    def allow(key: bytes) -> bool:
        asked.append(key)
        return False

    carrier = curve_server(allow)
    carrier.feed(GREETING_HELLO + initiate())
    assert asked == [CLIENT[0]]
    assert reason_of(carrier) == "unknown key"
    assert CLIENT[0].hex() in str(carrier.failure)
    assert "start the peer again" in str(carrier.failure)
    assert carrier.outgoing[-1] == error(b"400")
    assert (carrier.ready, carrier.peer_key) == (False, b"")


def test_the_key_is_asked_for_after_it_is_proven_and_before_metadata_is_read() -> None:
    def rows() -> Iterator[tuple[str, bool]]:
        for name in AFTER_HELLO:
            reason = REASONS_AFTER_HELLO.get(name, "")
            yield name, reason in ("bad metadata", "socket type", "identity too long")

    def check(name: str, is_asked: bool) -> None:
        asked: list[bytes] = []
        carrier = curve_server(lambda key: bool(asked.append(key)))
        carrier.feed(GREETING_HELLO + AFTER_HELLO[name])
        assert asked == ([CLIENT[0]] if is_asked else [])
        assert (carrier.outgoing[-1] == error(b"400")) == is_asked

    check_every_row(check, rows())


def test_a_socket_that_does_not_fit_gets_an_error_with_the_reason() -> None:
    """It is a mistake that stays, so libzmq should not reconnect."""
    server, client = curve_server(socket_type="REP"), curve_client()
    client_like_router = curve_client(socket_type="ROUTER")
    talk(server, client_like_router)
    assert (reason_of(server), reason_of(client_like_router)) == ("socket type", "peer error")
    assert "ROUTER came to a REP" in str(client_like_router.failure)
    client.feed(curve_greeting() + welcome() + ready(properties=metadata(b"DEALER")))
    assert reason_of(client) == "socket type"
    assert client.outgoing[-1] == initiate(), "a client sends no ERROR"


def test_a_client_with_the_older_server_key_is_served_too() -> None:
    keys = (SERVER, OLD_SERVER)
    for number, server_key in enumerate((SERVER[0], OLD_SERVER[0])):
        server, client = curve_server(keys=keys), curve_client(server_key=server_key)
        talk(server, client)
        assert (server.ready, client.ready, client.peer_key) == (True, True, keys[number][0])
        assert isinstance(server, CurveZmtp)
        assert isinstance(client, CurveZmtp)
        assert (server.own_key, client.own_key) == (keys[number][0], CLIENT[0])
    server, client = curve_server(keys=keys), curve_client(server_key=OTHER[0])
    talk(server, client)
    assert reason_of(server) == "wrong server key"
    assert SERVER[0].hex() in str(server.failure)
    assert OLD_SERVER[0].hex() in str(server.failure)


def test_a_vouch_names_the_server_key_for_which_hello_was_made() -> None:
    """A vouch for the newer key does not serve a HELLO for the older one, nor the reverse."""
    for in_hello, in_vouch in ((OLD_SERVER, SERVER), (SERVER, OLD_SERVER)):
        server = curve_server(keys=(SERVER, OLD_SERVER))
        server.feed(curve_greeting() + hello(server=in_hello[0]) + initiate(vouched=vouch(server=in_vouch[0])))
        assert reason_of(server) == "bad vouch"


# ---- refusals of the client


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (command(b"WELCOME", welcome()[10:-1]), "bad handshake"),
        (welcome(tail=b"\0"), "bad handshake"),
        (welcome(server=OTHER), "wrong server key"),
        (welcome(client=OTHER[0]), "wrong server key"),
        (welcome(transient=LOW_ORDER), "wrong server key"),
        (welcome()[:-1] + b"\0", "wrong server key"),
        (welcome() + command(b"READY", bytes(23)), "bad handshake"),
        (welcome() + ready(number=0), "bad nonce"),
        (welcome() + ready()[:-1] + b"\0", "forged"),
        (welcome() + ready(properties=b"\0"), "bad metadata"),
        (welcome() + ready(properties=b""), "socket type"),
        (error(b"400"), "rejected"),
        (welcome() + error(b"400"), "rejected"),
        (welcome() + error(b"300"), "peer error"),
        (welcome() + error(b"too old"), "peer error"),
        (command(b"ERROR"), "peer error"),
    ],
)
def test_every_check_of_the_client_refuses(sent: bytes, reason: str) -> None:
    whole, bytewise = curve_client(), curve_client()
    whole.feed(curve_greeting(is_server=True) + sent)
    feed_all(bytewise, pieces_of(curve_greeting(is_server=True) + sent, 1))
    assert reason_of(whole) == reason_of(bytewise) == reason
    assert str(whole.failure) == str(bytewise.failure)
    assert (whole.ready, whole.peer_key) == (False, b"")


def test_the_client_says_which_keys_to_compare() -> None:
    refused, wrong = curve_client(), curve_client(server_key=OTHER[0])
    refused.feed(curve_greeting() + error(b"400"))
    wrong.feed(curve_greeting() + welcome())
    assert CLIENT[0].hex() in str(refused.failure)
    assert OTHER[0].hex() in str(wrong.failure)
    for carrier in (refused, wrong):
        assert CLIENT[1].hex() not in str(carrier.failure)


def test_the_probable_cause_of_an_end_in_the_handshake_is_known() -> None:
    """A server that cannot open HELLO closes the connection without a word."""
    server, client = curve_server(), curve_client()
    assert "another mechanism than CURVE" in client.probable_cause()
    assert "another mechanism than CURVE" in server.probable_cause()
    client.feed(curve_greeting())
    assert f"another public key than {SERVER[0].hex()}" in client.probable_cause()
    client.feed(welcome())
    assert "starting, stopping or full" in client.probable_cause()
    client.feed(ready())
    server.feed(GREETING_HELLO)
    assert (client.probable_cause(), server.probable_cause()) == ("", "")


# ---- mechanisms

SECURITIES = {
    "NULL": (NULL, NULL),
    "PLAIN": (PlainServer(lambda name, password: True), PlainClient(b"n", b"p")),
    "CURVE": (CurveServer((SERVER,), lambda key: True, Counted(1)), CurveClient(CLIENT, SERVER[0], Counted(9))),
}


@pytest.mark.parametrize("theirs", SECURITIES)
@pytest.mark.parametrize("ours", SECURITIES)
def test_two_different_mechanisms_never_talk(ours: str, theirs: str) -> None:
    listener = zmtp_carrier("ROUTER", security=SECURITIES[ours][0])
    dialler = zmtp_carrier("DEALER", dials=True, security=SECURITIES[theirs][1])
    talk(listener, dialler)
    assert (listener.ready, dialler.ready) == (ours == theirs, ours == theirs)
    if ours != theirs:
        assert reason_of(listener) == reason_of(dialler) == "mechanism"
        assert f"wants {theirs}; only {ours} is accepted here: set up the peer with" in str(listener.failure)
        assert f"wants {ours}, and this side uses {theirs}: set up this side" in str(dialler.failure)


@pytest.mark.parametrize("mechanism", [b"NULL", b"PLAIN", b"", b"CURVEX", b"CURVE\0X", b"curve"])
def test_a_weaker_mechanism_is_refused_without_a_word(mechanism: bytes) -> None:
    for carrier in (curve_server(), curve_client()):
        carrier.outgoing.clear()
        carrier.feed(greeting(mechanism=mechanism)[:32])
        assert reason_of(carrier) == "mechanism"
        assert carrier.outgoing == []


def test_an_unknown_mechanism_is_answered_with_those_that_there_are() -> None:
    dialler = Zmtp("DEALER", dials=True)
    dialler.feed(greeting(mechanism=b"GSSAPI"))
    assert "wants GSSAPI; only NULL, PLAIN, CURVE are supported" in str(dialler.failure)


# ---- mistakes of our own


def test_a_carrier_that_does_not_encrypt_takes_no_curve() -> None:
    """Else messages would travel in clear after a handshake of CURVE."""
    with pytest.raises(ValueError, match="does not encrypt"):
        Zmtp("ROUTER", security=SECURITIES["CURVE"][0])
    with pytest.raises(ValueError, match="CurveServer or CurveClient"):
        CurveZmtp("ROUTER", security=NULL)
    assert [type(zmtp_carrier("ROUTER", security=each[0])) for each in SECURITIES.values()] == [Zmtp, Zmtp, CurveZmtp]


def test_wrong_keys_are_value_errors_before_anything_is_sent() -> None:
    random = Counted(1)
    with pytest.raises(ValueError, match="at least one key pair"):
        CurveServer((), lambda key: True, random)
    with pytest.raises(ValueError, match="does not belong"):
        CurveServer((SERVER, (SERVER[0], CLIENT[1])), lambda key: True, random)
    with pytest.raises(ValueError, match="does not belong"):
        CurveClient((CLIENT[1], CLIENT[0]), SERVER[0], random)
    with pytest.raises(ValueError, match="31 bytes"):
        CurveClient(CLIENT, SERVER[0][1:], random)
    with pytest.raises(ValueError, match="protects nothing"):
        CurveClient(CLIENT, LOW_ORDER, random)
    with pytest.raises(ValueError, match="socket type"):
        curve_server(socket_type="PUB")


def test_secrets_are_not_in_the_text_of_a_security() -> None:
    for each in (*SECURITIES["CURVE"], *SECURITIES["PLAIN"]):
        for secret in (SERVER[1], CLIENT[1]):
            assert repr(secret) not in repr(each)
            assert secret.hex() not in repr(each)


def test_every_connection_has_its_own_transient_keys() -> None:
    random = Counted(SERVER_TRANSIENT[0][0] % 100)
    security = CurveServer((SERVER,), lambda key: True, random)
    sent = []
    for _ in range(3):
        carrier = zmtp_carrier("ROUTER", security=security)
        carrier.feed(GREETING_HELLO)
        sent.append(carrier.outgoing[-1])
    assert len(set(sent)) == 3


def test_max_handshake_counts_all_commands() -> None:
    size = len(GREETING_HELLO) + len(initiate())
    for limit, is_ready in ((size, True), (size - 1, False)):
        carrier = curve_server(limits=ZmtpLimits(max_handshake=limit))
        carrier.feed(GREETING_HELLO + initiate())
        assert carrier.ready == is_ready
