"""Acts on many jobs: retry, cancel and delete by filter, their progress, and their end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman.core.events import ADMINISTERED, AdministrationEvent
from dragoman.core.rights import ALL_RIGHTS, NO_LIMITS, Rights
from dragoman.core.states import JobState, Outcome
from dragoman.operations.bulk_acts import BATCH, MOST_ACTIVE, REMEMBERED, BulkAct
from dragoman.operations.bulk_schemas import FIRST_JOBS, BulkView
from dragoman.operations.schemas import ErrorView

from .world import WALL, World

ID = "a" * 32


def fail(world: World, reason: str = "no", service: str = "s", **fields: Any) -> str:
    """Put a job into quarantine. Returns its id."""
    worker = world.worker(service)
    name = world.enqueue(service, attempts=1, **fields)
    world.broker.fail(world.attempt(name), reason, world.now)
    world.broker.leave(worker, world.now, "gone")
    world.runner.run_once()
    return name


def act(world: World, operation: str, **fields: Any) -> BulkView:
    """Execute an act to its end, and return its last view."""
    world.ask(operation, id=ID, **fields)
    world.wait(5.0)
    view = world.ask("bulk act", id=ID)
    assert isinstance(view, BulkView)
    return view


def at(seconds: float) -> datetime:
    """The wall clock at this time of the broker's clock."""
    return datetime.fromtimestamp(WALL + seconds, UTC)


def retried(world: World, names: list[str]) -> list[bool]:
    return [world.job(name).retried_as is not None for name in names]


# -------------------------------------------------------------------- filters


def test_retry_takes_the_jobs_that_match_all_filters(world: World) -> None:
    names = [
        fail(world, "out of memory: row 1"),
        fail(world, "disk full"),
        fail(world, "OUT OF MEMORY: row 2"),
        fail(world, "out of memory: row 3", service="other"),
    ]
    view = act(world, "retry jobs", service="s", reason="out of memory")
    assert (view.of, view.done, view.left_out, view.over, view.problem) == (2, 2, 0, True, "")
    assert retried(world, names) == [True, False, True, False]


def test_since_and_until_compare_the_end_of_a_job(world: World) -> None:
    """A job that ended at `until` is left out, so that two ranges have no job in common."""
    names = []
    for _ in range(4):
        names.append(fail(world))
        world.now += 10.0
    begin = world.now - 40.0
    assert act(world, "retry jobs", since=at(begin + 10.0), until=at(begin + 30.0)).done == 2
    assert retried(world, names) == [False, True, True, False]


def test_since_and_until_compare_the_submit_of_a_job_that_has_not_ended(world: World) -> None:
    old = world.enqueue()
    world.now += 10.0
    new = world.enqueue()
    assert act(world, "cancel jobs", until=at(world.now)).done == 1
    assert [world.job(name).outcome for name in (old, new)] == [Outcome.CANCELLED, None]


def test_cancel_takes_jobs_in_any_state_or_in_one(world: World) -> None:
    world.worker()
    running, waiting, delayed = world.enqueue(), world.enqueue(), world.enqueue(delay=60.0)
    assert act(world, "cancel jobs", service="s", state="delayed").done == 1
    assert world.job(delayed).state is JobState.ENDED
    world.operations.bulk_acts.ended.clear()
    assert act(world, "cancel jobs", service="s").done == 2
    reasons = [world.job(name).reason for name in (running, waiting)]
    assert reasons == ["cancelled on request"] * 2


def test_pending_jobs_are_those_that_do_not_run(world: World) -> None:
    world.worker()
    running, waiting, delayed = world.enqueue(), world.enqueue(), world.enqueue(delay=60.0)
    dependent = world.enqueue(after=[running])
    assert act(world, "cancel jobs", service="s", state="pending").done == 3
    assert [world.job(each).outcome for each in (waiting, delayed, dependent)] == ["cancelled"] * 3
    assert world.job(running).state is JobState.RUNNING


