"""Predecessors in other shards: the owner of a dependent job watches them, and hears of their end.

The job and the ids of its predecessors are in the log of its own shard, so a watch is no more than a question, which is
asked again whenever one of the two shards moves:

    waits        the owner of the job sends Watch to the owner of the predecessor's shard, until it answers
    Watched      the answer, and each change after it: the predecessor has ended, or has not any more
    missing      no broker has it in any shard: the job is decided as if it was deleted
    no more      when the decision about the job is committed, the predecessor is not needed any more (`is_waiting`)

Jobs of one shard that wait for the same predecessor are one watch. `watched_jobs.py` is the other side. A shard of the
same broker is asked in the same way, because each shard has its own commits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from dragoman.cluster.hub import Hub
from dragoman.cluster.peers import Peer
from dragoman.cluster.records import Watch, Watched
from dragoman.cluster.shards import Shards
from dragoman.cluster.store import ShardStore
from dragoman.cluster.watched_jobs import Prove, WatchedJobs
from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.core.model import JobId
from dragoman.core.other_shards import OtherShards
from dragoman.core.results_payload import Entry

ASK_EVERY: Final = 2.0  # seconds until a question is repeated
LOOK_EVERY: Final = 0.2  # seconds between two looks at the owners of shards

Place = tuple[int, JobId]  # shard of the jobs that wait, and their predecessor
Run = tuple[str, str, int]  # broker, incarnation, epoch


@final
class ForeignPredecessor:
    """A job or group of another shard that jobs of one shard wait for."""

    __slots__ = ("due", "expected", "home", "id", "loading", "searched", "shard", "waiting")

    def __init__(self, shard: int, id: JobId, home: int) -> None:
        self.shard = shard  # of the jobs that wait
        self.id = id
        self.home = home  # shard that is asked
        self.searched: dict[int, None] = {}  # shards that do not have it
        self.waiting: dict[JobId, None] = {}  # the jobs
        self.expected = 0  # jobs that are being accepted, and will wait for it
        self.loading: list[tuple[JobId, Callable[[Entry], None]]] = []  # jobs that need its results
        self.due = inf  # time of the next question; inf: it is answered


class Watches(OtherShards):
    """All foreign predecessors of the jobs of this broker; and its own jobs that others watch (`jobs`)."""

    def __init__(
        self,
        broker: Broker,
        hub: Hub,
        store: ShardStore,
        shards: Shards,
        owns: Callable[[int], bool],
        prove: Prove,
    ) -> None:
        """`owns`: true for a shard whose jobs are all here. `prove`: as `WatchedJobs` needs it."""
        self.jobs = WatchedJobs(broker, store, len(shards), owns, self._send, prove)
        self._links = broker.job_registry.links
        self._registry = broker.job_registry
        self._hub = hub
        self._store = store
        self._shards = shards
        self._owns = owns
        self._foreign: dict[Place, ForeignPredecessor] = {}
        self._asking: dict[Place, ForeignPredecessor] = {}  # those with a question that is not answered
        self._leaving: dict[Place, int] = {}  # not needed when this save is committed; -1: it has no number yet
        self._own: list[Watch | Watched] = []  # records from this broker to itself
        self._owners: list[Run | None] = [None] * len(shards)
        self._look_at = -inf
        self._links.other_shards = self

    def __len__(self) -> int:
        return len(self._foreign)

    # ---------------------------------------------------------------- for the core

    def is_foreign(self, job: JobId, predecessor: JobId) -> bool:
        return self.is_foreign_to(self._store.shard_of(job), predecessor)

    def is_foreign_to(self, shard: int, predecessor: JobId) -> bool:
        """True if a predecessor of jobs of this shard is not in the same one, at this broker."""
        if self._store.shard_of(predecessor) != shard:
            return True
        before = self._registry.jobs.get(predecessor)
        if before is not None:
            return not before.options.durable  # a job that runs here for another broker may have the same id
        return predecessor not in self._registry.groups.by_id

    def waits(self, job: JobId, predecessor: JobId) -> None:
        watch = self._watch(self._store.shard_of(job), predecessor)
        watch.waiting[job] = None
        self._ask(watch, -inf)

    def waits_no_more(self, job: JobId, predecessor: JobId) -> None:
        watch = self._foreign.get((self._store.shard_of(job), predecessor))
        if watch is not None:
            watch.waiting.pop(job, None)
            watch.loading = [each for each in watch.loading if each[0] != job]
            self._settle(watch)

    def changed(self, predecessor: JobId) -> None:
        self.jobs.changed(predecessor)

    def place_of(self, job: JobId, predecessor: JobId) -> str:
        watch = self._foreign.get((self._store.shard_of(job), predecessor))
        if watch is None:
            return "in another shard"
        run = self._shards.run_of(watch.home)
        return f"in shard {watch.home} of broker {run[0]}" if run is not None else f"in shard {watch.home}"

    def load(self, job: JobId, predecessor: JobId, done: Callable[[Entry], None]) -> None:
        watch = self._foreign[self._store.shard_of(job), predecessor]
        watch.loading.append((job, done))
        self._ask(watch, -inf)

    # ---------------------------------------------------------------- jobs that are being accepted

    def expect(self, shard: int, predecessor: JobId) -> int:
        """A job of an owned shard is going to wait for a foreign predecessor, once that is pinned. Returns the epoch of
        the shard."""
        self._watch(shard, predecessor).expected += 1
        return self._shards[shard].epoch

    def settled(self, shard: int, predecessor: JobId) -> None:
        """Undo `expect`: the job waits now, or was not accepted."""
        watch = self._foreign.get((shard, predecessor))
        if watch is not None and watch.expected:
            watch.expected -= 1
            self._settle(watch)

    def _watch(self, shard: int, predecessor: JobId) -> ForeignPredecessor:
        place = shard, predecessor
        self._leaving.pop(place, None)
        watch = self._foreign.get(place)
        if watch is None:
            watch = self._foreign[place] = ForeignPredecessor(
                shard, predecessor, max(0, self._store.shard_of(predecessor))
            )
        return watch

    def _settle(self, watch: ForeignPredecessor) -> None:
        if not watch.waiting and not watch.expected:
            self._asking.pop((watch.shard, watch.id), None)
            self._leaving[watch.shard, watch.id] = -1

    def _ask(self, watch: ForeignPredecessor, due: float) -> None:
        watch.due = due
        if due < inf:
            self._asking[watch.shard, watch.id] = watch
        else:
            self._asking.pop((watch.shard, watch.id), None)

    # ---------------------------------------------------------------- time

    def tick(self, now: float) -> float:
        """Ask, answer and report. Returns the time of the next call."""
        if not self._foreign and not self.jobs and not self._own:
            return inf
        own, self._own = self._own, []
        for record in own:
            self.take(None, record, now)
        due = self.jobs.tick(now)
        if self._foreign and now >= self._look_at:
            self._look(now)
        for watch in [each for each in self._asking.values() if each.due <= now]:
            self._question(watch, True)
            self._ask(watch, now + ASK_EVERY)
        self._leave()
        if self._own:
            return now
        return min([due, self._look_at, *[each.due for each in self._asking.values()]]) if self._foreign else due

    def _look(self, now: float) -> None:
        """Ask the next owners of shards that have moved."""
        self._look_at = now + LOOK_EVERY
        for shard in range(len(self._shards)):
            run = self._shards.run_of(shard)
            if run is None or run == self._owners[shard]:
                continue
            self._owners[shard] = run
            for watch in self._foreign.values():
                if watch.home == shard and watch.waiting:
                    self._ask(watch, now)

    def _leave(self) -> None:
        """Tell the owners of predecessors that are not needed: the decision about the last job that waited is
        committed."""
        pending = self._registry.pending_commits
        for place, number in list(self._leaving.items()):
            if number < 0:
                number = self._leaving[place] = pending.last(place[0])
            if number <= pending.safe(place[0]):
                del self._leaving[place]
                self._question(self._foreign.pop(place), False)

    def _question(self, watch: ForeignPredecessor, is_waiting: bool) -> None:
        epoch = self._shards[watch.shard].epoch
        record = Watch(watch.shard, epoch, watch.id, is_waiting, is_waiting and bool(watch.loading))
        self._send(watch.home, record)

    def _send(self, shard: int, record: Watch | Watched) -> None:
        """Send a record to the owner of a shard, if there is one that is heard. It is not repeated here."""
        run = self._shards.run_of(shard)
        if run is None:
            return
        if run[0] == self._hub.name:
            self._own.append(record)
            return
        peer = self._hub.live_peer(run[0], run[1])
        if peer is not None and not peer.link.is_full:
            self._hub.send(peer, record)

    # ---------------------------------------------------------------- records

    def take(self, peer: Peer | None, record: Watch | Watched, now: float) -> None:
        """Take a record of another broker; None: of this one."""
        if isinstance(record, Watch):
            self.jobs.take(record, now)
        elif self._owns(record.shard):
            watch = self._foreign.get((record.shard, JobId(record.predecessor)))
            if watch is None:
                unneeded = Watch(record.shard, self._shards[record.shard].epoch, record.predecessor, is_waiting=False)
                if peer is None:
                    self._own.append(unneeded)
                else:
                    self._hub.send(peer, unneeded)
            elif watch.waiting:
                self._answered(watch, record, now)

    def _answered(self, watch: ForeignPredecessor, record: Watched, now: float) -> None:
        if record.home < 0:
            self._missed(watch, record, now)
            return
        watch.home = record.home
        watch.searched.clear()
        is_loaded = record.has_results and bool(watch.loading)
        self._ask(watch, now if record.is_ended and watch.loading and not is_loaded else inf)
        self._report(watch, record.is_ended, record.problem, now)
        if is_loaded:
            self._deliver(watch, list(record.results) if record.is_group else record.results[0])

    def _missed(self, watch: ForeignPredecessor, record: Watched, now: float) -> None:
        """Search in the other shards: an imported job is not always in the shard that its id names."""
        known = len(watch.searched)
        watch.searched.update(dict.fromkeys(record.searched))
        left = [shard for shard in range(len(self._shards)) if shard not in watch.searched]
        if left:
            named = self._store.shard_of(watch.id)
            watch.home = named if named in left else left[0]
            self._ask(watch, now if len(watch.searched) > known else now + LOOK_EVERY)
            return
        self._ask(watch, inf)
        problem = f"job {watch.id.hex()}, which it comes after, is not in the store any more"
        self._report(watch, True, problem, now)
        self._deliver(watch, None)

    def _report(self, watch: ForeignPredecessor, is_ended: bool, problem: str, now: float) -> None:
        for job in watch.waiting:
            entry = self._links.dependent.get(job)
            if entry is not None and watch.id in entry.foreign:
                self._links.report(entry, watch.id, is_ended, problem, now)

    def _deliver(self, watch: ForeignPredecessor, results: Entry) -> None:
        loading, watch.loading = watch.loading, []
        for _, done in loading:
            done(results)

    # ---------------------------------------------------------------- shards that leave

    def drop(self, shard: int) -> None:
        """A shard leaves this broker. Its next owner watches for its jobs."""
        self.jobs.drop(shard)
        for place in [place for place in self._foreign if place[0] == shard]:
            del self._foreign[place]
            self._asking.pop(place, None)
            self._leaving.pop(place, None)
