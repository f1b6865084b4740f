"""Attempts under way, and their ends without a result: the worker left, failed, declined the job, or timed out.

If no worker can have seen the job, it returns to its place in the queue and the attempt does not count (`not_started`,
R8). If a worker may have seen it, the attempt is used up (`spend`, R9): the job is retried after its retry delay, or
ends. If the worker may still run it, its slot stays taken until the worker proves free (`mark_stuck`, D11).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from dragoman.core.admission import CALLER_GONE, DEADLINE_PASSED, GIVEN_BACK, REFUSED_DRAINING, refusal_when_draining
from dragoman.core.delays import Delays
from dragoman.core.dispatch import Dispatch
from dragoman.core.effects import CancelAttempt, Effect, SendJob
from dragoman.core.events import JOB_PROGRESS
from dragoman.core.failure import Failure
from dragoman.core.finished_work import record_undone
from dragoman.core.infinity import inf
from dragoman.core.interim_effects import DeliverProgress
from dragoman.core.job_extras import JobExtras
from dragoman.core.leases import lease_expired_at
from dragoman.core.model import ABSENT, Attempt, Job, Payload, Token, Worker
from dragoman.core.retries import attempts_used_up, back_off, record_attempt, remember_tried
from dragoman.core.rights import WORK, Principal
from dragoman.core.shared_state import SharedState
from dragoman.core.states import CANCELLED, FAILED, GONE, LOST, REFUSED, TIMED_OUT, WAITING, Outcome, RefusalReason
from dragoman.core.task_parameters import is_newer
from dragoman.core.worker_registry import declares

MOST_REFUSAL: Final = 1_000  # characters of a worker's refusal that are kept with the job
PROGRESS_KEPT: Final = 65_536  # bytes: a longer report is delivered, but not kept


class Attempts:
    """Records what workers report of attempts, and ends those without a result, and the jobs that end with them."""

    __slots__ = (
        "_counters",
        "_deadlines",
        "_delays",
        "_dispatch",
        "_effects",
        "_entropy",
        "_events",
        "_job_registry",
        "_policy",
        "_worker_registry",
        "resumable",
    )

    def __init__(self, state: SharedState, dispatch: Dispatch, delays: Delays) -> None:
        self.resumable: dict[Token, Attempt] = {}  # attempts of an earlier run that may still be running (R107)
        self._policy = state.policy
        self._entropy = state.entropy
        self._events = state.events
        self._counters = state.counters
        self._worker_registry = state.worker_registry
        self._job_registry = state.job_registry
        self._deadlines = state.deadlines
        self._effects = state.effects
        self._dispatch = dispatch
        self._delays = delays

    # ---------------------------------------------------------------- reports

    def begin(self, attempt: Attempt, now: float) -> None:
        """Start the run time of an attempt whose worker has only now accepted the job."""
        attempt.begin(now)
        if attempt.job.attempt is attempt:
            self._deadlines.arm(attempt.worker, attempt.over_at)

    def extend(self, attempt: Attempt, seconds: float, now: float) -> bool:
        """Extend the attempt: its run time ends in this many seconds (R134). False if the attempt has ended."""
        attempt.worker.seen = now
        if attempt.job.attempt is not attempt:
            return False
        attempt.extend(seconds, now)
        self._deadlines.arm(attempt.worker, attempt.over_at)
        return True

    def limit(self, attempt: Attempt, seconds: float, now: float) -> None:
        """Let the run time of the attempt end in this many seconds at the latest: its worker may have dropped the job
        (R34). A heartbeat from its worker, too."""
        attempt.worker.seen = now
        attempt.due = min(attempt.due, now + seconds)
        if attempt.job.attempt is attempt:
            self._deadlines.arm(attempt.worker, attempt.over_at)

    def progress(self, attempt: Attempt, payload: Payload, now: float, *, is_part: bool = False) -> bool:
        """Deliver a progress report of a running job, or a part of its result. The last report is kept with the job; a
        part is kept if the caller receives the result whole. False if the attempt has ended."""
        attempt.worker.seen = now
        job = attempt.job
        if job.attempt is not attempt:
            return False
        if is_part and not job.options.streams:
            self._job_registry.parts.keep(attempt, payload)
            return True
        self._effects.extend(DeliverProgress(caller, attempt, payload, is_part) for caller in job.callers)
        if not is_part:
            if len(payload) <= PROGRESS_KEPT:
                job.progress = payload
            if self._events.wanted & JOB_PROGRESS:
                self._events.job_progressed(job, payload)
        return True

    # ---------------------------------------------------------------- reasons to end

    def leave(self, worker: Worker, now: float, reason: str, unseen: Iterable[Attempt]) -> None:
        """End the attempts of a worker that left. Those in `unseen` cannot have reached it."""
        if worker.state is GONE:
            return
        held = self._dispatch.removal.remove(worker, reason, now)
        never_left = {attempt.token for attempt in unseen}
        for attempt in held:
            if attempt.token in never_left or unsend(attempt, self._effects):
                self.not_started(attempt, now)
            else:
                self.spend(attempt, LOST, reason, now)

    def expire(self, attempt: Attempt, now: float) -> None:
        """Time out an attempt that is due: its own time has passed, or that of its job."""
        if attempt.job.deadline <= now:
            self.end_early(attempt.job, TIMED_OUT, DEADLINE_PASSED, now)
        else:
            self.time_out(attempt, now)

    def time_out(self, attempt: Attempt, now: float) -> None:
        """Time out an attempt (R7): it is used up, and its worker is stuck."""
        if unsend(attempt, self._effects):  # the broker was late, not the worker
            self.not_started(attempt, now)
            self.free_unsent(attempt, now)
            return
        reason = over_time(attempt)
        self.mark_stuck(attempt, now)
        self._effects.append(CancelAttempt(attempt, reason))
        self.spend(attempt, TIMED_OUT, reason, now)

    def end_early(
        self, job: Job, outcome: Outcome, reason: str, now: float, refusal: RefusalReason | None = None
    ) -> None:
        """End a job in any state. A worker that holds it is notified, and is stuck until it proves free."""
        attempt = job.attempt
        if job.state is WAITING and job.order != inf:
            job.service.queue.remove(job)
        elif job.needs:
            self._dispatch.for_knowing.remove(job)
        is_unseen = attempt is not None and unsend(attempt, self._effects)
        if attempt is not None and not is_unseen:
            self.mark_stuck(attempt, now)
            self._effects.append(CancelAttempt(attempt, reason))
        self._job_registry.end(job, outcome, b"", reason, now, refusal)
        if attempt is not None and is_unseen:
            self.free_unsent(attempt, now)

    def stopped(self, attempt: Attempt, now: float) -> bool:
        """Time out an attempt that its worker has stopped at its time limit, which was sent with the job (R220). The
        worker is free. False if it came late: usually this broker has timed it out first."""
        worker, job = attempt.worker, attempt.job
        worker.seen = now
        if job.attempt is not attempt:
            self.late_result(attempt, now)
            return False
        del worker.running[attempt.token]
        if job.deadline <= now:
            self._job_registry.end(job, TIMED_OUT, b"", DEADLINE_PASSED, now)
        else:
            self.spend(attempt, TIMED_OUT, over_time(attempt), now)
        self._dispatch.freed(worker, now)
        return True

    # ---------------------------------------------------------------- the worker's slot

    def free_unsent(self, attempt: Attempt, now: float) -> None:
        """Free the slot of an attempt that was never sent: the worker still requests a job."""
        worker = attempt.worker
        del worker.running[attempt.token]
        worker.asked += 1
        self._dispatch.freed(worker, now)

    def mark_stuck(self, attempt: Attempt, now: float) -> None:
        """Mark the slot as stuck: the attempt has ended, but its worker may still run it (D11)."""
        worker = attempt.worker
        del worker.running[attempt.token]
        attempt.stuck_since = now
        worker.stuck[attempt.token] = attempt
        self._worker_registry.settle(worker, now)
        # No other attempt is due earlier than before. Recomputing that for each attempt would take quadratic time.
        self._deadlines.arm(worker, lease_expired_at(worker))

    def late_result(self, attempt: Attempt, now: float) -> None:
        """Count a result that came after its attempt had ended. It only frees the worker's slot (D2, D11)."""
        self._counters.late_results += 1
        self._events.result_late(attempt)
        if attempt.worker.stuck.pop(attempt.token, None) is not None:
            self._dispatch.freed(attempt.worker, now)

    # ---------------------------------------------------------------- the job

    def not_started(self, attempt: Attempt, now: float) -> None:
        """Return the job to its place in the queue: no worker can have seen it, so no attempt is used up (R8)."""
        job = attempt.job
        job.attempt = None
        if job.conversation is not None:
            self._job_registry.conversations.returned(attempt, now)
        self._job_registry.parts.drop(attempt)
        job.refusals += 1
        remember_tried(job, attempt.worker)
        if self._dispatch.is_draining and not job.options.durable:
            self._job_registry.end(job, REFUSED, b"", REFUSED_DRAINING, now, refusal_when_draining(job))
        elif job.queue_due <= now:
            self._job_registry.end(
                job, TIMED_OUT, b"", f"no worker took it within {job.options.queue_timeout:g} s", now
            )
        elif self._outlives_caller(job, now):
            if job.refusals >= self._policy.max_undelivered:
                job.refusals = 0
                self._retry_at(job, now + self._policy.undelivered_delay, now)
            else:
                self._delays.requeue(job, now)

    def refuse(self, attempt: Attempt, now: float) -> bool:
        """The worker declined the job, as its profile allows: nothing has started (R8). It gets no job until `idle`."""
        worker = attempt.worker
        worker.seen = now
        worker.refused = attempt.token if worker.profile.may_decline else None
        if attempt.job.attempt is not attempt:
            self._worker_registry.settle(worker, now)
            return False
        self.mark_stuck(attempt, now)
        if worker.profile.may_decline:
            self.not_started(attempt, now)
        else:
            self.spend(attempt, FAILED, "its worker declined it", now)
        return True

    def reject(self, attempt: Attempt, reason: str, now: float) -> bool:
        """End a job *failed* that the worker's dialect cannot carry. It was never sent; the worker stays free."""
        if attempt.job.attempt is not attempt:
            return False
        del attempt.worker.running[attempt.token]
        self._job_registry.end(attempt.job, FAILED, b"", reason, now)
        self._dispatch.freed(attempt.worker, now)
        return True

    def undelivered(self, attempt: Attempt, now: float) -> None:
        """Return a job that was never sent: its worker is free, and another worker may get the job at once (R8)."""
        worker = attempt.worker
        if attempt.job.attempt is attempt:
            del worker.running[attempt.token]
            self.not_started(attempt, now)
        elif worker.stuck.pop(attempt.token, None) is None:
            return
        self._dispatch.freed(worker, now)

    def give_back(
        self, attempt: Attempt, now: float, *, delay: float = 0.0, priority: int | None = None, spends: bool = False
    ) -> bool:
        """Return a job that its worker gives back; the worker is free. The job is queued after `delay`, with another
        `priority` if given (R133). `spends`: the attempt counts. False if it had ended. ValueError: invalid priority.
        """
        worker, job = attempt.worker, attempt.job
        worker.seen = now
        delay = min(delay, self._policy.max_delay)
        if job.attempt is not attempt:
            if worker.stuck.pop(attempt.token, None) is not None:
                self._dispatch.freed(worker, now)
            return False
        self._update_priority(job, priority)
        del worker.running[attempt.token]
        if spends:
            self.spend(attempt, FAILED, GIVEN_BACK, now, delay=delay)
        else:
            self._requeue_later(attempt, delay, now)
        self._dispatch.freed(worker, now)
        return True

    def _update_priority(self, job: Job, priority: int | None) -> None:
        """Change the job's priority as its worker requests, in the store, too."""
        if priority is not None and priority != job.options.priority:
            job.options = replace(job.options, priority=priority)
            if job.options.durable:
                self._job_registry.pending_commits.save(job, rewrites=True)

    def refused(self, attempt: Attempt, failure: Failure, now: float) -> bool:
        """A worker has refused a background job, because it does not know some of its parameters. The job waits for a
        worker that does, and no attempt is used up, if there is reason to expect one (R268). False: there is none, or
        the attempt has ended."""
        worker, job = attempt.worker, attempt.job
        if not job.options.durable or job.attempt is not attempt or not _may_come(job, worker, failure):
            return False
        needs, extras = job.needs, job.extras or JobExtras()
        if not needs:
            job.delayed_since = now
        added = [each for each in failure.unknown if each not in needs]
        worker_name = f"{worker.id} ({worker.name})" if worker.name else str(worker.id)
        extras = replace(extras, needs=(*needs, *added), refused_by=worker_name, refusal=failure.message[:MOST_REFUSAL])
        if job.extras is None:
            self._job_registry.with_extras.add(job, extras)
        else:
            job.extras = extras
        self._job_registry.pending_commits.save(job, rewrites=True)
        del worker.running[attempt.token]
        job.attempt = None
        if job.conversation is not None:
            self._job_registry.conversations.returned(attempt, now)
        self._job_registry.parts.drop(attempt)
        remember_tried(job, worker)
        job.refusals = 0
        job.queue_due = inf
        self._delays.seek(job, now)
        self._dispatch.freed(worker, now)
        return True

    def _requeue_later(self, attempt: Attempt, delay: float, now: float) -> None:
        """Queue the job of an attempt that does not count, after a delay."""
        job = attempt.job
        job.attempt = None
        if job.conversation is not None:
            self._job_registry.conversations.returned(attempt, now)
        self._job_registry.parts.drop(attempt)
        remember_tried(job, attempt.worker)
        job.refusals = 0
        job.queue_due = inf
        if self._dispatch.is_draining and not job.options.durable:
            self._job_registry.end(job, REFUSED, b"", REFUSED_DRAINING, now, refusal_when_draining(job))
        elif self._outlives_caller(job, now):
            self._retry_after(job, delay, now)

    def spend(
        self,
        attempt: Attempt,
        outcome: Outcome,
        reason: str,
        now: float,
        failure: Failure | None = None,
        delay: float | None = None,
    ) -> None:
        """Use up the attempt: a worker may have seen the job (R9). While attempts remain, the job is retried after
        `delay`, or after the one that the worker has decided (R181), or as R11 defines."""
        job = attempt.job
        job.attempt = None
        self._job_registry.parts.drop(attempt)
        record_undone(attempt, now)
        job.queue_due = inf  # the next attempt may wait as long as the first
        reason = reason.encode("utf-8", "replace")[: self._policy.max_error_bytes].decode("utf-8", "ignore")
        record_attempt(job, attempt, outcome, reason, now)
        if job.conversation is not None:
            self._job_registry.conversations.attempt_ended(attempt, outcome, reason, now)
        decided = failure.retry_in if failure is not None else None
        is_last = decided == inf or attempts_used_up(job, attempt.worker, self._policy)
        if is_last or (self._dispatch.is_draining and not job.options.durable):
            job.quarantined = job.options.durable
            self._job_registry.end(job, outcome, b"", reason, now, failure=failure)
        elif self._outlives_caller(job, now):
            delay = delay if decided is None else min(decided, self._policy.max_delay)
            if delay is not None:
                self._retry_after(job, delay, now)
            else:
                self._retry_at(job, now + back_off(job, outcome, self._policy, self._entropy.jitter()), now)

    def _outlives_caller(self, job: Job, now: float) -> bool:
        """True if the job goes on. A call whose callers all left, or did not return in time, is cancelled (R18)."""
        if job.is_kept or (job.callers and job.orphan_due > now):
            return True
        self._job_registry.end(job, CANCELLED, b"", CALLER_GONE, now)
        return False

    def _retry_at(self, job: Job, time: float, now: float) -> None:
        self._delays.delay(job, time, now)
        if job.options.durable:
            job.delayed_since = now
            self._job_registry.pending_commits.save(job)

    def _retry_after(self, job: Job, delay: float, now: float) -> None:
        """Retry after the delay that the worker chose; 0 means at once."""
        if delay > 0.0:
            self._retry_at(job, now + delay, now)
            return
        if job.options.durable:
            self._job_registry.pending_commits.save(job)
        self._delays.wake(job, now)

    # ---------------------------------------------------------------- attempts of an earlier run (R107)

    def restore_running(self, attempt: Attempt) -> None:
        """Keep an attempt of an earlier run for the worker that can name its token."""
        self.resumable[attempt.token] = attempt

    def is_resumable(self, token: Token, principal: Principal) -> bool:
        """True if this principal may finish the attempt of an earlier run with this token."""
        attempt = self.resumable.get(token)
        return attempt is not None and principal.may(WORK, attempt.job.service.name)

    def claim_resumable(self, token: Token, principal: Principal) -> Attempt | None:
        """Return the attempt of an earlier run with this token, once. The token proves that the worker was sent it; its
        principal must still have the right to the service (R178)."""
        return self.resumable.pop(token) if self.is_resumable(token, principal) else None


