"""Parts of results: delivered to callers that stream, kept for the others."""

from __future__ import annotations

from dragoman.core.effects import DeliverOutcome
from dragoman.core.interim_effects import DeliverProgress
from dragoman.core.states import DONE, FAILED, Outcome

from .world import Caller, CheckedBroker, attempt_of


def answers(broker: CheckedBroker) -> list[tuple[Outcome, bytes, str]]:
    return [
        (each.outcome, bytes(each.result), each.reason) for each in broker.take() if isinstance(each, DeliverOutcome)
    ]


def emit(broker: CheckedBroker, job: object, *parts: bytes) -> None:
    for part in parts:
        assert broker.attempts.progress(attempt_of(job), part, 1.0, is_part=True)  # type: ignore[arg-type]


def test_a_caller_that_takes_parts_gets_them_and_then_the_rest(broker: CheckedBroker, caller: Caller) -> None:
    attempt = broker.running(caller=caller, streams=True)
    emit(broker, attempt.job, b"one ")
    assert broker.take() == [DeliverProgress(caller, attempt, b"one ", is_part=True)]
    broker.succeed(attempt, b"rest", 2.0)
    assert answers(broker) == [(DONE, b"rest", "")]


def test_every_other_caller_gets_them_in_front_of_the_rest(broker: CheckedBroker, caller: Caller) -> None:
    attempt = broker.running(caller=caller)
    emit(broker, attempt.job, b"one ", bytearray(b"two "))
    assert broker.take() == []
    broker.succeed(attempt, b"rest", 2.0)
    assert answers(broker) == [(DONE, b"one two rest", "")]


def test_the_result_of_a_background_job_is_kept_with_its_parts(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.store()
    emit(broker, job, b"one ")
    broker.succeed(attempt_of(job), b"rest", 2.0)
    assert (job.outcome, job.result) == (DONE, b"one rest")


def test_parts_of_an_earlier_attempt_are_dropped(broker: CheckedBroker, caller: Caller) -> None:
    broker.worker()
    job = broker.call(caller=caller, attempts=2)
    emit(broker, job, b"lost ")
    broker.fail(attempt_of(job), "broke", 1.0)
    assert broker.job_registry.parts.bytes == 0
    broker.run_until(10.0)
    emit(broker, job, b"one ")
    broker.succeed(attempt_of(job), b"rest", 11.0)
    assert answers(broker) == [(DONE, b"one rest", "")]


def test_parts_of_a_job_that_is_cancelled_or_whose_worker_goes_are_dropped(broker: CheckedBroker) -> None:
    worker = broker.worker(capacity=2)
    gone, cancelled = broker.call(), broker.call()
    broker.take()
    for each in (gone, cancelled):
        attempt_of(each).is_sent = True
        emit(broker, each, b"one")
    assert broker.job_registry.parts.bytes == 6
    broker.withdraw(cancelled, 2.0)
    assert broker.job_registry.parts.bytes == 3
    broker.leave(worker, 3.0, "it went")
    assert broker.job_registry.parts.bytes == 0


def test_a_result_that_is_too_large_with_its_parts_fails(broker: CheckedBroker, caller: Caller) -> None:
    broker.worker(max_payload=10)
    job = broker.call(caller=caller)
    emit(broker, job, b"123456")
    broker.succeed(attempt_of(job), b"78901", 2.0)
    assert answers(broker) == [(FAILED, b"", "its result of 11 bytes is over max_payload 10")]


def test_parts_beyond_the_limit_are_not_kept_but_counted(broker: CheckedBroker, caller: Caller) -> None:
    broker.worker(max_payload=10)
    job = broker.call(caller=caller)
    emit(broker, job, b"123456", b"78901", b"2")
    assert broker.job_registry.parts.bytes == 0
    broker.succeed(attempt_of(job), b"", 2.0)
    assert answers(broker) == [(FAILED, b"", "its result of 12 bytes is over max_payload 10")]


def test_parts_of_all_jobs_together_are_bounded(caller: Caller) -> None:
    broker = CheckedBroker(max_memory=10)
    broker.worker(capacity=2)
    first, second = broker.call(), broker.call(caller=caller)
    emit(broker, first, b"123456")
    emit(broker, second, b"1234", b"5", b"6")
    assert broker.job_registry.parts.bytes == 6
    broker.take()
    broker.succeed(attempt_of(second), b"7", 2.0)
    told = "the parts of its result, 6 bytes, exceed the memory for parts (max_memory)"
    assert answers(broker) == [(FAILED, b"", told)]
    broker.succeed(attempt_of(first), b"7", 2.0)
    assert answers(broker) == [(DONE, b"1234567", "")]


def test_a_late_result_has_no_parts(broker: CheckedBroker, caller: Caller) -> None:
    attempt = broker.running(caller=caller, job_timeout=1.0)
    attempt.is_sent = True
    emit(broker, attempt.job, b"one")
    broker.tick(5.0)
    broker.take()
    assert not broker.attempts.progress(attempt, b"two", 6.0, is_part=True)
    assert not broker.succeed(attempt, b"rest", 6.0)
    assert broker.take() == []
