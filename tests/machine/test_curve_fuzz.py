"""CURVE and PLAIN under attack: no changed handshake becomes ready, and cuts change nothing (I18).

All keys and random bytes are fixed, so the streams of an undisturbed conversation are, too. Each is changed at one or
two places and fed to a new carrier of the other side.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import cycle, repeat

import pytest

from dragoman.carriers import zmtp, zmtp_curve
from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.curve_keys import new_key_pair
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_curve import zmtp_carrier
from dragoman.carriers.zmtp_curve_handshake import CurveClient, CurveServer
from dragoman.carriers.zmtp_handshake import Security
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.carriers.zmtp_plain import PlainClient, PlainServer

MUTATIONS = 5_000  # of the handshake, for both sides together; 100,000 were run once
LIMITS = ZmtpLimits(max_payload=200, hard_cap=500, max_frames=6, max_handshake=1000, max_command=40)
# Bytes of a greeting that may change without effect: padding, minor version, as-server flag, filler. The major version
# may rise: a newer peer must use ours.
FREE = frozenset((*range(1, 9), 11, *range(32, 64)))
MAJOR = 10

SERVER, CLIENT = new_key_pair(b"s" * 32), new_key_pair(b"c" * 32)
MESSAGES: list[Message] = [[b"", b"hello"], [b"x" * 60, b"y" * 100], [b"bye"]]

Outcome = tuple[list[object], str, bytes, bool, bytes]


def seeded(seed: str) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


def curve_security(is_server: bool) -> Security:
    if is_server:
        return CurveServer((SERVER,), lambda key: key == CLIENT[0], seeded("server"))
    return CurveClient(CLIENT, SERVER[0], seeded("client"))


def plain_security(is_server: bool) -> Security:
    if is_server:
        return PlainServer(lambda name, password: (name, password) == (b"token", b"secret"))
    return PlainClient(b"token", b"secret")


def carrier(security: Callable[[bool], Security], is_server: bool) -> Zmtp:
    socket_type = "ROUTER" if is_server else "DEALER"
    return zmtp_carrier(socket_type, b"me", dials=not is_server, limits=LIMITS, security=security(is_server))


def recorded(security: Callable[[bool], Security]) -> tuple[dict[bool, bytes], dict[bool, bytes]]:
    """Return what a server and a client (by `is_server`) receive: the handshake, and messages with a PING."""
    server, client = carrier(security, True), carrier(security, False)
    streams = {True: b"", False: b""}
    while server.outgoing or client.outgoing:
        to_client, to_server = b"".join(server.outgoing), b"".join(client.outgoing)
        server.outgoing.clear()
        client.outgoing.clear()
        client.feed(to_client)
        server.feed(to_server)
        streams[True] += to_server
        streams[False] += to_client
    assert server.ready
    assert client.ready
    traffic = {}
    for is_server, sender in ((True, client), (False, server)):
        first = b"".join(sender.encode(MESSAGES[0])) + (sender.ping(1, b"context") or b"")
        traffic[is_server] = first + b"".join(b"".join(sender.encode(each)) for each in MESSAGES[1:])
    return streams, traffic


HANDSHAKES, TRAFFIC = recorded(curve_security)
PLAIN_HANDSHAKES, PLAIN_TRAFFIC = recorded(plain_security)


@pytest.fixture(scope="module", autouse=True)
def tiny_sizes() -> Iterator[None]:
    """Sizes that let short inputs reach every step."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (zmtp, zmtp_curve):
            patch.setattr(module, "LARGE_FRAME", 70)
            patch.setattr(module, "MIB", 90)
        patch.setattr(zmtp_curve, "IN_PLACE", 50)
        yield


def run(one: Zmtp, stream: bytes, sizes: Iterator[int], use_gap: bool = False) -> Outcome:
    """Feed the stream in pieces of the given sizes, and return everything observable."""
    messages: list[Message | TooLarge] = []
    pos = 0
    while pos < len(stream):
        count = next(sizes)
        if use_gap and one.gap is not None:
            piece = stream[pos : pos + min(count, len(one.gap))]
            one.gap[: len(piece)] = piece
            messages += one.fill(len(piece))
        else:
            piece = stream[pos : pos + count]
            messages += one.feed(piece)
        pos += len(piece)
        assert one.holding <= LIMITS.max_payload + LIMITS.max_handshake
        assert one.gap is None or len(one.gap) > 0
    told: list[object] = [
        ("too large", [*map(bytes, m.frames)], m.size) if isinstance(m, TooLarge) else [*map(bytes, m)]
        for m in messages
    ]
    failure = "" if one.failure is None else str(one.failure)
    return told, failure, b"".join(one.outgoing), one.ready, one.peer_key


