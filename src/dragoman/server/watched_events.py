"""Events of this broker for event streams of other brokers of the cluster.

A watch is a subscription for one stream, with the filters of that stream. It ends when the other broker does not renew
it. While there is none, nothing is subscribed, and jobs cost nothing. A watch gets at most `MAX_RATE` events a second,
and none while the other broker has not acknowledged `MAX_BEHIND` bytes. The events that are left out are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.peers import Peer
from dragoman.cluster.records import UNREADABLE, WatchedEvents, WatchEvents
from dragoman.core.broker import Broker
from dragoman.core.events import JOB_ENDED, JOB_KINDS, Event, JobEvent, Subscription, WorkerEvent
from dragoman.core.infinity import inf
from dragoman.core.model import JobId
from dragoman.core.recipients import Effect, TimedRecipient
from dragoman.core.rights import LOCAL
from dragoman.dialects.interface import BrokerIO
from dragoman.http.event_filters import EventFilter, EventsQuery
from dragoman.server.packed_events import pack_events

MAX_RATE: Final = 500  # events a second for one watch
MAX_BEHIND: Final = 256 << 10  # bytes that the other broker has not acknowledged
MAX_WATCHES: Final = 256  # of one other broker
LOOK_EVERY: Final = 0.25  # seconds between two looks for watches that have expired
REPORT_EVERY: Final = 1.0  # seconds between two counts of events that were left out, if no other events are sent


class WatchedStream:
    """One event stream of another broker."""

    def __init__(self, peer: Peer, number: int, chosen: EventFilter, until: float, is_of_job: bool) -> None:
        self.peer = peer
        self.number = number
        self.chosen = chosen
        self.until = until
        self.is_of_job = is_of_job
        self.subscription: Subscription | None = None
        self.events: list[JobEvent | WorkerEvent] = []  # for the next record
        self.size = 0  # bytes of progress in them
        self.report_at = inf


class WatchedEventsSide(TimedRecipient):
    """Sends the events of one broker to those that watch it."""

    dialect = "cluster"

    def __init__(self, broker: Broker, side: ClusterSide, io: BrokerIO, clock: Callable[[], float]) -> None:
        self._broker = broker
        self._side = side
        self._io = io
        self._clock = clock
        self._streams: dict[tuple[str, str, int], WatchedStream] = {}
        self._is_sending = False
        self._next = -inf  # time of the next look at all streams
        side.receivers[WatchEvents] = self.watched

    def __len__(self) -> int:
        return len(self._streams)

    def watched(self, peer: Peer, record: WatchEvents, now: float) -> None:
        """Begin, renew or end a watch of another broker."""
        key = peer.name, peer.incarnation, record.number
        stream = self._streams.get(key)
        if record.lease <= 0.0:
            if stream is not None:
                self._end(key)
        elif stream is not None:
            stream.until = now + record.lease
        elif len([name for name, _, _ in self._streams if name == peer.name]) < MAX_WATCHES:
            stream = self._begun(peer, record, now)
            if stream is not None:
                self._streams[key] = stream

    def _begun(self, peer: Peer, record: WatchEvents, now: float) -> WatchedStream | None:
        try:
            query = msgspec.json.decode(record.query, type=EventsQuery) if record.query else EventsQuery()
        except UNREADABLE as error:  # of another release
            self._io.log_limited("bad message", reason="bad query", detail=str(error))
            return None
        query = msgspec.structs.replace(query, max_rate=min(query.max_rate or MAX_RATE, MAX_RATE))
        viewer = self._broker.principals.named(record.principal)
        job = JobId(record.job) if record.job else None
        chosen = EventFilter(
            query,
            viewer if record.principal != LOCAL else None,
            self._broker.worker_registry.workers.values(),
            self._clock,
            job,
        )
        stream = WatchedStream(peer, record.number, chosen, now + record.lease, job is not None)
        kinds = chosen.kinds & JOB_KINDS if job is not None else chosen.kinds

        def receive(event: Event, now: float) -> None:
            self._receive(stream, event)

        stream.subscription = self._broker.events.subscribe(kinds, receive, chosen.judge)
        return stream

    def _receive(self, stream: WatchedStream, event: Event) -> None:
        if isinstance(event, JobEvent):
            if not stream.chosen.takes(event):
                return
        elif not isinstance(event, WorkerEvent) or not stream.chosen.takes_worker(event):
            return
        size = len(event.progress) if isinstance(event, JobEvent) else 0
        is_end = stream.is_of_job and event.kind == JOB_ENDED
        if stream.peer.link.unacknowledged + stream.size + size > MAX_BEHIND and not is_end:
            stream.chosen.skipped += 1
            return
        stream.events.append(event)
        stream.size += size
        if not self._is_sending:
            self._is_sending = True
            self._io.call_before_write(self._send)

    def _send(self, now: float) -> None:
        """Send the events of this iteration."""
        self._is_sending = False
        for stream in self._streams.values():
            if stream.events:
                self._send_to(stream)

    def _send_to(self, stream: WatchedStream) -> None:
        events, stream.events, stream.size = stream.events, [], 0
        stream.report_at = inf
        if self._side.peers.get(stream.peer.name) is stream.peer:  # else it is gone, and its link is not emptied
            record = WatchedEvents(stream.number, pack_events(events), stream.chosen.take_skipped())
            self._side.send(stream.peer, record)

    def tick(self, now: float) -> float:
        if not self._streams:
            return inf
        if now < self._next:
            return self._next
        self._next = now + LOOK_EVERY
        for key, stream in list(self._streams.items()):
            if stream.until <= now or self._side.peers.get(stream.peer.name) is not stream.peer:
                self._end(key)
                continue
            if stream.chosen.skipped and stream.report_at == inf:
                stream.report_at = now + REPORT_EVERY
            if stream.report_at <= now:
                self._send_to(stream)
        return self._next

    def execute(self, effect: Effect, now: float) -> None:
        raise AssertionError("watches have no jobs")

    def _end(self, key: tuple[str, str, int]) -> None:
        stream = self._streams.pop(key)
        if stream.subscription is not None:
            self._broker.events.unsubscribe(stream.subscription)
