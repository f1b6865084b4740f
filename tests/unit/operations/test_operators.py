"""Lists, and changes of services and workers."""

from __future__ import annotations

from typing import Any

from dragoman.core.states import JobState, WorkerState

from .world import UNKNOWN, WALL, World, quarantined_job

# ---------------------------------------------------------------- listings


def test_jobs_newest_first_and_page_by_page(world: World) -> None:
    names = [world.enqueue() for _ in range(7)]
    seen: list[str] = []
    after = None
    while True:
        page = world.ask("jobs", limit=3, after=after)
        seen += [each.id for each in page.jobs]
        after = page.after
        if after is None:
            break
    assert seen == names[::-1]


def test_jobs_by_what_they_are(world: World) -> None:
    world.worker()
    lost = quarantined_job(world)
    running = world.enqueue()
    waiting = world.enqueue("other")
    delayed = world.enqueue(delay=9.0)

    def found(**fields: Any) -> list[str]:
        return [each.id for each in world.ask("jobs", **fields).jobs]

    assert found(state="running") == [running]
    assert found(service="other") == [waiting]
    assert found(state="delayed") == [delayed]
    assert found(quarantined=True) == [lost]
    assert found(outcome="failed") == [lost]
    assert found(quarantined=False, service="s") == [delayed, running]


def test_list_that_cannot_go_on_says_so(world: World) -> None:
    """A bug: the list ended as if it were complete when the job in `after` had been deleted."""
    world.enqueue()
    refused = world.ask("jobs", after=UNKNOWN)
    assert (refused.kind, UNKNOWN in refused.detail) == ("not found", True)


def test_services_and_workers(world: World) -> None:
    worker = world.worker(name="w", lease=5.0, capacity=2)
    name = world.enqueue()
    world.now += 2.0
    (service,) = world.ask("services").services
    assert (service.name, service.running, service.waiting, service.workers, service.idle) == ("s", 1, 0, 1, 1)
    (shown,) = world.ask("workers").workers
    assert (shown.id, shown.dialect, shown.state, shown.running, shown.silent, shown.lease) == (
        worker.id,
        "test",
        "idle",
        [name],
        2.0,
        5.0,
    )
    assert world.ask("worker", id=worker.id) == shown
    assert world.ask("worker", id=99).kind == "not found"
    assert world.ask("service", name="none").kind == "not found"


def test_oldest_is_the_age_of_the_head(world: World) -> None:
    world.enqueue()
    world.now += 41.0
    world.enqueue()
    assert world.ask("service", name="s").oldest == 41.0


# ---------------------------------------------------------------- operators


def test_pause_is_remembered_and_says_by_whom(world: World) -> None:
    view = world.ask("pause", name="s", by="ann")
    paused_at = f"{world.now + WALL:.3f}"
    assert (view.paused, view.paused_by) == (True, "ann")
    assert world.store.notes == {"pause/s": "ann", "paused-at/s": paused_at}
    world.worker()
    name = world.enqueue()
    assert world.job(name).state is JobState.WAITING
    assert not world.ask("resume", name="s").paused
    assert (world.job(name).state, world.store.notes) == (JobState.RUNNING, {})


def test_service_may_be_removed_before_the_response_to_resume() -> None:
    """A bug: its name was looked up again, which ended the iteration with an error."""
    world = World(max_services=1)
    world.ask("pause", name="s")
    world.store.is_slow = True
    responder = world.begin("resume", name="s")
    world.worker("other")
    assert "s" not in world.broker.worker_registry.services
    world.store.write()
    world.runner.run_once()
    assert [each.paused for each in responder.responses] == [False]


def test_drain_lets_a_worker_finish(world: World) -> None:
    worker = world.worker()
    name = world.enqueue()
    assert world.ask("drain", id=worker.id).state == "draining"
    world.broker.succeed(world.attempt(name), b"", world.now)
    assert worker.state is WorkerState.GONE
    assert world.ask("drain", id=worker.id).kind == "not found"


def test_drain_at_once(world: World) -> None:
    worker = world.worker()
    name = world.enqueue()
    assert world.ask("drain", id=worker.id, now=True).state == "gone"
    assert world.job(name).spent == 1
