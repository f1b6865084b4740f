"""Reports of the store about its commits, and the actions that waited for them."""

from __future__ import annotations

from dragoman.core.archive import keeps_forever
from dragoman.core.attempts import Attempts
from dragoman.core.commits import AfterCommit
from dragoman.core.effects import SendJob
from dragoman.core.infinity import inf
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.shared_state import SharedState
from dragoman.core.states import ENDED, REFUSED, RefusalReason


class StoreReports:
    """Continues jobs whose commit has been reported."""

    __slots__ = ("_attempts", "_effects", "_job_registry")

    def __init__(self, state: SharedState, attempts: Attempts) -> None:
        self._effects = state.effects
        self._job_registry = state.job_registry
        self._attempts = attempts

    def saved(self, number: int, now: float, problem: str | None = None, shard: int = 0) -> None:
        """The store has committed all saves of a shard up to this one, or could not: then new jobs are refused."""
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
                    if job.conversation is not None:
                        job.conversation.note("stored", now)
                    self._effects.extend(Acknowledge(caller, job) for caller in job.callers)
                elif job.state is not ENDED:
                    self._attempts.end_early(
                        job, REFUSED, f"store unavailable: {problem}", now, RefusalReason.STORE_UNAVAILABLE
                    )
