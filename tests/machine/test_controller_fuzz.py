"""Any bytes: Worker-Controller's codec decodes them or raises Malformed, and nothing else.

Random inputs come from fixed seeds: a failure prints the input and can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.carriers.length_prefix import LengthPrefix, LengthPrefixLimits
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.controller import codec
from dragoman.dialects.controller.editions import SEED, SHIFTED, Edition
from dragoman.dialects.controller.messages import ControlKind, ControllerError, PulseKind, WorkerError

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
