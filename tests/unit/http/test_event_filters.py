"""Filters of event streams: service, worker, state, rate, and the events that are not made at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from http_worker import Worker, kind, token
from http_world import World
from test_events import Listener

from dragoman.core.events import JOB_RUNNING, PublishEvent
from dragoman.core.model import Job
from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.http import subscribers
from dragoman.http.admission import Admission


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


class FilteredListener(Listener):
    """A stream of all events, with a query."""

    def __init__(self, world: World, query: str) -> None:
        super().__init__(world, "/v1/events", query=query)

    def names(self) -> list[str]:
        return [event for event, _ in self.hears()]

    def jobs(self) -> list[tuple[str, str]]:
        return [(event, said["id"]) for event, said in self.hears()]


def made(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count the events of jobs that are made."""
    kinds: list[str] = []
    publish = world.broker.events._publish_job

    def count(kind: int, job: Job, reason: str = "", progress: bytes = b"") -> None:
        effects = world.broker.events._effects
        before = sum(isinstance(each, PublishEvent) for each in effects)
        publish(kind, job, reason, progress)
        if sum(isinstance(each, PublishEvent) for each in effects) > before:
            kinds.append(job.service.name)

    monkeypatch.setattr(type(world.broker.events), "_publish_job", lambda _, *args, **named: count(*args, **named))
    return kinds


def test_events_of_one_service(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of other services are not even made."""
    stream = FilteredListener(world, "service=s")
    kinds = made(world, monkeypatch)
    Worker(world, "s", "t", name="both")
    Worker(world, "t", name="other")
    name = world.enqueue("s")
    world.enqueue("t")
    assert [(event, said.get("name") or said["id"]) for event, said in stream.hears()] == [
        ("joined", "both"),
        ("waiting", name),
    ]
    assert kinds == ["s"]


def test_events_of_a_job_are_the_only_ones_that_are_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name = world.enqueue("s")
    stream = Listener(world, f"/v1/jobs/{name}/events")
    kinds = made(world, monkeypatch)
    world.enqueue("t")
    assert world.ask("DELETE", f"/v1/jobs/{name}").status_code == 200
    assert [event for event, _ in stream.hears()] == ["waiting", "ended"]
    assert kinds == ["s"]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("waiting", ["waiting", "waiting"]),
        ("running", ["running", "progress", "running"]),
        ("ended", ["ended", "ended"]),
        ("done", ["ended"]),
        ("failed", ["ended"]),
        ("undone", ["ended"]),
        ("lost", []),
    ],
)
def test_events_of_one_state(world: World, state: str, expected: list[str]) -> None:
    stream = FilteredListener(world, f"state={state}")
    worker = Worker(world)
    for outcome in ("result", "result?outcome=failed"):
        world.enqueue(attempts=1)
        given = worker.takes()
        if outcome == "result":
            worker.says("progress", token(given), b"1/2")
        worker.says(outcome, token(given), b"y")
    assert stream.names() == expected


def test_events_of_one_worker_include_the_end_of_its_jobs(world: World) -> None:
    """The event of an end names no worker: the stream knows the jobs that it has seen there."""
    one, two = Worker(world, name="one"), Worker(world, name="two")
    first = world.enqueue()
    given_first = one.takes()
    stream = FilteredListener(world, "worker=one")
    second = world.enqueue()
    given_second = two.takes()
    one.says("result", token(given_first), b"y")
    two.says("result", token(given_second), b"y")
    assert stream.jobs() == [("ended", first)]
    third = world.enqueue()
    assert world.job(third).attempt is None
    one.says("result", token(one.takes()), b"y")
    assert stream.jobs() == [("running", third), ("ended", third)]
    assert second not in (first, third)
    numbered = FilteredListener(world, f"worker={two.core.id}&state=ended")
    world.enqueue()
    two.says("result", token(two.takes()), b"y")
    assert numbered.names() == ["ended"]


def test_events_above_the_rate_are_skipped_and_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribers, "REPORT_INTERVAL", 0.0)
    stream = FilteredListener(world, "max_rate=20&state=waiting")
    for _ in range(10):
        world.enqueue()
    events = stream.hears()
    told = [said["count"] for event, said in events if event == "skipped"]
    assert [event for event, _ in events if event != "skipped"] == ["waiting"], "one at once"
    assert sum(told) == 9
    world.now += 0.1
    for _ in range(3):
        world.enqueue()
    assert stream.names()[:2] == ["waiting", "waiting"], "20 a second are two in 100 ms"
    world.now += 60.0
    for _ in range(3):
        world.enqueue()
    assert stream.names().count("waiting") == 2, "a pause saves up no more than that"


def test_skipped_events_are_reported_although_no_more_come(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribers, "REPORT_INTERVAL", 0.01)
    stream = FilteredListener(world, "max_rate=1&state=waiting")
    world.enqueue()
    world.enqueue()

    async def wait() -> None:
        async with asyncio.timeout(30):
            while b"skipped" not in stream._heard:
                await asyncio.sleep(0.005)

    world.loop.run_until_complete(wait())
    assert stream.names() == ["waiting", "skipped"]
    stream.hangup.happen()
    world.settle()
    assert world.broker.events.wanted & JOB_RUNNING == 0


def test_a_principal_gets_what_it_may_see(world: World) -> None:
    world.broker.principals.apply({"viewer": (Rights(see=("s",)), NO_LIMITS)})
    world.admission = Admission(world.broker.principals.named("viewer"))
    stream = FilteredListener(world, "state=waiting&max_rate=1000")
    world.admission = Admission(world.broker.principals.local)
    world.enqueue("secret")
    name = world.enqueue("s")
    assert stream.jobs() == [("waiting", name)]


def test_invalid_filters_are_errors(world: World) -> None:
    for query in ("state=sleeping", "max_rate=0", "service=", "colour=red"):
        assert kind(world.ask("GET", f"/v1/events?{query}")) == (422, "invalid")


def test_an_unfiltered_stream_beside_a_filtered_one_gets_everything(world: World) -> None:
    narrow = FilteredListener(world, "service=t&max_rate=1")
    wide = Listener(world, "/v1/events")
    world.enqueue()
    assert [event for event, _ in wide.hears()] == ["waiting"]
    assert narrow.names() == []
