"""Waiting jobs: their order, and the cost of removing them."""

from __future__ import annotations

import pytest

from dragoman.core.owners import Owner
from dragoman.core.queues import SWEEP_FLOOR
from dragoman.core.rights import ALL_RIGHTS, Principal
from dragoman.core.states import JobState

from .world import Caller, CheckedBroker


def served(broker: CheckedBroker, count: int, now: float) -> list[bytes]:
    """The payloads in the order one worker is given them."""
    worker = broker.worker(now=now, name="server")
    order = []
    for _ in range(count):
        (attempt,) = worker.running.values()
        order.append(bytes(attempt.job.payload))
        broker.succeed(attempt, b"", now)
    return order


def entries(broker: CheckedBroker, service: str = "s") -> int:
    """All entries of a queue, living and dead."""
    queues = broker.worker_registry.services[service].queue.leaves()
    return sum(sum(map(len, queue._lanes.values())) + len(queue._returned) for queue in queues)


def test_jobs_of_one_priority_go_out_in_the_order_they_came(broker: CheckedBroker) -> None:
    """D7, I12."""
    for number in range(5):
        broker.call(b"%d" % number, now=float(number))
    assert served(broker, 5, 10.0) == [b"0", b"1", b"2", b"3", b"4"]


def test_jobs_that_came_at_the_same_moment_go_out_in_the_order_they_came(broker: CheckedBroker) -> None:
    """D7."""
    for number in range(5):
        broker.call(b"%d" % number, now=1.0)
    assert served(broker, 5, 1.0) == [b"0", b"1", b"2", b"3", b"4"]


def test_higher_priority_goes_first(broker: CheckedBroker) -> None:
    for priority in (0, 9, 5, 7):
        broker.call(b"%d" % priority, priority=priority)
    assert served(broker, 4, 1.0) == [b"9", b"7", b"5", b"0"]


def test_one_step_of_priority_is_worth_the_age_step_and_no_more(broker: CheckedBroker) -> None:
    """No job starves: 60 s of waiting weigh as much as a step."""
    broker.call(b"old and low", priority=4, now=0.0)
    broker.call(b"59 s younger", priority=5, now=59.0)
    broker.call(b"61 s younger", priority=5, now=61.0)
    assert served(broker, 3, 61.0) == [b"59 s younger", b"old and low", b"61 s younger"]


def test_lowest_priority_does_not_starve_under_a_steady_stream_of_the_highest(broker: CheckedBroker) -> None:
    """A job of priority 0 overtakes every job of priority 9 that came more than 9 × 60 s after it."""
    worker = broker.worker()
    broker.running(worker)
    patient = broker.call(b"patient", priority=0, now=0.0)
    now = 0.0
    while patient.state is JobState.WAITING:
        now += 10.0
        broker.call(b"greedy", priority=9, now=now)
        (attempt,) = worker.running.values()
        broker.succeed(attempt, b"", now)
        assert now <= 9 * 60.0 + 20.0
    assert patient.state is JobState.RUNNING


def test_age_step_is_policy(broker: CheckedBroker) -> None:
    quick = CheckedBroker(priority_step=1.0)
    quick.call(b"old", priority=4, now=0.0)
    quick.call(b"new", priority=5, now=2.0)
    assert served(quick, 2, 2.0) == [b"old", b"new"]


def test_job_that_comes_back_stands_at_the_front_of_its_priority(broker: CheckedBroker) -> None:
    """R8: it keeps the key of its arrival."""
    first = broker.worker()
    back = broker.call(b"back", now=0.0)
    broker.call(b"later", now=1.0)
    broker.call(b"urgent", now=1.0, priority=6)
    broker.leave(first, 2.0, "gone", unseen=[back.attempt] if back.attempt else [])
    assert back.state is JobState.WAITING
    assert served(broker, 3, 3.0) == [b"urgent", b"back", b"later"]


@pytest.mark.parametrize("middle", [0, 2, 4])
def test_job_that_leaves_from_anywhere_is_skipped(broker: CheckedBroker, middle: int) -> None:
    jobs = [broker.call(b"%d" % number) for number in range(5)]
    broker.withdraw(jobs[middle], 1.0)
    assert served(broker, 4, 2.0) == [b"%d" % number for number in range(5) if number != middle]


def test_returned_job_that_leaves_is_skipped(broker: CheckedBroker) -> None:
    first = broker.worker()
    back = broker.call(b"back")
    broker.leave(first, 1.0, "gone", unseen=[back.attempt] if back.attempt else [])
    broker.call(b"other", now=1.0)
    broker.withdraw(back, 1.5)
    assert served(broker, 1, 2.0) == [b"other"]
    assert not broker.jobs


def test_dead_entries_stay_bounded_when_jobs_are_cancelled_for_ever(broker: CheckedBroker) -> None:
    """I5: memory must not grow with every cancel behind a job that stays at the head."""
    broker.call(b"stays")
    for number in range(1_000):
        broker.withdraw(broker.call(b"goes", priority=number % 10), 0.0)
        assert entries(broker) <= SWEEP_FLOOR + 3


