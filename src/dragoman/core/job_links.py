"""Links between jobs: which dependent job waits for which predecessors.

A predecessor is a job or a group. It is *pinned* while a dependent job waits: its outcome is neither deleted nor
evicted. The end of a predecessor only counts here, and sets the timer of the dependent jobs that can be decided now;
`core/dependencies.py` decides them. So a chain of any length needs no recursion, and a loop over many dependent jobs
can be interrupted.

In a cluster, predecessors in other shards are *foreign* (`core/other_shards.py`): they are pinned where they are, and
their end is reported. The other way round, a job or group that jobs of other shards wait for is *watched* here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dragoman.core.archive import Archive
from dragoman.core.deadlines import Deadlines
from dragoman.core.model import Job, JobId
from dragoman.core.other_shards import OtherShards
from dragoman.core.shares import Shares
from dragoman.core.states import DONE

NO_FOREIGN: Final[dict[JobId, bool]] = {}  # of a job whose predecessors are all in its shard; never changed
MOST_REASON: Final = 500  # characters of a predecessor's reason: those of a long chain would grow without bound


class DependentJob:
    """A job that waits for its predecessors."""

    __slots__ = ("cause", "foreign", "is_collecting", "job", "predecessors", "unended")

    def __init__(self, job: Job, predecessors: tuple[JobId, ...]) -> None:
        self.job = job
        self.predecessors = predecessors  # each once
        self.foreign = NO_FOREIGN  # those in other shards: whether each has ended, as far as that was reported
        self.unended = 0  # predecessors that have not ended
        self.cause = ""  # reason to cancel it; empty: none
        self.is_collecting = False  # its input is being loaded

    @property
    def runs_after_failure(self) -> bool:
        extras = self.job.extras
        return extras is not None and extras.runs_after_failure


class JobLinks:
    """All dependent jobs, by their id and by their predecessors."""

    __slots__ = ("_archive", "_deadlines", "_followers", "dependent", "other_shards", "shares", "watched")

    def __init__(self, deadlines: Deadlines[Any], archive: Archive, most: int) -> None:
        """`most`: links (R254)."""
        self.dependent: dict[JobId, DependentJob] = {}
        self.shares = Shares(most)  # links: pairs of a dependent job and a predecessor, by principal
        self.other_shards: OtherShards | None = None  # of a broker in a cluster
        self.watched: dict[JobId, dict[int, int]] = {}  # by predecessor: shards with jobs that wait, and their epochs
        self._followers: dict[JobId, dict[JobId, DependentJob]] = {}  # by predecessor in the same shard
        self._deadlines = deadlines
        self._archive = archive

    @property
    def links(self) -> int:
        return self.shares.taken

    def link(self, job: Job) -> DependentJob:
        """Add a dependent job. The caller counts its predecessors (`count`)."""
        assert job.extras is not None
        entry = DependentJob(job, tuple(dict.fromkeys(job.extras.after)))
        self.dependent[job.id] = entry
        other = self.other_shards
        for id in entry.predecessors:
            if other is not None and other.is_foreign(job.id, id):
                entry.foreign = {**entry.foreign, id: False}
                other.waits(job.id, id)
                continue
            self._followers.setdefault(id, {})[job.id] = entry
            self._archive.pin(id)
        self.shares.enter(job.principal.name, len(entry.predecessors))
        return entry

    def unlink(self, job: Job, is_moved: bool = False) -> None:
        """Remove a dependent job that is ready or has ended. Predecessors of no other job are not needed any more.
        `is_moved`: its shard leaves this broker, and it still waits."""
        entry = self.dependent.pop(job.id, None)
        if entry is None:
            return
        self.shares.leave(job.principal.name, len(entry.predecessors))
        for id in entry.predecessors:
            if id in entry.foreign:
                if self.other_shards is not None and not is_moved:
                    self.other_shards.waits_no_more(job.id, id)
                continue
            followers = self._followers[id]
            del followers[job.id]
            if not followers:
                del self._followers[id]
            self._archive.unpin(id)

    def followers(self, id: JobId) -> Iterable[DependentJob]:
        """Return the dependent jobs that wait for this job or group."""
        found = self._followers.get(id)
        return () if found is None else found.values()

    def ended(self, id: JobId, problem: str, now: float) -> None:
        """Count the end of a predecessor. `problem`: a sentence if it is not done."""
        for entry in self.followers(id):
            entry.unended -= 1
            self.judge(entry, problem, now)
        self._changed(id)

    def failed(self, id: JobId, problem: str, now: float) -> None:
        """Note that a part of a predecessor is not done, before all of it has ended."""
        for entry in self.followers(id):
            self.judge(entry, problem, now)
        self._changed(id)

    def reopened(self, id: JobId) -> None:
        """Count a predecessor that had ended and has not any more."""
        for entry in self.followers(id):
            entry.unended += 1
        self._changed(id)

    def judge(self, entry: DependentJob, problem: str, now: float) -> None:
        """Let the next tick decide about a dependent job, if it can. `problem`: a predecessor is not done."""
        if problem and not entry.cause and not entry.runs_after_failure:
            entry.cause = problem
        if (entry.cause or not entry.unended) and entry.job.queue_due > now:  # else it is about to be decided
            entry.job.queue_due = now
            self._deadlines.arm(entry.job, now)

    # ---------------------------------------------------------------- other shards

    def report(self, entry: DependentJob, id: JobId, is_ended: bool, problem: str, now: float) -> None:
        """Count a foreign predecessor as it is now. `problem`: a sentence if it is not done, or a part of it."""
        if entry.foreign[id] is not is_ended:
            entry.foreign[id] = is_ended
            entry.unended += -1 if is_ended else 1
        self.judge(entry, problem, now)

    def watch(self, id: JobId, shard: int, epoch: int) -> bool:
        """Pin a job or group that jobs of another shard wait for. False: it was pinned for that shard before."""
        shards = self.watched.setdefault(id, {})
        is_new = shard not in shards
        shards[shard] = max(epoch, shards.get(shard, 0))
        if is_new:
            self._archive.pin(id)
        return is_new

    def unwatch(self, id: JobId, shard: int) -> None:
        """Undo `watch`."""
        shards = self.watched[id]
        del shards[shard]
        if not shards:
            del self.watched[id]
        self._archive.unpin(id)

    def _changed(self, id: JobId) -> None:
        if self.watched and id in self.watched and self.other_shards is not None:
            self.other_shards.changed(id)


def problem_of(job: Job, group: JobId | None = None) -> str:
    """Return the reason to cancel the jobs that come after an ended one, or after its group. Empty: it is done."""
    if job.outcome is DONE:
        return ""
    reason = job.reason if len(job.reason) <= MOST_REASON else f"{job.reason[:MOST_REASON]}…"
    name = f"job {job.id.hex()}" + (f" of group {group.hex()}" if group is not None else "")
    return f"{name}, which it comes after, ended {job.outcome}" + (f": {reason}" if reason else "")
