"""A disk that is full, read-only, or failing: R101, R104."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from dragoman.core.effects import Acknowledge, DeliverOutcome
from dragoman.core.options import JobOptions
from dragoman.core.states import JobState, Outcome, RefusalReason
from dragoman.store import writer
from dragoman.store.ballast import Ballast
from dragoman.store.limits import StoreLimits

from .disk import Disk
from .world import LIMITS, House, until


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk("a bad disk")
    yield disk
    disk.unregister()


@pytest.fixture
def house(tmp_path: Path, disk: Disk) -> Iterator[House]:
    house = House(tmp_path, LIMITS, vfs=disk.name)
    yield house
    house.close()


def fails(code: int, while_: Any = lambda: True) -> Any:
    def look() -> None:
        if while_():
            raise apsw.exception_for(code)

    return look


def works() -> None:
    pass


def saved_outcomes(folder: Path) -> list[str]:
    """As the next broker finds them."""
    again = House(folder, LIMITS, seed="another")
    again.load()
    found = [str(job.outcome) for job in again.broker.jobs.values()]
    again.close()
    return found


PASSING = {
    "full": (apsw.SQLITE_FULL, "the disk is full"),
    "read-only": (apsw.SQLITE_READONLY, "the store's file is read-only"),
}


@pytest.mark.parametrize("kind", PASSING)
def test_new_jobs_are_refused_and_calls_go_on(house: House, disk: Disk, kind: str) -> None:
    code, sentence = PASSING[kind]
    house.worker()
    house.settle()
    disk.before_write = fails(code)
    house.enqueue()
    house.settle()
    [refused] = house.answers()
    assert (refused.outcome, refused.refusal, refused.reason) == (
        Outcome.REFUSED,
        RefusalReason.STORE_UNAVAILABLE,
        f"store unavailable: {sentence}",
    )
    assert (house.broker.jobs, house.store.problem, house.failures) == ({}, sentence, [])
    call = house.broker.submit("s", b"call", house.caller, JobOptions(), house.now)
    assert call is not None
    assert call.state is JobState.RUNNING


@pytest.mark.parametrize("kind", PASSING)
def test_all_is_well_again_when_the_disk_is(house: House, disk: Disk, kind: str) -> None:
    disk.before_write = fails(PASSING[kind][0])
    house.enqueue()
    house.settle()
    disk.before_write = works
    until(lambda: house.store.problem is None)
    job = house.enqueue()
    house.settle()
    assert house.accepted() == [job.id]


def test_while_there_is_trouble_new_jobs_do_not_touch_the_disk(tmp_path: Path, disk: Disk) -> None:
    house = House(tmp_path, StoreLimits(ballast=0, retry=3_600.0), vfs=disk.name)
    disk.before_write = fails(apsw.SQLITE_FULL)
    house.enqueue()
    house.settle()
    tries: list[None] = []
    disk.before_write = lambda: tries.append(None)
    for _ in range(5):
        house.enqueue()
    house.settle()
    assert (len(house.answers()), tries) == (6, [])
    house.close()


@pytest.mark.parametrize("kind", PASSING)
def test_what_happened_meanwhile_is_told_at_once_and_written_when_it_can_be(
    house: House, disk: Disk, tmp_path: Path, kind: str
) -> None:
    """I4, R101: a caller need not wait for the disk, and the outcome is not lost."""
    house.worker(capacity=5)
    for _ in range(5):
        house.enqueue()
    house.settle()
    disk.before_write = fails(PASSING[kind][0])
    for give in house.given():
        house.broker.succeed(give.attempt, b"result", house.now)
        house.settle()
    assert [each.outcome for each in house.answers()] == [Outcome.DONE] * 5
    disk.before_write = works
    until(lambda: house.store.problem is None)
    house.close()
    assert saved_outcomes(tmp_path) == ["done"] * 5


@pytest.mark.parametrize("with_a_new_job", [False, True])
def test_attempt_that_cannot_be_written_is_sent_when_the_disk_works_again(
    house: House, disk: Disk, with_a_new_job: bool
) -> None:
    """R101, R108: nothing else has to happen for that, and a job that is refused beside it makes no difference."""
    house.enqueue()
    house.settle()
    disk.before_write = fails(apsw.SQLITE_FULL)
    house.worker()
    if with_a_new_job:
        house.enqueue()
    house.settle()
    assert house.given() == []
    disk.before_write = works
    house.loop.run_until(lambda: house.runner.run_once() and house.given())
    assert [each.attempt.number for each in house.given()] == [1]


def test_what_could_not_be_written_is_tried_once_more_at_the_end(house: House, disk: Disk, tmp_path: Path) -> None:
    house.worker()
    house.enqueue()
    house.settle()
    disk.before_write = fails(apsw.SQLITE_FULL)
    house.broker.succeed(house.given()[0].attempt, b"result", house.now)
    house.settle()
    disk.before_write = works
    assert house.store.close() is None
    assert saved_outcomes(tmp_path) == ["done"]


def test_what_could_not_be_written_to_the_end_is_said(house: House, disk: Disk) -> None:
    """An outcome was delivered that is not stored: `close` must report that."""
    house.worker()
    house.enqueue()
    house.settle()
    disk.before_write = fails(apsw.SQLITE_FULL)
    house.broker.succeed(house.given()[0].attempt, b"result", house.now)
    house.settle()
    assert house.store.close() == "the disk is full"
    disk.before_write = works


def test_ballast_is_given_up_for_outcomes(tmp_path: Path, disk: Disk) -> None:
    """The room that it took is enough for what must be written; new jobs do not get it."""
    house = House(tmp_path, StoreLimits(ballast=65_536, retry=3_600.0), vfs=disk.name)
    house.worker()
    house.enqueue()
    house.settle()
    ballast = tmp_path / "ballast"
    assert ballast.stat().st_blocks * 512 >= 65_536, "it has no holes"
    disk.before_write = fails(apsw.SQLITE_FULL, ballast.exists)
    house.broker.succeed(house.given()[0].attempt, b"result", house.now)
    house.settle()
    house.enqueue()
    house.settle()
    assert not ballast.exists()
    assert [each.outcome for each in house.answers()] == [Outcome.DONE, Outcome.REFUSED]
    house.close()
    assert saved_outcomes(tmp_path) == ["done"]


def test_ballast_is_made_again_when_there_is_room(house: House, disk: Disk, tmp_path: Path) -> None:
    disk.before_write = fails(apsw.SQLITE_FULL)
    house.enqueue()
    house.settle()
    assert not (tmp_path / "ballast").exists()
    disk.before_write = works
    until(lambda: house.store.problem is None)
    assert (tmp_path / "ballast").stat().st_size == LIMITS.ballast


def test_a_start_on_a_full_disk_takes_the_room_of_the_ballast(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another release signs the file before anything else. New jobs are refused until there is room for a ballast."""
    House(tmp_path, vfs=disk.name, author="older").close()
    ballast = tmp_path / "ballast"
    assert ballast.exists()
    monkeypatch.setattr(Ballast, "_free", lambda _: LIMITS.ballast)
    disk.before_write = fails(apsw.SQLITE_FULL, ballast.exists)
    house = House(tmp_path, vfs=disk.name)
    assert house.store.problem == "the disk is full"
    house.enqueue()
    house.settle()
    assert [each.outcome for each in house.answers()] == [Outcome.REFUSED]
    assert not ballast.exists()
    disk.before_write = works
    monkeypatch.setattr(Ballast, "_free", lambda _: 2 * LIMITS.ballast)
    until(lambda: house.store.problem is None)
    assert ballast.exists()
    house.close()


