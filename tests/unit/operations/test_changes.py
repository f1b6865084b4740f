"""Jobs that are cancelled, retried and purged."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.model import ABSENT, Caller
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.restore import restore
from dragoman.core.states import JobState, Outcome
from dragoman.operations.bulk_acts import BATCH
from dragoman.operations.schemas import ErrorView, JobView, PurgeRequest
from owners import LOCAL_OWNER

from .world import RecordingResponder, World, ended_job, quarantined_job


def test_cancel(world: World) -> None:
    name = world.enqueue()
    assert world.ask("cancel", id=name).outcome == "cancelled"
    assert world.ask("cancel", id=name).kind == "conflict"


def test_cancel_is_answered_after_its_commit(world: World) -> None:
    name = world.enqueue()
    world.store.is_slow = True
    responder = world.begin("cancel", id=name)
    assert responder.responses == []
    world.store.write()
    world.runner.run_once()
    assert [each.outcome for each in responder.responses] == ["cancelled"]


def test_payload_that_comes_late_for_one_attempt_is_not_the_next_ones(world: World) -> None:
    """R8. A bug: two attempts wait for one payload, and the second counted as sent when the first one's came."""
    kept = ended_job(world)
    kept.outcome = None
    job = restore(world.broker, kept, world.now, None)
    first = world.worker(name="first")
    world.broker.leave(first, world.now, "gone")
    second = world.worker(name="second")
    world.store.bodies[job.id] = (b"payload", b"")
    (early, late) = world.store.fetches
    world.store.fetches = [early]
    world.store.bring()
    world.broker.leave(second, world.now, "gone")
    assert (job.state, job.spent) == (JobState.WAITING, 0)
    world.store.fetches += [late]
    world.store.bring()
    world.worker(name="third")
    world.store.bring()
    world.runner.run_once()
    assert [each.attempt.worker.name for each in world.workers.said] == ["third"]


def test_retry_makes_a_new_job_of_one_in_quarantine(world: World) -> None:
    worker = world.worker()
    name = quarantined_job(world)
    again = world.ask("retry", id=name)
    assert (again.retry_of, again.state, again.attempts[0].worker) == (name, "running", worker.name)
    assert world.job(again.id).payload == b"x"


def test_retry_that_is_asked_for_again_makes_no_second_job(world: World) -> None:
    """A repeated retry returns the same job; if that job has failed, the error names it."""
    world.worker()
    name = quarantined_job(world)
    again = world.ask("retry", id=name)
    assert world.ask("retry", id=name).id == again.id
    world.broker.fail(world.attempt(again.id), "poison", world.now)
    world.runner.run_once()
    refused = world.ask("retry", id=name)
    assert (refused.kind, again.id in refused.detail, "retry that one" in refused.detail) == ("conflict", True, True)
    assert [each.id for each in world.ask("jobs", quarantined=True).jobs] == [again.id]
    assert world.ask("job", id=name).retried_as == again.id
    assert world.ask("why", id=name).why.endswith(f" It was retried as job {again.id}.")


def test_retry_of_an_earlier_run_leaves_its_payload_where_it_is(world: World) -> None:
    """A bug: it was fetched, and the size of the kept outcomes was wrong from then on."""
    kept = ended_job(world)
    kept.outcome, kept.quarantined, kept.spent = Outcome.LOST, True, 3
    job = restore(world.broker, kept, world.now, None)
    view = world.ask("retry", id=job.id.hex())
    assert isinstance(view, JobView)
    assert (job.payload is ABSENT, world.job(view.id).payload is ABSENT) == (True, True)
    world.worker()
    world.store.bodies[world.job(view.id).id] = (b"old payload", b"")
    world.store.bring()
    world.runner.run_once()
    (give,) = world.workers.said
    assert give.attempt.job.payload == b"old payload"


def test_retry_waits_until_all_jobs_are_read(world: World) -> None:
    world.worker()
    name = quarantined_job(world)
    world.broker.job_registry.is_loading = True
    assert world.ask("retry", id=name).kind == "loading"


def test_only_quarantine_can_be_left_by_retry(world: World) -> None:
    assert world.ask("retry", id=world.enqueue()).kind == "conflict"


def test_purge_ends_what_waits_and_leaves_what_runs(world: World) -> None:
    world.worker()
    running, waiting, delayed = world.enqueue(), world.enqueue(), world.enqueue(delay=60.0)
    other = world.enqueue("other")
    assert world.ask("purge", name="s").purged == 2
    assert [world.job(each).state for each in (running, waiting, delayed, other)] == [
        JobState.RUNNING,
        JobState.ENDED,
        JobState.ENDED,
        JobState.WAITING,
    ]


def test_purge_waits_until_all_jobs_are_read(world: World) -> None:
    """A bug: it skipped jobs that were loaded later, and reported that it was done."""
    name = world.enqueue()
    world.broker.job_registry.is_loading = True
    assert world.ask("purge", name="s").kind == "loading"
    assert world.job(name).state is JobState.WAITING


def test_purge_of_outcomes_erases_them(world: World) -> None:
    world.worker()
    name = quarantined_job(world)
    waiting = world.enqueue(delay=60.0)
    assert world.ask("purge", name="s", states=("ended",)).purged == 1
    assert world.store.erased == [bytes.fromhex(name)]
    assert world.job(waiting).state is JobState.DELAYED


@pytest.mark.parametrize("operation", ["jobs", "services"])
def test_lists_that_are_not_complete_yet_are_refused(world: World, operation: str) -> None:
    """A bug: after a start with many jobs they were empty for a while, as if all jobs were lost."""
    world.broker.job_registry.is_loading = True
    assert world.ask(operation).kind == "loading"
    world.broker.job_registry.is_loading = False
    assert not isinstance(world.ask(operation), ErrorView)


def test_great_purge_takes_several_turns(world: World) -> None:
    for _ in range(2_500):
        world.broker.submit("s", b"", _Nobody(), JobOptions(waits=True), world.now)
    responder = world.begin("purge", name="s")
    assert responder.responses == []
    world.wait(1.0)
    assert [each.purged for each in responder.responses] == [2_500]


def test_purge_leaves_alone_what_has_gone_on_meanwhile(world: World) -> None:
    """A job that was chosen while it waited and has ended since keeps its outcome."""
    names = [world.enqueue() for _ in range(BATCH + 3)]
    world.operations.ask("purge", PurgeRequest(name="s"), b"", RecordingResponder(), world.now)
    worker = world.broker.join(world.workers, None, "w", ("s",), WorkerProfile(capacity=3), world.now, LOCAL_OWNER)
    assert worker is not None
    world.broker.idle(worker, world.now)
    for name in names[BATCH:]:
        world.broker.succeed(world.attempt(name), b"result", world.now)
    world.wait(1.0)
    assert [world.job(name).outcome for name in names] == [Outcome.CANCELLED] * BATCH + [Outcome.DONE] * 3


def test_two_purges_at_once_count_each_job_once(world: World) -> None:
    names = [world.enqueue() for _ in range(5)]
    responders = [RecordingResponder(), RecordingResponder()]
    for responder in responders:
        world.operations.ask("purge", PurgeRequest(name="s"), b"", responder, world.now)
    world.wait(1.0)
    assert sum(responder.responses[0].purged for responder in responders) == 5
    assert [world.job(name).outcome for name in names] == [Outcome.CANCELLED] * 5


class _Nobody(Caller):
    def __init__(self) -> None:
        super().__init__(self, LOCAL_OWNER)

    def execute(self, effect: Any, now: float) -> None: ...
