"""Event streams: their events and end, and their cost while none is open (R127)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from http_worker import Worker, call, kind, only_job, token
from http_world import World

from dragoman.core.events import JOB_KINDS, RESULT_LATE, WORKER_JOINED, WORKER_LEFT, WorkerEvent
from dragoman.core.rights import LOCAL, Principal
from dragoman.http.admission import CONNECTED
from dragoman.http.app import make_app
from dragoman.http.broker_side import HttpBrokerSide
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.options import ListenerOptions
from dragoman.http.sse import Streams
from dragoman.http.subscribers import Subscribers

UNKNOWN = "0" * 32


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


class Listener:
    """A request for events, read as they come."""

    def __init__(self, world: World, path: str, method: str = "GET", app: Any = None, query: str = "") -> None:
        self._world = world
        self._heard = b""
        self.status = 0
        self.hangup = DisconnectSignal()
        scope: Any = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [],
            "extensions": {HANGUP: self.hangup, CONNECTED: world.admission},
        }
        app = app or make_app(world.listener)
        self.task: asyncio.Task[None] = world.loop.create_task(app(scope, self._receive, self._send))
        world.settle()

    def hears(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the events since the last call."""
        self._world.settle()
        heard, self._heard = self._heard, b""
        events = []
        for block in heard.decode().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if lines:
                events.append((lines["event"], json.loads(lines["data"])))
        return events

    async def _receive(self) -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self._heard += message.get("body", b"")


def test_a_jobs_life_is_heard_from_how_it_is_to_its_end(world: World) -> None:
    worker = Worker(world, name="w")
    name = world.enqueue()
    listener = Listener(world, f"/v1/jobs/{name}/events")
    about = {"id": name, "service": "s", "background": True}
    assert listener.hears() == [("waiting", {**about, "state": "waiting"})]
    given = worker.takes()
    running = {**about, "state": "running", "attempt": 1, "worker": "w", "dialect": "http"}
    assert listener.hears() == [("running", {**running, "max_attempts": 3})]
    worker.says("progress", token(given), "½".encode())
    worker.says("progress", token(given), b"\xff")
    assert listener.hears() == [
        ("progress", {**running, "progress": "½"}),
        ("progress", {**running, "progress_base64": "/w=="}),
    ]
    worker.says("result", token(given), b"y")
    assert listener.hears() == [("ended", {**about, "state": "ended", "outcome": "done"})]
    assert listener.task.done()


def test_a_retry_and_a_late_result_are_heard(world: World) -> None:
    worker = Worker(world, name="w")
    listener = Listener(world, "/v1/events", query="worker=w")
    name = world.enqueue(attempts=2, timeout=30.0, retry_first=1.0, retry_jitter=0.0)
    given = token(worker.takes())
    world.wait(30.0)
    assert worker.says("result", given, b"late").status_code == 409
    about = {"id": name, "service": "s", "background": True}
    held = {"attempt": 1, "worker": "w", "dialect": "http"}
    last = {"number": 1, "worker": "w", "outcome": "timed out", "seconds": 30.0, "reason": "no result within 30 s"}
    assert listener.hears() == [
        ("running", {**about, "state": "running", **held, "max_attempts": 2}),
        ("delayed", {**about, "state": "delayed", "last": last, "delay": 1.0}),
        ("late", {**about, "state": "delayed", **held}),
    ]


def test_job_that_has_ended_says_so_and_no_more(world: World) -> None:
    worker = Worker(world)
    name = world.enqueue(attempts=1)
    worker.says("result?outcome=failed", token(worker.takes()), b"no")
    listener = Listener(world, f"/v1/jobs/{name}/events")
    ((event, said),) = listener.hears()
    assert (event, said["outcome"], said["reason"], said["quarantined"]) == ("ended", "failed", "no", True)
    assert listener.task.done()


def test_end_that_the_store_does_not_have_yet_is_heard_of_later(world: World) -> None:
    """R103."""
    worker = Worker(world)
    name = world.enqueue()
    given = worker.takes()
    world.store.is_slow = True
    headers = {**worker.headers, "Dragoman-Attempt": token(given)}
    world.begin("POST", f"{worker.path}/result", headers=headers, content=b"y")
    listener = Listener(world, f"/v1/jobs/{name}/events")
    assert listener.hears() == []
    world.store.commit()
    assert [event for event, _ in listener.hears()] == ["ended"]
    assert listener.task.done()


