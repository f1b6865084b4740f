"""Out of reach for the moment: workers that get nothing, jobs that never left us, callers that may come back."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.core.effects import Answer, Dismiss, Give, Recall
from dragoman.core.model import Attempt, Worker
from dragoman.core.states import Farewell, JobState, Outcome, Refusal, WorkerState

from .world import Caller, CheckedBroker, attempt_of


def away(broker: CheckedBroker, *services: str, now: float = 0.0, **terms: object) -> Worker:
    """A worker that was idle and is detached."""
    worker = broker.worker(*services, now=now, **terms)
    broker.detach(worker, now)
    return worker


def away_busy(broker: CheckedBroker, caller: Caller | None = None, **terms: object) -> Attempt:
    """What a worker runs that was detached at once, at time 0."""
    attempt = broker.running(broker.worker(**terms), caller=caller, job_timeout=1_000.0)
    broker.detach(attempt.worker, 0.0)
    return attempt


def idle_lists(broker: CheckedBroker) -> list[Worker]:
    return [worker for each in broker.roster.services.values() for worker in (*each.idle, *each.held_back)]


# -------------------------------------------------------------------- detach


@pytest.mark.parametrize("held", [0.0, 1_000.0])
def test_detached_worker_stands_among_the_idle_of_none_of_its_services(broker: CheckedBroker, held: float) -> None:
    """R64, I2: nor among those that are used last."""
    worker = broker.worker("a", "b", held=held)
    assert idle_lists(broker) == [worker, worker]
    broker.detach(worker, 1.0)
    assert (worker.state, worker.away_since, idle_lists(broker)) == (WorkerState.DETACHED, 1.0, [])


def test_detached_worker_is_given_nothing(broker: CheckedBroker) -> None:
    """R64: but its service is known, so the call waits."""
    away(broker)
    job = broker.call(now=1.0, waits=False)
    assert (job.state, broker.take()) == (JobState.WAITING, [])


def test_job_goes_to_a_worker_within_reach_though_the_other_has_been_idle_for_longer(broker: CheckedBroker) -> None:
    """R64, D7."""
    away(broker)
    other = broker.worker(now=1.0)
    assert attempt_of(broker.call(now=2.0)).worker is other


def test_attempt_of_a_detached_worker_stays_open(broker: CheckedBroker, caller: Caller) -> None:
    """R65: it may still come for the job, so nobody else is given it."""
    attempt = away_busy(broker, caller)
    broker.worker(now=1.0)
    broker.run_until(59.9)
    assert (attempt.job.attempt, attempt.worker.state, broker.take()) == (attempt, WorkerState.DETACHED, [])


def test_booting_worker_is_not_detached(broker: CheckedBroker) -> None:
    """R64: it has never been within reach; its lease judges it alone."""
    worker = broker.booting()
    broker.detach(worker, 1.0)
    assert (worker.state, worker.away_since, broker.next_deadline()) == (WorkerState.BOOTING, inf, inf)
    broker.idle(worker, 2.0)
    assert broker.call(now=3.0).state is JobState.RUNNING


def test_worker_that_has_gone_is_not_detached(broker: CheckedBroker) -> None:
    worker = broker.worker()
    broker.leave(worker, 1.0, "gone")
    broker.detach(worker, 2.0)
    broker.attach(worker, 3.0)
    assert (worker.state, idle_lists(broker), broker.next_deadline()) == (WorkerState.GONE, [], inf)


# -------------------------------------------------------------------- how long it is waited for


def test_detached_worker_is_waited_for_so_long_and_no_longer(broker: CheckedBroker) -> None:
    """R64. A bug: the reason was that it had been silent, for a lease of `inf s`."""
    worker = broker.worker(detach_timeout=60.0)
    broker.detach(worker, 10.0)
    broker.run_until(69.9)
    assert (worker.state, broker.take()) == (WorkerState.DETACHED, [])
    broker.run_until(70.0)
    assert broker.take() == [Dismiss(worker, Farewell.EXPIRED, "its worker was out of reach for 60 s")]
    assert (worker.state, broker.counters.expired_workers, broker.next_deadline()) == (WorkerState.GONE, 1, inf)


def test_what_a_dismissed_worker_held_is_lost(broker: CheckedBroker, caller: Caller) -> None:
    """R9, R64: it may have been seen."""
    attempt = away_busy(broker, caller)
    broker.run_until(60.0)
    dismissed, answer = broker.take()
    assert isinstance(dismissed, Dismiss)
    assert answer == Answer(caller, attempt.job, Outcome.LOST, reason=dismissed.reason)
    assert (attempt.job.spent, attempt.job.deaths) == (1, 1)


def test_what_a_dismissed_worker_held_is_tried_again_while_attempts_remain(broker: CheckedBroker) -> None:
    """R9, R11."""
    worker = broker.worker()
    job = broker.running(worker, attempts=2, job_timeout=1_000.0).job
    other = broker.worker()
    broker.detach(worker, 0.0)
    broker.run_until(60.1)
    assert (attempt_of(job).worker, job.spent) == (other, 1)


def test_lease_of_a_detached_worker_runs_on(broker: CheckedBroker) -> None:
    """R64."""
    worker = broker.worker(lease=20.0, detach_timeout=60.0)
    broker.seen(worker, 5.0)
    broker.detach(worker, 10.0)
    broker.run_until(24.9)
    assert worker.state is WorkerState.DETACHED
    broker.run_until(25.0)
    assert broker.take() == [Dismiss(worker, Farewell.EXPIRED, "its worker was silent for 20 s")]


@pytest.mark.parametrize("lease", [20.0, inf])
def test_life_sign_extends_the_lease_and_not_the_time_out_of_reach(broker: CheckedBroker, lease: float) -> None:
    """D1, R64: where there is a lease, it judges; where there is none, the time out of reach does."""
    worker = away(broker, lease=lease, detach_timeout=60.0)
    for now in range(0, 60, 10):
        broker.seen(worker, float(now))
        broker.run_until(float(now) + 9.9)
    assert worker.state is WorkerState.DETACHED
    broker.run_until(60.0)
    assert worker.state is (WorkerState.GONE if lease == inf else WorkerState.DETACHED)


def test_worker_that_is_silent_while_it_works_has_a_limit_out_of_reach(broker: CheckedBroker) -> None:
    """D5, R64: whatever it holds."""
    attempt = away_busy(broker, lease=5.0, silent_while_busy=True, detach_timeout=60.0)
    broker.run_until(59.9)
    assert attempt.worker.state is WorkerState.DETACHED
    broker.run_until(60.0)
    assert (attempt.worker.state, attempt.job.outcome) == (WorkerState.GONE, Outcome.LOST)


def test_worker_that_was_silent_while_it_worked_has_its_lease_again_while_detached(broker: CheckedBroker) -> None:
    """D5, R64."""
    attempt = away_busy(broker, lease=5.0, silent_while_busy=True, detach_timeout=60.0)
    broker.run_until(30.0)
    broker.succeed(attempt, b"", 30.0)
    broker.run_until(34.9)
    assert attempt.worker.state is WorkerState.DETACHED
    broker.run_until(35.0)
    assert attempt.worker.state is WorkerState.GONE


def test_detached_worker_in_doubt_is_judged_by_the_limit_of_doubt(broker: CheckedBroker) -> None:
    """R36, R64."""
    attempt = away_busy(broker, unproven_limit=20.0)
    broker.withdraw(attempt.job, 1.0)
    broker.take()
    broker.run_until(20.9)
    assert attempt.worker.state is WorkerState.DETACHED
    broker.run_until(21.0)
    assert broker.take() == [Dismiss(attempt.worker, Farewell.EXPIRED, "it did not prove itself free within 20 s")]


def test_worker_that_is_detached_twice_counts_from_the_first_time(broker: CheckedBroker) -> None:
    """R64."""
    worker = broker.worker(detach_timeout=60.0)
    broker.detach(worker, 10.0)
    broker.detach(worker, 50.0)
    assert worker.away_since == 10.0
    broker.run_until(70.0)
    assert worker.state is WorkerState.GONE


def test_our_own_pause_does_not_count_as_being_out_of_reach(broker: CheckedBroker) -> None:
    """D13: nobody could reach us."""
    worker = away(broker, detach_timeout=60.0)
    broker.shift(500.0, 510.0)
    broker.run_until(559.9)
    assert (worker.away_since, worker.state) == (500.0, WorkerState.DETACHED)
    broker.run_until(560.0)
    assert worker.state is WorkerState.GONE


def test_our_own_pause_does_not_count_against_callers_that_are_away(broker: CheckedBroker) -> None:
    """D13. A bug: a job whose caller was about to come back was cancelled when we woke up."""
    job = broker.call(orphan_grace=5.0)
    broker.caller_away(job.callers[0], 0.0)
    broker.shift(60.0, 61.0)
    broker.tick(61.0)
    assert job.state is JobState.WAITING
    broker.tick(66.0)
    assert job.outcome is Outcome.CANCELLED


def test_pause_does_not_move_the_time_out_of_reach_into_the_future(broker: CheckedBroker) -> None:
    """D13, R22: nor does it take a worker within reach out of it."""
    worker, other = broker.worker(), broker.worker()
    broker.detach(worker, 33.5)  # while the sockets were read dry
    broker.shift(30.0, 34.0)
    assert (worker.away_since, other.away_since, other.state) == (34.0, inf, WorkerState.IDLE)


# -------------------------------------------------------------------- attach


@pytest.mark.parametrize(
    ("kind", "state"),
    [("idle", WorkerState.IDLE), ("busy", WorkerState.BUSY), ("unproven", WorkerState.UNPROVEN)],
)
def test_attached_worker_is_what_it_was(broker: CheckedBroker, kind: str, state: WorkerState) -> None:
    """R64."""
    worker = broker.worker()
    if kind != "idle":
        attempt = broker.running(worker)
        if kind == "unproven":
            broker.withdraw(attempt.job, 0.0)
    broker.take()
    assert worker.state is state
    broker.detach(worker, 1.0)
    broker.attach(worker, 2.0)
    assert (worker.state, worker.away_since, broker.take()) == (state, inf, [])


def test_attached_worker_is_given_at_once_what_waits(broker: CheckedBroker) -> None:
    """R64, I6."""
    worker = away(broker)
    job = broker.call(now=1.0)
    broker.attach(worker, 2.0)
    assert broker.take() == [Give(attempt_of(job))]
    assert worker.state is WorkerState.BUSY


def test_attached_worker_is_given_jobs_in_their_order_of_all_its_services(broker: CheckedBroker) -> None:
    """R14, R64."""
    worker = away(broker, "a", "b", capacity=3)
    low = broker.call(service="a", now=1.0, priority=4)
    second = broker.call(service="a", now=2.0)
    first = broker.call(service="b", now=1.5)
    high = broker.call(service="b", now=3.0, priority=9)
    broker.attach(worker, 4.0)
    assert broker.take() == [Give(attempt_of(job)) for job in (high, first, second)]
    assert (low.state, worker.state) == (JobState.WAITING, WorkerState.BUSY)


def test_attached_worker_stands_last_among_the_idle(broker: CheckedBroker) -> None:
    """D7: it was not idle while it was out of reach."""
    worker, other = broker.worker(), broker.worker()
    broker.detach(worker, 1.0)
    broker.attach(worker, 2.0)
    assert [attempt_of(broker.call(now=3.0)).worker for _ in range(2)] == [other, worker]


def test_worker_that_was_held_back_is_held_back_again(broker: CheckedBroker) -> None:
    """R38, R64."""
    held = broker.worker(held=100.0)
    broker.detach(held, 1.0)
    broker.attach(held, 2.0)
    other = broker.worker(now=3.0)
    assert attempt_of(broker.call(now=4.0)).worker is other


def test_attaching_is_a_life_sign(broker: CheckedBroker) -> None:
    """D1."""
    worker = away(broker, lease=20.0)
    broker.attach(worker, 15.0)
    broker.run_until(34.9)
    assert worker.state is WorkerState.IDLE
    broker.run_until(35.0)
    assert worker.state is WorkerState.GONE


def test_attached_worker_is_not_judged_by_the_old_time_out_of_reach(broker: CheckedBroker) -> None:
    """R5, R64: and the next time is counted anew."""
    worker = away(broker, detach_timeout=60.0)
    broker.attach(worker, 59.0)
    broker.run_until(100.0)
    assert worker.state is WorkerState.IDLE
    broker.detach(worker, 100.0)
    broker.run_until(159.9)
    assert worker.state is WorkerState.DETACHED
    broker.run_until(160.0)
    assert worker.state is WorkerState.GONE


@pytest.mark.parametrize("kind", ["booting", "idle", "busy", "unproven", "draining"])
def test_worker_that_was_not_detached_is_only_seen(broker: CheckedBroker, kind: str) -> None:
    """D1: no word but `idle` makes it free."""
    worker = broker.booting()
    if kind != "booting":
        broker.idle(worker, 0.0)
    if kind in ("busy", "unproven", "draining"):
        attempt = broker.running(worker)
        if kind == "unproven":
            broker.withdraw(attempt.job, 0.0)
        elif kind == "draining":
            broker.drain(worker, 0.0)
        broker.call()
    broker.take()
    broker.attach(worker, 2.0)
    assert (worker.state, worker.seen, broker.take()) == (kind, 2.0, [])


def test_attached_worker_is_given_nothing_of_a_paused_service(broker: CheckedBroker) -> None:
    worker = away(broker)
    job = broker.call(now=1.0)
    broker.pause("s")
    broker.attach(worker, 2.0)
    assert (worker.state, job.state) == (WorkerState.IDLE, JobState.WAITING)
    broker.resume("s", 3.0)
    assert attempt_of(job).worker is worker


def test_resumed_service_gives_a_detached_worker_nothing(broker: CheckedBroker) -> None:
    """R64."""
    away(broker)
    broker.pause("s")
    job = broker.call(now=1.0)
    broker.resume("s", 2.0)
    assert (job.state, broker.take()) == (JobState.WAITING, [])


def test_attached_worker_is_given_nothing_while_the_broker_drains(broker: CheckedBroker) -> None:
    worker = away(broker)
    job = broker.store(now=1.0)
    broker.close(2.0)
    broker.take()
    broker.attach(worker, 3.0)
    assert (worker.state, job.state, broker.take()) == (WorkerState.IDLE, JobState.WAITING, [])


# -------------------------------------------------------------------- what goes on meanwhile


def test_result_of_a_detached_worker_ends_the_job_and_brings_no_other(broker: CheckedBroker, caller: Caller) -> None:
    """R64: until it is attached."""
    attempt = away_busy(broker, caller)
    following = broker.call(now=1.0)
    assert broker.succeed(attempt, b"result", 2.0)
    assert broker.take() == [Answer(caller, attempt.job, Outcome.DONE, b"result")]
    assert (attempt.worker.state, attempt.worker.free) == (WorkerState.DETACHED, 1)
    broker.attach(attempt.worker, 3.0)
    assert broker.take() == [Give(attempt_of(following))]


@pytest.mark.parametrize("way", ["fail", "refuse", "reject"])
def test_other_words_of_a_detached_worker_count_and_bring_no_job(broker: CheckedBroker, way: str) -> None:
    attempt = away_busy(broker, may_refuse=True)
    following = broker.call(now=1.0)
    if way == "refuse":
        assert broker.refuse(attempt, 2.0)
    else:
        assert getattr(broker, way)(attempt, "no", 2.0)
    assert (attempt.job.attempt, attempt.worker.state) == (None, WorkerState.DETACHED)
    assert attempt.job.state is (JobState.WAITING if way == "refuse" else JobState.ENDED)
    assert (following.state, broker.counters.handed_out) == (JobState.WAITING, 1)


def test_run_time_of_a_job_is_over_while_its_worker_is_detached(broker: CheckedBroker, caller: Caller) -> None:
    """R7, D11: the slot is in doubt, and stays so when the worker is back."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller, job_timeout=10.0)
    broker.detach(worker, 1.0)
    broker.run_until(10.0)
    reason = "no result within 10 s"
    assert broker.take() == [Recall(attempt, reason), Answer(caller, attempt.job, Outcome.TIMED_OUT, reason=reason)]
    assert (worker.state, list(worker.unproven.values())) == (WorkerState.DETACHED, [attempt])
    broker.attach(worker, 11.0)
    assert worker.state is WorkerState.UNPROVEN


