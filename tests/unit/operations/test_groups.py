"""Groups of jobs: progress, results, cancel, and jobs that come after a group (R194)."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.failure import Failure, unpack_failure
from dragoman.core.packed_jobs import NO_ID, pack_jobs
from dragoman.core.results_payload import unpack_results
from dragoman.core.states import JobState, Outcome
from dragoman.operations.group_results import PAGE_BYTES
from dragoman.operations.group_schemas import BatchJob
from dragoman.operations.schemas import ErrorView

from .world import UNKNOWN, RecordingResponder, World

G, H = "1" * 32, "2" * 32


def make(world: World, size: int = 3, **fields: Any) -> tuple[str, list[str]]:
    """Enqueue a group. Returns its id and those of its jobs."""
    packed = pack_jobs([(NO_ID, b"", b"%d" % number) for number in range(size)])
    view = world.ask("enqueue many", packed, **{"service": "s", "group": True, **fields})
    assert not isinstance(view, ErrorView), view
    return view.group, view.jobs


def finish(world: World, name: str, result: bytes = b"r") -> None:
    world.broker.succeed(world.attempt(name), result, world.now)
    world.runner.run_once()


def fail(world: World, name: str) -> None:
    world.broker.fail(world.attempt(name), "boom", world.now, Failure("ValueError", "boom", "trace"))
    world.runner.run_once()


def results(world: World, group: str, **fields: Any) -> RecordingResponder:
    return world.begin("group results", id=group, **fields)


def test_progress_is_counted_and_said(world: World) -> None:
    world.worker(capacity=5)
    group, names = make(world, 5, attempts=1)
    view = world.ask("group", id=group)
    assert (view.size, view.open, view.says, view.complete, view.ended) == (5, 5, "0 of 5", False, None)
    finish(world, names[0])
    fail(world, names[3])
    world.ask("cancel", id=names[4])
    view = world.ask("group", id=group)
    assert (view.open, view.done, view.undone, view.says) == (2, 1, 2, "3 of 5, 1 failed, 1 cancelled")
    assert (view.outcomes, view.services, view.owner) == ({"failed": 1, "cancelled": 1}, ["s"], "local")
    for name in names[1:3]:
        finish(world, name)
    view = world.ask("group", id=group)
    assert (view.complete, view.says, view.ended is not None) == (True, "5 of 5, 1 failed, 1 cancelled", True)
    assert view.kept_until is not None


def test_large_numbers_are_readable(world: World) -> None:
    world.runner._strict = False
    group, _ = make(world, 5_000)
    assert world.ask("group", id=group).says == "0 of 5,000"


def test_results_come_in_the_order_of_the_jobs_when_all_have_ended(world: World) -> None:
    world.worker(capacity=3)
    group, names = make(world, attempts=1)
    responder = results(world, group, wait=60.0)
    finish(world, names[2], b"three")
    fail(world, names[1])
    assert responder.responses == []
    finish(world, names[0], b"one")
    (view,) = responder.responses
    assert (view.complete, view.size, view.start, view.next) == (True, 3, 0, None)
    assert [(each.job, each.outcome, each.size) for each in view.results[::2]] == [
        (names[0], "done", 3),
        (names[2], "done", 5),
    ]
    failed = view.results[1]
    assert (failed.outcome, failed.reason) == ("failed", "boom")
    body = responder.payload
    assert (body[:3], body[-5:]) == (b"one", b"three")
    failure = unpack_failure(body[3 : 3 + failed.size])
    assert failure is not None
    assert (failure.type, failure.traceback) == ("ValueError", "trace")


def test_request_that_waits_is_answered_after_its_time(world: World) -> None:
    world.worker(capacity=3)
    group, names = make(world)
    responder = results(world, group, wait=5.0)
    finish(world, names[0], b"one")
    world.wait(5.1)
    (view,) = responder.responses
    assert (view.complete, [each.outcome for each in view.results]) == (False, ["done", None, None])
    assert responder.payload == b"one"
    for name in names[1:]:
        finish(world, name)
    assert len(responder.responses) == 1


def test_request_whose_client_has_left_is_not_answered(world: World) -> None:
    world.worker(capacity=3)
    group, names = make(world)
    responder = results(world, group, wait=60.0)
    assert responder.pending is not None
    world.operations.leave(responder.pending, world.now)
    for name in names:
        finish(world, name)
    assert responder.responses == []


def test_results_are_sent_after_their_commit(world: World) -> None:
    """R103."""
    world.worker()
    group, names = make(world, 1)
    world.store.is_slow = True
    responder = results(world, group, wait=60.0)
    finish(world, names[0], b"one")
    assert responder.responses == []
    world.store.write()
    world.runner.run_once()
    assert responder.payload == b"one"


def test_large_results_come_in_pages(world: World) -> None:
    world.worker(capacity=3)
    group, names = make(world)
    for name, size in zip(names, (PAGE_BYTES - 1, 2, PAGE_BYTES + 1), strict=True):
        finish(world, name, b"r" * size)
    sizes, start = [], 0
    while start is not None:
        responder = results(world, group, start=start)
        (view,) = responder.responses
        sizes.append([each.size for each in view.results])
        assert len(responder.payload) == sum(sizes[-1])
        start = view.next
    assert sizes == [[PAGE_BYTES - 1], [2], [PAGE_BYTES + 1]]


def test_group_is_cancelled_as_a_whole(world: World) -> None:
    world.worker()
    group, names = make(world)
    after = world.enqueue("t", after=(group,))
    finish(world, names[0])
    view = world.ask("cancel group", id=group)
    assert (view.complete, view.done, view.outcomes) == (True, 1, {"cancelled": 2})
    assert world.job(names[2]).reason == "cancelled on request, with its group"
    assert world.job(after).outcome is Outcome.CANCELLED
    assert world.ask("cancel group", id=group).outcomes == {"cancelled": 2}


def test_unknown_group_is_not_found(world: World) -> None:
    for operation in ("group", "group results", "cancel group"):
        assert world.ask(operation, id=UNKNOWN).kind == "not found"


def test_job_comes_after_a_group_and_takes_its_results(world: World) -> None:
    world.worker(capacity=4)
    group, names = make(world)
    single = world.enqueue()
    last = world.enqueue("t", b"own", after=(single, group), input="results")
    assert world.ask("why", id=last).why == (f"It waits for 2 of 2 jobs: {single}, group {group} (0 of 3 have ended).")
    for name in [*names, single]:
        finish(world, name, name[-4:].encode())
    own, entries = unpack_results(world.job(last).payload)
    assert (own, entries) == (b"own", [single[-4:].encode(), [name[-4:].encode() for name in names]])


def test_job_after_a_group_is_cancelled_at_the_first_failure(world: World) -> None:
    world.worker(capacity=3)
    group, names = make(world, attempts=1)
    last = world.enqueue("t", after=(group,))
    runs = world.enqueue("t", b"", after=(group,), after_failure="run", input="results")
    fail(world, names[1])
    assert world.job(last).reason == (f"job {names[1]} of group {group}, which it comes after, ended failed: boom")
    late = world.enqueue("t", after=(group,))
    assert world.job(late).reason == world.job(last).reason
    for name in (names[0], names[2]):
        assert world.job(runs).state is JobState.DEPENDENT
        finish(world, name, b"r")
    assert unpack_results(world.job(runs).payload) == (b"", [[b"r", None, b"r"]])


def test_groups_and_the_jobs_after_them_may_be_one_batch(world: World) -> None:
    world.worker(capacity=4)
    view = world.ask(
        "enqueue many",
        service="s",
        jobs=(
            BatchJob(service="t", after=(G, H), input="results"),
            BatchJob(payload="a", group=G),
            BatchJob(payload="b", group=H),
            BatchJob(payload="c", group=G),
        ),
    )
    assert (view.group, world.ask("group", id=G).size, world.ask("group", id=H).size) == (None, 2, 1)
    for name in view.jobs[1:]:
        finish(world, name, bytes(world.job(name).payload))
    assert unpack_results(world.job(view.jobs[0]).payload) == (b"", [[b"a", b"c"], [b"b"]])


def test_result_of_a_group_is_not_one_payload(world: World) -> None:
    group, _ = make(world)
    error = world.ask("enqueue", service="t", after=(group,), input="result")
    assert (error.kind, "use input=results" in error.detail) == ("invalid", True)


def test_repeated_request_returns_the_group(world: World) -> None:
    assert make(world, group_id=G) == make(world, group_id=G)
    assert len(world.broker.jobs) == 3
    error = world.ask("enqueue many", service="s", jobs=(BatchJob(group=G),))
    assert (error.kind, error.detail) == ("invalid", f"jobs[0]: the id {G} of a group is in use already")


def test_job_with_a_key_that_is_in_use_is_no_member(world: World) -> None:
    world.enqueue(body=b"p", key="k")
    error = world.ask("enqueue many", service="s", jobs=(BatchJob(payload="p", key="k"),), group=True)
    assert (error.kind, "must be a new one" in error.detail) == ("key reused", True)


def test_groups_are_bounded() -> None:
    world = World(max_groups=1)
    make(world)
    error = world.ask("enqueue many", service="s", jobs=(BatchJob(),), group=True)
    assert (error.kind, "max_groups" in error.detail) == ("busy", True)


def test_outcomes_of_an_open_group_are_kept_and_then_as_long_as_the_group() -> None:
    world = World(outcome_retention=100.0)
    world.worker(capacity=3)
    group, names = make(world, timeout=None)
    finish(world, names[0], b"one")
    world.wait(1_000.0)
    finish(world, names[1], b"two")
    world.wait(1_000.0)
    finish(world, names[2], b"three")
    world.wait(99.0)
    responder = results(world, group)
    assert responder.payload == b"onetwothree"
    world.wait(2.0)
    assert world.ask("group", id=group).kind == "not found"
    assert world.broker.jobs == {}
    assert world.store.notes == {}


def test_group_survives_the_eviction_of_its_outcomes() -> None:
    """L20: outcomes over the limit of bytes are deleted; the group still knows how its jobs ended."""
    world = World(max_outcome_bytes=3_000, outcome_retention=100.0)
    world.worker(capacity=4)
    group, names = make(world, 4, attempts=1)
    fail(world, names[0])
    for name in names[1:]:
        finish(world, name, b"r" * 500)
    view = world.ask("group", id=group)
    assert (view.says, view.deleted, view.outcomes) == ("4 of 4, 1 failed", 3, {"failed": 1})
    (page,) = results(world, group).responses
    assert [(each.job is None, each.outcome, each.deleted) for each in page.results] == [
        (True, "failed", True),
        (True, "done", True),
        (True, "done", True),
        (False, "done", False),
    ]
    error = world.ask("enqueue", service="t", after=(group,), input="results")
    assert (error.kind, "results of 3 jobs" in error.detail) == ("not found", True)
    world.wait(101.0)
    assert world.ask("group", id=group).kind == "not found"


def test_outcomes_that_a_job_needs_are_not_evicted() -> None:
    world = World(max_outcome_bytes=3_000)
    world.worker(capacity=4)
    group, names = make(world, 4)
    last = world.enqueue("t", b"", after=(group,), input="results")
    for name in names:
        finish(world, name, b"r" * 500)
    assert unpack_results(world.job(last).payload) == (b"", [[b"r" * 500] * 4])
    finish(world, world.enqueue(), b"r")
    assert world.ask("group", id=group).deleted == 3


def test_group_is_kept_while_a_job_waits_for_it() -> None:
    world = World(outcome_retention=100.0)
    world.worker(capacity=3)
    group, names = make(world, 2)
    other = world.enqueue("u")
    last = world.enqueue("t", b"", after=(group, other), input="results")
    for name in names:
        finish(world, name)
    world.wait(1_000.0)
    assert world.ask("group", id=group).complete
    world.worker("u")
    finish(world, other, b"o")
    assert unpack_results(world.job(last).payload) == (b"", [[b"r", b"r"], b"o"])
    world.wait(61.0)
    assert world.ask("group", id=group).kind == "not found"


@pytest.mark.parametrize("is_retry", [True, False])
def test_retried_job_takes_the_place_of_the_first(world: World, is_retry: bool) -> None:
    """Also if it is released: then it is the same job."""
    world.worker(capacity=2)
    group, names = make(world, 2, attempts=1)
    finish(world, names[0], b"one")
    fail(world, names[1])
    assert world.ask("group", id=group).complete
    if is_retry:
        again = world.ask("retry", id=names[1]).id
    else:
        again = names[1]
        assert world.broker.operator.release(world.job(again), world.now)
        world.runner.run_once()
    view = world.ask("group", id=group)
    assert (view.complete, view.says, view.ended) == (False, "1 of 2", None)
    finish(world, again, b"two")
    view = world.ask("group", id=group)
    assert (view.complete, view.says) == (True, "2 of 2")
    assert results(world, group).payload == b"onetwo"


def test_retry_that_cannot_be_stored_leaves_the_first_in_its_place(world: World) -> None:
    world.worker()
    group, names = make(world, 1, attempts=1)
    fail(world, names[0])
    world.store.problem = "disk full"
    assert world.ask("retry", id=names[0]).kind == "store unavailable"
    world.store.problem = None
    view = world.ask("group", id=group)
    assert (view.complete, view.says) == (True, "1 of 1, 1 failed")
    (page,) = results(world, group).responses
    assert page.results[0].job == names[0]


def test_jobs_of_a_group_are_listed(world: World) -> None:
    world.enqueue()
    group, names = make(world, 3)
    view = world.ask("jobs", group=group)
    assert [each.id for each in view.jobs] == names[::-1]
    assert {each.group for each in view.jobs} == {group}
    page = world.ask("jobs", group=group, limit=2)
    assert [each.id for each in world.ask("jobs", group=group, limit=2, after=page.after).jobs] == names[:1]
    assert world.ask("jobs", group=UNKNOWN).jobs == []
