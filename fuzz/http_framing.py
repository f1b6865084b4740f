"""Fuzz target: heads and chunks of HTTP requests. The first byte selects a head, a chunked body, or both in one."""

from __future__ import annotations

from typing import Final

from dragoman.http.framing import (
    IN_CHUNKS,
    LONGEST_LINE,
    BadRequest,
    Chunks,
    body_length,
    check_part,
    is_forwarded,
    parser_error,
    read_head,
    without_upgrade,
)
from dragoman.http.hosts import Hosts
from dragoman.http.limits import HttpLimits

LIMITS: Final = HttpLimits(max_head=300, max_fields=8, max_target=60, max_payload=100)
HOSTS: Final = Hosts([])
END: Final = b"\r\n\r\n"
STATUSES_OF_HEADS: Final = (400, 414, 431)  # of heads that are malformed or too large


def test_one_input(data: bytes) -> None:
    if not data:
        return
    if data[0] & 1:
        check_head(data[1:])
    else:
        check_chunks(data[1:])


def check_head(data: bytes) -> None:
    """Check that a head whose beginning is rejected is rejected as a whole.

    If it breaks several rules, its cut decides which of them is found first.
    """
    head = data[: data.find(END) + len(END)] if END in data else data
    early = next((fault for end in range(1, len(head)) if (fault := check_part(head[:end], LIMITS))), None)
    try:
        found = read_head(head, LIMITS)
    except BadRequest as error:
        assert error.fault.status in STATUSES_OF_HEADS
        return
    assert early is None, f"{early} for a part of a valid head"
    assert head.endswith(END)
    lines = head[: -len(END)].split(b"\r\n")[1:]
    fields = [(name.lower(), value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)]
    assert len(fields) <= LIMITS.max_fields
    assert parser_error(found).status == 400
    assert b"\r\nupgrade:" not in without_upgrade(head).lower()
    is_forwarded(fields)
    try:
        length = body_length(fields, found, LIMITS, HOSTS)
    except BadRequest as error:
        assert error.fault.status in (400, 403, 413, 415, 501)
        return
    assert length == IN_CHUNKS or 0 <= length <= LIMITS.max_payload


def check_chunks(data: bytes) -> None:
    """Check that the end of a chunked body does not depend on the cut."""
    whole = end_of_chunks(data, len(data))
    assert end_of_chunks(data, 1) == whole
    assert end_of_chunks(data, 7) == whole


def end_of_chunks(data: bytes, size: int) -> tuple[int, str, int]:
    """Return the end (-1: none), the reason of a rejection, and the announced bytes of a body in pieces of a size."""
    chunks = Chunks(LIMITS)
    for start in range(0, len(data), size or 1):
        try:
            end = chunks.end(data[start : start + size])
        except BadRequest as error:
            return -1, error.fault.reason, 0
        assert chunks.total <= LIMITS.max_payload
        assert len(chunks._line) <= LONGEST_LINE
        if end is not None:
            return start + end, "", chunks.total
    return -1, "", chunks.total
