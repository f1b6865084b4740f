"""Fuzz target: ZMTP with CURVE. The first byte selects the side, the second one of six ways to use the others.

Keys and random bytes are fixed, so the streams of an undisturbed conversation are, too. Without its keys no input
could open a box: so some ways change a recorded stream, and others let a holder of keys send anything.
"""

from __future__ import annotations

import random
from typing import Final

from dragoman.carriers import zmtp, zmtp_curve
from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.curve_keys import new_key_pair
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_curve import CurveZmtp, zmtp_carrier
from dragoman.carriers.zmtp_curve_handshake import (
    COUNTER,
    CurveClient,
    CurveClientHandshake,
    CurveServer,
    CurveServerHandshake,
)
from dragoman.carriers.zmtp_handshake import Handshake, Security
from dragoman.carriers.zmtp_limits import ZmtpLimits
from fuzz.conversation import handshake_between
from fuzz.cuts import Seen, seen_in_all_cuts, small_sizes
from fuzz.input import Input

LIMITS: Final = ZmtpLimits(max_payload=200, hard_cap=500, max_frames=6, max_handshake=1000, max_command=40)
MOST: Final = LIMITS.max_payload + LIMITS.max_handshake
# Bytes of a greeting that may change without effect: padding, minor version, as-server flag, filler. The major version
# may rise: a newer peer must use ours.
FREE: Final = (*range(1, 9), 11, *range(32, 64))
MAJOR: Final = 10

SERVER: Final = new_key_pair(b"s" * 32)
CLIENT: Final = new_key_pair(b"c" * 32)
MESSAGES: Final[list[Message]] = [[b"", b"hello"], [b"x" * 60, b"y" * 100], [b"bye"]]


CHANCE: Final = {True: random.Random(), False: random.Random()}  # by is_server; the same for each new carrier
SECURITY: Final[dict[bool, Security]] = {
    True: CurveServer((SERVER,), lambda key: key == CLIENT[0], lambda count: CHANCE[True].randbytes(count)),
    False: CurveClient(CLIENT, SERVER[0], lambda count: CHANCE[False].randbytes(count)),
}


def carrier(is_server: bool, security: Security | None = None) -> CurveZmtp:
    CHANCE[is_server].seed(is_server)
    socket_type = "ROUTER" if is_server else "DEALER"
    made = zmtp_carrier(
        socket_type, b"me", dials=not is_server, limits=LIMITS, security=security or SECURITY[is_server]
    )
    assert isinstance(made, CurveZmtp)
    return made


def conversation(is_server: bool, peer_security: Security | None = None) -> tuple[bytes, CurveZmtp]:
    """Return the bytes of the handshake that this side receives, and its peer after it."""
    ours, peer = carrier(is_server), carrier(not is_server, peer_security)
    to_server, to_client = handshake_between(*((ours, peer) if is_server else (peer, ours)))
    return (to_server if is_server else to_client), peer


def recorded_traffic(peer: CurveZmtp) -> bytes:
    first = b"".join(peer.encode(MESSAGES[0])) + (peer.ping(1, b"context") or b"")
    return first + b"".join(b"".join(peer.encode(each)) for each in MESSAGES[1:])


HANDSHAKES: Final = {is_server: conversation(is_server)[0] for is_server in (True, False)}
PEERS: Final = {is_server: conversation(is_server)[1] for is_server in (True, False)}
SENT: Final = {is_server: peer._sent for is_server, peer in PEERS.items()}  # counters of nonces in the handshake
TRAFFIC: Final = {is_server: recorded_traffic(conversation(is_server)[1]) for is_server in (True, False)}


def test_one_input(data: bytes) -> None:
    given = Input(data)
    is_server = not given.number() & 1
    way = WAYS[given.number() % len(WAYS)]
    with small_sizes(zmtp, zmtp_curve, LARGE_FRAME=70, MIB=90, IN_PLACE=50):
        way(given, is_server)


def any_stream(given: Input, is_server: bool) -> None:
    """Anything in place of the handshake is never accepted."""
    stream = given.rest()
    seen = seen_in_all_cuts(lambda: carrier(is_server), stream, MOST)
    check_ready(seen.ready, stream, is_server)


def changed_handshake(given: Input, is_server: bool) -> None:
    """A handshake that was changed on the way is not accepted, unless the bytes mean nothing."""
    stream = changed(HANDSHAKES[is_server], given)
    one: Zmtp = carrier(is_server)
    messages = one.feed(stream)
    assert one.ready or not messages
    check_ready(one.ready, stream, is_server)
    assert one.ready or not one.peer_key


def changed_traffic(given: Input, is_server: bool) -> None:
    """Traffic that was changed on the way gives the true messages in their order, or a failure."""
    seen = after_handshake(changed(TRAFFIC[is_server], given), is_server)
    assert seen.messages == MESSAGES[: len(seen.messages)]