def test_dead_entries_stay_bounded_when_the_living_are_taken(broker: CheckedBroker) -> None:
    """I5. A bug: only `remove` swept, so that dead entries outnumbered the live ones once those were dispatched."""
    for _ in range(100):
        broker.call(b"urgent", priority=9)
    slow = [broker.call(b"slow", priority=0) for _ in range(100)]
    for job in slow[5:95]:
        broker.withdraw(job, 0.0)
    broker.worker(capacity=100)
    assert entries(broker) <= SWEEP_FLOOR + 2 * broker.worker_registry.services["s"].queue.length


def test_queue_counts_what_waits(broker: CheckedBroker) -> None:
    jobs = [broker.call() for _ in range(3)]
    queue = broker.worker_registry.services["s"].queue
    assert queue.length == 3
    broker.withdraw(jobs[1], 0.0)
    assert queue.length == 2
    broker.worker(capacity=5)
    assert queue.length == 0


def test_delayed_job_that_comes_back_stands_where_the_end_of_its_delay_puts_it(broker: CheckedBroker) -> None:
    """D7, R8: its arrival is the end of its delay, not the time of its submit."""
    delayed = broker.call(b"delayed", delay=10.0, now=0.0)
    waiting = broker.call(b"waiting", now=5.0)
    broker.tick(10.0)
    worker = broker.worker(now=11.0, capacity=2)
    broker.leave(worker, 12.0, "gone", unseen=list(worker.running.values()))
    broker.worker(now=13.0)
    assert (waiting.state, delayed.state) == (JobState.RUNNING, JobState.WAITING)


# ---------------------------------------------------------------- turns of principals


def caller_of(name: str, principals: dict[str, Principal]) -> Caller:
    caller = Caller(name)
    caller.owner = Owner(principals.setdefault(name, Principal(name, ALL_RIGHTS)))
    return caller


def test_principals_take_turns_and_keep_their_own_order(broker: CheckedBroker) -> None:
    """D7: in order per service and principal."""
    principals: dict[str, Principal] = {}
    for name in ("aaaa", "bb", "c"):
        for number in range(len(name)):
            broker.call(b"%s%d" % (name[:1].encode(), number), caller=caller_of(name, principals), now=0.0)
    assert served(broker, 7, 1.0) == [b"a0", b"b0", b"c0", b"a1", b"b1", b"a2", b"a3"]


def test_flood_of_one_principal_delays_a_job_of_another_by_one(broker: CheckedBroker) -> None:
    """Also if the flood has a higher priority, and came first."""
    principals: dict[str, Principal] = {}
    for _ in range(100):
        broker.call(b"flood", caller=caller_of("flood", principals), priority=9)
    broker.call(b"mine", caller=caller_of("other", principals), priority=0, now=1.0)
    assert served(broker, 101, 2.0).index(b"mine") == 1


def test_job_that_returns_keeps_its_place_among_the_jobs_of_its_principal(broker: CheckedBroker) -> None:
    """R8."""
    principals: dict[str, Principal] = {}
    worker = broker.worker()
    first = broker.call(b"a0", caller=caller_of("a", principals))
    for payload in (b"a1", b"b0"):
        broker.call(payload, caller=caller_of(payload[:1].decode(), principals))
    assert first.attempt is not None
    broker.leave(worker, 1.0, "gone", [first.attempt])
    assert sorted(served(broker, 3, 2.0)[:2]) == [b"a0", b"b0"]


def test_queue_of_a_principal_without_jobs_is_dropped(broker: CheckedBroker) -> None:
    principals: dict[str, Principal] = {}
    jobs = [broker.call(caller=caller_of(f"p{number}", principals)) for number in range(200)]
    for job in jobs[1:]:
        broker.withdraw(job, 1.0)
    served(broker, 1, 2.0)
    assert len(broker.worker_registry.services["s"].queue.leaves()) <= 1


@pytest.mark.parametrize("cancelled", [0, 7])
def test_the_number_of_jobs_ahead_is_the_place_in_the_order_of_dispatch(broker: CheckedBroker, cancelled: int) -> None:
    """With jobs of one moment, priorities, a job that returned and, in one case, dead entries."""
    worker = broker.worker(name="first")
    for number in range(30):
        broker.call(b"%d" % number, priority=number % 3, now=float(number // 4))
    broker.leave(worker, 8.0, "gone", unseen=list(worker.running.values()))
    jobs = [job for job in broker.jobs.values() if job.state is JobState.WAITING]
    for job in jobs[3 : 3 + cancelled]:
        broker.withdraw(job, 8.0, "on request")
    waiting = [job for job in jobs if job.state is JobState.WAITING]
    queue = broker.worker_registry.services["s"].queue
    places = {bytes(job.payload): queue.count_before(job, 100) for job in waiting}
    assert len(waiting) == 30 - cancelled
    assert served(broker, len(waiting), 9.0) == sorted(places, key=lambda payload: places[payload] or 0)
    assert sorted(places.values(), key=lambda place: place or 0) == list(range(30 - cancelled))


def test_jobs_among_dead_entries_are_counted_up_to_a_limit(broker: CheckedBroker) -> None:
    for number in range(10):
        broker.call(b"%d" % number)
    jobs = list(broker.jobs.values())
    queue = broker.worker_registry.services["s"].queue
    assert queue.count_before(jobs[9], 5) == 9
    broker.withdraw(jobs[2], 1.0, "on request")
    assert queue.count_before(jobs[9], 5) is None
    assert queue.count_before(jobs[9], 9) == 8