def test_job_is_cancelled_while_its_worker_is_detached(broker: CheckedBroker) -> None:
    """D11: its late result proves the worker free, and brings nothing until it is attached."""
    attempt = away_busy(broker)
    following = broker.call(now=1.0)
    broker.withdraw(attempt.job, 2.0)
    assert Recall(attempt, "withdrawn") in broker.take()
    assert not broker.succeed(attempt, b"late", 3.0)
    assert (attempt.worker.state, attempt.worker.free, broker.take()) == (WorkerState.DETACHED, 1, [])
    broker.attach(attempt.worker, 4.0)
    assert broker.take() == [Give(attempt_of(following))]


def test_detached_worker_that_says_it_is_free_is_believed_and_still_detached(broker: CheckedBroker) -> None:
    """D11, R64."""
    attempt = away_busy(broker)
    broker.withdraw(attempt.job, 1.0)
    job = broker.call(now=2.0)
    assert broker.idle(attempt.worker, 3.0)
    assert (attempt.worker.state, attempt.worker.free, job.state) == (WorkerState.DETACHED, 1, JobState.WAITING)


def test_job_that_was_not_yet_sent_is_cancelled_and_leaves_no_doubt(broker: CheckedBroker) -> None:
    """R8: its Give had not been carried out when its worker was detached."""
    worker = broker.worker()
    job = broker.call()
    broker.detach(worker, 1.0)
    broker.withdraw(job, 2.0)
    assert not [effect for effect in broker.take() if isinstance(effect, Give | Recall)]
    assert (worker.state, worker.free) == (WorkerState.DETACHED, 1)


