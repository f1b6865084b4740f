"""Headers of NATS: blocks that are read and written, statuses, and blocks that are neither."""

from __future__ import annotations

import pytest

from case_tables import check_every_row
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.nats_headers import MAX_FIELDS, NO_HEADERS, read_headers, write_headers


def test_blocks_of_the_server_are_read() -> None:
    """As nats-server 2.15.1 writes them."""

    def check(block: bytes, status: int, description: bytes, fields: list[tuple[bytes, bytes]]) -> None:
        headers = read_headers(block)
        assert (headers.status, headers.description, headers.fields) == (status, description, fields)
        assert read_headers(bytearray(block)).fields == fields

    check_every_row(
        check,
        [
            (b"NATS/1.0\r\n\r\n", 0, b"", []),
            (b"NATS/1.0\r\nA: b\r\nA:c\r\nB: \r\n\r\n", 0, b"", [(b"A", b"b"), (b"A", b"c"), (b"B", b"")]),
            (b"NATS/1.0 503\r\n\r\n", 503, b"", []),
            (b"NATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n", 503, b"", [(b"Nats-Subject", b"nobody")]),
            (b"NATS/1.0 404 Message Not Found\r\n\r\n", 404, b"Message Not Found", []),
            (b"NATS/1.0 408 Request Timeout\r\n\r\n", 408, b"Request Timeout", []),
            (b"NATS/1.0 409 Consumer Deleted\r\n\r\n", 409, b"Consumer Deleted", []),
            (b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", 100, b"Idle Heartbeat", []),
            (
                b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 2\r\nNats-Last-Sequence: 3\r\n\r\n",
                204,
                b"EOB",
                [(b"Nats-Num-Pending", b"2"), (b"Nats-Last-Sequence", b"3")],
            ),
            (b"NATS/1.0\r\nTime: 10:20:30\r\n\r\n", 0, b"", [(b"Time", b"10:20:30")]),
            ("NATS/1.0\r\nName: ü\r\n\r\n".encode(), 0, b"", [(b"Name", "ü".encode())]),
        ],
    )


def test_no_block_is_no_headers() -> None:
    assert read_headers(b"") is NO_HEADERS


def test_values_are_found_by_name_and_case() -> None:
    headers = read_headers(b"NATS/1.0\r\nA: b\r\nA: c\r\nN: 12\r\nM: -1\r\nL: " + b"9" * 30 + b"\r\n\r\n")
    assert (headers.get(b"A"), headers.get(b"a"), headers.get(b"Z")) == (b"b", None, None)
    assert [headers.number(each) for each in (b"N", b"M", b"L", b"A", b"Z")] == [12, None, None, None, None]


def test_bad_blocks_are_malformed() -> None:
    def check(block: bytes) -> None:
        with pytest.raises(Malformed, match="bad headers"):
            read_headers(block)

    bad = [b"x", b"NATS/1.0", b"NATS/1.0\r\n", b"NATS/2.0\r\n\r\n", b"HTTP/1.1 200\r\n\r\n", b"NATS/1.0 50\r\n\r\n"]
    bad += [b"NATS/1.0\r\nno colon\r\n\r\n", b"NATS/1.0\r\n: x\r\n\r\n", b"NATS/1.0\r\na b: x\r\n\r\n"]
    bad += [
        b"NATS/1.0\r\na: x\ny\r\n\r\n",
        b"NATS/1.0\r\na: x\ry\r\n\r\n",
        b"NATS/1.0 503x\r\n\r\n",
        b"NATS/1.0 006\r\n\r\n",
    ]
    bad += [b"NATS/1.0\r\n\r\na: b\r\n\r\n", b"NATS/1.0" + b"\r\na: b" * (MAX_FIELDS + 1) + b"\r\n\r\n"]
    check_every_row(check, [(each,) for each in bad])


def test_blocks_are_written_as_they_are_read() -> None:
    fields = [(b"Nats-Expected-Last-Sequence", b"7"), (b"A", b""), (b"A", b"b: c")]
    block = write_headers(fields)
    assert block == b"NATS/1.0\r\nNats-Expected-Last-Sequence: 7\r\nA: \r\nA: b: c\r\n\r\n"
    assert read_headers(block).fields == fields
    assert write_headers([], 503) == b"NATS/1.0 503\r\n\r\n"
    assert write_headers([], 408, b"Request Timeout") == b"NATS/1.0 408 Request Timeout\r\n\r\n"


def test_nothing_can_break_out_of_a_header() -> None:
    def check(name: bytes, value: bytes) -> None:
        with pytest.raises(ValueError, match="a name is visible ASCII"):
            write_headers([(name, value)])

    rows = [(b"", b""), (b"a:b", b""), (b"a b", b""), (b"a\r\nb", b""), (b"a", b"x\r\ny: z"), (b"a", b"x\ny")]
    check_every_row(check, [*rows, (b"a", b"\r")])
    with pytest.raises(ValueError, match="three digits"):
        write_headers([], 99)
    with pytest.raises(ValueError, match="one line"):
        write_headers([], 503, b"a\r\nb: c")
