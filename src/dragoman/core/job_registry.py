"""The job registry: admits and ends jobs. It also holds ended jobs whose outcome is kept (`core/kept_jobs.py`)."""

from __future__ import annotations

from typing import Any, Final

from dragoman.core.commits import PendingCommits
from dragoman.core.conversations import Conversations
from dragoman.core.counters import QUEUE_TIMEOUT, Counters
from dragoman.core.deadlines import Deadlines
from dragoman.core.early_results import EarlyResults
from dragoman.core.effects import DeliverOutcome, Effect
from dragoman.core.events import JOB_ENDED, Events
from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.core.kept_jobs import KeptJobs, digest
from dragoman.core.kept_parts import KeptParts
from dragoman.core.lifecycle import move_job
from dragoman.core.memory import MemoryAccount
from dragoman.core.model import Caller, Job, JobId, Payload, Service
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.remembered import RememberedRequests
from dragoman.core.retries import record_last_attempt
from dragoman.core.rights import NO_LIMITS, Principal
from dragoman.core.running_limits import Unblocker
from dragoman.core.shares import administers, has_queue_share, has_share, share_mark
from dragoman.core.states import DONE, ENDED, RUNNING, TIMED_OUT, Outcome, RefusalReason


class JobRegistry:
    """All jobs of the broker, with their limits."""

    def __init__(
        self, policy: Policy, counters: Counters, deadlines: Deadlines[Any], effects: list[Effect], events: Events
    ) -> None:
        self.jobs: dict[JobId, Job] = {}  # all present jobs, and ended jobs whose outcome is kept
        self.loadings = 0  # times that jobs of an earlier run were restored to the end
        self.is_loading = False  # jobs of an earlier run are being restored: ids and keys in use are not all known
        self.present = 0  # number of jobs accepted and not ended
        self.memory = memory = MemoryAccount(policy.max_memory)  # it counts the payloads of present jobs
        self.early = EarlyResults(memory)  # results that may belong to jobs that are being restored
        self.parts = KeptParts(memory)
        self.events = events
        self.conversations = Conversations(policy)
        self.pending_commits = PendingCommits(effects)
        self.kept = KeptJobs(self.jobs, policy, counters, deadlines, effects, events, self.pending_commits)
        self.remembered = RememberedRequests(policy, self.pending_commits)
        self.links, self.groups, self.with_extras = self.kept.links, self.kept.groups, self.kept.with_extras
        self.unblocker = Unblocker()
        # Below these no principal can be over its share: it has at most what is taken, and so not more than is free.
        self._jobs_mark: Final = share_mark(policy.max_jobs)
        self._queue_mark: Final = share_mark(policy.max_jobs_per_service)
        self._limits_bytes = policy.max_bytes_per_service > 0 or policy.max_bytes_per_caller > 0
        self._policy = policy
        self._counters = counters
        self._deadlines = deadlines
        self._effects = effects

    def admit(
        self,
        id: JobId,
        service: Service,
        payload: Payload,
        callers: tuple[Caller, ...],
        job_options: JobOptions,
        now: float,
        key: str | None,
        owner: Owner,
        *,
        is_submit: bool = True,
    ) -> Job | None:
        """Add a job. None: a limit is reached (R15). `key` must be unused (R24). `is_submit`: max_rate applies."""
        policy = self._policy
        size, principal = len(payload), owner.principal
        if (
            (self.is_loading and key is not None)
            or (self.present >= self._jobs_mark and not self.has_job_share(principal))
            or (
                service.queue.length >= self._queue_mark
                and not has_queue_share(service, policy.max_jobs_per_service, principal)
            )
            or (owner.jobs >= policy.max_jobs_per_caller and owner.is_limited)
            or (self.memory.payloads + size > self.memory.mark and not self.has_memory_share(principal, size))
            or (self._limits_bytes and owner.exceeds_bytes(policy, service.bytes, size))
            or (
                principal.limits is not NO_LIMITS
                and job_options.is_limited
                and not (principal.has_room(size) and (not is_submit or principal.take_rate(now)))
            )
        ):
            return None
        job = Job(id, service, payload, callers, job_options, now, owner)
        self.jobs[id] = job
        if job_options.is_limited:
            principal.waiting += 1
            principal.waiting_bytes += size
        service.jobs += 1
        service.bytes += size
        owner.jobs += 1
        owner.bytes += size
        principal.bytes += size
        if not service.is_known and service.jobs == 1 and owner.is_limited:
            service.charge(owner)
        self.present += 1
        self.memory.payloads += size
        self._counters.accepted += 1
        if now >= self.conversations.next_at:
            self.conversations.begin(job, now)
        if key is not None:
            job.key = key
            job.digest = digest(payload)
            self.kept.keys.add(job)
        return job

    def has_job_share(self, principal: Principal) -> bool:
        """Tell if a principal may have one more job (R254)."""
        held = principal.waiting + principal.running + principal.taken
        return has_share(self._policy.max_jobs, self.present, held, 1, is_administrator=administers(principal))

    def has_memory_share(self, principal: Principal, size: int) -> bool:
        """Tell if there is room for a payload of this principal (R254)."""
        memory = self.memory
        if not memory.fits(size):
            return False
        most, taken = memory.payload_limit, memory.payloads
        return has_share(most, taken, principal.bytes, size, is_administrator=administers(principal))

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
        is_slow = attempt is not None and now - attempt.given > job.service.slow_run
        if is_slow or job.conversation is not None or outcome is not DONE:
            self.conversations.ended(job, attempt, outcome, reason, now)
        job.attempt = None
        if attempt is not None and attempt.parts is not None:
            self.parts.drop(attempt)
        move_job(job, ENDED)
        job.outcome = outcome
        service, owner, size = job.service, job.owner, len(job.payload)
        service.jobs -= 1
        service.bytes -= size
        owner.jobs -= 1
        owner.bytes -= size
        owner.principal.bytes -= size
        if not service.jobs and service.owner is not None:
            service.discharge()
        if outcome is DONE:
            service.done += 1
            self._counters.done += 1
        else:
            service.undone[outcome] += 1
            self._counters.undone[outcome] += 1
        self.present -= 1
        self.memory.payloads -= size
        if job.alarm != inf:
            self._deadlines.disarm(job)
        if owner.principal.blocked or service.limits is not None:
            self.unblocker.stopped(job, now)
        if not job.quarantined:
            job.payload = b""
        if job.key is not None or job.options.durable:  # `is_kept`
            job.result = result
            job.reason = reason
            job.failure = failure
            job.ended = now
            if job.extras is not None or self.links.links or self.links.watched:
                self.groups.job_ended(job, now)
            self.kept.keep(job, now, refusal)
            return
        del self.jobs[job.id]
        if self.with_extras.count:
            self.with_extras.remove(job)
        if self.events.wanted & JOB_ENDED:
            self.events.job_ended(job, reason)
        if outcome is DONE and not job.callers:
            self._counters.unclaimed_results += 1
        for caller in job.callers:
            self._effects.append(DeliverOutcome(caller, job, outcome, result, reason, refusal, failure))
