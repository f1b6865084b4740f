"""Fuzz target: lines of a NATS server. The first byte selects if the handshake is done, and the place of TLS."""

from __future__ import annotations

from typing import Final

from dragoman.carriers import nats
from dragoman.carriers.carrier import Message
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.nats import Encryption, Nats
from dragoman.carriers.nats_connect import ConnectOptions, KeyCredentials
from dragoman.carriers.nats_headers import read_headers, write_headers
from dragoman.carriers.nats_keys import USER, KeyPair
from dragoman.carriers.nats_lines import FLUSH, NatsLimits
from fuzz.cuts import read, seen_in_all_cuts, small_sizes

LIMITS: Final = NatsLimits(max_line=60, max_info=300, max_headers=90, max_payload=100, hard_cap=400)
MOST: Final = 2 + LIMITS.max_info + LIMITS.max_line + LIMITS.max_headers + LIMITS.max_payload
GREETING: Final = b'INFO {"headers":true,"nonce":"n"}\r\nPONG\r\n'
OPTIONS: Final = ConnectOptions(credentials=KeyCredentials(KeyPair(USER, bytes(32))))
ENCRYPTIONS: Final = (Encryption.NONE, Encryption.AFTER_INFO, Encryption.BEFORE_INFO, Encryption.NONE)


def test_one_input(data: bytes) -> None:
    choice = data[0] if data else 0

    def new() -> Nats:
        made = Nats(OPTIONS, encryption=ENCRYPTIONS[choice >> 1 & 3], limits=LIMITS)
        made.encode(FLUSH)
        made.ping()
        made.encode(FLUSH)
        return made

    stream = (GREETING if choice & 1 else b"") + data[1:]
    with small_sizes(nats, LARGE_FRAME=24, MIB=40, PASSED_THROUGH=30):
        seen = seen_in_all_cuts(new, stream, MOST)
        assert seen.ready or not seen.messages
        told = [each for each in seen.whole_messages if len(each) == 5]
        stream = GREETING + b"".join(map(line_of, told))
        plain = Nats(limits=LIMITS)
        assert read(plain, stream, [len(stream)], MOST).messages == told
        for message in told:
            check_publish(plain, message)
    for sid, subject, reply, headers, payload in told:
        assert sid
        assert subject
        assert len(headers) <= LIMITS.max_headers
        assert len(payload) <= LIMITS.max_payload
        assert len(subject) + len(reply) <= LIMITS.max_line
        check_headers(bytes(headers))


def line_of(message: Message) -> bytes:
    """Return a message as a server writes it."""
    sid, subject, reply, headers, payload = map(bytes, message)
    verb, sizes = (
        (b"HMSG", b"%d %d" % (len(headers), len(headers + payload))) if headers else (b"MSG", b"%d" % len(payload))
    )
    words = [verb, subject, sid, *([reply] if reply else []), sizes]
    return b" ".join(words) + b"\r\n" + headers + payload + b"\r\n"


def check_publish(carrier: Nats, message: Message) -> None:
    """Check that a message which was read can be published unchanged: its words cannot break out of their line."""
    _, subject, reply, headers, payload = message
    line, _, rest = b"".join(carrier.encode([subject, reply, headers, payload])).partition(b"\r\n")
    words = line.split(b" ")
    assert words[0] == (b"HPUB" if headers else b"PUB")
    assert words[1:3] == [subject, reply] if reply else words[1] == subject
    assert int(words[-1]) == len(headers) + len(payload)
    assert rest == headers + payload + b"\r\n"


def check_headers(block: bytes) -> None:
    try:
        headers = read_headers(block)
    except Malformed:
        return
    if block:
        again = read_headers(write_headers(headers.fields, headers.status, headers.description))
        assert (again.status, again.description, again.fields) == (headers.status, headers.description, headers.fields)
