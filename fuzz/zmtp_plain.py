"""Fuzz target: ZMTP with PLAIN. The first byte selects the side, and whether the handshake is done."""

from __future__ import annotations

from typing import Final

from dragoman.carriers import zmtp
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.carriers.zmtp_plain import PlainClient, PlainServer
from fuzz.conversation import handshake_between
from fuzz.cuts import seen_in_all_cuts, small_sizes

LIMITS: Final = ZmtpLimits(
    max_payload=120, hard_cap=400, max_frames=6, max_identity=10, max_handshake=400, max_metadata=80, max_command=40
)
MOST: Final = LIMITS.max_payload + LIMITS.max_handshake
NAME: Final = b"token"
PASSWORD: Final = b"correct"
SERVER: Final = PlainServer(lambda name, password: (name, password) == (NAME, PASSWORD))
CLIENT: Final = PlainClient(NAME, PASSWORD)


def carrier(is_server: bool) -> Zmtp:
    if is_server:
        return Zmtp("ROUTER", limits=LIMITS, security=SERVER)
    return Zmtp("DEALER", b"me", dials=True, limits=LIMITS, security=CLIENT)


HANDSHAKES: Final = handshake_between(carrier(True), carrier(False))


def test_one_input(data: bytes) -> None:
    choice = data[0] if data else 0
    is_server = not choice & 1
    handshake = HANDSHAKES[choice & 1] if choice & 2 else b""
    stream = handshake + data[1:]
    with small_sizes(zmtp, LARGE_FRAME=24, MIB=40):
        seen = seen_in_all_cuts(lambda: carrier(is_server), stream, MOST, uncut=len(handshake))
    assert seen.ready or not seen.messages
    if seen.ready and is_server:
        assert seen.peer["peer_token"] == PASSWORD
        assert bytes((len(NAME),)) + NAME + bytes((len(PASSWORD),)) + PASSWORD in stream