@pytest.mark.parametrize("state", ["waiting", "pending"])
def test_job_that_starts_before_its_turn_is_not_cancelled_with_those_that_wait(world: World, state: str) -> None:
    """It was cancelled, although the filter was for jobs that do not run."""
    names = [world.enqueue() for _ in range(3)]
    world.ask("cancel jobs", service="s", state=state, rate=1.0, id=ID)
    world.worker()
    world.wait(10.0)
    view = world.ask("bulk act", id=ID)
    assert (view.done, view.left_out, view.over) == (2, 1, True)
    assert "is running by now" in view.left_out_reason
    assert sum(world.job(each).state is JobState.RUNNING for each in names) == 1


@pytest.mark.parametrize(("quarantined", "left"), [(None, []), (True, ["done"]), (False, ["poison"])])
def test_delete_takes_ended_jobs_in_quarantine_or_not(world: World, quarantined: bool | None, left: list[str]) -> None:
    names = {"poison": fail(world, "poison"), "done": world.enqueue()}
    world.worker()
    world.broker.succeed(world.attempt(names["done"]), b"", world.now)
    waiting = world.enqueue("other")
    view = act(world, "delete jobs", all=True, quarantined=quarantined)
    kept = {job.id.hex() for job in world.broker.jobs.values()}
    assert [name for name, id in names.items() if id in kept] == left
    assert (view.done, waiting in kept) == (2 - len(left), True)


def test_outcome_is_a_filter(world: World) -> None:
    failed = fail(world)
    worker = world.worker()
    world.enqueue(attempts=1)
    world.broker.leave(worker, world.now, "gone")
    assert act(world, "delete jobs", outcome="lost").done == 1
    assert [job.id.hex() for job in world.broker.jobs.values()] == [failed]


@pytest.mark.parametrize("operation", ["retry jobs", "cancel jobs", "delete jobs"])
def test_request_without_a_filter_needs_all(world: World, operation: str) -> None:
    """Nobody cancels all jobs by an empty request."""
    refused = world.ask(operation)
    assert (refused.kind, "has no filter" in refused.detail) == ("invalid", True)
    assert isinstance(act(world, operation, all=True), BulkView)


def test_list_of_jobs_has_the_same_filters(world: World) -> None:
    """So `dragoman jobs` shows what an act would take."""
    first = fail(world, "row 1")
    world.now += 10.0
    fail(world, "row 2")
    shown = world.ask("jobs", reason="ROW", until=at(world.now)).jobs
    assert [view.id for view in shown] == [first]


# -------------------------------------------------------------------- dry run and progress


def test_dry_run_changes_nothing_and_shows_the_first(world: World) -> None:
    names = [fail(world, f"row {number}") for number in range(FIRST_JOBS + 3)]
    over: list[BulkAct] = []
    world.operations.bulk_acts.when_over = over.append
    view = world.ask("retry jobs", service="s", dry_run=True)
    assert (view.of, view.done, view.over, view.dry_run, view.quarantined) == (len(names), 0, True, True, len(names))
    assert [each.id for each in view.jobs] == names[:FIRST_JOBS]
    assert not any(retried(world, names))
    assert over == []


def test_many_jobs_take_many_iterations_and_commits(world: World) -> None:
    """The loop is never blocked, and the next step waits for the commit of the one before."""
    names = [world.enqueue(delay=60.0) for _ in range(3 * BATCH)]
    world.store.is_slow = True
    responder = world.begin("cancel jobs", service="s", id=ID)
    for _ in range(5):
        world.runner.run_once()
    assert responder.responses == []
    assert sum(world.job(name).state is JobState.ENDED for name in names) == BATCH
    world.store.write()
    world.runner.run_once()
    assert [(view.done, view.of, view.over) for view in responder.responses] == [(BATCH, 3 * BATCH, False)]
    world.store.is_slow = False
    world.store.write()
    world.wait(1.0)
    assert (world.ask("bulk act", id=ID).done, world.ask("bulk act", id=ID).over) == (3 * BATCH, True)


