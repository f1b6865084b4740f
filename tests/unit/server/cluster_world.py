"""Brokers of one cluster with their operations: real runners, handlers and routers, and a table of shards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.nats_client import NatsClient
from dragoman.cluster.settings import ClusterSettings
from dragoman.cluster.shard_bytes import CALL, with_shard
from dragoman.core.broker import Broker
from dragoman.core.ids import JobId, Token
from dragoman.core.model import Attempt, Caller, Job, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.rights import Rights
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.schemas import ErrorView
from dragoman.operations.table import OPERATIONS
from dragoman.server.admission import AdmissionLimits
from dragoman.server.cluster_answers import ClusterAnswers
from dragoman.server.cluster_events import ClusterEvents
from dragoman.server.cluster_places import Confirmed, NoShards, Places, ShardOwners
from dragoman.server.cluster_router import ClusterRouter
from dragoman.server.runner import Runner
from dragoman.server.watched_events import WatchedEventsSide
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER
from unit.cluster import world as links
from unit.operations.world import READY, WALL, ManualStore, RecordingResponder, WorkerSession


class ShardTable:
    """The owners of shards, as all brokers know them; and those that have read their shards."""

    def __init__(self, *owners: str) -> None:
        self.owners = list(owners)
        self.reading: list[int] = []
        self.cut_off: list[str] = []  # brokers whose shards cannot be proved to be there
        self.doubts: dict[str, str] = {}  # of brokers

    def seen_by(self, node: str) -> ShardOwners:
        return SeenShards(self, node)


class SeenShards:
    def __init__(self, table: ShardTable, node: str) -> None:
        self._table = table
        self._node = node

    @property
    def count(self) -> int:
        return len(self._table.owners)

    def owner(self, shard: int) -> str:
        return self._table.owners[shard]

    def is_ready(self, shard: int) -> bool:
        return self._table.owners[shard] == self._node and shard not in self._table.reading

    def unusable(self, shard: int) -> str:
        return ""

    has_imports = False

    def doubt(self) -> str:
        return self._table.doubts.get(self._node, "")

    def confirm(self, shards: Iterable[int], done: Confirmed, within: float) -> None:
        confirmed = [each for each in shards if self.is_ready(each) and self._node not in self._table.cut_off]
        done(confirmed, {each: "its log does not answer" for each in shards if each not in confirmed})


class ShardEntropy(SeededEntropy):
    """Ids end with the first shard of their broker, or with the byte of calls."""

    def __init__(self, seed: str, table: ShardTable | None, node: str) -> None:
        super().__init__(seed)
        self._table = table
        self._node = node

    def job_id(self) -> JobId:
        id = super().job_id()
        if self._table is None:
            return id
        shards = self._table.owners
        return JobId(with_shard(id, shards.index(self._node) if self._node in shards else CALL))

    def token(self) -> Token:
        """Return a token of a call: nobody keeps shards here."""
        return Token(with_shard(super().token(), CALL))


class Node(links.Node):
    """One run of one broker, on a real runner."""

    world: World

    def __init__(self, world: World, name: str, run: int) -> None:
        self.world = world
        self.name = name
        self.remarks = []
        self.subscribed = {}
        self.is_connected = False
        self.inbox = []
        self.published = 0
        self.store = ManualStore()
        self.broker = Broker(Policy(), ShardEntropy(f"{name} {run}", world.table, name), first_worker=100 * run)
        self.broker.job_registry.conversations.start()
        self.broker.principals.apply({name: (rights, each) for name, (rights, each) in world.access.items()})
        limits = AdmissionLimits(late_iteration=1e9)
        self.runner = Runner(self.broker, self.store, lambda: world.now, self._log, limits, strict=True)
        self.operations = OperationHandlers(
            self.broker, self.runner.store_access, self.store, lambda: WALL, lambda: READY
        )
        self.side = ClusterSide(
            self.broker, self.runner.connections, ClusterSettings("test", name), LOCAL_OWNER, world.now
        )
        self.client = NatsClient(b"inbox", self.side.watcher)
        self.side.start(self.client)
        shards = NoShards() if world.table is None else world.table.seen_by(name)
        places = Places(self.operations, name, shards)
        wake = self.runner.connections.request_iteration
        self.router = ClusterRouter(self.operations, self.side, places, wake, lambda: world.now)
        self.side.questions.answerer = self.answers = ClusterAnswers(self.operations, places, wake)
        self.operations.brokers = self.router
        io, clock = self.runner.connections, lambda: world.now
        self.events = ClusterEvents(self.operations, self.side, io, places.owner_of, clock)
        self.watched = WatchedEventsSide(self.broker, self.side, io, clock)
        self.operations.event_sources = self.events
        self.side.notes.is_owner = lambda broker, now: self._has_settings(broker)
        self.runner.sessions += [self.operations, self.side, self.router, self.events, self.watched]
        self.workers = self.local = WorkerSession()  # type: ignore[assignment]

    def _has_settings(self, broker: str) -> bool:
        table = self.world.table
        return table is not None and table.owners[0] == broker and (broker != self.name or 0 not in table.reading)

    def _log(self, level: str, event: str, **fields: object) -> None:
        self.remarks.append(event)

    def step(self) -> None:
        now = self.world.now
        inbox, self.inbox = self.inbox, []
        for subject, payload in inbox:
            sid = self.subscribed.get(subject)
            if sid is not None and self.is_connected:
                self.client.receive([sid, subject, b"", b"", payload], now)
        self.runner.run_once()
        self.connect()

    def worker(self, service: str = "s", capacity: int = 1) -> Worker:
        profile = WorkerProfile(capacity=capacity)
        worker = self.broker.join(self.workers, None, "w", (service,), profile, self.world.now, LOCAL_OWNER)
        assert worker is not None
        self.broker.idle(worker, self.world.now)
        return worker

    def owner(self, principal: str) -> Owner:
        return Owner(self.broker.principals.named(principal), f"connection of {principal}", address="10.0.0.1")

    def begin(
        self, operation: str, body: bytes = b"", /, principal: str = "local", **fields: Any
    ) -> RecordingResponder:
        """Ask this broker. The response may come later."""
        responder = RecordingResponder(self.owner(principal))
        request = OPERATIONS[operation].request(**fields)
        responder.pending = self.operations.ask(operation, request, body, responder, self.world.now)
        return responder

    def ask(self, operation: str, body: bytes = b"", /, principal: str = "local", **fields: Any) -> Any:
        """Ask this broker, and return the view or the error."""
        responder = self.begin(operation, body, principal, **fields)
        self.world.run_until(lambda: responder.responses)
        assert len(responder.responses) == 1
        self.payload = responder.payload
        return responder.responses[0]

    def enqueue(self, service: str = "s", body: bytes = b"x", **fields: Any) -> str:
        view = self.ask("enqueue", body, service=service, **fields)
        assert not isinstance(view, ErrorView), view
        return str(view.id)

    def adopt(self, job: Job) -> None:
        """Take over a background job from a broker that is gone."""
        caller = Caller(self.local, LOCAL_OWNER)
        options = JobOptions(durable=True, waits=True, attempts=3)
        self.broker.submit(job.service.name, bytes(job.payload), caller, options, self.world.now, id=job.id)

    def job(self, id: str) -> Job:
        return self.broker.jobs[JobId(bytes.fromhex(id))]

    def has(self, id: str) -> bool:
        return JobId(bytes.fromhex(id)) in self.broker.jobs

    def attempt(self, id: str) -> Attempt:
        attempt = self.job(id).attempt
        assert attempt is not None
        return attempt


class World(links.World):
    """`table`: the owners of shards; None: there are no shards. `access`: rights and limits by principal."""

    nodes: dict[str, Node]  # type: ignore[assignment]

    def __init__(self, *names: str, table: ShardTable | None = None, access: dict[str, Any] | None = None) -> None:
        self.table = table
        self.access = access or {}
        super().__init__(*names)
        self.run_until(lambda: all(len(node.side.peers) == len(names) - 1 for node in self.nodes.values()))
        self.run()

    def start(self, name: str, *, key: str = "") -> Node:
        self._runs += 1
        node = self.nodes[key or name] = Node(self, name, self._runs)
        return node


def may(**rights: tuple[str, ...]) -> tuple[Rights, Any]:
    from dragoman.core.rights import NO_LIMITS

    return Rights(**rights), NO_LIMITS
