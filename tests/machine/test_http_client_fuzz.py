"""I18 for HTTP of a client: any bytes, cut anywhere, give the same responses or the same one failure, and never an
exception. The carrier's threshold for large bodies (64 KiB) is tiny here, and so are the limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.carriers import http as carrier
from dragoman.carriers.http import HttpClient, HttpClientLimits

TINY = HttpClientLimits(max_head=150, max_payload=80)
MANY = 50  # requests without a response

HEADS = (
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 204 None\r\n",
    b"HTTP/1.0 404 \r\n",
    b"HTTP/1.1 100 Continue\r\n",
    b"HTTP/1.",
)
FIELDS = (b"content-length: 5\r\n", b"Content-Length: 70\r\n", b"transfer-encoding: chunked\r\n", b"a:b\r\n", b": \r\n")
BODIES = (b"\r\n", b"hello", bytes(70), b"5\r\nhello\r\n", b"0\r\n\r\n", b"1;x\r\n", b"\r\n\r\n")
PIECES = st.one_of(st.sampled_from(HEADS + FIELDS + BODIES), st.binary(max_size=12))
STREAMS = st.lists(PIECES, max_size=14).map(b"".join)

Seen = tuple[list[list[bytes]], str, bool]


@pytest.fixture(scope="module", autouse=True)
def tiny_sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carrier, "LARGE_FRAME", 24)
        yield


def run(stream: bytes, sizes: list[int], use_gap: bool) -> Seen:
    client = HttpClient("h", limits=TINY)
    for _ in range(MANY):
        client.encode([b"GET /", b"", b""])
    messages: list[list[bytes]] = []
    pos = run_once = 0
    while pos < len(stream):
        count = sizes[run_once % len(sizes)]
        run_once += 1
        gap = client.gap
        if use_gap and gap is not None:
            piece = stream[pos : pos + min(count, len(gap))]
            gap[: len(piece)] = piece
            heard = client.fill(len(piece))
        else:
            piece = stream[pos : pos + count]
            heard = client.feed(piece)
        pos += len(piece)
        for message in heard:
            assert isinstance(message, list)
            messages.append([bytes(frame) for frame in message])
        assert client.holding <= 2 * TINY.max_head + TINY.max_payload + 1024, f"holds {client.holding} bytes"
        assert client.gap is None or len(client.gap) > 0
    return messages, str(client.failure or ""), bool(client.holding)


@given(STREAMS, st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_cuts_do_not_matter(stream: bytes, sizes: list[int]) -> None:
    whole = run(stream, [len(stream) + 1], False)
    for each in ([1], sizes):
        assert run(stream, each, False) == whole
        assert run(stream, each, True) == whole


@given(st.lists(st.tuples(st.sampled_from((b"200", b"404", b"502")), st.binary(max_size=80)), max_size=6), st.data())
def test_well_formed_responses_come_out_as_they_went_in(said: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    stream = b""
    for status, body in said:
        stream += b"HTTP/1.1 %s x\r\n" % status
        if data.draw(st.booleans()):
            stream += b"content-length: %d\r\n\r\n" % len(body) + body
        else:
            cut = data.draw(st.integers(0, len(body)))
            chunks = [each for each in (body[:cut], body[cut:]) if each]
            stream += b"transfer-encoding: chunked\r\n\r\n"
            stream += b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n"
    messages, failure, is_holding = run(stream, [7], True)
    assert ([(status, body) for status, _, body in messages], failure, is_holding) == (said, "", False)
