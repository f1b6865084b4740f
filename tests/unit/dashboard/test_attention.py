"""Findings that need attention: when they appear and disappear, and in which order."""

from __future__ import annotations

from typing import Any

from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.dashboard.attention import Attention, Finding
from dragoman.operations.dashboard_schemas import AboutView
from dragoman.operations.schemas import ScheduleRequest
from owners import LOCAL_OWNER
from scraped import Dialect

from .world import WALL, World


def finding(kind: str = "backlog", level: Any = "warning", **fields: Any) -> Finding:
    return Finding(kind, level, AboutView(service="s"), f"{kind} of s", "Add workers.", ("s",), **fields)


def shown(attention: Attention) -> list[str]:
    return [each.finding.kind for each in attention.standing]


def test_a_finding_appears_after_5_seconds_and_keeps_its_begin() -> None:
    attention = Attention()
    for now, kinds in ((100.0, []), (102.0, []), (104.0, []), (106.0, ["backlog"]), (108.0, ["backlog"])):
        attention.update([finding()], now)
        assert shown(attention) == kinds
    assert attention.standing[0].since == 100.0


def test_a_finding_disappears_10_seconds_after_its_end() -> None:
    attention = Attention()
    for now in (100.0, 102.0, 106.0):
        attention.update([finding()], now)
    for now, kinds in ((108.0, ["backlog"]), (114.0, ["backlog"]), (116.0, [])):
        attention.update([], now)
        assert shown(attention) == kinds


def test_a_finding_that_comes_and_goes_never_appears() -> None:
    attention = Attention()
    for now in range(100, 140, 4):
        attention.update([finding()], float(now))
        attention.update([], float(now + 2))
        assert shown(attention) == []


def test_a_finding_that_is_over_for_a_moment_keeps_its_begin() -> None:
    attention = Attention()
    for now in (100.0, 106.0):
        attention.update([finding()], now)
    attention.update([], 108.0)
    attention.update([finding()], 110.0)
    assert [each.since for each in attention.standing] == [100.0]


def test_the_worst_comes_first() -> None:
    attention = Attention()
    found = [finding("a", weight=1.0), finding("b", weight=2.0), finding("c", "error"), finding("d", "info")]
    for now in (100.0, 106.0):
        attention.update(found, now)
    assert shown(attention) == ["c", "b", "a", "d"]


def test_findings_of_a_kind_about_different_things_are_separate() -> None:
    attention = Attention()
    for now in (100.0, 106.0):
        attention.update([finding(subject="max_jobs"), finding(subject="max_memory")], now)
    assert shown(attention) == ["backlog", "backlog"]


# -------------------------------------------------------------------- from the broker to the sentence


def test_jobs_without_a_worker() -> None:
    world = World()
    world.job("s")
    world.job("s")
    world.samples(4)
    assert world.attention() == {"no worker": "2 jobs of 's' wait: no worker offers the service."}
    (view,) = world.snapshot().attention
    assert (view.level, view.about, view.kind) == ("error", AboutView(service="s"), "no worker")
    world.worker("s", capacity=2)
    world.samples(6)
    assert world.attention() == {}


def test_a_paused_service_with_waiting_jobs() -> None:
    world = World()
    world.worker("s")
    world.broker.operator.pause("s", "ops")
    world.job("s")
    world.samples(4)
    assert world.attention()["paused"].startswith("1 job of 's' waits: the service is paused by ops")


def test_a_backlog() -> None:
    world = World()
    world.worker("s")
    for _ in range(3):
        world.job("s")
    world.samples(7)
    assert world.attention() == {
        "backlog": "2 jobs of 's' wait, the oldest for 14 s: its only worker is busy, and no job ends."
    }


def test_a_backlog_that_is_usual_is_none() -> None:
    """The oldest job must have waited 5 times as long as the median of the hour."""
    world = World()
    world.worker("s")
    running = world.job("s")
    for _ in range(5):
        waiting = world.job("s")
        world.samples(2)
        world.finish(running)
        running = waiting
    world.job("s")
    world.samples(6)
    assert world.row("s").oldest == 12.0
    assert world.attention() == {}


def test_jobs_that_fail() -> None:
    world = World()
    world.worker("s")
    for _ in range(6):
        for _ in range(9):
            world.finish(world.job("s"))
        world.fail(world.job("s", JobOptions(waits=True, attempts=1)))
        world.sample(2.0)
    assert world.attention() == {"undone": "10 % of the jobs of 's' failed, timed out or were lost in the last minute."}


def test_a_silent_worker_that_holds_a_job() -> None:
    world = World()
    profile = WorkerProfile(lease=30.0)
    worker = world.broker.join(Dialect("native"), object(), "w", ("s",), profile, world.now, LOCAL_OWNER)
    world.broker.idle(worker, world.now)
    world.job("s")
    world.samples(13)
    assert world.attention() == {
        "silent": f"Worker {worker.id} (w) has been silent for 26 s of its lease of 30 s and holds 1 job."
    }
    assert world.snapshot().attention[0].about == AboutView(worker=worker.id)
    world.broker.seen(worker, world.now)
    world.samples(6)
    assert world.attention() == {}


def test_a_schedule_that_skips_its_runs() -> None:
    world = World()
    request = ScheduleRequest(name="nightly", service="s", every=60.0)
    world.operations.scheduler.put(request, world.now, world.now, "local")
    runs = world.operations.scheduler.find("nightly").stored.recent
    for count in range(4):
        assert len(list(world.operations.scheduler.skipping(3))) == (count == 3)
        runs.skip()
    world.samples(4)
    assert world.attention() == {"skipped": "The last 4 runs of schedule 'nightly' were skipped."}
    assert world.snapshot().totals.schedules == 1


def test_a_schedule_that_waits_until_the_wall_clock_has_passed_its_runs() -> None:
    """The wall clock was a year ahead for a while: the next run was due in a year, and nothing needed attention."""
    world, year = World(), 365 * 86_400.0
    scheduler = world.operations.scheduler
    wall = world.now + WALL
    request = ScheduleRequest(name="nightly", service="s", cron="* * * * *", overlap=True)
    scheduler.put(request, world.now, wall, "local")
    for later in (year, year + 60.0):
        scheduler.tick(world.now, wall + later)
    scheduler.tick(world.now, wall)
    world.samples(4)
    assert "Schedule 'nightly' has made runs for times up to 365.0 d from now" in world.attention()["schedule ahead"]
    scheduler.pause("nightly", world.now, world.now + WALL)
    world.samples(8)
    assert "schedule ahead" not in world.attention()