def _may_come(job: Job, worker: Worker, failure: Failure) -> bool:
    """True if there may be a worker that knows the parameters which this one does not (R268): some worker of the
    service has declared them, or the caller of the job knows a newer version of the task than this worker."""
    parameters, needs = job.service.parameters, job.needs
    if declares(worker, job.service, failure.unknown):
        return False  # it contradicts its own declaration
    for name in failure.unknown:
        is_declared = name in needs or (parameters is not None and name in parameters.remembered)
        if not is_declared and not is_newer(job.options.parameters, failure.known, name):
            return False
    return True


def over_time(attempt: Attempt) -> str:
    """Return the reason of an attempt that has run for longer than it may."""
    return f"no result within {attempt.due - attempt.given:g} s"


def unsend(attempt: Attempt, effects: list[Effect]) -> bool:
    """Remove the attempt's SendJob if it has not been executed. True: no worker can have seen the job.

    The runner may be iterating over `effects`. It marks a SendJob as sent before it executes it, so only an entry that
    is still ahead of it is removed.
    """
    if attempt.is_sent:  # without this check, many attempts that end in one tick would take quadratic time
        return False
    for index, effect in enumerate(effects):
        if type(effect) is SendJob and effect.attempt is attempt:
            del effects[index]
            return True
    # Otherwise it waits for its payload or its commit, which then finds that the attempt has ended.
    return attempt.job.payload is ABSENT or attempt.job.options.durable
