"""Codec of Worker-Controller: every vector of the dialect's page in both editions, and the edition of a pulse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dragoman.carriers.length_prefix import LengthPrefix
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.controller.codec import (
    edition_of_pulse,
    extra_of_control,
    extra_of_pulse,
    extra_of_response,
    pulse_of,
    read_control,
    read_pulse,
    read_pulse_response,
    read_response,
    write_control,
    write_pulse,
    write_pulse_response,
    write_response,
)
from dragoman.dialects.controller.editions import EDITIONS, SEED, SHIFTED, Edition, edition_of_id
from dragoman.dialects.controller.messages import (
    Control,
    ControlKind,
    ControllerError,
    Pulse,
    PulseKind,
    PulseResponse,
    RawPulse,
    Response,
    WorkerError,
)

BOTH = [SEED, SHIFTED]
BIGGEST = (1 << 64) - 1


def name_of(value: object) -> str:
    return value.name if isinstance(value, Edition) else str(value)


def head_of(text: str) -> bytes:
    return bytes.fromhex(text)


# ---- the numbers

NUMBERS = [
    (PulseKind.REGISTER, 0, 2),
    (PulseKind.OK, 1, 1),
    (PulseKind.FETCH_ME, 2, 3),
    (PulseKind.SHUTDOWN, 3, 4),
    (ControllerError.OK, 0, 1),
    (ControllerError.UNKNOWN_TYPE, 1, 2),
    (ControllerError.UNKNOWN_ID, 2, 3),
    (ControllerError.FAILED, 3, 4),
    (ControlKind.RESTART, 0, 1),
    (ControlKind.FETCH, 1, 2),
    (ControlKind.SET_TASK, 2, 3),
    (ControlKind.GET_STATUS, 3, 4),
    (WorkerError.OK, 0, 1),
    (WorkerError.NO_FETCH, 1, 2),
    (WorkerError.BUSY, 2, 3),
    (WorkerError.TASK_FAILED, 3, 4),
    (WorkerError.FAILED, 4, 5),
]
Words = PulseKind | ControllerError | ControlKind | WorkerError


def write(word: Words, edition: Edition) -> bytes:
    if isinstance(word, PulseKind):
        return write_pulse(word, edition)
    if isinstance(word, ControllerError):
        return write_pulse_response(word, edition)
    if isinstance(word, ControlKind):
        return write_control(word, edition)
    return write_response(word, edition)


def read(kind: type[Words], head: bytes, edition: Edition) -> Words | None:
    if kind is PulseKind:
        return pulse_of(read_pulse(head), edition).kind
    if kind is ControllerError:
        return read_pulse_response(head, edition).error
    if kind is ControlKind:
        return read_control(head, edition).kind
    return read_response(head, edition).error


@pytest.mark.parametrize(("word", "seed", "shifted"), NUMBERS, ids=str)
def test_every_word_has_its_number_in_each_edition(word: Words, seed: int, shifted: int) -> None:
    for edition, number in ((SEED, seed), (SHIFTED, shifted)):
        head = bytes([0x08, number]) if number else b""
        assert write(word, edition) == head
        assert read(type(word), head, edition) is word


def test_no_word_is_without_a_number() -> None:
    assert [word for word, _, _ in NUMBERS] == [*PulseKind, *ControllerError, *ControlKind, *WorkerError]


@pytest.mark.parametrize("kind", [PulseKind, ControllerError, ControlKind, WorkerError])
@pytest.mark.parametrize("edition", BOTH, ids=name_of)
def test_other_numbers_are_no_word_and_no_mistake(kind: type[Words], edition: Edition) -> None:
    known = {seed if edition is SEED else shifted for word, seed, shifted in NUMBERS if isinstance(word, kind)}
    for number in sorted(set(range(128)) - known):
        assert read(kind, bytes([0x08, number]), edition) is None


def test_a_number_that_is_no_word_can_be_told() -> None:
    head = b"\x08\x2a\x10\x07\x18\x09"
    assert pulse_of(read_pulse(head), SEED) == Pulse(None, 7, 9, 0, 42)
    assert read_pulse_response(head, SEED) == PulseResponse(None, 7, 42)
    assert read_control(head, SHIFTED) == Control(None, 9, 7, 42)
    assert read_response(head, SHIFTED) == Response(None, 7, 9, 42)


def test_a_negative_number_is_no_word() -> None:
    """An enum of protobuf may be negative, and then has ten bytes."""
    head = b"\x08" + b"\xff" * 9 + b"\x01"
    assert read_pulse(head).type == -1
    assert read_response(head, SEED) == Response(None, 0, 0, -1)
    assert read_response(head, SHIFTED) == Response(None, 0, 0, -1)


def test_the_editions_are_called_as_on_a_url() -> None:
    assert EDITIONS == {"seed": SEED, "shifted": SHIFTED}


# ---- the vectors of the page: a word in both editions

PULSES = [
    (PulseKind.REGISTER, 0, 0, 60, "20 3c", "08 02 20 3c"),
    (PulseKind.REGISTER, 0, 0, 0, "", "08 02"),
    (PulseKind.OK, 1, 0, 60, "08 01 10 01 20 3c", "08 01 10 01 20 3c"),
    (PulseKind.FETCH_ME, 1, 7, 60, "08 02 10 01 18 07 20 3c", "08 03 10 01 18 07 20 3c"),
    (PulseKind.SHUTDOWN, 300, 0, 0, "08 03 10 ac 02", "08 04 10 ac 02"),
]


@pytest.mark.parametrize("edition", BOTH, ids=name_of)
@pytest.mark.parametrize(("kind", "worker_id", "task_id", "next_pulse", "seed", "shifted"), PULSES)
def test_pulses(
    kind: PulseKind, worker_id: int, task_id: int, next_pulse: int, seed: str, shifted: str, edition: Edition
) -> None:
    head = head_of(seed if edition is SEED else shifted)
    raw = read_pulse(head)
    number = edition.pulses.number[kind]
    assert write_pulse(kind, edition, worker_id=worker_id, task_id=task_id, next_pulse=next_pulse) == head
    assert raw == RawPulse(number, worker_id, task_id, next_pulse)
    assert pulse_of(raw, edition) == Pulse(kind, worker_id, task_id, next_pulse, number)


ANSWERS = [
    (ControllerError.OK, 1, "10 01", "08 01 10 01"),
    (ControllerError.OK, 0, "", "08 01"),
    (ControllerError.UNKNOWN_TYPE, 0, "08 01", "08 02"),
    (ControllerError.UNKNOWN_ID, 0, "08 02", "08 03"),
    (ControllerError.FAILED, 0, "08 03", "08 04"),
]


@pytest.mark.parametrize("edition", BOTH, ids=name_of)
@pytest.mark.parametrize(("error", "worker_id", "seed", "shifted"), ANSWERS)
def test_answers_to_pulses(error: ControllerError, worker_id: int, seed: str, shifted: str, edition: Edition) -> None:
    head = head_of(seed if edition is SEED else shifted)
    assert write_pulse_response(error, edition, worker_id=worker_id) == head
    number = edition.controller_errors.number[error]
    assert read_pulse_response(head, edition) == PulseResponse(error, worker_id, number)


CONTROLS = [
    (ControlKind.SET_TASK, 7, 11, "08 02 10 0b 18 07", "08 03 10 0b 18 07"),
    (ControlKind.FETCH, 0, 0, "08 01", "08 02"),
    (ControlKind.RESTART, 0, 0, "", "08 01"),
    (ControlKind.GET_STATUS, 0, 0, "08 03", "08 04"),
]


@pytest.mark.parametrize("edition", BOTH, ids=name_of)
@pytest.mark.parametrize(("kind", "task_id", "extra", "seed", "shifted"), CONTROLS)
def test_controls(kind: ControlKind, task_id: int, extra: int, seed: str, shifted: str, edition: Edition) -> None:
    head = head_of(seed if edition is SEED else shifted)
    assert write_control(kind, edition, task_id=task_id, extra_size=extra) == head
    assert read_control(head, edition) == Control(kind, task_id, extra, edition.controls.number[kind])
    assert extra_of_control(head) == extra


RESPONSES = [
    (WorkerError.OK, 7, 16, "10 07 18 10", "08 01 10 07 18 10"),
    (WorkerError.OK, 0, 0, "", "08 01"),
    (WorkerError.NO_FETCH, 0, 0, "08 01", "08 02"),
    (WorkerError.BUSY, 7, 0, "08 02 10 07", "08 03 10 07"),
    (WorkerError.TASK_FAILED, 7, 200, "08 03 10 07 18 c8 01", "08 04 10 07 18 c8 01"),
    (WorkerError.FAILED, 0, 4, "08 04 18 04", "08 05 18 04"),
]


@pytest.mark.parametrize("edition", BOTH, ids=name_of)
@pytest.mark.parametrize(("error", "task_id", "extra", "seed", "shifted"), RESPONSES)
def test_responses(error: WorkerError, task_id: int, extra: int, seed: str, shifted: str, edition: Edition) -> None:
    head = head_of(seed if edition is SEED else shifted)
    assert write_response(error, edition, task_id=task_id, extra_size=extra) == head
    assert read_response(head, edition) == Response(error, task_id, extra, edition.worker_errors.number[error])
    assert extra_of_response(head) == extra


# ---- with the carrier around it


def test_eight_zero_bytes_are_a_register_of_the_first_edition() -> None:
    """R83."""
    ((head, extra),) = LengthPrefix(extra_of_pulse).feed(bytes(8))
    raw = read_pulse(head)
    edition = edition_of_pulse(raw.type, raw.worker_id, None)
    assert (edition, extra) == (SEED, b"")
    assert pulse_of(raw, edition) == Pulse(PulseKind.REGISTER, 0, 0, 0, 0)


def test_a_plain_ok_is_eight_zero_bytes_or_two_more() -> None:
    carrier = LengthPrefix(extra_of_pulse)
    assert carrier.encode([write_pulse_response(ControllerError.OK, SEED)]) == [bytes(8)]
    assert carrier.encode([write_pulse_response(ControllerError.OK, SHIFTED)]) == [b"\x02" + bytes(7) + b"\x08\x01"]


@pytest.mark.parametrize(("edition", "length"), [(SEED, "04"), (SHIFTED, "06")], ids=name_of)
def test_a_result_comes_behind_its_response(edition: Edition, length: str) -> None:
    head = write_response(WorkerError.OK, edition, task_id=7, extra_size=16)
    stream = bytes.fromhex(length) + bytes(7) + head + b"sixteen bytes ok"
    carrier = LengthPrefix(extra_of_response)
    assert carrier.encode([head, b"sixteen bytes ok"]) == [stream]
    assert carrier.feed(stream) == [[head, b"sixteen bytes ok"]]


def test_a_job_comes_behind_its_control() -> None:
    head = write_control(ControlKind.SET_TASK, SEED, task_id=7, extra_size=11)
    assert LengthPrefix(extra_of_control).feed(b"\x06" + bytes(7) + head + b"eleven byte") == [[head, b"eleven byte"]]


def test_a_pulse_has_no_extra_bytes_even_if_it_cannot_be_read() -> None:
    """The broker side must receive it, and reply FAILED."""
    carrier = LengthPrefix(extra_of_pulse)
    assert carrier.feed(b"\x01" + bytes(7) + b"\xff") == [[b"\xff", b""]]
    assert carrier.failure is None


@pytest.mark.parametrize("extra_of", [extra_of_control, extra_of_response])
def test_a_head_that_cannot_be_read_ends_the_conversation(extra_of: Callable[[bytes], int]) -> None:
    carrier = LengthPrefix(extra_of)
    assert carrier.feed(b"\x01" + bytes(7) + b"\xff") == []
    assert carrier.failure is not None
    assert carrier.failure.reason == "unreadable"


def test_a_head_that_claims_more_than_all_memory_ends_the_conversation() -> None:
    """R100."""
    carrier = LengthPrefix(extra_of_response)
    head = write_response(WorkerError.OK, SEED, extra_size=BIGGEST)
    assert carrier.feed(bytes([len(head)]) + bytes(7) + head) == []
    assert carrier.failure is not None
    assert carrier.failure.reason == "over max_payload"


# ---- whose numbers a pulse has

EVEN, ODD = 6, 7
TOLD_APART = [
    # type, worker id, its edition if it is registered, edition
    (0, 0, None, SEED),  # REGISTER, whatever the other fields hold
    (0, ODD, None, SEED),
    (0, EVEN, None, SEED),
    (0, ODD, SEED, SEED),
    (0, EVEN, SHIFTED, SEED),
    (1, 0, None, SEED),  # OK: by its id, and by none as in the document
    (1, ODD, None, SEED),
    (1, EVEN, None, SHIFTED),
    (1, ODD, SEED, SEED),
    (1, EVEN, SHIFTED, SHIFTED),
    (2, 0, None, SHIFTED),  # REGISTER
    (2, EVEN, None, SHIFTED),  # REGISTER: the id is that of a worker we have forgotten
    (2, EVEN, SHIFTED, SHIFTED),  # REGISTER
    (2, ODD, None, SEED),  # FETCH_ME
    (2, ODD, SEED, SEED),  # FETCH_ME
    (3, 0, None, SEED),
    (3, ODD, None, SEED),  # SHUTDOWN
    (3, EVEN, None, SHIFTED),  # FETCH_ME
    (3, ODD, SEED, SEED),
    (3, EVEN, SHIFTED, SHIFTED),
    (4, 0, None, SEED),
    (4, ODD, SEED, SEED),  # unknown
    (4, EVEN, SHIFTED, SHIFTED),  # SHUTDOWN
    (99, 0, None, SEED),  # unknown
    (99, ODD, None, SEED),
    (99, EVEN, None, SHIFTED),
    (-1, 0, None, SEED),
    (2, BIGGEST, None, SEED),
    (2, BIGGEST - 1, None, SHIFTED),
    (2, ODD, SHIFTED, SHIFTED),  # a registered worker's own edition counts, whatever its id looks like
    (1, EVEN, SEED, SEED),
]


@pytest.mark.parametrize(("type", "worker_id", "known", "edition"), TOLD_APART, ids=name_of)
def test_a_pulse_tells_its_edition(type: int, worker_id: int, known: Edition | None, edition: Edition) -> None:
    assert edition_of_pulse(type, worker_id, known) is edition


@pytest.mark.parametrize("fixed", BOTH, ids=name_of)
@pytest.mark.parametrize(("type", "worker_id", "known", "_"), TOLD_APART, ids=name_of)
def test_an_edition_that_is_fixed_is_not_judged(
    type: int, worker_id: int, known: Edition | None, _: Edition, fixed: Edition
) -> None:
    assert edition_of_pulse(type, worker_id, known, fixed) is fixed


def test_nothing_is_invalid_where_the_later_edition_is_fixed() -> None:
    raw = read_pulse(b"")
    assert pulse_of(raw, edition_of_pulse(raw.type, raw.worker_id, None, SHIFTED)).kind is None


def test_a_type_that_is_there_and_zero_is_as_good_as_none() -> None:
    assert read_pulse(b"\x08\x00") == read_pulse(b"")


def test_an_id_names_its_edition() -> None:
    assert [edition_of_id(id) for id in (0, 1, 2, 3, 1 << 53)] == [None, SEED, SHIFTED, SEED, SHIFTED]
    for edition in BOTH:
        assert edition_of_id(10 + edition.parity) is edition


# ---- as tolerant as protobuf

READERS: dict[str, Callable[[bytes], object]] = {
    "WorkerPulse": read_pulse,
    "PulseResponse": lambda head: read_pulse_response(head, SEED),
    "ControlMsg": lambda head: read_control(head, SHIFTED),
    "WorkerResponse": lambda head: read_response(head, SEED),
}


@pytest.mark.parametrize(
    "head",
    [
        b"\xff",
        b"\x08",
        b"\x08\x80",
        b"\x10" + b"\xff" * 10,
        b"\x10" + b"\x80" * 10 + b"\x01",
        b"\x00\x01",
        b"\x0b",
        b"\x0c",
        b"\x0e\x00",
        b"\x0f\x00",
        b"\x2a\x05abc",
        b"\x29\x00\x00",
        b"\x08\x01\x10",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=lambda head: head.hex(" "),
)
@pytest.mark.parametrize("name", READERS)
def test_what_is_not_protobuf_is_unreadable(name: str, head: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        READERS[name](head)
    assert caught.value.reason == "unreadable"
    assert f"{len(head)} bytes instead of a {name}" in caught.value.detail


@pytest.mark.parametrize(
    "more",
    [
        b"\x28\x05",
        b"\x78\xff\xff\x03",
        b"\xfa\x07\x03abc",
        b"\x2d\x01\x02\x03\x04",
        b"\x29" + bytes(8),
        b"\x2b\x08\x09\x2c",
        b"\x0a\x01\x09",
    ],
    ids=["number", "two-byte key", "string", "32 bits", "64 bits", "group", "known field of another type"],
)
def test_unknown_fields_are_skipped(more: bytes) -> None:
    head = head_of("08 02 10 01 18 07")
    for reader in READERS.values():
        assert reader(more + head) == reader(head + more) == reader(head)


def test_fields_come_in_any_order_and_the_last_counts() -> None:
    assert read_pulse(head_of("20 3c 18 07 10 05 08 01 10 01")) == RawPulse(1, 1, 7, 60)


def test_numbers_may_be_written_longer_than_need_be() -> None:
    assert read_pulse(head_of("08 81 80 00 10 81 80 80 00")) == RawPulse(1, 1, 0, 0)


def test_the_largest_numbers_travel() -> None:
    head = write_pulse(PulseKind.OK, SEED, worker_id=BIGGEST, task_id=BIGGEST - 1, next_pulse=BIGGEST)
    assert read_pulse(head) == RawPulse(1, BIGGEST, BIGGEST - 1, BIGGEST)
    head = write_response(WorkerError.OK, SHIFTED, task_id=BIGGEST, extra_size=BIGGEST)
    assert read_response(head, SHIFTED) == Response(WorkerError.OK, BIGGEST, BIGGEST, 1)


def test_a_number_of_more_than_64_bits_loses_the_upper_ones() -> None:
    assert read_pulse(b"\x10" + b"\x81" + b"\x80" * 8 + b"\x02").worker_id == 1


def test_an_id_that_is_there_and_zero_is_none() -> None:
    assert read_pulse_response(b"\x10\x00", SEED) == PulseResponse(ControllerError.OK, 0, 0)
    assert read_control(b"\x18\x00", SEED) == Control(ControlKind.RESTART, 0, 0, 0)


def test_a_head_may_be_a_bytearray() -> None:
    assert read_pulse(bytearray(b"\x08\x01")) == RawPulse(1, 0, 0, 0)
    assert read_control(bytearray(b"\x08\x01"), SEED).kind is ControlKind.FETCH