def test_call_can_be_watched_too(world: World) -> None:
    worker = Worker(world)
    call(world)
    listener = Listener(world, f"/v1/jobs/{only_job(world).id.hex()}/events")
    worker.says("result", token(worker.takes()), b"y")
    assert [event for event, _ in listener.hears()] == ["waiting", "running", "ended"]


def test_other_jobs_are_not_heard_of(world: World) -> None:
    Worker(world)
    listener = Listener(world, f"/v1/jobs/{world.enqueue()}/events")
    listener.hears()
    world.enqueue()
    assert listener.hears() == []


def test_unknown_job_has_no_events(world: World) -> None:
    assert kind(world.ask("GET", f"/v1/jobs/{UNKNOWN}/events")) == (404, "not-found")
    assert kind(world.ask("GET", "/v1/jobs/x/events")) == (422, "invalid")
    world.broker.job_registry.is_loading = True
    assert kind(world.ask("GET", f"/v1/jobs/{UNKNOWN}/events")) == (503, "loading")


def test_all_jobs_and_workers_are_heard_of(world: World) -> None:
    listener = Listener(world, "/v1/events")
    worker = Worker(world, name="w")
    assert listener.hears() == [
        ("joined", {"id": worker.core.id, "name": "w", "dialect": "http", "services": ["s"]}),
    ]
    call(world)
    worker.says("result", token(worker.takes()), b"y")
    assert [event for event, _ in listener.hears()] == ["waiting", "running", "ended"]
    worker.leaves()
    assert [event for event, _ in listener.hears()] == ["left"]


def test_events_are_made_only_while_somebody_listens(world: World) -> None:
    assert world.broker.events.wanted == 0
    first, second = Listener(world, "/v1/events"), Listener(world, f"/v1/jobs/{world.enqueue()}/events")
    assert world.broker.events.wanted == JOB_KINDS | RESULT_LATE | WORKER_JOINED | WORKER_LEFT
    first.hangup.happen()
    world.settle()
    assert (first.task.done(), world.broker.events.wanted) == (True, JOB_KINDS)
    second.hangup.happen()
    world.settle()
    assert world.broker.events.wanted == 0


def test_streams_of_two_http_listeners_hear_the_same(world: World) -> None:
    first = Listener(world, "/v1/events")
    other = Subscribers(world.broker).open_stream(Streams(1), Principal(LOCAL))
    second = Listener(world, "/v1/events", app=other)
    Worker(world, name="w")
    assert [event for event, _ in first.hears()] == ["joined"]
    assert [event for event, _ in second.hears()] == ["joined"]
    second.hangup.happen()
    world.settle()
    assert world.broker.events.wanted


def test_streams_are_bounded(world: World) -> None:
    listeners = [Listener(world, "/v1/events") for _ in range(64)]
    assert kind(world.ask("GET", "/v1/events")) == (429, "too-many-streams")
    assert world.broker.events.wanted
    listeners[0].hangup.happen()
    world.settle()
    assert Listener(world, "/v1/events").status == 200


def test_listener_that_does_not_read_is_let_go(world: World) -> None:
    listener = Listener(world, "/v1/events")
    worker = Worker(world).core
    event = WorkerEvent(WORKER_JOINED, worker.id, worker.name, "http", ("s",), 1)
    listener.hears()
    for _ in range(256):
        world.session.subscribers.receive(event, world.now)
    assert len(listener.hears()) == 256
    for _ in range(257):
        world.session.subscribers.receive(event, world.now)
    world.settle()
    assert listener.task.done()


def test_streams_end_with_the_broker(world: World) -> None:
    listener = Listener(world, "/v1/events")
    world.session.close()
    world.settle()
    assert listener.task.done()
    refused = world.ask("GET", "/v1/events")
    assert kind(refused) == (503, "draining"), "it was the problem of a listener that is full"
    assert refused.json()["detail"] == "the broker is shutting down; open the stream again later"


def test_head_of_a_stream_is_no_stream(world: World) -> None:
    assert world.ask("HEAD", "/v1/events").status_code == 200
    assert world.ask("HEAD", f"/v1/jobs/{world.enqueue()}/events").status_code == 200
    assert world.broker.events.wanted == 0


def test_broker_side_uses_the_streams_that_it_is_given(world: World) -> None:
    """It took another limit than `max_streams`, because streams without one that is open are false."""
    streams = Streams(1)
    assert HttpBrokerSide(world.broker, world.runner.connections, ListenerOptions(), streams).streams is streams
