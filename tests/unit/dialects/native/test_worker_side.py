"""The worker side of the native dialect: its reaction to every message type."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from math import inf
from typing import Any

import pytest

from dragoman.carriers.carrier import Frame, TooLarge
from dragoman.core.limit_values import LimitValues, Rate
from dragoman.core.states import Outcome
from dragoman.dialects.native.codec import (
    write_bye,
    write_error,
    write_jobs,
    write_recall,
    write_record,
    write_welcome,
)
from dragoman.dialects.native.messages import HEARTBEAT, Role, Welcome
from dragoman.dialects.native.options import WorkerOptions
from dragoman.dialects.native.waiting import NO_WELCOME
from dragoman.dialects.native.worker_side import WorkerSide
from dragoman.dialects.sides import NOTHING_SAID, Failure, JobInfo

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
ID = bytes(range(16))
HELLO = [b"\x01\x01\x02", b'{"services": ["echo"], "capacity": 2, "retries": true, "extras": true}']
DRAIN, BEAT = [b"\x05"], [b"\x04"]


class Port:
    def __init__(self) -> None:
        self.said: list[list[Frame]] = []
        self.given: list[tuple[Hashable, Frame, JobInfo]] = []
        self.events: list[tuple[str, object]] = []

    def send(self, frames: Sequence[Frame]) -> None:
        self.said.append(list(frames))

    def run(self, job_ref: Hashable, payload: Frame, assignment: JobInfo = NOTHING_SAID) -> None:
        self.given.append((job_ref, payload, assignment))

    def recall(self, job_ref: Hashable, reason: str) -> None:
        self.events.append(("recall", job_ref))

    def reconnect(self, reason: str) -> None:
        self.events.append(("reconnect", reason))

    def leave(self, reason: str) -> None:
        self.events.append(("leave", reason))

    def refused(self, reason: str) -> None:
        self.events.append(("refused", reason))

    def take(self) -> list[list[Frame]]:
        said, self.said = self.said, []
        return said


class Side:
    """A worker side with its I/O. Not a subclass, because compiled classes cannot be inherited from."""

    def __init__(self, concurrency: int = 2, prefetch: int = 0, is_open: bool = True, max_payload: int = 1000) -> None:
        self.port = Port()
        self._side = WorkerSide(WorkerOptions(prefetch=prefetch), self.port, ["echo"], concurrency)
        if is_open:
            self.opened(0.0)
            self.receive(write_welcome(Welcome(2.0, 10.0, max_payload), Role.WORKER), 0.0)
            self.port.take()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._side, name)

    def give(self, *tokens: bytes, timeout: float = inf) -> None:
        records = [write_record(token, ID, 3, timeout) for token in tokens]
        self.receive(write_jobs("echo", records, [b"job " + token[:1] for token in tokens]), 0.0)


def test_it_says_hello_and_nothing_else_until_it_is_welcome() -> None:
    side = Side(is_open=False)
    assert side.tick(0.0) == inf
    side.opened(0.0)
    assert side.port.take() == [HELLO]
    assert side.tick(0.0) < 0.1  # how often it must speak is not known yet
    side.receive(write_welcome(Welcome(0.5, 2.0, 1000), Role.WORKER), 0.1)
    assert side.tick(0.1) == 0.5


def test_a_job_is_run_with_all_that_is_said_of_it() -> None:
    side = Side()
    side.give(A, timeout=1.5)
    [(job_ref, payload, told)] = side.port.given
    assert (job_ref, payload, told.service, told.job_id, told.attempt) == (A, b"job \x01", "echo", ID.hex(), 3)
    assert told.timeout == pytest.approx(1.5, abs=0.002)  # it is rounded up to milliseconds
    side.give(B)
    assert side.port.given[1] == (B, b"job \x02", JobInfo("echo", ID.hex(), 3, inf))


def test_results_of_a_turn_go_out_in_one_message() -> None:
    side = Side()
    side.give(A, B)
    side.finished(A, b"one", 1.0)
    side.finished(B, b"two", 1.0)
    assert side.port.take() == []
    assert side.is_busy
    side.flush(1.0)
    assert side.port.take() == [[b"\x20" + A + B, b"one", b"two"]]
    assert not side.is_busy
    side.flush(1.0)
    assert side.port.take() == []


def test_results_that_would_be_too_much_together_go_out_one_by_one() -> None:
    side = Side(max_payload=1000)
    side.give(A, B)
    side.finished(A, b"a" * 600, 1.0)
    side.finished(B, b"b" * 600, 1.0)
    side.flush(1.0)
    assert side.port.take() == [[b"\x20" + A, b"a" * 600], [b"\x20" + B, b"b" * 600]]


def test_a_result_that_the_broker_would_refuse_is_not_sent() -> None:
    """R224. It was sent in full; one that was larger than a message may be ended the connection, and all jobs on it."""
    side = Side(max_payload=1000)
    side.give(A, B)
    side.finished(A, b"a" * 1000, 1.0)
    side.finished(B, b"b" * 1001, 1.0)
    side.flush(1.0)
    reason = b"its result of 1001 bytes is over max_payload 1000"
    assert side.port.take() == [[b"\x20" + A, b"a" * 1000], [b"\x21\x01" + B, b"", reason, b""]]
    assert not side.is_busy


@pytest.mark.parametrize(
    ("failure", "outcome", "frames"),
    [
        (
            Failure("ValueError", "not so", "Traceback"),
            Outcome.FAILED,
            [b"\x21\x01" + A, b"ValueError", b"not so", b"Traceback"],
        ),
        (Failure("", "it died"), Outcome.LOST, [b"\x21\x03" + A, b"", b"it died", b""]),
        (Failure("", "too late"), Outcome.TIMED_OUT, [b"\x21\x02" + A, b"", b"too late", b""]),
        (None, Outcome.FAILED, [b"\x21\x01" + A, b"", b"a sentence", b""]),
    ],
    ids=["failed", "lost", "timed out", "unsaid"],
)
def test_a_failure_is_told_at_once(failure: Failure | None, outcome: Outcome, frames: list[Frame]) -> None:
    side = Side()
    side.give(A)
    side.failed(A, "a sentence", 1.0, failure, outcome)
    assert side.port.take() == [frames]
    assert not side.is_busy


def test_progress_and_parts_name_their_attempt() -> None:
    side = Side()
    side.give(A)
    assert side.report(A, b"half", 1.0, is_part=False) is None
    assert side.report(A, b"piece", 1.0, is_part=True) is None
    assert side.port.take() == [[b"\x22" + A, b"half"], [b"\x23" + A, b"piece"]]
    assert "max_payload 1000" in (side.report(A, b"x" * 1001, 1.0, is_part=True) or "")
    side.report(B, b"of a job that is over", 1.0, is_part=True)
    assert side.port.take() == []


def test_what_is_prefetched_begins_when_there_is_room() -> None:
    side = Side(concurrency=1, prefetch=1)
    side.give(A, B)
    assert [job_ref for job_ref, _, _ in side.port.given] == [A]
    side.finished(A, b"", 1.0)
    assert [job_ref for job_ref, _, _ in side.port.given] == [A, B]


def test_a_job_beyond_the_capacity_is_given_back() -> None:
    side = Side(concurrency=1, prefetch=1)
    side.give(A, B, C)
    assert side.port.take() == [[b"\x32", C]]


def test_recall_reaches_the_job_and_return_follows_when_it_has_stopped() -> None:
    side = Side(concurrency=1, prefetch=1)
    side.give(A, B)
    side.receive(write_recall(B, "cancelled"), 1.0)  # has not begun
    assert side.port.take() == [[b"\x32", B]]
    side.receive(write_recall(A, "cancelled"), 1.0)
    side.receive(write_recall(C, "never heard of it"), 1.0)
    assert side.port.events == [("recall", A)]
    assert side.is_busy
    side.returned(A, 2.0)
    assert side.port.take() == [[b"\x32", A]]


def test_when_the_connection_is_lost_its_jobs_are_recalled_and_never_answered() -> None:
    side = Side()
    side.give(A, B)
    side.finished(B, b"not sent yet", 1.0)
    side.lost()
    assert side.port.events == [("recall", A)]
    side.opened(2.0)
    side.port.take()
    side.finished(A, b"", 3.0)
    side.returned(A, 3.0)
    side.failed(A, "", 3.0)
    side.flush(3.0)
    assert side.port.take() == []


def test_heartbeats_are_said_when_nothing_else_was() -> None:
    side = Side()
    side.give(A)
    assert side.tick(0.0) == 2.0
    side.report(A, b"", 1.0, is_part=False)
    side.port.take()
    assert side.tick(2.0) == 3.0
    assert side.port.take() == []
    assert side.tick(3.0) == 5.0
    assert side.port.take() == [BEAT]


def test_a_broker_that_is_silent_for_a_lease_is_given_up() -> None:
    side = Side()
    side.receive([bytes((HEARTBEAT,))], 5.0)
    side.tick(14.9)
    assert side.port.events == []
    side.tick(15.0)
    assert side.port.events == [("reconnect", "nothing received from the broker for 10 s")]


def test_a_peer_that_never_welcomes_us_speaks_another_dialect() -> None:
    side = Side(is_open=False)
    side.opened(0.0)
    side.tick(4.9)
    assert side.port.events == []
    side.tick(5.0)
    assert side.port.events == [("reconnect", NO_WELCOME)]


def test_stop_drains_and_leaves_at_the_brokers_bye() -> None:
    side = Side(concurrency=1, prefetch=1)
    side.give(A, B)
    side.stop()
    assert side.port.take() == [DRAIN, [b"\x32", B]]
    side.give(C)  # it had not heard yet
    assert side.port.take() == [[b"\x32", C]]
    side.finished(A, b"one", 1.0)
    side.flush(1.0)
    assert side.port.take() == [[b"\x20" + A, b"one"]]
    assert side.is_busy
    side.receive(write_bye("drained", is_final=True), 2.0)
    assert side.port.events == [("leave", "drained")]
    assert not side.is_busy


def test_a_worker_that_stops_before_it_is_connected_drains_at_once() -> None:
    side = Side(is_open=False)
    side.stop()
    assert not side.is_busy
    side.opened(0.0)
    assert side.port.take() == [HELLO, DRAIN]


def test_a_final_bye_ends_what_runs_and_another_does_not() -> None:
    side = Side()
    side.give(A)
    side.receive(write_bye("come back", is_final=False), 1.0)
    assert side.port.events == [("reconnect", "the broker sent BYE: come back")]
    side.receive(write_bye("killed", is_final=True), 1.0)
    assert side.port.events[1:] == [("recall", A), ("leave", "killed")]
    assert not side.is_busy


@pytest.mark.parametrize(
    "message",
    [
        write_error(1, "malformed", "no such thing"),
        [b"\x30echo", b"short"],
        [b"\x30echo"],
        [b"\x31"],
        [b"\x02\x01", b"no JSON"],
        [b"\x02\x63", b"{}"],
    ],
)
def test_what_cannot_be_understood_is_a_reason_to_connect_anew(message: list[Frame]) -> None:
    side = Side()
    side.receive(message, 1.0)
    assert [kind for kind, _ in side.port.events] == ["reconnect"]


def test_a_message_over_all_limits_is_one_too() -> None:
    side = Side()
    side.receive(TooLarge([b"\x30echo"], 1 << 40), 1.0)
    assert [kind for kind, _ in side.port.events] == ["reconnect"]


@pytest.mark.parametrize("message", [[b"\x04"], [b"\x7f", b"from later versions"], [b""]])
def test_other_words_are_passed_over(message: list[Frame]) -> None:
    side = Side()
    side.receive(message, 1.0)
    assert (side.port.take(), side.port.events) == ([], [])


def test_service_that_requires_parts_is_announced_and_not_served_without_knowing_callers() -> None:
    """R203. A broker of an earlier release does not tell which callers take parts."""
    side = Side(is_open=False)
    side.require_parts(["echo"])
    side.opened(0.0)
    assert json.loads(side.port.take()[0][1])["parts"] == ["echo"]
    side.receive(write_welcome(Welcome(2.0, 10.0, 1000, extras=("traceparent", "parts")), Role.WORKER), 0.0)
    assert side.port.events == []
    record = write_record(A, ID, 1, inf)
    side.receive([*write_jobs("echo", [record], [b"job"]), b'[{"parts": false}]'], 0.0)
    assert side.port.given == [(A, b"job", JobInfo("echo", ID.hex(), takes_parts=False))]
    side.receive(write_welcome(Welcome(2.0, 10.0, 1000), Role.WORKER), 0.0)
    ((what, reason),) = side.port.events
    assert what == "refused"
    assert reason == (
        "it is of an earlier release and does not tell which callers receive parts, as required by 'echo'"
    )


def test_limits_are_declared_and_a_broker_that_does_not_know_them_is_left() -> None:
    """R183. A broker of an earlier release would start too many jobs."""
    side = Side()
    side.declare_limits({"echo": LimitValues(4, None, Rate(100, "min"))})
    side.opened(0.0)
    assert json.loads(side.port.take()[0][1])["limits"] == {"echo": {"max_running": 4, "rate": "100/min"}}
    side.receive(write_welcome(Welcome(2.0, 10.0, 1000, limits=True), Role.WORKER), 0.0)
    assert side.port.events == []
    side.receive(write_welcome(Welcome(2.0, 10.0, 1000), Role.WORKER), 0.0)
    assert side.port.events == [
        ("refused", "it is of an earlier release and does not know limits of services, as declared for 'echo'")
    ]