def test_same_request_again_returns_the_progress(world: World) -> None:
    """A client that lost its connection does not begin a second act."""
    names = [world.enqueue(delay=60.0) for _ in range(3)]
    assert act(world, "cancel jobs", service="s").done == 3
    later = world.enqueue(delay=60.0)
    again = world.ask("cancel jobs", service="s", id=ID)
    assert (again.done, again.over, world.job(later).state) == (3, True, JobState.DELAYED)
    assert len(names) == 3


def test_rate_limits_the_jobs_of_a_second(world: World) -> None:
    names = [fail(world) for _ in range(5)]
    assert world.ask("retry jobs", service="s", rate=2.0, id=ID).done == 1
    world.wait(1.0)
    assert sum(retried(world, names)) == 3
    world.wait(2.0)
    assert world.ask("bulk act", id=ID).over


def test_act_is_forgotten_some_time_after_its_end(world: World) -> None:
    fail(world)
    act(world, "retry jobs", service="s")
    world.now += REMEMBERED
    world.ask("retry jobs", service="s")
    refused = world.ask("bulk act", id=ID)
    assert (refused.kind, "repeat the request" in refused.detail) == ("not found", True)


def test_acts_at_the_same_time_are_limited() -> None:
    world = World(max_jobs=1)
    for _ in range(2):
        fail(world)
    world.enqueue()  # now the limit is reached, and all acts wait
    for _ in range(MOST_ACTIVE):
        world.ask("retry jobs", service="s")
    assert world.ask("retry jobs", service="s").kind == "busy"


# -------------------------------------------------------------------- ends


def test_stop_leaves_the_rest_unchanged(world: World) -> None:
    names = [fail(world) for _ in range(5)]
    world.ask("retry jobs", service="s", rate=1.0, id=ID)
    view = world.ask("stop bulk act", id=ID)
    assert (view.done, view.of, view.over, view.problem) == (1, 5, True, "stopped on request")
    world.wait(10.0)
    assert retried(world, names) == [True, False, False, False, False]
    assert world.ask("stop bulk act", id=ID).over


def test_act_stops_if_nobody_asks_for_its_progress(world: World) -> None:
    """The command was killed."""
    names = [fail(world) for _ in range(9)]
    world.ask("retry jobs", service="s", rate=1.0, lease=3.0, id=ID)
    world.wait(2.0)
    world.ask("bulk act", id=ID)
    world.wait(20.0)
    view = world.ask("bulk act", id=ID)
    assert (view.over, view.problem) == (True, "nobody has asked for its progress for 3 s")
    assert sum(retried(world, names)) == view.done == 5


def test_job_that_changes_before_its_turn_is_left_out(world: World) -> None:
    names = [fail(world) for _ in range(3)]
    world.ask("retry jobs", service="s", rate=1.0, id=ID)
    world.ask("delete", id=names[1])
    world.wait(10.0)
    view = world.ask("bulk act", id=ID)
    assert (view.done, view.left_out, view.over) == (2, 1, True)
    assert "is not in quarantine" in view.left_out_reason


def test_job_whose_key_another_job_holds_is_left_out(world: World) -> None:
    """R24."""
    name = fail(world, key="nightly", unique="unfinished")
    holder = world.enqueue(key="nightly", unique="unfinished", body=b"other")
    view = act(world, "retry jobs", service="s")
    assert (view.done, view.left_out) == (0, 1)
    assert f"has a key that job {holder} holds until it has ended" in view.left_out_reason
    assert world.ask("retry", id=name).kind == "conflict"


def test_retry_waits_while_a_limit_is_reached() -> None:
    world = World(max_jobs=1)
    names = [fail(world) for _ in range(2)]
    world.ask("retry jobs", service="s", id=ID)
    world.wait(3.0)
    view = world.ask("bulk act", id=ID)
    assert (view.done, view.over, "a limit is reached" in view.problem) == (1, False, True)
    again = next(job for job in world.broker.jobs.values() if job.state is JobState.WAITING)
    world.ask("cancel", id=again.id.hex())
    world.wait(1.5)
    assert retried(world, names) == [True, True]
    assert world.ask("bulk act", id=ID).problem == ""


