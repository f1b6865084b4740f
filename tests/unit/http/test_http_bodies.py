"""Memory of unfinished bodies, and the one that is rejected if they exceed the limit (R17, L6)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from dragoman.core.broker import Broker
from dragoman.core.memory import MemoryAccount, Transit
from dragoman.core.policy import Policy
from dragoman.http.all_bodies import AllBodies
from dragoman.http.server_state import HttpServerState
from dragoman.server.admission import AdmissionLimits
from dragoman.server.runner import Runner
from dragoman.server.wiring import prepare
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy
from hostile_http import CHUNKED, LIMITS, get, post
from http_visits import Visit, World

TEN = replace(LIMITS, max_memory=10)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.serve(limits=TEN)
    yield world
    world.close()


def half(world: World, size: int) -> Visit:
    """Return a connection that has sent this part of a body."""
    visit = world.visit()
    visit.say(post(b"Content-Length: 100") + b"a" * size)
    return visit


def held(world: World) -> int:
    watch: HttpServerState = world.server._watch
    return watch.bodies.total


def test_the_largest_body_goes_when_all_are_too_much(world: World) -> None:
    """Two hundred bodies of 8 MiB each, none of them whole, once cost as much as they liked."""
    small, large, other = half(world, 2), half(world, 6), half(world, 2)
    assert held(world) == 10
    small.say(b"a")
    assert (small.statuses, large.statuses, other.statuses) == ([], [503], [])
    assert (world.reasons, held(world)) == (["busy"], 5)
    assert large.transport.is_finished
    assert json.loads(large.body)["type"] == "urn:dragoman:busy"
    assert b"retry-after: 1\r\n" in large.transport.written
    small.say(b"a" * 97)
    assert small.statuses == [200]


def test_a_body_that_is_the_largest_itself_goes(world: World) -> None:
    small, large = half(world, 4), half(world, 7)
    assert (small.statuses, large.statuses, held(world)) == ([], [503], 4)
    large.protocol.data_received(b"a" * 50)  # what it goes on to say costs nothing
    assert held(world) == 4


def test_bodies_in_chunks_count(world: World) -> None:
    visit = world.visit()
    visit.say(CHUNKED + b"5\r\nhallo\r\n")
    visit.say(b"a\r\n0123")
    assert (visit.statuses, held(world)) == ([503], 0)


def test_a_body_that_comes_whole_costs_nothing(world: World) -> None:
    visit = world.visit()
    visit.say(post(b"Content-Length: 100") + b"a" * 100)
    assert (visit.statuses, held(world)) == ([200], 0)


def test_the_app_hears_of_a_body_that_had_to_go_as_of_a_hang_up(world: World) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            heard.append(message["type"])
            if message["type"] == "http.disconnect":
                return

    world.serve(app, TEN)
    visit = half(world, 5)
    visit.say(b"a" * 6)
    assert heard == ["http.request", "http.disconnect"]
    assert (visit.statuses, world.errors) == ([503], [])


ENDS: dict[str, Callable[[Visit], None]] = {
    "the rest comes": lambda visit: visit.say(b"a" * 95),
    "it is closed": lambda visit: visit.transport.close(),
    "it breaks": lambda visit: visit.protocol.connection_lost(ConnectionResetError()),
    "it is too slow": lambda visit: visit.look(1000),
    "the server stops": lambda visit: visit.world.server.abort(),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_whatever_ends_a_body_gives_its_room_back(world: World, end: Callable[[Visit], None]) -> None:
    visit = half(world, 5)
    assert held(world) == 5
    end(visit)
    world.run_once()
    assert held(world) == 0


def test_chunks_that_are_wrong_give_their_room_back(world: World) -> None:
    visit = world.visit()
    visit.say(CHUNKED + b"5\r\nhal")
    assert held(world) == 6
    visit.say(b"lo, oh no")
    assert (visit.statuses, held(world)) == ([400], 0)


def test_what_follows_an_early_answer_costs_nothing(world: World) -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    world.serve(app, TEN)
    visit = half(world, 5)
    assert held(world) == 5
    go_on.set()
    world.run_once()
    assert (visit.statuses, held(world)) == ([404], 0)
    visit.say(b"a" * 90)
    assert held(world) == 0
    visit.say(b"a" * 5 + get())
    assert visit.statuses == [404, 404]


def test_bodies_of_several_listeners_count_together() -> None:
    """L6: the largest of all goes, also if it came to another listener; payloads of jobs leave less room."""
    memory = MemoryAccount(10)
    worlds = [World(), World()]
    try:
        bodies = AllBodies(memory)
        for each in worlds:
            each.serve(limits=TEN, all_bodies=bodies)
        large, small = half(worlds[0], 6), half(worlds[1], 4)
        assert memory.transit[Transit.BODIES] == 10
        small.say(b"a")
        assert (large.statuses, small.statuses, memory.transit[Transit.BODIES]) == ([503], [], 5)
        memory.payloads = 5
        small.say(b"a")
        assert (small.statuses, memory.transit[Transit.BODIES]) == ([503], 0)
        assert b"max_memory 10" in small.transport.written
    finally:
        for each in worlds:
            each.close()


@pytest.mark.parametrize(("said", "limit"), [("", 1234), ("?max_memory=2MiB", 2 << 20)])
def test_the_brokers_limit_holds_unless_the_url_says_another(said: str, limit: int) -> None:
    broker = Broker(Policy(max_memory=1234), SeededEntropy("limit"))
    line = Runner(broker, NullStore(), lambda: 0.0, lambda *_, **__: None, AdmissionLimits())
    listener = prepare("http://127.0.0.1:0" + said, broker, line)
    (_, listener) = listener.sockets[0]
    assert listener.serve.args[0].limits.max_memory == limit  # type: ignore[union-attr, attr-defined]


def test_unsent_responses_count_while_they_wait() -> None:
    """L6. A bug: the bytes of results that clients of HTTP had not read were in no count."""
    world, memory = World(), MemoryAccount(1_000_000)
    world.serve(all_bodies=AllBodies(memory))
    try:
        reader, other = world.visit(), world.visit()
        reader.transport.unread, other.transport.unread = 500_000, 70_000
        reader.protocol.pause_writing()
        other.protocol.pause_writing()
        assert memory.transit[Transit.RESPONSES] == 570_000
        reader.transport.unread = 100_000
        reader.look(1)
        assert memory.transit[Transit.RESPONSES] == 170_000
        other.transport.unread = 10
        other.protocol.resume_writing()
        assert memory.transit[Transit.RESPONSES] == 100_010
        reader.protocol.connection_lost(None)
        other.protocol.connection_lost(None)
        assert memory.in_transit == 0
    finally:
        world.close()
