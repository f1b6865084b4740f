"""The runner: passes due times to the core, and executes its effects.

Broker sides turn messages into calls of the broker as they arrive (`server/connections.py`). Once per iteration the
effects go to their recipients and to the store, and the messages for each connection are written at once. There is no
asyncio here and no socket. One owner calls all methods, one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, Delivery, Effect, SendJob
from dragoman.core.errors import InvariantBroken
from dragoman.core.events import PublishEvent
from dragoman.core.histogram import Histogram
from dragoman.core.infinity import inf
from dragoman.core.invariants import check
from dragoman.core.model import ABSENT
from dragoman.core.recipients import TimedRecipient
from dragoman.core.store_entries import CollectInput, DeleteJob, StoreEntry, StoreJob, StoreRow, StoreValue
from dragoman.server.admission import AdmissionLimits
from dragoman.server.connection import StreamConnection
from dragoman.server.connections import LATE, Connections
from dragoman.server.drops import DropWarnings, LogFunction
from dragoman.server.event_publisher import EventPublisher
from dragoman.server.failed_effects import FailedEffects
from dragoman.server.reports import Reports
from dragoman.server.store_access import Store, StoreAccess
from dragoman.streams.turn import NOT_BEGUN

LOADING: Final = Effect()  # replaces a SendJob that continues when its payload is loaded
LATE_SEND: Final = 0.01  # a job that waited in the broker for longer than this starts its run time when it is sent
MOST_FEEDS: Final = 4  # times that a worker gets large jobs in one iteration, each time at most `FULL`
MAX_WAIT: Final = 0.5  # longest time between iterations, so that a pause of the broker is measured from its beginning


class Runner:
    """Passes due times to the core, and executes its effects."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        clock: Callable[[], float],
        log: LogFunction,
        limits: AdmissionLimits,
        *,
        wake: Callable[[], None] = lambda: None,
        dialler: Callable[[StreamConnection, object], None] | None = None,
        later: Callable[[float, Callable[[], None]], object] | None = None,
        strict: bool = False,
    ) -> None:
        self.broker = broker
        self.reports = reports = Reports(broker.counters, clock, log)
        self._lines = reports.lines
        self.connections = connections = Connections(
            broker, clock, reports, limits, wake=wake, dialler=dialler, later=later, strict=strict
        )
        self.store_access = StoreAccess(broker, store, reports, clock, connections.request_iteration)
        self.sessions: list[TimedRecipient] = []
        self.drops = DropWarnings(broker.counters, log)
        self.lag = Histogram()  # delay of timed iterations
        self._late_iteration = limits.late_iteration
        self._strict = strict
        self._clock = clock
        self._store = store
        self._saved = self.store_access.saved
        self._waiting = self.store_access.waiting
        self._registry = connections.registry
        self._publisher = EventPublisher(broker.events, reports)
        self._failed_effects = FailedEffects(broker, connections, reports)

    # ---------------------------------------------------------------- an iteration of the loop

    def run_once(self) -> float:
        """Handle due times, execute effects, write messages. Returns the latest time for the next iteration."""
        turn = self.connections.turn
        self.connections.is_awake = True  # no wake-up is needed during an iteration
        try:
            return self._run_once(self._clock())
        finally:
            self.connections.is_awake = False
            turn.is_over, turn.ends = False, NOT_BEGUN  # `turn.restart()`, without a call

    def _run_once(self, now: float) -> float:
        late = now - self.connections.next_run
        if late >= 0.0:
            self.lag.observe(late)
        if late > LATE:
            self.broker.resumed_at = now
        if late > self._late_iteration:
            now = self._registry.handle_pause(self.broker, late)
        broker = self.broker
        self._drain_effects(now)  # send what was decided before anything times out
        if now >= broker.next_deadline():
            broker.tick(now)
        due = inf
        for session in self.sessions:
            due = min(due, self._tick(session, now))
        self._registry.watch(now)
        self._drain_effects(now)
        while self.connections.has_work:
            self.connections.write(now)
            self._drain_effects(now)
        if broker.dispatch.loaded and self._feed_loaded(now):
            due = now
        if broker.counters.dropped:
            self.drops.look(now)
        if self._lines.left_out:
            self._lines.look(now)
        if self._strict:
            check(broker)
        self.connections.next_run = min(due, broker.next_deadline(), self._registry.heartbeats.next(), now + MAX_WAIT)
        return self.connections.next_run

    def _feed_loaded(self, now: float) -> bool:
        """Report to the core how much of the large jobs that it gave waits to be sent, and send those that it gives to
        workers that have taken enough (R206). True if the next iteration may do more."""
        broker = self.broker
        for _ in range(MOST_FEEDS):
            for worker in list(broker.dispatch.loaded):
                unsent = worker.recipient.unsent(worker.remote) if worker.remote is not None else 0
                broker.availability.measured(worker, unsent, now)
            if not broker.effects:
                return False
            self._drain_effects(now)
            while self.connections.has_work:
                self.connections.write(now)
                self._drain_effects(now)
        return True

    def _tick(self, session: TimedRecipient, now: float) -> float:
        try:
            return session.tick(now)
        except InvariantBroken:
            raise
        except Exception as error:
            self.reports.internal_error(error)
            return now + 1.0

    # ---------------------------------------------------------------- effects

    def _drain_effects(self, now: float) -> None:
        effects = self.broker.effects
        is_strict = self._strict
        while effects:
            entries: list[StoreEntry] = []
            done = 0
            try:
                while done < len(effects):  # executing an effect may append more, or remove one that is ahead
                    effect = effects[done]
                    done += 1
                    if isinstance(effect, Delivery):
                        if type(effect) is SendJob:
                            attempt = effect.attempt
                            if attempt.job.payload is ABSENT:
                                effects[done - 1] = LOADING
                                self.store_access.fetch_first(effect)
                                continue
                            if now - attempt.given > LATE_SEND:
                                attempt.begin(now)
                            attempt.mark_sent()
                        elif type(effect) is DeliverOutcome and effect.result is ABSENT:
                            self.store_access.fetch_first(effect)
                            continue
                        try:
                            effect.recipient().execute(effect, now)
                        except InvariantBroken:
                            raise
                        except Exception as error:
                            self._failed_effects.handle(effect, error, now)
                        if is_strict:
                            check(self.broker)
                    elif type(effect) is PublishEvent:
                        self._publisher.publish(effect.event, now)
                    elif type(effect) is CollectInput:
                        self.store_access.collect_input(effect.job)
                    elif type(effect) is StoreRow:
                        entries.append(effect.entry())
                    else:
                        assert isinstance(effect, (StoreJob, StoreValue, DeleteJob))
                        entries.append(effect)
            finally:
                del effects[:done]
            if entries:
                self._store.apply(entries, self._saved)
        if self._waiting:
            self.store_access.call_safe()