def test_free_slots_of_a_detached_worker_are_filled_when_it_is_attached(broker: CheckedBroker) -> None:
    """R64, I2: and no more of them."""
    worker = broker.worker(capacity=3)
    running = broker.running(worker)
    broker.detach(worker, 1.0)
    jobs = [broker.call(now=2.0) for _ in range(3)]
    assert list(worker.running.values()) == [running]
    broker.attach(worker, 3.0)
    assert broker.take() == [Give(attempt_of(job)) for job in jobs[:2]]
    assert (worker.state, jobs[2].state) == (WorkerState.BUSY, JobState.WAITING)


def test_attached_worker_with_a_slot_left_is_idle(broker: CheckedBroker) -> None:
    worker = broker.worker(capacity=2)
    broker.running(worker)
    broker.detach(worker, 1.0)
    broker.attach(worker, 2.0)
    assert (worker.state, idle_lists(broker)) == (WorkerState.IDLE, [worker])


# -------------------------------------------------------------------- drain, leave


def test_detached_worker_that_holds_nothing_is_drained_at_once(broker: CheckedBroker) -> None:
    worker = away(broker)
    broker.drain(worker, 1.0)
    assert broker.take() == [Dismiss(worker, Farewell.DRAINED, "drained")]
    assert worker.state is WorkerState.GONE


