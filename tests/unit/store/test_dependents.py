"""Jobs that wait for other jobs, in the store: a restart decides as the run before would have (R191)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dragoman.core.job_extras import JobExtras, JobInput
from dragoman.core.model import Job, JobId
from dragoman.core.options import JobOptions
from dragoman.core.results_payload import unpack_results
from dragoman.core.states import JobState, Outcome

from .damage import raw
from .world import Setup


def dependent(setup: Setup, *before: Job, payload: bytes = b"own", **extras: Any) -> Job:
    """Submit a job of another service that comes after these jobs."""
    asked = JobOptions(durable=True, waits=True, attempts=3)
    linked = JobExtras(after=tuple(each.id for each in before), **extras)
    job = setup.broker.submit("t", payload, setup.caller, asked, setup.now, extras=linked)
    assert job is not None
    return job


def finish(setup: Setup, job: Job, result: bytes = b"r") -> None:
    assert job.attempt is not None
    setup.broker.succeed(job.attempt, result, setup.now)


def again(setup: Setup, job: Job) -> Job:
    return setup.broker.jobs[job.id]


def test_job_that_waits_for_others_waits_after_a_restart(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    first = setup.enqueue()
    last = dependent(setup, first, input=JobInput.RESULT, payload=b"")
    setup = setup.restarted()
    last, first = again(setup, last), again(setup, first)
    assert last.state is JobState.DEPENDENT
    setup.worker()
    setup.given_payloads()
    finish(setup, first, b"the result")
    setup.settle()
    assert (last.state, last.payload) == (JobState.WAITING, b"the result")
    setup.close()


def test_input_is_stored_with_the_job(tmp_path: Path) -> None:
    """The jobs before it are not needed any more, and may be deleted."""
    setup = Setup(tmp_path)
    setup.worker()
    first = setup.enqueue()
    last = dependent(setup, first, input=JobInput.RESULTS, payload=b"x" * 10_000)
    setup.settle()
    finish(setup, first, b"y" * 10_000)
    setup.settle()
    setup.broker.job_registry.kept.erase(first)
    setup = setup.restarted()
    assert first.id not in setup.broker.jobs
    assert again(setup, last).state is JobState.WAITING
    setup.worker("t")
    (payload,) = setup.given_payloads()
    assert unpack_results(payload) == (b"x" * 10_000, [b"y" * 10_000])
    setup.close()


def test_job_whose_predecessor_ended_in_the_last_commit_starts_after_the_restart(tmp_path: Path) -> None:
    """The end of the first job is committed, and the broker is killed before it decides about the second."""
    setup = Setup(tmp_path)
    setup.worker()
    first = setup.enqueue()
    last = dependent(setup, first, input=JobInput.RESULTS)
    waits = dependent(setup, first, setup.enqueue(delay=1e6))
    setup.settle()
    finish(setup, first, b"late")
    setup.runner._drain_effects(setup.now)  # without a tick
    assert last.state is JobState.DEPENDENT
    setup.close()
    setup = Setup(tmp_path, seed="again", now=200.0)
    setup.load()
    setup.loop.run_until(lambda: again(setup, last).state is JobState.WAITING)
    assert unpack_results(again(setup, last).payload) == (b"own", [b"late"])
    assert again(setup, waits).state is JobState.DEPENDENT
    setup.close()


def test_job_whose_predecessor_failed_in_the_last_commit_is_cancelled_after_the_restart(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.worker()
    first = setup.enqueue(attempts=1)
    last = dependent(setup, first)
    setup.settle()
    assert first.attempt is not None
    setup.broker.fail(first.attempt, "boom", setup.now)
    setup.runner._drain_effects(setup.now)
    setup.close()
    setup = Setup(tmp_path, seed="again", now=200.0)
    setup.load()
    restored = again(setup, last)
    assert (restored.outcome, restored.reason) == (
        Outcome.CANCELLED,
        f"job {first.id.hex()}, which it comes after, ended failed: boom",
    )
    setup.close()


def test_outcome_that_was_due_while_the_broker_was_down_is_kept_for_the_job_that_needs_it(tmp_path: Path) -> None:
    """R192: it is not deleted while jobs are loaded, and the job that needs it may be in a later batch."""
    setup = Setup(tmp_path)
    setup.worker()
    first, second = setup.enqueue(), setup.enqueue(service="u")
    setup.settle()
    finish(setup, first, b"one")
    for _ in range(30):
        setup.enqueue(delay=1e6)
    last = dependent(setup, first, second, input=JobInput.RESULTS)
    setup.settle()
    setup.close()
    setup = Setup(tmp_path, seed="again", now=1e6)  # the retention time is a day
    setup.load()
    first, second, last = again(setup, first), again(setup, second), again(setup, last)
    setup.worker("u")
    setup.given_payloads()
    finish(setup, second, b"two")
    setup.settle()
    setup.loop.run_until(lambda: last.state is JobState.WAITING)
    assert unpack_results(last.payload) == (b"own", [b"one", b"two"])
    setup.now += 100.0
    setup.runner.run_once()
    assert first.id not in setup.broker.jobs
    setup.close()


def test_job_whose_predecessor_is_lost_with_a_damaged_row_is_cancelled(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    first, second = setup.enqueue(), setup.enqueue()
    last, runs = dependent(setup, first, second), dependent(setup, first, runs_after_failure=True)
    setup.settle()
    setup.close()
    file = raw(tmp_path)
    file.execute("DELETE FROM job WHERE id = ?", (first.id,))
    file.close()
    setup = Setup(tmp_path, seed="again", now=200.0)
    setup.load()
    restored = again(setup, last)
    assert restored.reason == f"job {first.id.hex()}, which it comes after, is not in the store any more"
    assert again(setup, runs).state is JobState.WAITING
    setup.close()


def test_refused_job_waits_for_nothing(tmp_path: Path) -> None:
    """A dependent job that the store could not take is treated as not submitted."""
    setup = Setup(tmp_path)
    first = setup.enqueue()
    setup.settle()
    last = dependent(setup, first)
    number = setup.broker.job_registry.pending_commits.newest
    setup.broker.effects.clear()  # the store never gets it
    setup.broker.store_reports.saved(number, setup.now, "disk full")
    setup.broker.effects.clear()
    assert JobId(last.id) not in setup.broker.jobs
    assert setup.broker.job_registry.links.links == 0
    setup.close()
