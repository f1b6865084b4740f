"""Expiry: handles jobs and workers that are due.

These are deadlines, queue time-outs, retry delays and retention times of jobs, run times of attempts, and leases of
workers. A timer does not decide: the subject's current due time does (R5).
"""

from __future__ import annotations

from typing import Final

from dragoman.core.admission import CALLER_GONE, DEADLINE_PASSED
from dragoman.core.attempts import Attempts
from dragoman.core.delays import Delays
from dragoman.core.dependencies import Dependencies
from dragoman.core.dispatch import Dispatch
from dragoman.core.effects import RemoveWorker
from dragoman.core.groups import Group
from dragoman.core.infinity import inf
from dragoman.core.leases import lease_expired_at, lease_of, stuck_since, worker_deadline
from dragoman.core.model import Job, Worker
from dragoman.core.reached_limits import limit_in_the_way
from dragoman.core.shared_state import SharedState
from dragoman.core.states import CANCELLED, DELAYED, DEPENDENT, ENDED, GONE, TIMED_OUT, RemovalReason

MOST_DECISIONS: Final = 1_000  # about dependent jobs, in one iteration


class Expiry:
    """Ends jobs, attempts and workers that have timed out, and queues delayed jobs."""

    __slots__ = (
        "_attempts",
        "_counters",
        "_deadlines",
        "_delays",
        "_dependencies",
        "_dispatch",
        "_effects",
        "_job_registry",
        "_policy",
        "_worker_registry",
    )

    def __init__(
        self,
        state: SharedState,
        dispatch: Dispatch,
        delays: Delays,
        attempts: Attempts,
        dependencies: Dependencies,
    ) -> None:
        self._policy = state.policy
        self._counters = state.counters
        self._worker_registry = state.worker_registry
        self._job_registry = state.job_registry
        self._deadlines = state.deadlines
        self._effects = state.effects
        self._dispatch = dispatch
        self._delays = delays
        self._attempts = attempts
        self._dependencies = dependencies

    def tick(self, now: float) -> None:
        """Handle everything that is due."""
        most = self._counters.erased + self._policy.max_deletes_per_tick
        decisions = self._dependencies.decisions + MOST_DECISIONS
        for subject in self._deadlines.due(now):
            if isinstance(subject, Job):
                self._check_job(subject, now)
            elif isinstance(subject, Worker):
                self._check_worker(subject, now)
            elif isinstance(subject, Group):
                self._job_registry.groups.expire(subject, now)
            else:
                self._dispatch.reopen(self._worker_registry.services[subject.service], now)
            if self._counters.erased >= most or self._dependencies.decisions >= decisions:
                return  # the next iteration continues: many jobs that are due together do not block the loop (R110)

    def extend_leases(self, gap: float, now: float) -> None:
        """Move leases and orphan deadlines by `gap` seconds, in which the broker itself was paused (D13)."""
        for worker in self._worker_registry.workers.values():
            worker.seen = min(worker.seen + gap, now)
            if worker.away_since != inf:
                worker.away_since = min(worker.away_since + gap, now)
            for attempt in worker.stuck.values():
                attempt.stuck_since = min(attempt.stuck_since + gap, now)
        for job in self._job_registry.jobs.values():
            job.orphan_due += gap

    def _check_job(self, job: Job, now: float) -> None:
        """Check a job that is not running. Running jobs are checked with their worker."""
        if job.due() > now:
            self._deadlines.arm(job, job.due())
        elif job.state is ENDED:
            self._job_registry.kept.expire(job, now)
        elif job.deadline <= now:
            self._attempts.end_early(job, TIMED_OUT, DEADLINE_PASSED, now)
        elif job.orphan_due <= now:
            self._attempts.end_early(job, CANCELLED, CALLER_GONE, now)
        elif job.state is DELAYED:
            self._delays.wake(job, now)
        elif job.state is DEPENDENT:
            self._dependencies.decide(job, now)
        else:
            reason = f"no worker was free within {job.options.queue_timeout:g} s"
            limit = limit_in_the_way(job, now)
            if limit is not None:
                reason += f", or a limit was reached: {limit.sentence}"
            self._attempts.end_early(job, TIMED_OUT, reason, now)

    def _check_worker(self, worker: Worker, now: float) -> None:
        """Time out attempts that were due before the worker itself expired, then check the worker."""
        until = min(now, lease_expired_at(worker))
        for attempt in [each for each in worker.running.values() if each.over_at <= until]:
            if attempt.job.attempt is attempt:  # else it was taken back together with an earlier one
                self._attempts.expire(attempt, now)
        if worker.state is GONE:
            return
        if lease_expired_at(worker) > now:
            self._deadlines.arm(worker, worker_deadline(worker))
            return
        reason = _removal_reason(worker, now)
        self._counters.expired_workers += 1
        if stuck_since(worker) + worker.profile.stuck_timeout > now:
            self._dispatch.removal.note_silent(worker, now)
        self._effects.append(RemoveWorker(worker, RemovalReason.EXPIRED, reason))
        if worker.profile.ends_with_connection and stuck_since(worker) + worker.profile.stuck_timeout > now:
            worker.seen = now  # its broker side closes the connection now and reports unsent attempts; else check again
            self._worker_registry.stop_dispatch(worker)
            self._deadlines.arm(worker, worker_deadline(worker))
        else:
            self._attempts.leave(worker, now, reason, ())


def _removal_reason(worker: Worker, now: float) -> str:
    """Return the reason to remove a worker that is due."""
    profile = worker.profile
    if stuck_since(worker) + profile.stuck_timeout <= now:
        return f"its worker was stuck for {profile.stuck_timeout:g} s"
    if worker.seen + lease_of(worker) > now:
        return f"its worker was out of reach for {profile.detach_timeout:g} s"
    return f"its worker was silent for {profile.lease:g} s"
