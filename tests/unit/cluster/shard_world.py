"""Brokers of a cluster with background jobs, in memory: the world of `world.py`, and one log for each shard.

Requests to a log are answered in a later step. With faults, a request or its answer is lost; then the answer is that
nobody knows, as after a time-out.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.jetstream import ApiError, Append, AppendOutcome, StoredMessage, StreamState
from dragoman.cluster.log import Expected
from dragoman.cluster.log_io import LogIO
from dragoman.cluster.names import Subjects
from dragoman.cluster.placement import Placement
from dragoman.cluster.records import Ack, Failed, Held, Left, Returned, read_packet, read_records
from dragoman.cluster.shard_bytes import shard_in
from dragoman.cluster.shard_keeper import ShardKeeper
from dragoman.cluster.shards import ShardPhase, ShardSettings
from dragoman.cluster.store import ShardStore
from dragoman.core.effects import DeliverOutcome, Delivery, SendJob
from dragoman.core.eviction import UNKNOWN_FATE
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.model import ABSENT, Attempt, Caller, Job, JobId, Token
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.store_entries import DeleteJob, StoreEntry, StoreJob, StoreValue
from dragoman.server.reports import Reports
from dragoman.server.store_access import StoreAccess
from log_model import ModelLog
from owners import LOCAL_OWNER

from .shard_oracle import Broken, ShardOracle
from .world import Node, World

UNKNOWN = ApiError(0, 0, "timed out", True)
SHARDS = 3
TIMES = ShardSettings(adopt_after=4.0, turn=0.4, silent_after=2.0, again_after=0.5, balance_every=4.0)


class NodeLog(LogIO):
    """One broker's access to the log of a shard."""

    def __init__(self, node: ShardNode, log: ModelLog) -> None:
        self._node = node
        self._log = log

    @property
    def max_message(self) -> int:
        return 1 << 20

    def append(self, payload: bytes, expected: int, done: Callable[[Append, float], None], now: float) -> None:
        def execute() -> Callable[[], None]:
            made = self._log.append(payload, expected)
            self._node.shard_world.oracle.look(self._log)
            return lambda: done(made, self._node.world.now)

        self._node.request(execute, lambda: done(Append(AppendOutcome.UNKNOWN), self._node.world.now))

    def inspect(self, done: Callable[[StreamState | ApiError, float], None], now: float) -> None:
        self._node.request(lambda: lambda: done(self._log.state(), self._node.world.now), lambda: done(UNKNOWN, now))

    def get(self, sequence: int, done: Callable[[StoredMessage | ApiError | None, float], None], now: float) -> None:
        def execute() -> Callable[[], None]:
            found = self._log.get(sequence)
            return lambda: done(found, self._node.world.now)

        self._node.request(execute, lambda: done(UNKNOWN, self._node.world.now))

    def batch(
        self, first: int, count: int, max_bytes: int, done: Callable[[DirectBatch, float], None], now: float
    ) -> None:
        def execute() -> Callable[[], None]:
            found = self._log.batch(first, count, max_bytes, self._log.last)
            return lambda: done(found, self._node.world.now)

        def fail() -> None:
            batch = DirectBatch("LOG")
            batch.problem = "timed out"
            done(batch, self._node.world.now)

        self._node.request(execute, fail)

    def purge(self, first_kept: int, done: Callable[[int | ApiError, float], None], now: float) -> None:
        def execute() -> Callable[[], None]:
            removed = self._log.purge(first_kept)
            self._node.shard_world.oracle.purged(self._log)
            return lambda: done(removed, self._node.world.now)

        self._node.request(execute, lambda: done(UNKNOWN, self._node.world.now))


class BackgroundCaller(Caller):
    """A client that waits for the acknowledgement of its job, and then for the outcome."""

    def __init__(self, node: ShardNode, payload: bytes, owner: Owner = LOCAL_OWNER) -> None:
        super().__init__(node.local, owner)
        self.payload = payload


