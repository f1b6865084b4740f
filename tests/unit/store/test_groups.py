"""Groups in the store: their records survive restarts, and count what is there (R194)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dragoman.core.bulk import NewJob
from dragoman.core.groups import Group
from dragoman.core.job_extras import JobExtras, JobInput
from dragoman.core.model import Job, JobId
from dragoman.core.options import JobOptions
from dragoman.core.results_payload import unpack_results
from dragoman.core.states import JobState, Outcome

from .damage import raw
from .world import Setup

G = JobId(b"g" * 16)
OPTIONS = JobOptions(durable=True, waits=True, attempts=1)


def batch(setup: Setup, size: int = 3, *, with_last: bool = False, **extras: Any) -> list[Job]:
    """Submit a group, and with `with_last` a job that takes its results."""
    orders = [
        NewJob("s", b"%d" % n, OPTIONS, setup.broker.entropy.job_id(), extras=JobExtras(group=G)) for n in range(size)
    ]
    if with_last:
        after = JobExtras(after=(G,), input=JobInput.RESULTS, **extras)
        orders.insert(0, NewJob("t", b"", OPTIONS, setup.broker.entropy.job_id(), extras=after))
    return setup.broker.bulk.submit(orders, setup.caller.owner, "test", setup.now)


def finish(setup: Setup, job: Job, result: bytes = b"r") -> None:
    assert job.attempt is not None
    setup.broker.succeed(job.attempt, result, setup.now)


def group_of(setup: Setup) -> Group:
    return setup.broker.job_registry.groups.by_id[G]


def numbers(setup: Setup) -> tuple[int, int, int]:
    group = group_of(setup)
    return group.open, group.done, group.undone


def reopened(folder: Path, now: float = 200.0, **policy: Any) -> Setup:
    """A broker on the files as they are."""
    setup = Setup(folder, seed="again", now=now, **policy)
    setup.load()
    return setup


def test_group_counts_its_jobs_again_after_a_restart(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    jobs = batch(setup, 4)
    setup.worker()
    setup.settle()
    finish(setup, jobs[0], b"one")
    setup.broker.withdraw(jobs[2], setup.now)
    setup = setup.restarted()  # the job that runs is lost: it has one attempt
    assert numbers(setup) == (1, 1, 2)
    group = group_of(setup)
    assert [job.id for job in group.jobs if job is not None] == [job.id for job in jobs]
    last = setup.broker.jobs[jobs[3].id]
    setup.worker()
    setup.given_payloads()
    finish(setup, last)
    assert (numbers(setup), group.is_complete) == ((0, 2, 2), True)
    setup = setup.restarted(300.0)
    assert (numbers(setup), group_of(setup).ended) == ((0, 2, 2), 200.0)
    setup.close()


def test_batch_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    """It is one transaction, however many rows it has; the store's limit of rows in a commit does not split it."""
    setup = Setup(tmp_path)
    jobs = batch(setup, 6_000)
    setup.runner._strict = False
    commits = sum(setup.store.commits.counts)
    setup.settle()
    assert sum(setup.store.commits.counts) == commits + 1
    setup.close()
    file = raw(tmp_path)
    assert file.execute("SELECT count(*) FROM job").get == len(jobs)
    file.close()


