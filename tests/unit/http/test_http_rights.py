"""Rights of HTTP clients: problems, foreign jobs, event streams, metrics (R146 to R152)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from http_world import World
from test_events import UNKNOWN, Listener

from dragoman.core.histogram import Histogram
from dragoman.core.options import WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.http.context import AppContext

TABLE = {
    "web": Rights(call=("mail",), work=("mail", "billing")),
    "other": Rights(call=("mail",)),
    "viewer": Rights(see=("mail",)),
    "ops": Rights(administer=("mail",)),
    "scraper": Rights(see=("*",)),
}


class RightsWorld(World):
    """Requests come from the principal that the test has set."""

    def __init__(self) -> None:
        super().__init__()
        self.broker.principals.apply({name: (rights, NO_LIMITS) for name, rights in TABLE.items()})
        self.act_as("local")

    def act_as(self, name: str) -> None:
        self.owner = Owner(self.broker.principals.named(name), f"address of {name}")

    def as_(self, name: str, method: str, path: str, **facts: Any) -> Any:
        self.act_as(name)
        return self.ask(method, path, **facts)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[RightsWorld]:
    world = RightsWorld()
    monkeypatch.setattr(AppContext, "owner", lambda self, scope: world.owner)
    yield world
    world.close()


def test_a_missing_right_is_403_forbidden(world: RightsWorld) -> None:
    allow = "an administrator of the broker gives the right with: dragoman access allow viewer"
    refused = world.as_("viewer", "POST", "/v1/services/mail/pause")
    assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json")
    assert refused.json() == {
        "type": "urn:dragoman:forbidden",
        "title": "Forbidden",
        "status": 403,
        "detail": f"viewer may not administer 'mail'; {allow} --administer mail",
    }
    enqueued = world.as_("viewer", "POST", "/v1/jobs", json={"service": "mail"})
    assert (enqueued.status_code, enqueued.json()["detail"]) == (
        403,
        f"viewer may not call 'mail'; {allow} --call mail",
    )
    assert world.broker.counters.rights_refused == {("administer", "http"): 1, ("call", "http"): 1}


def test_a_call_that_the_core_refuses_is_403_forbidden(world: RightsWorld) -> None:
    refused = world.as_("viewer", "POST", "/v1/call/mail", content=b"x")
    assert (refused.status_code, refused.json()["type"], refused.json()["detail"]) == (
        403,
        "urn:dragoman:forbidden",
        "viewer may not call 'mail'",
    )
    assert world.broker.counters.rights_refused == {("call", "http"): 1}


def test_a_foreign_job_is_a_404_as_an_unknown_one_to_the_byte(world: RightsWorld) -> None:
    """R147"""
    world.act_as("web")
    job = world.enqueue("mail")
    requests = [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/payload"),
        ("GET", "/result"),
        ("GET", "/why"),
        ("GET", "/events"),
        ("POST", "/retry"),
    ]
    for method, path in requests:
        foreign = world.as_("other", method, f"/v1/jobs/{job}{path}")
        unknown = world.as_("other", method, f"/v1/jobs/{UNKNOWN}{path}")
        assert foreign.status_code == unknown.status_code == 404, path
        assert foreign.content.replace(job.encode(), UNKNOWN.encode()) == unknown.content, path
        assert foreign.headers == unknown.headers, path
    assert world.as_("web", "GET", f"/v1/jobs/{job}").json()["state"] == "waiting"
    assert world.broker.counters.rights_refused == {("see", "http"): 3, ("administer", "http"): 4}


def test_a_key_of_another_principal_is_not_there(world: RightsWorld) -> None:
    world.act_as("web")
    first = world.enqueue("mail", "secret", key="k")
    world.act_as("other")
    second = world.enqueue("mail", "mine", key="k")
    assert first != second


def test_metrics_need_the_right_to_see_all_services(world: RightsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """R150"""
    monkeypatch.setattr(world.store, "commits", Histogram(), raising=False)
    refused = world.as_("viewer", "GET", "/metrics")
    assert (refused.status_code, refused.json()["detail"].partition(";")[0]) == (
        403,
        "viewer may not see all services",
    )
    assert world.broker.counters.rights_refused == {("see", "http"): 1}
    told = world.as_("scraper", "GET", "/metrics")
    assert told.status_code == 200
    assert 'dragoman_rights_refused_total{right="see",dialect="http"} 1' in told.text
    assert world.as_("local", "GET", "/metrics").status_code == 200


# -------------------------------------------------------------------- events


def listeners(world: RightsWorld, path: str, *names: str) -> dict[str, Listener]:
    found = {}
    for name in names:
        world.act_as(name)
        found[name] = Listener(world, path)
    return found


def heard(streams: dict[str, Listener]) -> dict[str, list[str]]:
    return {name: [event for event, _ in stream.hears()] for name, stream in streams.items()}


def test_each_event_is_for_those_who_may_see_its_job(world: RightsWorld) -> None:
    """R148. Progress is content: it is for the owner and for administrators."""
    streams = listeners(world, "/v1/events", "local", "web", "other", "viewer", "ops", "scraper")
    world.act_as("web")
    job = world.enqueue("mail")
    everybody = {name: ["waiting"] for name in streams} | {"other": []}
    assert heard(streams) == everybody
    worker = world.worker("mail")
    assert heard(streams) == {
        "local": ["joined", "running"],
        "web": ["running"],
        "other": [],
        "viewer": ["joined", "running"],
        "ops": ["joined", "running"],
        "scraper": ["joined", "running"],
    }
    world.broker.attempts.progress(world.attempt(job), b"half", world.now)
    world.runner.run_once()
    none: list[str] = []
    assert heard(streams) == {
        "local": ["progress"],
        "web": ["progress"],
        "other": none,
        "viewer": none,
        "ops": ["progress"],
        "scraper": none,
    }
    world.succeed(job, b"done")
    world.broker.leave(worker, world.now, "gone")
    world.runner.run_once()
    assert heard(streams)["other"] == []


def test_an_event_of_a_worker_has_the_services_that_the_principal_may_see(world: RightsWorld) -> None:
    streams = listeners(world, "/v1/events", "local", "web", "other", "viewer")
    world.act_as("web")
    services = ("mail", "billing")
    joined = world.broker.join(Recipient(), None, "w", services, WorkerProfile(), world.now, world.owner)
    assert joined is not None
    world.runner.run_once()
    told = {name: [data["services"] for _, data in stream.hears()] for name, stream in streams.items()}
    assert told == {"local": [["mail", "billing"]], "web": [["mail", "billing"]], "other": [], "viewer": [["mail"]]}


def test_an_event_names_no_predecessor_that_the_principal_may_not_see(world: RightsWorld) -> None:
    """The event of a cancelled job had the id and the failure of the job that it came after, for everybody."""
    world.act_as("local")
    world.worker("billing")
    before = world.enqueue("billing", attempts=1)
    job = world.enqueue("mail", after=[before])
    streams = listeners(world, "/v1/events", "local", "viewer", "scraper")
    of_job = listeners(world, f"/v1/jobs/{job}/events", "viewer")
    world.fail(before, "E: REASONMARK")
    world.wait(0.0)
    whole, hidden = (
        f"job {before}, which it comes after, ended failed: E: REASONMARK",
        "a job that it comes after ended failed",
    )
    told = {
        name: [data["reason"] for event, data in stream.hears() if event == "ended" and data["id"] == job]
        for name, stream in streams.items()
    }
    assert told == {"local": [whole], "viewer": [hidden], "scraper": [whole]}
    assert [data.get("reason") for _, data in of_job["viewer"].hears()] == [None, hidden]
    later = listeners(world, f"/v1/jobs/{job}/events", "viewer", "local")
    assert {name: stream.hears()[0][1]["reason"] for name, stream in later.items()} == {
        "viewer": hidden,
        "local": whole,
    }


def test_a_principal_that_loses_its_right_gets_no_more_events(world: RightsWorld) -> None:
    streams = listeners(world, "/v1/events", "viewer")
    world.act_as("local")
    world.enqueue("mail")
    assert heard(streams) == {"viewer": ["waiting"]}
    world.broker.principals.apply({})
    world.enqueue("mail")
    assert heard(streams) == {"viewer": []}


def test_the_stream_of_a_job_is_for_those_who_may_see_it(world: RightsWorld) -> None:
    world.act_as("web")
    job = world.enqueue("mail")
    path = f"/v1/jobs/{job}/events"
    streams = listeners(world, path, "web", "viewer", "ops", "other")
    assert {name: stream.status for name, stream in streams.items()} == {
        "web": 200,
        "viewer": 200,
        "ops": 200,
        "other": 404,
    }
    del streams["other"]
    assert heard(streams) == {name: ["waiting"] for name in streams}
    world.worker("mail")
    world.broker.attempts.progress(world.attempt(job), b"half", world.now)
    world.succeed(job, b"done")
    assert heard(streams) == {
        "web": ["running", "progress", "ended"],
        "viewer": ["running", "ended"],
        "ops": ["running", "progress", "ended"],
    }
