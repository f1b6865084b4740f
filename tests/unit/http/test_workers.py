"""Workers over HTTP: joining, authentication, and jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from http_worker import Worker, call, kind, only_job, token
from http_world import MAX_PAYLOAD, World

from dragoman.core.states import JobState, WorkerState

UNKNOWN = "0" * 32


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


# ---------------------------------------------------------------- join


def test_worker_that_joins_is_told_who_it_is_and_what_is_expected_of_it(world: World) -> None:
    worker = Worker(world, "s", "t", name="w1", capacity=2, lease=20)
    assert worker.joined == {
        "id": worker.core.id,
        "token": worker.joined["token"],
        "lease": 20.0,
        "wait": 10.0,
        "max_payload": MAX_PAYLOAD,
    }
    assert worker.path == f"/v1/workers/{worker.core.id}"
    shown = world.ask("GET", worker.path).json()
    assert (shown["name"], shown["dialect"], shown["services"]) == ("w1", "http", ["s", "t"])
    assert (shown["capacity"], shown["state"], shown["lease"]) == (2, "starting", 20.0)


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"services": []},
        {"services": ["s"] * 65},
        {"services": "s"},
        {"services": [""]},
        {"services": ["a\nb"]},
        {"services": ["ü" * 100]},
        {"services": ["s"], "capacity": 0},
        {"services": ["s"], "capacity": 1001},
        {"services": ["s"], "capacity": "many"},
        {"services": ["s"], "lease": 0.5},
        {"services": ["s"], "lease": 3601},
        {"services": ["s"], "lease": None, "name": "x" * 129},
        {"services": ["s"], "name": "a\u0007b"},
        {"services": ["s"], "name": "ü" * 65},
        {"services": ["s"], "wishes": 1},
        {"services": ["s"], "limits": {"s": {"max_running": 0}}},
        {"services": ["s"], "limits": {"s": {"rate": "5/d"}}},
        {"services": ["s"], "limits": {"s": {"colour": "blue"}}},
        {"services": ["s"], "parameters": {"s": {}}},
        {"services": ["s"], "parameters": {"s": {"properties": {"x" * 257: {}}}}},
        [],
        "s",
    ],
)
def test_joins_that_make_no_sense_are_invalid(world: World, form: Any) -> None:
    assert kind(world.ask("POST", "/v1/workers", json=form)) == (422, "invalid")
    assert not world.broker.worker_registry.workers


def test_join_is_json(world: World) -> None:
    plain = world.ask("POST", "/v1/workers", content=b"s", headers={"content-type": "text/plain"})
    assert kind(plain) == (415, "wrong-content-type")
    broken = world.ask("POST", "/v1/workers", content=b"{", headers={"content-type": "application/json"})
    assert kind(broken) == (400, "malformed-json")


def test_workers_are_bounded(world: World) -> None:
    world.session.shares.most = 1
    first = Worker(world)
    answer = world.ask("POST", "/v1/workers", json={"services": ["s"]})
    assert kind(answer) == (429, "busy")
    assert "max_workers" in answer.json()["detail"]
    first.leaves()
    Worker(world)


def test_names_of_services_are_bounded() -> None:
    world = World(max_services=1)
    Worker(world)
    assert kind(world.ask("POST", "/v1/workers", json={"services": ["t"]})) == (429, "busy")
    world.close()


# ---------------------------------------------------------------- who asks


@pytest.mark.parametrize("word", ["next", "result", "progress", "heartbeat"])
@pytest.mark.parametrize("number", ["0", "77", "9007199254740992"])
def test_worker_that_is_not_known_is_gone(world: World, word: str, number: str) -> None:
    headers = {"Dragoman-Attempt": UNKNOWN}
    assert kind(world.ask("POST", f"/v1/workers/{number}/{word}", headers=headers)) == (410, "gone")


@pytest.mark.parametrize("number", ["-1", "x", "1.5", "9007199254740993", "%00"])
def test_ids_that_are_none_are_invalid(world: World, number: str) -> None:
    assert kind(world.ask("POST", f"/v1/workers/{number}/next")) == (422, "invalid")
    assert kind(world.ask("DELETE", f"/v1/workers/{number}")) == (422, "invalid")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Dragoman-Worker-Token": ""},
        {"Dragoman-Worker-Token": UNKNOWN},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {UNKNOWN}"},
        {"Authorization": "Basic eDp5"},
        [(b"Dragoman-Worker-Token", b"\xff\xfe")],
    ],
)
@pytest.mark.parametrize("word", ["next", "result", "progress", "heartbeat"])
def test_nobody_speaks_for_a_worker_without_its_token(world: World, word: str, headers: Any) -> None:
    """T8."""
    worker = Worker(world)
    waiting = call(world)
    given = worker.takes()
    attempt = {"Dragoman-Attempt": token(given)}
    said = [*headers, (b"Dragoman-Attempt", token(given).encode())] if isinstance(headers, list) else headers | attempt
    assert kind(world.ask("POST", f"{worker.path}/{word}", headers=said)) == (403, "wrong-token")
    assert kind(world.ask("DELETE", worker.path, headers=headers)) == (403, "wrong-token")
    assert not waiting.done()


def test_token_may_come_as_bearer(world: World) -> None:
    worker = Worker(world)
    headers = {"Authorization": f"bearer {worker.joined['token']}"}
    assert world.ask("POST", f"{worker.path}/heartbeat", headers=headers).status_code == 204


# ---------------------------------------------------------------- next


def test_job_comes_with_all_that_a_worker_needs_to_know(world: World) -> None:
    worker = Worker(world)
    call(world, b"bonjour", timeout="20")
    world.wait(5)
    given = worker.takes()
    job = only_job(world)
    assert given.content == b"bonjour"
    assert given.headers["dragoman-job"] == job.id.hex()
    assert given.headers["dragoman-attempt"] == job.attempt.token.hex()
    assert given.headers["dragoman-attempt-number"] == "1"
    assert given.headers["dragoman-service"] == "s"
    assert given.headers["dragoman-timeout"] == "15.000"


def test_worker_that_joined_and_does_not_ask_is_given_nothing(world: World) -> None:
    Worker(world)
    call(world)
    assert only_job(world).state is JobState.WAITING


def test_next_without_a_job_is_answered_after_a_while(world: World) -> None:
    worker = Worker(world)
    poll = worker.asks(wait=4)
    world.wait(3.9)
    assert not poll.done()
    world.wait(0.2)
    answer = world.finish(poll)
    assert (answer.status_code, answer.content) == (204, b"")
    assert worker.core.state is WorkerState.DETACHED
    call(world)
    assert only_job(world).state is JobState.WAITING
    assert worker.takes().content == b"x"


def test_next_takes_as_long_as_the_listener_allows_at_most(world: World) -> None:
    worker = Worker(world)
    poll = worker.asks(wait=600)
    world.wait(29)
    assert not poll.done()
    world.wait(1.1)
    assert world.finish(poll).status_code == 204


def test_next_that_does_not_wait_takes_what_is_there(world: World) -> None:
    worker = Worker(world)
    assert world.finish(worker.asks(wait=0)).status_code == 204
    call(world)
    assert world.finish(worker.asks(wait=0)).status_code == 200


@pytest.mark.parametrize("wait", ["-1", "x", "601", "nan", ""])
def test_waits_that_make_no_sense_are_invalid(world: World, wait: str) -> None:
    worker = Worker(world)
    answer = world.ask("POST", f"{worker.path}/next?wait={wait}", headers=worker.headers)
    assert kind(answer) == (422, "invalid")


def test_worker_lives_as_long_as_it_asks(world: World) -> None:
    worker = Worker(world, lease=4)
    for _ in range(10):
        poll = worker.asks()
        world.wait(2)
        assert world.finish(poll).status_code == 204
    assert worker.core.state is WorkerState.DETACHED


def test_two_asks_at_once_are_answered_one_by_one(world: World) -> None:
    worker = Worker(world)
    first, second = worker.asks(), worker.asks()
    call(world, b"1")
    call(world, b"2")
    given = world.finish(first)
    assert given.content == b"1"
    world.settle()
    assert not second.done()
    worker.says("result", token(given))
    assert world.finish(second).content == b"2"


def test_worker_with_room_for_more_is_given_one_job_for_each_ask(world: World) -> None:
    worker = Worker(world, capacity=2)
    first, second = worker.asks(), worker.asks()
    for body in (b"1", b"2", b"3"):
        call(world, body)
    assert [world.finish(each).content for each in (first, second)] == [b"1", b"2"]
    third = worker.asks()
    world.settle()
    assert not third.done()


def test_worker_that_has_room_for_two_jobs_and_asks_once_is_given_one(world: World) -> None:
    """R131: the other job goes to another worker at once. A bug: it was kept for a second, in case it was asked for."""
    slow, quick = Worker(world, capacity=2), Worker(world)
    call(world, b"1")
    call(world, b"2")
    assert slow.takes().content == b"1"
    assert quick.takes().content == b"2"
    assert [job.spent for job in world.broker.jobs.values()] == [0, 0]


def test_job_that_waits_for_its_worker_is_there_at_the_next_ask(world: World) -> None:
    worker = Worker(world, capacity=2)
    call(world, b"1")
    call(world, b"2")
    assert worker.takes().content == b"1"
    world.wait(0.5)
    given = worker.takes()
    assert (given.content, given.headers["dragoman-timeout"]) == (b"2", "60.000")


# ---------------------------------------------------------------- limits of services


def test_limits_that_a_worker_declares_hold_until_it_leaves(world: World) -> None:
    """R183."""
    worker = Worker(world, limits={"s": {"max_running": 4, "rate": "100/min"}})
    shown = world.ask("GET", "/v1/services/s").json()["limits"]
    assert (shown["max_running"], shown["rate"]) == (4, "100/min")
    assert shown["authors"] == dict.fromkeys(("max_running", "rate"), "declared by its workers")
    worker.leaves()
    assert world.ask("GET", "/v1/services/s").json()["limits"] is None


# ---------------------------------------------------------------- parameters of tasks


def test_background_job_with_an_unknown_parameter_waits_for_a_worker_that_has_declared_it(world: World) -> None:
    """R267 to R269."""
    known = {"type": "object", "properties": {"a": {"type": "integer"}}}
    old = Worker(world, parameters={"s": known})
    assert world.ask("GET", "/v1/services/s").json()["parameters"] == known
    made = world.ask("POST", "/v1/jobs", params=[("service", "s"), ("parameters", "a"), ("parameters", "x")])
    id = made.json()["id"]
    refusal = {"type": "dragoman.WrongArguments", "message": "s has no parameter 'x'", "retry_in": "never"}
    refusal |= {"unknown_parameters": ["x"], "known_parameters": ["a"]}
    said = {"params": {"outcome": "failed"}, "headers": {"content-type": "application/json"}}
    assert old.says("result", token(old.takes()), json.dumps(refusal).encode(), **said).status_code == 204
    why = world.ask("GET", f"/v1/jobs/{id}/why").json()
    sentence = f"Worker {old.core.id} ({old.core.name}) does not know the parameter 'x'; it waits for a newer one."
    assert (why["kind"], why["why"]) == ("declined", sentence)
    new = Worker(world, parameters={"s": {"properties": {"a": {}, "x": {}}}})
    assert new.says("result", token(new.takes()), b"done").status_code == 204
    job = world.ask("GET", f"/v1/jobs/{id}").json()
    assert (job["outcome"], len(job["attempts"])) == ("done", 1)
