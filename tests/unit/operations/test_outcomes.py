"""Views of jobs, and requests that wait for an outcome."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dragoman.core.restore import restore
from dragoman.core.states import JobState, Outcome
from dragoman.operations.schemas import ErrorView

from .world import UNKNOWN, WALL, World, ended_job


def test_unknown_job(world: World) -> None:
    for operation in ("job", "result", "why", "cancel", "retry"):
        assert world.ask(operation, id=UNKNOWN).kind == "not found"
    world.broker.job_registry.is_loading = True
    assert world.ask("job", id=UNKNOWN).kind == "loading"


def test_outcome_is_shown_after_its_commit(world: World) -> None:
    """R103: a request after a crash gets the same outcome."""
    world.worker()
    name = world.enqueue()
    world.store.is_slow = True
    world.broker.succeed(world.attempt(name), b"r", world.now)
    responder = world.begin("job", id=name)
    assert responder.responses == []
    world.store.write()
    world.runner.run_once()
    assert [(each.outcome, each.result) for each in responder.responses] == [("done", "r")]


def test_acceptance_is_no_outcome(world: World) -> None:
    """A bug: a request that waited for the outcome was answered when the job was accepted."""
    world.store.is_slow = True
    world.begin("enqueue", b"x", service="s")
    (job,) = world.broker.jobs.values()
    responder = world.begin("result", id=job.id.hex(), wait=5.0)
    world.store.write()
    world.runner.run_once()
    assert responder.responses == []
    world.wait(5.0)
    assert [each.state for each in responder.responses] == ["waiting"]


def test_patience_that_ends_while_the_outcome_is_written_lasts_until_then(world: World) -> None:
    """A bug: the response was *done* with an empty result."""
    world.worker()
    name = world.enqueue()
    responder = world.begin("result", id=name, wait=5.0)
    world.store.is_slow = True
    world.broker.succeed(world.attempt(name), b"r", world.now)
    world.wait(6.0)
    assert responder.responses == []
    world.store.write()
    world.runner.run_once()
    assert [(each.outcome, responder.payload) for each in responder.responses] == [("done", b"r")]


def test_outcome_that_cannot_be_shown_is_an_internal_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R27. A bug: after an internal error during the delivery of an outcome its caller waited for ever."""
    world.worker()
    name = world.enqueue()
    responder = world.begin("result", id=name, wait=5.0)

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("dragoman.operations.handlers.job_view", fails)
    world.broker.succeed(world.attempt(name), b"result", world.now)
    world.runner.run_once()
    world.runner.run_once()
    assert responder.responses == [ErrorView(kind="internal", detail="an internal error of the broker")]
    assert world.log.count("internal error") == 1


@pytest.mark.parametrize(("result", "text", "base64"), [(b"ok", "ok", None), (b"\xff\x00", None, "/wA=")])
def test_job_shows_its_result(world: World, result: bytes, text: str | None, base64: str | None) -> None:
    name = world.enqueue()
    world.worker()
    world.broker.succeed(world.attempt(name), result, world.now)
    view = world.ask("job", id=name)
    assert (view.state, view.outcome, view.result, view.result_base64) == ("ended", "done", text, base64)
    assert view.kept_until == datetime.fromtimestamp(WALL + world.now + 86_400.0, UTC)


def test_job_that_is_done_shows_who_did_it(world: World) -> None:
    name = world.enqueue()
    world.worker(name="right")
    world.broker.succeed(world.attempt(name), b"", world.now)
    (attempt,) = world.ask("job", id=name).attempts
    assert (attempt.number, attempt.worker, attempt.outcome) == (1, "right", "done")


def test_job_that_was_cancelled_while_it_ran_shows_where(world: World) -> None:
    name = world.enqueue()
    world.worker(name="left")
    world.runner.run_once()
    world.ask("cancel", id=name)
    (attempt,) = world.ask("job", id=name).attempts
    assert (attempt.number, attempt.worker, attempt.outcome) == (1, "left", "cancelled")


