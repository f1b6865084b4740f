"""Access to the store: what the runner and the operations ask of it, and what follows when it has answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, SendJob
from dragoman.core.failure import Failure
from dragoman.core.model import ABSENT, Job, Payload
from dragoman.core.store_entries import StoreEntry
from dragoman.server.connections import Connections
from dragoman.server.reports import Reports


class Store(Protocol):
    """The store of what must survive a crash."""

    def apply(self, entries: list[StoreEntry], done: Callable[[int, str | None], None]) -> None:
        """Store these, in order and all or none, then say up to which number all is safe; or why new jobs up to it
        could not be stored. At once or later, on the runner's own thread."""

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None:
        """Bring a job's payload, result and failure, as stored. At once or later, on the runner's own thread."""

    def close(self) -> str | None:
        """Returns why not everything could be stored to the end, if so."""


class StoreAccess:
    """The part of the runner that talks to the store."""

    def __init__(
        self, broker: Broker, store: Store, connections: Connections, reports: Reports, clock: Callable[[], float]
    ) -> None:
        self.broker = broker
        self.connections = connections
        self.reports = reports
        self._store = store
        self._clock = clock
        self._waiting: deque[tuple[int, Callable[[str | None], None]]] = deque()  # by the number of a commit

    def request_iteration(self) -> None:
        """A verb was called outside of an iteration: carry out what follows from it soon."""
        self.connections.request_iteration()

    def note(self, key: str, value: str | None) -> None:
        """Write down something that is no job: `value` under `key`, or that there is nothing any more."""
        self.broker.effects.append(self.broker.job_registry.pending_commits.note(key, value))
        self.request_iteration()

    def when_saved(self, call: Callable[[str | None], None]) -> None:
        """Be called when the diary has all that was decided until now, or with what is wrong with it."""
        self._waiting.append((self.broker.job_registry.pending_commits.last, call))
        self.request_iteration()

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None:
        """A job's payload, result and failure, wherever they are. `done` is called at once or in a later turn."""
        if job.payload is ABSENT or job.result is ABSENT:
            self._store.fetch(job, done)
        else:
            done(job.payload, job.result, job.failure)

    def _fetch_first(self, effect: SendJob | DeliverOutcome) -> None:
        """Fetch the payload or the result of this effect from the diary, and go on when it is here."""

        def fetched(payload: Payload, result: Payload, failure: Failure | None) -> None:
            if isinstance(effect, SendJob):
                job = effect.attempt.job
                if job.attempt is not effect.attempt:
                    return  # too late for this one; a next one waits for its own
                self.broker.job_registry.fetched(job, payload)
                self.broker.effects.append(effect)
            else:
                effect.result, effect.failure = result, failure
                self.broker.effects.append(effect)
            self.request_iteration()

        job = effect.attempt.job if isinstance(effect, SendJob) else effect.job
        assert job is not None
        self._store.fetch(job, fetched)

    def _saved(self, number: int, problem: str | None) -> None:
        if problem is not None:
            self.reports.log_limited("diary refused", problem=problem)
        self.broker.saved(number, self._clock(), problem)
        self._tell_saved(number, problem)
        self.request_iteration()

    def _tell_saved(self, number: int, problem: str | None) -> None:
        while self._waiting and self._waiting[0][0] <= number:
            self._waiting.popleft()[1](problem)
