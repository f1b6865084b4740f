"""Broker methods for operators and the store. No dialect has a message for them."""

from __future__ import annotations

from dataclasses import replace

from dragoman.core.admission import BROKER_STOPS, REFUSED_DRAINING, STOPPED
from dragoman.core.commits import AfterCommit
from dragoman.core.components import Components
from dragoman.core.effects import Acknowledge, RemoveWorker, SendJob
from dragoman.core.events import BROKER_DRAINING, SERVICE_PAUSED, SERVICE_RESUMED, WORKER_DRAINING
from dragoman.core.infinity import inf
from dragoman.core.model import Job, Service, Worker
from dragoman.core.states import DELAYED, DRAINING, ENDED, GONE, REFUSED, WAITING, RefusalReason, RemovalReason


class OperatorVerbs(Components):
    """The part of the broker that operators and the store call."""

    # ---------------------------------------------------------------- operators

    def pause(self, name: str, by: str = "an operator") -> Service | None:
        """Stop dispatching jobs of this service. New jobs are still accepted."""
        service = self.worker_registry.service(name)
        if service is not None:
            was_paused = service.paused
            service.paused, service.paused_by = True, by
            if not was_paused and self.events.wanted & SERVICE_PAUSED:
                self.events.service_changed(SERVICE_PAUSED, service)
        return service

    def resume(self, name: str, now: float) -> None:
        service = self.worker_registry.services.get(name)
        if service is not None and service.paused:
            service.paused, service.paused_by = False, ""
            if self.events.wanted & SERVICE_RESUMED:
                self.events.service_changed(SERVICE_RESUMED, service)
            self.dispatch.dispatch_waiting(service, now)

    def drain(self, worker: Worker, now: float, *, at_once: bool = False, stays: bool = False) -> None:
        """Give the worker no more jobs. Remove it once it holds none, unless it `stays`; or now, if `at_once` (D8)."""
        if worker.state is GONE:
            return
        if at_once:
            self.effects.append(RemoveWorker(worker, RemovalReason.KILLED, "killed by an operator"))
            self.attempts.leave(worker, now, "its worker was killed by an operator", ())
            return
        if worker.state is not DRAINING and self.events.wanted & WORKER_DRAINING:
            self.events.worker_changed(WORKER_DRAINING, worker)
        self.worker_registry.stop_dispatch(worker, stays)
        self.dispatch.remove_if_drained(worker)

    def retry(self, job: Job, now: float) -> Job | None:
        """Make a new job from a quarantined job and release that. None: not quarantined, or a limit is reached."""
        if not job.quarantined or job.id not in self.jobs or self.is_draining:
            return None
        service = self.worker_registry.restore_service(job.service.name)
        job_options = replace(job.options, delay=0.0) if job.options.delay else job.options
        again = self.job_registry.admit(
            self.entropy.job_id(), service, job.payload, (), job_options, now, None, job.owner
        )
        if again is not None:
            again.retry_of = job.id
            self.job_registry.leave_quarantine(again)
            self.delays.add(again, now)
        return again

    def release(self, job: Job, now: float) -> bool:
        """Queue a quarantined job again under the same id, with all its attempts; its history stays (R135). False: not
        quarantined, or a limit is reached."""
        if not job.quarantined or self.jobs.get(job.id) is not job or self.is_draining:
            return False
        if not self.job_registry.readmit(job, self.worker_registry.restore_service(job.service.name), now):
            return False
        self.dispatch.queue(job, now)
        return True

    def close(self, now: float) -> None:
        """Start to drain the broker: no job is accepted, waiting calls are refused, running jobs may finish."""
        if not self.is_draining and self.events.wanted & BROKER_DRAINING:
            self.events.broker_draining(sum(len(worker.running) for worker in self.worker_registry.workers.values()))
        self.is_draining = True
        for job in [j for j in self.jobs.values() if j.state in (WAITING, DELAYED) and not j.options.durable]:
            self.attempts.end_early(job, REFUSED, REFUSED_DRAINING, now, RefusalReason.DRAINING)

    def abort(self, now: float) -> None:
        """End every running attempt: the time for draining is over."""
        for worker in list(self.worker_registry.workers.values()):
            self.effects.append(RemoveWorker(worker, RemovalReason.STOPPED, BROKER_STOPS))
            self.attempts.leave(worker, now, STOPPED, ())

    # ---------------------------------------------------------------- store and time

    def saved(self, number: int, now: float, problem: str | None = None) -> None:
        """The store has committed everything up to this save, or could not: then new jobs are refused."""
        for job, after_commit, attempt in self.job_registry.pending_commits.release(number, problem is None):
            if after_commit is AfterCommit.SEND:
                if attempt is not None and job.attempt is attempt:
                    if attempt.worker.away_since == inf:
                        self.effects.append(SendJob(attempt))
                    else:  # it was detached during the commit
                        self.attempts.undelivered(attempt, now)
            elif after_commit is AfterCommit.DELIVER:
                self.job_registry.deliver(job)
                if not job.outlives_end:
                    self.job_registry.erase(job)
            elif after_commit is AfterCommit.ACKNOWLEDGE:
                if problem is None:
                    self.effects.extend(Acknowledge(caller, job) for caller in job.callers)
                elif job.state is not ENDED:
                    self.attempts.end_early(
                        job, REFUSED, f"store unavailable: {problem}", now, RefusalReason.STORE_UNAVAILABLE
                    )

    def extend_leases(self, gap: float, now: float) -> None:
        """Extend every lease by `gap` seconds, because the broker itself was paused (D13, R22)."""
        self._expiry.extend_leases(gap, now)
        self.resumed_at = now
