"""The runner: feeds what comes due to the core, and executes its effects.

Sessions turn messages into verbs of the broker as they arrive (`server/connections.py`). Once an iteration the effects
go to the recipients they concern and to the diary, and what the iteration produced for each peer is written in one go.
There is no asyncio here and no socket. One owner calls all of it, one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, Delivery, Effect, RemoveWorker, SendJob
from dragoman.core.errors import InvariantBroken
from dragoman.core.events import KIND_NAMES, Event, PublishEvent
from dragoman.core.histogram import Histogram
from dragoman.core.infinity import inf
from dragoman.core.invariants import check
from dragoman.core.model import ABSENT
from dragoman.core.recipients import TimedRecipient
from dragoman.core.states import FAILED, RemovalReason
from dragoman.core.store_entries import DeleteJob, StoreEntry, StoreJob, StoreValue
from dragoman.server.admission import AdmissionLimits
from dragoman.server.connection import StreamConnection
from dragoman.server.connections import NOTICEABLE, Connections
from dragoman.server.drops import DropWarnings, Log
from dragoman.server.reports import Reports
from dragoman.server.store_access import Store, StoreAccess

BEING_FETCHED: Final = Effect()  # stands for a Give that goes on when its payload is here
LATE_GIVE: Final = 0.01  # a job that waited in us for longer than this begins to run when it leaves
OUR_FAULT: Final = "an internal error of the broker"
PULSE: Final = 0.5  # an iteration at least this often, so that a pause of ours is measured from its beginning


class Runner(StoreAccess):
    """Feeds what comes due to the core, and executes its effects."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        clock: Callable[[], float],
        log: Log,
        limits: AdmissionLimits,
        *,
        wake: Callable[[], None] = lambda: None,
        dialler: Callable[[StreamConnection, object], None] | None = None,
        later: Callable[[float, Callable[[], None]], object] | None = None,
        strict: bool = False,
    ) -> None:
        reports = Reports(broker.counters, clock, log)
        connections = Connections(
            broker, clock, reports, limits, wake=wake, dialler=dialler, later=later, strict=strict
        )
        super().__init__(broker, store, connections, reports, clock)
        self.sessions: list[TimedRecipient] = []
        self.drops = DropWarnings(broker.counters, log)
        self.lag = Histogram()  # how late iterations are that had a time
        self._late_iteration = limits.late_iteration
        self._strict = strict

    # ---------------------------------------------------------------- an iteration of the loop

    def run_once(self) -> float:
        """Judge what is due, carry out effects, write. Returns when the next turn is due at the latest."""
        self.connections.is_awake = True  # whatever happens within a turn is dealt with by its end
        try:
            return self._run_once(self._clock())
        finally:
            self.connections.is_awake = False

    def excuse(self, gap: float) -> None:
        """The whole machine slept (R26)."""
        self._excuse_pause(gap)

    def _run_once(self, now: float) -> float:
        late = now - self.connections.next_run
        if late >= 0.0:
            self.lag.observe(late)
        if late > NOTICEABLE:
            self.broker.resumed_at = now
        if late > self._late_iteration:
            now = self._excuse_pause(late)
        broker = self.broker
        self._drain_effects(now)  # what was decided goes out before anybody is judged late
        if now >= broker.next_deadline():
            broker.tick(now)
        due = inf
        for session in self.sessions:
            due = min(due, self._tick(session, now))
        self.connections.watch(now)
        self._drain_effects(now)
        while self.connections.has_work:
            self.connections.write(now)
            self._drain_effects(now)
        if broker.counters.dropped:
            self.drops.look(now)
        if self._strict:
            check(broker)
        self.connections.next_run = min(due, broker.next_deadline(), self.connections.life_signs.next(), now + PULSE)
        return self.connections.next_run

    def _tick(self, session: TimedRecipient, now: float) -> float:
        try:
            return session.tick(now)
        except InvariantBroken:
            raise
        except Exception as error:
            self.reports.internal_error(error)
            return now + 1.0

    def _excuse_pause(self, gap: float) -> float:
        """We were stopped, not they (D13): hear what has come meanwhile, move every lease, and only then judge."""
        self.reports.remark("paused", level="warning", seconds=round(gap, 3))
        until = self.broker.resumed_at = self._clock()
        self.connections.read_all(until + 1.0)
        now = self._clock()
        gap += now - until  # nobody whom we have not read yet was late meanwhile
        self.broker.extend_leases(gap, now)
        self.connections.excuse(gap, now)
        return now

    # ---------------------------------------------------------------- effects

    def _drain_effects(self, now: float) -> None:
        effects = self.broker.effects
        is_strict = self._strict
        while effects:
            entries: list[StoreEntry] = []
            done = 0
            try:
                while done < len(effects):  # what is carried out may append more, or take back what is ahead
                    effect = effects[done]
                    done += 1
                    if isinstance(effect, Delivery):
                        if type(effect) is SendJob:
                            attempt = effect.attempt
                            if attempt.job.payload is ABSENT:
                                effects[done - 1] = BEING_FETCHED
                                self._fetch_first(effect)
                                continue
                            if now - attempt.given > LATE_GIVE:
                                attempt.begin(now)
                            attempt.mark_sent()
                        elif type(effect) is DeliverOutcome and effect.result is ABSENT:
                            self._fetch_first(effect)
                            continue
                        try:
                            effect.recipient().execute(effect, now)
                        except InvariantBroken:
                            raise
                        except Exception as error:
                            self._could_not_say(effect, error, now)
                        if is_strict:
                            check(self.broker)
                    elif type(effect) is PublishEvent:
                        self._publish(effect.event, now)
                    else:
                        assert isinstance(effect, (StoreJob, StoreValue, DeleteJob))
                        entries.append(effect)
            finally:
                del effects[:done]
            if entries:
                self._store.apply(entries, self._saved)
        if self._waiting and not self.broker.job_registry.pending_commits.is_holding:
            self._tell_saved(self.broker.job_registry.pending_commits.last, None)

    def _publish(self, event: Event, now: float) -> None:
        """Hand an event to its subscribers. One that raises is logged and harms nobody else."""
        for subscription in self.broker.events.subscribers_of(event):
            if subscription.is_active:
                try:
                    subscription.receive(event, now)
                except InvariantBroken:
                    raise
                except Exception as error:
                    self.reports.internal_error(error, published=KIND_NAMES[event.kind])

    def _could_not_say(self, effect: Effect, error: Exception, now: float) -> None:
        """A worker that could not be told its job is let go, so that the job is not lost sight of. A caller that could
        not be told its outcome is told that the broker failed; if not even that is possible, it is hung up on."""
        self.reports.internal_error(error, effect=type(effect).__name__)
        if isinstance(effect, SendJob):
            worker = effect.attempt.worker
            self.broker.effects.append(RemoveWorker(worker, RemovalReason.EXPIRED, OUR_FAULT))
            self.broker.leave(worker, now, OUR_FAULT)
        elif isinstance(effect, DeliverOutcome) and effect.reason is not OUR_FAULT:
            failure = DeliverOutcome(effect.caller, effect.job, FAILED, b"", OUR_FAULT)
            try:
                effect.caller.recipient.execute(failure, now)
            except InvariantBroken:
                raise
            except Exception as second:
                self._could_not_say(failure, second, now)
        elif isinstance(effect, DeliverOutcome) and isinstance(effect.caller, StreamConnection):
            self.connections.close(effect.caller, OUR_FAULT)