def test_detached_worker_that_is_drained_may_bring_its_result(broker: CheckedBroker, caller: Caller) -> None:
    attempt = away_busy(broker, caller)
    broker.drain(attempt.worker, 1.0)
    assert attempt.worker.state is WorkerState.DRAINING
    broker.succeed(attempt, b"result", 2.0)
    assert broker.take() == [
        Answer(caller, attempt.job, Outcome.DONE, b"result"),
        Dismiss(attempt.worker, Farewell.DRAINED, "drained"),
    ]


@pytest.mark.parametrize("is_drained_first", [True, False])
def test_draining_worker_out_of_reach_is_waited_for_so_long_and_no_longer(
    broker: CheckedBroker, is_drained_first: bool
) -> None:
    """R64: it is draining, and its time runs."""
    attempt = broker.running(broker.worker(detach_timeout=60.0), job_timeout=1_000.0)
    worker = attempt.worker
    steps = [lambda: broker.drain(worker, 1.0), lambda: broker.detach(worker, 1.0)]
    for step in steps if is_drained_first else reversed(steps):
        step()
    broker.run_until(60.9)
    assert (worker.state, broker.take()) == (WorkerState.DRAINING, [])
    broker.run_until(61.0)
    assert (worker.state, attempt.job.outcome) == (WorkerState.GONE, Outcome.LOST)


