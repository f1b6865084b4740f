"""Operations `ladder` and `worker ladder`: who sees which messages, and what is answered without any."""

from __future__ import annotations

import pytest

from dragoman.core.infinity import inf
from dragoman.core.recording import from_worker, record_heartbeat, to_worker
from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.operations.ladder_schemas import ConversationView
from dragoman.operations.schemas import ErrorView

from .world import UNKNOWN, World


@pytest.fixture
def world() -> World:
    world = World()
    world.broker.job_registry.conversations.start()
    return world


def messages(view: ConversationView) -> list[str]:
    return [row.message for row in view.messages if row.message]


def test_requests_and_responses_of_operations_are_part_of_the_ladder(world: World) -> None:
    world.worker("s")
    job = world.enqueue("s", attempts=1)
    world.broker.fail(world.attempt(job), "poison", world.now)
    world.runner.run_once()
    world.store.write()
    assert messages(world.ask("ladder", id=job)) == ["enqueue", "TELL"]
    world.begin("result", id=job)
    world.store.bring()
    assert messages(world.ask("ladder", id=job))[2:] == ["result", "TELL"]
    retried = world.ask("retry", id=job).id
    assert messages(world.ask("ladder", id=retried))[:2] == ["retry", "TELL"]
    assert world.ask("job", id=retried).recorded == "messages"


def test_an_unknown_job_is_not_found_and_a_broker_without_ladders_says_so(world: World) -> None:
    assert world.ask("ladder", id=UNKNOWN).kind == "not found"
    world.broker.job_registry.conversations.is_on = False
    worker = world.worker("s")
    world.broker.job_registry.conversations.next_at = inf
    for answer in (world.ask("ladder", id=world.enqueue("s")), world.ask("worker ladder", id=worker.id)):
        assert isinstance(answer, ErrorView)
        assert answer.kind == "conflict"
        assert "--ladders" in answer.detail


def test_a_call_that_has_ended_is_seen_by_its_owner_and_by_those_with_the_right(world: World) -> None:
    """R147. The job itself is gone; its conversation names the owner and the service."""
    table = {"web": Rights(call=("mail",)), "viewer": Rights(see=("mail",)), "other": Rights(call=("mail",))}
    world.broker.principals.apply({name: (rights, NO_LIMITS) for name, rights in table.items()})
    world.act_as("web")
    job = world.enqueue("mail")
    world.store.write()
    world.broker.withdraw(world.job(job), world.now)
    world.runner.run_once()
    world.store.write()
    world.broker.job_registry.kept.erase(world.job(job))
    for name, is_seen in (("web", True), ("viewer", True), ("other", False)):
        world.act_as(name)
        answer = world.ask("ladder", id=job)
        assert isinstance(answer, ConversationView) is is_seen
        if is_seen:  # only the owner, and administrators, see addresses
            assert (answer.lanes[0].name == "caller") == (name == "viewer")
        if not is_seen:
            unknown = world.ask("ladder", id=UNKNOWN)
            assert answer == ErrorView(kind=unknown.kind, detail=unknown.detail.replace(UNKNOWN, job))


def test_the_ladder_of_a_worker_leaves_out_jobs_that_the_principal_may_not_see(world: World) -> None:
    worker = world.worker("mail", "pay", capacity=2)
    assert world.ask("worker ladder", id=worker.id).messages == []  # recorded from now on
    record_heartbeat(worker, "PING/PONG", world.now)
    for service in ("mail", "pay"):
        attempt = world.attempt(world.enqueue(service))
        to_worker(attempt, f"JOB of {service}", 1, world.now)
        from_worker(attempt, f"RESULT of {service}", 1, world.now)
    assert messages(world.ask("worker ladder", id=worker.id)) == [
        *("PING/PONG", "JOB of mail", "RESULT of mail", "JOB of pay", "RESULT of pay"),
    ]
    world.broker.principals.apply({"viewer": (Rights(see=("mail",)), NO_LIMITS)})
    world.act_as("viewer")
    seen = world.ask("worker ladder", id=worker.id)
    assert messages(seen) == ["PING/PONG", "JOB of mail", "RESULT of mail"]
    assert all(len(row.job) in (0, 32) for row in seen.messages)


def test_no_payload_is_part_of_a_ladder(world: World) -> None:
    world.worker("s")
    job = world.enqueue("s", b"top secret")
    assert "secret" not in repr(world.ask("ladder", id=job))


def test_a_caller_without_an_address_has_a_name_in_a_reconstructed_ladder(world: World) -> None:
    """Text had lines such as ` --- enqueue --> broker`, and Mermaid a participant without a name."""
    world.broker.job_registry.conversations.next_at = inf
    job = world.enqueue("s", attempts=1)
    world.store.write()
    world.job(job).owner.address = ""
    world.worker("s")
    world.broker.fail(world.attempt(job), "poison", world.now)
    world.runner.run_once()
    world.store.write()
    view = world.ask("ladder", id=job)
    assert (view.recorded, view.lanes[0].role, view.lanes[0].name) == ("milestones", "caller", "caller")
