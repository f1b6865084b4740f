"""Jobs whose outcome is kept after their end: background jobs, and jobs with an idempotency key.

They are found again by key, more callers may wait for them, their outcome is delivered again until its retention time
has passed, and a job in quarantine may be retried or released.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from dragoman.core.archive import FOREVER, Archive, keeps_forever
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
from dragoman.core.job_extras import without_needs
from dragoman.core.job_keys import JobKeys, holds_key
from dragoman.core.job_links import JobLinks
from dragoman.core.kept_counts import KeptCounts
from dragoman.core.lifecycle import move_job
from dragoman.core.model import ABSENT, Caller, Job, JobId, Payload, Service
from dragoman.core.names import is_name
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.quarantine import Quarantine
from dragoman.core.rights import Principal
from dragoman.core.shares import Shares, administers, share_problem
from dragoman.core.states import ENDED, WAITING, Outcome, RefusalReason

Refused = tuple[RefusalReason, str, str]  # the reason, the error message, and the limit that is reached, if any


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
        self.links = JobLinks(deadlines, self.archive, policy.max_links)
        self.groups = Groups(policy, deadlines, self.archive, self.links, pending_commits, effects)
        self.keys = JobKeys()
        self.has_store = False  # payloads and results can be fetched from the store
        # Jobs whose outcome is kept until it is deleted, ended or not, by principal (R254).
        self.forever_shares = Shares(policy.max_kept_forever)
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
        """Return the job of the same principal that holds this key."""
        latest = self.keys.find(owner.principal.name, service.name, key)
        return latest if latest is not None and holds_key(latest) else None

    def key_taken_from(self, job: Job) -> Job | None:
        """Return the other job that holds the key of this one now, or None."""
        if job.key is None:
            return None
        latest = self.keys.find_of(job)
        return latest if latest is not None and latest is not job and holds_key(latest) else None

    def judge(
        self,
        owner: Owner,
        service: Service,
        key: str | None,
        payload: Payload,
        job_options: JobOptions,
        more_forever: int = 0,
    ) -> tuple[Job | None, Refused | None]:
        """Return the job that already has the key of a submit, or the reason to refuse the submit. `more_forever`: jobs
        of the same batch before it whose outcome is kept until it is deleted."""
        first = None
        if key is not None:
            if not is_name(key, self._policy.max_key_bytes):
                most = self._policy.max_key_bytes
                return None, (RefusalReason.INVALID, f"a key is 1 to {most} bytes of visible text", "")
            first = self.first_with(owner, service, key)
        if first is not None:
            if job_options.durable and not first.options.durable:  # not stored: it cannot be acknowledged
                return None, (RefusalReason.KEY_REUSED, f"'{key}' came with a call before", "")
            if first.digest != digest(payload):
                return None, (RefusalReason.KEY_REUSED, f"'{key}' came with another payload before", "")
        elif (
            job_options.keep == inf and job_options.durable and not self.has_room_forever(owner.principal, more_forever)
        ):
            return None, (RefusalReason.BUSY, self.forever_problem(owner.principal, more_forever), "max_kept_forever")
        return first, None

    @property
    def forever(self) -> int:
        """Number of jobs whose outcome is kept until it is deleted, ended or not."""
        return self.forever_shares.taken

    def has_room_forever(self, principal: Principal, more: int = 0) -> bool:
        """True if one more outcome of a principal may be kept until it is deleted (L20). `more`: those before it."""
        return self.forever_shares.allows_holder(principal.name, more + 1, is_administrator=administers(principal))

    def forever_problem(self, principal: Principal, more: int = 0) -> str:
        """Return the error message for one more."""
        advice = "delete outcomes that are not needed, or keep this one for a number of seconds"
        shares, name = self.forever_shares, principal.name
        if self.forever + more >= shares.most:
            text = f"the broker has {self.forever + more} jobs whose outcome is kept until it is deleted, the maximum"
            return f"{text} (max_kept_forever); {advice}"
        things = "jobs whose outcome is kept until it is deleted"
        held = shares.held(name) + more
        return f"{share_problem(name, held, self.forever + more, shares.most, things, 'max_kept_forever')}; {advice}"

    def note_new(self, job: Job) -> None:
        """Note what few jobs have: an outcome that is kept until it is deleted."""
        if keeps_forever(job):
            self.forever_shares.enter(job.principal.name)

    def disown(self, job: Job) -> None:
        """Undo `note_new` and give its key up: another broker of the cluster decides about this job now."""
        self.keys.remove(job)
        if keeps_forever(job):
            self.forever_shares.leave(job.principal.name)

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
        self.archive.reopen(job)
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

    def erase(self, job: Job, *, is_waited_for: bool = False) -> None:
        """Delete a job whose retention time has passed, that exceeds the limit, or that somebody deletes.
        `is_waited_for`: an answer waits for the commit."""
        while True:
            self._deadlines.disarm(job)
            self._drop(job)
            self._counters.erased += 1
            if job.options.durable:
                self._pending_commits.delete(job, is_waited_for)
            first = self._jobs.get(job.retry_of) if job.retry_of is not None else None
            if first is None or first.retried_as != job.id:
                return
            # In the store, the first job is in quarantine and has the key, as long as there is a retry of it.
            first.retried_as = None
            self.keys.remove(first)
            first.key = None
            if first.outlives_end or self.archive.is_pinned(first):  # its timer is set
                self._pending_commits.save(first, rewrites=True)
                return
            job = first

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
        self.archive.keep(job, self.keep_until(job, now))
        if job.keep_until != FOREVER:
            self._deadlines.arm(job, job.keep_until)
        if job.options.durable:
            self._pending_commits.save(job, AfterCommit.DELIVER)
        else:
            self.deliver(job, refusal=refusal)
        for oldest in self.archive.over_limit():
            self.erase(oldest)

    def keep_until(self, job: Job, now: float) -> float:
        """Return the time until which an outcome is kept that is there now. In quarantine a job is kept at least as
        long as the policy says (R136)."""
        if keeps_forever(job):
            return FOREVER
        keep, usual = job.options.keep, self._policy.outcome_retention
        if keep is None or keep == inf or (job.quarantined and keep < usual):
            return now + usual
        return now + keep

    def leave_to_store(self, job: Job) -> None:
        """Free the memory of an outcome that is kept until it is deleted. The store has all of it but the progress."""
        if not self.has_store:
            return
        job.result = ABSENT
        job.failure = job.progress = None
        if job.quarantined or job.retried_as is not None:
            job.payload = ABSENT

    def _drop(self, job: Job) -> None:
        del self._jobs[job.id]
        if self.with_extras.count:
            self.with_extras.remove(job)
        self.archive.drop(job)
        self.disown(job)
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
            self.keys.add(job)
        self.archive.keep(job, keep_until)
        if keep_until != FOREVER:
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
    if job.extras is not None:
        job.extras = without_needs(job.extras)
    job.start_at = 0.0
    job.keep_until = job.queue_due = inf


def digest(payload: Payload) -> bytes:
    return blake2b(payload, digest_size=16).digest()
