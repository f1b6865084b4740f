"""Brokers of one cluster with operations and shards: real runners, routers and keepers of shards, and logs in memory.

A broker that is killed is taken out without a word. The others adopt its shards from the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from cluster_world import Node

from dragoman.carriers.carrier import Frame
from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.jetstream import Append, AppendOutcome
from dragoman.cluster.log import Expected
from dragoman.cluster.log_io import LogIO
from dragoman.cluster.nats_client import NatsClient
from dragoman.cluster.placement import Placement
from dragoman.cluster.settings import ClusterSettings
from dragoman.cluster.shard_keeper import ShardKeeper
from dragoman.cluster.store import ShardStore
from dragoman.core.broker import Broker
from dragoman.core.effects import SendJob
from dragoman.core.eviction import UNKNOWN_FATE
from dragoman.core.model import Attempt
from dragoman.core.policy import Policy
from dragoman.operations.handlers import OperationHandlers
from dragoman.server.admission import AdmissionLimits
from dragoman.server.cluster_answers import ClusterAnswers
from dragoman.server.cluster_member import KeptShards
from dragoman.server.cluster_places import Places
from dragoman.server.cluster_router import ClusterRouter
from dragoman.server.runner import Runner
from log_model import ModelLog
from owners import LOCAL_OWNER
from unit.cluster import world as links
from unit.cluster.shard_oracle import ShardOracle
from unit.cluster.shard_world import TIMES, NodeLog
from unit.cluster.world import CallEntropy
from unit.operations.world import READY, WALL, WorkerSession

SHARDS = 4


class BlockableLog(NodeLog):
    """One broker's access to the log of a shard, which may be blocked."""

    def __init__(self, node: ShardNode, log: ModelLog) -> None:
        super().__init__(node, log)  # type: ignore[arg-type]
        self._blocked = node.world.blocked
        self._shard = node.world.logs.index(log)

    def append(self, payload: bytes, expected: int, done: Callable[[Append, float], None], now: float) -> None:
        if self._shard in self._blocked:
            self._blocked[self._shard].append(payload)
            done_unknown = partial(done, Append(AppendOutcome.UNKNOWN))
            self._node.answers.append(lambda: done_unknown(self._node.world.now))
            return
        super().append(payload, expected, done, now)


class ShardNode(Node):
    """One run of one broker."""

    world: ShardWorld  # type: ignore[assignment]

    def __init__(self, world: ShardWorld, name: str, run: int) -> None:
        self.world = self.shard_world = world
        self.name = name
        self.remarks = []
        self.subscribed = {}
        self.is_connected = False
        self.is_cut_off = False
        self.inbox = []
        self.published = 0
        self.requests: list[tuple[Callable[[], Callable[[], None]], Callable[[], None]]] = []
        self.answers: list[Callable[[], None]] = []
        self.shards = ShardStore(lambda: world.now)
        self.broker = Broker(Policy(**world.policy), CallEntropy(f"{name} {run}"), first_worker=100 * run)
        self.broker.principals.apply(dict(world.access))
        limits = AdmissionLimits(late_iteration=1e9)
        self.runner = Runner(self.broker, self.shards, lambda: world.now, self._log, limits, strict=True)
        access = self.runner.store_access
        self.operations = OperationHandlers(self.broker, access, self.shards, lambda: WALL, lambda: READY)
        settings = ClusterSettings("test", name, adopt_after=TIMES.adopt_after)
        self.side = ClusterSide(self.broker, self.runner.connections, settings, LOCAL_OWNER, world.now)
        self.client = NatsClient(b"inbox", self.side.watcher)
        self.side.start(self.client)
        self.shards.outage = lambda: None if self.is_connected else "away"
        self.shards.holder_of = self.side.hub.holder_of
        self.shards.when_lost = lambda shard, number: access.call_waiting(number, UNKNOWN_FATE, shard)
        self.shards.when_unread = access.unread
        self.broker.dispatch.marks_shards = True
        self.shards.homes = self.broker.dispatch.home_bytes
        self.operations.placement = self.placement = Placement(self.broker, self.shards)
        logs: list[LogIO] = [BlockableLog(self, each) for each in world.logs]
        self.keeper = ShardKeeper(
            self.broker, self.side.hub, self.shards, "test", "1", Expected("id", 3), logs, TIMES, world.now
        )
        self.placement.keeper = self.keeper
        self.side.keep_shards(self.keeper, world.now)
        places = Places(self.operations, name, KeptShards(self.side, lambda: world.now))
        wake = self.runner.connections.request_iteration
        self.router = ClusterRouter(self.operations, self.side, places, wake, lambda: world.now)
        self.side.questions.answerer = ClusterAnswers(self.operations, places, wake)
        self.operations.brokers = self.router
        self.runner.sessions += [self.operations, self.side, self.router]
        self.workers = self.local = WorkerSession()  # type: ignore[assignment]

    def request(self, execute: Callable[[], Callable[[], None]], fail: Callable[[], None]) -> None:
        self.requests.append((execute, fail))

    def step(self) -> None:
        answers, self.answers = self.answers, []
        for answer in answers:
            answer()
        requests, self.requests = self.requests, []
        for execute, fail in requests:
            self.answers.append(execute() if self.is_connected and not self.is_cut_off else fail)
        if self.is_cut_off:
            self.inbox.clear()
        super().step()

    def _send(self, frames: Sequence[Frame]) -> None:
        if len(frames) == 1 or not self.is_cut_off:
            super()._send(frames)

    def taken(self) -> list[Attempt]:
        """Return the attempts that workers of this broker have received and not answered."""
        said, self.workers.said = self.workers.said, []  # type: ignore[attr-defined]
        return [each.attempt for each in said if isinstance(each, SendJob)]

    def owned(self) -> list[int]:
        return self.keeper.owned()

    def enqueue_in(self, shard: int, service: str = "s", body: bytes = b"x", **fields: Any) -> str:
        """Enqueue a job without a key in a shard of this broker."""
        while True:
            id = self.enqueue(service, body, **fields)
            if int(id[-2:], 16) == shard:
                return id
            self.ask("cancel", id=id)


