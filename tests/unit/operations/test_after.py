"""Jobs that come after other jobs: `after`, `after_failure` and `input` of the operation `enqueue` (R190 to R192)."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.model import Caller
from dragoman.core.options import JobOptions
from dragoman.core.results_payload import unpack_results
from dragoman.core.rights import Rights
from dragoman.core.states import JobState, Outcome
from dragoman.operations.schemas import ErrorView
from owners import LOCAL_OWNER

from .world import UNKNOWN, World


def finish(world: World, name: str, result: bytes = b"r") -> None:
    world.broker.succeed(world.attempt(name), result, world.now)
    world.runner.run_once()


def fail(world: World, name: str, reason: str = "boom") -> None:
    world.broker.fail(world.attempt(name), reason, world.now)
    world.runner.run_once()


def why(world: World, name: str) -> str:
    sentence: str = world.ask("why", id=name).why
    return sentence


def test_job_waits_until_the_jobs_before_it_are_done(world: World) -> None:
    first, second = world.enqueue(), world.enqueue()
    last = world.enqueue("t", b"own", after=(first, second))
    world.worker("t")
    view = world.ask("job", id=last)
    assert (view.state, view.after, view.after_failure, view.input) == (
        "dependent",
        [first, second],
        "cancel",
        "payload",
    )
    assert why(world, last) == f"It waits for 2 of 2 jobs: {first}, {second}."
    world.worker(capacity=2)
    finish(world, first)
    assert why(world, last) == f"It waits for 1 of 2 jobs: {second}."
    finish(world, second)
    assert world.job(last).state is JobState.RUNNING
    assert world.job(last).payload == b"own"


def test_job_after_jobs_that_are_done_starts_at_once(world: World) -> None:
    world.worker(capacity=2)
    first = world.enqueue()
    finish(world, first)
    assert world.job(world.enqueue(after=(first, first))).state is JobState.RUNNING


@pytest.mark.parametrize("outcome", ["failed", "cancelled"])
def test_job_is_cancelled_if_a_job_before_it_is_not_done(world: World, outcome: str) -> None:
    first = world.enqueue(attempts=1)
    last = world.enqueue("t", after=(first,))
    after_last = world.enqueue("t", after=(last,))
    if outcome == "failed":
        world.worker()
        fail(world, first)
        reason = f"job {first}, which it comes after, ended failed: boom"
    else:
        world.ask("cancel", id=first)
        reason = f"job {first}, which it comes after, ended cancelled: cancelled on request"
    view = world.ask("job", id=last)
    assert (view.state, view.outcome, view.reason) == ("ended", "cancelled", reason)
    assert world.job(after_last).reason == f"job {last}, which it comes after, ended cancelled: {reason}"
    assert world.ask("job", id=world.enqueue("t", after=(first,))).outcome == "cancelled"


def test_job_that_says_so_runs_after_a_failure(world: World) -> None:
    first, second = world.enqueue(attempts=1), world.enqueue()
    last = world.enqueue("t", b"", after=(first, second), after_failure="run", input="results")
    world.worker(capacity=2)
    fail(world, first)
    assert world.job(last).state is JobState.DEPENDENT
    finish(world, second, b"two")
    assert world.job(last).state is JobState.WAITING
    assert unpack_results(world.job(last).payload) == (b"", [None, b"two"])


def test_result_is_the_payload_of_the_next_job(world: World) -> None:
    first = world.enqueue()
    last = world.enqueue("t", b"", after=(first,), input="result")
    world.worker()
    finish(world, first, b"a result")
    assert (world.job(last).state, world.job(last).payload) == (JobState.WAITING, b"a result")
    view = world.ask("job", id=last)
    assert (view.input, view.payload.text) == ("result", "a result")


def test_results_are_in_the_payload_in_the_order_of_the_request(world: World) -> None:
    names = [world.enqueue() for _ in range(3)]
    last = world.enqueue("t", b"own", after=(names[2], names[0], names[2]), input="results")
    world.worker(capacity=3)
    for name in names:
        finish(world, name, name.encode())
    own, results = unpack_results(world.job(last).payload)
    assert (own, results) == (b"own", [names[2].encode(), names[0].encode(), names[2].encode()])


def test_input_that_is_too_large_fails_the_job() -> None:
    world = World(max_input=100)
    first = world.enqueue()
    last = world.enqueue("t", b"", after=(first,), input="result")
    world.worker()
    finish(world, first, b"r" * 101)
    view = world.ask("job", id=last)
    assert (view.outcome, view.quarantined) == ("failed", False)
    assert view.reason == (
        "its input, the results of the jobs before it, has 101 bytes; at most 100 are allowed (max_input)"
    )


def test_delay_counts_from_the_request(world: World) -> None:
    first = world.enqueue()
    early, late = (world.enqueue("t", after=(first,), delay=delay) for delay in (10.0, 100.0))
    world.worker()
    world.wait(50.0)
    finish(world, first)
    assert (world.job(early).state, world.job(late).state) == (JobState.WAITING, JobState.DELAYED)
    world.wait(50.1)
    assert world.job(late).state is JobState.WAITING


REFUSED: list[tuple[dict[str, Any], bytes, str, str]] = [
    ({"after": (UNKNOWN,)}, b"", "not found", "after: no job or group has id 0000"),
    ({"input": "results"}, b"", "invalid", "input=results needs jobs whose results it takes: name them in `after`"),
    ({"after": (UNKNOWN, UNKNOWN), "input": "result"}, b"", "invalid", "input=result with 2 jobs in `after`"),
    ({"after": (UNKNOWN,), "input": "result"}, b"x", "invalid", "input=result with a payload of 1 bytes"),
]


@pytest.mark.parametrize(("fields", "body", "kind", "detail"), REFUSED)
def test_request_that_makes_no_sense_is_refused(
    world: World, fields: dict[str, Any], body: bytes, kind: str, detail: str
) -> None:
    error = world.ask("enqueue", body, service="s", **fields)
    assert isinstance(error, ErrorView)
    assert error.kind == kind
    assert error.detail.startswith(detail)
    assert world.broker.jobs == {}


def test_call_cannot_be_waited_for(world: World) -> None:
    caller = Caller(world.workers, LOCAL_OWNER)
    call = world.broker.submit("s", b"", caller, JobOptions(waits=True), world.now)
    assert call is not None
    error = world.ask("enqueue", service="s", after=(call.id.hex(),))
    assert (error.kind, "is a call" in error.detail) == ("invalid", True)


def test_unknown_job_is_looked_for_again_while_jobs_are_loaded(world: World) -> None:
    world.broker.job_registry.is_loading = True
    assert world.ask("enqueue", service="s", after=(UNKNOWN,)).kind == "loading"


def test_links_between_jobs_are_bounded() -> None:
    world = World(max_links=2)
    first = world.enqueue()
    world.enqueue(after=(first,))
    world.enqueue(after=(first,))
    error = world.ask("enqueue", service="s", after=(first,))
    assert (error.kind, "max_links" in error.detail) == ("busy", True)


def test_outcome_is_kept_while_a_job_needs_it() -> None:
    """R192: neither its retention time, nor the limit of bytes, nor a purge deletes it."""
    world = World(outcome_retention=100.0, max_outcome_bytes=5_000)
    world.worker(capacity=3)
    first, second = world.enqueue(), world.enqueue(timeout=None)
    last = world.enqueue("t", b"", after=(first, second), input="results")
    finish(world, first, b"first")
    world.wait(500.0)
    for _ in range(6):
        finish(world, world.enqueue(), b"r" * 1_000)
    assert world.ask("purge", name="s", states=("ended",)).purged == 1
    assert world.ask("result", id=first).outcome == "done"
    finish(world, second, b"second")
    assert unpack_results(world.job(last).payload) == (b"", [b"first", b"second"])
    world.wait(161.0)
    assert world.ask("result", id=first).kind == "not found"


def test_cancelled_job_needs_no_outcome() -> None:
    world = World(outcome_retention=100.0)
    world.worker(capacity=2)
    first, second = world.enqueue(), world.enqueue()
    last = world.enqueue("t", after=(first, second))
    finish(world, first)
    world.wait(500.0)
    assert world.ask("cancel", id=last).outcome == "cancelled"
    world.wait(61.0)
    assert world.ask("job", id=first).kind == "not found"


def test_job_that_is_released_from_quarantine_is_waited_for_again(world: World) -> None:
    world.worker(capacity=2)
    first, second = world.enqueue(attempts=1), world.enqueue()
    last = world.enqueue("t", b"", after=(first, second), after_failure="run", input="results")
    fail(world, first)
    assert world.broker.operator.release(world.job(first), world.now)
    world.runner.run_once()
    finish(world, second, b"two")
    assert world.job(last).state is JobState.DEPENDENT
    finish(world, first, b"one")
    assert unpack_results(world.job(last).payload) == (b"", [b"one", b"two"])


def test_retry_of_a_job_does_not_bring_back_the_jobs_after_it(world: World) -> None:
    world.worker()
    first = world.enqueue(attempts=1)
    last = world.enqueue("t", after=(first,))
    fail(world, first)
    again = world.ask("retry", id=first).id
    finish(world, again)
    assert world.job(last).outcome is Outcome.CANCELLED


def test_retried_job_has_the_input_of_the_first(world: World) -> None:
    world.worker()
    first = world.enqueue()
    last = world.enqueue("t", b"", after=(first,), input="result", attempts=1)
    finish(world, first, b"input")
    world.worker("t")
    fail(world, last)
    again = world.job(world.ask("retry", id=last).id)
    assert (again.state, again.payload) == (JobState.RUNNING, b"input")


def test_a_long_chain_is_cancelled_without_recursion(world: World) -> None:
    world.runner._strict = False  # the checks of so many jobs take long
    first = name = world.enqueue()
    for _ in range(3_000):
        name = world.enqueue("t", after=(name,))
    world.ask("cancel", id=first)
    while world.broker.next_deadline() <= world.now:
        world.runner.run_once()
    assert world.job(name).outcome is Outcome.CANCELLED
    assert len(world.job(name).reason) < 700


def test_jobs_of_others_can_be_waited_for_if_they_are_seen(world: World) -> None:
    theirs = world.enqueue()
    me = world.broker.principals.named("me")
    me.rights = Rights(call=("t",))
    world.act_as("me")
    unseen = world.ask("enqueue", service="t", after=(theirs,))
    assert unseen.detail.replace(theirs, UNKNOWN) == world.ask("enqueue", service="t", after=(UNKNOWN,)).detail
    me.rights = Rights(call=("t",), see=("s",))
    assert world.ask("enqueue", service="t", after=(theirs,)).state == "dependent"
    error = world.ask("enqueue", service="t", after=(theirs,), input="result")
    assert (error.kind, "may not read the result" in error.detail) == ("forbidden", True)
