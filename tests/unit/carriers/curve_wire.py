"""CURVE written by hand from RFC 26, on PyNaCl's `crypto_box`: commands with every field open to change, and two peers.

Nothing here uses Dragoman's own code for CURVE but the carriers under test.
"""

from __future__ import annotations

from collections.abc import Callable

from nacl.bindings import crypto_box, crypto_box_open, crypto_box_seed_keypair
from zmtp_wire import command, prop

from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_curve import zmtp_carrier
from dragoman.carriers.zmtp_curve_handshake import CurveClient, CurveServer
from dragoman.carriers.zmtp_limits import ZmtpLimits

Pair = tuple[bytes, bytes]  # public, secret


def pair(number: int) -> Pair:
    return crypto_box_seed_keypair(bytes([number]) * 32)


SERVER, CLIENT, OLD_SERVER, OTHER = pair(1), pair(2), pair(3), pair(4)


class Counted:
    """Random bytes that are the same in every run: 32 of 80, 96 of 81, 16 of 82, by the order of the calls."""

    def __init__(self, start: int) -> None:
        self.next = start

    def __call__(self, count: int) -> bytes:
        self.next += 1
        return bytes([self.next - 1]) * count


SERVER_START, CLIENT_START = 0x50, 0xA0
SERVER_TRANSIENT = crypto_box_seed_keypair(bytes([SERVER_START]) * 32)
COOKIE = bytes([SERVER_START + 1]) * 96
WELCOME_NONCE = bytes([SERVER_START + 2]) * 16
CLIENT_TRANSIENT = crypto_box_seed_keypair(bytes([CLIENT_START]) * 32)
VOUCH_NONCE = bytes([CLIENT_START + 1]) * 16


def curve_server(
    allow: Callable[[bytes], bool] = lambda key: True,
    keys: tuple[Pair, ...] = (SERVER,),
    socket_type: str = "ROUTER",
    limits: ZmtpLimits | None = None,
) -> Zmtp:
    security = CurveServer(keys, allow, Counted(SERVER_START))
    return zmtp_carrier(socket_type, b"us", limits=limits or ZmtpLimits(), security=security)


def curve_client(
    key: Pair = CLIENT, server_key: bytes = SERVER[0], socket_type: str = "DEALER", limits: ZmtpLimits | None = None
) -> Zmtp:
    security = CurveClient(key, server_key, Counted(CLIENT_START))
    return zmtp_carrier(socket_type, b"us", dials=True, limits=limits or ZmtpLimits(), security=security)


def curve_greeting(is_server: bool = False, mechanism: bytes = b"CURVE", version: bytes = b"\x03\x01") -> bytes:
    return b"\xff" + bytes(8) + b"\x7f" + version + mechanism.ljust(20, b"\0") + bytes([is_server]) + bytes(31)


def metadata(socket_type: bytes, identity: bytes = b"us") -> bytes:
    return prop(b"Socket-Type", socket_type) + prop(b"Identity", identity)


def counter(number: int) -> bytes:
    return number.to_bytes(8, "big")


def hello(
    number: int = 1,
    version: bytes = b"\x01\x00",
    padding: bytes = bytes(72),
    transient: Pair = CLIENT_TRANSIENT,
    server: bytes = SERVER[0],
    text: bytes = bytes(64),
    tail: bytes = b"",
) -> bytes:
    box = crypto_box(text, b"CurveZMQHELLO---" + counter(number), server, transient[1])
    return command(b"HELLO", version + padding + transient[0] + counter(number) + box + tail)


def welcome(
    server: Pair = SERVER,
    transient: bytes = SERVER_TRANSIENT[0],
    cookie: bytes = COOKIE,
    client: bytes = CLIENT_TRANSIENT[0],
    tail: bytes = b"",
) -> bytes:
    box = crypto_box(transient + cookie, b"WELCOME-" + WELCOME_NONCE, client, server[1])
    return command(b"WELCOME", WELCOME_NONCE + box + tail)


