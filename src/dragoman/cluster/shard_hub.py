"""Connects the keeper of shards with the links to other brokers: outcomes, acknowledgements, attempts elsewhere.

An attempt is *awaited* if an earlier owner of its shard gave it, or if its worker has gone to another broker with it:
the worker is at another broker, or at this one for an earlier owner. For the core it has a worker of its own, which
never gets another job. While its worker is on its way, the attempt is resumable (R107).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from dragoman.cluster.hearing import Hearing
from dragoman.cluster.hub import Hub
from dragoman.cluster.peers import Peer, RemoteService
from dragoman.cluster.records import (
    Ack,
    AnyRecord,
    Failed,
    Held,
    Left,
    LetGo,
    Outcome,
    Progress,
    Recall,
    Result,
    Seek,
    Watch,
    Watched,
)
from dragoman.cluster.remote_workers import RemoteWorkers
from dragoman.cluster.shard_keeper import ShardKeeper
from dragoman.cluster.shards import ShardPhase
from dragoman.cluster.taken_jobs import TakenJobs
from dragoman.core.broker import Broker
from dragoman.core.effects import CancelAttempt, Effect
from dragoman.core.model import Attempt, Caller, Token
from dragoman.core.states import FAILED, GONE
from dragoman.dialects.interface import BrokerIO

REST: Final = 60.0  # seconds in which a broker that has given its shards up takes none


@final
class Awaited:
    """An attempt at another broker, which this one has not given to it."""

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
        hearing: Hearing,
    ) -> None:
        """`myself`: stands for this broker."""
        self.hearing = hearing
        self.name = myself.name
        self.incarnation = myself.incarnation
        self.keeper: ShardKeeper | None = None  # until the layout of the cluster is known
        self.has_settings = False
        self.when_settings: Callable[[dict[str, str], float], None] = lambda notes, now: None
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
        """Return the run of the broker whose worker has an attempt; empty: it is on its way to one."""
        if self._broker.handover.expected(attempt.token) is not None:
            return ""
        remote = attempt.worker.remote
        awaited = self._awaited.get(attempt.token)
        peer = remote.peer if type(remote) is RemoteService else awaited.peer if awaited is not None else None
        return self.run if peer is None else f"{peer.name}.{peer.incarnation}"

    def counting_owner(self, token: Token) -> tuple[str, str, int] | None:
        """Return the broker that has all jobs of the shard of an attempt, its run, and the epoch: it counts those that
        run. None: the shard has no owner, or that still reads the jobs."""
        keeper = self.keeper
        number = keeper.shard_of(token) if keeper is not None else -1
        if keeper is None or number < 0:
            return None
        owner = keeper.shards.run_of(number)
        if owner is None or owner[0] == self.name:
            return owner if keeper.shards[number].phase in (ShardPhase.OWNED, ShardPhase.RELEASING) else None
        peer = self.live_peer(owner[0], owner[1])
        is_read = peer is not None and peer.gossip is not None and number in peer.gossip.ends
        return owner if is_read else None

    # ---------------------------------------------------------------- from links

    def take(self, peer: Peer | None, record: Outcome | Held | Progress, now: float) -> None:
        keeper = self.keeper
        if keeper is None:
            return
        attempt = self._find(Token(record.token), peer)
        if isinstance(record, (Result, Failed)):
            self._take_outcome(keeper, peer, record, attempt, now)
        elif isinstance(record, Progress):
            if attempt is not None:
                self._broker.attempts.progress(attempt, record.payload, now, is_part=record.is_part)
        elif not keeper.is_here(peer, record):
            return  # it is sent again to the next owner
        elif isinstance(record, Held):
            self._take_held(peer, record, attempt, now)
        else:
            if attempt is not None and attempt.job.attempt is attempt and self._is_at(attempt, peer):
                if isinstance(record, Left):
                    self._forget(attempt)
                    self._broker.handover.wait(attempt, self, now)
                else:
                    self._take_back(attempt, now)
            keeper.acks.told(Token(record.token), peer)

    def _take_outcome(
        self, keeper: ShardKeeper, peer: Peer | None, record: Result | Failed, attempt: Attempt | None, now: float
    ) -> None:
        """Take the outcome of an attempt. That it was lost counts only from the broker that has its worker: the worker
        of an attempt that is lost elsewhere has gone on with it (R119)."""
        token = Token(record.token)
        if attempt is not None and not isinstance(record, Result) and record.outcome != FAILED.value:
            attempt = attempt if self._is_at(attempt, peer) else None
        if keeper.outcome(peer, record, attempt, now) and attempt is not None:
            awaited = self._awaited.get(token)
            self._forget(attempt)
            self._broker.handover.forget(token)
            if awaited is not None:
                self._leave(awaited, "its result is here", now)

    def _take_held(self, peer: Peer | None, record: Held, attempt: Attempt | None, now: float) -> None:
        """Let an attempt go on at the broker where its worker is now (R119)."""
        token = Token(record.token)
        awaited = self._awaited.get(token)
        if attempt is None or attempt.job.attempt is not attempt or attempt.job.service.name != record.service:
            self._recall(peer, Recall(token, "the attempt has ended"), now)
        elif awaited is None or awaited.peer is not peer:
            self._forget(attempt)
            self._broker.handover.follow(attempt, self.name if peer is None else peer.name, self, now)
            self._awaited[token] = Awaited(attempt, peer)

    def _take_back(self, attempt: Attempt, now: float) -> None:
        """Return a job to its queue that was never started at the other broker."""
        awaited = self._awaited.get(attempt.token)
        self._forget(attempt)
        self._broker.limiter.not_started(attempt.job.service, now)
        self._broker.attempts.undelivered(attempt, now)
        self._workers.save_returned(attempt.job)
        if awaited is not None:
            self._leave(awaited, "it never had the job", now)

    def _find(self, token: Token, sender: Peer | None) -> Attempt | None:
        """Return an attempt whose worker is at another broker, or on its way; or at this one for an earlier owner."""
        attempt = sender.attempts.get(token) if sender is not None else None
        if attempt is not None:
            return attempt
        awaited = self._awaited.get(token)
        if awaited is not None:
            return awaited.attempt
        for peer in self._peers.values():
            attempt = peer.attempts.get(token)
            if attempt is not None:
                return attempt
        return self._broker.handover.expected(token)

    def _is_at(self, attempt: Attempt, peer: Peer | None) -> bool:
        """True if the worker of an attempt is at this broker, as far as is known here. `peer`: None is this one."""
        remote = attempt.worker.remote
        if type(remote) is RemoteService:
            return remote.peer is peer
        awaited = self._awaited.get(attempt.token)
        return awaited is not None and awaited.peer is peer

    def _forget(self, attempt: Attempt) -> None:
        self._awaited.pop(attempt.token, None)
        remote = attempt.worker.remote
        if type(remote) is RemoteService:
            remote.peer.attempts.pop(attempt.token, None)

    def take_seek(self, peer: Peer, record: Seek, now: float) -> None:
        self._taken.seek(peer, Token(record.token))

    def take_ack(self, token: bytes) -> None:
        if self.keeper is not None:
            self.keeper.outcomes.acknowledged(token)

    def take_watch(self, peer: Peer, record: Watch | Watched, now: float) -> None:
        if self.keeper is not None:
            self.keeper.watches.take(peer, record, now)

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
        self._recall(awaited.peer, Recall(token, effect.reason), now)

    def _recall(self, peer: Peer | None, record: Recall, now: float) -> None:
        if peer is None:
            self._taken.recall(self._myself, record, now)
        else:
            self._add(peer, record)

    # ---------------------------------------------------------------- for the keeper

    def live_peer(self, name: str, incarnation: str) -> Peer | None:
        peer = self._peers.get(name)
        return peer if peer is not None and peer.incarnation == incarnation else None

    def finish(self, attempt: Attempt, record: Result | Failed, now: float) -> None:
        self._workers.finish(attempt, record, now)

    def heir(self, attempt: Attempt) -> Caller | None:
        remote = attempt.worker.remote
        if self._broker.handover.forget(attempt.token):
            self.when_moved(attempt)
            return None  # the next owner waits for its worker
        if self._awaited.pop(attempt.token, None) is not None:
            self.when_moved(attempt)
            return None
        if type(remote) is RemoteService:
            remote.peer.attempts.pop(attempt.token, None)
            self.when_moved(attempt)
            return None
        return self._taken.heir(attempt)

    def is_held(self, token: Token, holder: str) -> bool:
        name, _, incarnation = holder.rpartition(".")
        if holder == self.run:
            return self._taken.has(token)
        return self.live_peer(name, incarnation) is not None

    def is_running(self, attempt: Attempt) -> bool:
        holder = self.holder_of(attempt)
        name, _, incarnation = holder.rpartition(".")
        peer = self.live_peer(name, incarnation)
        return holder == self.run or (peer is not None and not peer.is_silent)

    def adopt(self, attempt: Attempt, holder: str, now: float) -> None:
        name, _, incarnation = holder.rpartition(".")
        peer = None if holder == self.run else self.live_peer(name, incarnation)
        self._awaited[attempt.token] = Awaited(attempt, peer)
        if peer is not None:
            self._add(peer, Seek(attempt.token))

    def send(self, peer: Peer, record: Ack | Outcome | Held | Progress | Watch | Watched) -> None:
        self._add(peer, record)

    def _add(self, peer: Peer, record: AnyRecord) -> None:
        peer.link.add(record)
        self._request_flush()

    def remark(self, event: str, level: str, shard: int, **facts: object) -> None:
        self._io.remark(event, level=level, peer=None, shard=shard, **facts)

    def settings_read(self, notes: dict[str, str], now: float) -> None:
        self.has_settings = True
        self.when_settings(notes, now)

    def notes_restored(self, notes: dict[str, str], now: float) -> None:
        self.when_notes(notes, now)

    def notes_lost(self, now: float) -> None:
        self.when_no_notes(now)
