"""Workers that request jobs, and workers that change their services (R131, R132)."""

from __future__ import annotations

from dragoman.core.model import Worker
from dragoman.core.states import Outcome, WorkerState

from .world import Caller, CheckedBroker, attempt_of


def puller(broker: CheckedBroker, capacity: int = 1, asks: int = 1, now: float = 0.0) -> Worker:
    worker = broker.starting(pulls=True, capacity=capacity, lease=10.0, now=now)
    broker.availability.ask(worker, asks, now)
    broker.idle(worker, now)
    return worker


def test_worker_that_pulls_is_given_nothing_before_it_asks(broker: CheckedBroker) -> None:
    """R131."""
    worker = broker.starting(pulls=True)
    broker.idle(worker, 0.0)
    job = broker.call()
    assert (worker.state, job.attempt) == (WorkerState.DETACHED, None)
    broker.availability.ask(worker, 1, 1.0)
    assert attempt_of(job).worker is worker


def test_ask_lasts_until_a_job_comes_and_is_used_up_by_it(broker: CheckedBroker) -> None:
    """R131."""
    worker = puller(broker)
    first, second = broker.running(worker), broker.call()
    broker.succeed(first, b"", 1.0)
    assert (worker.state, second.attempt, worker.asked) == (WorkerState.DETACHED, None, 0)
    broker.availability.ask(worker, 1, 2.0)
    assert attempt_of(second).worker is worker


def test_worker_that_asks_before_it_answers_gets_its_next_job_with_the_answer(broker: CheckedBroker) -> None:
    worker = puller(broker)
    first, second = broker.running(worker), broker.call()
    broker.availability.ask(worker, 1, 1.0)
    assert (worker.state, second.attempt) == (WorkerState.BUSY, None)
    broker.succeed(first, b"", 1.0)
    assert attempt_of(second).worker is worker


def test_worker_is_given_as_many_jobs_as_it_asks_for_and_has_slots(broker: CheckedBroker) -> None:
    """R131, I2."""
    jobs = [broker.call() for _ in range(5)]
    worker = puller(broker, capacity=3, asks=2)
    assert [job.attempt is not None for job in jobs] == [True, True, False, False, False]
    broker.availability.ask(worker, 9, 1.0)
    assert [job.attempt is not None for job in jobs] == [True, True, True, False, False]
    broker.succeed(attempt_of(jobs[0]), b"", 2.0)
    assert attempt_of(jobs[3]).worker is worker


def test_ask_that_is_withdrawn_leaves_no_idle_worker_behind(broker: CheckedBroker) -> None:
    """R131; the lease runs on from the last sign of it."""
    worker = puller(broker)
    broker.availability.ask(worker, 0, 5.0)
    assert (worker.state, worker.seen) == (WorkerState.DETACHED, 0.0)
    assert broker.call().attempt is None
    broker.run_until(10.0)
    assert worker.state is WorkerState.GONE


def test_pulling_and_pushing_workers_stand_in_one_line(broker: CheckedBroker) -> None:
    """D7: the longest idle first."""
    first, second, third = puller(broker), broker.worker(), puller(broker)
    assert [attempt_of(broker.call()).worker for _ in range(3)] == [first, second, third]


def test_worker_that_does_not_pull_always_asks(broker: CheckedBroker) -> None:
    worker = broker.worker()
    broker.availability.ask(worker, 0, 1.0)
    assert attempt_of(broker.call()).worker is worker


def test_ask_whose_job_was_taken_back_before_it_was_sent_still_stands(broker: CheckedBroker, caller: Caller) -> None:
    """The broker side has not received that job: its worker waits for one as before."""
    worker = puller(broker)
    broker.withdraw(broker.call(caller=caller), 1.0)
    assert (worker.state, worker.asked) == (WorkerState.IDLE, 1)
    assert attempt_of(broker.call()).worker is worker


def test_job_on_its_way_to_a_worker_is_one_that_it_asks_for(broker: CheckedBroker) -> None:
    """A broker side that repeats its number of requests has not received the job that answers one of them."""
    worker = puller(broker, capacity=3)
    first, second = broker.call(), broker.call()
    broker.availability.ask(worker, 1, 0.0)
    assert (attempt_of(first).worker, second.attempt) == (worker, None)
    broker.availability.ask(worker, 2, 0.0)
    assert attempt_of(second).worker is worker


