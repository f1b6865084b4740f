"""The store in a file: what is written can be read, and nothing is acknowledged before it is written."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.failure import Failure
from dragoman.core.job_extras import JobExtras
from dragoman.core.model import ABSENT
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.states import JobState, Outcome, RefusalReason
from dragoman.operations.schemas import CallerView
from dragoman.operations.views import job_view
from dragoman.store import writer
from dragoman.store.limits import StoreLimits
from owners import LOCAL_OWNER

from .world import LIMITS, WALL, Setup, Side, until


@pytest.fixture
def setups(tmp_path: Path) -> Iterator[Any]:
    """Brokers on one folder, one after the other."""
    opened: list[Setup] = []

    def make(**options: Any) -> Setup:
        if opened:
            opened[-1].close()
        opened.append(Setup(tmp_path, seed=str(len(opened)), **options))
        return opened[-1]

    yield make
    opened[-1].close()


def test_background_job_survives_its_broker(setups: Any) -> None:
    """I3, R107."""
    setup = setups()
    job = setup.enqueue(b"payload", key="k", priority=7)
    setup.settle()
    assert setup.accepted() == [job.id]
    again = setups(now=5.0, offset=WALL + 200.0)
    again.load()
    found = again.broker.jobs[job.id]
    assert (found.state, found.payload is ABSENT, found.key, found.options) == (
        JobState.WAITING,
        True,
        "k",
        job.options,
    )
    assert found.created == pytest.approx(-100.0), "the same instant, on this run's clock"
    again.worker()
    again.runner.run_once()
    again.loop.run_until(lambda: again.runner.run_once() and again.given())
    assert again.given()[0].attempt.job.payload == b"payload"


def test_nobody_is_told_before_the_commit(setups: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """R103."""
    may_commit = threading.Event()
    real = writer.Writer._try

    def slow(self: writer.Writer, group: Any) -> str | None:
        may_commit.wait(20)
        return real(self, group)

    monkeypatch.setattr(writer.Writer, "_try", slow)
    setup = setups()
    job = setup.enqueue()
    setup.runner.run_once()
    setup.loop.run_rest()
    assert setup.accepted() == []
    may_commit.set()
    setup.settle()
    assert setup.accepted() == [job.id]


def test_outcome_survives_and_is_fetched_when_it_is_asked_for(setups: Any) -> None:
    setup = setups()
    setup.worker()
    job = setup.enqueue(b"payload")
    setup.settle()
    setup.broker.succeed(setup.given()[0].attempt, b"result", setup.now)
    setup.settle()
    again = setups()
    again.load()
    found = again.broker.jobs[job.id]
    assert (found.state, found.outcome, found.keep_until) == (JobState.ENDED, Outcome.DONE, job.keep_until)
    brought: list[tuple[bytes, bytes]] = []
    again.runner.store_access.fetch(found, lambda payload, result, _: brought.append((payload, result)))
    again.loop.run_until(lambda: brought)
    assert brought[0][1] == b"result"


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.LOST])
def test_failure_survives_in_the_column_of_the_result(
    setups: Any, tmp_path_factory: pytest.TempPathFactory, outcome: Outcome
) -> None:
    setup = setups()
    setup.worker()
    job = setup.enqueue(b"payload", attempts=1)
    setup.settle()
    failure = Failure("ValueError", "kein Öl", "Traceback\0 line 2")
    setup.broker.fail(setup.given()[0].attempt, "ValueError: kein Öl", setup.now, failure, outcome)
    setup.settle()
    copy = shutil.copytree(setup.store.path.parent, tmp_path_factory.mktemp("copy"), dirs_exist_ok=True)
    with closing(sqlite3.connect(copy / setup.store.path.name)) as file:
        assert file.execute("SELECT outcome, result FROM fate").fetchall() == [
            (outcome.value, "ValueError\0kein Öl\0Traceback\0 line 2".encode())
        ]
    again = setups()
    again.load()
    found = again.broker.jobs[job.id]
    brought: list[tuple[Any, ...]] = []
    again.runner.store_access.fetch(found, lambda *bodies: brought.append(bodies))
    again.loop.run_until(lambda: brought)
    assert (found.outcome, found.reason, brought) == (outcome, "ValueError: kein Öl", [(b"payload", b"", failure)])


def test_outcome_that_is_asked_for_just_before_it_is_erased_is_told(
    setups: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queued delete was written first, and the deleted result was then delivered as an empty one."""
    setup = setups()
    setup.worker()
    job = setup.enqueue()
    setup.settle()
    setup.broker.succeed(setup.given()[0].attempt, b"result", setup.now)
    setup.settle()
    may_commit = threading.Event()
    real = writer.Writer._try

    def slow(self: writer.Writer, group: Any) -> str | None:
        may_commit.wait(20)
        return real(self, group)

    monkeypatch.setattr(writer.Writer, "_try", slow)
    again = setups()
    again.load()
    again.enqueue()
    again.runner.run_once()
    until(again.store._writer.queue.empty)
    found = again.broker.jobs[job.id]
    told: list[bytes] = []
    again.runner.store_access.fetch(found, lambda _, result, failure: told.append(bytes(result)))
    again.broker.job_registry.kept.erase(found)
    again.runner.run_once()
    may_commit.set()
    again.loop.run_until(lambda: told)
    assert told == [b"result"]


