"""Logs of a cluster in a command: claimed, read, written and released, with asyncio.

The claim keeps every broker from writing, also one that was frozen or cut off. Whether a broker runs is heard from its
gossip: then the command ends, because that broker would have jobs that it knows nothing of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.cluster.gossip import read_gossip
from dragoman.cluster.jetstream import read_stream, stream_info
from dragoman.cluster.layout import Layout, log_subject, stream_name
from dragoman.cluster.log import Expected, LogPhase, ShardEvents, ShardLog
from dragoman.cluster.log_io import JetStreamLog
from dragoman.cluster.log_reader import ReadBatch
from dragoman.cluster.log_records import VERSION, Claim
from dragoman.cluster.names import Subjects
from dragoman.server.clock import random_bytes
from dragoman.server.cluster_init import REQUEST_TIMEOUT
from dragoman.server.cluster_shards import layout_problem
from dragoman.server.nats_connection import NatsConnection
from dragoman.transfer.errors import DamagedShard, InUse, TransferError

LISTEN: Final = 3.0  # seconds in which every running broker is heard
STUCK: Final = 30.0  # seconds without progress
MOST_UNSAVED: Final = 8  # batches of one log on their way


class Members:
    """The brokers that are heard. Those that have logs with another `identity` have nothing of these."""

    def __init__(self, connection: NatsConnection, cluster: str, identity: str) -> None:
        self.heard = ""
        self._identity = identity
        connection.client.subscribe(Subjects(cluster).gossip, self._receive)

    def _receive(self, subject: Frame, reply: Frame, headers: Frame, payload: Frame, now: float) -> None:
        try:
            gossip = read_gossip(bytes(payload))
        except Malformed:
            self.heard = "of another release"
        else:
            if gossip.identity in ("", self._identity):
                self.heard = gossip.broker

    def check(self) -> None:
        """Raise InUse if a broker runs."""
        if self.heard:
            raise InUse(f"broker {self.heard} runs in this cluster; stop all of its brokers first")


async def listen(connection: NatsConnection, cluster: str, layout: Layout) -> Members:
    """Listen for brokers. Raises InUse."""
    members = Members(connection, cluster, layout.identity)
    await asyncio.wait([connection.closed], timeout=LISTEN)
    members.check()
    return members


async def read_layout(connection: NatsConnection, cluster: str) -> Layout:
    """Raises TransferError if the cluster has no logs."""
    found = layout_problem(
        cluster, read_stream(await connection.request(stream_info(stream_name(cluster, 0)), REQUEST_TIMEOUT))
    )
    if isinstance(found, str):
        raise TransferError(found)
    return found


class OpenLog(ShardEvents):
    """The log of one shard, in the hands of this command."""

    def __init__(
        self, connection: NatsConnection, members: Members, cluster: str, shard: int, layout: Layout, release: str
    ) -> None:
        self.shard = shard
        self.claimed_time = 0
        self.epoch = 0  # sequence of the claim of this command; 0: it is not in the log
        self._connection = connection
        self._members = members
        self._take: Callable[[ReadBatch], None] = lambda batch: None
        self._forget: Callable[[], None] = lambda: None
        self._problem = ""
        self._damage = ""
        self._is_released = False
        self._last_ticket = self._saved = 0
        self._steps = 0  # events: the log makes progress
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

        def new_claim() -> Claim:
            return Claim(VERSION, "transfer", random_bytes(8).hex(), random_bytes(16), release, layout.identity)

        io = JetStreamLog(connection.client, stream_name(cluster, shard), log_subject(cluster, shard))
        self._log = ShardLog(io, self, new_claim, Expected(layout.identity, layout.replicas))

    @property
    def first(self) -> int:
        """Sequence of the first message of the log."""
        return self._log.first

    # ---------------------------------------------------------------- calls of the command

    async def own(self, take: Callable[[ReadBatch], None], forget: Callable[[], None]) -> None:
        """Claim and read the log. `take` gets each batch; `forget`: all of them come again. Raises DamagedShard and
        TransferError."""
        self._take, self._forget = take, forget
        self._log.claim(self._loop.time())
        await self._wait(lambda: self._log.phase is LogPhase.OWNED)

    async def add(self, batch: bytes) -> None:
        """Write a batch, soon. Raises TransferError."""
        await self._wait(lambda: self._last_ticket - self._saved < MOST_UNSAVED)
        self._last_ticket += 1
        self._log.add(self._last_ticket, batch, self._loop.time())

    async def flush(self) -> None:
        """Wait until all batches are in the log. Raises TransferError."""
        await self._wait(lambda: self._saved == self._last_ticket)

    async def release(self) -> None:
        """Give the shard up, for the brokers. Raises TransferError."""
        self._log.release(self._loop.time())
        await self._wait(lambda: self._is_released)

    async def _wait(self, is_reached: Callable[[], bool]) -> None:
        steps, since = self._steps, self._loop.time()
        while True:
            now = self._loop.time()
            due = self._log.tick(now)
            self._connection.set_timer()
            self._members.check()
            if self._damage:
                raise DamagedShard(f"shard {self.shard}: {self._damage}")
            if self._problem:
                raise TransferError(f"shard {self.shard}: {self._problem}")
            if is_reached():
                return
            if self._steps != steps:
                steps, since = self._steps, now
            if self._connection.closed.done():
                raise TransferError(f"the connection to NATS has ended: {self._connection.closed.result()}")
            if self._connection.denied.done():
                raise TransferError(f"shard {self.shard}: NATS denies it: {self._connection.denied.result()}")
            if now - since > STUCK:
                raise TransferError(f"shard {self.shard}: {self._reason()}")
            self._changed.clear()
            try:
                async with asyncio.timeout(min(max(0.01, due - now), 1.0)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _reason(self) -> str:
        writer = self._log.writer
        return (writer.problem if writer is not None else "") or f"no answer of JetStream for {STUCK:.0f} s"

    # ---------------------------------------------------------------- events of the log

    def _step(self) -> None:
        self._steps += 1
        self._changed.set()

    def claimed(self, epoch: int, now: float) -> None:
        self.epoch = epoch
        self._step()

    def read(self, batches: list[ReadBatch], now: float) -> None:
        try:
            for batch in batches:
                self._take(batch)
        except Malformed as problem:
            self._damage = problem.detail
        self._step()

    def read_again(self, now: float) -> None:
        self._forget()
        self._step()

    def owned(self, time: int, now: float) -> None:
        self.claimed_time = time
        self._step()

    def saved(self, ticket: int, first: int, last: int, now: float) -> None:
        self._saved = ticket
        self._step()

    def released(self, now: float) -> None:
        self._is_released = True
        self._step()

    def lost(self, reason: str, now: float) -> None:
        self._problem = f"{reason}; stop all brokers, and try again"
        self._step()

    def alarm(self, reason: str, now: float) -> None:
        self._damage = reason
        self._step()
