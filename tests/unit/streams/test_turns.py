"""Turns: connections that send thousands of short messages hold up nobody (R214)."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.zmtp import Zmtp
from dragoman.core.broker import Broker
from dragoman.core.effects import Effect
from dragoman.core.infinity import inf
from dragoman.core.policy import Policy
from dragoman.server.admission import AdmissionLimits
from dragoman.server.runner import Runner
from dragoman.store.null import NullStore
from dragoman.streams.stream import Stream
from dragoman.streams.turn import MOST
from dragoman.testing.entropy import SeededEntropy

SHARE = 300  # most messages of a connection in one turn
BATCH = 2_500


class Loop:
    """An event loop whose iterations are those of asyncio: calls that were requested, then readable sockets."""

    def __init__(self) -> None:
        self.readers: dict[Any, Callable[[], object]] = {}
        self.soon: deque[Callable[[], object]] = deque()
        self.later: list[Callable[[], object]] = []

    def add_reader(self, socket: Any, call: Callable[[], object]) -> None:
        self.readers[socket] = call

    def remove_reader(self, socket: Any) -> None:
        self.readers.pop(socket, None)

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        self.soon.append(partial(call, *args))

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        self.later.append(partial(call, *args))

    def iterate(self) -> None:
        for _ in range(len(self.soon)):
            self.soon.popleft()()
        for socket, call in list(self.readers.items()):
            if socket.arrived:
                call()


class Socket:
    def __init__(self) -> None:
        self.arrived: deque[bytes] = deque()  # b"" is the end
        self.writes = 0
        self.is_broken = False

    def recv(self, most: int) -> bytes:
        if not self.arrived:
            raise BlockingIOError
        return self.arrived.popleft()

    def send(self, data: bytes) -> int:
        if self.is_broken:
            raise OSError(errno.EPIPE, "broken pipe")
        self.writes += 1
        return len(data)

    def fileno(self) -> int:
        raise OSError("no file")

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...


class Session:
    """Notes who sent each message. A message takes `cost` seconds."""

    dialect = "fake"

    def __init__(self, world: World) -> None:
        self._world = world
        self.received: list[str] = []
        self.texts: dict[str, list[bytes]] = {}
        self.lost_peers: list[str] = []

    def opened(self, peer: Any, now: float) -> None: ...

    def receive(self, peer: Any, message: Message | TooLarge, now: float) -> None:
        assert isinstance(message, list)
        self.received.append(peer.label)
        self.texts.setdefault(peer.label, []).append(bytes(message[0]))
        self._world.now += self._world.cost
        if message[0] == b"ask":
            self._world.runner.connections.send(peer, [b"answer"])

    def execute(self, effect: Effect, now: float) -> None: ...

    def lost(self, peer: Any, unsent: Any, now: float) -> None:
        self.lost_peers.append(peer.label)
        self.received.append(f"end of {peer.label}")

    def refusal(self, text: str) -> None: ...

    def tick(self, now: float) -> float:
        return inf


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        self.cost = 0.0
        self.loop = Loop()
        broker = Broker(Policy(), SeededEntropy("turns"))
        self.runner = Runner(
            broker,
            NullStore(),
            lambda: self.now,
            self._log,
            AdmissionLimits(),
            wake=lambda: self.loop.call_soon(self._host),
        )
        self.session = Session(self)
        self.runner.sessions.append(cast(Any, self.session))

    def _host(self) -> None:
        """Run an iteration as `server/asyncio_host.py` does."""
        turn = self.runner.connections.turn
        if turn.has_waiting:
            turn.end()
        self.runner.run_once()
        if turn.has_waiting:
            turn.begin()
            self.runner.connections.request_iteration()

    def _log(self, level: str, event: str, **fields: Any) -> None:
        assert level != "error", (event, fields)

    def connect(self, label: str) -> Socket:
        socket = Socket()
        carrier = Zmtp("ROUTER")
        connections = self.runner.connections
        stream = Stream(cast(Any, self.loop), cast(Any, socket), carrier, connections.turn)
        peer = connections.connected(cast(Any, self.session), "both", carrier, stream, label, label)
        connections.start(peer)
        client = Zmtp("DEALER", dials=True)
        socket.arrived.append(b"".join(client.outgoing))
        client.feed(b"".join(carrier.outgoing) or b"")
        for _ in range(5):
            self.loop.iterate()
        if not peer.is_open:  # its READY follows the greeting of the broker
            socket.arrived.append(b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER")
            for _ in range(5):
                self.loop.iterate()
        assert peer.is_open
        socket.writes = 0
        return socket

    def turns_until(self, is_over: Callable[[], bool]) -> int:
        for turns in range(10_000):
            if is_over():
                return turns
            self.loop.iterate()
        raise AssertionError("it does not come to an end")


def many(count: int, text: bytes = b"x") -> bytes:
    return b"".join(Zmtp("DEALER").encode([text])) * count


@pytest.fixture
def world() -> World:
    return World()


def test_thousands_of_messages_of_one_read_are_handled_in_turns(world: World) -> None:
    """A bug: 64 KiB of short messages were handled in one turn of the loop, on each of a hundred connections: health
    checks waited for six seconds."""
    hog, other = world.connect("hog"), world.connect("other")
    hog.arrived.append(many(BATCH))
    longest = before = 0
    while world.session.received.count("hog") < BATCH:
        other.arrived.append(many(1))
        seen = len(world.session.received)
        world.loop.iterate()
        assert "other" in world.session.received[seen:], "it is read in each turn"
        handled = world.session.received.count("hog")
        longest, before = max(longest, handled - before), handled
    assert longest <= SHARE


def test_a_turn_ends_after_its_time_and_all_connections_take_turns(world: World) -> None:
    """Time, and not the number of messages, bounds a turn whose messages take long."""
    world.cost = 0.001
    hogs = [world.connect(f"hog {number}") for number in range(20)]
    for hog in hogs:
        hog.arrived.append(many(300))
    longest, turns = 0.0, 0
    while len(world.session.received) < 20 * 300:
        began = world.now
        world.loop.iterate()
        longest = max(longest, world.now - began)
        counts = [world.session.received.count(f"hog {number}") for number in range(20)]
        turns += 1
        assert turns < 20 or min(counts) >= MOST, "each is read after the others that came before it"
    assert longest < 0.06


def test_a_connection_with_one_message_does_not_wait_for_those_with_thousands(world: World) -> None:
    """A bug: a worker that sent a heartbeat waited until a hundred others had been handled, and connected again."""
    world.cost = 0.0001
    healthy = world.connect("healthy")
    for hog in [world.connect(f"hog {number}") for number in range(100)]:
        hog.arrived.append(many(BATCH))
    world.loop.readers[healthy] = world.loop.readers.pop(healthy)  # the loop calls it last
    world.turns_until(lambda: len({*world.session.received}) == 100)  # each has had its first share
    for _ in range(10):
        healthy.arrived.append(many(1))
        count = world.session.received.count("healthy")
        began = world.now
        world.turns_until(lambda count=count: world.session.received.count("healthy") > count)  # type: ignore[misc]
        assert world.now - began < 0.06


def test_a_batch_of_a_hundred_is_handled_in_one_turn_and_answered_with_one_write(world: World) -> None:
    socket = world.connect("caller")
    socket.arrived.append(many(100, b"ask"))
    world.turns_until(lambda: socket.writes > 0)
    assert (len(world.session.received), socket.writes) == (100, 1)


def test_messages_keep_their_order_and_the_end_comes_after_them(world: World) -> None:
    socket = world.connect("caller")
    texts = [b"%d" % number for number in range(1_000)]
    encode = Zmtp("DEALER").encode
    socket.arrived += [b"".join(b"".join(encode([text])) for text in texts), many(1, b"behind"), b""]
    world.turns_until(lambda: bool(world.session.lost_peers))
    assert world.session.texts["caller"] == [*texts, b"behind"]
    assert world.session.received[-1] == "end of caller"


def test_messages_that_were_read_before_a_write_failed_are_handled(world: World) -> None:
    socket = world.connect("caller")
    socket.arrived.append(many(1, b"ask") + many(1_000))
    socket.is_broken = True
    world.turns_until(lambda: bool(world.session.lost_peers))
    assert world.session.received == ["caller"] * 1_001 + ["end of caller"]


def test_after_a_pause_of_the_broker_all_sockets_are_read_dry(world: World) -> None:
    """R22: also those that have more messages than a turn handles."""
    sockets = [world.connect(f"worker {number}") for number in range(3)]
    for socket in sockets:
        socket.arrived += [many(1_000), many(1_000), many(1)]
    connections = world.runner.connections
    connections.registry.handle_pause(world.runner.broker, 5.0)
    assert [world.session.received.count(f"worker {number}") for number in range(3)] == [2_001] * 3
    world.cost = 0.01
    for socket in sockets:
        socket.arrived += [many(1_000)]
    began = world.now
    connections.registry.handle_pause(world.runner.broker, 5.0)
    assert world.now - began < 1.0 + 2 * MOST * world.cost


def test_a_connection_that_waits_for_its_turn_is_not_silent(world: World) -> None:
    """Its messages are at the broker, which has not decoded them: it is neither asked nor closed."""
    socket = world.connect("caller")
    (peer,) = world.runner.connections.peers
    socket.arrived.append(many(1_000))
    world.loop.readers[socket]()
    assert peer.stream is not None
    assert peer.stream.is_queued
    for _ in range(5):
        world.now += 4.0
        world.runner.connections.registry.watch(world.now)
    assert (peer.closing, socket.writes) == (None, 0)
    world.turns_until(lambda: len(world.session.received) == 1_000)
    for _ in range(6):
        world.now += 4.0
        world.runner.connections.registry.watch(world.now)
    assert peer.closing is not None
    assert peer.closing.startswith("nothing received for")
