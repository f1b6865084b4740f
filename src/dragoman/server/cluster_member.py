"""Makes a broker a member of a cluster. Loaded only with `--cluster`."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Final

from dragoman.carriers.nats_connect import (
    NO_CREDENTIALS,
    ConnectOptions,
    Credentials,
    KeyCredentials,
    PasswordCredentials,
    TokenCredentials,
)
from dragoman.carriers.nats_keys import read_credentials, read_seed
from dragoman.cluster.broker_side import NOT_REACHED, ClusterSide
from dragoman.cluster.names import check_name
from dragoman.cluster.nats_address import parse_nats
from dragoman.cluster.nats_client import NatsClient
from dragoman.cluster.nats_side import NatsSide
from dragoman.cluster.server_pool import ServerPool
from dragoman.cluster.settings import ClusterSettings
from dragoman.cluster.store import ShardStore
from dragoman.core.eviction import UNKNOWN_FATE
from dragoman.dashboard.dashboard import Dashboard
from dragoman.operations.cluster_schemas import ClusterView
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.limits import restore_limits
from dragoman.operations.pauses import PAUSED_BY, restore_pauses
from dragoman.sdk.address import AddressError
from dragoman.server.cluster_answers import ClusterAnswers
from dragoman.server.cluster_events import ClusterEvents
from dragoman.server.cluster_metrics import BrokerParts, ClusterMetrics
from dragoman.server.cluster_places import Confirmed, Places
from dragoman.server.cluster_router import ClusterRouter
from dragoman.server.cluster_shards import ClusterShards
from dragoman.server.cluster_snapshots import ClusterSnapshots
from dragoman.server.cluster_status import cluster_numbers, cluster_view
from dragoman.server.config import Config
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.server.runner import Runner
from dragoman.server.watched_events import WatchedEventsSide
from dragoman.server.wiring import ServerContext

MAX_SEND_BUFFER: Final = 256 << 20  # bytes; links hold as much for each broker
PING_NATS: Final = 1.0  # seconds of silence of a NATS server before a PING
NATS_SILENCE: Final = 3.5  # seconds of silence after which it is dropped, and another one dialled
NATS_HANDSHAKE: Final = 3.0  # seconds for the handshake of a dial
NUMBER_BITS: Final = 41  # of the number of a worker at one broker; 12 bits before them are from the broker's name
OTHER_LETTERS: Final = re.compile(r"[^A-Za-z0-9_-]+")


class ClusterMember:
    """The connection to NATS and the cluster's side of one broker."""

    def __init__(
        self,
        config: Config,
        runner: Runner,
        store: ShardStore,
        clock: Callable[[], float],
        release: str,
        access_digest: Callable[[], str],
    ) -> None:
        """Raises AddressError and OSError."""
        self._broker = broker = runner.broker
        self._now = clock
        self._store = store
        io, now = runner.connections, clock()
        name = config.broker_name or default_name()
        try:
            check_name("cluster", config.cluster_name)
            check_name("broker", name)
        except ValueError as error:
            raise AddressError(str(error)) from None
        owner = broker.owners.of_stored(broker.principals.local)
        settings = ClusterSettings(
            config.cluster_name, name, release, adopt_after=config.cluster_adopt_after, access_digest=access_digest
        )
        self.side = ClusterSide(broker, io, settings, owner, now)
        inbox = f"dgm.{config.cluster_name}.r.{name}.{self.side.incarnation}".encode()
        self.client = NatsClient(inbox, self.side.watcher)
        self.side.start(self.client)
        pool = ServerPool(parse_nats(config.cluster), lambda: 2.0 * broker.entropy.jitter() - 1.0)
        path = Path(config.cluster_credentials).expanduser() if config.cluster_credentials else None

        def options() -> ConnectOptions:
            credentials = credentials_in(path)
            return ConnectOptions(f"dragoman {name}", release, credentials=credentials, echoes=True)  # granter.py

        try:
            self._nats = NatsSide(
                io,
                self.client,
                pool,
                options,
                owner,
                connection_limits=nats_limits(config.cluster_adopt_after),
            )
        except ValueError as error:
            raise AddressError(str(error)) from None
        self.shards = ClusterShards(broker, io, self.side, self.client, store, now)
        runner.sessions += [self._nats, self.side, self.shards]
        store.when_lost = lambda shard, number: runner.store_access.call_waiting(number, UNKNOWN_FATE, shard)
        store.when_unread = runner.store_access.unread
        self._runner = runner

    def view(self) -> ClusterView:
        layout = self.shards.layout
        durability = layout.durability if layout is not None else ""
        problems = [each for each in (self.shards.problem, self.lack) if each]
        return cluster_view(self.side, self.client, self._broker, durability, problems, self._now())

    @property
    def lack(self) -> str:
        """A sentence about NATS servers that are away, although their replicas of the logs are needed; empty: none."""
        return self.shards.replicas.lack() if self.client.is_connected else ""

    def serve(self, context: ServerContext, offset: Callable[[], float]) -> None:
        """Let operations see the cluster, and keep pauses, limits and schedules in its shard 0."""
        operations = context.operations
        self._share(operations)
        self._share_metrics(context)
        operations.show_cluster = self.view
        operations.let_go = self.side.hub.let_go
        operations.cluster_numbers = lambda: cluster_numbers(self.side, self._store, self.shards.replicas)
        operations.placement = placement = self.shards.placement
        self.shards.wall_offset = offset
        self.shards.when_outage = operations.refuse_unstored
        operations.durability = lambda: placement.durability

        def set_services(notes: dict[str, str], now: float) -> None:
            services = self._broker.worker_registry.services.values()
            for name in [each.name for each in services if each.paused and PAUSED_BY + each.name not in notes]:
                self._broker.operator.resume(name, now)  # that it was resumed has not been heard here
            restore_pauses(self._broker, notes, offset())
            restore_limits(self._broker, notes, now)

        self.side.hub.when_settings = set_services
        self.side.hub.when_notes = operations.load_schedules
        self.side.hub.when_no_notes = lambda now: operations.scheduler.unload()

    def show(self, dashboard: Dashboard) -> None:
        """Let dashboards show the whole cluster. Call it after `serve`."""
        ClusterSnapshots(dashboard, self.side, self._router, self._runner)

    def _share(self, operations: OperationHandlers) -> None:
        """Let brokers of the cluster execute operations for each other."""
        runner = self._runner
        wake = runner.connections.request_iteration
        places = Places(operations, self.side.name, KeptShards(self.side, self._now))
        self.side.questions.answerer = self._answers = ClusterAnswers(operations, places, wake)
        router = ClusterRouter(operations, self.side, places, wake, self._now)
        runner.sessions.append(router)
        operations.brokers = self._router = router
        events = ClusterEvents(operations, self.side, runner.connections, places.owner_of, self._now)
        watched = WatchedEventsSide(self._broker, self.side, runner.connections, self._now)
        runner.sessions += [events, watched]
        operations.event_sources = events

    def _share_metrics(self, context: ServerContext) -> None:
        """Let one broker return the metrics of all."""
        basics = (self._broker, context.operations, self._runner, context.now, context.health)
        parts = BrokerParts(*basics, context.http_traffic, context.access_control.expiries)
        context.operations.metric_sources = ClusterMetrics(self.side, self._answers, parts, context.loop)

    def drain(self, now: float) -> None:
        """Give all shards to other brokers: this one stops. If no other broker stays, it keeps those whose jobs run."""
        if self.side.keeper is not None:
            self.side.keeper.shards.drain(now)

    def give_up(self, now: float) -> None:
        """Give all shards up: the time to stop has passed. Their running attempts end without an outcome, so that
        workers that can resume them find them again."""
        if self.side.keeper is not None:
            self.side.keeper.shards.give_up(now)
            self.side.keeper.tick(now)

    @property
    def is_drained(self) -> bool:
        """True if no shard is left, the outcomes of background jobs that ran here are with their new owners, and
        nothing is on its way from or to other brokers."""
        keeper = self.side.keeper
        has_given = keeper is None or (keeper.shards.is_drained and not keeper.outcomes)
        return not self.client.is_connected or (has_given and self.side.departure.is_quiet)

    def close(self) -> None:
        """Leave the cluster: the broker stops."""
        self.side.say_goodbye(self._now())
        self._nats.close()


