"""The runner: feeds what comes due to the core, and executes its effects.

Sessions turn messages into verbs of the broker as they arrive (`server/connections.py`). Once an iteration the effects
go to the recipients they concern and to the diary, and what the iteration produced for each peer is written in one go.
There is no asyncio here and no socket. One owner calls all of it, one call at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from dragoman.core.broken import InvariantBroken
from dragoman.core.broker import Broker
from dragoman.core.effects import Answer, Delivery, Dismiss, Effect, Give
from dragoman.core.events import KIND_NAMES, Event, PublishEvent
from dragoman.core.failure import Failure
from dragoman.core.histogram import Histogram
from dragoman.core.infinity import inf
from dragoman.core.invariants import check
from dragoman.core.model import ABSENT, Job, Payload
from dragoman.core.recipients import TimedRecipient
from dragoman.core.states import FAILED, Farewell
from dragoman.core.store_entries import Erase, Note, Save, StoreEntry
from dragoman.server.admission import Limits
from dragoman.server.connections import NOTICEABLE, Connections
from dragoman.server.drops import DropWarnings, Log
from dragoman.server.peer import Peer
from dragoman.server.reports import Reports

BEING_FETCHED: Final = Effect()  # stands for a Give that goes on when its payload is here
LATE_GIVE: Final = 0.01  # a job that waited in us for longer than this begins to run when it leaves
OUR_FAULT: Final = "an internal error of the broker"
PULSE: Final = 0.5  # an iteration at least this often, so that a pause of ours is measured from its beginning


class Diary(Protocol):
    """The store of what must survive a crash."""

    def apply(self, entries: list[StoreEntry], done: Callable[[int, str | None], None]) -> None:
        """Store these, in order and all or none, then say up to which number all is safe; or why new jobs up to it
        could not be stored. At once or later, on the runner's own thread."""

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None:
        """Bring a job's payload, result and failure, as stored. At once or later, on the runner's own thread."""

    def close(self) -> str | None:
        """Returns why not everything could be stored to the end, if so."""


class Runner:
    """Feeds what comes due to the core, and executes its effects."""

    def __init__(
        self,
        broker: Broker,
        diary: Diary,
        clock: Callable[[], float],
        log: Log,
        limits: Limits,
        *,
        wake: Callable[[], None] = lambda: None,
        dialler: Callable[[Peer, object], None] | None = None,
        later: Callable[[float, Callable[[], None]], object] | None = None,
        strict: bool = False,
    ) -> None:
        self.broker = broker
        self.sessions: list[TimedRecipient] = []
        self.drops = DropWarnings(broker.counters, log)
        self.lag = Histogram()  # how late iterations are that had a time
        self.reports = Reports(broker.counters, clock, log)
        self.connections = Connections(
            broker, clock, self.reports, limits, wake=wake, dialler=dialler, later=later, strict=strict
        )
        self._waiting_for_diary: deque[tuple[int, Callable[[str | None], None]]] = deque()
        self._diary = diary
        self._clock = clock
        self._late_turn = limits.late_turn
        self._strict = strict

    # ---------------------------------------------------------------- an iteration of the loop

    def turn(self) -> float:
        """Judge what is due, carry out effects, write. Returns when the next turn is due at the latest."""
        self.connections.is_awake = True  # whatever happens within a turn is dealt with by its end
        try:
            return self._turn(self._clock())
        finally:
            self.connections.is_awake = False

    def excuse(self, gap: float) -> None:
        """The whole machine slept (R26)."""
        self._excuse_pause(gap)

    def ask_for_turn(self) -> None:
        """A verb was called outside of an iteration: carry out what follows from it soon."""
        self.connections.ask_for_turn()

    def _turn(self, now: float) -> float:
        late = now - self.connections.turn_due
        if late >= 0.0:
            self.lag.observe(late)
        if late > NOTICEABLE:
            self.broker.resumed_at = now
        if late > self._late_turn:
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
        self.connections.turn_due = min(due, broker.next_deadline(), self.connections.life_signs.next(), now + PULSE)
        return self.connections.turn_due

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
        self.broker.shift(gap, now)
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
                        if type(effect) is Give:
                            attempt = effect.attempt
                            if attempt.job.payload is ABSENT:
                                effects[done - 1] = BEING_FETCHED
                                self._fetch_first(effect)
                                continue
                            if now - attempt.given > LATE_GIVE:
                                attempt.begin(now)
                            attempt.mark_sent()
                        elif type(effect) is Answer and effect.result is ABSENT:
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
                        assert isinstance(effect, Save | Note | Erase)
                        entries.append(effect)
            finally:
                del effects[:done]
            if entries:
                self._diary.apply(entries, self._saved)
        if self._waiting_for_diary and not self.broker.ledger.gate.is_holding:
            self._tell_saved(self.broker.ledger.gate.last, None)

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
        if isinstance(effect, Give):
            worker = effect.attempt.worker
            self.broker.effects.append(Dismiss(worker, Farewell.EXPIRED, OUR_FAULT))
            self.broker.leave(worker, now, OUR_FAULT)
        elif isinstance(effect, Answer) and effect.reason is not OUR_FAULT:
            failure = Answer(effect.caller, effect.job, FAILED, b"", OUR_FAULT)
            try:
                effect.caller.recipient.execute(failure, now)
            except InvariantBroken:
                raise
            except Exception as second:
                self._could_not_say(failure, second, now)
        elif isinstance(effect, Answer) and isinstance(effect.caller, Peer):
            self.connections.close(effect.caller, OUR_FAULT)

    # ---------------------------------------------------------------- the diary

    def note(self, key: str, value: str | None) -> None:
        """Write down something that is no job: `value` under `key`, or that there is nothing any more."""
        self.broker.effects.append(self.broker.ledger.gate.note(key, value))
        self.ask_for_turn()

    def when_saved(self, call: Callable[[str | None], None]) -> None:
        """Be called when the diary has all that was decided until now, or with what is wrong with it."""
        self._waiting_for_diary.append((self.broker.ledger.gate.last, call))
        self.ask_for_turn()

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None:
        """A job's payload, result and failure, wherever they are. `done` is called at once or in a later turn."""
        if job.payload is ABSENT or job.result is ABSENT:
            self._diary.fetch(job, done)
        else:
            done(job.payload, job.result, job.failure)

    def _fetch_first(self, effect: Give | Answer) -> None:
        """Fetch the payload or the result of this effect from the diary, and go on when it is here."""

        def fetched(payload: Payload, result: Payload, failure: Failure | None) -> None:
            if isinstance(effect, Give):
                job = effect.attempt.job
                if job.attempt is not effect.attempt:
                    return  # too late for this one; a next one waits for its own
                self.broker.ledger.fetched(job, payload)
                self.broker.effects.append(effect)
            else:
                effect.result, effect.failure = result, failure
                self.broker.effects.append(effect)
            self.ask_for_turn()

        job = effect.attempt.job if isinstance(effect, Give) else effect.job
        assert job is not None
        self._diary.fetch(job, fetched)

    def _saved(self, number: int, problem: str | None) -> None:
        if problem is not None:
            self.reports.complain("diary refused", problem=problem)
        self.broker.saved(number, self._clock(), problem)
        self._tell_saved(number, problem)
        self.ask_for_turn()

    def _tell_saved(self, number: int, problem: str | None) -> None:
        while self._waiting_for_diary and self._waiting_for_diary[0][0] <= number:
            self._waiting_for_diary.popleft()[1](problem)
