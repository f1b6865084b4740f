"""The MemoDB codec agrees with another library, and its fast paths with the general one."""

from __future__ import annotations

from io import BytesIO

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from case_tables import check_every_row
from dragoman.core.names import is_name
from dragoman.dialects.memodb import codec
from dragoman.dialects.memodb.messages import (
    DISCONNECT,
    HEARTBEAT,
    JOB,
    READY,
    RESULT,
    Disconnect,
    Heartbeat,
    Job,
    ParsedMessage,
    Ready,
    Result,
)

from .headers import ID, MEMO01, MOST, both_ways, header

ids = st.one_of(st.just(b""), st.binary(min_size=16, max_size=16), st.binary(max_size=300))
visible = st.characters(min_codepoint=0x20, exclude_categories=["Cc", "Cs"])
names = st.text(visible, min_size=1, max_size=40).filter(lambda name: is_name(name, 128))
timeouts = st.one_of(st.just(-1), st.integers(0, 100_000), st.integers(0, MOST))
payloads = st.one_of(st.just(b""), st.binary(max_size=80))


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, bytes, ParsedMessage]:
    """Return header and payload as the other library writes them, and their meaning."""
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
def test_what_another_library_writes_is_read(message: tuple[bytes, bytes, ParsedMessage]) -> None:
    encoded, payload, word = message
    assert both_ways(encoded + payload) == word


@settings(max_examples=400, deadline=None)
@given(
    message=messages(), changes=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255)), max_size=3), cut=st.data()
)
def test_the_short_ways_and_the_careful_one_cannot_be_told_apart(
    message: tuple[bytes, bytes, ParsedMessage], changes: list[tuple[int, int]], cut: st.DataObject
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
