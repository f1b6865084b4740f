"""The transport of a response: which bytes are sent together."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dragoman.http.transports import LARGE_BODY, ResponseTransport, Traffic

COMMON = b"date: today\r\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
SENT_HEAD = b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 5\r\n\r\n"


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


@pytest.fixture
def transport() -> Transport:
    return Transport()


def response(transport: Transport, traffic: Traffic | None = None) -> ResponseTransport:
    return ResponseTransport(cast(Any, transport), traffic or Traffic(), COMMON)


def test_head_is_sent_with_its_body(transport: Transport) -> None:
    traffic = Traffic()
    answer = response(transport, traffic)
    answer.write(HEAD)
    assert transport.written == []
    answer.write(b"hello")
    answer.flush()
    assert transport.written == [SENT_HEAD + b"hello"]
    assert traffic.sent == len(SENT_HEAD) + 5


def test_large_body_is_not_copied(transport: Transport) -> None:
    answer, body = response(transport), bytes(LARGE_BODY + 1)
    answer.write(HEAD)
    answer.write(body)
    assert transport.written[0] == SENT_HEAD
    assert transport.written[1] is body


@pytest.mark.parametrize("end", ["flush", "close"])
def test_head_without_a_body_is_sent_at_the_end(transport: Transport, end: str) -> None:
    answer = response(transport)
    answer.write(HEAD)
    getattr(answer, end)()
    assert transport.written == [SENT_HEAD]
    assert transport.is_closed is (end == "close")


def test_head_of_a_stream_is_sent_at_once(transport: Transport) -> None:
    answer = response(transport)
    answer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    assert transport.written == [b"HTTP/1.1 200 OK\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n"]


def test_interim_response_precedes_the_head(transport: Transport) -> None:
    answer = response(transport)
    answer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    answer.write(HEAD)
    answer.write(b"hello")
    assert transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n", SENT_HEAD + b"hello"]
