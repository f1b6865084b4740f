"""The operation `enqueue`: requests, keys, refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from dragoman.core.options import JobOptions
from dragoman.core.states import JobState
from dragoman.operations.schemas import ErrorView

from .world import WALL, World


def test_job_is_acknowledged_after_its_commit(world: World) -> None:
    """R103."""
    world.store.is_slow = True
    responder = world.begin("enqueue", b"x", service="s")
    assert responder.responses == []
    world.store.write()
    world.runner.run_once()
    (view,) = responder.responses
    assert (view.state, view.background, view.max_attempts, view.priority) == ("waiting", True, 3, 5)
    assert view.created == datetime.fromtimestamp(WALL + world.now, UTC)


def test_outcome_is_sent_only_to_requests_that_wait_for_it(world: World) -> None:
    responder = world.begin("enqueue", b"x", service="s")
    world.worker()
    world.broker.succeed(world.attempt(responder.responses[0].id), b"r", world.now)
    world.runner.run_once()
    assert len(responder.responses) == 1


@pytest.mark.parametrize(
    ("fields", "body", "payload"),
    [
        ({"payload": "grüße"}, b"", "grüße".encode()),
        ({"payload_base64": "AP8="}, b"", b"\x00\xff"),
        ({}, b"body", b"body"),
        ({}, b"", b""),
        ({"payload": ""}, b"", b""),
    ],
)
def test_payload_is_in_the_request_or_beside_it(world: World, fields: Any, body: bytes, payload: bytes) -> None:
    name = world.enqueue(body=body, **fields)
    assert world.job(name).payload == payload


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"payload": "a", "payload_base64": "AA=="}, b""),
        ({"payload": "a"}, b"b"),
        ({"payload_base64": "not base64!"}, b""),
        ({"not_before": datetime(2030, 1, 1)}, b""),
        ({"not_before": datetime(2300, 1, 1, tzinfo=UTC)}, b""),
        ({"service": "a\x00b"}, b""),
        ({"service": "ü" * 100}, b""),
        ({"key": "ü" * 200}, b""),
    ],
)
def test_what_cannot_be_meant_is_invalid(world: World, fields: Any, body: bytes) -> None:
    told = world.ask("enqueue", body, **{"service": "s", **fields})
    assert isinstance(told, ErrorView)
    assert told.kind == "invalid"
    assert world.broker.jobs == {}


def test_moment_of_the_wall_clock_is_a_delay(world: World) -> None:
    wall = datetime.fromtimestamp(WALL + world.now + 60.0, timezone(timedelta(hours=5)))
    job = world.job(world.enqueue(not_before=wall))
    assert (job.state, job.start_at) == (JobState.DELAYED, world.now + 60.0)
    past = world.job(world.enqueue(not_before=wall - timedelta(days=1)))
    assert past.state is JobState.WAITING


def test_options_reach_the_job(world: World) -> None:
    job = world.job(
        world.enqueue(priority=9, attempts=7, timeout=5.0, retry_first=2.0, retry_cap=3.0, retry_jitter=0.5, delay=1.0)
    )
    assert job.options == JobOptions(
        priority=9,
        attempts=7,
        job_timeout=5.0,
        retry_first=2.0,
        retry_cap=3.0,
        retry_jitter=0.5,
        delay=1.0,
        waits=True,
        durable=True,
    )


def test_same_key_is_the_same_job_and_another_payload_is_not(world: World) -> None:
    """R24, R123."""
    first = world.enqueue(key="k")
    assert world.enqueue(key="k") == first
    told = world.ask("enqueue", b"other", service="s", key="k")
    assert told.kind == "key reused"


def test_same_key_after_the_end_tells_the_outcome(world: World) -> None:
    first = world.enqueue(key="k")
    world.worker()
    world.broker.succeed(world.attempt(first), b"result", world.now)
    responder = world.begin("enqueue", b"x", service="s", key="k")
    assert (responder.responses[0].id, responder.responses[0].outcome, responder.payload) == (first, "done", b"result")


@pytest.mark.parametrize(("policy", "kind"), [({"max_jobs": 1}, "busy"), ({"max_memory": 1}, "busy")])
def test_full_broker_refuses(policy: Any, kind: str) -> None:
    world = World(**policy)
    world.enqueue()
    assert world.ask("enqueue", b"x", service="s").kind == kind


def test_draining_broker_refuses(world: World) -> None:
    world.broker.operator.close(world.now)
    assert world.ask("enqueue", b"x", service="s").kind == "draining"


def test_full_disk_refuses_and_forgets(world: World) -> None:
    """R101."""
    world.store.problem = "disk full"
    told = world.ask("enqueue", b"x", service="s", key="k")
    assert (told.kind, world.broker.jobs) == ("store unavailable", {})
    world.store.problem = None
    world.enqueue(key="k")


def test_key_cannot_be_judged_while_jobs_are_read(world: World) -> None:
    world.broker.job_registry.is_loading = True
    assert world.ask("enqueue", b"x", service="s", key="k").kind == "loading"
    world.enqueue()
