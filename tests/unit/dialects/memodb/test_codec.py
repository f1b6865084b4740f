"""The MemoDB codec: the vectors of the page, accepted headers, log details and large payloads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
    ParsedMessage,
    Ready,
    Result,
)

from .headers import (
    ARRAY,
    BYTES,
    ID,
    KIB_64,
    MEMO01,
    MOST,
    NEGATIVE,
    TEXT,
    UNSIGNED,
    both_ways,
    head,
    header,
    malformed,
)

WORKER = bytes.fromhex("d85ff47f")


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
def test_a_vector_is_read(encoded: str, payload: str, word: ParsedMessage, write: Callable[[], bytes]) -> None:
    body = bytes.fromhex(encoded) + bytes.fromhex(payload)
    assert codec.read(body) == word
    assert codec.read(bytearray(body)) == word


@vectors
def test_a_vector_is_written(encoded: str, payload: str, word: ParsedMessage, write: Callable[[], bytes]) -> None:
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
def test_a_valid_header_is_read(encoded: bytes, word: ParsedMessage) -> None:
    assert both_ways(encoded) == word


@valid
def test_whatever_follows_the_header_is_the_payload_or_unwanted(encoded: bytes, word: ParsedMessage) -> None:
    for payload in PAYLOADS[1:]:
        read = both_ways(encoded + payload)
        if isinstance(word, Job):
            assert read == Job(word.id, word.service, word.timeout, payload)
        elif isinstance(word, Result):
            assert read == Result(word.id, word.is_leaving, payload)
        else:
            assert malformed(encoded + payload).reason == "unwanted payload"


@valid
def test_every_truncation_of_a_valid_header_is_malformed(encoded: bytes, word: ParsedMessage) -> None:
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
