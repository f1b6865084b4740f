"""Extras of a job as text: read as written, and nothing else is read."""

from __future__ import annotations

import pytest

from dragoman.core.extras_text import extras_of, extras_text
from dragoman.core.ids import JobId
from dragoman.core.job_extras import JobExtras

WRITTEN = [
    (JobExtras(), "{}"),
    (JobExtras(parent=JobId(bytes(range(16)))), '{"parent":"000102030405060708090a0b0c0d0e0f"}'),
    (JobExtras(traceparent="00-ab-cd-01"), '{"traceparent":"00-ab-cd-01"}'),
]


@pytest.mark.parametrize(("extras", "text"), WRITTEN, ids=lambda each: str(each))
def test_extras_are_read_as_written(extras: JobExtras, text: str) -> None:
    assert extras_text(extras) == text
    assert extras_of(text) == extras


REJECTED = ["[]", "1", "{", '{"parent":"00"}', '{"parent":1}', '{"traceparent":1}', '{"other":1}']


@pytest.mark.parametrize("text", REJECTED)
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 any message
        extras_of(text)
