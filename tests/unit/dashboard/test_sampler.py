"""Samples: rates, quantiles, services that do not move, services without a history of their own."""

from __future__ import annotations

import pytest

from dragoman.core.options import JobOptions
from dragoman.core.restore import begin_loading, end_loading
from dragoman.dashboard import sampler as sampler_module
from dragoman.dashboard.census import AT_ONCE
from dragoman.dashboard.changes import PAUSED, QUARANTINED
from dragoman.dashboard.dashboard import OTHER
from scraped import attempt_of

from .world import World


def do(world: World, service: str, count: int) -> None:
    for _ in range(count):
        world.finish(world.job(service))


def quarantine(world: World, service: str) -> None:
    world.worker(service)
    job = world.job(service, JobOptions(durable=True, attempts=1))
    world.sample()
    world.broker.fail(attempt_of(job), "no", world.now)
    world.runner.run_once()


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    world = World()
    world.worker("s")
    world.sample(2.0)
    for _ in range(4):
        do(world, "s", 6)
        world.sample(2.0)
    assert (world.row("s").arrived, world.row("s").done) == (2.4, 2.4)  # the service is known for 10 s
    world.samples(2)
    assert world.row("s").done == pytest.approx(2.0, abs=0.5)
    world.samples(6)
    assert (world.row("s").arrived, world.row("s").done, world.row("s").wait) == (0.0, 0.0, [None] * 3)


def test_the_first_jobs_of_a_new_service_are_counted() -> None:
    world = World()
    world.worker("s")
    do(world, "s", 4)
    world.sample(2.0)
    assert world.row("s").done == 2.0
    assert world.snapshot().totals.done == 2.0
    assert world.sampler.histories["s"].series("5m", ("done",), world.sampler.slot)["done"][-1] == 2.0


def test_jobs_of_before_the_first_sample_did_not_arrive_now() -> None:
    world = World()
    world.worker("s")
    do(world, "s", 4)
    fresh = sampler_module.Sampler(world.broker, world.now)
    for _ in range(2):
        for _ in fresh.sample(world.now):
            pass
        world.now += 2.0
    assert fresh.total_rates().done == 0.0


def test_jobs_that_are_being_loaded_did_not_arrive_now() -> None:
    world = World()
    world.broker.job_registry.is_loading = True
    world.job("s", JobOptions(waits=True))
    world.sample(2.0)
    world.broker.job_registry.is_loading = False
    world.sample(2.0)
    assert (world.row("s").arrived, world.row("s").waiting) == (0.0, 1)


def test_wait_and_run_times_have_quantiles() -> None:
    world = World()
    job = world.job("s")
    world.sample(2.0)
    world.now += 1.0
    world.worker("s")
    world.now += 0.25
    world.finish(job)
    world.sample(1.0)
    row = world.row("s")
    assert all(2.5 < each <= 5.0 for each in row.wait)
    assert all(0.1 < each <= 0.35 for each in row.run)


def test_a_service_that_does_not_move_is_not_recorded() -> None:
    world = World()
    world.worker("s")
    do(world, "s", 1)
    world.sample(2.0)
    moved = world.sampler.histories["s"].moved_at
    world.samples(5)
    assert world.sampler.histories["s"].moved_at == moved
    series = world.dashboard.series("s", "5m", world.broker.principals.local, world.now)
    assert series.done[-6:] == [0.5, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_services_beyond_the_limit_share_a_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "MAX_SERIES", 2)
    monkeypatch.setattr("dragoman.dashboard.dashboard.MAX_SERIES", 2)
    world = World()
    for name in ("a", "b", "c", "d"):
        world.worker(name)
        do(world, name, 2)
    world.sample(2.0)
    assert list(world.sampler.histories) == ["a", "b"]
    series = world.dashboard.overview("5m", world.broker.principals.local, world.now).series
    assert {name: each.done[-1] for name, each in series.services.items()} == {"a": 1.0, "b": 1.0, OTHER: 2.0}
    assert series.total is not None
    assert series.total.done[-1] == 4.0