def test_a_disk_that_is_too_small_for_a_ballast_is_not_full_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ballast, "_free", lambda _: 2 * LIMITS.ballast - 1)
    house = House(tmp_path)
    assert house.store.problem is None
    assert not (tmp_path / "ballast").exists()
    house.close()


def test_job_that_was_cancelled_before_it_was_refused_leaves_nothing(house: House, disk: Disk, tmp_path: Path) -> None:
    disk.before_write = fails(apsw.SQLITE_FULL)
    job = house.enqueue()
    house.runner.run_once()
    house.broker.withdraw(job, house.now)
    house.settle()
    assert [each.outcome for each in house.answers()] == [Outcome.CANCELLED]
    disk.before_write = works
    until(lambda: house.store.problem is None)
    house.close()
    assert saved_outcomes(tmp_path) == []


def test_full_disk_is_noticed_by_erasures_that_waited_for_the_check(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R101. It was not noticed: no checkpoint was made any more, however much room there was later."""
    may_check = threading.Event()
    real = writer.check_file
    monkeypatch.setattr(writer, "check_file", lambda *facts: real(*facts) if may_check.is_set() else None)
    limits = StoreLimits(ballast=0, check_budget=-1.0, retry=0.01, idle=0.001)
    house = House(tmp_path, limits, vfs=disk.name, outcome_retention=10.0)
    house.broker.withdraw(house.enqueue(), house.now)
    house.settle()
    house.now += 11.0
    house.settle()
    until(lambda: not house.store._writer._log_pages)
    disk.before_write = fails(apsw.SQLITE_FULL)
    may_check.set()
    until(lambda: house.store.problem == "the disk is full")
    disk.before_write = works
    until(lambda: house.store.problem is None)
    assert not house.store._writer._is_stuck
    house.close()


def test_file_that_has_reached_its_bound_takes_no_new_jobs(tmp_path: Path) -> None:
    """L21. Those that end make room."""
    house = House(
        tmp_path, StoreLimits(ballast=0, max_store_size=400_000, retry=0.01, idle=0.001), outcome_retention=10.0
    )
    house.worker(capacity=100)
    while house.store.problem is None:
        house.enqueue(b"x" * 50_000)
        house.settle()
    assert house.store.problem == "the store takes 400000 bytes, the maximum (max_store_size)"
    house.enqueue()
    house.settle()
    assert {each.refusal for each in house.answers()} == {
        RefusalReason.STORE_UNAVAILABLE
    }  # one may have met the bound before
    for give in house.given():
        house.broker.succeed(give.attempt, b"", house.now)
    house.settle()
    until(lambda: house.store.problem is None)
    house.close()


def test_jobs_that_end_and_are_erased_make_room_on_a_full_disk(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R101, R110. A bug: the write that checks each second for free space kept the store from freeing any."""
    limits = StoreLimits(ballast=200_000, retry=0.005, idle=0.005, busy_wal=200_000)
    monkeypatch.setattr(Ballast, "has_room", lambda _: disk.room(tmp_path) >= 2 * limits.ballast)
    disk.capacity = 3_000_000
    house = House(tmp_path, limits, vfs=disk.name, outcome_retention=10.0)
    house.worker(capacity=10_000)
    while house.store.problem is None:
        house.enqueue(b"x" * 3_000)
        house.settle()
    for give in house.given():
        house.broker.succeed(give.attempt, b"result", house.now)
    house.settle()
    assert len([each for each in house.answers() if each.outcome is Outcome.DONE]) == len(house.accepted()) > 100
    house.now += 11.0
    house.settle()
    until(lambda: house.store.problem is None)
    assert (tmp_path / "ballast").exists()
    house.close()


BREAKING = {
    "a sync that fails": ("before_sync", apsw.SQLITE_IOERR_FSYNC),
    "a write that fails": ("before_write", apsw.SQLITE_IOERR_WRITE),
    "damage": ("before_write", apsw.SQLITE_CORRUPT),
}


@pytest.mark.parametrize("kind", BREAKING)
def test_disk_that_fails_stops_everything(house: House, disk: Disk, kind: str) -> None:
    """R104: no acknowledgement, no second try."""
    moment, code = BREAKING[kind]
    setattr(disk, moment, fails(code))
    house.enqueue()
    house.runner.run_once()
    house.loop.run_until(lambda: house.failures)
    setattr(disk, moment, works)
    house.enqueue()
    house.runner.run_once()
    house.close()
    house.loop.run_rest()
    house.runner.run_once()
    assert house.caller.of(Acknowledge, DeliverOutcome) == []
    assert len(house.failures) == 1
    assert house.store.problem == house.failures[0]
    assert "failed" in house.failures[0] or "dragoman store recover" in house.failures[0]


def test_restart_after_a_failure_finds_what_was_acknowledged(house: House, disk: Disk, tmp_path: Path) -> None:
    kept = house.enqueue()
    house.settle()
    disk.before_sync = fails(apsw.SQLITE_IOERR_FSYNC)
    house.enqueue()
    house.runner.run_once()
    house.loop.run_until(lambda: house.failures)
    disk.before_sync = works
    house.close()
    again = House(tmp_path, LIMITS)
    again.load()
    assert kept.id in again.broker.jobs
    again.close()
