"""The worker registry: idle workers, the choice of a worker, and the limit on service names."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.core.effects import DeliverOutcome, SendJob
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.states import JobState, Outcome, RefusalReason, WorkerState
from owners import LOCAL_OWNER

from .world import NOBODY, Caller, CheckedBroker, attempt_of


def join(broker: CheckedBroker, *services: str, now: float = 0.0) -> object:
    return broker.join(NOBODY, None, "w", services, WorkerProfile(), now, LOCAL_OWNER)


def test_longest_idle_worker_goes_first(broker: CheckedBroker) -> None:
    """D7."""
    first, second, third = (broker.worker(name=name) for name in ("first", "second", "third"))
    for worker in (first, second, third, first):
        job = broker.call()
        assert attempt_of(job).worker is worker
        broker.succeed(attempt_of(job), b"", 0.0)


def test_life_sign_does_not_change_who_is_longest_idle(broker: CheckedBroker) -> None:
    """D1, R31: one entry a worker, and a sign of life does not renew it."""
    first, second = broker.worker(), broker.worker()
    broker.seen(first, 1.0)
    broker.idle(first, 1.0)
    assert attempt_of(broker.call()).worker is first
    assert attempt_of(broker.call()).worker is second


def test_worker_numbers_rise_and_are_never_used_twice(broker: CheckedBroker) -> None:
    """R28."""
    numbers = []
    for _ in range(5):
        worker = broker.worker()
        numbers.append(worker.id)
        broker.leave(worker, 0.0, "gone")
    assert numbers == [1, 2, 3, 4, 5]


def test_worker_of_several_slots_lets_others_go_first_after_each_job(broker: CheckedBroker) -> None:
    """D7 with capacity: idle means that a slot is free."""
    wide, narrow = broker.worker(capacity=2), broker.worker()
    holders = [attempt_of(broker.call()).worker for _ in range(3)]
    assert holders == [wide, narrow, wide]
    assert (wide.state, narrow.state) == (WorkerState.BUSY, WorkerState.BUSY)


def test_held_back_worker_is_used_last(broker: CheckedBroker) -> None:
    """R38."""
    held, free = broker.worker(held=60.0), broker.worker()
    assert [attempt_of(broker.call()).worker for _ in range(2)] == [free, held]


def test_held_back_worker_takes_what_waits_when_it_is_the_only_one(broker: CheckedBroker) -> None:
    """R38, I6: last is not never."""
    job = broker.call()
    held = broker.worker(held=60.0)
    assert attempt_of(job).worker is held


def test_held_back_worker_that_works_after_its_time_is_like_the_others(broker: CheckedBroker) -> None:
    """R38."""
    held = broker.worker(held=60.0)
    attempt = broker.running(held)
    broker.succeed(attempt, b"", 61.0)
    free = broker.worker(now=62.0)
    assert [attempt_of(broker.call(now=63.0)).worker for _ in range(2)] == [held, free]


def test_held_back_worker_is_like_the_others_once_its_time_is_over(broker: CheckedBroker) -> None:
    """R38 ends, and D7 holds again: it is the longest idle. A bug: it stayed last until it got a job by chance."""
    held, free = broker.worker(held=60.0), broker.worker(now=1.0)
    assert [attempt_of(broker.call(now=61.0)).worker for _ in range(2)] == [held, free]


def test_worker_stands_once_among_the_idle_when_its_time_of_being_last_ends(broker: CheckedBroker) -> None:
    """R31, R38. A bug: a worker of two slots then stood among the idle and among the held back."""
    held = broker.worker(held=60.0, capacity=2)
    broker.succeed(broker.running(held), b"", 61.0)
    service = broker.worker_registry.services["s"]
    assert [*service.idle, *service.held_back] == [held]


def test_service_knows_when_the_first_of_its_held_back_workers_may_be_trusted(broker: CheckedBroker) -> None:
    """R38. Every dispatch checks it, so it must never be late, and not be early for long."""
    late, early = broker.worker(held=90.0), broker.worker(held=60.0)
    service = broker.worker_registry.services["s"]
    assert service.held_back_until == 60.0
    assert attempt_of(broker.call(now=61.0)).worker is early
    assert (list(service.held_back), service.held_back_until) == ([late], 90.0)
    assert attempt_of(broker.call(now=91.0)).worker is late
    assert (list(service.held_back), service.held_back_until) == ([], inf)


def test_untried_worker_is_preferred_for_a_retry(broker: CheckedBroker) -> None:
    """R12, though the tried one has been idle for longer."""
    tried = broker.worker()
    job = broker.call(attempts=2)
    untried = broker.worker()
    broker.call(b"keeps it busy")
    broker.fail(attempt_of(job), "no", 1.0)
    busy = next(iter(untried.running.values()))
    broker.succeed(busy, b"", 1.5)
    broker.tick(2.0)
    assert attempt_of(job).worker is untried
    assert tried.state is WorkerState.IDLE


def test_tried_worker_gets_the_job_again_if_it_is_the_only_one(broker: CheckedBroker) -> None:
    """R12."""
    only = broker.worker()
    job = broker.call(attempts=2)
    broker.fail(attempt_of(job), "no", 1.0)
    assert job.state is JobState.DELAYED  # not before the delay has ended
    broker.tick(2.0)
    assert attempt_of(job).worker is only


def test_untried_worker_that_is_held_back_is_preferred_over_a_tried_one(broker: CheckedBroker) -> None:
    """R12 before R38."""
    tried = broker.worker()
    job = broker.call(attempts=2)
    held = broker.worker(held=600.0)
    broker.fail(attempt_of(job), "no", 1.0)
    broker.tick(2.0)
    assert (attempt_of(job).worker, tried.state) == (held, WorkerState.IDLE)


def test_worker_of_several_services_takes_the_job_that_waited_longest(broker: CheckedBroker) -> None:
    """R14: not by the order of its list."""
    jobs = [broker.call(service=name, now=now) for name, now in (("c", 0.5), ("a", 0.7), ("b", 1.0), ("a", 2.0))]
    worker = broker.worker("a", "b", "c", now=3.0)
    order = []
    while worker.running:
        (attempt,) = worker.running.values()
        order.append(jobs.index(attempt.job))
        broker.succeed(attempt, b"", 3.0)
    assert order == [0, 1, 2, 3]


def test_worker_of_several_services_weighs_priority_across_them(broker: CheckedBroker) -> None:
    """R14: one key for all."""
    broker.call(service="a", now=0.0)
    urgent = broker.call(service="b", now=1.0, priority=6)
    broker.worker("a", "b", now=2.0)
    assert urgent.state is JobState.RUNNING


def test_service_without_workers_does_not_delay_another(broker: CheckedBroker) -> None:
    """R13."""
    stuck = broker.call(service="nobody")
    broker.worker("s")
    assert broker.call(service="s").state is JobState.RUNNING
    assert stuck.state is JobState.WAITING


def test_service_is_known_once_a_worker_has_offered_it(broker: CheckedBroker, caller: Caller) -> None:
    """Unknown fails fast; known waits, even while all its workers are away."""
    assert broker.submit("s", b"x", caller, JobOptions(), 0.0) is None
    assert broker.take() == [
        DeliverOutcome(
            caller,
            None,
            Outcome.REFUSED,
            reason="no such service: no worker offers 's'",
            refusal=RefusalReason.NO_SUCH_SERVICE,
        )
    ]
    broker.leave(broker.worker(), 0.0, "gone")
    job = broker.submit("s", b"x", caller, JobOptions(), 0.0)
    assert job is not None
    assert (job.state, broker.take()) == (JobState.WAITING, [])


def test_starting_worker_makes_its_service_known_and_gets_nothing(broker: CheckedBroker, caller: Caller) -> None:
    worker = broker.starting()
    job = broker.submit("s", b"x", caller, JobOptions(), 0.0)
    assert job is not None
    assert (job.state, worker.state) == (JobState.WAITING, WorkerState.STARTING)
    broker.idle(worker, 1.0)
    assert broker.take() == [SendJob(attempt_of(job))]


@pytest.mark.parametrize(
    "names",
    [
        [],
        [""],
        ["a" * 129],
        ["é" * 65],
        ["a\n"],
        ["a\x7f"],
        ["a\x85"],
        ["\ud800"],
        [str(number) for number in range(65)],
    ],
    ids=["none", "empty", "long", "long in bytes", "newline", "del", "c1", "surrogate", "65 names"],
)
def test_worker_with_bad_names_is_not_let_in(broker: CheckedBroker, names: list[str]) -> None:
    """R29."""
    assert join(broker, *names) is None
    assert not broker.worker_registry.workers
    assert not broker.worker_registry.services


@pytest.mark.parametrize("name", ["a", "a" * 128, "é" * 64, "with space", "日本"])
def test_worker_with_good_names_is_let_in(broker: CheckedBroker, name: str) -> None:
    """R29."""
    assert join(broker, name) is not None


def test_same_name_twice_is_one_service(broker: CheckedBroker) -> None:
    worker = broker.worker("s", "s")
    assert [service.name for service in worker.services] == ["s"]
    assert broker.worker_registry.services["s"].workers == 1


def test_names_beyond_the_bound_are_refused_and_not_stored() -> None:
    """R29."""
    broker, caller = CheckedBroker(max_services=2), Caller()
    broker.worker("a", "b")
    assert join(broker, "c") is None
    assert broker.submit("c", b"x", caller, JobOptions(waits=True), 0.0) is None
    assert broker.take() == [
        DeliverOutcome(
            caller,
            None,
            Outcome.REFUSED,
            reason="busy: 2 services exist, the maximum (max_services); raise the limit",
            refusal=RefusalReason.BUSY,
        )
    ]
    assert broker.operator.pause("c") is None
    assert set(broker.worker_registry.services) == {"a", "b"}


def test_worker_whose_names_do_not_all_fit_is_refused_and_none_is_stored() -> None:
    """R29. A bug: room for the second name was made by forgetting the first, which the worker went on to offer."""
    broker = CheckedBroker(max_services=1)
    assert join(broker, "a", "b") is None
    assert not broker.worker_registry.services


def test_worker_whose_second_name_does_not_fit_leaves_nothing_behind() -> None:
    """R29."""
    broker = CheckedBroker(max_services=2)
    broker.worker("a")
    assert join(broker, "b", "c") is None
    assert set(broker.worker_registry.services) == {"a"}


def test_every_service_a_worker_offers_can_be_asked_for() -> None:
    broker = CheckedBroker(max_services=2)
    broker.call(service="x", waits=True)
    broker.withdraw(next(iter(broker.jobs.values())), 0.0)  # a name that is not used any more
    worker = broker.worker("a", "b")
    assert all(broker.worker_registry.services.get(service.name) is service for service in worker.services)


def test_names_nobody_uses_make_room_for_new_ones() -> None:
    """R29: a peer cannot fill the table for ever."""
    broker = CheckedBroker(max_services=2)
    for number in range(10):
        broker.withdraw(broker.call(service=f"s{number}"), 0.0)
        assert len(broker.worker_registry.services) <= 2


def test_paused_name_is_not_forgotten() -> None:
    broker = CheckedBroker(max_services=1)
    assert broker.operator.pause("s") is not None
    assert join(broker, "other") is None
    assert broker.worker_registry.services["s"].paused


@pytest.mark.parametrize("way", ["delayed", "unsaved", "backing off"])
def test_name_of_a_job_that_is_in_no_queue_is_not_forgotten(way: str) -> None:
    """A bug: a service with a delayed or unsaved job was removed, and the job waited in a queue without workers."""
    broker = CheckedBroker(max_services=1)
    if way == "delayed":
        job = broker.call(delay=10.0)
    elif way == "unsaved":
        job = broker.call(durable=True)
    else:
        worker = broker.worker()
        job = broker.call(attempts=2)
        broker.leave(worker, 0.0, "gone")
    assert join(broker, "other") is None
    broker.save_all(1.0)
    broker.tick(10.0)
    broker.worker("s", now=11.0)
    assert job.state is JobState.RUNNING


def test_quarantined_job_of_a_forgotten_service_can_be_retried() -> None:
    """A bug: the new job waited at the forgotten service object."""
    broker = CheckedBroker(max_services=1)
    worker = broker.worker()
    job = broker.store(attempts=1)
    broker.fail(attempt_of(job), "no", 0.0)
    broker.save_all()
    broker.leave(worker, 0.0, "gone")
    other = broker.worker("other")
    broker.leave(other, 0.0, "gone")
    again = broker.operator.retry(job, 1.0)
    assert again is not None
    broker.save_all(1.0)
    broker.worker("s", now=2.0)
    assert again.state is JobState.RUNNING
