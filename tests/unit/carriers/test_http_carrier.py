"""HTTP/1.1 client carrier: requests as bytes, and responses cut anywhere."""

from __future__ import annotations

import random

import pytest
from cut_streams import feed_all, pieces_of, random_pieces, read_into_gap, reason_of

from case_tables import check_every_row
from dragoman.carriers.http import HttpClient, HttpClientLimits

OK = b"HTTP/1.1 200 OK\r\n"
LARGE = bytes(range(256)) * 1024


def asked(count: int = 1, limits: HttpClientLimits | None = None) -> HttpClient:
    carrier = HttpClient("127.0.0.1:7480", limits=limits or HttpClientLimits())
    for _ in range(count):
        carrier.encode([b"GET /livez", b"", b""])
    return carrier


def test_a_request_has_its_host_and_its_length() -> None:
    carrier = HttpClient("[::1]:7480")
    assert carrier.ready
    assert carrier.outgoing == []
    assert carrier.encode([b"GET /livez", b"", b""]) == [b"GET /livez HTTP/1.1\r\nhost: [::1]:7480\r\n\r\n"]
    assert carrier.encode([b"POST /v1/call/echo", b"dragoman-wait-for-worker: true\r\n", b"hello"]) == [
        b"POST /v1/call/echo HTTP/1.1\r\nhost: [::1]:7480\r\ncontent-length: 5\r\n"
        b"dragoman-wait-for-worker: true\r\n\r\nhello"
    ]
    assert carrier.encode([b"POST /v1/workers/1/next", b"", b""])[0].endswith(b"content-length: 0\r\n\r\n")
    head, body = carrier.encode([b"PUT /v1/schedules/nightly", b"", LARGE])
    assert (body is LARGE, b"content-length: 262144\r\n" in head) == (True, True)


def test_fields_of_the_carrier_are_in_every_request_but_the_probe() -> None:
    """A token must not reach a server that has not shown to be a broker."""
    carrier = HttpClient("h:1", probe=b"/livez", alive=b"alive\n", fields=b"authorization: Bearer secret\r\n")
    assert carrier.outgoing == [b"GET /livez HTTP/1.1\r\nhost: h:1\r\n\r\n"]
    assert carrier.encode([b"GET /v1/jobs", b"", b""]) == [
        b"GET /v1/jobs HTTP/1.1\r\nhost: h:1\r\nauthorization: Bearer secret\r\n\r\n"
    ]


def test_responses_are_the_same_however_their_bytes_are_cut() -> None:
    stream = b"".join(
        (
            OK + b"Content-Length: 5\r\nDragoman-Job:  0197 \r\n\r\nhello",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\nDragoman-Recall: aa,bb\r\n\r\n",
            OK + b"content-length: 0\r\n\r\n",
            OK + b"Transfer-Encoding: chunked\r\n\r\n5;name=value\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\n",
            OK + b"content-length: %d\r\ncontent-length: %d\r\n\r\n" % (len(LARGE), len(LARGE)) + LARGE,
            b"HTTP/1.0 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
        )
    )
    expected = [
        [b"200", b"content-length:5\ndragoman-job:0197", b"hello"],
        [b"204", b"dragoman-recall:aa,bb", b""],
        [b"200", b"content-length:0", b""],
        [b"200", b"transfer-encoding:chunked", b"hello!"],
        [b"200", b"content-length:262144\ncontent-length:262144", LARGE],
        [b"404", b"content-length:2\nconnection:close", b"no"],
    ]
    rng = random.Random(7)
    for pieces in (pieces_of(stream, len(stream)), pieces_of(stream, 1), pieces_of(stream, 700)):
        assert feed_all(asked(6), pieces) == expected
    for _ in range(20):
        assert feed_all(asked(6), random_pieces(stream, rng)) == expected
    for size in (1, 70, 70_000):
        carrier = asked(6)
        assert read_into_gap(carrier, stream, size) == expected
        assert carrier.holding == 0


