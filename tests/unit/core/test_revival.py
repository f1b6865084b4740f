"""Jobs of an earlier run: they are restored as they were, and their payloads when they are needed (R107)."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.accepted_jobs import set_payload
from dragoman.core.effects import DeliverOutcome, RemoveWorker, SendJob
from dragoman.core.events import WORKER_JOINED, WORKER_LEFT, PublishEvent, WorkerEvent
from dragoman.core.invariants import check
from dragoman.core.model import ABSENT, Job, JobId, Token
from dragoman.core.options import JobOptions
from dragoman.core.recipients import Recipient
from dragoman.core.restore import StoredJob, restore
from dragoman.core.rights import Principal, Rights
from dragoman.core.states import AttemptRecord, JobState, Outcome, WorkerState
from dragoman.core.store_entries import DeleteJob, StoreJob

from .world import Caller, CheckedBroker, attempt_of

NOBODY = Recipient()
TOKEN = Token(b"t" * 16)
NOW = 1_000.0


def kept(number: int = 1, *, service: str = "s", created: float = 900.0, delay: float = 0.0, **facts: Any) -> StoredJob:
    job_options = JobOptions(durable=True, waits=True, attempts=3, delay=delay, priority=facts.pop("priority", 5))
    found = StoredJob(number, JobId(number.to_bytes(16, "big")), service, job_options, created)
    for name, value in facts.items():
        setattr(found, name, value)
    return found


def given(number: int = 1, *, can_resume: bool = True, **facts: Any) -> StoredJob:
    return kept(number, token=TOKEN, attempt=1, worker="w", can_resume=can_resume, **{"given": 990.0, **facts})


def revive(broker: CheckedBroker, found: StoredJob, now: float = NOW) -> Job:
    job = restore(broker.plain, found, now, NOBODY)
    check(broker.plain)
    return job


def test_waiting_job_comes_back_and_is_handed_out_without_its_payload(broker: CheckedBroker) -> None:
    job = revive(broker, kept())
    assert (job.state, job.arrival, broker.take()) == (JobState.WAITING, 900.0, [])
    broker.worker(now=NOW)
    assert job.payload is ABSENT
    broker.save_all(NOW)
    assert broker.take() == [StoreJob(job, 1), SendJob(attempt_of(job))]


def test_job_goes_to_a_worker_that_is_idle_already(broker: CheckedBroker) -> None:
    """I6."""
    broker.worker(now=NOW)
    job = revive(broker, kept())
    assert job.state is JobState.RUNNING


def test_payload_that_was_fetched_counts(broker: CheckedBroker) -> None:
    """I5."""
    job = revive(broker, kept())
    set_payload(broker.job_registry, job, b"payload")
    check(broker.plain)
    assert (job.payload, broker.job_registry.memory.payloads) == (b"payload", 7)
    broker.withdraw(job, NOW)
    assert broker.job_registry.memory.payloads == 0


def test_payload_that_comes_after_the_end_is_dropped(broker: CheckedBroker) -> None:
    job = revive(broker, kept())
    broker.withdraw(job, NOW)
    set_payload(broker.job_registry, job, b"payload")
    assert (job.payload, broker.job_registry.memory.payloads) == (b"", 0)


def test_attempt_whose_payload_is_on_its_way_was_seen_by_nobody(broker: CheckedBroker) -> None:
    """R8: its worker leaves before the runner could send the job."""
    job = revive(broker, kept())
    worker = broker.worker(now=NOW)
    broker.take()
    broker.leave(worker, NOW + 1.0, "gone")
    assert (job.state, job.spent) == (JobState.WAITING, 0)


def test_order_of_arrival_is_kept_among_old_and_new(broker: CheckedBroker) -> None:
    """I12: also when a new job came before the old ones were read."""
    new = broker.store(now=NOW)
    old = [revive(broker, kept(number, created=900.0 + number)) for number in (11, 12, 13)]
    urgent = revive(broker, kept(14, created=910.0, priority=9))
    worker = broker.worker(now=NOW)
    order = []
    for _ in range(5):
        (attempt,) = worker.running.values()
        order.append(attempt.job)
        broker.succeed(attempt, b"", NOW)
    assert order == [urgent, *old, new]


@pytest.mark.parametrize(("delay", "created", "state"), [(200.0, 900.0, "delayed"), (50.0, 900.0, "waiting")])
def test_delay_goes_on_while_we_are_down(broker: CheckedBroker, delay: float, created: float, state: str) -> None:
    job = revive(broker, kept(created=created, delay=delay))
    assert job.state == state
    broker.run_until(created + delay)
    assert (job.state, job.arrival) == (JobState.WAITING, created + delay)


@pytest.mark.parametrize(
    ("facts", "delay"),
    [
        ({"delay": 5.0}, 5.0),
        ({"delay": 5.0, "spent": 1, "start_at": NOW + 93_593.0, "delayed_since": NOW + 93_592.0}, 1.0),
        ({"spent": 1, "start_at": NOW + 93_593.0, "delayed_since": NOW + 93_591.8}, 1.2),
        ({"spent": 3, "start_at": NOW + 97_193.0, "delayed_since": NOW + 93_593.0}, 3_600.0),
        ({"start_at": NOW + 93_593.0, "delayed_since": NOW + 93_592.0}, 1.0),
    ],
)
def test_delay_is_no_longer_than_it_was_after_the_wall_clock_was_set_back(
    broker: CheckedBroker, facts: dict[str, Any], delay: float
) -> None:
    """R25: a delay of 5 s took 93,593 s, since the restart found its due time by a clock that had been set back."""
    job = revive(broker, kept(created=NOW + 93_588.0, **facts))
    assert (job.state, job.start_at) == (JobState.DELAYED, pytest.approx(NOW + delay))


def test_job_from_a_future_that_was_none_waits_behind_nobody_who_came_later(broker: CheckedBroker) -> None:
    """R25, I12: restored after the wall clock was set back."""
    old = [revive(broker, kept(number, created=NOW + 90_000.0 + number)) for number in (11, 12)]
    new = broker.store(now=NOW + 1.0)
    worker = broker.worker(now=NOW + 2.0)
    order = []
    for _ in range(3):
        (attempt,) = worker.running.values()
        order.append(attempt.job)
        broker.succeed(attempt, b"", NOW + 2.0)
    assert order == [*old, new]


def test_run_time_and_keep_time_are_no_longer_after_the_wall_clock_was_set_back(broker: CheckedBroker) -> None:
    """R25."""
    running = revive(broker, given(1, given=NOW + 90_000.0))
    ended = revive(broker, kept(2, outcome=Outcome.DONE, keep_until=NOW + 190_000.0))
    assert attempt_of(running).given == NOW
    assert ended.keep_until == NOW + broker.plain.policy.outcome_retention


def test_retry_goes_on_with_its_history(broker: CheckedBroker) -> None:
    """R108: what was spent stays spent."""
    history = [AttemptRecord(1, "w", Outcome.LOST, "gone"), AttemptRecord(2, "w", Outcome.FAILED, "no")]
    job = revive(broker, kept(spent=2, deaths=1, history=history, start_at=NOW + 2.0))
    assert (job.state, job.start_at) == (JobState.DELAYED, NOW + 2.0)
    broker.worker(now=NOW)
    broker.run_until(NOW + 2.0)
    broker.fail(attempt_of(job), "again no", NOW + 3.0)
    assert (job.outcome, job.quarantined, job.spent) == (Outcome.FAILED, True, 3)


def test_running_job_whose_worker_cannot_name_it_is_lost_at_once(broker: CheckedBroker) -> None:
    """R107, R9."""
    job = revive(broker, given(can_resume=False))
    assert (job.state, job.spent, job.deaths) == (JobState.DELAYED, 1, 1)
    assert job.history == [AttemptRecord(1, "w", Outcome.LOST, "the broker died while it ran", NOW - 10.0, NOW)]
    assert broker.worker_registry.workers == {}


def test_worker_of_an_earlier_run_is_marked_in_the_event_of_its_end(broker: CheckedBroker) -> None:
    broker.events.subscribe(WORKER_JOINED | WORKER_LEFT, lambda event, now: None)
    revive(broker, given(can_resume=False))
    (event,) = [each.event for each in broker.take() if isinstance(each, PublishEvent)]
    assert isinstance(event, WorkerEvent)
    assert (event.kind, event.name, event.is_restored) == (WORKER_LEFT, "w", True)


def test_running_job_that_had_no_more_attempts_ends_lost(broker: CheckedBroker) -> None:
    job = revive(broker, given(can_resume=False, spent=2))
    assert (job.outcome, job.quarantined) == (Outcome.LOST, True)


def test_worker_that_names_its_attempt_may_still_deliver(broker: CheckedBroker, caller: Caller) -> None:
    """R107."""
    job = revive(broker, given())
    attempt = broker.attempts.resumable[TOKEN]
    assert (job.state, attempt.worker.state, attempt.number) == (JobState.RUNNING, WorkerState.DETACHED, 1)
    assert broker.job_registry.kept.attend(job, caller)
    assert broker.succeed(attempt, b"result", NOW + 20.0)
    broker.save_all(NOW + 20.0)
    assert DeliverOutcome(caller, job, Outcome.DONE, b"result") in broker.take()
    broker.run_until(NOW + 100.0)
    assert broker.worker_registry.workers == {}


def test_attempt_of_an_earlier_run_is_claimed_once(broker: CheckedBroker) -> None:
    job = revive(broker, given())
    principal = broker.principals.local
    assert broker.attempts.is_resumable(TOKEN, principal)
    assert broker.attempts.claim_resumable(TOKEN, principal) is job.attempt
    assert not broker.attempts.is_resumable(TOKEN, principal)
    assert broker.attempts.claim_resumable(TOKEN, principal) is None


def test_attempt_of_an_earlier_run_is_finished_only_with_the_right_to_its_service(broker: CheckedBroker) -> None:
    """R178. The token alone is of no use to a principal that may not work for the service."""
    job = revive(broker, given())
    stranger = Principal("stranger", Rights(call=("*",), work=(f"{job.service.name}2",), administer=("*",)))
    assert not broker.attempts.is_resumable(TOKEN, stranger)
    assert broker.attempts.claim_resumable(TOKEN, stranger) is None
    worker = Principal("worker", Rights(work=(job.service.name,)))
    assert broker.attempts.claim_resumable(TOKEN, worker) is job.attempt


def test_early_result_without_the_right_to_its_service_is_dropped(broker: CheckedBroker) -> None:
    """R178. The right is checked when the job is read: before that, its service is not known."""
    stranger = Principal("stranger", Rights(work=("another",)))
    assert broker.job_registry.early.keep(TOKEN, b"forged", stranger)
    job = revive(broker, given())
    assert job.state is JobState.RUNNING
    assert broker.attempts.claim_resumable(TOKEN, broker.principals.local) is job.attempt


def test_attempt_of_an_earlier_run_needs_the_right_to_work(broker: CheckedBroker) -> None:
    job = revive(broker, given())
    for work, expected in ((job.service.name, True), ("another", False)):
        assert broker.attempts.is_resumable(TOKEN, Principal("web", Rights(work=[work]))) is expected


def test_result_that_comes_before_its_job_is_read_waits_for_it(broker: CheckedBroker) -> None:
    """R107. Workers reconnect before a large store is read: the results they sent were dropped."""
    broker.job_registry.is_loading = True
    assert broker.job_registry.early.keep(TOKEN, b"result", broker.principals.local)
    job = revive(broker, given())
    assert (job.outcome, job.result, broker.attempts.resumable, broker.worker_registry.workers) == (
        Outcome.DONE,
        b"result",
        {},
        {},
    )


def test_results_that_come_early_are_bounded() -> None:
    broker = CheckedBroker(max_memory=10_000)
    assert broker.job_registry.early.keep(TOKEN, bytes(6_000), broker.principals.local)
    assert not broker.job_registry.early.keep(Token(b"u" * 16), bytes(6_000), broker.principals.local)
    assert broker.job_registry.early.clear() == 1
    assert broker.job_registry.early.keep(TOKEN, bytes(6_000), broker.principals.local)


def test_worker_that_does_not_return_in_time_has_lost_it(broker: CheckedBroker) -> None:
    """R107: `resume` is 30 s. Its run time continues meanwhile."""
    job = revive(broker, given())
    attempt = broker.attempts.resumable[TOKEN]
    broker.run_until(NOW + 29.9)
    assert job.state is JobState.RUNNING
    broker.run_until(NOW + 30.0)
    assert (job.state, job.spent) == (JobState.DELAYED, 1)
    assert next(each for each in broker.take() if isinstance(each, RemoveWorker)).worker is attempt.worker
    assert not broker.succeed(attempt, b"late", NOW + 31.0)


def test_outcome_is_kept_on_and_told(broker: CheckedBroker, caller: Caller) -> None:
    job = revive(broker, kept(outcome=Outcome.DONE, keep_until=NOW + 50.0, key="k", digest=b"d"))
    assert (job.state, job.result is ABSENT, broker.job_registry.present) == (JobState.ENDED, True, 0)
    assert not broker.job_registry.kept.attend(job, caller)
    (told,) = broker.take()
    assert isinstance(told, DeliverOutcome)
    assert (told.job, told.result is ABSENT) == (job, True)
    broker.run_until(NOW + 50.0)
    assert broker.take() == [DeleteJob(job)]
    assert broker.jobs == {}


def test_key_joins_a_job_of_an_earlier_run(broker: CheckedBroker) -> None:
    """R24."""
    first = broker.store(b"payload", key="k")
    again = CheckedBroker()
    job = revive(again, kept(key="k", digest=first.digest))
    assert again.call(b"payload", key="k", durable=True) is job
    assert again.submit("s", b"other", Caller(), JobOptions(durable=True, waits=True), NOW, key="k") is None


def test_key_that_two_jobs_of_an_earlier_run_have_is_the_later_ones(broker: CheckedBroker) -> None:
    """An outcome that was dropped, but not deleted when the broker died: dropping it again broke the broker."""
    first = revive(broker, kept(1, outcome=Outcome.DONE, keep_until=NOW + 10.0, key="k"))
    second = revive(broker, kept(2, outcome=Outcome.DONE, keep_until=NOW + 20.0, key="k"))
    broker.run_until(NOW + 10.0)
    assert broker.job_registry.kept.first_with(first.owner, first.service, "k") is second
    broker.run_until(NOW + 20.0)
    assert broker.jobs == {}


def test_quarantined_job_can_be_tried_again(broker: CheckedBroker) -> None:
    old = revive(broker, kept(outcome=Outcome.LOST, quarantined=True, spent=3, keep_until=NOW + 50.0))
    old.payload = b"fetched"
    again = broker.operator.retry(old, NOW)
    assert again is not None
    assert (again.payload, again.retry_of, again.spent) == (b"fetched", old.id, 0)


def test_retried_job_comes_back_out_of_quarantine_and_names_its_successor(broker: CheckedBroker) -> None:
    """In the store it is still in quarantine; `retry_of` of its retry overrides that."""
    old = revive(broker, kept(1, outcome=Outcome.LOST, quarantined=True, spent=3, keep_until=NOW + 50.0))
    again = revive(broker, kept(2, retry_of=old.id))
    assert (old.quarantined, old.retried_as, broker.operator.retry(old, NOW)) == (False, again.id, None)


def test_retry_of_a_job_that_has_been_erased_comes_back(broker: CheckedBroker) -> None:
    again = revive(broker, kept(2, retry_of=JobId(b"e" * 16)))
    assert again.state is JobState.WAITING


def test_promised_jobs_come_back_beyond_every_bound() -> None:
    broker = CheckedBroker(max_jobs=1, max_jobs_per_service=1, max_services=1)
    jobs = [revive(broker, kept(number, service=f"s{number}")) for number in (1, 2, 3)]
    assert [job.state for job in jobs] == [JobState.WAITING] * 3
    assert broker.submit("s1", b"", Caller(), JobOptions(waits=True), NOW) is None


def test_many_outcomes_that_end_together_are_erased_a_few_at_a_time() -> None:
    """R110."""
    broker = CheckedBroker(max_deletes_per_tick=10)
    for number in range(1, 26):
        revive(broker, kept(number, outcome=Outcome.DONE, keep_until=NOW + 1.0))
    left = []
    for _ in range(3):
        broker.tick(NOW + 2.0)
        left.append(len(broker.jobs))
    assert left == [15, 5, 0]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_r107_an_attempt_of_an_earlier_run_has_time_to_deliver_whatever_its_limit_says(
    broker: CheckedBroker, is_elsewhere: bool
) -> None:
    """Its worker may be at another broker of the cluster, which has kept the result since the owner died (R117). The
    new owner timed the attempt out before it had heard of that."""
    job = revive(broker, given(given=NOW - 10_000.0, is_elsewhere=is_elsewhere))
    attempt = attempt_of(job)
    broker.tick(NOW + broker.plain.policy.worker_resume_timeout - 1.0)
    assert job.attempt is attempt
    assert broker.succeed(attempt, b"in time", NOW + 29.0)


def test_r119_an_attempt_whose_worker_moves_has_time_to_deliver(broker: CheckedBroker) -> None:
    """The worker finished in time, and needed a moment to reach another broker."""
    broker.worker(now=NOW)
    job = broker.store(now=NOW, job_timeout=5.0)
    broker.save_all(NOW)
    broker.take()
    attempt = attempt_of(job)
    broker.handover.wait(attempt, NOBODY, NOW + 4.0)
    broker.tick(NOW + 30.0)
    assert job.attempt is attempt
    assert broker.succeed(attempt, b"in time", NOW + 33.0)
