"""A failure as bytes."""

from __future__ import annotations

import pytest

from dragoman.core.failure import Failure, pack_failure, reported_failure, unpack_failure


@pytest.mark.parametrize(
    ("failure", "packed"),
    [
        (Failure("ValueError", "not so", "Traceback"), b"ValueError\0not so\0Traceback"),
        (Failure("", ""), b"\0\0"),
        (Failure("ü", "ö\nä", "in line 1\0in line 2"), "ü\0ö\nä\0in line 1\0in line 2".encode()),
    ],
    ids=["ascii", "empty", "NULs in the traceback"],
)
def test_a_failure_survives_its_bytes(failure: Failure, packed: bytes) -> None:
    assert pack_failure(failure) == packed
    assert unpack_failure(packed) == unpack_failure(bytearray(packed)) == failure


def test_nuls_in_type_and_message_are_left_out() -> None:
    """They would move the message into the traceback."""
    assert pack_failure(Failure("a\0b", "c\0d", "e\0f")) == b"ab\0cd\0e\0f"
    assert reported_failure("a\0b", "c\0d", "e\0f") == Failure("ab", "cd", "e\0f")


def test_text_that_has_no_form_in_utf8_is_packed() -> None:
    assert pack_failure(Failure("\ud800", "m")) == b"?\0m\0"


@pytest.mark.parametrize("packed", [b"", b"a result", b"one\0two"])
def test_bytes_that_hold_no_failure(packed: bytes) -> None:
    assert unpack_failure(packed) is None


def test_bytes_that_are_not_utf8_are_read() -> None:
    assert unpack_failure(b"\xff\0m\0t") == Failure("\ufffd", "m", "t")


def test_the_size_is_that_of_the_bytes() -> None:
    failure = Failure("ValueError", "not so", "Traceback")
    assert failure.size == len(pack_failure(failure))


def test_a_sentence_begins_with_the_type_if_there_is_one() -> None:
    assert Failure("ValueError", "no").sentence == "ValueError: no"
    assert Failure("", "its process died").sentence == "its process died"
