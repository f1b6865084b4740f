"""Conversations: which jobs are recorded, what is kept of the others, and the limits of both."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dragoman.core import conversations
from dragoman.core.conversation import GONE, MOST_ENTRIES, MOST_OF_WORKER, NOTE, AttemptEntry, Conversation
from dragoman.core.conversations import PER_SECOND, WATCHED_FOR, Conversations, slowest_runs
from dragoman.core.histogram import BOUNDS, Histogram
from dragoman.core.infinity import inf
from dragoman.core.model import Job
from dragoman.core.options import JobOptions
from dragoman.core.recording import from_worker, record_heartbeat, submitted, to_worker
from dragoman.core.states import FAILED, AttemptRecord

from .world import Caller, CheckedBroker, attempt_of


@pytest.fixture
def recorder(broker: CheckedBroker) -> Conversations:
    found: Conversations = broker.job_registry.conversations
    found.start()
    return found


def of(job: Job) -> Conversation:
    assert job.conversation is not None
    return job.conversation


def calls(broker: CheckedBroker, times: list[float], **job_options: float) -> list[Job]:
    """Calls at these times, without a check after each: that takes long if many wait."""
    options = JobOptions(waits=True, **job_options)  # type: ignore[arg-type]
    jobs = [broker.plain.submit("s", b"x", Caller(), options, now) for now in times]
    return [job for job in jobs if job is not None]


def told(recorded: Conversation) -> list[str]:
    """The texts of a conversation; an attempt is `#number`."""
    return [f"#{each.number}" if isinstance(each, AttemptEntry) else each.text for each in recorded.entries]


def test_nothing_is_recorded_by_a_broker_without_ladders(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.call()
    broker.fail(attempt_of(job), "poison", 1.0)
    recorder = broker.job_registry.conversations
    assert job.conversation is None
    assert recorder.find(job.id) is recorder.watch_job(job, 1.0) is None


def test_every_job_is_recorded_while_few_come(broker: CheckedBroker, recorder: Conversations) -> None:
    jobs = calls(broker, [index / PER_SECOND for index in range(3 * PER_SECOND)])
    assert all(job.conversation is not None for job in jobs)


def test_of_many_jobs_a_budget_is_recorded_and_spread_over_the_second(
    broker: CheckedBroker, recorder: Conversations
) -> None:
    calls(broker, [index / 1_000 for index in range(1_000)])  # uses up what earlier seconds have left
    jobs = calls(broker, [1.0 + index / 1_000 for index in range(1_000)])
    recorded = [index for index, job in enumerate(jobs) if job.conversation is not None]
    assert len(recorded) in (PER_SECOND - 1, PER_SECOND, PER_SECOND + 1)
    assert max(after - before for before, after in pairwise(recorded)) <= 2 * 1_000 / PER_SECOND


def test_a_retry_is_recorded_whatever_the_budget_is(broker: CheckedBroker, recorder: Conversations) -> None:
    broker.worker()
    job = broker.store(attempts=1)
    broker.take()
    broker.fail(attempt_of(job), "poison", 1.0)
    broker.save_all(1.0)
    recorder.next_at = inf
    assert broker.operator.retry(job, 2.0).conversation is not None


def test_the_story_of_a_retried_job(broker: CheckedBroker, recorder: Conversations) -> None:
    caller = Caller()
    first, second = broker.worker(name="a"), broker.worker(name="b")
    job = broker.call(caller=caller, attempts=3)
    submitted(job, caller, "SUBMIT", 1, 0.0)
    to_worker(attempt_of(job), "JOB", 1, 0.0)
    broker.take()
    broker.leave(first, 1.0, "its worker's connection ended")
    broker.run_until(1.2)
    attempt = attempt_of(job)
    assert attempt.worker is second
    to_worker(attempt, "JOB", 1, 1.2)
    broker.take()
    from_worker(attempt, "RESULT", 2, 1.5)
    broker.succeed(attempt, b"ok", 1.5)
    recorded = recorder.find(job.id)
    assert recorded is of(job)
    assert told(recorded) == [
        *("SUBMIT", "#1", "JOB", "connection ended", "lost; retry in 100.0 ms"),
        *("#2", "JOB", "RESULT", "done"),
    ]
    ends = [(each.text, each.ends) for each in recorded.entries if each.ends]
    assert ends == [("connection ended", f"w{first.id}"), ("RESULT", f"w{second.id}")]


def test_a_late_result_is_marked_and_the_message_of_an_unseen_attempt_too(
    broker: CheckedBroker, recorder: Conversations
) -> None:
    attempt = broker.running(job_timeout=5.0, attempts=1)
    to_worker(attempt, "JOB", 1, 0.0)
    broker.run_until(5.0)
    from_worker(attempt, "RESULT", 1, 6.0)
    assert of(attempt.job).entries[-1].mark == "late: dropped (D2)"
    broker.worker(name="b", now=6.0)
    attempt = broker.running(broker.worker(name="b", now=6.0), now=6.0)
    to_worker(attempt, "JOB", 1, 6.0)
    broker.leave(attempt.worker, 6.0, "its worker's connection ended", (attempt,))
    assert [each.mark for each in of(attempt.job).entries if each.text == "JOB"] == ["never sent (R8)"]


def test_a_caller_that_left_is_marked(broker: CheckedBroker, recorder: Conversations, caller: Caller) -> None:
    job = broker.call(caller=caller)
    broker.caller_gone(caller, 1.0)
    assert [each.kind for each in of(job).entries] == [NOTE, GONE, NOTE]
    assert told(of(job))[1:] == ["disconnected", "cancelled: its caller has gone"]


def test_long_conversations_are_cut_and_counted(broker: CheckedBroker, recorder: Conversations) -> None:
    attempt = broker.running()
    for index in range(2 * MOST_ENTRIES):
        from_worker(attempt, "PROGRESS", index, 1.0)
    recorded = of(attempt.job)
    assert len(recorded.entries) == MOST_ENTRIES
    assert recorded.more == MOST_ENTRIES + 1  # the start of the attempt, too


def test_the_oldest_ended_conversations_make_room(broker: CheckedBroker, recorder: Conversations) -> None:
    recorder.most_kept = 3
    waiting = broker.call(service="none")
    broker.worker()
    jobs = []
    for index in range(5):
        jobs.append(broker.call(now=float(index)))
        broker.take()
        broker.succeed(attempt_of(jobs[-1]), b"", float(index))
    assert [recorder.find(job.id) is not None for job in jobs] == [False, False, False, True, True]
    assert recorder.find(waiting.id) is of(waiting)
    assert of(jobs[0]).entries == []


def test_the_memory_of_all_conversations_is_limited(broker: CheckedBroker, recorder: Conversations) -> None:
    recorder._room.most = 20
    broker.worker()
    for index in range(50):
        attempt = attempt_of(broker.call(now=float(index)))
        broker.take()
        to_worker(attempt, "JOB", 1, float(index))
        broker.succeed(attempt, b"", float(index))
    kept = recorder._ended
    assert 0 < sum(len(each.entries) for each in kept.values()) <= 20
    assert recorder._room.entries == sum(len(each.entries) for each in kept.values())


def test_jobs_that_were_not_recorded_keep_milestones_unless_they_are_done(
    broker: CheckedBroker, recorder: Conversations
) -> None:
    recorder.next_at = inf
    broker.worker()
    done = broker.running().job
    broker.succeed(attempt_of(done), b"", 1.0)
    assert recorder.find(done.id) is None
    broker.idle(broker.worker(now=1.0), 1.0)
    failed = broker.call(now=1.0, attempts=1)
    broker.take()
    broker.fail(attempt_of(failed), "poison", 2.0)
    kept = recorder.find(failed.id)
    assert kept is not None
    assert not kept.is_whole
    assert told(kept)[-2:] == ["failed: poison", conversations.UNANSWERED]


def test_worker_of_an_earlier_run_has_one_lane(broker: CheckedBroker, recorder: Conversations) -> None:
    """Numbers of workers are not stored: after a restart, each attempt of one worker had a lane of its own."""
    recorder.next_at = inf
    broker.worker()
    job = broker.call(attempts=4)
    broker.take()
    past = [("gpu-1", 1), ("gpu-2", 2), ("gpu-1", 3)]
    job.history = [AttemptRecord(number=number, outcome=FAILED, reason="r", worker=name) for name, number in past]
    kept = recorder._from_history(job, None, None, "", 1.0)
    assert [(each.id, each.name) for each in kept.lanes if each.role == "worker"] == [("a1", "gpu-1"), ("a2", "gpu-2")]
    assert [each.lane for each in kept.entries if isinstance(each, AttemptEntry)] == ["a1", "a2", "a1"]


def test_if_all_jobs_fail_a_budget_of_them_keeps_milestones(broker: CheckedBroker, recorder: Conversations) -> None:
    """Otherwise a broker that is slow already would be slowed down further."""
    recorder.next_at = inf
    jobs = calls(broker, [index / 1_000 for index in range(3_000)], queue_timeout=0.5)
    while (due := broker.plain.next_deadline()) < inf:
        broker.plain.tick(due)
    kept = sum(recorder.find(job.id) is not None for job in jobs)
    assert 3 * PER_SECOND <= kept <= 4 * PER_SECOND + 1


def test_the_slowest_of_a_service_keep_milestones(broker: CheckedBroker, recorder: Conversations) -> None:
    ran = Histogram()
    for seconds in [0.0004] * 199 + [3.0]:
        ran.observe(seconds)
    assert slowest_runs(ran) == BOUNDS[0]
    assert slowest_runs(Histogram()) == inf
    recorder.next_at = inf
    attempt = broker.running()
    attempt.job.service.slow_run = BOUNDS[0]
    broker.succeed(attempt, b"", 0.5)
    assert recorder.find(attempt.job.id) is not None


def test_a_requested_job_is_recorded_from_then_on(broker: CheckedBroker, recorder: Conversations) -> None:
    recorder.next_at = inf
    attempt = broker.running()
    assert attempt.job.conversation is None
    found = recorder.watch_job(attempt.job, 1.0)
    from_worker(attempt, "RESULT", 1, 1.0)
    assert found is attempt.job.conversation
    assert told(of(attempt.job))[-2:] == ["messages are recorded from here on", "RESULT"]


def test_messages_of_a_worker_are_recorded_while_they_are_requested(
    broker: CheckedBroker, recorder: Conversations
) -> None:
    recorder.next_at = inf
    worker = broker.worker()
    record_heartbeat(worker, "PING/PONG", 0.0)  # not requested: forgotten
    seen = recorder.watch_worker(worker, 1.0)
    assert seen is not None
    for index in range(41):
        record_heartbeat(worker, "PING/PONG", 1.0 + index / 10)
    attempt = broker.running(worker, now=6.0)
    to_worker(attempt, "JOB", 1, 6.0)
    assert [(each.entry.text, each.entry.count, each.id) for each in seen.entries] == [
        ("PING/PONG", 41, b""),
        ("JOB", 1, attempt.job.id),
    ]
    for _ in range(MOST_OF_WORKER):
        from_worker(attempt, "PROGRESS", 1, 7.0)
    assert (len(seen.entries), seen.more) == (MOST_OF_WORKER, 2)
    record_heartbeat(worker, "PING/PONG", 2.0 + WATCHED_FOR)
    assert worker.conversation is None
