"""Jobs in batches, in numbers that do not depend on the machine: calls, reads and writes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from call_counts import counting
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.streams.stream import Stream

from .world import HEADS, MAX_PAYLOAD, End, Frames, World, hello, new_id, read, result, submit

BATCHES, SIZE = 4, 25
MOST_CALLS = 38 * 1.05  # of a job in a batch; what was counted, and a twentieth more


def test_calls_of_a_job_in_a_batch() -> None:
    """A figure that rises shows that work was added to every job."""
    world = World(strict=False)
    client, worker = world.client(), world.worker(capacity=100)
    numbers = iter(range(1, 1_000))
    calls: Counter[tuple[str, str]] = Counter()

    def receive(end: End, frames: Frames) -> None:
        messages = end.peer.carrier.feed(b"".join(end.carrier.encode(frames)))
        with counting() as counted:
            world.connections.arrived(end.peer, messages)
            world.runner.run_once()
        calls.update(counted)

    for batch in range(BATCHES + 1):
        receive(client, submit([(new_id(next(numbers)), b"x") for _ in range(SIZE)]))
        worker.pump()
        given = worker.told()
        assert len(given) == SIZE
        receive(worker, result(*((job[1], b"y") for job in given)))
        client.pump()
        assert [said[0] for said in client.told()] == ["RESULT"] * SIZE
        if not batch:
            calls.clear()  # the first one meets things for the first time
    a_job = sum(calls.values()) / (BATCHES * SIZE)
    most = ", ".join(f"{module}:{name} {count / (BATCHES * SIZE):g}" for (module, name), count in calls.most_common(60))
    assert a_job <= MOST_CALLS, f"{a_job} calls: {most}"


class Loop:
    """The part of an event loop that a stream uses."""

    def __init__(self) -> None:
        self.readers: dict[object, Callable[[], object]] = {}

    def add_reader(self, socket: object, call: Callable[[], object]) -> None:
        self.readers[socket] = call

    def call_later(self, *_: object) -> None: ...


class Socket:
    """Counts the calls of a stream."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.arrived: deque[bytes] = deque()
        self.taken = bytearray()

    def recv(self, most: int) -> bytes:
        self.calls["read"] += 1
        if not self.arrived:
            raise BlockingIOError
        assert len(self.arrived[0]) <= most
        return self.arrived.popleft()

    def send(self, data: bytes) -> int:
        self.calls["write"] += 1
        self.taken += data
        return len(data)

    def sendmsg(self, buffers: list[bytes]) -> int:
        return self.send(b"".join(buffers))


class SocketEnd:
    """The remote end of a real stream."""

    def __init__(self, world: World, loop: Any, name: str) -> None:
        self._world = world
        self._loop = loop
        self.socket: Any = Socket()
        self._theirs = Zmtp("DEALER", dials=True, limits=ZmtpLimits(max_frames=2_000))
        ours = Zmtp("ROUTER", limits=ZmtpLimits(max_payload=MAX_PAYLOAD + HEADS, max_frames=1_026))
        stream = Stream(loop, self.socket, ours)
        connections = world.connections
        peer = connections.connected(world.session, "listener", ours, stream, name, "192.0.2.1", ConnectionLimits())
        stream.start(partial(connections.arrived, peer), partial(connections.ended, peer))
        while not peer.is_open or self.socket.taken:
            world.runner.run_once()
            assert not self.hears()
            if self._theirs.outgoing:
                outgoing, self._theirs.outgoing = self._theirs.outgoing, []
                self._read(b"".join(outgoing))

    def say(self, frames: Frames) -> None:
        self._read(b"".join(self._theirs.encode(frames)))

    def hears(self) -> list[Any]:
        taken, self.socket.taken = bytes(self.socket.taken), bytearray()
        messages = self._theirs.feed(taken) if taken else []
        return [said for message in messages for said in read([bytes(each) for each in message])]  # type: ignore[union-attr]

    def _read(self, data: bytes) -> None:
        self.socket.arrived.append(data)
        self._loop.readers[self.socket]()


def test_sixteen_jobs_in_a_message_cost_one_read_and_one_write_for_each_peer() -> None:
    world, loop = World(strict=False), Loop()
    client = SocketEnd(world, loop, "client")
    client.say(hello(1, {}))
    workers = [SocketEnd(world, loop, f"worker {number}") for number in range(2)]
    for worker in workers:
        worker.say(hello(2, {"services": ["echo"], "capacity": 8}))
    world.runner.run_once()
    for end in (client, *workers):
        assert [said[0] for said in end.hears()] == ["WELCOME"]
        end.socket.calls.clear()

    client.say(submit([(new_id(number), b"x") for number in range(16)]))
    world.runner.run_once()
    given = [worker.hears() for worker in workers]
    assert [len(each) for each in given] == [8, 8]
    assert client.socket.calls == {"read": 1}
    assert [worker.socket.calls for worker in workers] == [{"write": 1}] * 2

    for worker, jobs in zip(workers, given, strict=True):
        worker.say(result(*((job[1], b"y") for job in jobs)))
    world.runner.run_once()
    assert len(client.hears()) == 16
    assert client.socket.calls == {"read": 1, "write": 1}
    assert [worker.socket.calls for worker in workers] == [{"write": 1, "read": 1}] * 2
