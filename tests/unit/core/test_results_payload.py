"""Payloads with results of other jobs: what CBOR libraries read, and what is refused."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.results_payload import Entry, is_packed, most_packed_bytes, pack_results, unpack_results

results = st.none() | st.binary(max_size=300)
entries = st.lists(results | st.lists(results, max_size=30), max_size=30)


@given(payload=st.binary(max_size=70_000), found=entries)
def test_libraries_and_this_module_read_the_same(payload: bytes, found: list[Entry]) -> None:
    packed = pack_results(payload, found)
    assert is_packed(packed)
    assert unpack_results(packed) == (payload, found)
    assert len(packed) <= most_packed_bytes(payload, found)
    assert cbor2.loads(packed[3:]) == [payload, found]  # without the tag, because it makes tuples of lists
    assert cbor2.loads(packed) is not None


@given(st.binary(max_size=50))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    try:
        unpack_results(b"\xd9\xd9\xf7\x82" + tail)
    except ValueError:
        return
    assert unpack_results(pack_results(*unpack_results(b"\xd9\xd9\xf7\x82" + tail)))


@pytest.mark.parametrize(
    ("packed", "problem"),
    [
        (b"", "begins otherwise"),
        (b'{"a":1}', "begins otherwise"),
        (b"\xd9\xd9\xf7\x82", "ends before its results"),
        (b"\xd9\xd9\xf7\x82\xf6\x80", "null in place of the submitted payload"),
        (b"\xd9\xd9\xf7\x82\x40\x81", "fewer results than it announces"),
        (b"\xd9\xd9\xf7\x82\x45ab", "ends within a result"),
        (b"\xd9\xd9\xf7\x82\x40\x80x", "1 bytes behind its results"),
        (b"\xd9\xd9\xf7\x82\x40\x81\x01", "a value of another type at byte 6"),
        (b"\xd9\xd9\xf7\x82\x5f", "an invalid length at byte 4"),
        (b"\xd9\xd9\xf7\x82\x59\x01", "an invalid length at byte 4"),
    ],
)
def test_other_payloads_are_refused(packed: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        unpack_results(packed)
