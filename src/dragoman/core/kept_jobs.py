"""Jobs whose outcome is kept after their end: background jobs, and jobs with an idempotency key.

They are found again by key, more callers may wait for them, their outcome is delivered again until its retention time
has passed, and a job in quarantine may be retried or released.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from dragoman.core.archive import Archive
from dragoman.core.commits import AfterCommit, PendingCommits
from dragoman.core.counters import Counters
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import DeliverOutcome, Effect
from dragoman.core.events import JOB_ENDED, Events
from dragoman.core.extras_index import ExtrasIndex
from dragoman.core.groups import NEEDED_DELAY, Groups
from dragoman.core.infinity import inf
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.job_counting import count_job
from dragoman.core.job_links import JobLinks
from dragoman.core.kept_counts import KeptCounts
from dragoman.core.lifecycle import move_job
from dragoman.core.model import Caller, Job, JobId, Payload, Service
from dragoman.core.names import is_name
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.quarantine import Quarantine
from dragoman.core.states import ENDED, WAITING, Outcome, RefusalReason
from dragoman.core.store_entries import DeleteJob


class KeptJobs:
    """The part of the registry's jobs whose outcome is kept, with their keys. `jobs`: all jobs of the registry."""

    def __init__(
        self,
        jobs: dict[JobId, Job],
        policy: Policy,
        counters: Counters,
        deadlines: Deadlines[Any],
        effects: list[Effect],
        events: Events,
        pending_commits: PendingCommits,
    ) -> None:
        self.archive = Archive(policy.max_outcome_bytes)
        self.links = JobLinks(deadlines, self.archive)
        self.groups = Groups(policy, deadlines, self.archive, self.links, pending_commits, effects)
        self.counts = KeptCounts()
        self.quarantine = Quarantine()
        self.with_extras = ExtrasIndex()  # of all jobs of the registry
        self._jobs = jobs
        self._policy = policy
        self._counters = counters
        self._deadlines = deadlines
        self._effects = effects
        self._events = events
        self._pending_commits = pending_commits

    # ---------------------------------------------------------------- idempotency keys (R24)

    def first_with(self, owner: Owner, service: Service, key: str) -> Job | None:
        """Return the job of the same principal that has this key."""
        return self.archive.find(owner.principal.name, service.name, key)

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
        if first.options.durable and first.state is not ENDED and self._pending_commits.has_accepted(first):
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

    # ---------------------------------------------------------------- quarantine

    def leave_quarantine(self, again: Job) -> None:
        """Take the job that this one retries out of quarantine, and link it. The store is not updated: after a restart,
        `retry_of` of this job has the same information."""
        first = self._jobs.get(again.retry_of) if again.retry_of is not None else None
        if first is not None:
            if first.quarantined:
                self._count_quarantined(first, -1)
            first.quarantined, first.retried_as = False, again.id

    def _return_to_quarantine(self, again: Job) -> None:
        """Undo `leave_quarantine`: the retry could not be stored."""
        first = self._jobs.get(again.retry_of) if again.retry_of is not None else None
        if first is not None and first.retried_as == again.id:
            first.quarantined, first.retried_as = True, None
            self._count_quarantined(first, 1)
            self.groups.returned(first, again)

    def reopen(self, job: Job, service: Service, now: float) -> None:
        """Take a job out of quarantine, and make it a waiting job. Only its history stays (R135)."""
        self._deadlines.disarm(job)
        self.archive.drop(job)
        self._count(job, -1)
        move_job(job, WAITING)
        reset_job(job, service, now)

    # ---------------------------------------------------------------- outcomes that are kept

    def deliver(self, job: Job, newcomers: tuple[Caller, ...] = (), refusal: RefusalReason | None = None) -> None:
        """Deliver a kept outcome to its callers, and to `newcomers`."""
        assert job.outcome is not None
        if not job.is_told and self._events.wanted & JOB_ENDED:
            self._events.job_ended(job, job.reason)
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

    def forget(self, job: Job) -> None:
        """Remove an ended job that another broker of the cluster keeps now. The store is not told."""
        self._deadlines.disarm(job)
        self._drop(job)

    def expire(self, job: Job, now: float) -> None:
        """Delete a job whose retention time has passed, unless it is needed: then look again later (R192)."""
        until = now + NEEDED_DELAY if self.archive.is_pinned(job) else self.groups.needed_until(job, now)
        if until <= now:
            self.erase(job)
            return
        if not job.is_archived:
            self.archive.keep(job, now)
        job.keep_until = until
        self._deadlines.arm(job, until)

    def keep(self, job: Job, now: float, refusal: RefusalReason | None) -> None:
        """Keep the outcome for later requests, within limits (L20)."""
        self._count(job, 1)
        if refusal is RefusalReason.STORE_UNAVAILABLE:  # never acknowledged and never stored: treated as not submitted
            self.deliver(job, refusal=refusal)
            self._return_to_quarantine(job)
            self._drop(job)
            return
        if not job.outlives_end:
            if job.options.durable:
                # Deleted after the commit: nothing is delivered before.
                self._pending_commits.save(job, AfterCommit.DELIVER)
            else:
                self.deliver(job, refusal=refusal)
                self._drop(job)
            return
        self.archive.keep(job, now + self._policy.outcome_retention)
        self._deadlines.arm(job, job.keep_until)
        if job.options.durable:
            self._pending_commits.save(job, AfterCommit.DELIVER)
        else:
            self.deliver(job, refusal=refusal)
        for oldest in self.archive.over_limit():
            self.erase(oldest)

    def _drop(self, job: Job) -> None:
        del self._jobs[job.id]
        if self.with_extras.count:
            self.with_extras.remove(job)
        self.archive.drop(job)
        self._count(job, -1)
        self.groups.erased(job)

    def _count(self, job: Job, change: int) -> None:
        """Count an ended job that is kept from now on (1), or no longer (-1)."""
        if change > 0:
            self.counts.change(job, change)
        if job.quarantined:
            self._count_quarantined(job, change)
        if change < 0:
            self.counts.change(job, change)

    def _count_quarantined(self, job: Job, change: int) -> None:
        """Count a kept job that enters the quarantine (1), or leaves it (-1)."""
        self.counts.change_quarantined(job, change)
        if change > 0:
            self.quarantine.add(job)
        else:
            self.quarantine.remove(job)

    def restore_ended(self, job: Job, outcome: Outcome, keep_until: float) -> None:
        """Restore an ended job whose outcome is kept."""
        self._jobs[job.id] = job
        count_job(job, WAITING, 1)  # as every new job; the move ends that
        move_job(job, ENDED)
        job.outcome = outcome
        self._count(job, 1)
        job.is_told = True
        if job.key is not None:
            self.archive.note_key(job)
        self.archive.keep(job, keep_until)
        self._deadlines.arm(job, keep_until)


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