def test_attempts_and_history_survive(setups: Any) -> None:
    """R108."""
    setup = setups()
    setup.worker()
    job = setup.enqueue()
    setup.settle()
    setup.broker.fail(setup.given()[0].attempt, "no \ud800", setup.now)
    setup.settle()
    again = setups()
    again.load()
    found = again.broker.jobs[job.id]
    assert (found.spent, found.state, found.start_at) == (1, JobState.DELAYED, pytest.approx(job.start_at))
    [record] = found.history
    assert (record.number, record.worker, record.outcome) == (1, "w", Outcome.FAILED)
    [noted] = job.history
    assert (record.started, record.ended) == (
        pytest.approx(noted.started, abs=2e-3),
        pytest.approx(noted.ended, abs=2e-3),
    )


def test_job_that_ran_with_a_worker_that_cannot_come_back_has_lost_an_attempt(setups: Any) -> None:
    """R107."""
    setup = setups()
    setup.worker()
    job = setup.enqueue()
    setup.settle()
    again = setups()
    again.load()
    found = again.broker.jobs[job.id]
    assert (found.state, found.spent, found.deaths) == (JobState.DELAYED, 1, 1)


def test_worker_that_can_name_its_attempt_may_still_deliver(setups: Any) -> None:
    """R107."""
    setup = setups()
    setup.worker(can_resume=True)
    job = setup.enqueue()
    setup.settle()
    token = setup.given()[0].attempt.token
    again = setups()
    again.load()
    attempt = again.broker.attempts.resumable[token]
    assert (attempt.job.id, attempt.number, attempt.worker.name) == (job.id, 1, "w")
    again.broker.succeed(attempt, b"late", again.now)
    again.settle()
    assert again.broker.jobs[job.id].outcome is Outcome.DONE


def test_erased_job_is_gone_for_good(setups: Any) -> None:
    """R110."""
    setup = setups(outcome_retention=10.0)
    setup.worker()
    job = setup.enqueue()
    setup.settle()
    setup.broker.succeed(setup.given()[0].attempt, b"result", setup.now)
    setup.settle()
    setup.now += 11.0
    setup.runner.run_once()
    assert setup.broker.jobs == {}
    again = setups()
    again.load()
    assert job.id not in again.broker.jobs


def test_numbers_go_on_where_they_ended(setups: Any) -> None:
    setup = setups()
    numbers = [setup.enqueue().number for _ in range(3)]
    setup.settle()
    again = setups()
    again.load()
    assert again.enqueue().number > max(numbers)


def test_notes_survive_until_they_are_taken_back(setups: Any) -> None:
    setup = setups()
    setup.runner.store_access.note("pause/mail", "ann")
    setup.runner.store_access.note("cron/night", "{}")
    setup.settle()
    again = setups()
    assert again.notes == {"pause/mail": "ann", "cron/night": "{}"}
    service = again.broker.worker_registry.services["mail"]
    assert (service.paused, service.paused_by) == (True, "ann")
    again.runner.store_access.note("pause/mail", None)
    again.settle()
    assert setups().notes == {"cron/night": "{}"}


def test_jobs_come_back_in_batches_in_the_order_they_came(setups: Any) -> None:
    setup = setups()
    jobs = [setup.enqueue() for _ in range(25)]
    setup.settle()
    again = setups(limits=StoreLimits(load_batch=4, ballast=0))
    again.load()
    assert list(again.broker.jobs) == [job.id for job in jobs]
    assert [each.id for each in again.broker.worker_registry.services["s"].queue] == [job.id for job in jobs]


