"""A disk that is full, read-only, or failing: R101, R104."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from dragoman.core.effects import DeliverOutcome
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.options import JobOptions
from dragoman.core.states import JobState, Outcome, RefusalReason
from dragoman.store import writer
from dragoman.store.ballast import Ballast
from dragoman.store.limits import StoreLimits

from .disk import Disk
from .world import LIMITS, Setup, until


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk("a bad disk")
    yield disk
    disk.unregister()


@pytest.fixture
def setup(tmp_path: Path, disk: Disk) -> Iterator[Setup]:
    setup = Setup(tmp_path, LIMITS, vfs=disk.name)
    yield setup
    setup.close()


def fails(code: int, while_: Any = lambda: True) -> Any:
    def look() -> None:
        if while_():
            raise apsw.exception_for(code)

    return look


def works() -> None:
    pass


def saved_outcomes(folder: Path) -> list[str]:
    """As the next broker finds them."""
    again = Setup(folder, LIMITS, seed="another")
    again.load()
    found = [str(job.outcome) for job in again.broker.jobs.values()]
    again.close()
    return found


PASSING = {
    "full": (apsw.SQLITE_FULL, "the disk is full"),
    "read-only": (apsw.SQLITE_READONLY, "the store's file is read-only"),
}


@pytest.mark.parametrize("kind", PASSING)
def test_new_jobs_are_refused_and_calls_go_on(setup: Setup, disk: Disk, kind: str) -> None:
    code, sentence = PASSING[kind]
    setup.worker()
    setup.settle()
    disk.before_write = fails(code)
    setup.enqueue()
    setup.settle()
    [refused] = setup.answers()
    assert (refused.outcome, refused.refusal, refused.reason) == (
        Outcome.REFUSED,
        RefusalReason.STORE_UNAVAILABLE,
        f"store unavailable: {sentence}",
    )
    assert (setup.broker.jobs, setup.store.problem, setup.failures) == ({}, sentence, [])
    call = setup.broker.submit("s", b"call", setup.caller, JobOptions(), setup.now)
    assert call is not None
    assert call.state is JobState.RUNNING


@pytest.mark.parametrize("kind", PASSING)
def test_all_is_well_again_when_the_disk_is(setup: Setup, disk: Disk, kind: str) -> None:
    disk.before_write = fails(PASSING[kind][0])
    setup.enqueue()
    setup.settle()
    disk.before_write = works
    until(lambda: setup.store.problem is None)
    job = setup.enqueue()
    setup.settle()
    assert setup.accepted() == [job.id]


def test_while_there_is_trouble_new_jobs_do_not_touch_the_disk(tmp_path: Path, disk: Disk) -> None:
    setup = Setup(tmp_path, StoreLimits(ballast=0, retry=3_600.0), vfs=disk.name)
    disk.before_write = fails(apsw.SQLITE_FULL)
    setup.enqueue()
    setup.settle()
    tries: list[None] = []
    disk.before_write = lambda: tries.append(None)
    for _ in range(5):
        setup.enqueue()
    setup.settle()
    assert (len(setup.answers()), tries) == (6, [])
    setup.close()


@pytest.mark.parametrize("kind", PASSING)
def test_what_happened_meanwhile_is_told_at_once_and_written_when_it_can_be(
    setup: Setup, disk: Disk, tmp_path: Path, kind: str
) -> None:
    """I4, R101: a caller need not wait for the disk, and the outcome is not lost."""
    setup.worker(capacity=5)
    for _ in range(5):
        setup.enqueue()
    setup.settle()
    disk.before_write = fails(PASSING[kind][0])
    for give in setup.given():
        setup.broker.succeed(give.attempt, b"result", setup.now)
        setup.settle()
    assert [each.outcome for each in setup.answers()] == [Outcome.DONE] * 5
    disk.before_write = works
    until(lambda: setup.store.problem is None)
    setup.close()
    assert saved_outcomes(tmp_path) == ["done"] * 5


@pytest.mark.parametrize("with_a_new_job", [False, True])
def test_attempt_that_cannot_be_written_is_sent_when_the_disk_works_again(
    setup: Setup, disk: Disk, with_a_new_job: bool
) -> None:
    """R101, R108: nothing else has to happen for that, and a job that is refused beside it makes no difference."""
    setup.enqueue()
    setup.settle()
    disk.before_write = fails(apsw.SQLITE_FULL)
    setup.worker()
    if with_a_new_job:
        setup.enqueue()
    setup.settle()
    assert setup.given() == []
    disk.before_write = works
    setup.loop.run_until(lambda: setup.runner.run_once() and setup.given())
    assert [each.attempt.number for each in setup.given()] == [1]


def test_what_could_not_be_written_is_tried_once_more_at_the_end(setup: Setup, disk: Disk, tmp_path: Path) -> None:
    setup.worker()
    setup.enqueue()
    setup.settle()
    disk.before_write = fails(apsw.SQLITE_FULL)
    setup.broker.succeed(setup.given()[0].attempt, b"result", setup.now)
    setup.settle()
    disk.before_write = works
    assert setup.store.close() is None
    assert saved_outcomes(tmp_path) == ["done"]


def test_what_could_not_be_written_to_the_end_is_said(setup: Setup, disk: Disk) -> None:
    """An outcome was delivered that is not stored: `close` must report that."""
    setup.worker()
    setup.enqueue()
    setup.settle()
    disk.before_write = fails(apsw.SQLITE_FULL)
    setup.broker.succeed(setup.given()[0].attempt, b"result", setup.now)
    setup.settle()
    assert setup.store.close() == "the disk is full"
    disk.before_write = works


def test_ballast_is_given_up_for_outcomes(tmp_path: Path, disk: Disk) -> None:
    """The room that it took is enough for what must be written; new jobs do not get it."""
    setup = Setup(tmp_path, StoreLimits(ballast=65_536, retry=3_600.0), vfs=disk.name)
    setup.worker()
    setup.enqueue()
    setup.settle()
    ballast = tmp_path / "ballast"
    assert ballast.stat().st_blocks * 512 >= 65_536, "it has no holes"
    disk.before_write = fails(apsw.SQLITE_FULL, ballast.exists)
    setup.broker.succeed(setup.given()[0].attempt, b"result", setup.now)
    setup.settle()
    setup.enqueue()
    setup.settle()
    assert not ballast.exists()
    assert [each.outcome for each in setup.answers()] == [Outcome.DONE, Outcome.REFUSED]
    setup.close()
    assert saved_outcomes(tmp_path) == ["done"]


def test_ballast_is_made_again_when_there_is_room(setup: Setup, disk: Disk, tmp_path: Path) -> None:
    disk.before_write = fails(apsw.SQLITE_FULL)
    setup.enqueue()
    setup.settle()
    assert not (tmp_path / "ballast").exists()
    disk.before_write = works
    until(lambda: setup.store.problem is None)
    assert (tmp_path / "ballast").stat().st_size == LIMITS.ballast


def test_a_start_on_a_full_disk_takes_the_room_of_the_ballast(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another release signs the file before anything else. New jobs are refused until there is room for a ballast."""
    Setup(tmp_path, vfs=disk.name, author="older").close()
    ballast = tmp_path / "ballast"
    assert ballast.exists()
    monkeypatch.setattr(Ballast, "_free", lambda _: LIMITS.ballast)
    disk.before_write = fails(apsw.SQLITE_FULL, ballast.exists)
    setup = Setup(tmp_path, vfs=disk.name)
    assert setup.store.problem == "the disk is full"
    setup.enqueue()
    setup.settle()
    assert [each.outcome for each in setup.answers()] == [Outcome.REFUSED]
    assert not ballast.exists()
    disk.before_write = works
    monkeypatch.setattr(Ballast, "_free", lambda _: 2 * LIMITS.ballast)
    until(lambda: setup.store.problem is None)
    assert ballast.exists()
    setup.close()


