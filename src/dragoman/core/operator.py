"""Acts of an operator: pause, resume, retry, release, and the end of the broker. No dialect has a message for them."""

from __future__ import annotations

from dataclasses import replace

from dragoman.core.accepted_jobs import enter_job
from dragoman.core.admission import BROKER_STOPS, REFUSED_DRAINING, STOPPED, refusal_when_draining
from dragoman.core.archive import keeps_forever
from dragoman.core.attempts import Attempts
from dragoman.core.delays import Delays
from dragoman.core.dispatch import Dispatch
from dragoman.core.effects import RemoveWorker
from dragoman.core.events import BROKER_DRAINING, SERVICE_PAUSED, SERVICE_RESUMED
from dragoman.core.job_extras import without_needs
from dragoman.core.job_limits import broker_limit_reached, principal_limit_reached
from dragoman.core.model import Job, JobId, Service
from dragoman.core.owners import Owner
from dragoman.core.rights import Principals
from dragoman.core.shared_state import SharedState
from dragoman.core.states import DELAYED, REFUSED, WAITING, RemovalReason


class Operator:
    """Executes what an operator asks for: of a service, a quarantined job, or the whole broker."""

    def __init__(
        self, state: SharedState, dispatch: Dispatch, delays: Delays, attempts: Attempts, principals: Principals
    ) -> None:
        self._principals = principals
        self._policy = state.policy
        self._entropy = state.entropy
        self._counters = state.counters
        self._effects = state.effects
        self._events = state.events
        self._job_registry = state.job_registry
        self._worker_registry = state.worker_registry
        self._dispatch = dispatch
        self._delays = delays
        self._attempts = attempts

    # ---------------------------------------------------------------- services

    def pause(
        self, name: str, by: str = "an operator", at: float | None = None, owner: Owner | None = None
    ) -> Service | None:
        """Stop dispatching jobs of this service. New jobs are still accepted. `at`: the time; None: not known. `owner`:
        of the request."""
        service = self._worker_registry.names.service(name, owner)
        if service is not None:
            was_paused = service.paused
            service.paused, service.paused_by = True, by
            service.update_closed()
            if not was_paused:
                service.paused_at = at
            if not was_paused and self._events.wanted & SERVICE_PAUSED:
                self._events.service_changed(SERVICE_PAUSED, service)
        return service

    def resume(self, name: str, now: float) -> None:
        service = self._worker_registry.services.get(name)
        if service is not None and service.paused:
            service.paused, service.paused_by, service.paused_at = False, "", None
            service.update_closed()
            if self._events.wanted & SERVICE_RESUMED:
                self._events.service_changed(SERVICE_RESUMED, service)
            self._dispatch.dispatch_waiting(service, now)

    # ---------------------------------------------------------------- principals

    def limits_changed(self, now: float) -> None:
        """Dispatch jobs that waited because of `max_running`, as far as the new limits of principals allow it."""
        for principal in self._principals:
            self._dispatch.unblock(principal, now)

    # ---------------------------------------------------------------- quarantined jobs

    def retry(self, job: Job, now: float) -> Job | None:
        """Make a new job from a quarantined job and release that. It has the same key. None: not quarantined, another
        job holds its key, or a limit is reached."""
        if not job.quarantined or job.id not in self._job_registry.jobs or self._dispatch.is_draining:
            return None
        kept = self._job_registry.kept
        if kept.key_taken_from(job) is not None:
            return None
        if keeps_forever(job) and not kept.has_room_forever(job.principal):
            return None
        service = self._worker_registry.names.restore_service(job.service.name)
        job_options = replace(job.options, delay=0.0) if job.options.delay else job.options
        id = self._entropy.job_id()
        if self._dispatch.marks_shards:  # a retry is in the shard of the first job
            id = JobId(id[:-1] + self._dispatch.shard_byte(job))
        again = self._job_registry.admit(
            id, service, job.payload, (), job_options, now, None, job.owner, is_submit=False
        )
        if again is not None:
            again.retry_of, again.caller_dialect = job.id, job.caller_dialect
            if job.extras is not None:
                self._job_registry.with_extras.add(again, without_needs(job.extras))
            self._job_registry.groups.enter(again)
            if job.key is not None:
                again.key, again.digest = job.key, job.digest
                kept.keys.add(again)
            self._job_registry.conversations.begin_retry(again, now)
            kept.leave_quarantine(again)
            self._delays.add(again, now)
        return again

    def release(self, job: Job, now: float) -> bool:
        """Queue a quarantined job again under the same id, with all its attempts; its history stays (R135). False: not
        quarantined, a later job has its key, or a limit is reached."""
        if not job.quarantined or self._job_registry.jobs.get(job.id) is not job or self._dispatch.is_draining:
            return False
        if job.key is not None and self._job_registry.kept.keys.find_of(job) is not job:
            return False
        registry, policy = self._job_registry, self._policy
        service = self._worker_registry.names.restore_service(job.service.name)
        size = len(job.payload)
        owner = job.principal
        if broker_limit_reached(registry, policy, service, size, owner) or principal_limit_reached(owner, size):
            return False
        registry.kept.reopen(job, service, now)
        registry.links.reopened(job.id)
        registry.groups.reopened(job)
        enter_job(registry, job)
        registry.pending_commits.save(job, rewrites=job.extras is not None)
        self._counters.released += 1
        self._dispatch.queue(job, now)
        return True

    # ---------------------------------------------------------------- the broker

    def close(self, now: float) -> None:
        """Start to drain the broker: no job is accepted, waiting calls are refused, running jobs may finish."""
        if not self._dispatch.is_draining and self._events.wanted & BROKER_DRAINING:
            self._events.broker_draining(sum(len(worker.running) for worker in self._worker_registry.workers.values()))
        self._dispatch.is_draining = True
        for job in [
            j for j in self._job_registry.jobs.values() if j.state in (WAITING, DELAYED) and not j.options.durable
        ]:
            self._attempts.end_early(job, REFUSED, REFUSED_DRAINING, now, refusal_when_draining(job))

    def abort(self, now: float) -> None:
        """End every running attempt: the time for draining is over."""
        for worker in list(self._worker_registry.workers.values()):
            self._effects.append(RemoveWorker(worker, RemovalReason.STOPPED, BROKER_STOPS))
            self._attempts.leave(worker, now, STOPPED if worker.running else BROKER_STOPS, ())
