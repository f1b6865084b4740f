"""Access to the store: stored values, commits, and payloads that are only in the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, Protocol, final

from dragoman.core.accepted_jobs import set_payload
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, SendJob
from dragoman.core.failure import Failure
from dragoman.core.model import ABSENT, Job, JobId, Payload
from dragoman.core.results_payload import Entry
from dragoman.core.store_entries import Saved, StoreEntry
from dragoman.server.reports import Reports

NO_SHARD: Final = (-1,)  # nothing is saved in it
MOVED: Final = "the job has moved to another broker; ask again"


class Store(Protocol):
    """Stores what must survive a crash."""

    def apply(self, entries: list[StoreEntry], done: Saved) -> None:
        """Store these entries; those of one shard in order, and all or none. Then call `done` for each shard. At once
        or later, on the runner's thread."""

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None:
        """Load a job's payload, result and failure. `done` is called at once or later, on the runner's thread."""

    def close(self) -> str | None:
        """Close the store. Returns the reason if not everything could be stored."""


@final
class Waiter:
    """A call that waits for commits of one shard or several."""

    __slots__ = ("call", "is_answer", "left")

    def __init__(self, call: Callable[[str | None], None], left: int, is_answer: bool) -> None:
        self.call = call
        self.is_answer = is_answer  # it only answers a client, which may ask again
        self.left = left  # shards whose commits it waits for

    def saved(self, problem: str | None) -> None:
        """A shard has committed what this waits for, or could not."""
        if self.left and (problem is not None or self.left == 1):
            self.left = 0
            self.call(problem)
        else:
            self.left = max(0, self.left - 1)


class StoreAccess:
    """Access to the store for the runner, the operations and HTTP. One owner calls all methods, one call at a time."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        reports: Reports,
        clock: Callable[[], float],
        request_iteration: Callable[[], None],
    ) -> None:
        self.waiting: dict[int, deque[tuple[int, Waiter]]] = {}  # by shard, with the number of a commit
        self._unread: dict[JobId, list[Callable[[str], None]]] = {}  # who waits for bodies of a job, and can be refused
        self._broker = broker
        self._store = store
        self._reports = reports
        self._clock = clock
        self._request_iteration = request_iteration

    def note(self, key: str, value: str | None) -> None:
        """Store `value` under `key`, for state that belongs to no job. None: delete it."""
        self._broker.job_registry.pending_commits.note(key, value)
        self._request_iteration()

    def wake(self) -> None:
        """Request an iteration of the runner."""
        self._request_iteration()

    def when_saved(
        self, call: Callable[[str | None], None], shards: Collection[int] | None = None, *, is_answer: bool = False
    ) -> None:
        """Call back when everything decided so far in these shards is committed; None: in all shards. The argument is
        an error message or None. `is_answer`: it only answers a client, which is refused if that takes too long."""
        commits = self._broker.job_registry.pending_commits
        waited = (commits.holding() if shards is None else shards) or NO_SHARD
        waiter = Waiter(call, len(waited), is_answer)
        for shard in waited:
            self.waiting.setdefault(shard, deque()).append((commits.last(shard), waiter))
        self._request_iteration()

    def fetch(
        self,
        job: Job,
        done: Callable[[Payload, Payload, Failure | None], None],
        lost: Callable[[str], None] | None = None,
    ) -> None:
        """Load a job's payload, result and failure from memory or the store. `done` is called at once or later; `lost`
        instead, with the reason, if another broker of the cluster has them now."""
        if job.payload is not ABSENT and job.result is not ABSENT:
            done(job.payload, job.result, job.failure)
            return
        if lost is None:
            self._store.fetch(job, done)
            return

        def fetched(payload: Payload, result: Payload, failure: Failure | None) -> None:
            waiting = self._unread.get(job.id, [])
            if lost in waiting:
                waiting.remove(lost)
                if not waiting:
                    del self._unread[job.id]
            done(payload, result, failure)

        self._unread.setdefault(job.id, []).append(lost)
        self._store.fetch(job, fetched)

    def unread(self, id: JobId) -> None:
        """The bodies of a job cannot be loaded any more: its shard went to another broker."""
        for lost in self._unread.pop(id, ()):
            lost(MOVED)
        self._request_iteration()

    def fetch_first(self, effect: SendJob | DeliverOutcome) -> None:
        """Load the payload or the result of this effect from the store, then append the effect again."""

        def fetched(payload: Payload, result: Payload, failure: Failure | None) -> None:
            if isinstance(effect, SendJob):
                job = effect.attempt.job
                if job.attempt is not effect.attempt:
                    return  # this attempt has ended; the next one loads its own
                set_payload(self._broker.job_registry, job, payload)
                self._broker.dispatch.load_late(effect.attempt, self._clock())
                self._broker.effects.append(effect)
            else:
                effect.result, effect.failure = result, failure
                self._broker.effects.append(effect)
            self._request_iteration()

        job = effect.attempt.job if isinstance(effect, SendJob) else effect.job
        assert job is not None
        self._store.fetch(job, fetched)

    def collect_input(self, job: Job) -> None:
        """Load the payload of a dependent job and the results that are its input, then report them to the core."""
        sources = self._broker.dependencies.sources(job)
        payloads: list[Payload] = []
        results: dict[JobId, Payload] = {}
        foreign: dict[JobId, Entry] = {}  # results of predecessors in other shards
        elsewhere = list(self._broker.dependencies.foreign(job))
        left = len(sources) + len(elsewhere) + 1

        def loaded() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._broker.dependencies.take_input(job, payloads[0], results, self._clock(), foreign)
                self._request_iteration()

        def own(payload: Payload, _: Payload, __: Failure | None) -> None:
            payloads.append(payload)
            loaded()

        def of(source: Job, _: Payload, result: Payload, __: Failure | None) -> None:
            results[source.id] = result
            loaded()

        def of_shard(id: JobId, entry: Entry) -> None:
            foreign[id] = entry
            loaded()

        self.fetch(job, own)
        for each in sources:
            self.fetch(each, partial(of, each))
        other_shards = self._broker.job_registry.links.other_shards
        for id in elsewhere:
            assert other_shards is not None
            other_shards.load(job.id, id, partial(of_shard, id))

    def saved(self, number: int, problem: str | None, shard: int = 0) -> None:
        """Handle a commit of a shard: all saves up to this number are stored, or `problem` is the reason why not."""
        if problem is not None:
            self._reports.log_limited("store write refused", problem=problem)
        self._broker.store_reports.saved(number, self._clock(), problem, shard)
        self.call_waiting(number, problem, shard)
        self._request_iteration()

    def call_waiting(self, number: int, problem: str | None, shard: int = 0) -> None:
        """Make the calls that wait for commits of a shard up to this number."""
        waiting = self.waiting.get(shard)
        while waiting and waiting[0][0] <= number:
            waiting.popleft()[1].saved(problem)
        if waiting is not None and not waiting:
            self.waiting.pop(shard, None)

    def refuse_answers(self, problem: str) -> None:
        """Refuse the clients that wait for commits: these may come late, or never."""
        for waiting in list(self.waiting.values()):
            for _, waiter in list(waiting):
                if waiter.is_answer:
                    waiter.saved(problem)

    def call_safe(self) -> None:
        """Make the calls that wait for nothing any more."""
        commits = self._broker.job_registry.pending_commits
        for shard in list(self.waiting):
            self.call_waiting(commits.safe(shard), None, shard)
