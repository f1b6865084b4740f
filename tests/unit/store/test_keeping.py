"""Keys and kept outcomes in the store: `unique`, `keep`, and deletes that somebody waits for."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.archive import FOREVER
from dragoman.core.failure import Failure
from dragoman.core.job_extras import JobExtras
from dragoman.core.model import ABSENT, Job
from dragoman.core.options import JobOptions
from dragoman.core.states import JobState, Outcome, Unique

from .world import Setup


def ended(setup: Setup, result: bytes = b"result", fails: bool = False, **options: Any) -> Job:
    """A job that has ended, and is stored."""
    worker = setup.worker()
    job = setup.enqueue(b"payload", **options)
    setup.settle()
    assert job.attempt is not None
    if fails:
        setup.broker.fail(job.attempt, "ValueError: no", setup.now, Failure("ValueError", "no", "Traceback"))
    else:
        setup.broker.succeed(job.attempt, result, setup.now)
    setup.broker.leave(worker, setup.now, "bye")
    setup.settle()
    return job


def bodies(setup: Setup, job: Job) -> tuple[bytes, bytes, Failure | None]:
    """Payload, result and failure, from memory or from the store."""
    found: list[tuple[bytes, bytes, Failure | None]] = []
    setup.runner.store_access.fetch(
        job, lambda *brought: found.append((bytes(brought[0]), bytes(brought[1]), brought[2]))
    )
    setup.loop.run_until(lambda: found)
    return found[0]


def test_result_that_is_kept_until_deleted_is_read_from_the_store_over_restarts(tmp_path: Path) -> None:
    """L20, R136."""
    setup = Setup(tmp_path, outcome_retention=10.0)
    job = ended(setup, keep=inf)
    assert (job.result is ABSENT, bodies(setup, job)[1]) == (True, b"result")
    for _ in range(2):
        setup = setup.restarted(now=setup.now + 1_000_000.0)
        found = setup.broker.jobs[job.id]
        assert (found.outcome, found.keep_until, setup.broker.job_registry.kept.forever) == (Outcome.DONE, FOREVER, 1)
        assert bodies(setup, found)[1] == b"result"
    setup.close()


def test_quarantined_job_that_is_kept_until_deleted_is_retried_with_its_payload(tmp_path: Path) -> None:
    """Its payload and its failure are in the store only."""
    setup = Setup(tmp_path)
    job = ended(setup, fails=True, attempts=1, keep=inf, key="k")
    assert (job.quarantined, job.payload is ABSENT, job.failure) == (True, True, None)
    payload, _, failure = bodies(setup, job)
    assert (payload, failure) == (b"payload", Failure("ValueError", "no", "Traceback"))
    assert setup.broker.operator.retry(job, setup.now) is not None
    setup.workers.heard.clear()
    setup.worker()
    assert setup.given_payloads() == [b"payload"]
    setup.close()


@pytest.mark.parametrize("keep", [5.0, inf])
def test_key_and_time_of_a_job_survive(tmp_path: Path, keep: float) -> None:
    setup = Setup(tmp_path)
    extras = JobExtras(tenant="t")
    options = JobOptions(durable=True, waits=True, unique=Unique.WAITING, keep=keep)
    job = setup.broker.submit("s", b"x", setup.caller, options, setup.now, key="k", extras=extras)
    assert job is not None
    setup = setup.restarted()
    (found,) = setup.broker.jobs.values()
    assert (found.options, found.key, found.extras) == (options, "k", extras)
    kept = setup.broker.job_registry.kept
    assert kept.first_with(found.owner, found.service, "k") is found
    setup.close()


def test_latest_of_several_jobs_has_the_key_after_a_restart(tmp_path: Path) -> None:
    """R24, I23: the first waits for a retry, the second has ended."""
    setup = Setup(tmp_path)
    setup.worker()
    long = setup.enqueue(b"x", key="k", unique=Unique.WAITING, retry_first=1_000.0)
    setup.settle()
    assert long.attempt is not None
    setup.broker.fail(long.attempt, "not yet", setup.now)
    setup.settle()
    short = setup.enqueue(b"y", key="k", unique=Unique.WAITING)
    setup.settle()
    assert short.attempt is not None
    setup.broker.succeed(short.attempt, b"", setup.now)
    setup = setup.restarted()
    kept = setup.broker.job_registry.kept
    found = kept.keys.find("local", "s", "k")
    assert found is setup.broker.jobs[short.id]
    assert kept.first_with(found.owner, found.service, "k") is None
    kept.erase(found)
    assert kept.keys.find("local", "s", "k") is setup.broker.jobs[long.id]
    setup.close()


def test_job_whose_retry_was_deleted_does_not_return_to_quarantine(tmp_path: Path) -> None:
    """R135, R136. A bug: the row of the first job says that it is in quarantine, as long as its retry overrides that.
    The retry was deleted first, and after a restart the first job could be retried again."""
    setup = Setup(tmp_path)
    job = ended(setup, fails=True, attempts=1, keep=1.0, key="k")
    again = setup.broker.operator.retry(job, setup.now)
    assert again is not None
    setup.worker()
    setup.settle()
    assert again.attempt is not None
    setup.broker.succeed(again.attempt, b"", setup.now)
    setup.settle()
    setup.now += 2.0
    setup.settle()
    setup = setup.restarted(now=setup.now)
    (found,) = setup.broker.jobs.values()
    assert (found.id, found.quarantined, found.key, found.state) == (job.id, False, None, JobState.ENDED)
    setup.close()


def test_delete_that_somebody_waits_for_is_committed(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    job = ended(setup, keep=inf)
    setup.broker.job_registry.kept.erase(job, is_waited_for=True)
    committed: list[str | None] = []
    setup.runner.store_access.when_saved(committed.append)
    setup.runner.run_once()
    setup.loop.run_until(lambda: committed)
    assert committed == [None]
    setup = setup.restarted()
    assert (setup.broker.jobs, setup.broker.job_registry.kept.forever) == ({}, 0)
    setup.close()


def test_job_that_waits_for_a_newer_worker_waits_on_after_restarts(tmp_path: Path) -> None:
    """R269: what it needs and its caller's parameters are stored, and the day goes on."""
    setup = Setup(tmp_path)
    setup.worker()
    job = setup.enqueue(b"payload", parameters=("a", "x"))
    setup.settle()
    assert job.attempt is not None
    refusal = Failure("dragoman.WrongArguments", "s has no parameter 'x'", "", inf, ("x",), ("a",))
    setup.broker.fail(job.attempt, refusal.sentence, setup.now, refusal)
    setup.settle()
    began = setup.now
    for _ in range(2):
        setup = setup.restarted(now=setup.now + 1_000.0)
        found = setup.broker.jobs[job.id]
        assert (found.state, found.needs, found.options.parameters) == (JobState.DELAYED, ("x",), ("a", "x"))
        assert found.extras is not None
        assert (found.extras.refusal, found.delayed_since) == ("s has no parameter 'x'", began)
        setup.worker()
        setup.broker.tick(found.start_at)
        assert (found.state, found.attempt) == (JobState.DELAYED, None)
    newer = setup.worker(capacity=2)
    setup.broker.limiter.declare_parameters(newer, {"s": {"properties": {"a": {}, "x": {}}}})
    setup.broker.tick(found.start_at)
    assert setup.given_payloads() == [b"payload"]
    setup.close()