def test_draining_worker_that_is_attached_goes_on_draining(broker: CheckedBroker) -> None:
    """R64: its time out of reach is over, and it gets nothing."""
    attempt = away_busy(broker, detach_timeout=60.0)
    worker = attempt.worker
    broker.drain(worker, 1.0)
    broker.call(now=2.0)
    broker.attach(worker, 3.0)
    broker.run_until(100.0)
    assert (worker.state, worker.away_since, broker.take()) == (WorkerState.DRAINING, inf, [])
    broker.succeed(attempt, b"", 101.0)
    assert worker.state is WorkerState.GONE


def test_detached_worker_that_is_killed_loses_its_job(broker: CheckedBroker) -> None:
    """D8."""
    attempt = away_busy(broker)
    broker.drain(attempt.worker, 1.0, at_once=True)
    assert (attempt.worker.state, attempt.job.outcome) == (WorkerState.GONE, Outcome.LOST)


def test_detached_worker_that_leaves_idle_takes_nothing_along(broker: CheckedBroker) -> None:
    worker = away(broker)
    broker.leave(worker, 1.0, "gone")
    assert (worker.state, broker.take(), broker.next_deadline()) == (WorkerState.GONE, [], inf)


@pytest.mark.parametrize(("is_unseen", "outcome"), [(False, Outcome.LOST), (True, None)])
def test_detached_worker_that_leaves_loses_what_it_may_have_seen(
    broker: CheckedBroker, is_unseen: bool, outcome: Outcome | None
) -> None:
    """R8, R9."""
    attempt = away_busy(broker)
    broker.leave(attempt.worker, 1.0, "gone", unseen=[attempt] if is_unseen else [])
    assert (attempt.job.outcome, attempt.job.spent) == (outcome, 0 if is_unseen else 1)


# -------------------------------------------------------------------- undelivered


def test_undelivered_job_goes_to_another_worker_at_once(broker: CheckedBroker) -> None:
    """R8, R12: no attempt is spent, and the first is as free as it was."""
    first, other = broker.worker(), broker.worker()
    attempt = broker.running(first)
    broker.undelivered(attempt, 1.0)
    again = attempt_of(attempt.job)
    assert broker.take() == [Give(again)]
    assert (again.worker, again.number, attempt.job.spent, attempt.job.history) == (other, 1, 0, None)
    assert (first.state, first.running, first.unproven) == (WorkerState.IDLE, {}, {})
    assert not broker.succeed(attempt, b"of nobody", 2.0)