class KeptShards:
    """The shards of the cluster, as this broker knows them. Until their number is known, there are none."""

    def __init__(self, side: ClusterSide, now: Callable[[], float]) -> None:
        self._side = side
        self._now = now

    @property
    def count(self) -> int:
        keeper = self._side.keeper
        return 0 if keeper is None else len(keeper.kept)

    def owner(self, shard: int) -> str:
        keeper = self._side.keeper
        return "" if keeper is None else keeper.shards.owner(shard, self._now())

    def is_ready(self, shard: int) -> bool:
        keeper = self._side.keeper
        return keeper is not None and keeper.owns(shard)

    def unusable(self, shard: int) -> str:
        keeper = self._side.keeper
        return "" if keeper is None else keeper.signs.unusable(shard)

    def doubt(self) -> str:
        return self._side.doubt(self._now())

    @property
    def has_imports(self) -> bool:
        keeper = self._side.keeper
        return keeper is not None and keeper.has_imports

    def confirm(self, shards: Iterable[int], done: Confirmed, within: float) -> None:
        keeper = self._side.keeper
        if keeper is None or not self._side.is_connected:
            done((), dict.fromkeys(shards, NOT_REACHED))
        else:
            keeper.confirm(shards, within, lambda asked: done(asked.confirmed, asked.problems), self._now())


