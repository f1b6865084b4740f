"""One sentence on why a job is not running, or how it ended."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.model import Caller, Token
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.core.restore import StoredJob, restore
from dragoman.core.rights import ALL_RIGHTS, NO_LIMITS, PrincipalLimits, Rights
from dragoman.core.states import Outcome
from dragoman.operations.service_views import ServiceRates
from dragoman.operations.why import why as sentence_about
from owners import LOCAL_OWNER

from .world import World


@pytest.fixture
def world() -> World:
    return World()


def why(world: World, name: str) -> str:
    sentence: str = world.ask("why", id=name).why
    return sentence


def test_no_worker(world: World) -> None:
    assert why(world, world.enqueue()) == "It waits: no worker offers 's'."


def test_all_are_busy(world: World) -> None:
    for _ in range(3):
        world.worker()
        world.enqueue()
        world.now += 10.0
    assert why(world, world.enqueue()) == "It waits: all 3 workers are busy; the oldest job has run for 30 s."


def test_the_only_one_is_busy(world: World) -> None:
    world.worker()
    world.enqueue()
    world.now += 4.25
    assert why(world, world.enqueue()) == "It waits: its only worker is busy; the oldest job has run for 4.2 s."


def test_none_is_free_for_several_reasons(world: World) -> None:
    world.worker()
    world.enqueue()
    away = world.worker()
    world.broker.availability.detach(away, world.now)
    world.broker.join(world.workers, None, "boots", ("s",), away.profile, world.now, LOCAL_OWNER)
    sentence = "It waits: none of 3 workers is free (1 busy, 1 unreachable, 1 starting)."
    assert why(world, world.enqueue()) == sentence


def test_paused(world: World) -> None:
    world.ask("pause", name="s", by="ann")
    assert why(world, world.enqueue()) == "It waits: service 's' is paused by ann."


def test_delayed(world: World) -> None:
    assert why(world, world.enqueue(delay=55.0)) == "It may start in 55 s: it was submitted with a delay."


def test_retry(world: World) -> None:
    world.worker(name="seven")
    name = world.enqueue(retry_first=12.0, retry_jitter=0.0)
    world.broker.fail(world.attempt(name), "no luck", world.now)
    assert why(world, name) == "Retry in 12 s: attempt 1 of 3 failed on worker seven: no luck."


def test_lost_and_tried_again(world: World) -> None:
    worker = world.worker(name="seven")
    name = world.enqueue()
    world.broker.leave(worker, world.now, "its worker went away")
    assert why(world, name) == "Retry in 0.1 s: attempt 1 of 3 was lost on worker seven: its worker went away."


def test_running_and_silent(world: World) -> None:
    worker = world.worker(name="seven", lease=6.0)
    name = world.enqueue()
    world.now += 1.0
    assert why(world, name) == f"Attempt 1 of 3 has run for 1.0 s on worker {worker.id} (seven)."
    world.now += 3.2
    running = f"Attempt 1 of 3 has run for 4.2 s on worker {worker.id} (seven)"
    silent = f"{running}, which has been silent for 4.2 s (its lease is 6 s)."
    assert why(world, name) == silent


def test_running_when_the_broker_was_stopped(world: World) -> None:
    kept = StoredJob(
        1, world.broker.entropy.job_id(), "s", JobOptions(durable=True, waits=True, attempts=3), world.now - 10.0
    )
    kept.token, kept.attempt, kept.given, kept.worker, kept.can_resume = Token(b"t" * 16), 2, world.now - 5.0, "w", True
    world.broker.job_registry.pending_commits.begin_after(1)
    job = restore(world.broker, kept, world.now, world.workers)
    world.now += 2.0
    sentence = why(world, job.id.hex())
    assert sentence == "Attempt 2 of 3 has run for 7.0 s on worker 1 (w), which has been unreachable for 2.0 s."


def test_being_written(world: World) -> None:
    world.store.is_slow = True
    responder = world.begin("enqueue", b"x", service="s")
    assert responder.responses == []
    (job,) = world.broker.jobs.values()
    assert why(world, job.id.hex()) == "It is being written to disk."
    world.store.problem = "no space left"
    assert why(world, job.id.hex()) == "It waits for the store, which cannot write: no space left."


def test_draining(world: World) -> None:
    name = world.enqueue()
    world.broker.operator.close(world.now)
    assert why(world, name) == "It waits: the broker is shutting down and dispatches no jobs."


def test_done(world: World) -> None:
    world.worker()
    first, second = world.enqueue(), world.enqueue()
    world.broker.succeed(world.attempt(first), b"", world.now)
    assert why(world, first) == "It is done."
    world.broker.fail(world.attempt(second), "no", world.now)
    world.wait(5.0)
    world.broker.succeed(world.attempt(second), b"", world.now)
    assert why(world, second) == "It is done, on attempt 2."


def test_earlier_attempts_have_a_sentence_each(world: World) -> None:
    world.worker(name="seven")
    name = world.enqueue(attempts=6)

    def earlier() -> str:
        sentences: str = world.ask("why", id=name).earlier
        return sentences

    assert earlier() == ""
    world.broker.fail(world.attempt(name), "no luck", world.now)
    assert earlier() == "", "the only one is in `why`"
    world.wait(5.0)
    assert earlier() == "Attempt 1 of 6 failed on worker seven: no luck."
    for _ in range(3):
        world.broker.fail(world.attempt(name), "", world.now)
        world.wait(60.0)
    assert earlier().count("Attempt") == 3, "the latest three"
    assert earlier().endswith("Attempt 4 of 6 failed on worker seven.")
    world.broker.succeed(world.attempt(name), b"", world.now)
    assert why(world, name) == "It is done, on attempt 5."
    assert earlier().endswith("Attempt 4 of 6 failed on worker seven."), "without the one that is done"


def test_ended_otherwise(world: World) -> None:
    world.worker(name="seven")
    name = world.enqueue(attempts=1)
    world.broker.fail(world.attempt(name), "no luck", world.now)
    assert why(world, name) == (
        "It ended failed: attempt 1 of 1 failed on worker seven: no luck. "
        "It is in quarantine: a retry makes a new job from it."
    )
    cancelled = world.enqueue(delay=9.0)
    world.ask("cancel", id=cancelled)
    assert why(world, cancelled) == "It ended cancelled: cancelled on request."
    assert world.job(cancelled).outcome is Outcome.CANCELLED


def test_principal_that_runs_as_many_as_it_may(world: World) -> None:
    """R166."""
    web = world.broker.principals.named("web")
    web.rights = ALL_RIGHTS
    web.limit(PrincipalLimits(max_running=1))
    caller = Caller(Recipient(), Owner(web))
    world.worker(capacity=2)
    jobs = [world.broker.submit("s", b"", caller, JobOptions(), world.now) for _ in range(2)]
    assert jobs[1] is not None
    sentence = sentence_about(jobs[1], world.broker, world.now)
    assert sentence == "It waits: web runs 1 job, the maximum (max_running of web)."


# -------------------------------------------------------------------- facts for programs

RATES = ServiceRates(9.0, 0.4, 0.1, [None] * 3, [None] * 3)


def test_a_waiting_job_knows_the_jobs_ahead_and_its_turn(world: World) -> None:
    worker = world.worker()
    running = world.enqueue()
    names = [world.enqueue() for _ in range(4)]
    urgent = world.enqueue(priority=9)
    view = world.ask("why", id=names[3])
    assert (view.kind, view.ahead, view.turn_in) == ("all busy", 4, None), "the rate is not known"
    assert (view.about.service, view.about.worker) == ("s", None)
    world.operations.rates = lambda service: RATES
    assert [world.ask("why", id=name).ahead for name in (urgent, *names)] == [0, 1, 2, 3, 4]
    assert world.ask("why", id=names[3]).turn_in == 8.0
    world.ask("cancel", id=names[0])
    assert world.ask("why", id=names[3]).ahead == 3
    view = world.ask("why", id=running)
    assert (view.kind, view.ahead, view.turn_in, view.about.worker) == ("running", None, None, worker.id)


def test_a_paused_job_has_no_turn(world: World) -> None:
    world.operations.rates = lambda service: RATES
    world.ask("pause", name="s", by="ann")
    view = world.ask("why", id=world.enqueue())
    assert (view.kind, view.ahead, view.turn_in) == ("paused", 0, None)


def test_principals_take_turns(world: World) -> None:
    """Two principals with three jobs each: the third job of one has five jobs ahead, or four."""
    names: dict[str, list[str]] = {}
    for name in ("ann", "bob"):
        world.broker.principals.apply(dict.fromkeys(("ann", "bob"), (ALL_RIGHTS, NO_LIMITS)))
        world.act_as(name)
        names[name] = [world.enqueue() for _ in range(3)]
    assert [world.ask("why", id=each).ahead for each in names["ann"]] == [0, 2, 4]
    assert [world.ask("why", id=each).ahead for each in names["bob"]] == [1, 3, 5]


def test_the_queue_of_a_service_is_not_shown_without_a_right(world: World) -> None:
    world.broker.principals.apply({"ann": (Rights(call=("s",)), NO_LIMITS)})
    world.act_as("ann")
    name = world.enqueue()
    assert world.ask("why", id=name).ahead == 0
    world.broker.principals.apply({"ann": (Rights(), NO_LIMITS)})
    assert world.ask("why", id=name).ahead is None


def test_kinds(world: World) -> None:
    assert world.ask("why", id=world.enqueue("t", delay=5.0)).kind == "delayed"
    assert world.ask("why", id=world.enqueue("t")).kind == "no worker"
    world.worker(name="seven")
    name = world.enqueue(retry_first=12.0, retry_jitter=0.0)
    world.broker.fail(world.attempt(name), "no luck", world.now)
    assert world.ask("why", id=name).kind == "retry"
    name = world.enqueue()
    world.broker.succeed(world.attempt(name), b"", world.now)
    world.runner.run_once()
    assert world.ask("why", id=name).kind == "done"
    quarantined = world.enqueue(attempts=1)
    world.broker.fail(world.attempt(quarantined), "no luck", world.now)
    world.runner.run_once()
    assert world.ask("why", id=quarantined).kind == "undone"


def test_nested_calls_starve(world: World) -> None:
    """R201. The sentence names neither jobs nor services: who asks may not see those that keep the slots."""
    world.worker()
    parent = world.enqueue()
    child = world.enqueue(parent=parent)
    assert why(world, child) == "It waits: its only worker is busy; the oldest job has run for 0.0 s.", "nobody waits"
    world.begin("result", id=child, wait=60.0)
    assert why(world, child) == (
        "It waits: the handler in the only slot of its only worker waits for a job of the same worker; give its only "
        "worker more slots, start another one, or let handlers enqueue jobs instead of calling."
    )
    view = world.ask("why", id=world.enqueue())
    assert (view.kind, view.ahead, view.turn_in) == ("nested", 1, None), "the jobs behind it starve, too"


def test_nested_calls_starve_in_many_slots(world: World) -> None:
    for _ in range(2):
        world.worker(capacity=2)
    for parent in [world.enqueue() for _ in range(4)]:
        child = world.enqueue(parent=parent)
        world.begin("result", id=child, wait=60.0)
    assert why(world, child) == (
        "It waits: the handlers in all 4 slots of its 2 workers wait for jobs of the same workers; give its 2 workers "
        "more slots, start another one, or let handlers enqueue jobs instead of calling."
    )


# -------------------------------------------------------------------- keys and kept outcomes


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({}, ""),
        ({"key": "order-1"}, "It holds the key 'order-1' while its outcome is kept."),
        ({"key": "k", "unique": "waiting"}, "It holds the key 'k' until it starts."),
        (
            {"key": "k", "unique": "unfinished", "keep": 0.0},
            "It holds the key 'k' until it ends. Its outcome is not kept.",
        ),
        ({"keep": "forever"}, "Its outcome is kept until it is deleted."),
        ({"keep": 90.0}, "Its outcome is kept for 90 s."),
    ],
)
def test_more_is_said_about_a_key_and_about_keeping(world: World, fields: dict[str, Any], more: str) -> None:
    assert world.ask("why", id=world.enqueue(**fields)).more == more


def test_key_that_a_job_has_given_up_and_the_time_that_is_left(world: World) -> None:
    world.worker()
    name = world.enqueue(key="k", unique="waiting", keep=90.0)
    world.broker.succeed(world.attempt(name), b"", world.now)
    world.wait(30.0)
    told = "It does not hold its key 'k' any more. Its outcome is kept for 60 s from now."
    assert world.ask("why", id=name).more == told


def test_key_is_for_readers_of_the_job_only(world: World) -> None:
    """R147."""
    world.broker.principals.apply({"viewer": (Rights(see=("s",)), NO_LIMITS)})
    name = world.enqueue(key="secret", keep="forever")
    world.act_as("viewer")
    assert world.ask("why", id=name).more == "Its outcome is kept until it is deleted."