def test_job_shows_its_attempts(world: World) -> None:
    name = world.enqueue()
    world.worker(name="left")
    world.broker.fail(world.attempt(name), "no luck", world.now)
    world.wait(5.0)
    view = world.ask("job", id=name)
    assert [(each.number, each.worker, each.outcome, each.reason) for each in view.attempts] == [
        (1, "left", "failed", "no luck"),
        (2, "left", None, ""),
    ]


def test_request_that_waits_gets_the_outcome(world: World) -> None:
    name = world.enqueue()
    responder = world.begin("result", id=name, wait=30.0)
    world.worker()
    world.broker.succeed(world.attempt(name), b"result", world.now)
    world.runner.run_once()
    assert [each.outcome for each in responder.responses] == ["done"]
    assert responder.payload == b"result"
    world.wait(60.0)
    assert len(responder.responses) == 1


def test_request_whose_wait_ends_gets_the_state_of_the_job(world: World) -> None:
    name = world.enqueue()
    responder = world.begin("result", id=name, wait=30.0)
    world.wait(29.0)
    assert responder.responses == []
    world.wait(1.0)
    assert [each.state for each in responder.responses] == ["waiting"]
    assert world.job(name).callers == ()


def test_request_that_leaves_gets_no_response_and_the_job_continues(world: World) -> None:
    name = world.enqueue()
    responder = world.begin("result", id=name, wait=30.0)
    assert responder.pending is not None
    world.operations.leave(responder.pending, world.now)
    world.operations.leave(responder.pending, world.now)
    world.worker()
    world.broker.succeed(world.attempt(name), b"result", world.now)
    world.wait(60.0)
    assert (responder.responses, world.job(name).outcome) == ([], Outcome.DONE)


def test_request_without_wait_is_answered_at_once(world: World) -> None:
    name = world.enqueue()
    assert world.ask("result", id=name).state == "waiting"


def test_outcome_is_not_sent_before_its_commit(world: World) -> None:
    name = world.enqueue()
    world.worker()
    world.store.is_slow = True
    world.broker.succeed(world.attempt(name), b"result", world.now)
    responder = world.begin("result", id=name, wait=10.0)
    assert responder.responses == []
    world.store.write()
    world.runner.run_once()
    assert [each.outcome for each in responder.responses] == ["done"]


def test_outcome_of_an_earlier_run_is_fetched(world: World) -> None:
    job = restore(world.broker, ended_job(world), world.now, None)
    world.store.bodies[job.id] = (b"", b"old result")
    responder = world.begin("result", id=job.id.hex(), wait=10.0)
    shown = world.begin("job", id=job.id.hex())
    assert (responder.responses, shown.responses) == ([], [])
    world.store.bring()
    world.runner.run_once()
    assert (responder.payload, shown.responses[0].result) == (b"old result", "old result")


def test_payload_of_an_earlier_run_is_fetched_before_it_is_given(world: World) -> None:
    kept = ended_job(world)
    kept.outcome = None
    job = restore(world.broker, kept, world.now, None)
    world.store.bodies[job.id] = (b"old payload", b"")
    world.worker()
    assert world.workers.said == []
    world.store.bring()
    world.runner.run_once()
    (give,) = world.workers.said
    assert (give.attempt.job.payload, job.payload) == (b"old payload", b"old payload")


def test_payload_that_comes_for_an_attempt_that_is_over_is_given_to_the_next(world: World) -> None:
    kept = ended_job(world)
    kept.outcome = None
    job = restore(world.broker, kept, world.now, None)
    world.store.bodies[job.id] = (b"old payload", b"")
    first = world.worker()
    world.broker.leave(first, world.now, "gone")
    world.worker(name="second")
    world.store.bring()
    world.runner.run_once()
    assert [each.attempt.worker.name for each in world.workers.said] == ["second"]
    assert (job.spent, job.state) == (0, JobState.RUNNING)
