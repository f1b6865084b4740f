"""Native messages: the page's examples byte for byte, both ways; whole, cut anywhere, too long, and malformed."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import retry_text
from dragoman.core.states import Outcome
from dragoman.dialects.native import codec
from dragoman.dialects.native.messages import (
    ACCEPTED,
    ACK,
    CANCEL,
    MESSAGE_NAMES,
    MISSING,
    NO_FLAGS,
    OUTCOMES,
    RESUME,
    RETURN,
    Failed,
    Flag,
    Hello,
    Job,
    Role,
    SubmitHeader,
    Welcome,
)

TOKEN, OTHER, ID = bytes(range(16)), bytes(range(16, 32)), b"\xff" * 16
KIB_64 = 65_536
REASONS = {"malformed", "version"}


def fromhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("token", TOKEN.hex()).replace("other", OTHER.hex()).replace("id", ID.hex()))


def is_understood(read: Callable[..., Any], frames: list[Frame]) -> bool:
    """Tell if it is a message; if not, it must raise Malformed and nothing else."""
    try:
        read(frames)
    except Malformed as error:
        problem = error
    else:
        return True
    assert problem.reason in REASONS
    assert problem.detail.isprintable()
    return False


def malformed(read: Callable[..., Any], *args: Any) -> Malformed:
    with pytest.raises(Malformed) as caught:
        read(*args)
    assert caught.value.reason in REASONS
    assert caught.value.detail
    return caught.value


# -------------------------------------------------------------------- the words, byte for byte

WELCOME_WORKER = {"broker": "b", "heartbeat": 2.5, "lease": 10.0, "max_payload": 1000}
WELCOME_CLIENT = WELCOME_WORKER | {"window": 7, "resume": 30.0, "resumed": True, "epoch": "e"}
SEVEN = bytes(7) + b"\x07"
VECTORS: list[tuple[str, list[Frame], Callable[[list[Frame]], Any], Any, Callable[[], list[Frame]]]] = [
    (
        "HELLO of a worker",
        [fromhex("01 01 02"), b'{"services": ["echo"], "capacity": 16}'],
        codec.read_hello,
        Hello(Role.WORKER, services=("echo",), capacity=16),
        lambda: codec.write_hello(Hello(Role.WORKER, services=("echo",), capacity=16)),
    ),
    (
        "HELLO of a worker that comes back with what it had",
        [fromhex("01 01 02"), b'{"services": ["echo"], "capacity": 1, "returns": true}'],
        codec.read_hello,
        Hello(Role.WORKER, services=("echo",), returns=True),
        lambda: codec.write_hello(Hello(Role.WORKER, services=("echo",), returns=True)),
    ),
    (
        "HELLO of a client",
        [fromhex("01 01 01"), b'{"name": "n", "session": "%s", "epoch": "e", "window": 5}' % (b"ab" * 16)],
        codec.read_hello,
        Hello(Role.CLIENT, name="n", session="ab" * 16, epoch="e", window=5),
        lambda: codec.write_hello(Hello(Role.CLIENT, name="n", session="ab" * 16, epoch="e", window=5)),
    ),
    (
        "HELLO of a client that says nothing",
        [fromhex("01 01 01"), b"{}"],
        codec.read_hello,
        Hello(Role.CLIENT),
        lambda: codec.write_hello(Hello(Role.CLIENT)),
    ),
    (
        "WELCOME to a worker",
        [fromhex("02 01"), json.dumps(WELCOME_WORKER).encode()],
        codec.read_welcome,
        Welcome(2.5, 10.0, 1000, window=1, broker="b"),
        lambda: codec.write_welcome(Welcome(2.5, 10.0, 1000, broker="b"), Role.WORKER),
    ),
    (
        "WELCOME to a client",
        [fromhex("02 01"), json.dumps(WELCOME_CLIENT).encode()],
        codec.read_welcome,
        Welcome(2.5, 10.0, 1000, 7, 30.0, True, "e", "b"),
        lambda: codec.write_welcome(Welcome(2.5, 10.0, 1000, 7, 30.0, True, "e", "b"), Role.CLIENT),
    ),
    (
        "ERROR",
        [fromhex("03 10"), b"malformed", b"a sentence"],
        codec.read_error,
        (0x10, "malformed", "a sentence"),
        lambda: codec.write_error(0x10, "malformed", "a sentence"),
    ),
    (
        "BYE for good",
        [fromhex("06 01"), b"drained"],
        codec.read_bye,
        (True, "drained"),
        lambda: codec.write_bye("drained", is_final=True),
    ),
    (
        "BYE until later",
        [fromhex("06 00"), b"silent"],
        codec.read_bye,
        (False, "silent"),
        lambda: codec.write_bye("silent", is_final=False),
    ),
    (
        "SUBMIT",
        [fromhex("10 00 ff 00 00001388 00000000 00000000 6563686f")],
        lambda message: codec.read_order(message[0]),
        SubmitHeader("echo", deadline=5.0),
        lambda: [codec.write_order(SubmitHeader("echo", deadline=5.0))],
    ),
    (
        "SUBMIT that says everything",
        [fromhex("10 05 09 64 ffffffff 00000001 0001d4c0 c3a9")],
        lambda message: codec.read_order(message[0]),
        SubmitHeader("é", Flag.WAIT | Flag.ACCEPT, 9, 100, inf, 0.001, 120.0),
        lambda: [codec.write_order(SubmitHeader("é", Flag.WAIT | Flag.ACCEPT, 9, 100, inf, 0.001, 120.0))],
    ),
    (
        "JOB",
        [fromhex("30 6563686f"), fromhex("token id 0001 00001387"), b"hello"],
        codec.read_jobs,
        [Job(TOKEN, ID, 1, 4.999, "echo")],
        lambda: codec.write_jobs("echo", [codec.write_record(TOKEN, ID, 1, 4.9999)], [b"hello"]),
    ),
    (
        "JOB with two jobs",
        [fromhex("30 6563686f"), fromhex("token id 0001 00001387 other id 0002 00000000"), b"ONE", b"TWO"],
        codec.read_jobs,
        [Job(TOKEN, ID, 1, 4.999, "echo"), Job(OTHER, ID, 2, 0.0, "echo")],
        lambda: codec.write_jobs(
            "echo", [codec.write_record(TOKEN, ID, 1, 4.999), codec.write_record(OTHER, ID, 2, inf)], [b"ONE", b"TWO"]
        ),
    ),
    (
        "RECALL",
        [fromhex("31 token"), b"why"],
        codec.read_recall,
        (TOKEN, "why"),
        lambda: codec.write_recall(TOKEN, "why"),
    ),
    (
        "RESULT",
        [fromhex("20 token"), b"HELLO"],
        codec.read_result,
        [TOKEN],
        lambda: codec.write_result([TOKEN], [b"HELLO"]),
    ),
    (
        "two RESULTs in one message",
        [fromhex("20 token other"), b"ONE", b"TWO"],
        codec.read_result,
        [TOKEN, OTHER],
        lambda: codec.write_result([TOKEN, OTHER], [b"ONE", b"TWO"]),
    ),
    (
        "FAILED",
        [fromhex("21 01 token"), b"ValueError", b"not a picture", "Traceback …".encode()],
        codec.read_failed,
        Failed(Outcome.FAILED, TOKEN, "ValueError", "not a picture", "Traceback …"),
        lambda: codec.write_failed(Outcome.FAILED, TOKEN, "ValueError", "not a picture", "Traceback …"),
    ),
    (
        "PROGRESS of a worker",
        [fromhex("22 token"), b'{"done":1,"total":2}'],
        codec.read_report,
        (TOKEN, b'{"done":1,"total":2}'),
        lambda: codec.write_report(TOKEN, b'{"done":1,"total":2}', is_part=False),
    ),
    (
        "PROGRESS to a client",
        [fromhex("22 id 0001"), b"x"],
        lambda message: (*codec.read_report(message), codec.read_report_number(message[0])),
        (ID, b"x", 1),
        lambda: codec.write_report(ID, b"x", is_part=False, attempt=1),
    ),
    (
        "PART to a client",
        [fromhex("23 id 0102"), b"x"],
        lambda message: (*codec.read_report(message), codec.read_report_number(message[0])),
        (ID, b"x", 258),
        lambda: codec.write_report(ID, b"x", is_part=True, attempt=258),
    ),
    (
        "ASK",
        [fromhex("40 0000000000000007 656e7175657565"), b'{"service": "echo", "key": "42"}', b"hello"],
        codec.read_ask,
        (SEVEN, "enqueue", b'{"service": "echo", "key": "42"}', b"hello"),
        lambda: codec.write_ask(SEVEN, "enqueue", b'{"service": "echo", "key": "42"}', b"hello"),
    ),
    (
        "ASK without a payload",
        [fromhex("40 0000000000000007 7768") + b"y", b"{}"],
        codec.read_ask,
        (SEVEN, "why", b"{}", b""),
        lambda: codec.write_ask(SEVEN, "why", b"{}", b""),
    ),
    (
        "TELL",
        [fromhex("41 0000000000000007"), b'{"id": "0198"}', b"HELLO"],
        codec.read_tell,
        (SEVEN, b'{"id": "0198"}', b"HELLO"),
        lambda: codec.write_tell(SEVEN, b'{"id": "0198"}', b"HELLO"),
    ),
    (
        "OBJECT",
        [fromhex("42 0000000000000007"), b"not found", b"there is no such job"],
        codec.read_object,
        (SEVEN, "not found", "there is no such job"),
        lambda: codec.write_object(SEVEN, "not found", "there is no such job"),
    ),
    *(
        (
            name,
            [bytes((word,)), TOKEN + OTHER],
            codec.read_list,
            [TOKEN, OTHER],
            lambda word=word: codec.write_list(word, [TOKEN, OTHER]),  # type: ignore[misc]
        )
        for word, name in (
            (ACCEPTED, "ACCEPTED"),
            (CANCEL, "CANCEL"),
            (ACK, "ACK"),
            (RESUME, "RESUME"),
            (MISSING, "MISSING"),
            (RETURN, "RETURN"),
        )
    ),
]
vectors = pytest.mark.parametrize(
    ("frames", "read", "meaning", "write"), [each[1:] for each in VECTORS], ids=[each[0] for each in VECTORS]
)


@vectors
def test_a_word_is_read(frames: list[Frame], read: Callable[..., Any], meaning: object, write: object) -> None:
    assert read(frames) == meaning
    assert read([bytearray(frame) for frame in frames]) == meaning


@vectors
def test_a_word_is_written(
    frames: list[Frame], read: object, meaning: object, write: Callable[[], list[Frame]]
) -> None:
    assert [bytes(frame).hex() for frame in write()] == [bytes(frame).hex() for frame in frames]


@vectors
def test_a_word_cut_at_any_byte_of_its_head_or_names_is_a_word_or_malformed(
    frames: list[Frame], read: Callable[..., Any], meaning: object, write: object
) -> None:
    for number in range(min(2, len(frames))):
        for end in range(1 if number == 0 else 0, len(frames[number])):
            cut = [*frames[:number], frames[number][:end], *frames[number + 1 :]]
            is_understood(read, cut)


@vectors
def test_a_word_with_frames_missing_or_too_many_is_a_word_or_malformed(
    frames: list[Frame], read: Callable[..., Any], meaning: object, write: object
) -> None:
    for count in range(1, len(frames)):
        is_understood(read, frames[:count])
    is_understood(read, [*frames, b"more"])


LONGER = [each for each in VECTORS if not each[0].startswith(("RESULT", "two RESULTs", "SUBMIT", "JOB", "ASK"))]


@pytest.mark.parametrize(
    ("frames", "read", "meaning"), [each[1:4] for each in LONGER], ids=[each[0] for each in LONGER]
)
def test_what_follows_in_a_longer_head_is_passed_over(
    frames: list[Frame], read: Callable[..., Any], meaning: object
) -> None:
    """A head may be longer than written, unless it ends in a list or a text."""
    assert read([frames[0] + b"\x07for later versions", *frames[1:]]) == meaning


def test_the_words_are_those_of_the_page() -> None:
    assert {f"{number:02x}": name for number, name in MESSAGE_NAMES.items()} == {
        "01": "HELLO",
        "02": "WELCOME",
        "03": "ERROR",
        "04": "HEARTBEAT",
        "05": "DRAIN",
        "06": "BYE",
        "10": "SUBMIT",
        "11": "ACCEPTED",
        "12": "CANCEL",
        "13": "ACK",
        "14": "RESUME",
        "15": "MISSING",
        "20": "RESULT",
        "21": "FAILED",
        "22": "PROGRESS",
        "23": "PART",
        "30": "JOB",
        "31": "RECALL",
        "32": "RETURN",
        "33": "MOVE",
        "40": "ASK",
        "41": "TELL",
        "42": "OBJECT",
    }
    assert OUTCOMES == {1: "failed", 2: "timed out", 3: "lost", 4: "cancelled", 5: "refused"}


# -------------------------------------------------------------------- lists of names


@pytest.mark.parametrize("count", [1, 2, 1023, 1024])
def test_a_list_has_1_to_1024_names(count: int) -> None:
    names = [number.to_bytes(16, "big") for number in range(count)]
    assert codec.read_list(codec.write_list(ACK, names)) == names
    assert codec.read_result(codec.write_result(names, [b""] * count)) == names


@pytest.mark.parametrize("size", [0, 1, 15, 17, 31, 1025 * 16])
def test_other_lists_are_malformed(size: int) -> None:
    malformed(codec.read_list, [b"\x13", bytes(size)])
    malformed(codec.read_result, [b"\x20" + bytes(size), *[b""] * (size // 16)])


@pytest.mark.parametrize("payloads", [0, 1, 3])
def test_a_result_has_a_payload_for_each_name(payloads: int) -> None:
    malformed(codec.read_result, [b"\x20" + TOKEN + OTHER, *[b"x"] * payloads])


@pytest.mark.parametrize("payloads", [0, 1, 3])
def test_a_job_has_a_payload_for_each_record(payloads: int) -> None:
    malformed(codec.read_jobs, [b"\x30echo", bytes(76), *[b"x"] * payloads])


# -------------------------------------------------------------------- HELLO


def hello(about: object, role: int = 2) -> list[Frame]:
    return [bytes((1, 1, role)), about if isinstance(about, bytes) else json.dumps(about).encode()]


@pytest.mark.parametrize(
    "about",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"1",
        b'"services"',
        b"\xff\xfe{\x00}\x00",
        json.dumps({"services": ["echo"]}).encode("utf-16"),
        json.dumps({"services": ["echo"]}).encode("utf-32-be"),
        b"\xef\xbb\xbf" + b'{"services": ["echo"]}',
        b'{"services": ["\xed\xa0\x80"]}',
        b'{"services": ["echo"]} {}',
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b'{"services": ["echo"], "capacity": ' + b"9" * 5_000 + b"}",
        b'{"services": ["echo"], "capacity": NaN}',
        b'{"services": ["echo"], "capacity": 1e400}',
        {},
        {"services": []},
        {"services": "echo"},
        {"services": {"echo": 1}},
        {"services": [1]},
        {"services": ["echo", None]},
        {"services": None},
        {"services": ["echo"], "capacity": 0},
        {"services": ["echo"], "capacity": 1025},
        {"services": ["echo"], "capacity": -1},
        {"services": ["echo"], "capacity": 1.0},
        {"services": ["echo"], "capacity": "1"},
        {"services": ["echo"], "capacity": True},
        {"services": ["echo"], "capacity": None},
        {"services": ["echo"], "name": 1},
        {"services": ["echo"], "name": "n" * 129},
        {"services": ["echo"], "name": "é" * 65},
    ],
    ids=lambda about: repr(about)[:40],
)
def test_json_that_is_not_as_written_is_malformed(about: object) -> None:
    assert malformed(codec.read_hello, hello(about)).reason == "malformed"


@pytest.mark.parametrize(
    "about",
    [
        {"session": "x" * 32},
        {"session": "ab" * 15},
        {"session": "ab" * 17},
        {"session": 1},
        {"session": None},
        {"session": "٣" * 32},
        {"window": -1},
        {"window": 1 << 32},
        {"window": "1"},
        {"window": False},
        {"name": ["n"]},
        {"epoch": 1},
        {"epoch": "e" * 129},
    ],
    ids=repr,
)
def test_a_client_s_json_that_is_not_as_written_is_malformed(about: object) -> None:
    assert malformed(codec.read_hello, hello(about, 1)).reason == "malformed"


def test_keys_that_are_not_known_and_those_of_the_other_role_are_passed_over() -> None:
    """A client that said `capacity: 0` was hung up on, and so was a worker with a window of -1."""
    client = {"capacity": 0, "services": 7, "later": [1, {"a": None}], "name": "n"}
    assert codec.read_hello(hello(client, 1)) == Hello(Role.CLIENT, name="n")
    worker = {"services": ["echo"], "window": -1, "session": "none of yours"}
    assert codec.read_hello(hello(worker)) == Hello(Role.WORKER, services=("echo",))


def test_a_name_is_counted_in_bytes() -> None:
    """It was counted in characters."""
    assert codec.read_hello(hello({"services": ["echo"], "name": "é" * 64})).name == "é" * 64


def test_json_has_at_most_64_kib() -> None:
    about = json.dumps({"services": ["echo"]}).encode()
    padded = about[:-1] + b" " * (KIB_64 - len(about)) + b"}"
    assert codec.read_hello([b"\x01\x01\x02", padded]).services == ("echo",)
    malformed(codec.read_hello, [b"\x01\x01\x02", padded + b" "])


def test_a_session_s_digits_mean_the_same_in_both_cases() -> None:
    assert codec.read_hello(hello({"session": "AB" * 16}, 1)).session == "ab" * 16


@pytest.mark.parametrize("version", [1, 2, 255])
def test_a_later_version_is_welcome(version: int) -> None:
    assert codec.read_hello([bytes((1, version, 1)), b"{}"]).version == version


def test_version_0_is_refused_by_name() -> None:
    assert malformed(codec.read_hello, [b"\x01\x00\x01", b"{}"]).reason == "version"


@pytest.mark.parametrize("role", [0, 3, 255])
def test_there_are_two_roles(role: int) -> None:
    malformed(codec.read_hello, hello({"services": ["echo"]}, role))


@pytest.mark.parametrize("frames", [[b"\x02"], [b"\x02\x02", b"{}"], [b"\x02\x00", b"{}"], [b"\x02", b"{}"]], ids=repr)
def test_a_welcome_to_another_version_is_not_understood(frames: list[Frame]) -> None:
    malformed(codec.read_welcome, frames)


@pytest.mark.parametrize("value", [-1, 1e9, True, "1", None, [], 1e400])
@pytest.mark.parametrize("key", ["heartbeat", "lease", "resume"])
def test_seconds_in_welcome_are_numbers(key: str, value: object) -> None:
    malformed(codec.read_welcome, [b"\x02\x01", json.dumps({key: value}).encode()])


# -------------------------------------------------------------------- SUBMIT


@pytest.mark.parametrize("size", range(1, 16))
def test_a_short_head_of_submit_is_malformed(size: int) -> None:
    malformed(codec.read_order, codec.write_order(SubmitHeader("echo"))[:size])


@pytest.mark.parametrize("priority", [10, 100, 254])
def test_a_priority_is_0_to_9_or_unsaid(priority: int) -> None:
    head = bytearray(codec.write_order(SubmitHeader("echo")))
    head[2] = priority
    malformed(codec.read_order, head)


def test_attempts_are_at_most_100() -> None:
    assert codec.read_order(codec.write_order(SubmitHeader("echo", attempts=100))).attempts == 100
    malformed(codec.read_order, codec.write_order(SubmitHeader("echo", attempts=101)))


def test_flags_that_are_not_known_are_passed_over() -> None:
    head = bytearray(codec.write_order(SubmitHeader("echo")))
    head[1] = 0xE0
    assert codec.read_order(head).flags == NO_FLAGS


@pytest.mark.parametrize("raw", [b"\xff", b"caf\xe9", b"\xc0\x80", b"\xed\xa0\x80", b"a\xc3"])
def test_a_service_that_is_not_utf8_is_malformed(raw: bytes) -> None:
    malformed(codec.read_order, codec.write_order(SubmitHeader("")) + raw)


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [(0.0, 0), (0.0001, 1), (0.001, 1), (0.57, 570), (1.1, 1100), (5.0, 5000), (1e9, 0xFFFFFFFF)],
)
def test_a_time_that_was_said_is_never_0_and_is_what_was_said(seconds: float, milliseconds: int) -> None:
    """5 s went out as 5001 ms."""
    head = codec.write_order(SubmitHeader("echo", deadline=seconds))
    assert int.from_bytes(head[4:8], "big") == milliseconds


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [(inf, 0), (-3.0, 1), (0.0, 1), (0.0005, 1), (5.0, 5000), (4.9999, 4999), (1e9, 2**32 - 1)],
)
def test_the_time_a_job_may_run_is_never_more_than_it_has_and_0_only_if_there_is_no_limit(
    seconds: float, milliseconds: int
) -> None:
    """A job whose deadline had just passed was handed out with 0: no limit."""
    assert int.from_bytes(codec.write_record(TOKEN, ID, 1, seconds)[-4:], "big") == milliseconds


# -------------------------------------------------------------------- FAILED


@pytest.mark.parametrize("outcome", [0, 6, 255])
def test_an_unknown_outcome_is_malformed(outcome: int) -> None:
    malformed(codec.read_failed, [bytes((0x21, outcome)) + TOKEN, b"", b"", b""])


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5])
def test_texts_are_cut_at_64_kib_and_stay_utf8(size: int) -> None:
    """Cut in the middle of a character they were not UTF-8 any more, which the page promises."""
    text = "x" * size + "€" * 30_000
    frames = codec.write_failed(Outcome.FAILED, TOKEN, text, text, text)
    for frame in frames[1:]:
        assert KIB_64 - 3 < len(frame) <= KIB_64
        assert text.startswith(bytes(frame).decode())


def test_long_and_broken_texts_are_cut_when_they_are_read() -> None:
    failed = codec.read_failed([b"\x21\x01" + TOKEN, b"\xff", b"m" * 100_000, b"d" * 100_000])
    assert (failed.type, len(failed.message), len(failed.detail)) == ("\N{REPLACEMENT CHARACTER}", KIB_64, KIB_64)


def test_a_text_without_a_form_in_utf8_is_written_all_the_same() -> None:
    assert codec.write_failed(Outcome.FAILED, TOKEN, "\ud800", "", "")[1] == b"?"


def test_bye_may_be_short() -> None:
    assert codec.read_bye([b"\x06"]) == (False, "")
    assert codec.read_bye([b"\x06\x01"]) == (True, "")


# -------------------------------------------------------------------- anything at all

READERS: list[Callable[..., Any]] = [
    codec.read_hello,
    codec.read_welcome,
    codec.read_error,
    codec.read_bye,
    codec.read_jobs,
    codec.read_recall,
    codec.read_result,
    codec.read_failed,
    codec.read_report,
    codec.read_list,
    lambda message: codec.read_order(message[0]),
    lambda message: codec.read_report_number(message[0]),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=64), min_size=1, max_size=5).filter(lambda frames: frames[0]))
def test_any_frames_are_a_word_or_malformed(frames: list[Frame]) -> None:
    for read in READERS:
        is_understood(read, frames)


def test_no_limit_is_a_time_of_its_own_and_differs_from_none_said() -> None:
    order = SubmitHeader("echo", deadline=inf, job_timeout=inf, queue_timeout=0.0)
    head = codec.write_order(order)
    assert head[4:16] == b"\xff" * 8 + bytes(4)
    assert codec.read_order(head) == order


@pytest.mark.parametrize(
    "decision", [b"", b"10 s", b"-1", b"nan", b"inf", b"9" * 33, b"9" * 40 + b"never", b" never" * 6]
)
def test_a_decision_about_a_retry_that_is_no_number_is_refused(decision: bytes) -> None:
    """The fuzzer found that a longer frame was cut off, and its beginning read as a number."""
    frames = [b"\x21\x01" + bytes(16), b"ValueError", b"text", b"", decision]
    with pytest.raises(Malformed, match='must be seconds, such as "10", or "never"'):
        codec.read_failed(frames)


@pytest.mark.parametrize(("seconds", "read"), [(0.0, 0.0), (10.0004, 10.0), (1e300, 1e12), (inf, inf)])
def test_a_decision_about_a_retry_is_read_as_it_was_written(seconds: float, read: float) -> None:
    frames = codec.write_failed(Outcome.FAILED, bytes(16), "ValueError", "text", "", retry_text(seconds))
    assert codec.read_failed(frames).retry_in == read
