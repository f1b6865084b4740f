"""The heap of due times: timers that check, but do not decide."""

from __future__ import annotations

from math import inf

from dragoman.core.deadlines import SWEEP_FLOOR, Deadlines
from dragoman.core.effects import DeliverOutcome
from dragoman.core.states import JobState, Outcome, WorkerState

from .world import Caller, CheckedBroker, attempt_of


class Thing:
    def __init__(self) -> None:
        self.alarm = inf
        self.alarm_number = 0


def test_subjects_come_up_in_the_order_they_are_due() -> None:
    deadlines: Deadlines[Thing] = Deadlines()
    late, early = Thing(), Thing()
    deadlines.arm(late, 2.0)
    deadlines.arm(early, 1.0)
    assert deadlines.next() == 1.0
    assert list(deadlines.due(3.0)) == [early, late]
    assert deadlines.next() == inf


def test_subject_is_reminded_at_the_earliest_time_it_asked_for() -> None:
    deadlines: Deadlines[Thing] = Deadlines()
    thing = Thing()
    deadlines.arm(thing, 5.0)
    deadlines.arm(thing, 9.0)
    deadlines.arm(thing, 2.0)
    assert (deadlines.next(), deadlines.armed) == (2.0, 1)
    assert list(deadlines.due(10.0)) == [thing]


def test_subject_that_is_disarmed_is_not_reminded() -> None:
    """R5."""
    deadlines: Deadlines[Thing] = Deadlines()
    thing = Thing()
    deadlines.arm(thing, 1.0)
    deadlines.disarm(thing)
    deadlines.disarm(thing)
    assert (list(deadlines.due(2.0)), deadlines.next(), deadlines.armed) == ([], inf, 0)


def test_never_is_no_reminder() -> None:
    deadlines: Deadlines[Thing] = Deadlines()
    deadlines.arm(Thing(), inf)
    assert (len(deadlines), deadlines.armed) == (0, 0)


def test_subject_may_be_armed_again_while_it_is_judged() -> None:
    deadlines: Deadlines[Thing] = Deadlines()
    thing, times = Thing(), []
    deadlines.arm(thing, 1.0)
    for subject in deadlines.due(3.0):
        times.append(len(times) + 1.0)
        deadlines.arm(subject, times[-1] + 1.0)
    assert (times, deadlines.next()) == ([1.0, 2.0, 3.0], 4.0)


def test_heap_stays_bounded_when_one_subject_is_armed_earlier_and_earlier() -> None:
    """I11."""
    deadlines: Deadlines[Thing] = Deadlines()
    thing = Thing()
    for number in range(10_000):
        deadlines.arm(thing, -float(number))
        assert len(deadlines) <= SWEEP_FLOOR + 3
    assert list(deadlines.due(0.0)) == [thing]


def test_heap_stays_bounded_when_subjects_come_and_go() -> None:
    """I11. A bug: only `arm` swept, so that many disarms in a row left a heap of the dead."""
    deadlines: Deadlines[Thing] = Deadlines()
    things = [Thing() for _ in range(1_000)]
    for number, thing in enumerate(things):
        deadlines.arm(thing, float(number))
    for thing in things:
        deadlines.disarm(thing)
        assert len(deadlines) <= SWEEP_FLOOR + 3 * (deadlines.armed + 1)


def test_heap_of_the_broker_stays_bounded_when_a_crowd_of_callers_goes(broker: CheckedBroker) -> None:
    """I11, as a user would meet it: 500 calls with a deadline, all withdrawn."""
    jobs = [broker.call(deadline=100.0 + number) for number in range(500)]
    for job in jobs:
        broker.withdraw(job, 1.0)
    assert len(broker._deadlines) <= SWEEP_FLOOR + 3


def test_life_signs_cost_no_heap_work(broker: CheckedBroker) -> None:
    worker = broker.worker(lease=5.0)
    for now in range(100):
        broker.seen(worker, float(now) / 100)
    assert len(broker._deadlines) == 1


def test_reminder_that_comes_early_judges_nothing(broker: CheckedBroker) -> None:
    """R5: the lease moved since the reminder was set."""
    worker = broker.worker(lease=5.0)
    broker.seen(worker, 4.0)
    broker.tick(5.0)
    assert worker.state is WorkerState.IDLE
    assert broker.next_deadline() == 9.0


def test_queue_timeout_does_not_fire_once_the_job_runs(broker: CheckedBroker) -> None:
    """R5: no ghost expiry."""
    job = broker.call(queue_timeout=5.0)
    broker.worker(now=1.0)
    broker.tick(5.0)
    assert job.state is JobState.RUNNING


def test_run_timeout_of_an_old_attempt_does_not_end_the_new_one(broker: CheckedBroker, caller: Caller) -> None:
    """R5: each attempt has its own run time."""
    worker = broker.worker()
    job = broker.call(attempts=2, job_timeout=10.0, caller=caller)
    broker.fail(attempt_of(job), "no", 5.0)
    broker.tick(6.0)
    broker.tick(10.0)
    assert job.state is JobState.RUNNING
    assert attempt_of(job).due == 16.0
    broker.take()
    broker.tick(16.0)
    assert [effect for effect in broker.take() if isinstance(effect, DeliverOutcome)] == [
        DeliverOutcome(caller, job, Outcome.TIMED_OUT, reason="no result within 10 s")
    ]
    assert worker.state is WorkerState.STUCK


def test_next_deadline_is_never_when_nothing_is_due(broker: CheckedBroker) -> None:
    broker.worker()
    broker.call()
    assert CheckedBroker().next_deadline() == inf
    assert broker.next_deadline() == 60.0


def test_silent_worker_is_watched_again_after_it_was_stuck(broker: CheckedBroker) -> None:
    """A bug: the late timer of the stuck worker stayed, and the lease of the now idle worker was never checked."""
    worker = broker.worker(lease=5.0, silent_while_busy=True)
    attempt = broker.running(worker)
    broker.run_until(60.0)
    assert worker.state is WorkerState.STUCK
    broker.succeed(attempt, b"late", 61.0)
    broker.run_until(66.0)
    assert worker.state is WorkerState.GONE
