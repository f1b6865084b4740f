"""Events of other brokers of the cluster, for the event streams of this one.

A watch asks every other broker for its events, and renews the request before it expires there. So it reaches brokers
that join, that have restarted, or that were not heard. While no event stream is open, nothing is sent.

A job that is followed is watched at all brokers, because its shard may move to any of them. Its state is asked for at
its owner: at first, when it has another owner, and every `LOOK_EVERY` seconds in case that its last event was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.peers import Peer
from dragoman.cluster.records import WatchedEvents, WatchEvents
from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.core.model import JobId, Payload
from dragoman.core.owners import Owner
from dragoman.core.recipients import Effect, TimedRecipient
from dragoman.dialects.interface import BrokerIO
from dragoman.operations.event_sources import ReceiveEvents, ReceiveState
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.responders import PendingRequest
from dragoman.operations.schemas import ErrorView, JobRef, JobView, View
from dragoman.operations.table import JOB
from dragoman.server.packed_events import unpack_events

LEASE: Final = 6.0  # seconds for which another broker sends events without being asked again
RENEW_EVERY: Final = 2.0  # seconds
LOOK_EVERY: Final = 5.0  # seconds between two looks at a job that is followed
LOOK_SOON: Final = 0.25  # seconds until it is noticed that a broker has joined, or that a job has another owner


class OpenWatch:
    """The events that one stream of this broker wants."""

    def __init__(self, number: int, query: bytes, principal: str, job: bytes, receive: ReceiveEvents) -> None:
        self.number = number
        self.query = query
        self.principal = principal
        self.job = job
        self.receive = receive
        self.asked: dict[str, float] = {}  # by broker: the time at which it was asked


class FollowedState:
    """The state of a job that is followed: asks for it, and receives the answer."""

    dialect = "http"
    origin = "event stream"

    def __init__(self, id: JobId, owner: Owner, show: ReceiveState) -> None:
        self.id = id
        self.owner = owner
        self.show = show
        self.looked_at = -inf
        self.place = ""  # run of the broker that owned it at the last look
        self.pending: PendingRequest | None = None
        self.is_asking = False
        self.is_failed = False  # the last look

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        self.is_asking = False
        assert isinstance(view, JobView)
        self.show(view)

    def refuse(self, problem: ErrorView) -> None:
        self.is_asking = False
        if problem.kind == "not found":
            self.show(None)
        else:
            self.is_failed = True  # its shard is moving, or its broker is not reached


class ClusterEvents(TimedRecipient):
    """Watches the other brokers, for one broker. `owner_of`: returns the broker that owns the shard of a job; empty: no
    broker, or the id names no shard."""

    dialect = "cluster"

    def __init__(
        self,
        operations: OperationHandlers,
        side: ClusterSide,
        io: BrokerIO,
        owner_of: Callable[[JobId], str],
        clock: Callable[[], float],
    ) -> None:
        self._operations = operations
        self._side = side
        self._io = io
        self._owner_of = owner_of
        self._clock = clock
        self._last = 0
        self._watches: dict[int, OpenWatch] = {}
        self._followed: dict[int, FollowedState] = {}
        self._next = -inf  # time at which something may be due
        side.receivers[WatchedEvents] = self.received

    @property
    def name(self) -> str:
        return self._side.name

    # ---------------------------------------------------------------- calls from event streams

    def watch(self, query: bytes, principal: str, receive: ReceiveEvents) -> OpenWatch:
        return self._open(query, principal, b"", receive)

    def follow(self, id: JobId, owner: Owner, receive: ReceiveEvents, show: ReceiveState) -> OpenWatch:
        watch = self._open(b"", owner.principal.name, id, receive)
        self._followed[watch.number] = FollowedState(id, owner, show)
        self._look(self._followed[watch.number], self._clock())  # after the watch, on the same link: no event is missed
        return watch

    def leave(self, watch: object) -> None:
        assert isinstance(watch, OpenWatch)
        if self._watches.pop(watch.number, None) is None:
            return
        followed = self._followed.pop(watch.number, None)
        if followed is not None and followed.pending is not None:
            self._operations.leave(followed.pending, self._clock())
        for name in watch.asked:
            peer = self._side.peers.get(name)
            if peer is not None:
                self._side.send(peer, WatchEvents(watch.number, 0.0))

    def _open(self, query: bytes, principal: str, job: bytes, receive: ReceiveEvents) -> OpenWatch:
        self._last += 1
        watch = self._watches[self._last] = OpenWatch(self._last, query, principal, job, receive)
        self._ask(watch, self._clock())
        return watch

    # ---------------------------------------------------------------- other brokers

    def received(self, peer: Peer, record: WatchedEvents, now: float) -> None:
        """Pass events of another broker to the stream that wants them."""
        watch = self._watches.get(record.number)
        if watch is None:
            return  # it was ended; the other broker does not know yet
        try:
            events = unpack_events(record.events)
        except Malformed as problem:  # of another release
            self._io.log_limited("bad message", reason=problem.reason, detail=problem.detail)
            return
        watch.receive(peer.name, events, record.skipped)

    def tick(self, now: float) -> float:
        if not self._watches:
            return inf
        if now >= self._next:
            self._next = now + LOOK_SOON
            for watch in list(self._watches.values()):
                self._ask(watch, now)
            for followed in list(self._followed.values()):
                self._look(followed, now)
        return self._next

    def execute(self, effect: Effect, now: float) -> None:
        raise AssertionError("watches have no jobs")

    def _ask(self, watch: OpenWatch, now: float) -> None:
        """Ask the brokers that have not been asked for a while."""
        if not self._side.is_connected:
            return
        for name, peer in self._side.peers.items():
            if watch.asked.get(name, -inf) + RENEW_EVERY <= now and not peer.is_silent:
                watch.asked[name] = now
                self._side.send(peer, WatchEvents(watch.number, LEASE, watch.query, watch.principal, watch.job))

    def _look(self, followed: FollowedState, now: float) -> None:
        """Ask for the state of a job, if it is due."""
        due = followed.looked_at + (LOOK_SOON if followed.is_failed else LOOK_EVERY)
        owner = self._owner_of(followed.id)
        peer = self._side.peers.get(owner)
        place = f"{owner}.{peer.incarnation}" if peer is not None else owner
        if not followed.is_asking and (place != followed.place or now >= due):
            followed.place, followed.looked_at = place, now
            followed.is_asking, followed.is_failed = True, False
            request = JobRef(id=followed.id.hex())
            followed.pending = self._operations.ask(JOB.name, request, b"", followed, now)