def test_job_after_a_group_starts_after_a_restart(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    last, first, second = batch(setup, 2, with_last=True)
    setup.worker(capacity=2)
    setup.settle()
    finish(setup, first, b"one")
    setup.settle()
    finish(setup, second, b"two")
    setup.runner._drain_effects(setup.now)  # without a tick: killed before it decides about the last job
    assert last.state is JobState.DEPENDENT
    setup.close()
    setup = reopened(tmp_path)
    restored = setup.broker.jobs[last.id]
    setup.loop.run_until(lambda: restored.state is JobState.WAITING)
    assert unpack_results(restored.payload) == (b"", [[b"one", b"two"]])
    setup.close()


def test_failure_in_the_last_commit_cancels_after_a_restart(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    last, first, _ = batch(setup, 2, with_last=True)
    setup.worker()
    setup.settle()
    assert first.attempt is not None
    setup.broker.fail(first.attempt, "boom", setup.now)
    setup.runner._drain_effects(setup.now)
    setup.close()
    setup = reopened(tmp_path)
    assert setup.broker.jobs[last.id].reason.startswith(f"job {first.id.hex()} of group {G.hex()}, which it comes")
    setup.close()


def test_letters_of_deleted_outcomes_are_stored(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    jobs = batch(setup, 3)
    setup.worker(capacity=3)
    setup.settle()
    finish(setup, jobs[0])
    setup.broker.withdraw(jobs[1], setup.now)
    setup.settle()
    for job in jobs[:2]:
        setup.broker.job_registry.kept.erase(job)
    setup.settle()
    setup.close()
    setup = reopened(tmp_path)
    assert "".join(group_of(setup).gone) == "dc."
    assert numbers(setup) == (0, 1, 2)
    assert group_of(setup).outcome_at(1) is Outcome.CANCELLED
    setup.close()


def test_members_that_a_damaged_store_lost_count_as_not_done(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    last, first, second = batch(setup, 2, with_last=True)
    setup.settle()
    setup.close()
    file = raw(tmp_path)
    file.execute("DELETE FROM job WHERE id = ?", (first.id,))
    file.close()
    setup = reopened(tmp_path)
    assert (numbers(setup), "".join(group_of(setup).gone)) == ((1, 0, 1), "?.")
    assert setup.broker.jobs[last.id].reason == (
        f"jobs of group {G.hex()}, which it comes after, are not in the store any more"
    )
    setup = setup.restarted(300.0)
    assert numbers(setup) == (1, 0, 1)
    assert second.id in setup.broker.jobs
    setup.close()


def test_record_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    jobs = batch(setup, 1)
    setup.broker.job_registry.pending_commits.note(f"group/{G.hex()}", '{"owner":"local"}')
    setup.settle()
    setup.close()
    setup = reopened(tmp_path)
    assert setup.broker.job_registry.groups.by_id == {}
    assert setup.broker.job_registry.groups.problems == [f"group/{G.hex()}: 'size'"]
    assert setup.broker.jobs[jobs[0].id].state is JobState.WAITING
    setup.close()


def test_outcomes_of_a_group_are_kept_as_long_as_the_group_over_a_restart(tmp_path: Path) -> None:
    """The stored time of the first outcome has passed, and the group is still kept."""
    setup = Setup(tmp_path, outcome_retention=100.0)
    jobs = batch(setup, 2)
    setup.worker(capacity=2, can_resume=True)
    setup.settle()
    finish(setup, jobs[0], b"one")
    setup.settle()
    setup.now += 90.0
    finish(setup, jobs[1], b"two")
    setup.settle()
    setup.close()
    setup = reopened(tmp_path, now=280.0, outcome_retention=100.0)
    assert len(setup.broker.jobs) == 2
    setup.now = 289.0
    setup.runner.run_once()
    assert len(setup.broker.jobs) == 2
    setup.now = 345.0  # it is looked again every minute
    setup.runner.run_once()
    setup.settle()
    assert (setup.broker.jobs, setup.broker.job_registry.groups.by_id) == ({}, {})
    setup.close()
    setup = reopened(tmp_path, now=300.0)
    assert setup.broker.job_registry.groups.by_id == {}
    setup.close()


def test_retry_of_a_member_has_its_place_after_a_restart(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    jobs = batch(setup, 2)
    setup.worker(capacity=2)
    setup.settle()
    finish(setup, jobs[0])
    assert jobs[1].attempt is not None
    setup.broker.fail(jobs[1].attempt, "no", setup.now)
    setup.settle()
    again = setup.broker.operator.retry(jobs[1], setup.now)
    assert again is not None
    setup.settle()
    finish(setup, again, b"at last")
    setup = setup.restarted()
    member = group_of(setup).jobs[1]
    assert member is not None
    assert (member.id, numbers(setup)) == (again.id, (0, 2, 0))
    setup.close()
