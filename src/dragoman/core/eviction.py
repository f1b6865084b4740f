"""Eviction: jobs leave this broker without an outcome, because another broker of the cluster decides about them now.

Nothing is told to anybody but that: callers that wait may ask again, and are told so. A job that a worker of this
broker runs stays until that ends, as a call of one attempt whose caller is its *heir*: the heir sends the outcome to
the broker that has the job now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from dragoman.core.attempts import Attempts, unsend
from dragoman.core.dispatch import Dispatch
from dragoman.core.effects import DeliverOutcome
from dragoman.core.groups import Group
from dragoman.core.infinity import inf
from dragoman.core.job_counting import count_job
from dragoman.core.model import Attempt, Caller, Job, JobId
from dragoman.core.shared_state import SharedState
from dragoman.core.states import ENDED, REFUSED, RUNNING, WAITING, RefusalReason

MOVED: Final = "the job has moved to another broker of the cluster; ask again"
NOT_KNOWN: Final = "it is not known whether this was stored; ask again"
UNKNOWN_FATE: Final = f"its shard has moved to another broker; {NOT_KNOWN}"


Heir = Callable[[Attempt], Caller | None]  # None: another broker's worker runs the attempt


def is_fate_unknown(problem: str) -> bool:
    """True if this is the reason why nobody knows whether something was stored."""
    return problem.endswith(NOT_KNOWN)


class Eviction:
    """Removes background jobs and groups from the broker."""

    __slots__ = ("_attempts", "_counters", "_deadlines", "_dispatch", "_effects", "_registry", "_workers")

    def __init__(self, state: SharedState, dispatch: Dispatch, attempts: Attempts) -> None:
        self._counters = state.counters
        self._deadlines = state.deadlines
        self._effects = state.effects
        self._registry = state.job_registry
        self._workers = state.worker_registry
        self._dispatch = dispatch
        self._attempts = attempts

    def evict(self, jobs: Iterable[Job], groups: Iterable[Group], heir: Heir, now: float) -> None:
        """Remove these jobs and groups. `heir`: makes the caller that receives the outcome of a running attempt."""
        leaving = {job.id: job for job in jobs}
        self._registry.pending_commits.forget(leaving)
        for group in groups:
            self._evict_group(group)
        running: list[Job] = []
        for job in leaving.values():
            self._turn_away(job)
            if job.state is ENDED:
                self._registry.kept.forget(job)
            elif job.state is RUNNING:
                running.append(job)  # last: a slot that becomes free is for a job that stays
            else:
                if job.state is WAITING and job.order != inf:
                    job.service.queue.remove(job)
                self._registry.links.unlink(job, is_moved=True)
                self._drop(job, now)
        for job in running:
            self._evict_running(job, heir, now)

    def rename(self, job: Job, id: JobId) -> None:
        """Give a call another id: a background job that is restored has its id. They are the same job, and the call is
        an attempt at it that runs here for another broker."""
        registry = self._registry
        if registry.with_extras.count:
            registry.with_extras.remove(job)
        registry.conversations.forget(job)
        del registry.jobs[job.id]
        for caller in job.callers:
            caller.remove_job(job)
        job.id = id
        registry.jobs[id] = job
        for caller in job.callers:
            caller.add_job(job)
        if job.extras is not None:
            registry.with_extras.add(job, job.extras)

    def _evict_group(self, group: Group) -> None:
        self._registry.groups.forget(group)
        for caller in group.callers:
            self._refuse(caller)
        group.callers = []

    def _evict_running(self, job: Job, heir: Heir, now: float) -> None:
        attempt = job.attempt
        assert attempt is not None
        worker = attempt.worker
        if unsend(attempt, self._effects):
            self._attempts.free_unsent(attempt, now)
            job.attempt = None
            self._drop(job, now)
            return
        caller = heir(attempt)
        if caller is not None:
            self._hand_on(job, caller)
            return
        self._registry.parts.drop(attempt)
        del worker.running[attempt.token]
        job.attempt = None
        self._drop(job, now)
        if worker.services or worker.running:
            self._dispatch.freed(worker, now)
        else:
            self._dispatch.removal.remove(worker, "its job has moved to another broker", now)

    def _hand_on(self, job: Job, heir: Caller) -> None:
        """Make a running background job a call of the attempt that runs."""
        self._registry.kept.disown(job)
        job.key, job.retry_of = None, None
        job.options = replace(job.options, durable=False, attempts=job.spent + 1)
        job.callers = (heir,)
        job.caller_dialect = heir.dialect  # lists leave it out: its broker lists it
        heir.add_job(job)

    def _drop(self, job: Job, now: float) -> None:
        registry, service, owner, size = self._registry, job.service, job.owner, len(job.payload)
        self._deadlines.disarm(job)
        del registry.jobs[job.id]
        if registry.with_extras.count:
            registry.with_extras.remove(job)
        registry.kept.disown(job)
        registry.conversations.forget(job)
        count_job(job, job.state, -1)
        service.jobs -= 1
        service.bytes -= size
        owner.jobs -= 1
        owner.bytes -= size
        owner.principal.bytes -= size
        if not service.jobs and service.owner is not None:
            service.discharge()
        registry.present -= 1
        registry.memory.payloads -= size
        self._counters.evicted += 1
        if owner.principal.blocked or service.limits is not None:
            self._dispatch.stopped(job, now)

    def _turn_away(self, job: Job) -> None:
        callers, job.callers = job.callers, ()
        for caller in callers:
            caller.remove_job(job)
            self._refuse(caller)

    def _refuse(self, caller: Caller) -> None:
        reason = RefusalReason.PARTITIONED
        self._effects.append(DeliverOutcome(caller, None, REFUSED, b"", f"{reason}: {MOVED}", reason))
