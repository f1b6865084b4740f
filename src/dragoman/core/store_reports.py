"""Reports of the store about its commits, and the actions that waited for them."""

from __future__ import annotations

from itertools import islice

from dragoman.core.archive import keeps_forever
from dragoman.core.attempts import Attempts
from dragoman.core.commits import AfterCommit
from dragoman.core.delays import Delays
from dragoman.core.dispatch import Dispatch
from dragoman.core.effects import SendJob
from dragoman.core.infinity import inf
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.model import Job, JobId
from dragoman.core.set_aside import AT_ONCE
from dragoman.core.shared_state import SharedState
from dragoman.core.states import DELAYED, ENDED, REFUSED, RefusalReason


class StoreReports:
    """Continues jobs whose commit has been reported, and those of shards that can be written again."""

    __slots__ = ("_attempts", "_delays", "_dispatch", "_effects", "_job_registry", "_returning")

    def __init__(self, state: SharedState, dispatch: Dispatch, delays: Delays, attempts: Attempts) -> None:
        self._dispatch = dispatch
        self._delays = delays
        self._returning: dict[JobId, Job] = {}  # jobs that were set aside, and can be written again
        self._effects = state.effects
        self._job_registry = state.job_registry
        self._attempts = attempts

    def saved(self, number: int, now: float, problem: str | None = None, shard: int = 0) -> None:
        """The store has committed all saves of a shard up to this one, or could not: then new jobs are refused."""
        remembered = self._job_registry.remembered
        for job, after_commit, attempt in self._job_registry.pending_commits.release(number, problem is None, shard):
            if after_commit is AfterCommit.SEND:
                if attempt is not None and job.attempt is attempt:
                    if attempt.worker.away_since == inf:
                        self._effects.append(SendJob(attempt))
                    else:  # it was detached during the commit
                        self._attempts.undelivered(attempt, now)
            elif after_commit is AfterCommit.DELIVER:
                kept = self._job_registry.kept
                kept.deliver(job)
                if not job.outlives_end:
                    kept.expire(job, now)
                elif problem is None and keeps_forever(job) and job.state is ENDED:
                    kept.leave_to_store(job)
            elif after_commit is AfterCommit.ACKNOWLEDGE:
                if problem is None:
                    remembered.unsaved.pop(job.id, None)
                    if job.conversation is not None:
                        job.conversation.note("stored", now)
                    self._effects.extend(Acknowledge(caller, job) for caller in job.callers)
                    continue
                remembered.refused(job.id)
                if job.state is not ENDED:
                    self._attempts.end_early(
                        job, REFUSED, f"store unavailable: {problem}", now, RefusalReason.STORE_UNAVAILABLE
                    )

    # ---------------------------------------------------------------- shards that cannot be written

    def unwritable(self, shard: int, now: float) -> None:
        """A shard cannot be written now. Its attempts that wait for their commit return to the queue: their workers are
        free for other jobs."""
        commits = self._job_registry.pending_commits
        commits.unwritable[shard] = None
        held = commits.held_attempts(shard)
        for attempt in [each for each in held if each.job.attempt is each and not each.is_sent]:
            job = attempt.job
            self._dispatch.limiter.not_started(job.service, now)
            self._attempts.not_started(attempt, now)
            self._attempts.free_unsent(attempt, now)
            if job.state is not ENDED and job.attempt is None:
                commits.save(job)  # what waits to be written says that a worker has it

    def writable(self, shard: int) -> None:
        """A shard can be written again: its jobs that were set aside return, some in each `step`."""
        self._job_registry.pending_commits.unwritable.pop(shard, None)
        self._returning.update(self._dispatch.set_aside.jobs.pop(shard, {}))

    def shard_left(self, shard: int) -> None:
        """A shard has left this broker, with its jobs."""
        self._job_registry.pending_commits.unwritable.pop(shard, None)
        self._dispatch.set_aside.jobs.pop(shard, None)

    def step(self, now: float) -> bool:
        """Continue with jobs that are set aside, or return. True: there are more."""
        set_aside = self._dispatch.set_aside
        if not self._returning and not set_aside.unfinished:
            return False
        services = list(set_aside.unfinished.values())
        set_aside.unfinished.clear()
        for service in services:
            self._dispatch.dispatch_waiting(service, now)
        for job in list(islice(self._returning.values(), AT_ONCE)):
            del self._returning[job.id]
            if job.state is DELAYED and self._job_registry.jobs.get(job.id) is job:
                self._delays.requeue(job, now)  # it keeps its place
        return bool(self._returning or set_aside.unfinished)
