"""Facts of jobs and workers in their views: caller, wait, sizes and limits; numbers, pace and jobs of a worker."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf
from typing import Any

from dragoman.core.model import Caller
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.restore import restore
from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.operations.schemas import AttemptView, CallerView, HeldJobView, JobView, WorkerView
from dragoman.operations.views import job_view

from .world import WALL, World, ended_job


def at(time: float) -> datetime:
    return datetime.fromtimestamp(WALL + time, UTC)


def from_address(world: World, name: str, address: str) -> None:
    """Make the requests that follow those of a principal at this address."""
    world.owner = Owner(world.broker.principals.named(name), address=address)


def job(world: World, name: str) -> JobView:
    view = world.ask("job", id=name)
    assert isinstance(view, JobView)
    return view


def worker_of(world: World) -> WorkerView:
    view = world.ask("workers").workers[0]
    assert isinstance(view, WorkerView)
    return view


def test_job_names_its_caller_until_the_broker_restarts() -> None:
    world = World()
    from_address(world, "local", "10.0.4.17")
    name = world.enqueue()
    assert job(world, name).caller == CallerView(dialect="test", address="10.0.4.17")
    restored = restore(world.broker, ended_job(world), world.now, world.workers)
    assert job_view(restored, WALL).caller is None


def test_principal_that_may_only_see_a_job_does_not_get_the_address_of_its_caller() -> None:
    """R147."""
    world = World()
    table = {"web": Rights(call=("s",)), "viewer": Rights(see=("s",))}
    world.broker.principals.apply({name: (rights, NO_LIMITS) for name, rights in table.items()})
    from_address(world, "web", "10.0.4.17")
    name = world.enqueue()
    world.act_as("viewer")
    assert job(world, name).caller == CallerView(dialect="test", address="")
    assert [each.caller for each in world.ask("jobs").jobs] == [CallerView(dialect="test", address="")]


def test_wait_sizes_and_limits_of_a_job(world: World) -> None:
    name = world.enqueue("s", b"12345", timeout=30.0)
    view = job(world, name)
    assert (view.waited, view.job_timeout, view.deadline, view.size, view.result_size) == (None, 30.0, None, 5, None)
    world.now += 2.5
    world.worker()
    assert job(world, name).waited == 2.5
    world.now += 1.0
    world.broker.succeed(world.attempt(name), b"1234567", world.now)
    world.runner.run_once()
    view = job(world, name)
    assert (view.waited, view.size, view.result_size) == (2.5, None, 7)


def test_deadline_of_a_call(world: World) -> None:
    caller = Caller(world.operations, world.owner)
    call = world.broker.submit(
        "s", b"", caller, JobOptions(waits=True, job_timeout=inf), world.now, deadline=world.now + 9.0
    )
    assert call is not None
    view = job_view(call, WALL)
    assert (view.deadline, view.job_timeout) == (at(1_009.0), None)


def test_attempts_name_dialect_and_id_of_the_worker(world: World) -> None:
    first = world.worker(name="a")
    name = world.enqueue(attempts=2, retry_first=0.0)
    world.broker.fail(world.attempt(name), "no", world.now)
    world.wait(0.1)
    ended, running = job(world, name).attempts
    assert (ended.dialect, ended.worker_id, running.dialect, running.worker_id) == ("test", first.id, "test", first.id)
    assert ended.outcome == "failed"


def test_attempt_of_an_earlier_run_has_the_dialect_and_the_id_of_its_worker(world: World) -> None:
    kept = ended_job(world)
    kept.outcome, kept.token, kept.attempt, kept.worker = None, world.broker.entropy.token(), 1, "before"
    kept.worker_dialect, kept.worker_id = "native", 7
    kept.given, kept.can_resume = world.now - 5.0, True
    restored = restore(world.broker, kept, world.now, world.workers)
    assert job_view(restored, WALL).attempts == [
        AttemptView(number=1, worker="before", started=at(world.now - 5.0), dialect="native", worker_id=7)
    ]


def test_worker_shows_where_it_joined_and_what_it_holds(world: World) -> None:
    side: Any = world.workers
    world.operations.listeners[side] = "pingpong://127.0.0.1:7401"
    world.worker(capacity=2)
    name = world.enqueue(timeout=30.0)
    view = worker_of(world)
    assert (view.listener, view.address, view.since) == ("pingpong://127.0.0.1:7401", "", at(1_000.0))
    assert view.holds == [HeldJobView(job=name, service="s", attempt=1, since=at(1_000.0), due=at(1_030.0))]
    unlimited = world.enqueue(timeout=None)
    world.attempt(unlimited).due = inf
    assert [each.due for each in worker_of(world).holds] == [at(1_030.0), None]


def test_pace_of_a_worker_compares_it_with_the_median_of_its_service(world: World) -> None:
    worker = world.worker()
    assert (worker_of(world).done, worker_of(world).pace) == (0, None)
    for seconds in (1.2, 1.2, 1.2):
        name = world.enqueue()
        world.now += seconds
        world.broker.succeed(world.attempt(name), b"", world.now)
        world.runner.run_once()
    name = world.enqueue(attempts=1)
    world.broker.fail(world.attempt(name), "no", world.now)
    assert worker_of(world).pace is None, "the median is that of the only worker"
    world.worker()
    view = worker_of(world)
    median = worker.services[0].ran.median()
    assert median is not None
    assert (view.done, view.undone, view.pace) == (3, 1, round(worker.mean_run / median, 2))
    assert view.pace is not None
    assert 0.9 < view.pace < 1.2
    world.broker.availability.offer(worker, ("s", "t"), world.now)
    assert worker_of(world).pace is None


def test_jobs_that_a_principal_may_not_see_are_not_among_those_that_a_worker_holds() -> None:
    """R150."""
    world = World()
    table = {"web": Rights(call=("s",), work=("s", "t")), "batch": Rights(call=("t",)), "viewer": Rights(see=("s",))}
    world.broker.principals.apply({name: (rights, NO_LIMITS) for name, rights in table.items()})
    world.act_as("web")
    world.worker("s", "t", capacity=2)
    seen = world.enqueue("s")
    world.act_as("batch")
    world.enqueue("t")
    world.act_as("viewer")
    view = worker_of(world)
    assert (view.running, [each.job for each in view.holds]) == ([seen], [seen])
