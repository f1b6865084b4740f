"""The worker side that keeps its jobs when its broker is gone, and sends their outcomes to the next one (R107)."""

from __future__ import annotations

import json

from dragoman.core.states import Outcome
from dragoman.dialects.native.codec import write_bye, write_welcome
from dragoman.dialects.native.messages import Role, Welcome
from dragoman.dialects.sides import Failure

from .test_worker_side import A, B, C, Side

LATER = b"\x04" * 16


def keeping(concurrency: int = 2, prefetch: int = 0) -> Side:
    side = Side(concurrency, prefetch, is_open=False)
    side.keep_jobs()
    reopen(side)
    return side


def reopen(side: Side) -> list[list[bytes]]:
    """Connect to a broker. Returns the messages after HELLO."""
    side.opened(0.0)
    hello, *early = side.port.take()
    assert json.loads(bytes(hello[1]))["returns"] is True
    assert early == [], "nothing is sent before WELCOME"
    side.receive(write_welcome(Welcome(2.0, 10.0, 1000, retries=True), Role.WORKER), 0.0)
    return [[bytes(frame) for frame in message] for message in side.port.take()]


def test_a_kept_job_goes_on_and_its_outcome_is_sent_to_the_next_broker() -> None:
    side = keeping()
    side.give(A, B)
    side.lost()
    assert side.port.events == [], "nothing is cancelled"
    assert side.is_busy
    assert reopen(side) == []
    side.finished(A, b"one", 1.0)
    side.failed(B, "no", 1.0, Failure("ValueError", "no", "trace", retry_in=2.0), Outcome.FAILED)
    result, failed = side.port.take()
    assert result == [b"\x20" + A, b"one"]
    assert failed[0][:18] == b"\x21\x01" + B
    assert not side.is_busy


def test_what_ends_without_a_broker_is_sent_after_the_next_welcome() -> None:
    """Also a result that was not written yet when the connection ended."""
    side = keeping()
    side.give(A, B)
    side.finished(A, b"unwritten", 1.0)
    side.lost()
    side.finished(B, b"meanwhile", 1.0)
    assert side.is_busy
    side.lost()
    assert reopen(side) == [[b"\x20" + A, b"unwritten"], [b"\x20" + B, b"meanwhile"]]
    assert not side.is_busy


def test_jobs_of_the_next_broker_wait_until_kept_ones_have_ended() -> None:
    side = keeping(concurrency=1)
    side.give(A)
    side.lost()
    reopen(side)
    side.give(B)
    assert [job_ref for job_ref, _, _ in side.port.given] == [A]
    side.finished(A, b"", 1.0)
    assert [job_ref for job_ref, _, _ in side.port.given] == [A, B]


def test_jobs_that_were_not_started_are_dropped_with_the_connection() -> None:
    side = keeping(concurrency=1, prefetch=1)
    side.give(A, B)
    side.lost()
    reopen(side)
    side.finished(A, b"", 1.0)
    assert [job_ref for job_ref, _, _ in side.port.given] == [A]


def test_a_job_that_has_sent_parts_is_cancelled_with_the_connection() -> None:
    """The next broker does not have these parts, and the result would lack them."""
    side = keeping()
    side.give(A, B)
    assert side.report(A, b"part", 1.0, is_part=True) is None
    side.lost()
    assert side.port.events == [("recall", A)]
    assert side.report(B, b"part", 1.0, is_part=True) == "the connection to the broker ended"
    assert side.report(B, b"half", 1.0, is_part=False) is None, "progress may be dropped"


def test_kept_jobs_are_cancelled_when_the_worker_stops() -> None:
    side = keeping()
    side.give(A)
    side.lost()
    reopen(side)
    side.give(C)
    side.stop()
    assert side.port.events == [("recall", A)]
    side.finished(A, b"late", 1.0)
    side.finished(C, b"c", 1.0)
    side.flush(1.0)
    assert side.port.take() == [[b"\x05"], [b"\x20" + C, b"c"]]


def test_a_broker_that_sends_the_worker_away_for_good_ends_all_jobs() -> None:
    side = keeping()
    side.give(A)
    side.lost()
    reopen(side)
    side.give(LATER)
    side.receive(write_bye("stop", is_final=True), 1.0)
    assert side.port.events == [("recall", A), ("recall", LATER), ("leave", "stop")]
    assert not side.is_busy
