"""Events: what subscribers receive, and the cost while there is no subscriber."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, fields
from types import FrameType
from typing import Any

import pytest

from dragoman.core import events
from dragoman.core.events import (
    BROKER_DRAINING,
    JOB_DELAYED,
    JOB_ENDED,
    JOB_KINDS,
    JOB_MOVES,
    JOB_PROGRESS,
    JOB_RUNNING,
    JOB_WAITING,
    KIND_NAMES,
    RESULT_LATE,
    SERVICE_PAUSED,
    SERVICE_RESUMED,
    WORKER_DRAINING,
    WORKER_JOINED,
    WORKER_LEFT,
    BrokerEvent,
    EndedAttempt,
    Event,
    JobEvent,
    Judge,
    PublishEvent,
    ServiceEvent,
    WorkerEvent,
)
from dragoman.core.histogram import BOUNDS, Histogram
from dragoman.core.model import Job
from dragoman.core.options import WorkerProfile
from dragoman.core.recipients import Recipient
from dragoman.core.states import Outcome
from owners import LOCAL_OWNER

from .world import Caller, CheckedBroker, attempt_of

ALL = sum(KIND_NAMES)


def listen(broker: CheckedBroker, kinds: int = ALL) -> None:
    broker.events.subscribe(kinds, lambda event, now: None)


def published(broker: CheckedBroker) -> list[Event]:
    """The events since the last time."""
    return [each.event for each in broker.take() if isinstance(each, PublishEvent)]


def names(broker: CheckedBroker) -> list[str]:
    return [KIND_NAMES[event.kind] for event in published(broker)]


def test_nothing_is_published_while_nobody_subscribes(broker: CheckedBroker) -> None:
    worker = broker.worker()
    broker.succeed(attempt_of(broker.call()), b"", 1.0)
    broker.operator.pause("s")
    broker.operator.resume("s", 1.0)
    broker.availability.drain(worker, 1.0)
    broker.operator.close(2.0)
    assert published(broker) == []


def test_life_of_a_job_and_of_its_worker(broker: CheckedBroker) -> None:
    listen(broker)
    job = broker.call(attempts=2, delay=5.0)
    assert names(broker) == ["delayed"]
    broker.run_until(5.0)
    assert names(broker) == ["waiting"]
    worker = broker.worker(now=5.0)
    assert names(broker) == ["joined", "running"]
    broker.fail(attempt_of(job), "no", 6.0)
    assert names(broker) == ["delayed"]
    broker.run_until(job.start_at)
    assert names(broker) == ["waiting", "running"]
    broker.attempts.progress(attempt_of(job), b"half", 9.0)
    broker.succeed(attempt_of(job), b"", 10.0)
    broker.leave(worker, 11.0, "gone")
    assert names(broker) == ["progress", "ended", "left"]


def test_end_of_a_background_job_is_published_when_the_store_has_it(broker: CheckedBroker) -> None:
    """R103: after a crash it may end otherwise."""
    broker.worker()
    job = broker.store()
    broker.take()
    listen(broker)
    broker.succeed(attempt_of(job), b"", 1.0)
    assert names(broker) == []
    broker.save_all(2.0)
    assert names(broker) == ["ended"]
    broker.job_registry.kept.attend(job, Caller())
    assert names(broker) == []


def test_what_events_of_a_job_say(broker: CheckedBroker) -> None:
    listen(broker, JOB_KINDS)
    worker = broker.worker(name="w")
    job = broker.call(attempts=1)
    attempt = attempt_of(job)
    broker.attempts.progress(attempt, bytearray(b"half"), 1.0)
    broker.fail(attempt, "no", 2.0)
    about: dict[str, Any] = {"id": job.id, "service": "s", "is_background": False, "is_kept": False, "caller": "?"}
    held = {**about, "attempt": 1, "worker": "w", "worker_id": worker.id, "dialect": "?"}
    assert published(broker) == [
        JobEvent(JOB_RUNNING, **held, max_attempts=1),
        JobEvent(JOB_PROGRESS, **held, progress=b"half"),
        JobEvent(JOB_ENDED, **about, outcome=Outcome.FAILED, reason="no"),
    ]


def test_a_job_that_is_retried_says_how_its_attempt_ended(broker: CheckedBroker) -> None:
    worker = broker.worker(name="w")
    job = broker.call(attempts=2, job_timeout=30.0, retry_first=1.0, retry_jitter=0.0)
    attempt = attempt_of(job)
    broker.take()
    listen(broker, JOB_DELAYED | JOB_WAITING | RESULT_LATE)
    broker.run_until(30.0)
    broker.run_until(31.0)
    broker.succeed(attempt, b"late", 32.0)
    last = EndedAttempt(1, "w", Outcome.TIMED_OUT, "no result within 30 s", 30.0)
    about: dict[str, Any] = {"id": job.id, "service": "s", "is_background": False, "is_kept": False, "caller": "?"}
    of_worker = {"attempt": 1, "worker": "w", "worker_id": worker.id, "dialect": "?"}
    assert published(broker) == [
        JobEvent(JOB_DELAYED, **about, last=last, delay=1.0),
        JobEvent(JOB_WAITING, **about, last=last),
        JobEvent(RESULT_LATE, **about, **of_worker, state="waiting"),
    ]


def test_a_delayed_job_says_its_delay(broker: CheckedBroker) -> None:
    listen(broker, JOB_DELAYED)
    broker.call(durable=True, delay=90.0)
    broker.save_all(0.0)
    assert [(each.delay, each.last) for each in published(broker) if isinstance(each, JobEvent)] == [(90.0, None)]


def test_what_events_of_a_background_job_in_quarantine_say(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.store(attempts=1)
    broker.take()
    listen(broker, JOB_ENDED)
    broker.fail(attempt_of(job), "no", 1.0)
    broker.save_all(1.0)
    assert published(broker) == [
        JobEvent(
            JOB_ENDED,
            job.id,
            "s",
            is_background=True,
            is_kept=True,
            outcome=Outcome.FAILED,
            reason="no",
            is_quarantined=True,
            caller="?",
        )
    ]


def test_workers_join_drain_and_leave_once(broker: CheckedBroker) -> None:
    listen(broker, WORKER_JOINED | WORKER_DRAINING | WORKER_LEFT)
    worker = broker.starting("a", "b", name="w", capacity=3)
    broker.idle(worker, 0.0)
    broker.call(service="a")
    broker.availability.drain(worker, 1.0)
    broker.availability.drain(worker, 1.0)
    broker.leave(worker, 2.0, "its connection ended")
    broker.leave(worker, 2.0, "its connection ended")
    about = (worker.id, "w", "?", ("a", "b"), 3)
    assert published(broker) == [
        WorkerEvent(WORKER_JOINED, *about),
        WorkerEvent(WORKER_DRAINING, *about),
        WorkerEvent(WORKER_LEFT, *about, reason="its connection ended", held=1),
    ]


def test_events_of_a_worker_have_the_label_of_its_connection(broker: CheckedBroker) -> None:
    listen(broker)
    worker = broker.plain.join(
        Recipient(), None, "w", ("a",), WorkerProfile(), 0.0, LOCAL_OWNER, origin="10.0.0.7:4711"
    )
    assert worker is not None
    broker.leave(worker, 1.0, "its connection ended")
    assert [event.peer for event in published(broker) if isinstance(event, WorkerEvent)] == ["10.0.0.7:4711"] * 2


def test_drained_worker_without_a_job_leaves_at_once(broker: CheckedBroker) -> None:
    worker = broker.worker()
    listen(broker)
    broker.availability.drain(worker, 1.0)
    first, second = published(broker)
    assert (first.kind, second.kind) == (WORKER_DRAINING, WORKER_LEFT)
    assert isinstance(second, WorkerEvent)
    assert second.reason == "drained"


def test_a_service_is_paused_and_resumed_once(broker: CheckedBroker) -> None:
    listen(broker)
    broker.operator.pause("s", "ann")
    broker.operator.pause("s", "bob")
    broker.operator.resume("s", 1.0)
    broker.operator.resume("s", 1.0)
    broker.operator.resume("unknown", 1.0)
    assert published(broker) == [ServiceEvent(SERVICE_PAUSED, "s", "ann"), ServiceEvent(SERVICE_RESUMED, "s")]


def test_jobs_run_after_their_service_was_resumed(broker: CheckedBroker) -> None:
    broker.worker()
    broker.operator.pause("s")
    broker.call()
    listen(broker)
    broker.operator.resume("s", 1.0)
    assert names(broker) == ["resumed", "running"]


def test_the_broker_drains_once(broker: CheckedBroker) -> None:
    broker.running()
    broker.call()
    listen(broker)
    broker.operator.close(1.0)
    broker.operator.close(1.0)
    first, *others = published(broker)
    assert first == BrokerEvent(BROKER_DRAINING, running=1)
    assert [each.kind for each in others] == [JOB_ENDED]


def test_only_the_kinds_that_are_wanted_are_made(broker: CheckedBroker) -> None:
    listen(broker, JOB_DELAYED | WORKER_LEFT)
    worker = broker.worker()
    job = broker.call(attempts=2)
    broker.fail(attempt_of(job), "no", 1.0)
    broker.leave(worker, 2.0, "gone")
    assert names(broker) == ["delayed", "left"]


def test_every_kind_is_a_bit_of_its_own() -> None:
    kinds = {
        value
        for name, value in vars(events).items()
        if name.startswith(("JOB_", "WORKER_", "SERVICE_", "BROKER_", "RIGHT_", "ADMINISTERED", "RESULT_"))
    }
    kinds -= {JOB_MOVES, JOB_KINDS}
    assert kinds == set(KIND_NAMES)
    assert all(kind.bit_count() == 1 for kind in kinds)
    assert JOB_MOVES == events.JOB_DEPENDENT | JOB_DELAYED | JOB_WAITING | JOB_RUNNING
    assert JOB_KINDS == JOB_MOVES | JOB_PROGRESS | JOB_ENDED


# -------------------------------------------------------------------- the registry


def test_any_number_of_subscribers_each_with_kinds_of_their_own(broker: CheckedBroker) -> None:
    registry = broker.events
    first = registry.subscribe(JOB_ENDED, print)
    second = registry.subscribe(JOB_ENDED | WORKER_LEFT, print)
    left = ServiceEvent(WORKER_LEFT, "")
    assert registry.subscribers_of(ServiceEvent(JOB_ENDED, "")) == [first, second]
    assert registry.subscribers_of(left) == [second]
    registry.unsubscribe(second)
    registry.unsubscribe(second)
    assert (registry.subscribers_of(left), registry.wanted) == ([], JOB_ENDED)
    registry.unsubscribe(first)
    assert registry.wanted == 0


def test_a_subscription_names_its_kinds(broker: CheckedBroker) -> None:
    with pytest.raises(ValueError, match="name at least one"):
        broker.events.subscribe(0, print)


def test_events_cannot_be_changed_and_hold_nothing_that_can(broker: CheckedBroker) -> None:
    listen(broker)
    worker = broker.worker()
    job = broker.call(durable=True, delay=1.0)
    broker.run_until(1.0)
    broker.save_all(1.0)
    broker.attempts.progress(attempt_of(job), bytearray(b"half"), 1.0)
    broker.operator.pause("s")
    broker.succeed(attempt_of(job), b"", 1.0)
    broker.save_all(1.0)
    broker.leave(worker, 1.0, "gone")
    broker.operator.close(1.0)
    made = published(broker)
    assert {type(event) for event in made} == {JobEvent, WorkerEvent, ServiceEvent, BrokerEvent}
    for event in made:
        with pytest.raises(FrozenInstanceError):
            event.kind = 0  # type: ignore[misc]
        for field in fields(event):
            hash(getattr(event, field.name))
            assert isinstance(getattr(event, field.name), (int, float, str, bytes, tuple, type(None)))


def test_an_event_says_how_it_was_not_how_it_is(broker: CheckedBroker) -> None:
    """A bug: a job that was given out again at once was reported as *waiting* with the attempt that came after."""
    listen(broker, JOB_MOVES)
    attempt = broker.running(attempts=2)
    broker.worker()
    broker.attempts.undelivered(attempt, 1.0)
    waiting, running = (event for event in published(broker) if isinstance(event, JobEvent))
    assert (waiting.kind, waiting.attempt, waiting.worker) == (JOB_WAITING, None, None)
    assert (running.kind, running.attempt, running.worker) == (JOB_RUNNING, 1, "w")


@contextmanager
def calls_into(module: str) -> Iterator[list[str]]:
    """The functions of this module that are called meanwhile."""
    called: list[str] = []

    def note(frame: FrameType, what: str, _: object) -> None:
        if what == "call" and frame.f_globals.get("__name__") == module:
            called.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("kinds", [0, BROKER_DRAINING, WORKER_JOINED | SERVICE_PAUSED])
def test_a_job_costs_nothing_while_nobody_subscribes_to_jobs(broker: CheckedBroker, kinds: int) -> None:
    """A subscriber to other kinds, such as the log, must not make every job pay."""
    broker.worker(capacity=2)
    if kinds:
        listen(broker, kinds)
    broker.take()
    with calls_into("dragoman.core.events") as called:
        first, second, waiting = broker.call(), broker.call(attempts=2), broker.call()
        broker.attempts.progress(attempt_of(first), b"half", 1.0)
        broker.succeed(attempt_of(first), b"", 1.0)
        broker.fail(attempt_of(second), "no", 1.0)
        broker.succeed(attempt_of(waiting), b"", 1.0)
    assert called == []
    assert published(broker) == []


# -------------------------------------------------------------------- how long things take


def test_waiting_and_running_are_timed_by_service(broker: CheckedBroker) -> None:
    job = broker.call(now=0.0)
    broker.worker(now=3.0)
    broker.succeed(attempt_of(job), b"", 3.25)
    service = job.service
    assert (service.waited.total, sum(service.waited.counts)) == (3.0, 1)
    assert (service.ran.total, sum(service.ran.counts)) == (0.25, 1)
    assert sum(service.ended.values()) == 1


def test_only_the_first_attempt_tells_how_long_jobs_wait(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.call(attempts=2)
    broker.fail(attempt_of(job), "no", 1.0)
    broker.run_until(job.start_at)
    assert sum(job.service.waited.counts) == 1
    assert sum(job.service.ran.counts) == 1


def test_bucket_holds_what_is_at_most_its_bound() -> None:
    histogram = Histogram()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, BOUNDS[-1], BOUNDS[-1] * 2):
        histogram.observe(seconds)
    assert (histogram.counts[0], histogram.counts[1], histogram.counts[-2], histogram.counts[-1]) == (2, 1, 1, 1)


def test_an_event_of_a_job_is_made_if_one_subscriber_wants_it(broker: CheckedBroker) -> None:
    """Each subscriber is asked about every event of its kinds, and only about those."""
    asked: list[tuple[str, int, str]] = []

    def judge(name: str, wanted: str) -> Judge:
        def decide(kind: int, job: Job) -> bool:
            asked.append((name, kind, job.service.name))
            return job.service.name == wanted

        return decide

    broker.events.subscribe(JOB_WAITING, lambda event, now: None, judge("first", "s"))
    broker.events.subscribe(JOB_WAITING | JOB_ENDED, lambda event, now: None, judge("second", "t"))
    for service in ("s", "t", "u"):
        broker.call(service=service)
    assert [each.service for each in published(broker) if isinstance(each, JobEvent)] == ["s", "t"]
    assert asked == [(name, JOB_WAITING, service) for service in "stu" for name in ("first", "second")]