def test_a_disk_that_is_too_small_for_a_ballast_is_not_full_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ballast, "_free", lambda _: 2 * LIMITS.ballast - 1)
    setup = Setup(tmp_path)
    assert setup.store.problem is None
    assert not (tmp_path / "ballast").exists()
    setup.close()


def test_job_that_was_cancelled_before_it_was_refused_leaves_nothing(setup: Setup, disk: Disk, tmp_path: Path) -> None:
    disk.before_write = fails(apsw.SQLITE_FULL)
    job = setup.enqueue()
    setup.runner.run_once()
    setup.broker.withdraw(job, setup.now)
    setup.settle()
    assert [each.outcome for each in setup.answers()] == [Outcome.CANCELLED]
    disk.before_write = works
    until(lambda: setup.store.problem is None)
    setup.close()
    assert saved_outcomes(tmp_path) == []


def test_full_disk_is_noticed_by_erasures_that_waited_for_the_check(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R101. It was not noticed: no checkpoint was made any more, however much room there was later."""
    may_check = threading.Event()
    real = writer.check_file
    monkeypatch.setattr(writer, "check_file", lambda *facts: real(*facts) if may_check.is_set() else None)
    limits = StoreLimits(ballast=0, check_budget=-1.0, retry=0.01, idle=0.001)
    setup = Setup(tmp_path, limits, vfs=disk.name, outcome_retention=10.0)
    setup.broker.withdraw(setup.enqueue(), setup.now)
    setup.settle()
    setup.now += 11.0
    setup.settle()
    until(lambda: not setup.store._writer._log_pages)
    disk.before_write = fails(apsw.SQLITE_FULL)
    may_check.set()
    until(lambda: setup.store.problem == "the disk is full")
    disk.before_write = works
    until(lambda: setup.store.problem is None)
    assert not setup.store._writer._is_stuck
    setup.close()


def test_file_that_has_reached_its_bound_takes_no_new_jobs(tmp_path: Path) -> None:
    """L21. Those that end make room."""
    setup = Setup(
        tmp_path, StoreLimits(ballast=0, max_store_size=400_000, retry=0.01, idle=0.001), outcome_retention=10.0
    )
    setup.worker(capacity=100)
    while setup.store.problem is None:
        setup.enqueue(b"x" * 50_000)
        setup.settle()
    assert setup.store.problem == "the store takes 400000 bytes, the maximum (max_store_size)"
    setup.enqueue()
    setup.settle()
    assert {each.refusal for each in setup.answers()} == {
        RefusalReason.STORE_UNAVAILABLE
    }  # one may have met the bound before
    for give in setup.given():
        setup.broker.succeed(give.attempt, b"", setup.now)
    setup.settle()
    until(lambda: setup.store.problem is None)
    setup.close()


def test_jobs_that_end_and_are_erased_make_room_on_a_full_disk(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R101, R110. A bug: the write that checks each second for free space kept the store from freeing any."""
    limits = StoreLimits(ballast=200_000, retry=0.005, idle=0.005, busy_wal=200_000)
    monkeypatch.setattr(Ballast, "has_room", lambda _: disk.room(tmp_path) >= 2 * limits.ballast)
    disk.capacity = 3_000_000
    setup = Setup(tmp_path, limits, vfs=disk.name, outcome_retention=10.0)
    setup.worker(capacity=10_000)
    while setup.store.problem is None:
        setup.enqueue(b"x" * 3_000)
        setup.settle()
    for give in setup.given():
        setup.broker.succeed(give.attempt, b"result", setup.now)
    setup.settle()
    assert len([each for each in setup.answers() if each.outcome is Outcome.DONE]) == len(setup.accepted()) > 100
    setup.now += 11.0
    setup.settle()
    until(lambda: setup.store.problem is None)
    assert (tmp_path / "ballast").exists()
    setup.close()


BREAKING = {
    "a sync that fails": ("before_sync", apsw.SQLITE_IOERR_FSYNC),
    "a write that fails": ("before_write", apsw.SQLITE_IOERR_WRITE),
    "damage": ("before_write", apsw.SQLITE_CORRUPT),
}


@pytest.mark.parametrize("kind", BREAKING)
def test_disk_that_fails_stops_everything(setup: Setup, disk: Disk, kind: str) -> None:
    """R104: no acknowledgement, no second try."""
    moment, code = BREAKING[kind]
    setattr(disk, moment, fails(code))
    setup.enqueue()
    setup.runner.run_once()
    setup.loop.run_until(lambda: setup.failures)
    setattr(disk, moment, works)
    setup.enqueue()
    setup.runner.run_once()
    setup.close()
    setup.loop.run_rest()
    setup.runner.run_once()
    assert setup.caller.of(Acknowledge, DeliverOutcome) == []
    assert len(setup.failures) == 1
    assert setup.store.problem == setup.failures[0]
    assert "failed" in setup.failures[0] or "dragoman store recover" in setup.failures[0]


def test_restart_after_a_failure_finds_what_was_acknowledged(setup: Setup, disk: Disk, tmp_path: Path) -> None:
    kept = setup.enqueue()
    setup.settle()
    disk.before_sync = fails(apsw.SQLITE_IOERR_FSYNC)
    setup.enqueue()
    setup.runner.run_once()
    setup.loop.run_until(lambda: setup.failures)
    disk.before_sync = works
    setup.close()
    again = Setup(tmp_path, LIMITS)
    again.load()
    assert kept.id in again.broker.jobs
    again.close()