def test_a_server_that_breaks_the_rules_fails_with_a_reason() -> None:
    def check(reason: str, stream: bytes, requests: int = 1) -> None:
        for size in (len(stream), 1):
            carrier = asked(requests, HttpClientLimits(max_head=200, max_payload=100))
            assert feed_all(carrier, pieces_of(stream, size)) == []
            assert reason_of(carrier) == reason
            assert carrier.feed(OK + b"content-length: 0\r\n\r\n") == []
            assert carrier.holding == 0

    check_every_row(
        check,
        [
            ("not http", b"\xff" + bytes(8) + b"\x7f"),
            ("not http", b"\0SP\0\0\x31\0\0"),
            ("not http", b"SSH-2.0-OpenSSH_9.2\r\n"),
            ("not http", b"-ERR unknown command 'GET'\r\n"),
            ("not http", b"HTTP/2 200\r\n"),
            ("unasked", OK, 0),
            ("unasked", b"HTTX", 0),
            ("bad status line", b"HTTP/1.1 2000 OK\r\n\r\n"),
            ("bad status line", b"HTTP/1.1  200 OK\r\n\r\n"),
            ("bad field", OK + b"no colon\r\n\r\n"),
            ("bad field", OK + b"a: b\r\n folded\r\n\r\n"),
            ("upgrade", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
            ("no length", OK + b"\r\n"),
            ("bad length", OK + b"content-length: -1\r\n\r\n"),
            ("bad length", OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\n"),
            ("bad coding", OK + b"transfer-encoding: gzip\r\n\r\n"),
            ("bad coding", OK + b"transfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n"),
            ("over max_payload", OK + b"content-length: 101\r\n\r\n"),
            ("over max_payload", OK + b"transfer-encoding: chunked\r\n\r\n41\r\n" + bytes(65) + b"\r\n40\r\n"),
            ("head too long", OK + b"a: " + bytes(200)),
            ("head too long", OK + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"t" * 201),
            ("bad chunk", OK + b"transfer-encoding: chunked\r\n\r\nx\r\n"),
            ("bad chunk", OK + b"transfer-encoding: chunked\r\n\r\n" + b"0" * 1025),
            ("bad chunk", OK + b"transfer-encoding: chunked\r\n\r\n1\r\nab\r\n"),
        ],
    )


def test_texts_of_the_longest_allowed_size_are_read_in_all_cuts() -> None:
    """A part of the line end behind them counted as a part of the text, so the cut decided."""
    chunked = OK + b"transfer-encoding: chunked\r\n\r\n"

    def check(stream: bytes, body: bytes) -> None:
        for size in (len(stream), 1, 2, 3):
            carrier = asked(1, HttpClientLimits(max_head=200, max_payload=100))
            [message] = feed_all(carrier, pieces_of(stream, size))
            assert isinstance(message, list)
            assert message[2] == body

    head = OK + b"content-length: 2\r\na: "
    check_every_row(
        check,
        [
            (head + b"b" * (200 - len(head)) + b"\r\n\r\nhi", b"hi"),
            (chunked + b"1;" + b"x" * 1022 + b"\r\na\r\n0\r\n\r\n", b"a"),
            (chunked + b"0\r\n" + b"t" * 200 + b"\r\n\r\n", b""),
        ],
    )


@pytest.mark.parametrize("limits", [{"max_head": 0}, {"max_payload": 0}])
def test_limits_are_above_0(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        HttpClientLimits(**limits)


def test_a_server_is_asked_whether_it_is_the_right_one_before_anything_else() -> None:
    probe = b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n"
    carrier = HttpClient("h", probe=b"/livez", alive=b"alive\n")
    assert (carrier.outgoing, carrier.ready) == ([probe], False)
    assert feed_all(carrier, pieces_of(OK + b"content-length: 6\r\n\r\nalive\n", 1)) == []
    assert carrier.ready
    carrier.encode([b"GET /v1/services", b"", b""])
    assert carrier.feed(OK + b"content-length: 2\r\n\r\n{}") == [[b"200", b"content-length:2", b"{}"]]


@pytest.mark.parametrize(
    "answer", [b"404 Not Found\r\ncontent-length: 6\r\n\r\nalive\n", b"200 OK\r\ncontent-length: 0\r\n\r\n"]
)
def test_another_server_is_a_failure(answer: bytes) -> None:
    carrier = HttpClient("h", probe=b"/livez", alive=b"alive\n")
    assert carrier.feed(b"HTTP/1.1 " + answer) == []
    assert (reason_of(carrier), carrier.ready) == ("no broker", False)
