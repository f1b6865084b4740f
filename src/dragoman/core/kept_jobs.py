"""Jobs that outlive their call: background jobs, and jobs with an idempotency key.

They are stored, found again by key, kept for a while after their end, released from quarantine, and restored after a
restart of the broker. The registry of jobs (`core/job_registry.py`) adds the two steps that every job takes: it is
admitted, and it ends.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

from dragoman.core.archive import Archive
from dragoman.core.commits import AfterCommit, PendingCommits
from dragoman.core.counters import Counters
from dragoman.core.deadlines import Deadlines
from dragoman.core.early_results import EarlyResults
from dragoman.core.effects import Acknowledge, DeliverOutcome, Effect
from dragoman.core.events import JOB_ENDED, Events
from dragoman.core.infinity import inf
from dragoman.core.lifecycle import move_job
from dragoman.core.model import ABSENT, Attempt, Caller, Job, JobId, Payload, Service
from dragoman.core.names import is_name
from dragoman.core.options import JobOptions
from dragoman.core.parts import Parts
from dragoman.core.policy import Policy
from dragoman.core.states import ENDED, WAITING, Outcome, RefusalReason
from dragoman.core.store_entries import DeleteJob

BEING_READ: Final = "the store is still being read, and may have this job: retry in a moment"


class KeptJobs:
    """State of the job registry, and the operations on jobs that are kept."""

    __slots__ = (
        "_archive",
        "_counters",
        "_deadlines",
        "_effects",
        "_policy",
        "bytes",
        "early",
        "events",
        "is_loading",
        "jobs",
        "part_bytes",
        "pending_commits",
        "present",
    )

    def __init__(
        self,
        policy: Policy,
        counters: Counters,
        deadlines: Deadlines[Any],
        effects: list[Effect],
        events: Events,
    ) -> None:
        self.jobs: dict[JobId, Job] = {}  # all present jobs, and ended jobs whose outcome is kept
        self.present = 0  # number of jobs accepted and not ended
        self.bytes = 0  # size of their payloads
        self.part_bytes = 0  # size of the parts of their results
        self.is_loading = False  # jobs of an earlier run are being restored: ids and keys in use are not all known
        self.early = EarlyResults(policy.max_memory)  # results that may belong to those
        self.events = events
        self.pending_commits = PendingCommits()
        self._archive = Archive(policy.max_outcome_bytes)
        self._policy = policy
        self._counters = counters
        self._deadlines = deadlines
        self._effects = effects

    def id_conflict(self, id: JobId, job_options: JobOptions) -> tuple[RefusalReason, str] | None:
        """Return the reason to refuse an id that the caller chose, or None."""
        if id in self.jobs:
            return RefusalReason.INVALID, "a job with this id already exists"
        if self.is_loading and job_options.durable:
            return RefusalReason.BUSY, BEING_READ
        return None

    def save(self, job: Job, after_commit: AfterCommit = AfterCommit.NOTHING) -> None:
        self._effects.append(self.pending_commits.hold(job, after_commit))

    def rewrite(self, job: Job) -> None:
        """Store the job with its options, which have changed."""
        self._effects.append(self.pending_commits.hold(job, AfterCommit.NOTHING, rewrites=True))

    # ---------------------------------------------------------------- idempotency keys (R24)

    def first_with(self, service: Service, key: str) -> Job | None:
        return self._archive.find(service.name, key)

    def key_conflict(
        self, key: str, first: Job | None, payload: Payload, job_options: JobOptions
    ) -> tuple[RefusalReason, str] | None:
        """Return the reason to refuse a submit with this key, or None. `first`: the job that already has the key."""
        if not is_name(key, self._policy.max_key_bytes):
            return RefusalReason.INVALID, f"a key is 1 to {self._policy.max_key_bytes} bytes of printable text"
        if first is None:
            return None
        if job_options.durable and not first.options.durable:  # not stored: it cannot be acknowledged
            return RefusalReason.KEY_REUSED, f"'{key}' came with a call before"
        if first.digest != digest(payload):
            return RefusalReason.KEY_REUSED, f"'{key}' came with another payload before"
        return None

    def join_first(self, first: Job, caller: Caller) -> None:
        """Let one more caller wait for an earlier job, or deliver its outcome at once."""
        if not self.attend(first, caller):
            return
        if first.options.durable and first.state is not ENDED and self.pending_commits.has_accepted(first):
            self._effects.append(Acknowledge(caller, first))

    def attend(self, job: Job, caller: Caller) -> bool:
        """Add a caller that waits for this job. False if it has ended: the outcome is delivered at once."""
        if job.is_told:
            self.deliver(job, (caller,))
            return False
        job.callers += (caller,)
        caller.add_job(job)
        job.orphan_due = inf
        return True

    # ---------------------------------------------------------------- parts of results

    def keep_part(self, attempt: Attempt, part: Payload) -> None:
        """Keep a part of a result, for a caller that receives it whole."""
        parts = attempt.parts
        if parts is None:
            parts = attempt.parts = Parts()
        self.part_bytes -= parts.kept
        parts.add(part, attempt.worker.profile.max_payload, self._policy.max_memory - self.part_bytes)
        self.part_bytes += parts.kept

    def detach_attempt(self, attempt: Attempt) -> None:
        """Detach the attempt from its job, and drop the parts of its result."""
        attempt.job.attempt = None
        parts = attempt.parts
        if parts is not None:
            self.part_bytes -= parts.kept
            attempt.parts = None

    # ---------------------------------------------------------------- quarantine

    def leave_quarantine(self, again: Job) -> None:
        """Take the job that this one retries out of quarantine, and link it. The store is not updated: after a restart,
        `retry_of` of this job has the same information."""
        first = self.jobs.get(again.retry_of) if again.retry_of is not None else None
        if first is not None:
            first.quarantined, first.retried_as = False, again.id

    def _return_to_quarantine(self, again: Job) -> None:
        """Undo `leave_quarantine`: the retry could not be stored."""
        first = self.jobs.get(again.retry_of) if again.retry_of is not None else None
        if first is not None and first.retried_as == again.id:
            first.quarantined, first.retried_as = True, None

    def readmit(self, job: Job, service: Service, now: float) -> bool:
        """Admit a quarantined job again, with all its attempts (R135). False: a limit is reached."""
        if (
            self.present >= self._policy.max_jobs
            or service.queue.length >= self._policy.max_jobs_per_service
            or self.bytes + len(job.payload) > self._policy.max_memory
        ):
            return False
        self._deadlines.disarm(job)
        self._archive.drop(job)
        move_job(job, WAITING)
        reset_job(job, service, now)
        service.jobs += 1
        if job.owner is not None:
            job.owner.jobs += 1
        if job.key is not None:
            self._archive.note_key(job)
        self.present += 1
        self.bytes += len(job.payload)
        self._counters.released += 1
        self.save(job)
        return True

    # ---------------------------------------------------------------- outcomes that are kept

    def deliver(self, job: Job, newcomers: tuple[Caller, ...] = (), refusal: RefusalReason | None = None) -> None:
        """Deliver a kept outcome to its callers, and to `newcomers`."""
        assert job.outcome is not None
        if not job.is_told and self.events.wanted & JOB_ENDED:
            self.events.job_ended(job, job.reason)
        for caller in job.callers + newcomers:
            answer = DeliverOutcome(caller, job, job.outcome, job.result, job.reason, refusal, job.failure)
            self._effects.append(answer)
        job.callers = ()
        job.is_told = True

    def erase(self, job: Job) -> None:
        """Delete a job whose retention time has passed, or that exceeds the limit."""
        self._deadlines.disarm(job)
        self._drop(job)
        self._counters.erased += 1
        if job.options.durable:
            self._effects.append(DeleteJob(job))

    def _keep(self, job: Job, now: float, refusal: RefusalReason | None) -> None:
        """Keep the outcome for later requests, within limits (L20)."""
        if refusal is RefusalReason.STORE_UNAVAILABLE:  # never acknowledged and never stored: treated as not submitted
            self.deliver(job, refusal=refusal)
            self._return_to_quarantine(job)
            self._drop(job)
            return
        if not job.outlives_end:
            if job.options.durable:
                self.save(job, AfterCommit.DELIVER)  # deleted after the commit: nothing is delivered before
            else:
                self.deliver(job, refusal=refusal)
                self._drop(job)
            return
        self._archive.keep(job, now + self._policy.outcome_retention)
        self._deadlines.arm(job, job.keep_until)
        if job.options.durable:
            self.save(job, AfterCommit.DELIVER)
        else:
            self.deliver(job, refusal=refusal)
        for oldest in self._archive.over_limit():
            self.erase(oldest)

    def _drop(self, job: Job) -> None:
        del self.jobs[job.id]
        self._archive.drop(job)

    # ---------------------------------------------------------------- jobs of an earlier run

    def restore(self, job: Job) -> None:
        """Restore a job that has not ended. Limits do not apply: it was acknowledged."""
        self.jobs[job.id] = job
        job.service.jobs += 1
        self.present += 1
        self._counters.restored += 1
        if job.key is not None:
            self._archive.note_key(job)

    def restore_ended(self, job: Job, outcome: Outcome, keep_until: float) -> None:
        """Restore an ended job whose outcome is kept."""
        self.jobs[job.id] = job
        move_job(job, ENDED)
        job.outcome = outcome
        job.is_told = True
        if job.key is not None:
            self._archive.note_key(job)
        self._archive.keep(job, keep_until)
        self._deadlines.arm(job, keep_until)

    def fetched(self, job: Job, payload: Payload) -> None:
        """Set a payload that was only in the store."""
        if job.state is not ENDED and job.payload is ABSENT:
            job.payload = payload
            self.bytes += len(payload)


def reset_job(job: Job, service: Service, now: float) -> None:
    """Reset a job that leaves the quarantine. Only its history stays (R135)."""
    job.service = service
    job.arrival = now
    job.quarantined = job.is_told = False
    job.outcome = job.ended = job.progress = None
    job.reason, job.result = "", b""
    job.spent = job.deaths = job.refusals = 0
    job.tried = ()
    job.start_at = 0.0
    job.keep_until = job.queue_due = inf


def digest(payload: Payload) -> bytes:
    return blake2b(payload, digest_size=16).digest()
