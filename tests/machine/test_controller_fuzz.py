"""Any bytes: Worker-Controller's codec decodes them or raises Malformed, and nothing else.

Our codec and the official library of protobuf agree about what is a message, and about its numbers.

Random inputs come from fixed seeds: a failure prints the input and can be repeated.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2]))

from dragoman.carriers.length_prefix import LengthPrefix, LengthPrefixLimits
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.controller import codec
from dragoman.dialects.controller.editions import SEED, SHIFTED, Edition
from dragoman.dialects.controller.messages import ControlKind, ControllerError, PulseKind, WorkerError
from fuzz.controller import FIELDS, OFFICIAL, official_numbers, our_numbers

INPUTS = 20_000
NUMBERS = st.integers(0, (1 << 64) - 1)
EDITIONS = st.sampled_from([SEED, SHIFTED])


def read_pulse(head: bytes, edition: Edition) -> object:
    raw = codec.read_pulse(head)
    assert codec.edition_of_pulse(raw.type, raw.worker_id, None) in (SEED, SHIFTED)
    assert codec.edition_of_pulse(raw.type, raw.worker_id, edition, edition) is edition
    return codec.pulse_of(raw, edition)


READERS: dict[str, Callable[[bytes, Edition], object]] = {
    "pulse": read_pulse,
    "pulse response": codec.read_pulse_response,
    "control": codec.read_control,
    "response": codec.read_response,
}


def understood(head: bytes) -> set[str]:
    """Return the readers that decode it. Editions differ in message names only, so both decode it or neither does."""
    for message in FIELDS:
        assert our_numbers(message, head) == official_numbers(message, head), head
    found = set()
    for name, reader in READERS.items():
        ends = []
        for edition in (SEED, SHIFTED):
            try:
                reader(head, edition)
                ends.append("")
            except Malformed as malformed:
                ends.append(str(malformed))
        assert ends[0] == ends[1], head
        assert not ends[0] or ends[0].startswith(f"unreadable: {len(head)} bytes instead of a "), head
        if not ends[0]:
            found.add(name)
    return found


def likely_head(rng: random.Random) -> bytes:
    """Keys of fields and wire types that matter, with values that often fit."""
    parts = []
    for _ in range(rng.randint(0, 5)):
        key = rng.randint(0, 5) << 3 | rng.choice((0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7))
        parts.append(bytes([key]) + rng.choice((b"", b"\0", b"\x02", b"\x04ab", rng.randbytes(rng.randint(1, 11)))))
    return b"".join(parts)


@pytest.mark.parametrize("seed", range(2))
def test_likely_heads_are_understood_or_malformed(seed: int) -> None:
    rng = random.Random(f"likely {seed}")
    ends = [understood(likely_head(rng)) for _ in range(INPUTS // 4)]
    assert set(READERS) in ends
    assert set() in ends


@pytest.mark.parametrize("seed", range(2))
def test_random_bytes_are_understood_or_malformed(seed: int) -> None:
    rng = random.Random(f"bytes {seed}")
    ends = [understood(rng.randbytes(rng.randint(0, 30))) for _ in range(INPUTS // 4)]
    assert set(READERS) in ends
    assert set() in ends


@pytest.mark.parametrize("extra_of", [codec.extra_of_pulse, codec.extra_of_control, codec.extra_of_response])
def test_any_stream_gives_heads_and_as_many_extra_bytes_as_they_count(extra_of: Callable[[bytes], int]) -> None:
    rng = random.Random("streams")
    for _ in range(INPUTS // 10):
        carrier = LengthPrefix(extra_of, limits=LengthPrefixLimits(max_payload=1000))
        heads = [likely_head(rng) for _ in range(3)]
        stream = b"".join(len(head).to_bytes(8, "little") + head + rng.randbytes(rng.choice((0, 2))) for head in heads)
        for message in carrier.feed(stream):
            assert isinstance(message, list)
            head, extra = message
            assert extra_of(bytes(head)) == len(extra) <= 1000
        assert carrier.failure is None or carrier.failure.reason in ("unreadable", "over max_payload", "head too long")


@settings(derandomize=True, deadline=None, max_examples=500)
@given(st.binary(max_size=200))
def test_any_bytes_are_understood_or_malformed(head: bytes) -> None:
    understood(head)


def test_groups_in_groups_are_malformed_and_do_not_exhaust_the_stack() -> None:
    assert understood(b"\x2b" * 60_000) == set()
    assert understood(b"\x2b" * 30_000 + b"\x2c" * 30_000) == set()


def varint(number: int, padding: int) -> bytes:
    """A number with so many bytes more than it needs."""
    groups = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)] + [0] * padding
    return bytes([group | 0x80 for group in groups[:-1]]) + bytes(groups[-1:])


FIELD_NUMBERS = st.sampled_from([0, 1, 1, 2, 3, 4, 5, 15, 16, (1 << 29) - 1, 1 << 29])
PADDING = st.sampled_from([0, 0, 0, 0, 1, 3, 4, 5, 8, 9])
WIDE = st.one_of(st.integers(0, 127), st.integers(0, (1 << 70) - 1), st.integers((1 << 31) - 2, (1 << 31) + 2))


@st.composite
def fields(draw: st.DrawFn, depth: int = 0) -> bytes:
    """One field of protobuf, or nearly one: of any number, any wire type, any length of its varints."""
    number, kind = draw(FIELD_NUMBERS), draw(st.sampled_from([0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]))
    field = varint(number << 3 | kind, draw(PADDING))
    if kind == 0:
        return field + varint(draw(WIDE), draw(PADDING))
    if kind in (1, 5):
        return field + bytes(8 if kind == 1 else 4)
    if kind == 2:
        body = draw(st.binary(max_size=4))
        return field + varint(len(body), draw(PADDING)) + body
    if kind == 3 and depth < 3:
        return field + b"".join(draw(st.lists(fields(depth + 1), max_size=2))) + varint(number << 3 | 4, draw(PADDING))
    return field


@settings(derandomize=True, deadline=None, max_examples=2000)
@given(st.lists(fields(), max_size=5).map(b"".join), st.integers(0, 2))
def test_what_we_read_is_what_the_official_library_reads(head: bytes, cut: int) -> None:
    """Unknown and repeated fields, packed ones, negative numbers, varints of ten bytes, groups, and their ends."""
    understood(head[: len(head) - cut])


def test_groups_in_groups_are_as_deep_as_in_the_official_library() -> None:
    ends = [understood(b"\x2b" * depth + b"\x2c" * depth) for depth in (1, 99, 100, 101)]
    assert ends == [set(READERS), set(READERS), set(READERS), set()]


@settings(derandomize=True, deadline=None, max_examples=300)
@given(EDITIONS, st.sampled_from(PulseKind), NUMBERS, NUMBERS, NUMBERS)
def test_what_we_write_is_what_the_official_library_writes(
    edition: Edition, kind: PulseKind, first: int, second: int, third: int
) -> None:
    def official(name: str, *numbers: int) -> bytes:
        written: bytes = OFFICIAL[name](**dict(zip(FIELDS[name], numbers, strict=True))).SerializeToString()
        return written

    number = edition.pulses.number[kind]
    ours = codec.write_pulse(kind, edition, worker_id=first, task_id=second, next_pulse=third)
    assert ours == official("WorkerPulse", number, first, second, third)
    for error, number in edition.controller_errors.number.items():
        assert codec.write_pulse_response(error, edition, worker_id=first) == official("PulseResponse", number, first)
    for control, number in edition.controls.number.items():
        ours = codec.write_control(control, edition, task_id=first, extra_size=second)
        assert ours == official("ControlMsg", number, second, first)
    for status, number in edition.worker_errors.number.items():
        ours = codec.write_response(status, edition, task_id=first, extra_size=second)
        assert ours == official("WorkerResponse", number, first, second)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(EDITIONS, st.sampled_from(PulseKind), NUMBERS, NUMBERS, NUMBERS)
def test_pulses_come_back(edition: Edition, kind: PulseKind, worker_id: int, task_id: int, next_pulse: int) -> None:
    head = codec.write_pulse(kind, edition, worker_id=worker_id, task_id=task_id, next_pulse=next_pulse)
    pulse = codec.pulse_of(codec.read_pulse(head), edition)
    assert (pulse.kind, pulse.worker_id, pulse.task_id, pulse.next_pulse) == (kind, worker_id, task_id, next_pulse)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(EDITIONS, st.sampled_from(ControllerError), st.sampled_from(ControlKind), NUMBERS, NUMBERS)
def test_what_a_controller_says_comes_back(
    edition: Edition, error: ControllerError, kind: ControlKind, id: int, size: int
) -> None:
    answer = codec.read_pulse_response(codec.write_pulse_response(error, edition, worker_id=id), edition)
    assert (answer.error, answer.worker_id) == (error, id)
    control = codec.read_control(codec.write_control(kind, edition, task_id=id, extra_size=size), edition)
    assert (control.kind, control.task_id, control.extra_size) == (kind, id, size)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(EDITIONS, st.sampled_from(WorkerError), NUMBERS, NUMBERS)
def test_responses_come_back(edition: Edition, error: WorkerError, task_id: int, size: int) -> None:
    head = codec.write_response(error, edition, task_id=task_id, extra_size=size)
    response = codec.read_response(head, edition)
    assert (response.error, response.task_id, response.extra_size) == (error, task_id, size)
    assert codec.extra_of_response(head) == size