def nats_limits(adopt_after: float) -> ConnectionLimits:
    """Return the limits of the connection to NATS. If a server falls silent, and the next one that is dialled is, too,
    the gossip of this broker still arrives before the others take it for gone. The last one before may be a second old
    (config.py:LEAST_ADOPT_AFTER)."""
    silence = min(NATS_SILENCE, 0.35 * adopt_after)
    return ConnectionLimits(
        max_send_buffer=MAX_SEND_BUFFER,
        handshake_timeout=min(NATS_HANDSHAKE, 0.3 * adopt_after),
        carrier_ping=min(PING_NATS, 0.3 * silence),
        carrier_timeout=silence,
    )


def first_worker_of(config: Config, first: int) -> int:
    """Return the first number of a worker: brokers of a cluster have different numbers, so that one names a worker."""
    name = config.broker_name or default_name()
    return first + (int.from_bytes(blake2b(name.encode(), digest_size=2).digest(), "big") >> 4 << NUMBER_BITS)


def default_name() -> str:
    """Return the name of this machine, as far as it can be the name of a broker."""
    return OTHER_LETTERS.sub("-", socket.gethostname())[:32].strip("-") or "broker"


def credentials_in(path: Path | None) -> Credentials:
    """Read a file with one of: a token, `user:password`, the seed of an nkey, or NATS credentials (JWT and seed).

    Raises AddressError, which quotes nothing of the file, and OSError.
    """
    if path is None:
        return NO_CREDENTIALS
    if os.stat(path).st_mode & 0o077 and not _is_credential(path):
        raise AddressError(f"{path}: other users can read this file; run: chmod 600 {path}")
    text = path.read_text("utf-8").strip()
    try:
        if "-----BEGIN" in text:
            jwt, key = read_credentials(text)
            return KeyCredentials(key, jwt)
        if re.fullmatch(r"SU[A-Z2-7]{56}", text):
            return KeyCredentials(read_seed(text))
    except ValueError as error:
        raise AddressError(f"{path}: {error}") from None
    if not text or "\n" in text:
        allowed = "a token, user:password, the seed of an nkey, or a file of NATS credentials"
        raise AddressError(f"{path}: it has no credentials; write {allowed}")
    user, colon, password = text.partition(":")
    return PasswordCredentials(user, password) if colon else TokenCredentials(text)


def _is_credential(path: Path) -> bool:
    """True if systemd or Kubernetes has put the file there, and is responsible for its mode."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    return bool(folder) and path.resolve().is_relative_to(Path(folder or ".").resolve())