def test_undelivered_job_goes_back_to_its_worker_if_there_is_no_other(broker: CheckedBroker) -> None:
    """I6: a free worker and a waiting job meet."""
    attempt = broker.running()
    broker.undelivered(attempt, 1.0)
    again = attempt_of(attempt.job)
    assert broker.take() == [Give(again)]
    assert (again is not attempt, again.worker, again.worker.state) == (True, attempt.worker, WorkerState.BUSY)


def test_worker_of_an_undelivered_job_is_given_another_that_waits(broker: CheckedBroker) -> None:
    """R12, I6: the job itself is another's by then."""
    first, other = broker.worker("s", "t"), broker.worker("s")
    attempt = broker.running(first)
    waiting = broker.call(service="t", now=1.0)
    broker.undelivered(attempt, 2.0)
    assert (attempt_of(attempt.job).worker, attempt_of(waiting).worker) == (other, first)


def test_undelivered_job_of_a_detached_worker_waits_in_its_place(broker: CheckedBroker) -> None:
    """R8, R64: the worker stays detached."""
    attempt = away_busy(broker)
    later = broker.call(now=1.0)
    broker.undelivered(attempt, 2.0)
    assert (attempt.worker.state, attempt.worker.free) == (WorkerState.DETACHED, 1)
    assert (attempt.job.state, broker.take()) == (JobState.WAITING, [])
    other = broker.worker(now=3.0)
    assert (attempt_of(attempt.job).worker, later.state) == (other, JobState.WAITING)


def test_detached_worker_whose_job_was_undelivered_has_its_lease_again(broker: CheckedBroker) -> None:
    """D5: silent while busy, and no longer busy."""
    attempt = away_busy(broker, lease=20.0, silent_while_busy=True)
    broker.run_until(30.0)
    broker.seen(attempt.worker, 30.0)
    broker.undelivered(attempt, 40.0)
    broker.run_until(49.9)
    assert attempt.worker.state is WorkerState.DETACHED
    broker.run_until(50.0)
    assert attempt.worker.state is WorkerState.GONE


def test_undelivered_job_is_no_life_sign(broker: CheckedBroker) -> None:
    """D1: nobody said anything."""
    attempt = broker.running(broker.worker(lease=5.0))
    broker.undelivered(attempt, 4.0)
    assert attempt.worker.seen == 0.0
    broker.run_until(5.0)
    assert attempt.worker.state is WorkerState.GONE


def test_draining_worker_is_dismissed_if_its_last_job_was_undelivered(broker: CheckedBroker) -> None:
    attempt = broker.running()
    broker.drain(attempt.worker, 1.0)
    broker.undelivered(attempt, 2.0)
    assert broker.take() == [Dismiss(attempt.worker, Farewell.DRAINED, "drained")]
    assert (attempt.job.state, attempt.job.spent) == (JobState.WAITING, 0)


def test_draining_worker_keeps_its_other_job(broker: CheckedBroker) -> None:
    worker = broker.worker(capacity=2)
    attempt, other = broker.running(worker), broker.running(worker)
    broker.drain(worker, 1.0)
    broker.undelivered(attempt, 2.0)
    assert (worker.state, list(worker.running.values()), broker.take()) == (WorkerState.DRAINING, [other], [])


def test_undelivered_attempt_that_is_over_proves_its_slot(broker: CheckedBroker) -> None:
    """D11: its worker cannot be at it."""
    attempt = broker.running()
    broker.withdraw(attempt.job, 1.0)
    following = broker.call(now=2.0)
    broker.take()
    broker.undelivered(attempt, 3.0)
    assert broker.take() == [Give(attempt_of(following))]
    assert (attempt.job.outcome, attempt.worker.unproven) == (Outcome.CANCELLED, {})


@pytest.mark.parametrize("way", ["proven", "gone", "done"])
def test_undelivered_attempt_that_is_over_and_holds_no_slot_changes_nothing(broker: CheckedBroker, way: str) -> None:
    """D2."""
    attempt = broker.running()
    if way == "done":
        broker.succeed(attempt, b"", 1.0)
    else:
        broker.withdraw(attempt.job, 1.0)
        broker.idle(attempt.worker, 1.0) if way == "proven" else broker.leave(attempt.worker, 1.0, "gone")
    running = broker.running(broker.worker(now=1.0) if way == "gone" else attempt.worker, now=2.0)
    state, outcome = attempt.worker.state, attempt.job.outcome
    broker.undelivered(attempt, 3.0)
    assert (attempt.worker.state, attempt.job.outcome, broker.take()) == (state, outcome, [])
    assert running.job.attempt is running


