"""Changes: their sentences, folding, limit, and workers that join again and again."""

from __future__ import annotations

from dragoman.core.events import KIND_NAMES
from dragoman.dashboard.changes import KINDS, MOST, QUARANTINED, Changes

from .world import World


def texts(world: World) -> list[str]:
    return [each.text for each in world.dashboard.changes.latest(MOST)]


def test_no_event_of_a_job_is_subscribed_to() -> None:
    names = {name for kind, name in KIND_NAMES.items() if kind & KINDS}
    assert names == {"joined", "draining", "left", "paused", "resumed"}
    assert World().broker.events.wanted == KINDS


def test_changes_are_sentences() -> None:
    world = World()
    worker = world.worker("s", "t")
    world.runner.run_once()
    world.now += 3.0
    world.job("s")
    world.broker.operator.pause("s", "ops")
    world.broker.leave(worker, world.now, "gone", ())
    world.runner.run_once()
    world.now += 3.0
    world.broker.operator.resume("s", world.now)
    world.broker.operator.close(world.now)
    world.runner.run_once()
    assert texts(world) == [
        "the broker is draining: it accepts no new jobs",
        "'s' was resumed",
        "1 worker of 's', 't' left; 1 job ran there",
        "'s' was paused by ops",
        "1 worker of 's', 't' joined",
        "the broker started",
    ]
    assert [each.level for each in world.dashboard.changes.latest(3)] == ["warning", "info", "warning"]


def test_changes_of_a_kind_and_a_service_within_two_seconds_are_one() -> None:
    changes = Changes()
    for now in (0.0, 1.0, 2.0, 2.5):
        changes.add(QUARANTINED, now, ("s",), count=2)
    changes.add(QUARANTINED, 2.5, ("t",))
    assert [(each.at, each.count, each.text) for each in changes.since(0.0)] == [
        (0.0, 6, "6 jobs of 's' went into quarantine"),
        (2.5, 2, "2 jobs of 's' went into quarantine"),
        (2.5, 1, "1 job of 't' went into quarantine"),
    ]


def test_many_services_are_not_all_named() -> None:
    changes = Changes()
    changes.add("workers joined", 0.0, ("a", "b", "c", "d", "e"))
    assert [each.text for each in changes.since(0.0)] == ["1 worker of 'a', 'b', 'c' and 2 more joined"]


def test_the_number_of_changes_is_limited() -> None:
    changes = Changes()
    for number in range(MOST + 5):
        changes.add(QUARANTINED, 10.0 * number, ("s",))
    assert [each.at for each in changes.since(0.0)] == [10.0 * each for each in range(5, MOST + 5)]


def test_a_worker_that_joins_again_and_again_is_noticed() -> None:
    """Many workers of one name that join once are not."""
    world = World()
    for _ in range(8):
        world.worker("s")
    world.runner.run_once()
    assert world.dashboard.changes.rejoining(world.now) == {}
    for _ in range(6):
        worker = next(iter(world.broker.worker_registry.workers.values()))
        world.broker.leave(worker, world.now, "gone", ())
        world.worker("s")
        world.runner.run_once()
        world.now += 10.0
    assert world.dashboard.changes.rejoining(world.now) == {"worker": 6}
    assert world.dashboard.changes.rejoining(world.now + 300.0) == {}