class ShardNode(Node):
    """One run of one broker, with its shards."""

    adopt_after = TIMES.adopt_after

    def __init__(self, world: ShardWorld, name: str, run: int) -> None:
        super().__init__(world, name, run)
        self.shard_world = world
        self.requests: list[tuple[Callable[[], Callable[[], None]], Callable[[], None]]] = []
        self.answers: list[Callable[[], None]] = []
        self.store = ShardStore(lambda: world.now)
        self.store.outage = lambda: None if self.is_connected else "away"
        self.store.holder_of = self.side.hub.holder_of
        self.broker.dispatch.marks_shards = True
        self.store.homes = self.broker.dispatch.home_bytes
        self.placement = Placement(self.broker, self.store)
        reports = Reports(self.broker.counters, lambda: world.now, lambda *_, **__: None)
        self.access = StoreAccess(self.broker, self.store, reports, lambda: world.now, lambda: None)
        self.store.when_lost = lambda shard, number: self.access.call_waiting(number, UNKNOWN_FATE, shard)
        self.store.when_unread = self.access.unread
        logs: list[LogIO] = [NodeLog(self, each) for each in world.logs]
        self.keeper = ShardKeeper(
            self.broker, self.side.hub, self.store, "test", "1", Expected("id", 3), logs, TIMES, world.now
        )
        self.keeper.clean_above = world.clean_above
        self.placement.keeper = self.keeper
        self.side.keep_shards(self.keeper, world.now)

    # ---------------------------------------------------------------- the log

    def request(self, execute: Callable[[], Callable[[], None]], fail: Callable[[], None]) -> None:
        self.requests.append((execute, fail))

    def _serve(self) -> None:
        answers, self.answers = self.answers, []
        for answer in answers:
            answer()
        requests, self.requests = self.requests, []
        for execute, fail in requests:
            fate = self.world.random.random()
            if not self.is_connected or fate < 0.5 * self.shard_world.log_loss:
                self.answers.append(fail)
                continue
            answer = execute()
            self.answers.append(fail if fate < self.shard_world.log_loss else answer)

    # ---------------------------------------------------------------- jobs

    @property
    def owned(self) -> list[int]:
        return [number for number in range(SHARDS) if self.keeper.shards[number].phase is ShardPhase.OWNED]

    def enqueue(
        self, payload: bytes, key: str | None = None, owner: Owner = LOCAL_OWNER, **options: object
    ) -> Job | None:
        """Enqueue a job, if this broker owns its shard."""
        id = self.placement.job_id(owner.principal.name, "s", key, ())
        if isinstance(id, str):
            return None
        wanted = JobOptions(durable=True, waits=True, **options)  # type: ignore[arg-type]
        caller = BackgroundCaller(self, payload, owner)
        return self.broker.submit("s", payload, caller, wanted, self.world.now, key=key, id=JobId(id))

    def step(self) -> None:
        self._serve()
        super().step()

    def drain(self) -> None:
        effects = self.broker.effects
        while effects:
            entries: list[StoreEntry] = []
            while effects:
                effect = effects.pop(0)
                if isinstance(effect, (StoreJob, StoreValue, DeleteJob)):
                    entries.append(effect)
                elif isinstance(effect, Delivery):
                    self._execute(effect)
            if entries:
                self.store.apply(entries, self._saved)

    def _saved(self, number: int, problem: str | None, shard: int = 0) -> None:
        self.broker.store_reports.saved(number, self.world.now, problem, shard)
        self.access.call_waiting(number, problem, shard)

    def _execute(self, effect: Delivery) -> None:
        if isinstance(effect, SendJob):
            if effect.attempt.job.payload is ABSENT:
                self.access.fetch_first(effect)
                return
            effect.attempt.mark_sent()
            if effect.attempt.worker.recipient is self.local:
                self.shard_world.oracle.ran(self.keeper.shard_of(effect.attempt.token), effect.attempt.token)
                self.shard_world.ran(effect.attempt)
            elif effect.attempt.job.caller_dialect == "cluster":
                raise Broken(f"C7: {self.name} sends a job of another broker on")
        if isinstance(effect, Acknowledge):
            self.shard_world.oracle.acknowledged(self.keeper.shard_of(effect.job.id), effect.job.id, effect.job.key)
            self.shard_world.acknowledged(effect.job)
            return
        if isinstance(effect, DeliverOutcome) and isinstance(effect.caller, BackgroundCaller):
            if effect.result is ABSENT:
                self.access.fetch_first(effect)
                return
            effect.caller.remove_job(effect.job)
            if effect.job is not None:
                number, id = self.keeper.shard_of(effect.job.id), effect.job.id
                self.shard_world.oracle.told(number, id, effect.outcome.value, bytes(effect.result))
                self.shard_world.told(effect.caller, effect)
            return
        effect.recipient().execute(effect, self.world.now)