def test_job_that_never_left_uses_up_the_ask(broker: CheckedBroker) -> None:
    """R131: its broker side requests again if the worker still waits."""
    worker = puller(broker)
    attempt = broker.running(worker)
    broker.attempts.undelivered(attempt, 1.0)
    assert (worker.state, attempt.job.attempt) == (WorkerState.DETACHED, None)
    broker.availability.ask(worker, 1, 2.0)
    assert attempt_of(attempt.job).worker is worker


def test_worker_that_is_out_of_reach_is_given_nothing_though_it_asks(broker: CheckedBroker) -> None:
    """R64, R131."""
    worker = puller(broker, asks=0)
    broker.availability.detach(worker, 1.0)
    broker.availability.ask(worker, 1, 2.0)
    job = broker.call(now=2.0)
    assert job.attempt is None
    broker.availability.attach(worker, 3.0)
    assert attempt_of(job).worker is worker


# -------------------------------------------------------------------- offer


def test_worker_that_offers_another_service_gets_its_waiting_jobs(broker: CheckedBroker) -> None:
    """R132, I6."""
    worker = broker.worker("a")
    job = broker.call(service="b")
    assert broker.availability.offer(worker, ["a", "b"], 1.0)
    assert (attempt_of(job).worker, broker.worker_registry.services["b"].workers) == (worker, 1)


def test_service_that_is_no_longer_offered_gets_no_worker(broker: CheckedBroker) -> None:
    """R132: what the worker holds is not touched."""
    worker = broker.worker("a", "b", capacity=2)
    held = attempt_of(broker.call(service="b"))
    broker.take()
    assert broker.availability.offer(worker, ["a"], 1.0)
    job = broker.call(service="b", now=1.0)
    assert (job.attempt, held.job.attempt, worker.state) == (None, held, WorkerState.IDLE)
    assert broker.succeed(held, b"", 2.0)
    assert attempt_of(broker.call(service="a", now=3.0)).worker is worker


def test_worker_may_offer_nothing_for_a_while(broker: CheckedBroker) -> None:
    """R132."""
    worker = broker.worker("a")
    assert broker.availability.offer(worker, [], 1.0)
    job = broker.call(service="a", now=1.0)
    assert (worker.state, job.attempt) == (WorkerState.IDLE, None)
    assert broker.availability.offer(worker, ["a"], 2.0)
    assert attempt_of(job).worker is worker


def test_worker_keeps_its_place_among_the_idle_of_a_service_it_goes_on_offering(broker: CheckedBroker) -> None:
    """D7."""
    first, second = broker.worker("a"), broker.worker("a")
    broker.availability.offer(first, ["a", "b"], 1.0)
    assert [attempt_of(broker.call(service="a")).worker for _ in range(2)] == [first, second]


def test_worker_is_the_last_of_the_idle_of_a_service_it_adds(broker: CheckedBroker) -> None:
    """R132, D7: however long it has been idle for other services."""
    newcomer, worker = broker.worker("b"), broker.worker("a")
    broker.availability.offer(newcomer, ["b", "a"], 1.0)
    assert [attempt_of(broker.call(service="a", now=2.0)).worker for _ in range(2)] == [worker, newcomer]


def test_offer_that_cannot_be_changes_nothing() -> None:
    """R29."""
    broker = CheckedBroker(max_services=1)
    worker = broker.worker("a")
    gone = broker.worker("a")
    broker.leave(gone, 0.0, "gone")
    assert not broker.availability.offer(worker, ["b", "c"], 1.0)
    assert not broker.availability.offer(worker, ["\n"], 1.0)
    assert not broker.availability.offer(gone, ["a"], 1.0)
    assert [service.name for service in worker.services] == ["a"]


def test_busy_worker_gets_jobs_of_what_it_offers_when_it_is_free(broker: CheckedBroker) -> None:
    worker = broker.worker("a")
    held = broker.running(worker, service="a")
    broker.availability.offer(worker, ["b"], 1.0)
    old, new = broker.call(service="a"), broker.call(service="b")
    broker.succeed(held, b"", 2.0)
    assert (old.attempt, attempt_of(new).worker, held.job.outcome) == (None, worker, Outcome.DONE)