def vouch(client: Pair = CLIENT, transient: bytes = CLIENT_TRANSIENT[0], server: bytes = SERVER[0]) -> bytes:
    box = crypto_box(transient + server, b"VOUCH---" + VOUCH_NONCE, SERVER_TRANSIENT[0], client[1])
    return VOUCH_NONCE + box


def initiate(
    number: int = 2,
    cookie: bytes = COOKIE,
    client: bytes = CLIENT[0],
    vouched: bytes | None = None,
    properties: bytes | None = None,
) -> bytes:
    text = client + (vouch() if vouched is None else vouched)
    text += metadata(b"DEALER") if properties is None else properties
    box = crypto_box(text, b"CurveZMQINITIATE" + counter(number), SERVER_TRANSIENT[0], CLIENT_TRANSIENT[1])
    return command(b"INITIATE", cookie + counter(number) + box)


def ready(number: int = 1, properties: bytes | None = None) -> bytes:
    text = metadata(b"ROUTER") if properties is None else properties
    box = crypto_box(text, b"CurveZMQREADY---" + counter(number), CLIENT_TRANSIENT[0], SERVER_TRANSIENT[1])
    return command(b"READY", counter(number) + box)


def error(reason: bytes) -> bytes:
    return command(b"ERROR", bytes([len(reason)]) + reason)


def message(
    body: bytes,
    number: int,
    inner: int = 0,
    outer: int | None = None,
    from_client: bool = True,
    name: bytes = b"\x07MESSAGE",
) -> bytes:
    """Return a MESSAGE. `inner`: flags in the box. `outer`: flags of the frame; without them 0, or 2 if it is long."""
    prefix = b"CurveZMQMESSAGEC" if from_client else b"CurveZMQMESSAGES"
    box = crypto_box(bytes([inner]) + body, prefix + counter(number), SERVER_TRANSIENT[0], CLIENT_TRANSIENT[1])
    whole = name + counter(number) + box
    flags = outer if outer is not None else 2 * (len(whole) > 255)
    return bytes([flags]) + len(whole).to_bytes(8 if flags & 2 else 1, "big") + whole


def opened(stream: bytes, from_client: bool = False) -> list[tuple[int, int, bytes]]:
    """Return counter, inner flags and body of each MESSAGE in a stream."""
    prefix = b"CurveZMQMESSAGEC" if from_client else b"CurveZMQMESSAGES"
    found = []
    pos = 0
    while pos < len(stream):
        assert stream[pos] in (0, 2)
        start = pos + (9 if stream[pos] else 2)
        pos = start + int.from_bytes(stream[pos + 1 : start], "big")
        assert (start - 2 < 0) or pos - start > 255 or stream[start - 2] == 0
        whole = stream[start:pos]
        assert whole[:8] == b"\x07MESSAGE"
        text = crypto_box_open(whole[16:], prefix + whole[8:16], SERVER_TRANSIENT[0], CLIENT_TRANSIENT[1])
        found.append((int.from_bytes(whole[8:16], "big"), text[0], text[1:]))
    return found


def started_server(limits: ZmtpLimits | None = None, version: bytes = b"\x03\x01") -> Zmtp:
    """Return a ROUTER after its handshake. The client's next counter is 3, and the server's 2."""
    carrier = curve_server(limits=limits)
    assert carrier.feed(curve_greeting(version=version) + hello() + initiate()) == []
    assert carrier.failure is None
    assert carrier.ready
    carrier.outgoing.clear()
    return carrier


def started_client(limits: ZmtpLimits | None = None) -> Zmtp:
    """Return a DEALER after its handshake. The client's next counter is 3, and the server's 2."""
    carrier = curve_client(limits=limits)
    carrier.feed(curve_greeting(is_server=True) + welcome() + ready())
    assert carrier.failure is None
    assert carrier.ready
    carrier.outgoing.clear()
    return carrier