def test_a_history_that_has_long_not_moved_gives_its_place_to_a_service_that_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampler_module, "MAX_SERIES", 1)
    monkeypatch.setattr(sampler_module, "RETIRED", 3)
    world = World()
    for name in ("a", "b"):
        world.worker(name)
    world.sample(2.0)
    do(world, "a", 1)
    world.samples(2)
    do(world, "b", 1)
    world.sample(2.0)
    assert list(world.sampler.histories) == ["a"]
    world.samples(2)
    do(world, "b", 1)
    world.sample(2.0)
    assert list(world.sampler.histories) == ["b"]


def test_a_service_that_no_worker_has_offered_has_a_history() -> None:
    """The charts of a paused service with waiting jobs were empty until its first worker came."""
    world = World()
    world.broker.operator.pause("mail", "ann", world.now)
    for _ in range(3):
        world.job("mail")
    world.samples(2)
    series = world.dashboard.series("mail", "5m", world.broker.principals.local, world.now)
    assert series.waiting[-2:] == [3.0, 3.0]


def test_names_that_only_callers_use_have_at_most_half_of_all_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "MAX_SERIES", 4)
    world = World()
    for number in range(5):
        world.job(f"invented {number}")
    world.sample(2.0)
    world.worker("s")
    do(world, "s", 1)
    world.sample(2.0)
    assert list(world.sampler.histories) == ["invented 0", "invented 1", "s"]
    assert world.row("invented 4").waiting == 1


def test_jobs_that_were_loaded_between_two_samples_did_not_arrive_now() -> None:
    """After a restart, restored jobs counted as arrivals, and those in quarantine as new."""
    world = World()
    world.sample(2.0)
    begin_loading(world.broker)
    world.job("s", JobOptions(waits=True))
    quarantine(world, "t")
    end_loading(world.broker, world.now)
    world.sample(2.0)
    assert world.row("s").arrived == 0.0
    assert world.snapshot().totals.arrived == 0.0
    assert "quarantined" not in world.attention()
    quarantine(world, "t")
    world.sample(2.0)
    changes = [each.text for each in world.dashboard.changes.latest(10) if each.kind == QUARANTINED]
    assert changes == ["1 job of 't' went into quarantine"]


def test_a_pause_of_an_earlier_run_is_no_change() -> None:
    """It was a change at the time of the restart."""
    world = World()
    world.broker.operator.pause("old", "ann", world.now - 3600.0)
    world.now += 1.0
    world.broker.operator.pause("new", "ann", world.now)
    world.sample(2.0)
    changes = [(each.service, each.at) for each in world.dashboard.changes.latest(10) if each.kind == PAUSED]
    assert changes == [("new", world.now - 2.0)]


def test_services_that_the_broker_forgot_are_forgotten() -> None:
    world = World()
    world.worker("s")
    world.sample(2.0)
    del world.broker.worker_registry.services["s"]
    world.sample(2.0)
    assert world.sampler._tracked == {}
    assert world.snapshot().services == []


def test_services_that_need_attention_come_first() -> None:
    world = World()
    for name in ("calm", "working", "late", "orphaned"):
        if name != "orphaned":
            world.worker(name)
    do(world, "working", 3)
    world.sample(2.0)
    world.job("orphaned")
    for _ in range(2):
        world.job("late")
    world.samples(2)
    rows = world.snapshot().services
    assert [each.name for each in rows] == ["orphaned", "late", "working", "calm"], (
        "where nothing is needed, jobs that end"
    )
    assert [each.need for each in rows] == [64_000, 4_000, 1, 0]


def test_a_sample_of_many_workers_has_many_steps() -> None:
    world = World()
    world.watch()
    for _ in range(3 * AT_ONCE):
        world.worker("s", capacity=2)
    assert world.sample(2.0) >= 3
    totals = world.snapshot().totals
    assert totals is not None
    assert (totals.workers, totals.slots) == ({"idle": 3 * AT_ONCE}, 6 * AT_ONCE)
    assert world.row("s").slots == 6 * AT_ONCE


def test_without_a_reader_workers_are_counted_less_often() -> None:
    """A reader that comes gets the numbers of its moment."""
    world = World()
    world.samples(5)
    world.worker("s")
    world.samples(1)
    assert world.sampler.census.states == {}
    reader = world.watch()
    assert reader.latest["totals"]["workers"] == {"idle": 1}
    world.worker("s")
    world.samples(1)
    assert world.sampler.census.states == {"idle": 2}
    world.dashboard.leave(reader)
    world.worker("s")
    world.samples(5)
    assert world.sampler.census.states == {"idle": 3}
