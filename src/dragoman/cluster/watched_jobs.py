"""Jobs and groups of this broker that jobs of other shards wait for: pins them, and reports their committed state.

A pin is a note in the log of the predecessor's shard, with the shard of the jobs that wait. It is written before the
first of them is accepted, and moves with the shard: the next owner has it before it deletes any outcome. So an outcome
is there as long as a job of another shard needs it (R192), whichever brokers die.

A pin ends when the owner of the waiting jobs says that none of them waits any more. If that is lost with a broker, or
if the job that was to wait was never accepted, the pin stays until the predecessor has ended. Then its owner reports
the end, again from time to time, and the owner of the other shard answers that nobody waits. A claim starts a new epoch
of the other shard, and an owner of an earlier epoch removes no pin of a later one.

The state of a predecessor is reported when its log has it, never before (C4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.records import Watch, Watched
from dragoman.cluster.store import WATCH, ShardStore
from dragoman.core.broker import Broker
from dragoman.core.failure import Failure
from dragoman.core.groups import PRESENT, Group
from dragoman.core.job_links import problem_of
from dragoman.core.model import ABSENT, Job, JobId, Payload
from dragoman.core.states import DONE, ENDED

SWEEP_EVERY: Final = 60.0  # seconds between two reports of ended predecessors that are still pinned

Send = Callable[[int, Watched], None]  # to the owner of this shard
Prove = Callable[[Sequence[int], Callable[[Sequence[int]], None]], None]


class WatchedJobs:
    """The pinned jobs and groups of the shards of this broker."""

    def __init__(
        self, broker: Broker, store: ShardStore, count: int, owns: Callable[[int], bool], send: Send, prove: Prove
    ) -> None:
        """`count`: number of shards of the cluster. `owns`: true for a shard whose jobs are all here. `prove`: calls
        back with those of some shards of which the logs confirm that they are here."""
        self._broker = broker
        self._registry = broker.job_registry
        self._links = broker.job_registry.links
        self._store = store
        self._count = count
        self._owns = owns
        self._send = send
        self._prove = prove
        self._homes: dict[JobId, int] = {}  # shard of each
        self._changed: dict[JobId, None] = {}  # whose state is reported when it is committed
        self._loading: dict[tuple[JobId, int], None] = {}  # whose results are being loaded, and for which shard
        self._sweep_at = 0.0

    def __len__(self) -> int:
        return len(self._homes)

    # ---------------------------------------------------------------- pins

    def home_of(self, id: JobId) -> int:
        """Return the shard of a background job or a group that this broker has; -1: it does not."""
        job = self._registry.jobs.get(id)
        is_here = job.options.durable if job is not None else id in self._registry.groups.by_id
        shard = self._store.shard_of(id) if is_here else -1
        return shard if shard >= 0 and self._owns(shard) else -1

    def pin(self, id: JobId, shard: int, epoch: int) -> bool:
        """Keep a job or group for jobs of a shard. False: it is not here."""
        home = self.home_of(id)
        if home < 0:
            return False
        self._homes[id] = home
        if self._links.watch(id, shard, epoch):
            self._registry.pending_commits.note(_key(home, id, shard), str(epoch))
        return True

    def take(self, record: Watch, now: float) -> None:
        """Begin or end to watch, for the owner of another shard."""
        id = JobId(record.predecessor)
        if not record.is_waiting:
            self._unpin(id, record.shard, record.epoch)
        elif not self.pin(id, record.shard, record.epoch):
            self._deny(id, record.shard)
        elif record.wants_results and self._state(id)[0]:
            self._send_results(id, record.shard)
        else:
            self._report(id, record.shard)

    def _unpin(self, id: JobId, shard: int, epoch: int) -> None:
        shards = self._links.watched.get(id)
        if shards is None or shard not in shards or epoch < shards[shard]:
            return
        self._registry.pending_commits.note(_key(self._homes[id], id, shard), None)
        self._forget(id, shard)

    def _forget(self, id: JobId, shard: int) -> None:
        self._links.unwatch(id, shard)
        if id not in self._links.watched:
            del self._homes[id]
            self._changed.pop(id, None)

    # ---------------------------------------------------------------- shards that come and go

    def restore(self, home: int, notes: Mapping[str, str]) -> None:
        """Pin what the owner before has pinned. The jobs follow. Raises Malformed."""
        for key, value in notes.items():
            if key.startswith(WATCH):
                try:
                    _, _, name, shard = key.split("/")
                    id, epoch = JobId(bytes.fromhex(name)), int(value)
                    self._links.watch(id, int(shard), epoch)
                except ValueError as error:
                    raise Malformed("bad note", f"{key}: {error}") from None
                self._homes[id] = home

    def restored(self, home: int) -> None:
        """All jobs of a shard are here: report the state of those that are watched."""
        for id, shard in self._homes.items():
            if shard == home:
                self._changed[id] = None

    def drop(self, home: int) -> None:
        """A shard leaves this broker, with its pins."""
        for id in [id for id, shard in self._homes.items() if shard == home]:
            for shard in list(self._links.watched[id]):
                self._loading.pop((id, shard), None)
                self._forget(id, shard)

    # ---------------------------------------------------------------- reports

    def changed(self, id: JobId) -> None:
        """Report the state of a job or group when it is committed."""
        self._changed[id] = None

    def tick(self, now: float) -> float:
        """Report what is committed. Returns the time of the next call."""
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_EVERY
            for id in self._homes:
                if self.home_of(id) < 0 or self._state(id)[0]:
                    self._changed[id] = None
        for id in [id for id in self._changed if self._is_told(id)]:
            del self._changed[id]
            for shard in self._links.watched.get(id, {}):
                self._report(id, shard)
        return self._sweep_at

    def _report(self, id: JobId, shard: int) -> None:
        home = self.home_of(id)
        if home < 0:
            self._deny(id, shard)
            return
        is_ended, problem = self._state(id)
        self._send(shard, Watched(shard, id, home, is_ended, problem))

    def _deny(self, id: JobId, shard: int) -> None:
        """Say that the shards of this broker do not have a job or group, when it is proved that they are here. Without
        a proof nothing is said, and the question comes again."""

        def proved(shards: Sequence[int]) -> None:
            if shards and self.home_of(id) < 0:
                self._send(shard, Watched(shard, id, -1, searched=list(shards)))

        self._prove([each for each in range(self._count) if self._owns(each)], proved)

    def _is_told(self, id: JobId) -> bool:
        """True if nothing of the state waits for its commit."""
        return all(job is None or job.state is not ENDED or job.is_told for job in self._members(id))

    def _members(self, id: JobId) -> list[Job | None]:
        group = self._registry.groups.by_id.get(id)
        return [self._registry.jobs.get(id)] if group is None else group.jobs

    def _state(self, id: JobId) -> tuple[bool, str]:
        """Return whether a job or group has ended, and the reason to cancel jobs that come after it, as committed."""
        group = self._registry.groups.by_id.get(id)
        if group is not None:
            return group.is_complete and self._is_told(id), _problem_of_group(group)
        job = self._registry.jobs.get(id)
        if job is None or job.state is not ENDED or not job.is_told:
            return False, ""
        return True, problem_of(job)

    def _send_results(self, id: JobId, shard: int) -> None:
        """Load the results of a job, or of all members of a group, and send them."""
        if (id, shard) in self._loading:
            return
        self._loading[id, shard] = None
        members = self._members(id)
        results: list[bytes | None] = [None] * len(members)
        left = 1

        def loaded() -> None:
            nonlocal left
            left -= 1
            if not left and (id, shard) in self._loading:
                del self._loading[id, shard]
                is_ended, problem = self._state(id)
                is_group = id in self._registry.groups.by_id
                home = self._homes[id]
                self._send(shard, Watched(shard, id, home, is_ended, problem, is_ended, results, is_group))

        def take(place: int) -> Callable[[Payload, Payload, Failure | None], None]:
            def taken(_: Payload, result: Payload, __: Failure | None) -> None:
                results[place] = bytes(result)
                loaded()

            return taken

        for place, job in enumerate(members):
            if job is None or job.outcome is not DONE:
                continue
            if job.result is not ABSENT:
                results[place] = bytes(job.result)
            else:
                left += 1
                self._store.fetch(job, take(place))
        loaded()


def _problem_of_group(group: Group) -> str:
    """Return the reason to cancel the jobs that come after a group, as far as it is committed."""
    for job in group.jobs:
        if job is not None and job.outcome is not None and job.outcome is not DONE and job.is_told:
            return problem_of(job, group.id)
    if any(letter not in (PRESENT, "d") for letter in group.gone):
        return f"group {group.id.hex()}, which it comes after, has jobs that are not done"
    return ""


def _key(home: int, id: JobId, shard: int) -> str:
    return f"{WATCH}{home}/{id.hex()}/{shard}"