def mutate(stream: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2))):
        pos = rng.randrange(len(stream))
        kind = rng.randrange(5)
        if kind == 0:
            stream = stream[:pos] + bytes([rng.randrange(256)]) + stream[pos + 1 :]
        elif kind == 1:
            stream = stream[:pos] + bytes([stream[pos] ^ 1 << rng.randrange(8)]) + stream[pos + 1 :]
        elif kind == 2:
            stream = stream[:pos] + rng.randbytes(rng.randint(1, 9)) + stream[pos:]
        elif kind == 3:
            stream = stream[:pos] + stream[pos + rng.randint(1, 9) :]
        else:
            other = rng.randrange(len(stream))
            stream = stream[:pos] + stream[other : other + rng.choice((1, 8, 16, 32))] + stream[pos:]
    return stream


def judged(stream: bytes) -> bytes:
    """Return a handshake without the bytes that mean nothing."""
    kept = bytearray(stream)
    for pos in FREE:
        if pos < len(kept):
            kept[pos] = 0
    if kept[MAJOR : MAJOR + 1] > b"\x03":
        kept[MAJOR] = 3
    return bytes(kept)


@pytest.mark.parametrize("is_server", [True, False])
def test_mutated_handshake_is_never_ready(is_server: bool) -> None:
    """Nor does it make the carrier raise anything, whatever it is."""
    rng = random.Random(f"mutated {is_server}")
    whole = HANDSHAKES[is_server]
    survivors = 0
    for _ in range(MUTATIONS // 2):
        stream = mutate(whole, rng)
        one = carrier(curve_security, is_server)
        one.feed(stream)
        if one.ready:
            assert judged(stream[: len(whole)]) == judged(whole), stream.hex()
            survivors += 1
        else:
            assert one.peer_key == b""
    assert 0 < survivors < MUTATIONS // 8, "some changed only what means nothing"


@pytest.mark.parametrize("is_server", [True, False])
def test_mutated_traffic_gives_true_messages_in_their_order_or_a_failure(is_server: bool) -> None:
    """Never a changed, repeated or reordered message; lost ones only at the end."""
    rng = random.Random(f"traffic {is_server}")
    for _ in range(MUTATIONS // 10):
        stream = mutate(TRAFFIC[is_server], rng)
        one = carrier(curve_security, is_server)
        one.feed(HANDSHAKES[is_server])
        assert one.ready
        received = one.feed(stream)
        assert received == MESSAGES[: len(received)], stream.hex()


@pytest.mark.parametrize("is_server", [True, False])
@pytest.mark.parametrize("kind", ["CURVE", "PLAIN"])
def test_a_mutated_conversation_is_understood_alike_in_all_cuts(kind: str, is_server: bool) -> None:
    security = curve_security if kind == "CURVE" else plain_security
    handshakes, traffic = (HANDSHAKES, TRAFFIC) if kind == "CURVE" else (PLAIN_HANDSHAKES, PLAIN_TRAFFIC)
    rng = random.Random(f"cuts {kind} {is_server}")
    genuine = handshakes[is_server] + traffic[is_server]
    for number in range(MUTATIONS // 20):
        stream = mutate(genuine, rng) if number else genuine
        whole = run(carrier(security, is_server), stream, repeat(len(stream)))
        sizes = rng.choices(range(1, 90), k=11)
        assert run(carrier(security, is_server), stream, cycle(sizes)) == whole, stream.hex()
        assert run(carrier(security, is_server), stream, cycle(sizes), use_gap=True) == whole, stream.hex()
        if number % 20 == 0:
            assert run(carrier(security, is_server), stream, repeat(1)) == whole, stream.hex()
        if not number:
            assert whole[0] == MESSAGES


@pytest.mark.parametrize("is_server", [True, False])
def test_every_changed_byte_of_the_handshake_is_noticed(is_server: bool) -> None:
    """But those of the greeting that mean nothing."""
    whole = HANDSHAKES[is_server]
    for pos in range(len(whole)):
        stream = whole[:pos] + bytes([whole[pos] ^ 1]) + whole[pos + 1 :]
        one = carrier(curve_security, is_server)
        one.feed(stream)
        assert one.ready == (judged(stream) == judged(whole)), pos


def test_any_bytes_after_a_greeting_are_refused_or_waited_for() -> None:
    rng = random.Random("noise")
    for number in range(MUTATIONS // 5):
        is_server = bool(number % 2)
        for security, handshakes in ((curve_security, HANDSHAKES), (plain_security, PLAIN_HANDSHAKES)):
            one = carrier(security, is_server)
            flags = rng.choice((4, 4, 4, 6, rng.randrange(256)))
            name = rng.choice((b"\x05HELLO", b"\x07WELCOME", b"\x08INITIATE", b"\x05READY", b"\x05ERROR", b""))
            body = name + rng.randbytes(rng.choice((0, 1, 2, 30, 160, 194)))
            head = bytes([flags]) + len(body).to_bytes(8 if flags & 2 else 1, "big")
            one.feed(handshakes[is_server][:64] + head + body)
            assert not one.ready