def test_job_that_is_undelivered_again_and_again_rests(broker: CheckedBroker) -> None:
    """R8: after ten in a row."""
    job = broker.running().job
    for _ in range(broker.policy.max_refusals):
        broker.undelivered(attempt_of(job), 1.0)
    assert (job.state, job.spent, broker.counters.handed_out) == (JobState.DELAYED, 0, 10)
    broker.tick(1.1)
    assert job.state is JobState.RUNNING


def test_undelivered_job_whose_queue_time_is_over_has_timed_out(broker: CheckedBroker, caller: Caller) -> None:
    """R8: being handed out to nobody does not renew it."""
    attempt = broker.running(caller=caller, queue_timeout=5.0)
    broker.undelivered(attempt, 5.0)
    assert broker.take() == [Answer(caller, attempt.job, Outcome.TIMED_OUT, reason="no worker took it within 5 s")]
    assert attempt.worker.state is WorkerState.IDLE


def test_undelivered_call_is_refused_while_the_broker_drains(broker: CheckedBroker, caller: Caller) -> None:
    attempt = broker.running(caller=caller)
    broker.close(1.0)
    broker.undelivered(attempt, 2.0)
    (answer,) = broker.take()
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.refusal) == (Outcome.REFUSED, Refusal.DRAINING)


def test_undelivered_call_whose_caller_has_gone_is_not_started_again(broker: CheckedBroker, caller: Caller) -> None:
    """R18."""
    attempt = broker.running(caller=caller)
    broker.caller_gone(caller, 1.0)
    broker.undelivered(attempt, 2.0)
    assert (attempt.job.outcome, broker.take()) == (Outcome.CANCELLED, [])
    assert attempt.worker.state is WorkerState.IDLE


# -------------------------------------------------------------------- orphan, adopt


@pytest.mark.parametrize("delay", [0.0, 100.0])
def test_call_waits_the_grace_for_a_caller_out_of_reach(broker: CheckedBroker, caller: Caller, delay: float) -> None:
    """R18, R64: it is answered nevertheless, for a caller that comes back later still."""
    job = broker.call(caller=caller, orphan_grace=5.0, delay=delay)
    broker.caller_away(job.callers[0], 1.0)
    broker.run_until(5.9)
    assert (job.state is not JobState.ENDED, job.callers, broker.take()) == (True, (caller,), [])
    broker.run_until(6.0)
    assert broker.take() == [Answer(caller, job, Outcome.CANCELLED, reason="its caller has gone")]


def test_call_without_grace_is_cancelled_when_time_is_looked_at_next(broker: CheckedBroker) -> None:
    """R18."""
    job = broker.call()
    broker.caller_away(job.callers[0], 1.0)
    assert broker.next_deadline() == 1.0
    broker.tick(1.0)
    assert job.outcome is Outcome.CANCELLED


@pytest.mark.parametrize("delay", [0.0, 7.0])
def test_call_whose_caller_is_back_waits_on(broker: CheckedBroker, caller: Caller, delay: float) -> None:
    """R64."""
    job = broker.call(caller=caller, orphan_grace=5.0, delay=delay)
    broker.caller_away(job.callers[0], 1.0)
    broker.caller_back(job.callers[0])
    broker.run_until(50.0)
    assert (job.state, broker.take()) == (JobState.WAITING, [])
    broker.caller_away(job.callers[0], 50.0)
    broker.run_until(55.0)
    assert job.outcome is Outcome.CANCELLED


def test_call_is_handed_out_within_the_grace_and_then_goes_on(broker: CheckedBroker, caller: Caller) -> None:
    """R19, R64: its answer is kept for the caller."""
    job = broker.call(caller=caller, orphan_grace=5.0)
    broker.caller_away(job.callers[0], 1.0)
    broker.worker(now=3.0)
    broker.take()
    broker.run_until(30.0)
    broker.succeed(attempt_of(job), b"result", 30.0)
    assert broker.take() == [Answer(caller, job, Outcome.DONE, b"result")]
    assert broker.counters.unclaimed_results == 0


def test_running_call_goes_on_without_its_caller(broker: CheckedBroker, caller: Caller) -> None:
    """R19, R64."""
    attempt = broker.running(caller=caller)
    broker.caller_away(attempt.job.callers[0], 1.0)
    broker.run_until(30.0)
    assert broker.succeed(attempt, b"result", 30.0)
    assert broker.take() == [Answer(caller, attempt.job, Outcome.DONE, b"result")]


RETURNS = ["is undelivered", "is unseen", "is refused", "fails", "is lost"]


