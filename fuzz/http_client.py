"""Fuzz target: HTTP of a client. The first byte is the number of requests; its top bit requests a probe first."""

from __future__ import annotations

from typing import Final

from dragoman.carriers import http
from dragoman.carriers.http import LONGEST_SIZE_LINE, HttpClient, HttpClientLimits
from fuzz.cuts import read, seen_in_all_cuts, small_sizes

LIMITS: Final = HttpClientLimits(max_head=150, max_payload=80)
MOST: Final = 2 * LIMITS.max_head + LIMITS.max_payload + LONGEST_SIZE_LINE
PROBE: Final = 0x80


def test_one_input(data: bytes) -> None:
    choice = data[0] if data else 0
    requests = choice & ~PROBE

    def new() -> HttpClient:
        probe = b"/healthz" if choice & PROBE else b""
        client = HttpClient("localhost", probe=probe, alive=b"ok\n", limits=LIMITS)
        for _ in range(requests):
            client.encode([b"GET /", b"", b""])
        return client

    with small_sizes(http, LARGE_FRAME=24):
        seen = seen_in_all_cuts(new, data[1:], MOST)
        assert len(seen.messages) <= requests
        for status, fields, body in seen.whole_messages:
            assert len(body) <= LIMITS.max_payload
            if len(fields) < 100:
                _check_again(bytes(status), bytes(fields), bytes(body))


def _check_again(status: bytes, fields: bytes, body: bytes) -> None:
    """Check that a response of the same status, fields and body is read alike."""
    kept = [each for each in fields.split(b"\n") if each and not each.startswith((b"content-length:", b"transfer-"))]
    head = b"".join(each + b"\r\n" for each in kept)
    length = b"" if status in (b"204", b"304") else b"content-length: %d\r\n" % len(body)
    client = HttpClient("localhost", limits=LIMITS)
    client.encode([b"GET /", b"", b""])
    stream = b"HTTP/1.1 %b\r\n%b%b\r\n%b" % (status, length, head, body)
    [(again, _, same)] = read(client, stream, [len(stream)], MOST).whole_messages
    assert (again, same) == (status, body)
