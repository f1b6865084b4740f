"""Connects the keeper of shards with the links to other brokers: outcomes, acknowledgements, attempts elsewhere.

An attempt that was given by an earlier owner of its shard is *awaited*: its worker is at another broker, or at this one
for the earlier owner. For the core it has a worker of its own, which never gets another job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from dragoman.cluster.hub import Hub
from dragoman.cluster.peers import Peer, RemoteService
from dragoman.cluster.records import Ack, AnyRecord, Failed, LetGo, Recall, Result, Seek
from dragoman.cluster.remote_workers import RemoteWorkers
from dragoman.cluster.shard_keeper import ShardKeeper
from dragoman.cluster.taken_jobs import TakenJobs
from dragoman.core.broker import Broker
from dragoman.core.effects import CancelAttempt, Effect
from dragoman.core.model import Attempt, Caller, Token
from dragoman.core.states import GONE
from dragoman.dialects.interface import BrokerIO

REST: Final = 60.0  # seconds in which a broker that has given its shards up takes none


@final
class Awaited:
    """An attempt at another broker, which an earlier owner gave."""

    __slots__ = ("attempt", "peer")

    def __init__(self, attempt: Attempt, peer: Peer | None) -> None:
        self.attempt = attempt
        self.peer = peer  # None: a worker of this broker has it


class ShardHub(Hub):
    """The keeper's view of the cluster's side."""

    dialect = "cluster"

    def __init__(
        self,
        broker: Broker,
        io: BrokerIO,
        myself: Peer,
        peers: dict[str, Peer],
        workers: RemoteWorkers,
        taken: TakenJobs,
        request_flush: Callable[[], None],
    ) -> None:
        """`myself`: stands for this broker."""
        self.name = myself.name
        self.incarnation = myself.incarnation
        self.keeper: ShardKeeper | None = None  # until the layout of the cluster is known
        self.when_notes: Callable[[dict[str, str], float], None] = lambda notes, now: None
        self.when_no_notes: Callable[[float], None] = lambda now: None
        self.when_moved: Callable[[Attempt], None] = lambda attempt: None  # its job leaves, its worker is elsewhere
        self._broker = broker
        self._io = io
        self._myself = myself
        self._peers = peers
        self._workers = workers
        self._taken = taken
        self._request_flush = request_flush
        self._awaited: dict[Token, Awaited] = {}

    @property
    def run(self) -> str:
        return f"{self.name}.{self.incarnation}"

    def holder_of(self, attempt: Attempt) -> str:
        """Return the run of the broker whose worker has an attempt."""
        remote = attempt.worker.remote
        awaited = self._awaited.get(attempt.token)
        peer = remote.peer if type(remote) is RemoteService else awaited.peer if awaited is not None else None
        return self.run if peer is None else f"{peer.name}.{peer.incarnation}"

    def owner_of(self, shard: int, now: float) -> str:
        """Return the broker that has a shard; empty: none is known."""
        return "" if self.keeper is None else self.keeper.shards.owner(shard, now)

    # ---------------------------------------------------------------- from links

    def take_outcome(self, peer: Peer | None, record: Result | Failed, now: float) -> None:
        keeper = self.keeper
        if keeper is None:
            return
        token = Token(record.token)
        awaited = self._awaited.get(token)
        attempt = awaited.attempt if awaited is not None else peer.attempts.get(token) if peer is not None else None
        if not keeper.outcome(peer, record, attempt, now):
            return
        if peer is not None:
            peer.attempts.pop(token, None)
        if awaited is not None:
            self._awaited.pop(token, None)
            self._leave(awaited, "its result is here", now)

    def take_seek(self, peer: Peer, token: Token) -> None:
        self._taken.seek(peer, token)

    def take_ack(self, token: bytes) -> None:
        if self.keeper is not None:
            self.keeper.outcomes.acknowledged(token)

    def rest(self, now: float) -> None:
        """Give all shards to other brokers, and take none for a while."""
        if self.keeper is not None:
            self.keeper.shards.rest(now, REST)

    def let_go(self, broker: str, now: float) -> bool:
        """Let a broker give its shards to others. False: it is not heard."""
        peer = self._peers.get(broker)
        if broker == self.name:
            self.rest(now)
        elif peer is not None:
            self._add(peer, LetGo())
        return broker == self.name or peer is not None

    def gone(self, peer: Peer, reason: str, now: float) -> None:
        """The broker of a worker is gone: the attempts that it had are lost."""
        for token, awaited in list(self._awaited.items()):
            if awaited.peer is peer:
                del self._awaited[token]
                self._leave(awaited, reason, now)
        if self.keeper is not None:
            self.keeper.outcomes.unsent(peer.name)

    def _leave(self, awaited: Awaited, reason: str, now: float) -> None:
        worker = awaited.attempt.worker
        if worker.state is not GONE:
            self._broker.leave(worker, now, reason)

    # ---------------------------------------------------------------- for the core

    def execute(self, effect: Effect, now: float) -> None:
        """Stop an attempt that is awaited, when it has ended here."""
        if type(effect) is not CancelAttempt:
            return
        token = effect.attempt.token
        awaited = self._awaited.get(token)
        if awaited is None:
            return
        if awaited.peer is None:
            self._taken.recall(self._myself, Recall(token, effect.reason), now)
        else:
            self._add(awaited.peer, Recall(token, effect.reason))

    # ---------------------------------------------------------------- for the keeper

    def live_peer(self, name: str, incarnation: str) -> Peer | None:
        peer = self._peers.get(name)
        return peer if peer is not None and peer.incarnation == incarnation else None

    def finish(self, attempt: Attempt, record: Result | Failed, now: float) -> None:
        self._workers.finish(attempt, record, now)

    def heir(self, attempt: Attempt) -> Caller | None:
        remote = attempt.worker.remote
        if self._awaited.pop(attempt.token, None) is not None:
            self.when_moved(attempt)
            return None
        if type(remote) is RemoteService:
            remote.peer.attempts.pop(attempt.token, None)
            self.when_moved(attempt)
            return None
        return self._taken.heir(attempt, self._myself)

    def is_held(self, token: Token, holder: str) -> bool:
        name, _, incarnation = holder.rpartition(".")
        if holder == self.run:
            return self._taken.has(token)
        return self.live_peer(name, incarnation) is not None

    def adopt(self, attempt: Attempt, holder: str, now: float) -> None:
        name, _, incarnation = holder.rpartition(".")
        peer = None if holder == self.run else self.live_peer(name, incarnation)
        self._awaited[attempt.token] = Awaited(attempt, peer)
        if peer is not None:
            self._add(peer, Seek(attempt.token))

    def send(self, peer: Peer, record: Ack | Result | Failed) -> None:
        self._add(peer, record)

    def _add(self, peer: Peer, record: AnyRecord) -> None:
        peer.link.add(record)
        self._request_flush()

    def remark(self, event: str, level: str, shard: int, **facts: object) -> None:
        self._io.remark(event, level=level, peer=None, shard=shard, **facts)

    def notes_restored(self, notes: dict[str, str], now: float) -> None:
        self.when_notes(notes, now)

    def notes_lost(self, now: float) -> None:
        self.when_no_notes(now)