def sealed_traffic(given: Input, is_server: bool) -> None:
    """A peer with keys may put anything into its boxes."""
    peer = PEERS[is_server]
    peer._sent = SENT[is_server]
    seen = after_handshake(b"".join(boxed(peer, each) for each in given.frames()), is_server)
    peer._sent = SENT[is_server]
    encoded = b"".join(b"".join(peer.encode(each)) for each in seen.whole_messages)
    assert after_handshake(encoded, is_server).messages == seen.whole_messages


def sealed_metadata(given: Input, is_server: bool) -> None:
    """A peer with keys may send any metadata."""
    stream, _ = conversation(is_server, AnyMetadata(not is_server, given.rest()[: LIMITS.max_handshake // 2]))
    seen = seen_in_all_cuts(lambda: carrier(is_server), stream, MOST, uncut=len(stream) // 2)
    assert seen.ready == (not seen.failure)


def stranger(given: Input, is_server: bool) -> None:
    """A peer without the right secret key is not accepted, even if it claims the right public key."""
    pair, is_impostor = new_key_pair(given.take(32).ljust(32, b"\0")), bool(given.number() & 1)
    genuine = CLIENT if is_server else SERVER
    claimed = (genuine[0], pair[1]) if is_impostor else pair
    security: Security
    if is_server:
        security = CurveClient(pair, SERVER[0], CHANCE[False].randbytes)
        object.__setattr__(security, "key", claimed)  # past the check that both belong together
    else:
        security = CurveServer((pair,), lambda _: True, CHANCE[True].randbytes)
        object.__setattr__(security, "keys", (claimed,))
    ours, peer = carrier(is_server), carrier(not is_server, security)
    handshake_between(*((ours, peer) if is_server else (peer, ours)))
    assert ours.ready == (pair == genuine)
    assert ours.ready or not ours.peer_key


WAYS: Final = (any_stream, changed_handshake, changed_traffic, sealed_traffic, sealed_metadata, stranger)


def after_handshake(stream: bytes, is_server: bool) -> Seen:
    handshake = HANDSHAKES[is_server]
    seen = seen_in_all_cuts(lambda: carrier(is_server), handshake + stream, MOST, uncut=len(handshake))
    assert seen.ready
    return seen


def check_ready(is_ready: bool, stream: bytes, is_server: bool) -> None:
    genuine = HANDSHAKES[is_server]
    assert not is_ready or judged(stream[: len(genuine)]) == judged(genuine), "a changed handshake was accepted"


def judged(stream: bytes) -> bytes:
    """Return a handshake without the bytes that mean nothing."""
    kept = bytearray(stream)
    for pos in FREE:
        kept[pos : pos + 1] = b"\0"
    if kept[MAJOR : MAJOR + 1] > b"\x03":
        kept[MAJOR] = 3
    return bytes(kept)


def changed(stream: bytes, given: Input) -> bytes:
    """Return the stream with bytes replaced, inserted, removed or copied at places of the input."""
    while given:
        kind, pos = given.number() & 3, given.long_number() % (len(stream) + 1)
        if kind == 0:
            stream = stream[:pos] + bytes((given.number(),)) + stream[pos + 1 :]
        elif kind == 1:
            stream = stream[:pos] + given.piece() + stream[pos:]
        elif kind == 2:
            stream = stream[:pos] + stream[pos + given.number() :]
        else:
            start = given.long_number()
            stream = stream[:pos] + stream[start : start + given.number()] + stream[pos:]
        if len(stream) > 2 * MOST:
            break
    return stream


def boxed(peer: CurveZmtp, text: Frame) -> bytes:
    """Return a MESSAGE whose box has this text: flags and a body."""
    session = peer._session
    assert session is not None
    peer._sent += 1
    counter = peer._sent.to_bytes(COUNTER, "big")
    body = zmtp_curve.NAME + counter + session.sealed(bytes(text) or b"\0", peer._send_prefix + counter)
    return b"\x02" + len(body).to_bytes(8, "big") + body


class AnyMetadata(Security):
    """CURVE of a side that sends the given metadata."""

    def __init__(self, is_server: bool, metadata: bytes) -> None:
        self._security = SECURITY[is_server]
        self._metadata = metadata

    @property
    def is_encrypted(self) -> bool:
        return True

    def handshake(self, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits) -> Handshake:
        made: AnyMetadataServer | AnyMetadataClient
        if isinstance(self._security, CurveServer):
            made = AnyMetadataServer(self._security, socket_type, identity, dials, limits)
        else:
            assert isinstance(self._security, CurveClient)
            made = AnyMetadataClient(self._security, socket_type, identity, dials, limits)
        made.metadata = self._metadata
        return made


class AnyMetadataServer(CurveServerHandshake):
    metadata = b""

    def _metadata(self) -> bytes:
        return self.metadata


class AnyMetadataClient(CurveClientHandshake):
    metadata = b""

    def _metadata(self) -> bytes:
        return self.metadata