def test_act_stops_if_the_store_cannot_write(world: World) -> None:
    """R101: the jobs of that step are in quarantine again."""
    names = [fail(world) for _ in range(3)]
    world.store.problem = "disk full"
    view = act(world, "retry jobs", service="s")
    assert (view.done, view.over, view.problem) == (0, True, "store unavailable: disk full")
    assert not any(retried(world, names))


def test_draining_broker_stops_the_act(world: World) -> None:
    names = [fail(world) for _ in range(3)]
    world.ask("retry jobs", service="s", rate=1.0, id=ID)
    world.broker.operator.close(world.now)
    world.wait(5.0)
    assert sum(retried(world, names)) == 1
    assert "shutting down" in world.ask("bulk act", id=ID).problem
    assert world.ask("retry jobs", service="s").kind == "draining"


def test_act_waits_until_all_jobs_are_read(world: World) -> None:
    world.broker.job_registry.is_loading = True
    for operation in ("retry jobs", "cancel jobs", "delete jobs"):
        assert world.ask(operation, all=True).kind == "loading"


# -------------------------------------------------------------------- rights


def test_principal_acts_on_its_own_jobs_and_an_administrator_on_all() -> None:
    """R147, R151: rights are those of single jobs, and the act of an administrator is recorded once, with the count."""
    world = World()
    caller = Rights(call=("s",), work=("s",))
    tables = {"web": caller, "batch": caller, "root": ALL_RIGHTS}
    world.broker.principals.apply({name: (rights, NO_LIMITS) for name, rights in tables.items()})
    acts: list[AdministrationEvent] = []
    world.broker.events.subscribe(ADMINISTERED, lambda event, now: acts.append(event))  # type: ignore[arg-type]
    jobs = {}
    for name in ("web", "batch"):
        world.act_as(name)
        jobs[name] = [world.enqueue(delay=60.0) for _ in range(BATCH + 1)]
    world.act_as("web")
    assert act(world, "cancel jobs", all=True).done == BATCH + 1
    assert acts == []
    assert world.job(jobs["batch"][0]).state is JobState.DELAYED
    world.act_as("batch")
    assert world.ask("bulk act", id=ID).kind == "not found"
    world.act_as("root")
    world.ask("cancel jobs", service="s", id="b" * 32)
    world.wait(1.0)
    assert world.job(jobs["batch"][0]).reason == "cancelled by root"
    facts = [(each.principal, each.operation, each.target) for each in acts]
    assert facts == [("root", "cancel jobs", f"{BATCH + 1} jobs of s")]


# -------------------------------------------------------------------- one job


def test_delete_of_one_job_is_answered_after_its_commit(world: World) -> None:
    """A delete that was answered must not come back after a crash."""
    name = fail(world)
    world.store.is_slow = True
    responder = world.begin("delete", id=name)
    assert responder.responses == []
    world.store.write()
    world.runner.run_once()
    (view,) = responder.responses
    assert (view.id, view.outcome) == (name, "failed")
    assert world.store.erased == [bytes.fromhex(name)]
    assert world.ask("delete", id=name).kind == "not found"


def test_job_that_has_not_ended_is_not_deleted(world: World) -> None:
    refused = world.ask("delete", id=world.enqueue())
    assert isinstance(refused, ErrorView)
    assert (refused.kind, "cancel it first" in refused.detail) == ("conflict", True)


@pytest.mark.parametrize("keep", [None, 0.0])
def test_delete_of_an_outcome_that_is_being_stored_waits_for_it(world: World, keep: float | None) -> None:
    """Its callers get the outcome. One that is not kept is gone by then."""
    world.worker()
    name = world.enqueue(keep=keep)
    world.store.is_slow = True
    world.broker.succeed(world.attempt(name), b"result", world.now)
    waiting = world.begin("result", id=name, wait=10.0)
    responder = world.begin("delete", id=name)
    assert (waiting.responses, responder.responses) == ([], [])
    for _ in range(3):
        world.store.write()
        world.runner.run_once()
    assert (waiting.payload, responder.responses[0].outcome) == (b"result", "done")
    assert world.broker.jobs == {}
