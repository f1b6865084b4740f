"""Brokers of a cluster with one limited service: the world of `shard_world.py`, which counts the running jobs."""

from __future__ import annotations

from dragoman.cluster.store import NOTES
from dragoman.core.job_extras import JobExtras
from dragoman.core.limit_values import LimitValues, read_rate
from dragoman.core.model import Attempt, Caller
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.service_limits import ServiceLimits
from dragoman.operations.limits import restore_limits, store_limits
from owners import LOCAL_OWNER

from .shard_world import ShardNode, ShardWorld
from .world import STEP

OPTIONS = JobOptions(waits=True, job_timeout=1e9)


class LimitWorld(ShardWorld):
    """After each step, at most `most` jobs of the service run at workers of all brokers, or no more than before it."""

    def __init__(self, *names: str, seed: int = 0, loss: float = 0.0) -> None:
        self.frozen: dict[str, ShardNode] = {}  # brokers that do nothing; messages for them wait
        self.most = 1 << 30
        self.given_up: dict[str, None] = {}  # brokers that are frozen for so long that they are gone
        self.may_exceed = False  # a broker is back whose jobs were given up
        self.highest = 0
        super().__init__(*names, seed=seed, loss=loss)
        self.wait_for_owners()
        self.run_until(lambda: all(len(node.side.peers) == len(names) - 1 for node in self.all_nodes))

    def start(self, name: str, *, key: str = "") -> ShardNode:
        """Start a broker that reads the limits in shard 0 when it owns that."""
        node = super().start(name, key=key)
        node.side.hub.when_settings = lambda notes, now: restore_limits(node.broker, notes, now) and None
        return node

    def run(self, seconds: float = 0.2) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = round(self.now + STEP, 6)
            for log in self.logs:
                log.time = self.now - 500.0
            before = self.running
            for node in self.all_nodes:
                if node.name not in self.frozen:
                    node.step()
            self.check(before)

    def check(self, before: int) -> None:
        running = self.running
        self.highest = max(self.highest, running)
        assert running <= self.most or (self.may_exceed and running <= before), f"{running} of {self.most} run"

    @property
    def running(self) -> int:
        """Jobs at workers, wherever they are; but not those that were given up."""
        return sum(self.running_at(node) for node in self.all_nodes if node.name not in self.given_up)

    def running_at(self, node: ShardNode) -> int:
        return len(self.attempts_at(node))

    def attempts_at(self, node: ShardNode) -> list[Attempt]:
        workers = node.broker.worker_registry.workers.values()
        return [each for worker in workers if worker.recipient is node.local for each in worker.running.values()]

    def finish_one(self) -> bool:
        """Let a random job end. False: none runs at a broker that is not frozen."""
        nodes = [node for node in self.all_nodes if node.name not in self.frozen]
        attempts = [(node, attempt) for node in nodes for attempt in self.attempts_at(node) if attempt.is_sent]
        if not attempts:
            return False
        node, attempt = self.random.choice(attempts)
        before = self.running
        node.finish(attempt)
        self.check(before)
        return True

    # ---------------------------------------------------------------- the limit

    @property
    def granter(self) -> ShardNode:
        return next(each for each in self.all_nodes if each.keeper.owns(NOTES) and each.name not in self.frozen)

    def limit(self, max_running: int | None = None, per_tenant: int | None = None, rate: str | None = None) -> None:
        """Set limits as an operator does, and wait until every broker has them."""
        values = LimitValues(max_running, per_tenant, None if rate is None else read_rate(rate))
        broker = self.granter.broker
        broker.limiter.set_by_operator("s", values, "me", self.now)
        store_limits(broker.worker_registry.services["s"], broker.job_registry.pending_commits.note)
        self.run_until(lambda: all(self.limits(node) is not None for node in self.all_nodes))
        self.most = max_running or self.most

    def limits(self, node: ShardNode) -> ServiceLimits | None:
        service = node.broker.worker_registry.services.get("s")
        return None if service is None else service.limits

    def workers(self, node: ShardNode, capacity: int) -> None:
        profile = WorkerProfile(capacity=capacity)
        worker = node.broker.join(node.local, None, "w", ("s",), profile, self.now, LOCAL_OWNER)
        assert worker is not None
        node.broker.idle(worker, self.now)

    def call(self, node: ShardNode, count: int = 1, tenant: str = "") -> None:
        extras = JobExtras(tenant=tenant) if tenant else None
        for _ in range(count):
            caller = Caller(node.local, LOCAL_OWNER)
            assert node.broker.submit("s", b"x", caller, OPTIONS, self.now, extras=extras) is not None

    def top_up(self) -> None:
        """Let jobs wait at every broker that knows the limit."""
        for node in self.all_nodes:
            limits = self.limits(node)
            if limits is not None and node.broker.worker_registry.services["s"].queue.length < 10:
                self.call(node, 10)

    def done(self, node: ShardNode) -> int:
        return len([each for each in node.local.outcomes if each.outcome.value == "done"])

    # ---------------------------------------------------------------- failures

    def stop_time(self, name: str, is_long: bool = False) -> None:
        self.frozen[name] = self.node(name)
        if is_long:
            self.given_up[name] = None

    def thaw(self, name: str) -> None:
        """Let a broker go on. If it was given up, its jobs are there besides those of others."""
        del self.frozen[name]
        if name in self.given_up:
            del self.given_up[name]
            self.may_exceed = True
