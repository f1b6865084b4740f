"""The job registry: admits and ends jobs. It also holds ended jobs whose outcome is kept."""

from __future__ import annotations

from dragoman.core.counters import QUEUE_TIMEOUT
from dragoman.core.effects import DeliverOutcome
from dragoman.core.events import JOB_ENDED, JOB_MOVES
from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.core.kept_jobs import BEING_READ, KeptJobs, digest
from dragoman.core.lifecycle import move_job
from dragoman.core.model import Caller, Job, JobId, Payload, Service
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.retries import record_last_attempt
from dragoman.core.states import DONE, ENDED, RUNNING, TIMED_OUT, JobState, Outcome, RefusalReason


class JobRegistry(KeptJobs):
    """All jobs of the broker, with their limits."""

    __slots__ = ()

    def admit(
        self,
        id: JobId,
        service: Service,
        payload: Payload,
        callers: tuple[Caller, ...],
        job_options: JobOptions,
        now: float,
        key: str | None = None,
        owner: Owner | None = None,
    ) -> Job | None:
        """Add a job. None: a limit is reached (R15). `key` must be unused (R24). `owner`: its limits apply."""
        policy = self._policy
        if (
            (self.is_loading and key is not None)
            or self.present >= policy.max_jobs
            or service.queue.length >= policy.max_jobs_per_service
            or (owner is not None and owner.jobs >= policy.max_jobs_per_caller)
            or self.bytes + len(payload) > policy.max_memory
        ):
            return None
        job = Job(id, service, payload, callers, job_options, now)
        self.jobs[id] = job
        service.jobs += 1
        if owner is not None:
            job.owner = owner
            owner.jobs += 1
            if not service.is_known and service.jobs == 1:
                service.charge(owner)
        self.present += 1
        self.bytes += len(payload)
        self._counters.accepted += 1
        if key is not None:
            job.key = key
            job.digest = digest(payload)
            self._archive.note_key(job)
        return job

    def limit_reached(self, service: Service, key: str | None, owner: Owner | None) -> str:
        """Return an error message that names the limit that one more job would exceed."""
        policy = self._policy
        if self.is_loading and key is not None:
            return BEING_READ
        if self.present >= policy.max_jobs:
            return f"the broker holds {self.present} jobs, the maximum (max_jobs); retry later"
        if service.queue.length >= policy.max_jobs_per_service:
            queued = service.queue.length
            return f"{queued} jobs wait for this service, the maximum (max_jobs_per_service); retry later"
        if owner is not None and owner.jobs >= policy.max_jobs_per_caller:
            return f"{owner.label} has {owner.jobs} jobs, the maximum (max_jobs_per_caller); retry when some have ended"
        return f"payloads of jobs take {self.bytes} of {policy.max_memory} bytes (max_memory); retry later"

    def end(
        self,
        job: Job,
        outcome: Outcome,
        result: Payload,
        reason: str,
        now: float,
        refusal: RefusalReason | None = None,
        failure: Failure | None = None,
    ) -> None:
        attempt = job.attempt
        if outcome is TIMED_OUT and attempt is None and (job.state is not RUNNING or job.queue_due <= now):
            self._counters.drop(job.service.name, QUEUE_TIMEOUT, reason)
        if attempt is not None and attempt.is_sent and job.options.durable:
            record_last_attempt(job, attempt, outcome, reason, now)
        job.attempt = None
        if attempt is not None and attempt.parts is not None:
            self.detach_attempt(attempt)
        move_job(job, ENDED)
        job.outcome = outcome
        service = job.service
        service.jobs -= 1
        if job.owner is not None:
            job.owner.jobs -= 1
        if not service.jobs and service.owner is not None:
            service.discharge()
        if outcome is DONE:
            service.done += 1
            self._counters.done += 1
        else:
            service.undone[outcome] += 1
            self._counters.undone[outcome] += 1
        self.present -= 1
        self.bytes -= len(job.payload)
        if job.alarm != inf:
            self._deadlines.disarm(job)
        if not job.quarantined:
            job.payload = b""
        if job.key is not None or job.options.durable:  # `is_kept`
            job.result = result
            job.reason = reason
            job.failure = failure
            job.ended = now
            self._keep(job, now, refusal)
            return
        del self.jobs[job.id]
        if self.events.wanted & JOB_ENDED:
            self.events.job_ended(job, reason)
        if outcome is DONE and not job.callers:
            self._counters.unclaimed_results += 1
        for caller in job.callers:
            self._effects.append(DeliverOutcome(caller, job, outcome, result, reason, refusal, failure))

    def move(self, job: Job, to: JobState) -> None:
        move_job(job, to)
        if self.events.wanted & JOB_MOVES:
            self.events.job_moved(job)