def test_jobs_that_come_while_others_come_back_are_accepted(setups: Any) -> None:
    setup = setups()
    for _ in range(10):
        setup.enqueue()
    setup.settle()
    again = setups(limits=StoreLimits(load_batch=2, ballast=0))
    again.restoring.start()
    again.loop.run_one()
    late = again.enqueue()
    again.runner.run_once()
    again.loop.run_until(lambda: again.is_loaded)
    again.settle()
    assert again.accepted() == [late.id]
    assert len(again.broker.jobs) == 11


def test_key_cannot_be_judged_while_jobs_come_back(setups: Any) -> None:
    """R24: the store may have the first job of this key; the caller must retry."""
    setup = setups()
    job = setup.enqueue(key="k")
    setup.settle()
    again = setups()
    assert again.broker.submit("s", b"x", again.caller, job.options, again.now, key="k") is None
    again.runner.run_once()
    assert [each.refusal for each in again.answers()] == [RefusalReason.BUSY]
    again.load()
    assert again.enqueue(key="k").id == job.id


def test_retry_of_a_job_of_an_earlier_run_has_its_payload(setups: Any) -> None:
    setup = setups()
    setup.worker()
    job = setup.enqueue(b"precious", attempts=1)
    setup.settle()
    setup.broker.fail(setup.given()[0].attempt, "no", setup.now)
    setup.settle()
    again = setups()
    again.load()
    retried = again.broker.operator.retry(again.broker.jobs[job.id], again.now)
    assert retried is not None
    again.settle()
    again.worker()
    again.runner.run_once()
    again.loop.run_until(lambda: again.runner.run_once() and again.given())
    assert again.given()[0].attempt.job.payload == b"precious"
    third = setups()
    third.load()
    assert third.broker.jobs[retried.id].retry_of == job.id
    assert (third.broker.jobs[job.id].quarantined, third.broker.jobs[job.id].retried_as) == (False, retried.id)


def test_retry_of_a_job_that_a_restart_put_into_quarantine_has_its_payload(setups: Any) -> None:
    """Before, its payload had not been loaded, and its place in the store was not known."""
    setup = setups()
    setup.worker()
    job = setup.enqueue(b"precious", attempts=1)
    setup.settle()
    again = setups()
    again.load()
    assert again.broker.jobs[job.id].quarantined
    retried = again.broker.operator.retry(again.broker.jobs[job.id], again.now)
    again.worker()
    again.settle()
    again.loop.run_until(lambda: again.runner.run_once() and again.given())
    assert (again.given()[0].attempt.job, retried.payload) == (retried, b"precious")


@pytest.mark.parametrize(("size", "left"), [(10_000, 0), (100, 100)])
def test_large_payload_goes_with_the_outcome(setups: Any, size: int, left: int) -> None:
    setup = setups()
    setup.worker()
    job = setup.enqueue(b"p" * size)
    setup.settle()
    setup.broker.succeed(setup.given()[0].attempt, b"result", setup.now)
    setup.settle()
    brought: list[tuple[bytes, bytes]] = []
    setup.store.fetch(job, lambda payload, result, _: brought.append((payload, result)))
    setup.loop.run_until(lambda: brought)
    assert (len(brought[0][0]), brought[0][1]) == (left, b"result")


def test_close_writes_what_was_asked_for(setups: Any) -> None:
    setup = setups()
    job = setup.enqueue()
    setup.runner.run_once()
    again = setups()  # closes the first without waiting for anything
    again.load()
    assert job.id in again.broker.jobs


def test_file_is_for_us_alone(setups: Any, tmp_path: Path) -> None:
    setups(limits=LIMITS)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "ballast": 0o600,
        "store.db": 0o600,
        "store.db-wal": 0o600,
    }


# -------------------------------------------------------------------- given back, released, not kept


