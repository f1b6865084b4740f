"""Fuzz target: ZMTP with NULL. The first byte selects socket type, side and limits, and skips the handshake or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dragoman.carriers import zmtp
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits
from fuzz.conversation import handshake_between
from fuzz.cuts import read, seen_in_all_cuts, small_sizes

NARROW: Final = ZmtpLimits(
    max_payload=100, hard_cap=200, max_frames=6, max_identity=10, max_handshake=200, max_metadata=80, max_command=40
)
WIDE: Final = replace(NARROW, max_payload=300, hard_cap=600)
PEERS: Final = {"ROUTER": "DEALER", "DEALER": "ROUTER", "REP": "REQ", "REQ": "REP"}
SOCKET_TYPES: Final = tuple(PEERS)
HANDSHAKES: Final = {ours: handshake_between(Zmtp(ours), Zmtp(peer, b"me"))[0] for ours, peer in PEERS.items()}


def test_one_input(data: bytes) -> None:
    choice = data[0] if data else 0
    socket_type = SOCKET_TYPES[choice & 3]
    limits = WIDE if choice & 16 else NARROW
    most = limits.max_payload + limits.max_handshake

    def new() -> Zmtp:
        return Zmtp(socket_type, dials=bool(choice & 4), limits=limits)

    handshake = HANDSHAKES[socket_type] if choice & 8 else b""
    with small_sizes(zmtp, LARGE_FRAME=24, MIB=40, PASSED_THROUGH=30):
        seen = seen_in_all_cuts(new, handshake + data[1:], most, uncut=len(handshake))
        assert seen.ready or not seen.messages
        encoded = b"".join(b"".join(new().encode(each)) for each in seen.whole_messages)
        stream = HANDSHAKES[socket_type] + encoded
        assert read(new(), stream, [len(stream)], most).messages == seen.whole_messages
