"""Packed jobs: read as written, and nothing else is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.packed_jobs import NO_ID, hide_packed, pack_jobs, packed_bytes, unpack_jobs

jobs = st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.binary(max_size=40), st.binary(max_size=300)))


@given(jobs)
def test_jobs_are_read_as_written(found: list[tuple[bytes, bytes, bytes]]) -> None:
    packed = pack_jobs(found)
    assert unpack_jobs(packed, len(found)) == found
    assert unpack_jobs(bytearray(packed), len(found)) == found
    assert len(packed) == sum(packed_bytes(fields, payload) for _, fields, payload in found)


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(packed: bytes) -> None:
    try:
        found = unpack_jobs(packed, 10)
    except ValueError:
        return
    assert pack_jobs(found) == packed


def test_too_many_jobs_are_refused() -> None:
    with pytest.raises(ValueError, match="there are more than 2 jobs"):
        unpack_jobs(pack_jobs([(NO_ID, b"", b"")] * 3), 2)


def test_payloads_are_hidden_and_fields_stay() -> None:
    packed = pack_jobs([(b"i" * 16, b'{"priority":9}', b"secret"), (NO_ID, b"", b"")])
    hidden = hide_packed(packed, lambda fields: fields, lambda payload: b"x" * len(payload))
    assert unpack_jobs(hidden, 9) == [(b"i" * 16, b'{"priority":9}', b"xxxxxx"), (NO_ID, b"", b"")]
