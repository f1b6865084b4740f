"""Delays: jobs that enter their queue later than they are submitted, or again.

A call goes straight to `Dispatch.queue`. This module handles background jobs, delayed jobs, jobs that return from a
worker, and jobs of an earlier run of the broker.
"""

from __future__ import annotations

from dragoman.core.commits import AfterCommit
from dragoman.core.conversation import seconds
from dragoman.core.dispatch import Dispatch
from dragoman.core.events import JOB_MOVES
from dragoman.core.failure import WRONG_ARGUMENTS, Failure
from dragoman.core.infinity import inf
from dragoman.core.lifecycle import move_job
from dragoman.core.model import Job
from dragoman.core.shared_state import SharedState
from dragoman.core.states import DELAYED, FAILED, WAITING, AttemptRecord, JobState
from dragoman.core.task_parameters import FIRST_DELAY, LONGEST_DELAY, PATIENCE


class Delays:
    """Delays jobs, and queues them when the delay ends."""

    __slots__ = ("_deadlines", "_dispatch", "_job_registry", "_policy")

    def __init__(self, state: SharedState, dispatch: Dispatch) -> None:
        self._policy = state.policy
        self._job_registry = state.job_registry
        self._deadlines = state.deadlines
        self._dispatch = dispatch

    def add(self, job: Job, now: float) -> None:
        """Delay, dispatch or queue a new job. A background job takes its place at once; it is acknowledged, and sent to
        its worker, when the store has committed it. One commit serves both if a worker is idle."""
        job_options = job.options
        if job_options.durable:
            if job_options.keep is not None or job.extras is not None:
                self._job_registry.kept.note_new(job)
            self._job_registry.pending_commits.save(job, AfterCommit.ACKNOWLEDGE)
        if job_options.delay > 0:
            self.delay(job, now + min(job_options.delay, self._policy.max_delay), now)
            return
        self._dispatch.queue(job, now)

    def delay(self, job: Job, until: float, now: float) -> None:
        """Keep the job out of its queue until this time."""
        job.start_at = until
        if job.conversation is not None:
            job.conversation.note(f"{'retry' if job.tried else 'start'} in {seconds(until - now)}", now)
        self.move(job, DELAYED)
        self._deadlines.arm(job, job.due())
        if job.principal.blocked or job.service.limits is not None:
            self._dispatch.stopped(job, now)

    def wake(self, job: Job, now: float) -> None:
        """Queue a delayed job whose delay has ended."""
        if job.needs:
            self.seek(job, now)
        elif not job.tried and not job.spent and not self._dispatch.set_aside.has(job):
            job.arrival = now
            move_job(job, WAITING)
            self._dispatch.queue(job, now)
        else:
            if job.queue_due == inf:
                job.queue_due = now + job.options.queue_timeout
            self.requeue(job, now)

    def seek(self, job: Job, now: float) -> None:
        """Give a job to a worker that knows the parameters that it needs, or let it wait for one (R269): as long again
        as it has waited, within limits, and for a day at most. Other workers become free meanwhile, see `Dispatch`."""
        since = job.delayed_since
        if since is None:
            since = job.delayed_since = now
        if self._dispatch.offer(job, now):
            return
        if now >= since + PATIENCE:
            self._give_up(job, now)
            return
        until = min(now + min(max(now - since, FIRST_DELAY), LONGEST_DELAY), since + PATIENCE)
        if job.state is DELAYED:
            job.start_at = until
            self._deadlines.arm(job, job.due())
        else:
            self.delay(job, until, now)
        self._dispatch.for_knowing.add(job)

    def _give_up(self, job: Job, now: float) -> None:
        """End a job that no worker knows all parameters of. The refusal counts as its last attempt."""
        extras = job.extras
        assert extras is not None
        failure = Failure(WRONG_ARGUMENTS, extras.refusal, retry_in=inf)
        job.spent += 1
        job.history = [
            *(job.history or ()),
            AttemptRecord(job.spent, extras.refused_by, FAILED, failure.sentence, now, now),
        ]
        job.quarantined = True
        self._dispatch.for_knowing.remove(job)
        self._job_registry.end(job, FAILED, b"", failure.sentence, now, failure=failure)

    def requeue(self, job: Job, now: float) -> None:
        """Queue a job that was dispatched before. It keeps its place: the key of its arrival."""
        if job.needs:
            self.seek(job, now)
            return
        if job.state is not WAITING:
            self.move(job, WAITING)
        service = job.service
        service.queue.put_back(job, job.arrival - job.options.priority * self._policy.priority_step)
        self._dispatch.dispatch_waiting(service, now)
        if job.principal.blocked or service.limits is not None:
            self._dispatch.stopped(job, now)
        if job.state is WAITING:
            self._deadlines.arm(job, job.due())

    def restore(self, job: Job, start_at: float, now: float) -> None:
        """Delay or queue a job of an earlier run that no worker holds (R107). No event is published."""
        if start_at > now:
            job.start_at = start_at
            move_job(job, DELAYED)
            self._deadlines.arm(job, job.due())
            return
        job.arrival = min(max(job.created, start_at), now)
        if job.needs:
            self.seek(job, now)
            return
        job.queue_due = now + job.options.queue_timeout
        job.service.queue.restore(job, job.arrival)
        self._deadlines.arm(job, job.due())
        self._dispatch.dispatch_waiting(job.service, now)

    def move(self, job: Job, to: JobState) -> None:
        """Change the state of a job, and publish that."""
        move_job(job, to)
        if self._job_registry.events.wanted & JOB_MOVES:
            self._job_registry.events.job_moved(job)
