"""Brokers of a cluster with an access table: the world of `limit_world.py`, with jobs of the principal `web`."""

from __future__ import annotations

from dragoman.cluster.settings import ClusterSettings
from dragoman.core.bulk import NewJob, Refusal
from dragoman.core.model import Caller, JobId
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.rights import ALL_RIGHTS, Principal, PrincipalLimits

from .limit_world import LimitWorld
from .shard_world import ShardNode

OPTIONS = JobOptions(waits=True, job_timeout=1e9)
BACKGROUND = JobOptions(durable=True, waits=True)


class PrincipalWorld(LimitWorld):
    """After each step, at most `most` jobs of the principal run at workers of all brokers, or no more than before."""

    def __init__(self, *names: str, seed: int = 0, loss: float = 0.0, **limits: float) -> None:
        self.table = PrincipalLimits(**limits)  # type: ignore[arg-type]
        super().__init__(*names, seed=seed, loss=loss)
        self.most = self.table.max_running or self.most

    def start(self, name: str, *, key: str = "") -> ShardNode:
        node = super().start(name, key=key)
        self.apply(node, self.table)
        return node

    def apply(self, node: ShardNode, limits: PrincipalLimits) -> None:
        """Use another access table at one broker."""
        table = {"web": (ALL_RIGHTS, limits)}
        node.broker.principals.apply(table)
        digest = repr(table)
        settings = ClusterSettings("test", node.name, adopt_after=node.adopt_after, access_digest=lambda: digest)
        node.side.settings = node.side.gossip._settings = settings
        node.side._tables._digest = settings.access_digest
        node.broker.operator.limits_changed(self.now)

    def web(self, node: ShardNode) -> Principal:
        return node.broker.principals.named("web")

    def is_granted(self) -> bool:
        """True if every broker has shares of the limits."""
        shares = [self.web(node).share for node in self.all_nodes]
        return all(share is not None and share.is_granted for share in shares)

    def submit(self, node: ShardNode, payload: bytes = b"x", service: str = "s") -> bool:
        caller = Caller(node.local, Owner(self.web(node), is_limited=False))
        return node.broker.submit(service, payload, caller, OPTIONS, self.now) is not None

    def connect(self, node: ShardNode) -> Owner:
        """Let the principal have a connection."""
        owner = Owner(self.web(node), is_limited=False)
        owner.enter()
        return owner

    def batch(self, node: ShardNode, count: int, size: int = 1) -> bool:
        """Enqueue a batch. False: it is refused."""
        orders = []
        for _ in range(count):
            id = node.placement.job_id("web", "s", None, ())
            assert not isinstance(id, str)
            orders.append(NewJob("s", b"x" * size, BACKGROUND, JobId(id)))
        try:
            node.broker.bulk.submit(orders, Owner(self.web(node), is_limited=False), "local", self.now)
        except Refusal:
            return False
        return True

    def call(self, node: ShardNode, count: int = 1, tenant: str = "") -> None:
        for _ in range(count):
            assert self.submit(node)

    def top_up(self) -> None:
        """Let jobs wait at every broker."""
        for node in self.all_nodes:
            service = node.broker.worker_registry.services.get("s")
            if node.name not in self.frozen and (service is None or service.queue.length < 10):
                self.call(node, 10)
