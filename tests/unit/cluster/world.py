"""A cluster of brokers in one process: real cores and cluster sides, NATS as a function, and time as a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from dragoman.carriers.carrier import Frame
from dragoman.carriers.nats import Nats
from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.nats_client import NatsClient
from dragoman.cluster.settings import ClusterSettings
from dragoman.cluster.shard_bytes import CALL, with_shard
from dragoman.core.broker import Broker
from dragoman.core.effects import CancelAttempt, DeliverOutcome, Delivery, Effect, SendJob
from dragoman.core.handover import MoveWorker
from dragoman.core.infinity import inf
from dragoman.core.interim_effects import DeliverProgress
from dragoman.core.invariants import check
from dragoman.core.model import Attempt, Caller, Job, JobId, Token, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.dialects.interface import BrokerIO, Connection
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

STEP = 0.01  # seconds of an iteration


class Local(Recipient):
    """Workers and callers of one broker."""

    dialect = "local"

    def __init__(self) -> None:
        self.sent: list[Attempt] = []
        self.cancelled: list[Attempt] = []
        self.outcomes: list[DeliverOutcome] = []
        self.progress: list[bytes] = []
        self.moved: list[Worker] = []

    def execute(self, effect: Effect, now: float) -> None:
        if isinstance(effect, SendJob):
            self.sent.append(effect.attempt)
        elif isinstance(effect, CancelAttempt):
            self.cancelled.append(effect.attempt)
        elif isinstance(effect, MoveWorker):
            self.moved.append(effect.worker)
        elif isinstance(effect, DeliverOutcome):
            effect.caller.remove_job(effect.job)
            self.outcomes.append(effect)
        elif isinstance(effect, DeliverProgress):
            self.progress.append(bytes(effect.payload))


class NodeIO(BrokerIO):
    """The I/O of one cluster side: messages go to the network of the world."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.calls: list[Callable[[float], None]] = []

    def call_before_write(self, call: Callable[[float], None]) -> None:
        self.calls.append(call)

    def remark(self, event: str, /, *, level: str = "info", peer: Connection | None = None, **fields: object) -> None:
        self._node.remarks.append(event)

    def log_limited(self, event: str, /, *, peer: Connection | None = None, **fields: object) -> None:
        self._node.remarks.append(event)


class CallEntropy(SeededEntropy):
    """Ids and tokens of calls, as brokers of a cluster make them."""

    def job_id(self) -> JobId:
        return JobId(with_shard(super().job_id(), CALL))

    def token(self) -> Token:
        return Token(with_shard(super().token(), CALL))


