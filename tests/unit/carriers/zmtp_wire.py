"""ZMTP written by hand and recorded from libzmq, and ways to cut a stream of bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

from cut_streams import KIB, MIB, feed_all, pieces_of, random_pieces, read_into_gap

from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.zmtp import Zmtp, encode
from dragoman.carriers.zmtp_limits import ZmtpLimits


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


def started(limits: ZmtpLimits | None = None, version: bytes = b"\x03\x01") -> Zmtp:
    """Return a ROUTER carrier after the handshake with a DEALER."""
    zmtp = Zmtp("ROUTER", limits=limits or ZmtpLimits())
    assert zmtp.feed(greeting(version) + ready()) == []
    assert zmtp.ready
    zmtp.outgoing.clear()
    return zmtp


def talk(left: Zmtp, right: Zmtp) -> None:
    while left.outgoing or right.outgoing:
        from_left, from_right = b"".join(left.outgoing), b"".join(right.outgoing)
        left.outgoing.clear()
        right.outgoing.clear()
        right.feed(from_left)
        left.feed(from_right)


CUTS: dict[str, Callable[[Zmtp, bytes], list[Message | TooLarge]]] = {
    "whole": lambda zmtp, stream: zmtp.feed(stream),
    "by 1 KiB": lambda zmtp, stream: feed_all(zmtp, pieces_of(stream, KIB)),
    "by 64 KiB": lambda zmtp, stream: feed_all(zmtp, pieces_of(stream, 64 * KIB)),
    "at random": lambda zmtp, stream: feed_all(zmtp, random_pieces(stream, random.Random(7))),
    "gap by 1000": lambda zmtp, stream: read_into_gap(zmtp, stream, 1000),
    "gap by 64 KiB": lambda zmtp, stream: read_into_gap(zmtp, stream, 64 * KIB),
    "gap by MiB": lambda zmtp, stream: read_into_gap(zmtp, stream, MIB),
}
