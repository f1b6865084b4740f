"""Operations on the quarantine: groups by cause, and retries of a group."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dragoman.core.events import ADMINISTERED, AdministrationEvent
from dragoman.core.restore import restore
from dragoman.core.rights import ALL_RIGHTS, NO_LIMITS, Rights
from dragoman.core.states import JobState
from dragoman.operations.bulk_acts import BulkAct
from dragoman.operations.quarantine_schemas import QuarantineGroupView, QuarantineView, RetryGroupView

from .world import WALL, World, ended_job


def fail(world: World, reason: str, service: str = "s") -> str:
    """Put a job into quarantine. Returns its id."""
    worker = world.worker(service)
    name = world.enqueue(service, attempts=1)
    world.broker.fail(world.attempt(name), reason, world.now)
    world.broker.leave(worker, world.now, "gone")
    world.runner.run_once()
    return name


def progress(view: Any) -> tuple[int, int]:
    assert isinstance(view, RetryGroupView)
    return view.retried, view.of


def retried(world: World, names: list[str]) -> int:
    return sum(world.job(name).retried_as is not None for name in names)


def test_groups_have_their_jobs_and_times_the_latest_first(world: World) -> None:
    first = fail(world, "row 1 is bad")
    world.now += 5.0
    fail(world, "disk full")
    world.now += 5.0
    last = fail(world, "row 22 is bad")
    view = world.ask("quarantine")
    assert isinstance(view, QuarantineView)
    assert [(each.reason, each.count) for each in view.groups] == [("row … is bad", 2), ("disk full", 1)]
    group = view.groups[0]
    assert group == QuarantineGroupView(
        group=group.group,
        service="s",
        outcome="failed",
        reason="row … is bad",
        count=2,
        first=datetime.fromtimestamp(WALL + 1_000.0, UTC),
        last=datetime.fromtimestamp(WALL + 1_010.0, UTC),
        dialects=["test"],
        example=last,
    )
    world.ask("retry", id=last)
    assert world.ask("quarantine").groups[-1].example == first


def test_group_is_the_same_for_a_job_of_an_earlier_run(world: World) -> None:
    name = fail(world, "no result within 5 s")
    kept = ended_job(world)
    kept.outcome, kept.reason, kept.quarantined, kept.spent = world.job(name).outcome, "no result within 7 s", True, 1
    restore(world.broker, kept, world.now, world.workers)
    (group,) = world.ask("quarantine").groups
    assert group.count == 2


def test_group_is_retried_at_the_rate(world: World) -> None:
    over: list[BulkAct] = []
    steps: list[int] = []
    world.operations.bulk_acts.when_over = over.append
    world.operations.bulk_acts.when_retried = lambda service, jobs, now: steps.append(jobs)
    names = [fail(world, f"row {number} is bad") for number in range(5)]
    other = fail(world, "disk full")
    group = next(each for each in world.ask("quarantine").groups if each.count == 5).group
    assert progress(world.ask("retry group", group=group, rate=2.0)) == (1, 5)
    world.wait(1.0)
    assert retried(world, names) == 3
    assert progress(world.ask("retry group", group=group)) == (3, 5)
    assert over == []
    world.wait(1.1)
    assert (retried(world, names), retried(world, [other]), sum(steps)) == (5, 0, 5)
    assert [(each.done, each.of) for each in over] == [(5, 5)]
    assert world.ask("retry group", group=group).kind == "not found"


def test_job_that_leaves_the_quarantine_meanwhile_is_left_out(world: World) -> None:
    names = [fail(world, "no") for _ in range(4)]
    (group,) = world.ask("quarantine").groups
    world.ask("retry group", group=group.group, rate=1.0)
    world.ask("retry", id=names[1])
    world.broker.job_registry.kept.erase(world.job(names[2]))
    jobs = len(world.broker.jobs)
    world.wait(10.0)
    assert len(world.broker.jobs) == jobs + 1
    assert world.job(names[3]).retried_as is not None


def test_retry_of_a_group_waits_while_a_limit_is_reached() -> None:
    world = World(max_jobs=1)
    names = [fail(world, "no") for _ in range(2)]
    (group,) = world.ask("quarantine").groups
    assert progress(world.ask("retry group", group=group.group)) == (1, 2)
    world.wait(3.0)
    assert retried(world, names) == 1
    again = next(job for job in world.broker.jobs.values() if job.state is JobState.WAITING)
    world.ask("cancel", id=again.id.hex())
    world.wait(1.5)
    assert retried(world, names) == 2


def test_draining_broker_retries_no_group(world: World) -> None:
    names = [fail(world, "no") for _ in range(3)]
    (group,) = world.ask("quarantine").groups
    world.ask("retry group", group=group.group, rate=1.0)
    world.broker.operator.close(world.now)
    world.wait(5.0)
    assert retried(world, names) == 1
    assert world.operations.bulk_acts.active == {}
    assert world.ask("retry group", group=group.group).kind == "draining"


def test_principal_sees_and_retries_its_own_part_of_a_group() -> None:
    """R150. An administrator sees and retries all, and its act is recorded by the name of the group."""
    world = World()
    caller = Rights(call=("s",), work=("s",))
    tables = {"web": caller, "batch": caller, "root": ALL_RIGHTS}
    world.broker.principals.apply({name: (rights, NO_LIMITS) for name, rights in tables.items()})
    acts: list[AdministrationEvent] = []
    world.broker.events.subscribe(ADMINISTERED, lambda event, now: acts.append(event))  # type: ignore[arg-type]
    jobs = {}
    for name in ("web", "batch"):
        world.act_as(name)
        jobs[name] = [fail(world, f"no {number}") for number in range(2)]
    assert [each.count for each in world.ask("quarantine").groups] == [2]
    world.act_as("root")
    (group,) = world.ask("quarantine").groups
    assert group.count == 4
    world.act_as("web")
    assert progress(world.ask("retry group", group=group.group)) == (1, 2)
    world.wait(1.0)
    assert (retried(world, jobs["web"]), retried(world, jobs["batch"])) == (2, 0)
    assert acts == []
    world.act_as("root")
    assert progress(world.ask("retry group", group=group.group)) == (1, 2)
    assert [(each.principal, each.operation, each.target) for each in acts] == [("root", "retry group", group.group)]


def test_groups_are_not_listed_while_jobs_are_loaded(world: World) -> None:
    world.broker.job_registry.is_loading = True
    assert world.ask("quarantine").kind == "loading"
