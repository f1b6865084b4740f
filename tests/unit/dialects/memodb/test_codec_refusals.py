"""MemoDB headers that are refused: R72, R77, R78."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from case_tables import check_every_row
from dragoman.dialects.memodb import codec
from dragoman.dialects.memodb.messages import Job

from .headers import ARRAY, BYTES, ID, KIB_64, MEMO01, MOST, TEXT, both_ways, head, header, malformed

FLOATS = [b"\xf9\x3c\x00", b"\xfa" + struct.pack(">f", 1.0), b"\xfb" + struct.pack(">d", 1.0)]
STRANGE = [
    *FLOATS,
    b"\xf6",  # null
    b"\xf7",  # undefined
    b"\xe0",  # simple(0)
    b"\xf8\x20",  # simple(32)
    b"\xf8\x14",  # false in a form that is not well-formed
    b"\xff",  # break
    b"\xa0",  # an empty map
    b"\xbf\xff",
    b"\xc2\x41\x01",  # a bignum
    b"\xc1\x01",  # a tag
    b"\xd9\xd9\xf7\x01",  # "this is CBOR"
    b"\xd8\x1d\x00",  # a shared reference
]
RESERVED = [bytes([major << 5 | info]) for major in range(8) for info in (28, 29, 30)]
INDEFINITE = [b"\x5f\x41\x01\xff", b"\x7f\x61a\xff", b"\x9f\x61a\xff", b"\x9f\xff", b"\x1f", b"\x3f"]
NEVER = [*STRANGE, *RESERVED, *INDEFINITE]


def test_r78_only_an_array_of_definite_length_is_a_header() -> None:
    def check(item: bytes) -> None:
        assert malformed(item + MEMO01 + b"\x03\x40").reason == "not a memo01 header"

    check_every_row(check, [(item,) for item in NEVER])


@pytest.mark.parametrize("body", [b"GET / HTTP/1.1\r\n", b"\x00", b"\x20", b"memo01", MEMO01, b"\x46memo01", b"{}"])
def test_r77_what_is_no_array_is_no_header(body: bytes) -> None:
    assert malformed(body).reason == "not a memo01 header"


def test_r78_only_a_text_is_a_version() -> None:
    def check(item: bytes) -> None:
        assert malformed(b"\x83" + item + b"\x03\x40").reason == "not a memo01 header"

    check_every_row(check, [(item,) for item in (*NEVER, b"\x01", b"\x20", b"\x46memo01", b"\x80", b"\xf5")])


@pytest.mark.parametrize("version", ["memo02", "memo1", "memo010", "MEMO01", "", "memo0\0", "x" * 1000])
def test_r77_another_version_is_refused(version: str) -> None:
    assert malformed(header(version, 3, b"")).reason == "wrong version"
    assert malformed(header(version)).reason == "wrong version"


def test_a_version_that_is_not_utf8_is_another_version() -> None:
    assert malformed(b"\x83\x66memo0\xff\x03\x40").reason == "wrong version"


def test_r78_only_an_unsigned_integer_is_a_type() -> None:
    def check(item: bytes) -> None:
        assert malformed(b"\x83" + MEMO01 + item + b"\x40").reason == "wrong field"

    check_every_row(
        check, [(item,) for item in (*NEVER, b"\x20", b"\x41\x03", b"\x61\x33", b"\x80", b"\x81\x03", b"\xf5")]
    )


@pytest.mark.parametrize("kind", [0, 6, 7, 23, 24, 255, 256, 259, 65_539, 2**32 + 3, MOST])
def test_r77_an_unknown_type_is_refused(kind: int) -> None:
    for count in (3, 4, 5):
        items = ["memo01", kind, b"", "echo", 1][:count]
        assert malformed(header(*items)).reason == "unknown type"


@pytest.mark.parametrize(
    ("begin", "rest"),
    [
        (b"\x84" + MEMO01 + b"\x01", b"\x81\x64echo"),
        (b"\x85" + MEMO01 + b"\x02", b"\x64echo\x01"),
        (b"\x83" + MEMO01 + b"\x03", b""),
        (b"\x84" + MEMO01 + b"\x03", b"\xf5"),
        (b"\x83" + MEMO01 + b"\x04", b""),
        (b"\x83" + MEMO01 + b"\x05", b""),
    ],
    ids=["ready", "job", "result", "leaving", "heartbeat", "disconnect"],
)
def test_r78_only_a_byte_string_is_an_id(begin: bytes, rest: bytes) -> None:
    def check(item: bytes) -> None:
        assert malformed(begin + item + rest).reason == "wrong field"

    check_every_row(check, [(item,) for item in (*NEVER, b"\x01", b"\x20", b"\x61a", b"\x60", b"\x80", b"\xf5")])


@pytest.mark.parametrize(
    "items",
    [
        [],
        ["memo01"],
        ["memo01", 1],
        ["memo01", 9],
        ["memo01", 3],
        ["memo01", 1, b""],
        ["memo01", 2, b""],
        ["memo01", 2, b"", "echo"],
    ],
    ids=repr,
)
def test_r77_too_few_items_are_refused(items: list[object]) -> None:
    assert malformed(header(*items)).reason == "missing field"
    assert malformed(header(*items) + b"\x40\x64echo\x01").reason == "missing field"


@pytest.mark.parametrize(
    "items",
    [
        ["memo01", 1, b"", ["echo"], 1],
        ["memo01", 2, b"", "echo", 1, 1],
        ["memo01", 3, b"", True, True],
        ["memo01", 3, ID, False, None],
        ["memo01", 4, ID, 1],
        ["memo01", 4, ID, True],
        ["memo01", 5, ID, b""],
        ["memo01", 5, *[b""] * 100],
    ],
    ids=repr,
)
def test_r77_too_many_items_are_refused(items: list[object]) -> None:
    assert malformed(header(*items)).reason == "extra field"


def test_r78_only_a_text_is_a_service() -> None:
    def check(item: bytes) -> None:
        for id in (b"\x40", b"\x50" + ID):
            assert both_ways(b"\x85" + MEMO01 + b"\x02" + id + item + b"\x01payload")[0] == "wrong field"  # type: ignore[index]
        assert malformed(b"\x84" + MEMO01 + b"\x01\x40\x81" + item).reason == "wrong field"
        assert malformed(b"\x84" + MEMO01 + b"\x01\x40\x82\x61a" + item).reason == "wrong field"

    check_every_row(check, [(item,) for item in (*NEVER, b"\x01", b"\x20", b"\x44echo", b"\x80", b"\xf5")])


@pytest.mark.parametrize("name", ["", "a\0", "\n", "\x7f", "\x85", "n" * 129, "ö" * 65, "n" * 1000], ids=repr)
def test_a_bad_service_name_is_refused(name: str) -> None:
    for id in (b"", ID):
        assert malformed(header("memo01", 2, id, name, 1) + b"payload").reason == "bad service name"
    assert malformed(header("memo01", 1, b"", [name])).reason == "bad service name"
    assert malformed(header("memo01", 1, b"", ["echo", name])).reason == "bad service name"


@pytest.mark.parametrize("raw", [b"\xff", b"caf\xe9", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xc3"])
def test_a_service_name_that_is_not_utf8_is_refused(raw: bytes) -> None:
    text = head(TEXT, len(raw), 0) + raw
    for id in (b"\x40", b"\x50" + ID):
        assert malformed(b"\x85" + MEMO01 + b"\x02" + id + text + b"\x01payload").reason == "bad service name"
    assert malformed(b"\x84" + MEMO01 + b"\x01\x40\x81" + text).reason == "bad service name"


def test_a_name_is_refused_again_when_it_comes_again() -> None:
    """Names that were seen are remembered, but only the good ones."""
    for _ in range(3):
        assert malformed(header("memo01", 2, b"", "a\tb", 1) + b"payload").reason == "bad service name"
        assert isinstance(codec.read(header("memo01", 2, b"", "a b", 1) + b"payload"), Job)


def test_many_names_are_told_apart() -> None:
    """More of them than are remembered, twice."""
    for number in [*range(3000)] * 2:
        read = codec.read(header("memo01", 2, b"", f"s{number}", number) + b"payload")
        assert read == Job(b"", f"s{number}", number, b"payload")
    assert codec._name.cache_info().currsize <= 1024
    assert codec._job_tail.cache_info().maxsize == 1024


def test_r78_only_an_array_is_a_list_of_services() -> None:
    def check(item: bytes) -> None:
        assert malformed(b"\x84" + MEMO01 + b"\x01\x40" + item).reason == "wrong field"

    check_every_row(check, [(item,) for item in (*NEVER, b"\x01", b"\x20", b"\x64echo", b"\x41\x00", b"\xf5")])


@pytest.mark.parametrize("names", [[], ["a"] * 65, ["a"] * 1000])
def test_a_list_of_no_or_too_many_services_is_refused(names: list[str]) -> None:
    assert malformed(header("memo01", 1, b"", names)).reason == "bad service list"


@pytest.mark.parametrize("names", [[["echo"]], ["echo", ["echo"]], [[]], [[[["echo"]]]]], ids=repr)
def test_r78_a_list_in_the_list_of_services_is_refused(names: list[object]) -> None:
    assert malformed(header("memo01", 1, b"", names)).reason == "wrong field"


def test_r72_only_an_integer_is_a_timeout() -> None:
    def check(item: bytes) -> None:
        for id in (b"\x40", b"\x50" + ID):
            assert malformed(b"\x85" + MEMO01 + b"\x02" + id + b"\x64echo" + item + b"payload").reason == "bad timeout"

    check_every_row(
        check, [(item,) for item in (*NEVER, b"\x41\x01", b"\x611", b"\x80", b"\x81\x01", b"\xf4", b"\xf5")]
    )


@pytest.mark.parametrize("timeout", [-2, -24, -25, -256, -5000, -(2**32), -(2**63), -(2**64), 2**64, -(2**64) - 1])
def test_r72_other_negative_timeouts_and_bignums_are_refused(timeout: int) -> None:
    for id in (b"", ID):
        assert malformed(header("memo01", 2, id, "echo", timeout) + b"payload").reason == "bad timeout"


def test_r78_only_true_and_false_are_flags() -> None:
    def check(item: bytes) -> None:
        assert malformed(b"\x84" + MEMO01 + b"\x03\x50" + ID + item + b"payload").reason == "wrong field"

    check_every_row(check, [(item,) for item in (*NEVER, b"\x00", b"\x01", b"\x20", b"\x41\x01", b"\x61a", b"\x80")])


@pytest.mark.parametrize("length", [2, 4, 8])
def test_r78_a_length_is_compared_and_never_reserved(length: int) -> None:
    """Claims of 64 KiB to 2^64 bytes and items, in messages of a few bytes."""
    huge = (1 << 8 * length) - 1
    begin = b"\x83" + MEMO01 + b"\x03"
    tracemalloc.start()
    assert malformed(begin + head(BYTES, huge, length) + b"x").reason == "header too long"
    assert malformed(b"\x83" + head(TEXT, huge, length) + b"memo01").reason == "header too long"
    assert malformed(b"\x85" + MEMO01 + b"\x02\x40" + head(TEXT, huge, length) + b"e\x01").reason == "header too long"
    assert malformed(b"\x84" + MEMO01 + b"\x01\x40" + head(ARRAY, huge, length)).reason == "bad service list"
    assert malformed(head(ARRAY, huge, length) + MEMO01 + b"\x03\x40").reason == "extra field"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < KIB_64


def test_r78_deep_nesting_is_refused_at_once() -> None:
    for depth in (2, 1000, 1_000_000):
        assert malformed(b"\x81" * depth).reason == "not a memo01 header"
        assert malformed(b"\x84" + MEMO01 + b"\x01\x40" + b"\x81" * depth).reason == "wrong field"
