"""Runs of schedules: on request, the letters of the latest ones, and the time that they took."""

from __future__ import annotations

import msgspec

from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.operations.schedule_runs import MOST_RECENT, RecentRuns
from dragoman.operations.scheduler import ScheduleState

from .world import World


def finish(world: World, name: str, *, after: float = 0.0, fails: bool = False) -> None:
    world.wait(after)
    attempt = world.attempt(name)
    if fails:
        world.broker.fail(attempt, "no", world.now)
    else:
        world.broker.succeed(attempt, b"", world.now)
    world.runner.run_once()


def run(world: World, name: str = "n") -> str:
    job: str = world.ask("run schedule", name=name).last_job
    return job


def test_run_on_request_makes_a_job_and_moves_no_scheduled_run(world: World) -> None:
    world.worker()
    set_up = world.ask("set schedule", b"tick", name="n", service="s", every=10.0, paused=True)
    world.wait(3.0)
    view = world.ask("run schedule", name="n")
    assert (view.runs, view.next, view.paused) == (1, set_up.next, True)
    job = world.job(view.last_job)
    assert (job.payload, job.options.durable, job.caller_dialect) == (b"tick", True, "schedule")


def test_scheduled_time_stays_and_its_run_is_made(world: World) -> None:
    world.worker()
    due = world.ask("set schedule", name="n", service="s", every=10.0).next
    world.wait(3.0)
    finish(world, run(world))
    assert world.ask("schedule", name="n").next == due
    world.wait(7.0)
    assert world.ask("schedule", name="n").runs == 2


def test_run_on_request_is_a_conflict_while_the_last_job_has_not_ended(world: World) -> None:
    world.worker(capacity=3)
    world.ask("set schedule", name="n", service="s", every=1_000.0)
    first = run(world)
    refused = world.ask("run schedule", name="n")
    assert (refused.kind, first in refused.detail) == ("conflict", True)
    world.ask("set schedule", name="n", service="s", every=1_000.0, overlap=True)
    assert run(world) != first


def test_run_on_request_needs_the_right_of_the_owner_and_room_for_a_job() -> None:
    world = World(max_jobs=1)
    world.broker.principals.apply({"web": (Rights(call=("s",)), NO_LIMITS)})
    world.act_as("web")
    world.ask("set schedule", name="n", service="s", every=1_000.0, overlap=True)
    run(world)
    assert world.ask("run schedule", name="n").kind == "busy"
    world.broker.principals.apply({"web": (Rights(), NO_LIMITS)})
    assert world.ask("run schedule", name="n").kind == "forbidden"
    assert world.ask("run schedule", name="m").kind == "not found"


def test_every_run_leaves_a_letter_when_it_ends(world: World) -> None:
    world.worker()
    world.ask("set schedule", name="n", service="s", every=10.0, attempts=1)
    finish(world, run(world), after=2.0)
    assert (world.ask("schedule", name="n").recent, world.ask("schedule", name="n").last_took) == ("d", 2.0)
    finish(world, run(world), fails=True)
    world.wait(8.0)  # a scheduled run, which is running when the next is due
    world.wait(10.0)
    view = world.ask("schedule", name="n")
    assert (view.recent, view.skipped) == ("dfs", 1)
    world.ask("cancel", id=view.last_job)
    assert world.ask("schedule", name="n").recent == "dfsc"
    stored = msgspec.json.decode(world.store.notes["cron/n"], type=ScheduleState)
    assert (stored.recent.letters, stored.recent.open) == ("dfsc", [])
    assert world.ask("schedule", name="n").says == "every 10 seconds"


def test_end_of_a_run_of_an_earlier_broker_is_looked_up(world: World) -> None:
    """After a restart no request waits for the job."""
    world.worker()
    world.ask("set schedule", name="n", service="s", every=10.0, overlap=True)
    known, gone = run(world), run(world)
    job = world.job(known)
    job.callers = ()
    finish(world, known, after=3.0)
    schedule = world.operations.scheduler.find("n")
    assert (schedule.stored.recent.letters, schedule.stored.recent.open) == ("", [known, gone])
    assert world.ask("schedule", name="n").recent == "d"
    world.job(gone).callers = ()
    world.ask("cancel", id=gone)
    world.broker.job_registry.kept.erase(world.job(gone))
    run(world)
    assert (schedule.stored.recent.letters, len(schedule.stored.recent.open)) == ("d", 1)


def test_state_of_an_earlier_release_has_no_runs_and_letters_are_bounded() -> None:
    state = {"form": {"name": "n", "service": "s", "every": 5.0}, "start": 1.0, "since": 1.0, "decided": 1.0}
    read = msgspec.json.decode(msgspec.json.encode(state), type=ScheduleState)
    assert read.recent == RecentRuns()
    for _ in range(2 * MOST_RECENT):
        read.recent.skip()
    assert read.recent.letters == "s" * MOST_RECENT