def test_what_a_worker_gave_back_with_survives_a_restart(tmp_path: Path) -> None:
    """R133: the priority, and the delay of the job."""
    setup = Setup(tmp_path)
    setup.worker()
    job = setup.enqueue(b"payload", key="k")
    setup.settle()
    assert job.attempt is not None
    setup.broker.attempts.give_back(job.attempt, setup.now, delay=3_600.0, priority=8)
    setup = setup.restarted()
    (found,) = setup.broker.jobs.values()
    assert (found.id, found.options.priority, found.state, found.spent) == (job.id, 8, JobState.DELAYED, 0)
    assert (found.start_at, found.key) == (3_700.0, "k")
    setup.now = 3_700.0
    setup.worker()
    assert setup.given_payloads() == [b"payload"]
    setup.close()


def test_release_survives_a_restart(tmp_path: Path) -> None:
    """R135."""
    setup = Setup(tmp_path)
    setup.worker()
    job = setup.enqueue(b"payload", attempts=1)
    setup.settle()
    assert job.attempt is not None
    setup.broker.fail(job.attempt, "no", setup.now)
    setup = setup.restarted()
    (kept,) = setup.broker.jobs.values()
    assert kept.quarantined
    assert setup.broker.operator.release(kept, setup.now)
    setup = setup.restarted(now=300.0)
    (found,) = setup.broker.jobs.values()
    assert (found.id, found.state, found.quarantined, found.spent) == (job.id, JobState.WAITING, False, 0)
    assert [ending.reason for ending in found.history or ()] == ["no"]
    setup.worker()
    assert setup.given_payloads() == [b"payload"]
    setup.close()


def test_job_whose_outcome_is_not_kept_is_gone_from_the_store(tmp_path: Path) -> None:
    """R136."""
    setup = Setup(tmp_path)
    setup.worker()
    job = setup.enqueue(keep=0.0)
    setup.settle()
    assert job.attempt is not None
    setup.broker.succeed(job.attempt, b"result", setup.now)
    setup.settle()
    assert [bytes(answer.result) for answer in setup.answers()] == [b"result"]
    setup = setup.restarted()
    assert setup.broker.jobs == {}
    setup.close()


def test_job_that_is_retried_in_the_turn_in_which_it_failed_finds_its_payload(tmp_path: Path) -> None:
    """A bug: the store knew a job for quarantined only if it still was when its row was made, and ended the broker."""
    setup = Setup(tmp_path)
    setup.enqueue(b"payload", attempts=1)
    setup = setup.restarted()
    (job,) = setup.broker.jobs.values()
    setup.worker()
    assert job.attempt is not None
    setup.broker.fail(job.attempt, "no", setup.now)
    retried = setup.broker.operator.retry(job, setup.now)
    assert retried is not None
    assert setup.given_payloads() == [b"payload"]
    assert [give.attempt.job for give in setup.given()] == [retried]
    setup.close()


class PingPongWorkers(Side):
    dialect = "pingpong"


class HttpClient(Side):
    dialect = "http"


def test_attempts_and_their_job_keep_dialect_worker_and_caller(setups: Any) -> None:
    """After a restart, nobody knew which workers of which dialect had had a job, and who had submitted it."""
    setup = setups()
    setup.workers = PingPongWorkers()
    worker = setup.worker(can_resume=True)
    options = JobOptions(durable=True, waits=True, attempts=3, retry_first=0.0, retry_jitter=0.0)
    caller = HttpClient(Owner(LOCAL_OWNER.principal, address="192.0.2.7"))
    job = setup.broker.submit("s", b"x", caller, options, setup.now, extras=JobExtras(tenant="t"))
    plain = setup.broker.submit("t", b"x", caller, options, setup.now)
    setup.settle()
    setup.broker.fail(job.attempt, "no", setup.now)
    setup.now += 1.0
    setup.settle()
    before = job_view(job, WALL)
    assert [each.dialect for each in before.attempts] == ["pingpong"] * 2
    for _ in range(2):  # what was restored is stored again
        setup = setups(now=setup.now)
        setup.load()
        view = job_view(setup.broker.jobs[job.id], WALL)
        assert view.attempts == before.attempts
        assert (view.tenant, view.caller) == ("t", CallerView(dialect="http", address="192.0.2.7"))
        assert job_view(setup.broker.jobs[plain.id], WALL).caller == view.caller
        setup.broker.job_registry.pending_commits.save(setup.broker.jobs[job.id], rewrites=True)
        setup.settle()
    setup.now += 2 * setup.broker.policy.worker_resume_timeout
    setup.settle()
    ends = [(each.dialect, each.worker_id) for each in setup.broker.jobs[job.id].history]
    assert ends == [("pingpong", worker.id)] * 2