class Node:
    """One run of one broker."""

    adopt_after = 10.0

    def __init__(self, world: World, name: str, run: int) -> None:
        self.world = world
        self.name = name
        self.remarks: list[str] = []
        self.subscribed: dict[bytes, bytes] = {}
        self.is_connected = False
        self.inbox: list[tuple[bytes, bytes]] = []
        self.published = 0  # messages
        self.broker = Broker(Policy(), CallEntropy(f"{name} {run}"))
        self.local = Local()
        self.io = NodeIO(self)
        settings = ClusterSettings("test", name, adopt_after=self.adopt_after)
        self.side = ClusterSide(self.broker, self.io, settings, LOCAL_OWNER, world.now)
        self.client = NatsClient(b"inbox", self.side.watcher)
        self.side.start(self.client)

    def worker(self, service: str = "s", capacity: int = 1, *, moves: bool = False, brings: bytes = b"") -> Worker:
        """`moves`: it takes its running jobs to other brokers. `brings`: token of a job that it comes with."""
        now = self.world.now
        profile = WorkerProfile(capacity=capacity, can_resume=moves, can_move=moves)
        worker = self.broker.join(self.local, None, "w", (service,), profile, now, LOCAL_OWNER)
        assert worker is not None
        if brings:
            assert self.broker.handover.claim(worker, Token(brings), service, now)
        self.broker.idle(worker, now)
        return worker

    def call(self, payload: bytes = b"x", service: str = "s", **options: Any) -> Job | None:
        deadline = options.pop("deadline", inf)
        caller = Caller(self.local, LOCAL_OWNER)
        return self.broker.submit(service, payload, caller, JobOptions(**options), self.world.now, deadline=deadline)

    def finish(self, attempt: Attempt, result: bytes = b"done") -> bool:
        return self.broker.succeed(attempt, result, self.world.now)

    @property
    def results(self) -> list[tuple[str, bytes]]:
        return [(each.outcome.value, bytes(each.result)) for each in self.local.outcomes]

    def connect(self) -> None:
        if not self.is_connected and self.world.is_up(self):
            self.is_connected = True
            self.client.opened(Nats(), self._send, self.world.now)

    def _send(self, frames: Sequence[Frame]) -> None:
        if len(frames) == 1:
            verb, subject, sid = bytes(frames[0]).split()
            assert verb == b"SUB"
            self.subscribed[subject] = sid
        else:
            self.published += 1
            self.world.publish(bytes(frames[0]), bytes(frames[3]))

    def cut(self) -> None:
        """End the connection to NATS: messages that have not arrived are lost."""
        self.subscribed.clear()
        self.inbox.clear()
        if self.is_connected:
            self.is_connected = False
            self.client.lost("cut", self.world.now)

    def step(self) -> None:
        now = self.world.now
        inbox, self.inbox = self.inbox, []
        for subject, payload in inbox:
            sid = self.subscribed.get(subject)
            if sid is not None and self.is_connected:
                self.client.receive([sid, subject, b"", b"", payload], now)
        self.broker.tick(now)
        self.side.tick(now)
        self.drain()
        while self.io.calls:
            calls, self.io.calls = self.io.calls, []
            for call in calls:
                call(now)
            self.drain()
        for worker in list(self.broker.dispatch.loaded):  # as the runner does
            unsent = worker.recipient.unsent(worker.remote) if worker.remote is not None else 0
            self.broker.availability.measured(worker, unsent, now)
        self.connect()
        check(self.broker)

    def drain(self) -> None:
        effects = self.broker.effects
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, Delivery):
                if isinstance(effect, SendJob):
                    effect.attempt.mark_sent()
                effect.recipient().execute(effect, self.world.now)


class World:
    """Brokers and the network between them. `loss`: probability that NATS drops a message."""

    def __init__(self, *names: str, seed: int = 0, loss: float = 0.0) -> None:
        self.now = 1_000.0
        self.random = Random(seed)
        self.loss = loss
        self.down: set[str] = set()
        self._runs = 0
        self.nodes: dict[str, Node] = {}
        for name in names:
            self.start(name)

    def start(self, name: str, *, key: str = "") -> Node:
        """Start a broker, or start it again: the earlier run is gone, unless this one has a key of its own here."""
        self._runs += 1
        self.nodes[key or name] = Node(self, name, self._runs)
        return self.nodes[key or name]

    def is_up(self, node: Node) -> bool:
        return node.name not in self.down

    def publish(self, subject: bytes, payload: bytes) -> None:
        for node in self.nodes.values():
            if subject in node.subscribed and self.random.random() >= self.loss:
                node.inbox.append((subject, payload))

    def run(self, seconds: float = 0.2) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = round(self.now + STEP, 6)
            for node in list(self.nodes.values()):
                node.step()

    def run_until(self, fact: Callable[[], object], seconds: float = 30.0) -> None:
        until = self.now + seconds
        while not fact():
            assert self.now < until, f"not within {seconds:g} s"
            self.run(STEP)

    def cut(self, name: str) -> None:
        """Cut a broker off NATS until `heal`."""
        self.down.add(name)
        self.nodes[name].cut()

    def heal(self, name: str) -> None:
        self.down.discard(name)

    def freeze(self, name: str) -> Node:
        """Take a broker out without a word, as if it was killed."""
        return self.nodes.pop(name)
