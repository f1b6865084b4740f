"""Brokers of the log simulation: the real client of NATS, logs and ownership of shards, with a table instead of jobs.

Each broker takes writes for the shards that it owns: a write is a unique text, and is acknowledged when its batch is
saved. After an adoption the table of a shard is made from the batches that were read. The oracle knows every write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dragoman.carriers.carrier import Carrier, Frame
from dragoman.carriers.nats_connect import ConnectOptions
from dragoman.cluster.hearing import Hearing
from dragoman.cluster.jetstream import ApiError
from dragoman.cluster.log import Expected, LogPhase, ShardEvents, ShardLog
from dragoman.cluster.log_io import JetStreamLog, LogIO
from dragoman.cluster.log_reader import ReadBatch
from dragoman.cluster.log_records import Claim
from dragoman.cluster.nats_address import parse_nats
from dragoman.cluster.nats_client import NatsClient, NatsWatcher
from dragoman.cluster.nats_side import NatsSide
from dragoman.cluster.server_pool import ServerPool
from dragoman.cluster.shards import ShardActions, ShardPhase, Shards, ShardSettings
from dragoman.core.owners import Owner
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER
from sim.log_oracle import LogOracle
from sim.nats_model import NatsModel
from sim.pipes import End
from sim.world import World

CLUSTER = "sim"
IDENTITY = "the simulated cluster"
PING_EVERY = 2.0
SILENCE = 4.0
GOSSIP_EVERY = 1.0
SETTINGS = ShardSettings(adopt_after=6.0, turn=0.7, silent_after=3.0, again_after=1.0, balance_every=5.0)


def stream_name(shard: int) -> str:
    return f"DGM_{CLUSTER}_{shard:02}"


def subject_of(shard: int) -> str:
    return f"dgm.{CLUSTER}.log.{shard:02}"


class Link(Connection):
    """A connection of a broker to a server."""

    end: End | None = None
    heard = 0.0
    is_open = False
    is_lost = False

    def __init__(self, side: BrokerSide, carrier: Carrier, owner: Owner) -> None:
        super().__init__(side, owner)
        self.session = side
        self.carrier = carrier
        self.closing = None
        self.remote = None


class PipeIO(BrokerIO):
    """Dials the servers of the model, as the runner does for a broker side."""

    def __init__(self, broker: LogBroker, model: NatsModel) -> None:
        self._broker = broker
        self._model = model
        self._world = model.world

    def dial(
        self, session: BrokerSide, place: object, socket_name: str, carrier: Carrier, owner: Owner, limits: Any = None
    ) -> Connection:
        link = Link(session, carrier, owner)
        self._world.after(0.001, self._broker.act, partial(self._connect, link, str(place)))
        return link

    def _connect(self, link: Link, place: str) -> None:
        end = None if self._broker.is_cut else self._model.dial(place, self._broker.label)
        if end is None:
            self._lose(link, "connection refused")
            return
        link.end = end
        link.heard = self._world.now
        self._broker.ends.append(end)
        end.on_bytes = lambda data: self._broker.act(partial(self._arrived, link, data))
        end.on_end = lambda problem: self._broker.act(partial(self._lose, link, problem))
        self._world.after(PING_EVERY, self._watch, link)

    def _watch(self, link: Link) -> None:
        """Send a PING, and lose a connection on which nothing was heard."""
        if link.is_lost or not self._broker.is_alive:
            return
        if not self._broker.is_frozen:
            if self._world.now - link.heard > SILENCE:
                self._lose(link, "nothing received")
                return
            if link.is_open and link.end is not None:
                link.end.write([link.carrier.ping() or b""])
        self._world.after(PING_EVERY, self._watch, link)

    def _arrived(self, link: Link, data: bytes) -> None:
        if link.is_lost:
            return
        now = link.heard = self._world.now
        messages = link.carrier.feed(data)
        self._flush(link)
        if link.carrier.ready and not link.is_open:
            link.is_open = True
            link.session.opened(link, now)
        for message in messages:
            if not link.is_lost:
                link.session.receive(link, message, now)
        if link.carrier.failure is not None:
            self._lose(link, str(link.carrier.failure))

    def _flush(self, link: Link) -> None:
        outgoing, link.carrier.outgoing = link.carrier.outgoing, []
        if outgoing and link.end is not None:
            link.end.write(list(outgoing))

    def send(self, to: Connection, frames: Sequence[Frame], tag: object = None) -> None:
        assert isinstance(to, Link)
        if to.end is not None and not to.is_lost:
            to.end.write(list(to.carrier.encode(frames)))

    def close(self, whom: Connection, reason: str) -> None:
        assert isinstance(whom, Link)
        whom.closing = reason
        self._world.after(0.0, self._broker.act, partial(self._lose, whom, reason))

    def _lose(self, link: Link, reason: str) -> None:
        if link.is_lost:
            return
        link.is_lost = True
        link.closing = link.closing or reason
        if link.end is not None:
            link.end.close()
        link.session.lost(link, [], self._world.now)

    def remark(self, event: str, /, *, level: str = "info", peer: Connection | None = None, **fields: object) -> None:
        self._world.note(self._broker.label, (event, sorted(map(str, fields.values()))))

    def remark_limited(self, event: str, /, *, peer: Connection, level: str = "info", **fields: object) -> None:
        self.remark(event, **fields)

    def log_limited(self, event: str, /, *, peer: Connection | None = None, **fields: object) -> None:
        self.remark(event, **fields)


class TableShard(ShardEvents):
    """The rows of one shard at one broker, and its log."""

    def __init__(self, broker: LogBroker, number: int) -> None:
        self.number = number
        self.writes: list[str] = []
        self.is_cleaning = False
        self._broker = broker
        self._tickets = 0
        self._waiting: dict[int, list[str]] = {}
        self._rewriting = 0  # ticket of the last row that is written again
        self.log = broker.kinds.shard_log(broker.log_io(number), self, broker.new_claim, Expected(IDENTITY, 1))

    def write(self, text: str, now: float) -> None:
        self._broker.oracle.submitted(self.number, text)
        self._add([text], now)

    def ask(self, text: str, was_acknowledged: bool, now: float) -> None:
        """Say whether a write exists. That it does not is proved first."""
        if text in self.writes:
            return
        self._broker.oracle.hit("missed")
        deny = partial(self._broker.oracle.denied, self._broker.label, self.number, text, was_acknowledged)
        self.log.confirm(lambda then: deny(), now)

    def _add(self, texts: list[str], now: float) -> None:
        self._tickets += 1
        self._waiting[self._tickets] = texts
        self.log.add(self._tickets, json.dumps(texts).encode(), now)

    def claimed(self, epoch: int, now: float) -> None:
        self._broker.shards.claimed(self.number, epoch, now)
        if self._broker.shards[self.number].phase is ShardPhase.READING:
            self.writes = []
        elif self.is_cleaning and self._broker.shards[self.number].phase is ShardPhase.OWNED:
            for start in range(0, len(self.writes), 20):
                self._add(self.writes[start : start + 20], now)
            self._rewriting = self._tickets
        self._broker.gossip(now)

    def read(self, batches: list[ReadBatch], now: float) -> None:
        for batch in batches:
            self.take(json.loads(batch.data))

    def take(self, texts: list[str]) -> None:
        for text in texts:
            if text not in self.writes:
                self.writes.append(text)

    def read_again(self, now: float) -> None:
        self._broker.oracle.hit("read again")
        self.writes = []

    def owned(self, time: int, now: float) -> None:
        self._broker.oracle.adopted(self._broker.label, self.number, self.log.epoch, list(self.writes))
        self._broker.shards.owned(self.number, now)

    def saved(self, ticket: int, first: int, last: int, now: float) -> None:
        texts = self._waiting.pop(ticket)
        self.take(texts)
        self._broker.oracle.saved(self._broker.label, self.number, texts, last)
        if self.is_cleaning and self._rewriting and ticket >= self._rewriting:
            self._rewriting = 0
            if self.log.phase is LogPhase.OWNED:  # else it is being released
                self.log.purge(self._purged, now)

    def _purged(self, found: int | ApiError, now: float) -> None:
        self.is_cleaning = False
        if isinstance(found, int) and found:
            self._broker.oracle.hit("cleaned")

    def clean(self, now: float) -> None:
        if self._broker.shards[self.number].phase is ShardPhase.OWNED and not self.is_cleaning:
            self.is_cleaning = True
            self.log.renew(now)

    def released(self, now: float) -> None:
        self._drop("released")
        self._broker.shards.released(self.number, now)
        self._broker.gossip(now)

    def lost(self, reason: str, now: float) -> None:
        self._drop("fenced" if "claimed" in reason else "refused")
        self._broker.shards.refused(self.number, now)
        self._broker.gossip(now)

    def alarm(self, reason: str, now: float) -> None:
        self._drop("alarm")
        self._broker.oracle.alarmed(self.number, reason)
        self._broker.shards.alarmed(self.number, reason, now)

    def evict(self) -> None:
        self._drop("evicted")
        self.log.abandon()

    def _drop(self, way: str) -> None:
        self._broker.oracle.hit(way)
        self.is_cleaning = False
        self._rewriting = 0
        self._waiting.clear()
        self.writes = []


class Kinds:
    """The classes a broker is made of; planted bugs put others in their place."""

    shard_log: type[ShardLog] = ShardLog
    log_io: type[JetStreamLog] = JetStreamLog
    client: type[NatsClient] = NatsClient


class LogWatcher(NatsWatcher):
    """Passes news about the connection on: a class that is compiled cannot be one of two bases."""

    def __init__(self, broker: LogBroker) -> None:
        self._broker = broker

    def connected(self, info: object, now: float) -> None:
        self._broker.connected(info, now)

    def away(self, reason: str, now: float) -> None:
        self._broker.away(reason, now)


class LogBroker(ShardActions):
    """One run of one broker."""

    def __init__(
        self, world: World, model: NatsModel, oracle: LogOracle, name: str, run: int, shards: int, kinds: Kinds
    ) -> None:
        self.world = world
        self.oracle = oracle
        self.kinds = kinds
        self.name = name
        self.incarnation = f"{name}{run}"
        self.label = f"{name}.{run}"
        self.is_alive = True
        self.is_frozen = False
        self.is_cut = False
        self.ends: list[End] = []
        self._late: list[Callable[[], None]] = []
        self._nonces = 0
        entropy = SeededEntropy(world.random.random().hex())
        self.client = kinds.client(f"dgm.{CLUSTER}.r.{name}.{self.incarnation}".encode(), LogWatcher(self))
        urls = ",".join(model.url(each) for each in model.servers)
        pool = ServerPool(parse_nats(f"nats://{urls}"), entropy.jitter)
        self.side = NatsSide(PipeIO(self, model), self.client, pool, lambda: ConnectOptions(echoes=True), LOCAL_OWNER)
        self.client.subscribe(self._gossip_subject, self._heard)
        self.hearing = Hearing(world.now)
        own = (self, world.now, SETTINGS)
        self.shards = Shards(CLUSTER, name, self.incarnation, shards, *own, hearing=self.hearing)
        self.tables = [TableShard(self, number) for number in range(shards)]
        world.soon(self._iterate)
        world.soon(self._gossip_again)

    @property
    def _gossip_subject(self) -> bytes:
        return f"dgm.{CLUSTER}.gossip".encode()

    def log_io(self, number: int) -> LogIO:
        return self.kinds.log_io(self.client, stream_name(number), subject_of(number).encode())

    def new_claim(self) -> Claim:
        self._nonces += 1
        return Claim(1, self.name, self.incarnation, f"{self.incarnation} {self._nonces}".encode(), "1", IDENTITY)

    # ---------------------------------------------------------------- the process

    def act(self, call: Callable[[], None]) -> None:
        """Do something, unless the process is dead; a frozen one does it later."""
        if not self.is_alive:
            return
        if self.is_frozen:
            self._late.append(call)
            return
        call()
        self._tick()

    def _iterate(self) -> None:
        if self.is_alive:
            self.world.after(0.05, self._iterate)
            if not self.is_frozen:
                self._tick()

    def _tick(self) -> None:
        now = self.world.now
        self.side.tick(now)
        self.shards.tick(now)
        for each in self.tables:
            each.log.tick(now)

    def kill(self) -> None:
        self.world.note(self.label, "killed")
        self.is_alive = False
        for end in self.ends:
            end.wire.cut()

    def freeze(self) -> None:
        self.world.note(self.label, "frozen")
        self.is_frozen = True

    def thaw(self) -> None:
        if self.is_frozen and self.is_alive:
            self.world.note(self.label, "thawed")
            self.is_frozen = False
            late, self._late = self._late, []
            for call in late:
                self.act(call)

    def cut(self, *, silently: bool) -> None:
        """Cut the broker off from NATS: no server can be dialled until `uncut`."""
        self.world.note(self.label, "cut off")
        self.is_cut = True
        for end in self.ends:
            end.wire.cut(silently=silently)

    def uncut(self) -> None:
        self.is_cut = False

    # ---------------------------------------------------------------- gossip

    def _gossip_again(self) -> None:
        if self.is_alive:
            self.world.after(GOSSIP_EVERY, self._gossip_again)
            self.act(lambda: self.gossip(self.world.now))

    def gossip(self, now: float) -> None:
        told = {
            "broker": self.name,
            "incarnation": self.incarnation,
            "shards": {str(number): epoch for number, epoch in self.shards.epochs.items()},
            "draining": self.shards.is_draining,
        }
        self.client.publish(self._gossip_subject, json.dumps(told).encode())

    def _heard(self, subject: Frame, reply: Frame, headers: Frame, payload: Frame, now: float) -> None:
        told = json.loads(payload)
        if told["incarnation"] == self.incarnation:
            gap = self.hearing.echoed(now)
            if gap:
                self.shards.heard_again(gap, now)
            return
        shards = {int(number): epoch for number, epoch in told["shards"].items()}
        for number, epoch in shards.items():
            self.tables[number].log.heard(epoch)
        self.shards.heard(told["broker"], told["incarnation"], shards, told["draining"], now)

    def connected(self, info: object, now: float) -> None:
        self.gossip(now)
        for each in self.tables:
            each.log.verify(now)

    def away(self, reason: str, now: float) -> None:
        self.hearing.away()

    # ---------------------------------------------------------------- decisions

    def claim(self, shard: int, now: float) -> None:
        self.tables[shard].log.claim(now)

    def withdraw(self, shard: int) -> bool:
        return self.tables[shard].log.withdraw()

    def release(self, shard: int, now: float) -> None:
        self.tables[shard].log.release(now)

    def evict(self, shard: int, reason: str, now: float) -> None:
        self.tables[shard].evict()
        self.gossip(now)

    # ---------------------------------------------------------------- writes

    def write(self, text: str) -> bool:
        """Take a write for a shard that we own, chosen by chance. False: we own none, or stand still."""
        if not self.is_alive or self.is_frozen:
            return False
        owned = [each for each in self.tables if self.shards[each.number].phase is ShardPhase.OWNED]
        if not owned:
            return False
        table = self.world.random.choice(owned)
        self.act(lambda: table.write(text, self.world.now))
        return True

    def ask(self) -> None:
        """Ask for one of the last writes of a shard that we have, as we believe, or for one that nobody has written."""
        if not self.is_alive or self.is_frozen:
            return
        owned = [each for each in self.tables if self.shards[each.number].phase is ShardPhase.OWNED]
        if not owned:
            return
        table = self.world.random.choice(owned)
        latest = list(self.oracle.acknowledged[table.number])[-3:]
        text = self.world.random.choice([*latest, "never written"])
        self.act(lambda: table.ask(text, text in latest, self.world.now))
