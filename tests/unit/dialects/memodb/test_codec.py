"""MemoDB's messages: the vectors of its page, every rule for what is read, and agreement with another CBOR library."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from io import BytesIO

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from case_tables import check_every_row
from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.memodb import codec
from dragoman.dialects.memodb.messages import (
    DISCONNECT,
    HEARTBEAT,
    JOB,
    READY,
    RESULT,
    VERSION,
    Disconnect,
    Heartbeat,
    Job,
    Ready,
    Result,
    Word,
)

WORKER = bytes.fromhex("d85ff47f")
ID = bytes(range(16))
MEMO01 = bytes.fromhex("66 6d656d6f3031")
KIB_64 = 65_536
UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY = range(5)
MOST = 2**64 - 1
REASONS = {
    "not a memo01 header",
    "truncated header",
    "header too long",
    "wrong version",
    "unknown type",
    "missing field",
    "extra field",
    "wrong field",
    "bad service name",
    "bad service list",
    "bad timeout",
    "unwanted payload",
}


def header(*items: object) -> bytes:
    """Deterministically encoded, by a library that is not ours."""
    return cbor2.dumps(list(items), canonical=True)


def head(major: int, value: int, length: int) -> bytes:
    """A head that writes its value in this many bytes; 0 is within the first byte."""
    if length == 0:
        return bytes([major << 5 | value])
    return bytes([major << 5 | 24 + (1, 2, 4, 8).index(length)]) + value.to_bytes(length, "big")


def malformed(body: Frame) -> Malformed:
    with pytest.raises(Malformed) as caught:
        codec.read(body)
    assert caught.value.reason in REASONS
    assert caught.value.detail
    return caught.value


def outcome(body: Frame) -> Word | tuple[str, str]:
    try:
        return codec.read(body)
    except Malformed as error:
        return error.reason, error.detail


def both_ways(body: bytes) -> Word | tuple[str, str]:
    """Bytes go the short way where there is one, a bytearray never does."""
    careful = outcome(bytearray(body))
    assert outcome(body) == careful, body.hex()
    return careful


# -------------------------------------------------------------------- the page's vectors

VECTORS = [
    ("84 66 6d656d6f3031 01 40 81 64 6563686f", "", Ready(("echo",)), lambda: codec.write_ready(["echo"])),
    (
        "85 66 6d656d6f3031 02 40 64 6563686f 19 1388",
        "68656c6c6f",
        Job(b"", "echo", 5000, b"hello"),
        lambda: codec.write_job(b"", "echo", 5000),
    ),
    (
        "85 66 6d656d6f3031 02 44 d85ff47f 64 6563686f 19 1388",
        "68656c6c6f",
        Job(WORKER, "echo", 5000, b"hello"),
        lambda: codec.write_job(WORKER, "echo", 5000),
    ),
    (
        "84 66 6d656d6f3031 03 44 d85ff47f f5",
        "6f6c6c6568",
        Result(WORKER, True, b"olleh"),
        lambda: codec.write_result(WORKER, True),
    ),
    ("83 66 6d656d6f3031 03 40", "6f6c6c6568", Result(b"", False, b"olleh"), lambda: codec.write_result(b"")),
    ("83 66 6d656d6f3031 04 44 d85ff47f", "", Heartbeat(WORKER), lambda: codec.write_heartbeat(WORKER)),
    ("83 66 6d656d6f3031 05 44 d85ff47f", "", Disconnect(WORKER), lambda: codec.write_disconnect(WORKER)),
]
vectors = pytest.mark.parametrize(
    ("encoded", "payload", "word", "write"), VECTORS, ids=[type(each[2]).__name__ for each in VECTORS]
)


@vectors
def test_a_vector_is_read(encoded: str, payload: str, word: Word, write: Callable[[], bytes]) -> None:
    body = bytes.fromhex(encoded) + bytes.fromhex(payload)
    assert codec.read(body) == word
    assert codec.read(bytearray(body)) == word


@vectors
def test_a_vector_is_written(encoded: str, payload: str, word: Word, write: Callable[[], bytes]) -> None:
    assert write().hex() == bytes.fromhex(encoded).hex()


def test_the_types_are_those_of_the_table() -> None:
    assert (VERSION, READY, JOB, RESULT, HEARTBEAT, DISCONNECT) == ("memo01", 1, 2, 3, 4, 5)


# -------------------------------------------------------------------- what is accepted

VALID = [
    (header("memo01", 1, b"", ["echo"]), Ready(("echo",))),
    (header("memo01", 1, ID, ["echo", "größe"]), Ready(("echo", "größe"), ID)),
    (header("memo01", 1, b"", ["x" * 128] * 64), Ready(("x" * 128,))),
    (header("memo01", 2, b"", "echo", 5000), Job(b"", "echo", 5000, b"")),
    (header("memo01", 2, b"", "e", 0), Job(b"", "e", 0, b"")),
    (header("memo01", 2, b"", "n" * 23, 2**32 - 1), Job(b"", "n" * 23, 2**32 - 1, b"")),
    (header("memo01", 2, b"", "n" * 24, 1), Job(b"", "n" * 24, 1, b"")),
    (header("memo01", 2, b"", "n" * 128, MOST), Job(b"", "n" * 128, MOST, b"")),
    (header("memo01", 2, ID, "echo", -1), Job(ID, "echo", -1, b"")),
    (header("memo01", 2, b"", "echo", -1), Job(b"", "echo", -1, b"")),
    (header("memo01", 3, ID), Result(ID, False, b"")),
    (header("memo01", 3, ID, True), Result(ID, True, b"")),
    (header("memo01", 3, b""), Result(b"", False, b"")),
    (header("memo01", 4, ID), Heartbeat(ID)),
    (header("memo01", 4, b"i" * 300), Heartbeat(b"i" * 300)),
    (header("memo01", 5, ID), Disconnect(ID)),
    (header("memo01", 5, b""), Disconnect(b"")),
]
PAYLOADS = [b"", b"\0", b"abc", b"\xf4", b"\x83\x66memo01\x03\x40", b"p" * 300]
valid = pytest.mark.parametrize(("encoded", "word"), VALID, ids=[each[0].hex()[:40] for each in VALID])


@valid
def test_a_valid_header_is_read(encoded: bytes, word: Word) -> None:
    assert both_ways(encoded) == word


@valid
def test_whatever_follows_the_header_is_the_payload_or_unwanted(encoded: bytes, word: Word) -> None:
    for payload in PAYLOADS[1:]:
        read = both_ways(encoded + payload)
        if isinstance(word, Job):
            assert read == Job(word.id, word.service, word.timeout, payload)
        elif isinstance(word, Result):
            assert read == Result(word.id, word.is_leaving, payload)
        else:
            assert malformed(encoded + payload).reason == "unwanted payload"


@valid
def test_every_truncation_of_a_valid_header_is_malformed(encoded: bytes, word: Word) -> None:
    for end in range(len(encoded)):
        assert malformed(encoded[:end]).reason == "truncated header"
        assert malformed(bytearray(encoded[:end])).reason == "truncated header"


@pytest.mark.parametrize("timeout", [-1, 0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 86_400_000, MOST])
@pytest.mark.parametrize("id", [b"", ID])
def test_r72_minus_one_and_every_unsigned_timeout_is_read(timeout: int, id: bytes) -> None:
    for payload in PAYLOADS:
        assert both_ways(header("memo01", 2, id, "echo", timeout) + payload) == Job(id, "echo", timeout, payload)


def test_false_is_the_same_as_no_flag() -> None:
    assert both_ways(header("memo01", 3, ID, False) + b"r") == Result(ID, False, b"r")


def test_duplicate_services_are_dropped_in_the_order_of_first_mentions() -> None:
    read = both_ways(header("memo01", 1, b"", ["b", "a", "b", "c", "a"]))
    assert read == Ready(("b", "a", "c"))


def test_64_services_are_read_and_65_are_not_even_if_they_are_the_same() -> None:
    names = [f"service-{number}" for number in range(64)]
    assert both_ways(header("memo01", 1, b"", names)) == Ready(tuple(names))
    assert malformed(header("memo01", 1, b"", [*names, names[0]])).reason == "bad service list"


@pytest.mark.parametrize("length", [0, 1, 4, 15, 16, 17, 23, 24, 255, 256, 60_000])
def test_an_id_may_have_any_length(length: int) -> None:
    id = b"\x50" * length
    assert both_ways(header("memo01", 3, id) + b"r") == Result(id, False, b"r")
    assert both_ways(header("memo01", 4, id)) == Heartbeat(id)
    assert both_ways(header("memo01", 2, id, "echo", 7) + b"j") == Job(id, "echo", 7, b"j")


def test_a_header_may_have_64_kib_and_no_more() -> None:
    longest = b"i" * (KIB_64 - len(MEMO01) - 5)
    body = header("memo01", 3, longest)
    assert len(body) == KIB_64
    assert both_ways(body + b"p") == Result(longest, False, b"p")
    assert malformed(header("memo01", 3, longest + b"i")).reason == "header too long"


@pytest.mark.parametrize(
    "rest",
    [b"\x61e\x00", b"\x61e\x19\x13\x88", b"\x78\x01e\x00", b"\x61e\x20", b"\x61e\x38\x00"],
    ids=bytes.hex,
)
def test_the_limit_of_a_header_holds_at_every_byte_of_it(rest: bytes) -> None:
    """Whichever item reaches over the limit, and however much of a payload there is behind it."""
    begin = b"\x85" + MEMO01 + b"\x02"
    for over in range(len(rest) + 1):
        id = b"i" * (KIB_64 - len(begin) - 3 - len(rest) + over)
        body = begin + head(BYTES, len(id), 2) + id + rest + b"payload"
        if over == 0:
            assert isinstance(both_ways(body), Job)
        else:
            assert malformed(body).reason == "header too long"


def test_the_flag_counts_for_the_limit_of_a_header() -> None:
    id = b"i" * (KIB_64 - len(MEMO01) - 6)
    assert both_ways(header("memo01", 3, id, True) + b"p") == Result(id, True, b"p")
    assert malformed(header("memo01", 3, id + b"i", True) + b"p").reason == "header too long"


# -------------------------------------------------------------------- longer than need be


@pytest.mark.parametrize("length", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("place", ["array", "version", "type", "id", "name", "timeout"])
def test_a_job_may_write_any_head_longer_than_need_be(place: str, length: int) -> None:
    def at(this: str, major: int, value: int) -> bytes:
        return head(major, value, length if this == place else 0)

    for value, id in ((0, b""), (0, ID), (9, b""), (23, ID)):
        items = (
            at("array", ARRAY, 5),
            at("version", TEXT, 6) + b"memo01",
            at("type", UNSIGNED, 2),
            at("id", BYTES, len(id)) + id,
            at("name", TEXT, 4) + b"echo",
            at("timeout", UNSIGNED, value),
        )
        assert both_ways(b"".join(items) + b"payload") == Job(id, "echo", value, b"payload")


@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_other_heads_may_be_longer_than_need_be(length: int) -> None:
    begin = b"\x84" + MEMO01 + b"\x01\x40"
    names = head(TEXT, 1, length) + b"a" + head(TEXT, 1, length) + b"b"
    assert both_ways(begin + head(ARRAY, 2, length) + names) == Ready(("a", "b"))
    no_limit = b"\x85" + MEMO01 + b"\x02\x40\x61e" + head(NEGATIVE, 0, length)
    assert both_ways(no_limit + b"payload") == Job(b"", "e", -1, b"payload")
    beat = head(ARRAY, 3, length) + MEMO01 + head(UNSIGNED, 4, length) + head(BYTES, 16, length) + ID
    assert both_ways(beat) == Heartbeat(ID)


# -------------------------------------------------------------------- what is refused

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


# -------------------------------------------------------------------- what a log may say


@pytest.mark.parametrize(
    "body",
    [
        b"secret",
        b"\xffsecret",
        header("memo01", 4, ID) + b"secret",
        header("memo01", 1, b"", ["echo"]) + b"secret",
        header("memo01", 2, b"", "echo", -2) + b"secret",
        header("memo01", 2, b"", "\n", 1) + b"secret",
        header("memo01", 3, b"", None) + b"secret",
        header("memo01", 9, b"") + b"secret",
        header("memo01", 3, b"secret", b"secret"),
    ],
    ids=bytes.hex,
)
def test_a_payload_is_never_shown_in_the_detail(body: bytes) -> None:
    assert "secret" not in str(malformed(body))


@pytest.mark.parametrize(
    "begin",
    [b"\x83", b"\x85" + MEMO01 + b"\x02\x40", b"\x84" + MEMO01 + b"\x01\x40\x81"],
    ids=["version", "job", "ready"],
)
@pytest.mark.parametrize(
    "raw", [b"n" * 200, b"\x1b" * 60, b"\xff" * 150, "\u202e".encode() * 50, "€".encode() * 65, b"'\"\n" * 50]
)
def test_a_name_is_shown_escaped_and_cut(begin: bytes, raw: bytes) -> None:
    detail = malformed(begin + head(TEXT, len(raw), 1) + raw + b"\x01payload").detail
    assert detail.isprintable()
    assert len(detail) < 64 + 100
    assert repr(raw.decode("utf-8", "replace"))[:64] in detail
    assert repr(raw.decode("utf-8", "replace"))[:65] not in detail


# -------------------------------------------------------------------- large payloads


@pytest.mark.parametrize(
    "encoded",
    [header("memo01", 2, b"", "echo", 5000), header("memo01", 3, ID), header("memo01", 3, ID, True)],
    ids=["job", "result", "leaving"],
)
def test_a_bytearray_is_its_own_payload_with_the_header_taken_off(encoded: bytes) -> None:
    payload = bytes(range(256)) * 4096
    body = bytearray(encoded + payload)
    read = codec.read(body)
    assert isinstance(read, Job | Result)
    assert read.payload is body
    assert body == payload
    assert type(read.id) is bytes


@pytest.mark.parametrize(
    "body",
    [
        header("memo01", 3, ID, None) + b"p",
        header("memo01", 4, ID) + b"p",
        header("memo01", 2, b"", "echo", -2) + b"p",
        header("memo01", 2, b"", "echo", 2)[:-1],
    ],
    ids=bytes.hex,
)
def test_a_bytearray_that_is_malformed_is_left_as_it_was(body: bytes) -> None:
    copy = bytearray(body)
    malformed(copy)
    assert copy == body


def test_what_is_kept_from_a_bytearray_is_no_part_of_it() -> None:
    for encoded in (header("memo01", 4, ID), header("memo01", 5, ID), header("memo01", 1, ID, ["echo"])):
        read = codec.read(bytearray(encoded))
        assert isinstance(read, Ready | Heartbeat | Disconnect)
        assert type(read.id) is bytes
        assert read.id == ID


# -------------------------------------------------------------------- agreement with another library

ids = st.one_of(st.just(b""), st.binary(min_size=16, max_size=16), st.binary(max_size=300))
names = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40).filter(
    lambda name: len(name.encode()) <= 128
)
timeouts = st.one_of(st.just(-1), st.integers(0, 100_000), st.integers(0, MOST))
payloads = st.one_of(st.just(b""), st.binary(max_size=80))


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, bytes, Word]:
    """Header and payload as the other library writes them, and what they mean."""
    id, payload = draw(ids), draw(payloads)
    kind = draw(st.sampled_from([READY, JOB, RESULT, HEARTBEAT, DISCONNECT]))
    if kind == READY:
        services = draw(st.lists(names, min_size=1, max_size=64))
        return header("memo01", 1, id, services), b"", Ready(tuple(dict.fromkeys(services)), id)
    if kind == JOB:
        service, timeout = draw(names), draw(timeouts)
        return header("memo01", 2, id, service, timeout), payload, Job(id, service, timeout, payload)
    if kind == RESULT:
        flag = draw(st.sampled_from([[], [False], [True]]))
        return header("memo01", 3, id, *flag), payload, Result(id, flag == [True], payload)
    return header("memo01", kind, id), b"", Heartbeat(id) if kind == HEARTBEAT else Disconnect(id)


@settings(max_examples=400, deadline=None)
@given(message=messages())
def test_what_another_library_writes_is_read(message: tuple[bytes, bytes, Word]) -> None:
    encoded, payload, word = message
    assert both_ways(encoded + payload) == word


@settings(max_examples=400, deadline=None)
@given(
    message=messages(), changes=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255)), max_size=3), cut=st.data()
)
def test_the_short_ways_and_the_careful_one_cannot_be_told_apart(
    message: tuple[bytes, bytes, Word], changes: list[tuple[int, int]], cut: st.DataObject
) -> None:
    body = bytearray(message[0] + message[1])
    for at, value in changes:
        body[at % len(body)] = value
    end = cut.draw(st.integers(0, len(body)))
    both_ways(bytes(body))
    both_ways(bytes(body[:end]))


PLAIN_BEGINS = [
    b"\x85" + MEMO01 + b"\x02\x40",
    b"\x83" + MEMO01 + b"\x03\x50",
    b"\x83" + MEMO01 + b"\x04\x50",
    b"\x85" + MEMO01 + b"\x02\x40\x64echo",
]


@settings(max_examples=400, deadline=None)
@given(begin=st.sampled_from(PLAIN_BEGINS), rest=st.binary(max_size=60))
def test_nor_can_they_behind_the_beginnings_that_take_the_short_way(begin: bytes, rest: bytes) -> None:
    both_ways(begin + rest)


def test_nor_can_they_for_any_first_byte_of_a_name_or_a_timeout() -> None:
    def check(first: int) -> None:
        for length in (*range(12), 22, 23, 24, 30, 40):
            rest = bytes([first]) + b"a" * length
            both_ways(b"\x85" + MEMO01 + b"\x02\x40" + rest)
            both_ways(b"\x85" + MEMO01 + b"\x02\x40\x64echo" + rest)

    check_every_row(check, [(first,) for first in range(256)])


@settings(max_examples=200, deadline=None)
@given(id=ids, services=st.lists(names, min_size=1, max_size=64), timeout=timeouts, is_leaving=st.booleans())
def test_what_is_written_is_what_the_other_library_writes(
    id: bytes, services: list[str], timeout: int, is_leaving: bool
) -> None:
    assert codec.write_ready(services) == header("memo01", 1, b"", services)
    assert codec.write_job(id, services[0], timeout) == header("memo01", 2, id, services[0], timeout)
    assert codec.write_result(id, is_leaving) == header("memo01", 3, id, *([True] if is_leaving else []))
    assert codec.write_result(id) == header("memo01", 3, id)
    assert codec.write_heartbeat(id) == header("memo01", 4, id)
    assert codec.write_disconnect(id) == header("memo01", 5, id)


@settings(max_examples=200, deadline=None)
@given(id=ids, service=names, timeout=timeouts, payload=payloads)
def test_what_is_written_is_read_by_the_other_library(id: bytes, service: str, timeout: int, payload: bytes) -> None:
    stream = BytesIO(codec.write_job(id, service, timeout) + payload)
    assert cbor2.CBORDecoder(stream).decode() == ["memo01", 2, id, service, timeout]
    assert stream.read() == payload
    stream = BytesIO(codec.write_result(id, True) + payload)
    assert cbor2.CBORDecoder(stream).decode() == ["memo01", 3, id, True]
    assert stream.read() == payload


def test_a_timeout_that_the_wire_has_no_form_for_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        codec.write_job(ID, "echo", -2)
    with pytest.raises(OverflowError):
        codec.write_job(ID, "echo", MOST + 1)