class ShardWorld(links.World):
    """Brokers that share logs. `access`: rights and limits by principal. `policy`: of all brokers."""

    nodes: dict[str, ShardNode]  # type: ignore[assignment]

    def __init__(self, *names: str, access: dict[str, Any] | None = None, **policy: Any) -> None:
        self.access = access or {}
        self.policy = policy
        self.logs = [ModelLog() for _ in range(SHARDS)]
        self.oracle = ShardOracle(self.logs)
        self.blocked: dict[int, list[bytes]] = {}  # appends to the logs of blocked shards, which have no answer
        self.ran: list[bytes] = []  # payloads that workers have received
        super().__init__(*names)
        self.wait_for_balance()

    def start(self, name: str, *, key: str = "") -> ShardNode:
        self._runs += 1
        node = self.nodes[key or name] = ShardNode(self, name, self._runs)
        return node

    def wait_for_owners(self) -> None:
        self.run_until(lambda: sum(len(each.owned()) for each in self.nodes.values()) == SHARDS, 60.0)

    def wait_for_owners_of(self, node: ShardNode) -> None:
        """Wait until one broker has all shards."""
        self.run_until(lambda: len(node.owned()) == SHARDS, 60.0)

    def wait_for_balance(self) -> None:
        def is_even() -> bool:
            counts = [len(each.owned()) for each in self.nodes.values()]
            return sum(counts) == SHARDS and max(counts) - min(counts) <= 1

        self.run_until(is_even, 120.0)
        self.run(1.0)

    def run(self, seconds: float = 0.2) -> None:
        for log in self.logs:
            log.time = self.now - 500.0
        super().run(seconds)

    def cut_off(self, node: ShardNode, seconds: float = 30.0) -> None:
        """Cut a broker off without its knowledge, until the others have its shards: nothing that it sends arrives, and
        nothing arrives there."""
        node.is_cut_off = True
        self.run(seconds)

    def block(self, shard: int) -> list[bytes]:
        """Let the log of a shard answer nothing. Returns the batches that are sent to it from now on."""
        return self.blocked.setdefault(shard, [])

    def unblock(self, shard: int) -> None:
        del self.blocked[shard]

    def owner(self, id: str) -> ShardNode:
        """Return the broker that has a background job."""
        for node in self.nodes.values():
            if node.has(id) and node.job(id).options.durable and node.keeper.owns(node.keeper.shard_of(_bytes(id))):
                return node
        raise AssertionError(f"no broker has {id}")

    def outcome(self, id: str) -> str | None:
        job = self.owner(id).job(id)
        return None if job.outcome is None or not job.is_told else job.outcome.value

    def work(self, fails: bool = False) -> None:
        """End each attempt that runs, with its payload in capitals."""
        for node in self.nodes.values():
            for attempt in node.taken():
                payload = bytes(attempt.job.payload)
                self.ran.append(payload)
                if fails:
                    node.broker.fail(attempt, "it fails", self.now)
                else:
                    node.broker.succeed(attempt, payload.upper(), self.now)

    def work_until(self, fact: Callable[[], object], seconds: float = 60.0, fails: bool = False) -> None:
        """Let workers work until something is true."""

        def is_true() -> bool:
            self.work(fails)
            return bool(fact())

        self.run_until(is_true, seconds)

    def notes(self, prefix: str) -> list[str]:
        """Return the keys of the notes that the owners of all shards have written."""
        notes = [notes for node in self.nodes.values() for notes in node.shards.notes.values()]
        return [key for each in notes for key in each if key.startswith(prefix)]

    def pins(self) -> list[str]:
        return self.notes("watch/")


def _bytes(id: str) -> bytes:
    return bytes.fromhex(id)