class ShardWorld(World):
    """Brokers that share logs, and the record of what clients and workers have seen, by payload."""

    def __init__(
        self, *names: str, seed: int = 0, loss: float = 0.0, log_loss: float = 0.0, clean_above: int = 1 << 30
    ) -> None:
        self.clean_above = clean_above
        self.logs = [ModelLog() for _ in range(SHARDS)]
        self.oracle = ShardOracle(self.logs)
        self.log_loss = log_loss
        self.accepted: dict[bytes, bytes] = {}  # id of each job that was acknowledged
        self.outcomes: dict[bytes, tuple[str, bytes]] = {}  # as the first client was told
        self.runs: dict[bytes, int] = {}
        self.departures: set[tuple[str, bytes]] = set()  # brokers, and attempts that their workers took elsewhere
        self.moved: set[bytes] = set()  # attempts that have appeared at another broker
        super().__init__(*names, seed=seed, loss=loss)

    def start(self, name: str, *, key: str = "") -> ShardNode:
        self._runs += 1
        made = self.nodes[key or name] = ShardNode(self, name, self._runs)
        return made

    def publish(self, subject: bytes, payload: bytes) -> None:
        """Show the oracle each result that is acknowledged to another broker."""
        if subject != Subjects("test").gossip:
            packet = read_packet(payload)
            assert packet.is_last, "packets of this world are small"
            receiver = subject.split(b".")[3].decode()
            for record in read_records(packet.body) if packet.number else ():
                if isinstance(record, Held):
                    self.moved.add(record.token)
                is_loss = isinstance(record, Failed) and record.outcome != "failed" and record.token in self.moved
                if isinstance(record, (Left, Returned)) or is_loss:
                    self.departures.add((packet.broker, record.token))  # type: ignore[union-attr]
                elif isinstance(record, Ack) and (receiver, record.token) in self.departures:
                    continue  # what is acknowledged is not a result
                elif isinstance(record, Ack) and shard_in(record.token, SHARDS) >= 0:
                    self.oracle.result_acknowledged(shard_in(record.token, SHARDS), Token(record.token))
        super().publish(subject, payload)

    def run(self, seconds: float = 0.2) -> None:
        for log in self.logs:
            log.time = self.now - 500.0  # the clock of the server is another one
        super().run(seconds)
        for number in range(SHARDS):
            epochs = {key: self.node(key).keeper.shards[number].epoch for key in self.nodes}
            self.oracle.owners(number, epochs)

    def node(self, name: str) -> ShardNode:
        found = self.nodes[name]
        assert isinstance(found, ShardNode)
        return found

    @property
    def all_nodes(self) -> list[ShardNode]:
        return [self.node(name) for name in self.nodes]

    def wait_for_owners(self) -> None:
        self.run_until(lambda: sum(len(each.owned) for each in self.all_nodes) == SHARDS)

    def find(self, id: bytes) -> Job | None:
        """Return a background job at the broker that owns it now."""
        for node in self.all_nodes:
            job = node.broker.jobs.get(JobId(id))
            if job is not None and job.options.durable and node.keeper.owns(node.keeper.shard_of(id)):
                return job
        return None

    def work(self) -> None:
        """Let each attempt that runs end with its payload in capitals."""
        for node in self.all_nodes:
            sent, node.local.sent = node.local.sent, []
            for attempt in sent:
                node.finish(attempt, bytes(attempt.job.payload).upper())

    # ---------------------------------------------------------------- the record

    def ran(self, attempt: Attempt) -> None:
        payload = bytes(attempt.job.payload)
        self.runs[payload] = self.runs.get(payload, 0) + 1

    def acknowledged(self, job: Job) -> None:
        self.accepted[bytes(job.payload)] = job.id

    def told(self, caller: BackgroundCaller, effect: DeliverOutcome) -> None:
        found = (effect.outcome.value, bytes(effect.result))
        assert self.outcomes.setdefault(caller.payload, found) == found, f"{caller.payload!r} has two outcomes"
