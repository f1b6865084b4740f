"""Operations on schedules, and the jobs of their runs."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf
from typing import Any

from dragoman.operations.schedule_state import Schedule, ScheduleState
from dragoman.operations.schemas import ScheduleRequest

from .world import WALL, World


def test_schedule_enqueues_jobs_again_and_again(world: World) -> None:
    world.worker()
    assert world.ask("set schedule", b"tick", name="n", service="s", every=10.0).runs == 0
    world.wait(25.0)
    view = world.ask("schedule", name="n")
    assert (view.runs + view.skipped, view.last_job in {job.id.hex() for job in world.broker.jobs.values()}) == (
        2,
        True,
    )
    assert [job.payload for job in world.broker.jobs.values()] == [b"tick"]
    assert list(world.store.notes) == ["cron/n"]
    assert [each.name for each in world.ask("schedules").schedules] == ["n"]
    assert world.ask("pause schedule", name="n").paused
    assert not world.ask("resume schedule", name="n").paused
    world.ask("delete schedule", name="n")
    assert (world.store.notes, world.ask("schedule", name="n").kind) == ({}, "not found")


def test_schedules_that_come_from_another_broker_run_at_once(world: World) -> None:
    """They waited until something else was due at the operations, in the worst case a minute."""
    other = World()
    other.ask("set schedule", b"tick", name="n", service="s", every=10.0)
    world.wait(5.0)
    world.operations.load_schedules(other.store.notes, world.now)
    world.wait(5.5)
    assert [job.payload for job in world.broker.jobs.values()] == [b"tick"]


def test_run_and_what_is_noted_of_it_are_one_transaction(world: World) -> None:
    world.ask("set schedule", name="n", service="s", every=10.0)
    applied: list[list[str]] = []
    apply = world.store.apply

    def watch(entries: Any, done: Any) -> None:
        applied.append([type(each).__name__ for each in entries])
        apply(entries, done)

    world.store.apply = watch  # type: ignore[method-assign]
    world.wait(10.0)
    assert applied == [["StoreJob", "StoreValue"]]


def test_run_that_a_full_disk_refuses_is_made_when_there_is_room(world: World) -> None:
    """A bug: the run had been counted and stored as made, so it was lost."""
    world.ask("set schedule", name="n", service="s", every=10.0)
    world.store.problem = "the disk is full"
    world.wait(12.0)
    assert world.broker.jobs == {}
    assert world.ask("schedule", name="n").runs == 0
    world.store.problem = None
    world.wait(1.5)
    (job,) = world.broker.jobs.values()
    view = world.ask("schedule", name="n")
    assert (view.runs, view.last_job) == (1, job.id.hex())
    assert view.last == datetime.fromtimestamp(WALL + 1_010.0, UTC)
    world.wait(10.0)
    assert world.ask("schedule", name="n").skipped == 1


def test_a_job_runs_for_sixty_seconds_at_most_unless_it_says_otherwise(world: World) -> None:
    """A bug: None meant 60 seconds, so that there was no way to set no limit."""
    assert world.job(world.enqueue()).options.job_timeout == 60.0
    assert world.job(world.enqueue(timeout=86_400.0)).options.job_timeout == 86_400.0
    assert world.job(world.enqueue(timeout=None)).options.job_timeout == inf


def test_a_schedule_ends_its_search_for_the_next_run_at_any_time() -> None:
    """An interval that is smaller than the precision of the time never led to a later time, and the search went on."""
    request = ScheduleRequest(name="n", service="s", every=1.0)
    schedule = Schedule(ScheduleState(request=request, start=0.0, since=0.0, decided=0.0))
    assert [schedule.next(each) for each in (0.0, 0.5, 1.0, 1e9, -5.5)] == [1.0, 1.0, 2.0, 1e9 + 1.0, -5.0]
    assert schedule.next(1e300) == inf
