"""The stream of snapshots: its start, its events, its end, and its errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from http_worker import kind
from http_world import WALL, World

from dragoman.http.admission import CONNECTED
from dragoman.http.app import make_app
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.server.dashboard_source import make_dashboard


class LiveWorld(World):
    def __init__(self) -> None:
        super().__init__()
        self.dashboard = make_dashboard(
            self.runner, self.operations, self._health, lambda: WALL, lambda: self.now, max_connections=100
        )
        self.listener.dashboard = self.dashboard

    def sample(self) -> None:
        for _ in self.dashboard.sample(self.now):
            pass

    def publish(self) -> None:
        for _ in self.dashboard.publish(self.now):
            pass
        self.settle()


@pytest.fixture
def world() -> Iterator[LiveWorld]:
    world = LiveWorld()
    world.sample()
    yield world
    world.dashboard.close()
    world.close()


class Reader:
    """A client of the stream."""

    def __init__(self, world: LiveWorld, query: str = "", method: str = "GET") -> None:
        self._world = world
        self._body = b""
        self.status = 0
        self.disconnect = DisconnectSignal()
        scope: Any = {
            "type": "http",
            "method": method,
            "path": "/v1/live",
            "raw_path": b"/v1/live",
            "query_string": query.encode(),
            "headers": [],
            "extensions": {HANGUP: self.disconnect, CONNECTED: world.admission},
        }
        self.task: asyncio.Task[None] = world.loop.create_task(
            make_app(world.listener)(scope, self._receive, self._send)
        )
        world.settle()

    def snapshots(self) -> list[dict[str, Any]]:
        """Return the snapshots since the last call."""
        self._world.settle()
        body, self._body = self._body, b""
        blocks = [each.splitlines() for each in body.decode().split("\n\n") if each.startswith("event: snapshot")]
        return [json.loads(lines[1].removeprefix("data: ")) for lines in blocks]

    async def _receive(self) -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self._body += message.get("body", b"")


def test_a_reader_gets_a_snapshot_at_once_and_then_each_one_that_is_published(world: LiveWorld) -> None:
    world.worker("s")
    world.sample()
    reader = Reader(world, "page=service/s")
    ((first),) = reader.snapshots()
    assert (reader.status, first["seq"], first["page"]["service"]["workers"]) == (200, 1, 1)
    world.publish()
    world.publish()
    assert [each["seq"] for each in reader.snapshots()] == [2, 3]


def test_a_reader_that_disconnects_is_not_watching_any_more(world: LiveWorld) -> None:
    reader = Reader(world)
    assert world.dashboard.is_watched
    reader.disconnect.happen()
    world.settle()
    assert reader.task.done()
    assert not world.dashboard.is_watched


def test_streams_of_snapshots_count_as_event_streams(world: LiveWorld) -> None:
    readers = [Reader(world) for _ in range(64)]
    assert kind(world.ask("GET", "/v1/live")) == (429, "too-many-streams")
    readers[0].disconnect.happen()
    world.settle()
    assert Reader(world).status == 200


def test_a_stream_ends_with_the_broker(world: LiveWorld) -> None:
    reader = Reader(world)
    world.session.close()
    world.settle()
    assert reader.task.done()


def test_head_opens_no_stream(world: LiveWorld) -> None:
    reader = Reader(world, method="HEAD")
    assert (reader.status, reader.task.done(), world.dashboard.is_watched) == (200, True, False)


def test_an_unknown_page_is_an_error(world: LiveWorld) -> None:
    answer = world.ask("GET", "/v1/live?page=jobs")
    assert kind(answer) == (422, "invalid")
    assert answer.json()["detail"] == (
        "page, in the query: unknown page 'jobs'; pages are overview, workers, service/NAME, worker/ID and job/ID."
    )
    assert kind(world.ask("GET", "/v1/live?pages=overview")) == (422, "invalid")


def test_a_broker_without_a_dashboard_has_no_stream(world: LiveWorld) -> None:
    world.listener.dashboard = None
    assert kind(world.ask("GET", "/v1/live")) == (409, "conflict")


def test_the_dashboard_samples_and_publishes_by_itself(world: LiveWorld) -> None:
    """A snapshot each second while a reader watches; a sample every 2 seconds."""
    waits: list[float] = []
    ended = asyncio.CancelledError()

    async def sleep(seconds: float) -> None:
        if seconds:
            waits.append(seconds)
            world.now += seconds
            if len(waits) == 8:
                raise ended

    world.now = 1_000.5
    reader = Reader(world)
    reader.snapshots()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dragoman.dashboard.dashboard.asyncio.sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            world.loop.run_until_complete(world.dashboard._run())
    assert waits == [0.5, *[1.0] * 7]
    assert [each["seq"] for each in reader.snapshots()][-1] == 9
    assert world.dashboard._sources.sampler.at == 1_006.0