def give_back(broker: CheckedBroker, attempt: Attempt, way: str, now: float) -> None:
    if way == "is undelivered":
        broker.undelivered(attempt, now)
    elif way == "is refused":
        broker.refuse(attempt, now)
    elif way == "fails":
        broker.fail(attempt, "no", now)
    else:
        broker.leave(attempt.worker, now, "gone", unseen=[attempt] if way == "is unseen" else [])


@pytest.mark.parametrize("way", RETURNS)
def test_orphan_that_is_given_back_after_its_grace_is_not_started_again(
    broker: CheckedBroker, caller: Caller, way: str
) -> None:
    """R18, R64. A bug: where another worker was free, it was handed out once more."""
    attempt = broker.running(broker.worker(may_refuse=True), caller=caller, attempts=3, orphan_grace=5.0)
    broker.worker()
    broker.caller_away(attempt.job.callers[0], 1.0)
    give_back(broker, attempt, way, 6.0)
    broker.tick(6.0)
    assert broker.take() == [Answer(caller, attempt.job, Outcome.CANCELLED, reason="its caller has gone")]
    assert broker.counters.handed_out == 1


@pytest.mark.parametrize("way", RETURNS)
def test_orphan_that_is_given_back_within_its_grace_waits_for_the_rest_of_it(broker: CheckedBroker, way: str) -> None:
    """R18, R64."""
    attempt = broker.running(broker.worker(may_refuse=True), attempts=3, orphan_grace=5.0)
    broker.pause("s")
    broker.caller_away(attempt.job.callers[0], 1.0)
    give_back(broker, attempt, way, 5.0)
    broker.run_until(5.9)
    assert attempt.job.state in (JobState.WAITING, JobState.DELAYED)
    broker.run_until(6.0)
    assert attempt.job.outcome is Outcome.CANCELLED


@pytest.mark.parametrize("way", RETURNS)
def test_running_call_whose_caller_is_back_is_started_again(broker: CheckedBroker, way: str) -> None:
    """R64: though its grace had been over meanwhile."""
    attempt = broker.running(broker.worker(may_refuse=True), attempts=3, orphan_grace=5.0)
    other = broker.worker()
    broker.caller_away(attempt.job.callers[0], 1.0)
    broker.run_until(10.0)
    broker.caller_back(attempt.job.callers[0])
    give_back(broker, attempt, way, 10.0)
    broker.run_until(11.0)
    assert attempt_of(attempt.job).worker is other


@pytest.mark.parametrize("kind", ["unsaved", "stored", "keyed"])
def test_job_that_somebody_may_come_back_for_needs_no_caller(broker: CheckedBroker, kind: str) -> None:
    """R18, R24: as with a caller that has gone. A bug: a background job was cancelled."""
    if kind == "keyed":
        job = broker.call(key="k")
    else:
        job = broker.call(durable=True) if kind == "unsaved" else broker.store()
    broker.caller_away(job.callers[0], 1.0)
    broker.run_until(100.0)
    assert job.state is JobState.WAITING


def test_patience_of_a_caller_out_of_reach_runs_on(broker: CheckedBroker) -> None:
    job = broker.call(deadline=3.0, orphan_grace=5.0)
    other = broker.call(queue_timeout=4.0, orphan_grace=5.0)
    for each in (job, other):
        broker.caller_away(each.callers[0], 1.0)
    broker.run_until(4.0)
    assert (job.outcome, other.outcome) == (Outcome.TIMED_OUT, Outcome.TIMED_OUT)


def test_caller_that_has_gone_for_good_is_not_answered(broker: CheckedBroker, caller: Caller) -> None:
    """R18: out of reach first, then given up."""
    job = broker.call(caller=caller, orphan_grace=5.0)
    broker.caller_away(job.callers[0], 1.0)
    broker.caller_gone(caller, 2.0)
    broker.run_until(100.0)
    assert (job.outcome, broker.take()) == (Outcome.CANCELLED, [])


@pytest.mark.parametrize("key", [None, "k"])
def test_job_that_has_ended_is_neither_orphaned_nor_adopted(
    broker: CheckedBroker, caller: Caller, key: str | None
) -> None:
    """D4, I9."""
    job = broker.call(caller=caller, key=key)
    broker.withdraw(job, 1.0)
    due = broker.next_deadline()
    broker.caller_away(caller, 2.0)
    assert (job.orphan_due, broker.next_deadline()) == (inf, due)
    broker.caller_back(caller)
    broker.tick(3.0)
    assert (job.outcome, broker.next_deadline()) == (Outcome.CANCELLED, due)
    assert broker.take() == [Answer(caller, job, Outcome.CANCELLED, reason="withdrawn")]
