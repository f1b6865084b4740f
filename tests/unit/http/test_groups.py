"""Routes of batches and groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from http_world import World

from dragoman.core.failure import Failure
from dragoman.core.packed_jobs import NO_ID, pack_jobs

UNKNOWN = "0" * 32
GROUP = "ab" * 16


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def make(world: World, size: int = 3, **facts: Any) -> tuple[str, list[str]]:
    """Enqueue a group. Returns its id and those of its jobs."""
    jobs = [{"payload": str(number), "attempts": 1} for number in range(size)]
    answer = world.ask("POST", "/v1/jobs/many", json={"service": "s", "jobs": jobs, "group": True, **facts})
    assert answer.status_code == 202, answer.text
    view = answer.json()
    return view["group"], view["jobs"]


def test_batch_is_json_or_packed_jobs(world: World) -> None:
    answer = world.ask("POST", "/v1/jobs/many", json={"service": "s", "jobs": [{"payload": "a"}, {"after": [0]}]})
    assert (answer.status_code, answer.json()["group"]) == (202, None)
    first, second = map(world.job, answer.json()["jobs"])
    assert (first.payload, second.state.value) == (b"a", "dependent")
    packed = pack_jobs([(NO_ID, b"", b"\x00\xff"), (NO_ID, b'{"service":"t"}', b"")])
    path = "/v1/jobs/many?service=s&priority=7&group=true"
    answer = world.ask("POST", path, content=packed, headers={"content-type": "application/octet-stream"})
    first, second = map(world.job, answer.json()["jobs"])
    assert (first.payload, first.options.priority, second.service.name) == (b"\x00\xff", 7, "t")
    assert world.ask("GET", f"/v1/groups/{answer.json()['group']}").json()["size"] == 2


PROBLEMS: list[tuple[dict[str, Any], int, str]] = [
    ({"jobs": [{"after": [UNKNOWN]}], "service": "s"}, 404, f"jobs[0]: after: no job or group has id {UNKNOWN}"),
    ({"jobs": [{"after": [0]}], "service": "s"}, 422, "the jobs with the indexes 0 come after each other"),
    ({"jobs": [{"priority": 10}], "service": "s"}, 422, "in the body: jobs[0].priority: must be at most 9"),
    ({"jobs": [{"colour": "red"}], "service": "s"}, 422, "in the body: jobs[0]: unknown field 'colour'"),
    ({"jobs": [{}]}, 422, "jobs[0]: it names no service, and neither does the batch"),
]


@pytest.mark.parametrize(("request_", "status", "detail"), PROBLEMS, ids=range(len(PROBLEMS)))
def test_mistakes_are_named(world: World, request_: dict[str, Any], status: int, detail: str) -> None:
    answer = world.ask("POST", "/v1/jobs/many", json=request_)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert answer.json()["detail"].startswith(detail), answer.json()
    assert world.broker.jobs == {}


def test_results_of_a_group_are_in_its_view(world: World) -> None:
    world.worker("s")
    group, names = make(world)
    task = world.begin("GET", f"/v1/groups/{group}/results?wait=30")
    world.succeed(names[0], b"one")
    world.fail(names[1], "boom", Failure("ValueError", "boom", "trace"))
    world.succeed(names[2], b"\xff")
    answer = world.finish(task)
    view = answer.json()
    assert (answer.status_code, view["complete"], view["next"]) == (200, True, None)
    first, second, third = view["results"]
    assert (first["job"], first["outcome"], first["result"]) == (names[0], "done", "one")
    assert (second["outcome"], second["reason"], second["error"]["detail"]) == ("failed", "boom", "trace")
    assert (third["result"], third["result_base64"]) == (None, "/w==")


def test_group_that_is_not_complete_is_told_as_it_is(world: World) -> None:
    group, names = make(world, 1)
    view = world.ask("GET", f"/v1/groups/{group}/results").json()
    assert (view["complete"], view["results"][0]["outcome"], view["results"][0]["result"]) == (False, None, None)
    shown = world.ask("GET", f"/v1/groups/{group}").json()
    assert (shown["says"], shown["complete"]) == ("0 of 1", False)
    assert [each["id"] for each in world.ask("GET", f"/v1/jobs?group={group}").json()["jobs"]] == names


def test_group_is_cancelled(world: World) -> None:
    group, names = make(world)
    view = world.ask("DELETE", f"/v1/groups/{group}").json()
    assert (view["complete"], view["outcomes"]) == (True, {"cancelled": 3})
    assert world.ask("GET", f"/v1/jobs/{names[0]}").json()["group"] == group


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "/results"), ("DELETE", "")])
def test_unknown_group_is_404(world: World, method: str, path: str) -> None:
    answer = world.ask(method, f"/v1/groups/{UNKNOWN}{path}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:dragoman:not-found")


def test_repeated_request_with_the_id_of_a_group_returns_it(world: World) -> None:
    assert make(world, group_id=GROUP) == make(world, group_id=GROUP)


def test_single_job_comes_after_several_in_the_query(world: World) -> None:
    first, second = world.enqueue(), world.enqueue()
    answer = world.ask("POST", f"/v1/jobs?service=s&after={first}&after={second}&input=results", content=b"own")
    assert (answer.status_code, answer.json()["after"]) == (202, [first, second])
    answer = world.ask("POST", f"/v1/jobs?service=s&service=t&after={first}")
    assert (answer.status_code, "service" in answer.json()["detail"]) == (422, True)
