"""The log of a shard on real servers: claims, commits, fences, large batches, cleaning, and a leader that is killed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dragoman.carriers.nats_connect import ConnectOptions
from dragoman.cluster.jetstream import ApiError, StreamConfig, read_stream, stream_create
from dragoman.cluster.log import IDENTITY, Expected, LogPhase, ShardEvents, ShardLog
from dragoman.cluster.log_io import JetStreamLog
from dragoman.cluster.log_reader import ReadBatch
from dragoman.cluster.log_records import Claim
from dragoman.cluster.nats_address import parse_nats
from dragoman.server.nats_connection import NatsConnection, open_nats
from nats_servers import NatsCluster, NatsServer
from nats_visits import run
from programs import PATIENCE, until

_numbers = itertools.count(1)
MOST = 60.0  # seconds; patience with elections


class Owner(ShardEvents):
    """A broker that owns a shard, or wants to, on a connection of its own."""

    def __init__(self, connection: NatsConnection, shard: int, name: str, replicas: int) -> None:
        self.name = name
        self.connection = connection
        self.batches: list[bytes] = []
        self.saved_tickets: list[int] = []
        self.marks: list[int] = []
        self.alarms: list[str] = []
        self.reasons: list[str] = []
        self.changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._nonces = itertools.count(1)
        io = JetStreamLog(connection.client, f"SHARD_{shard}", f"shard.{shard}".encode())
        self.log = ShardLog(io, self, self._claim, Expected("id", replicas))
        self._ticking = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        while True:
            now = self._loop.time()
            self.log.tick(now)
            self.connection.client.tick(now)
            await asyncio.sleep(0.01)

    def close(self) -> None:
        self._ticking.cancel()
        self.connection.close()

    def _claim(self) -> Claim:
        return Claim(1, self.name, f"{self.name}1", f"{self.name} {next(self._nonces)}".encode(), "1", "id")

    def claimed(self, epoch: int, now: float) -> None:
        self.marks.append(epoch)
        self.changed.set()

    def read(self, batches: list[ReadBatch], now: float) -> None:
        self.batches += [each.data for each in batches]

    def read_again(self, now: float) -> None:
        self.batches.clear()

    def owned(self, time: int, now: float) -> None:
        self.changed.set()

    def saved(self, ticket: int, first: int, last: int, now: float) -> None:
        self.saved_tickets.append(ticket)
        self.changed.set()

    def released(self, now: float) -> None:
        self.reasons.append("released")
        self.changed.set()

    def lost(self, reason: str, now: float) -> None:
        self.reasons.append(reason)
        self.changed.set()

    def alarm(self, reason: str, now: float) -> None:
        self.alarms.append(reason)
        self.changed.set()

    def add(self, ticket: int, batch: bytes) -> None:
        self.log.add(ticket, batch, self._loop.time())

    async def own(self) -> Owner:
        self.log.claim(self._loop.time())
        await self.until(lambda: self.log.phase is LogPhase.OWNED)
        return self

    async def until(self, fact: object) -> None:
        async with asyncio.timeout(MOST):
            while not fact():  # type: ignore[operator]
                assert not self.alarms, self.alarms
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture(params=["R1", "R3"])
def replicas(request: pytest.FixtureRequest) -> int:
    return int(str(request.param)[1])


@pytest.fixture
def urls(replicas: int, request: pytest.FixtureRequest) -> list[str]:
    if replicas == 1:
        return [request.getfixturevalue("nats_server").url]
    cluster: NatsCluster = request.getfixturevalue("nats_cluster")
    return cluster.urls


@asynccontextmanager
async def shard_on(urls: list[str], replicas: int) -> AsyncIterator[Shard]:
    shard = Shard(urls, replicas)
    await shard.create()
    try:
        yield shard
    finally:
        for each in shard.owners:
            each.close()


class Shard:
    """A new stream, and the brokers that claim it."""

    def __init__(self, urls: list[str], replicas: int) -> None:
        self.number = next(_numbers)
        self.urls = urls
        self.replicas = replicas
        self.owners: list[Owner] = []

    @property
    def stream(self) -> str:
        return f"SHARD_{self.number}"

    async def owner(self, name: str, url: str = "") -> Owner:
        """Return a broker with a connection of its own; it has not claimed yet."""
        inbox = f"test.r.{name}.{next(_numbers)}".encode()
        url = url or self.urls[len(self.owners) % len(self.urls)]
        connection = await open_nats(parse_nats(url), ConnectOptions(name), inbox, PATIENCE)
        self.owners.append(Owner(connection, self.number, name, self.replicas))
        return self.owners[-1]

    async def create(self) -> None:
        connection = await open_nats(parse_nats(self.urls[0]), ConnectOptions("init"), b"test.init", PATIENCE)
        subjects = (f"shard.{self.number}",)
        config = StreamConfig(self.stream, subjects, self.replicas, metadata=((IDENTITY, "id"),))
        async with asyncio.timeout(MOST):
            while isinstance(made := read_stream(await connection.request(stream_create(config), 5.0)), ApiError):
                assert made.is_temporary, made
                await asyncio.sleep(0.1)
        connection.close()


def test_a_shard_moves_with_everything_that_was_saved(urls: list[str], replicas: int) -> None:
    async def work() -> None:
        async with shard_on(urls, replicas) as shard:
            a = await (await shard.owner("a")).own()
            for ticket in range(1, 2001):
                a.add(ticket, b"%d" % ticket)
                if ticket % 100 == 0:
                    await a.until(lambda ticket=ticket: a.saved_tickets and a.saved_tickets[-1] >= ticket - 50)
            await a.until(lambda: len(a.saved_tickets) == 2000)
            assert a.saved_tickets == list(range(1, 2001))
            b = await (await shard.owner("b")).own()
            assert b.batches == [b"%d" % ticket for ticket in range(1, 2001)]
            a.add(2001, b"late")
            await a.until(lambda: a.reasons)
            assert a.reasons == ["b has claimed the shard"]
            b.add(1, b"of b")
            await b.until(lambda: b.saved_tickets == [1])
            b.log.release(asyncio.get_running_loop().time())
            await b.until(lambda: b.reasons == ["released"])
            c = await (await shard.owner("c")).own()
            assert c.batches == [*b.batches, b"of b"]

    run(work)


def test_a_batch_over_max_payload_is_whole_again(urls: list[str], replicas: int) -> None:
    async def work() -> None:
        async with shard_on(urls, replicas) as shard:
            a = await (await shard.owner("a")).own()
            large = bytes(range(256)) * 4 * 4096
            a.add(1, large)
            a.add(2, b"small")
            await a.until(lambda: a.saved_tickets == [1, 2])
            b = await (await shard.owner("b")).own()
            assert b.batches == [large, b"small"]

    run(work)


def test_of_many_claims_at_once_one_wins(urls: list[str], replicas: int) -> None:
    async def work() -> None:
        async with shard_on(urls, replicas) as shard:
            owners = [await shard.owner(name) for name in "abcdef"]
            for each in owners:
                each.log.claim(asyncio.get_running_loop().time())
            for each in owners:
                await each.until(lambda each=each: each.log.phase in (LogPhase.OWNED, LogPhase.IDLE))
            for each in owners:
                each.log.verify(asyncio.get_running_loop().time())
            winners = [each for each in owners if each.log.phase is LogPhase.OWNED]
            newest = max(winners, key=lambda each: each.log.epoch)
            newest.add(1, b"x")
            await newest.until(lambda: newest.saved_tickets == [1])
            for each in owners:
                if each is not newest:
                    await each.until(lambda each=each: each.reasons)

    run(work)


def test_a_cleaned_log_is_read_from_its_claim(urls: list[str], replicas: int) -> None:
    async def work() -> None:
        async with shard_on(urls, replicas) as shard:
            a = await (await shard.owner("a")).own()
            for ticket in range(1, 101):
                a.add(ticket, b"old %d" % ticket)
            await a.until(lambda: len(a.saved_tickets) == 100)
            a.log.renew(asyncio.get_running_loop().time())
            await a.until(lambda: len(a.marks) == 2)
            a.add(101, b"still true")
            await a.until(lambda: a.saved_tickets[-1] == 101)
            purged: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            a.log.purge(lambda found, now: purged.set_result(found), asyncio.get_running_loop().time())
            assert await purged
            b = await (await shard.owner("b")).own()
            assert b.batches == [b"still true"]

    run(work)


def test_writing_goes_on_after_the_leader_was_killed(nats_cluster: NatsCluster) -> None:
    """Nothing that was saved is missing, nothing is there twice, and the order is kept."""

    async def work() -> None:
        async with shard_on(nats_cluster.urls, 3) as shard:
            leader = await asyncio.to_thread(until, lambda: nats_cluster.leader_of(shard.stream), "it has a leader")
            other = next(each for each in nats_cluster.servers if each is not leader)
            a = await (await shard.owner("a", other.url)).own()
            ticket = 0
            for _ in range(200):
                ticket += 1
                a.add(ticket, b"%d" % ticket)
            await a.until(lambda: len(a.saved_tickets) > 50)
            leader.kill()
            try:
                for _ in range(300):
                    ticket += 1
                    a.add(ticket, b"%d" % ticket)
                    await asyncio.sleep(0.01)
                await a.until(lambda: len(a.saved_tickets) == ticket)
            finally:
                await asyncio.to_thread(leader.start)
                await asyncio.to_thread(nats_cluster.wait_until_ready)
            assert a.saved_tickets == list(range(1, ticket + 1))
            b = await (await shard.owner("b", other.url)).own()
            assert b.batches == [b"%d" % number for number in range(1, ticket + 1)]

    run(work)


def test_a_frozen_owner_is_fenced_when_it_wakes(nats_server: NatsServer) -> None:
    """Its connection is open all the time, and it believes to own the shard."""

    async def work() -> None:
        async with shard_on([nats_server.url], 1) as shard:
            a = await (await shard.owner("a")).own()
            a.add(1, b"one")
            await a.until(lambda: a.saved_tickets == [1])
            b = await (await shard.owner("b")).own()
            b.add(1, b"two")
            await b.until(lambda: b.saved_tickets == [1])
            for ticket in range(2, 50):
                a.add(ticket, b"late")
            await a.until(lambda: a.reasons)
            assert a.saved_tickets == [1]
            c = await (await shard.owner("c")).own()
            assert c.batches == [b"one", b"two"]

    run(work)
