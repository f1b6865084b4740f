"""Health checks for supervisors and load balancers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.owners import Owner
from dragoman.core.rights import Principal, Rights
from dragoman.http.admission import ADMITTED, Admission
from dragoman.http.health import ROUTES
from dragoman.http.operation_routes import SPECIAL_ROUTES
from dragoman.operations.schemas import HealthView
from owners import LOCAL_OWNER


class FakeContext:
    """The part of an AppContext that health checks use."""

    def __init__(self, *problems: str, owner: Owner = LOCAL_OWNER, degraded: tuple[str, ...] = ()) -> None:
        self._problems = list(problems)
        self._degraded = list(degraded)
        self._owner = owner

    def owner(self, scope: object) -> Owner:
        return self._owner

    def health(self) -> HealthView:
        return HealthView(
            ready=not self._problems,
            problems=self._problems,
            version="1.2",
            jobs=3,
            workers=2,
            peers=4,
            draining=bool(self._problems),
            loading=False,
            degraded=self._degraded,
        )


def get(path: str, listener: Any) -> Response:
    (route,) = (each for each in (*ROUTES, *SPECIAL_ROUTES.values()) if each.path == path)
    scope = {"type": "http", "headers": [], "extensions": {ADMITTED: Admission(LOCAL_OWNER.principal)}}
    return asyncio.run(route.handler(listener, Request(scope)))  # type: ignore[arg-type]


def test_an_answer_means_that_the_loop_turns_whatever_else_is_wrong() -> None:
    assert get("/livez", FakeContext("the disk is full")).status_code == 200


def test_a_broker_that_takes_jobs_is_ready() -> None:
    assert get("/readyz", FakeContext()).status_code == 200


def test_one_that_takes_none_says_all_that_is_in_the_way() -> None:
    answer = get("/readyz", FakeContext("the broker is about to stop", "the disk is full"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.media_type == "application/problem+json"
    told = json.loads(answer.body)
    assert (told["type"], told["detail"]) == (
        "urn:dragoman:not-ready",
        "the broker is about to stop; the disk is full",
    )


def test_one_with_an_unusable_shard_is_ready_and_says_so() -> None:
    """A load balancer would take all brokers of the cluster away, although the other shards work."""
    answer = get("/readyz", FakeContext(degraded=("shard 2 is unusable", "shard 3 is full")))
    assert (answer.status_code, answer.body) == (
        200,
        b"ready\ndegraded: shard 2 is unusable\ndegraded: shard 3 is full\n",
    )
    told = json.loads(get("/v1/health", FakeContext(degraded=("shard 2 is unusable",))).body)
    assert (told["ready"], told["degraded"]) == (True, ["shard 2 is unusable"])


def test_how_the_broker_is_can_be_read_even_if_it_is_not_ready() -> None:
    answer = get("/v1/health", FakeContext("the disk is full"))
    assert (answer.status_code, answer.media_type) == (200, "application/json")
    told = json.loads(answer.body)
    assert (told["ready"], told["problems"], told["jobs"], told["workers"]) == (False, ["the disk is full"], 3, 2)


def test_reasons_and_numbers_need_the_right_to_see_all_services() -> None:
    full = get("/v1/health", FakeContext("the disk is full")).body
    seer = Owner(Principal("ops", Rights(see=("*",))))
    assert get("/v1/health", FakeContext("the disk is full", owner=seer)).body == full
    web = Owner(Principal("web", Rights(call=("*",), see=("mail.*",))))
    told = json.loads(get("/v1/health", FakeContext("the disk is full", owner=web, degraded=("x",))).body)
    assert told == {
        **json.loads(full),
        "problems": [],
        "degraded": [],
        "jobs": None,
        "workers": None,
        "peers": None,
    }


def test_no_answer_about_health_is_kept_on_the_way() -> None:
    for path in ("/livez", "/readyz", "/v1/health"):
        assert get(path, FakeContext()).headers["cache-control"] == "no-store"
        assert get(path, FakeContext("x")).headers["cache-control"] == "no-store"
