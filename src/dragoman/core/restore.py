"""Restores jobs of an earlier run from the store (R107)."""

from __future__ import annotations

from typing import Any

from dragoman.core.accepted_jobs import enter_job
from dragoman.core.archive import FOREVER
from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.core.job_counting import count_job
from dragoman.core.job_extras import JobExtras
from dragoman.core.lifecycle import move_job, move_worker
from dragoman.core.model import ABSENT, Attempt, Job, JobId, Token, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.rights import LOCAL
from dragoman.core.states import IDLE, RUNNING, WAITING, AttemptRecord, Outcome


class StoredJob:
    """A stored job. Times are on this run's clock; payload and result stay in the store until they are needed."""

    __slots__ = (
        "attempt",
        "caller",
        "can_resume",
        "created",
        "deaths",
        "delayed_since",
        "digest",
        "ended",
        "extras",
        "given",
        "history",
        "id",
        "is_elsewhere",
        "keep_until",
        "key",
        "number",
        "options",
        "outcome",
        "owner",
        "quarantined",
        "reason",
        "retry_of",
        "service",
        "spent",
        "start_at",
        "token",
        "worker",
        "worker_dialect",
        "worker_id",
    )

    def __init__(self, number: int, id: JobId, service: str, job_options: JobOptions, created: float) -> None:
        self.number = number
        self.id = id
        self.service = service
        self.options = job_options
        self.created = created
        self.owner = LOCAL  # name of its principal
        self.caller = ("", "")  # dialect and address of the client that submitted it; empty: not known
        self.key: str | None = None
        self.digest = b""
        self.retry_of: JobId | None = None
        self.extras: JobExtras | None = None
        self.spent = 0
        self.deaths = 0
        self.history: list[AttemptRecord] | None = None
        self.start_at = 0.0  # end of its delay
        self.delayed_since: float | None = None  # beginning of that delay; None: it was created then
        # If it was dispatched and has no result yet:
        self.token: Token | None = None
        self.attempt = 0  # number of the attempt
        self.given = 0.0
        self.worker = ""  # name of the worker
        self.worker_dialect = ""
        self.worker_id: int | None = None
        self.can_resume = False
        self.is_elsewhere = False  # a worker of another broker of the cluster has it, and may deliver
        # If it has ended:
        self.outcome: Outcome | None = None
        self.ended: float | None = None  # None: it was stored before this time was stored
        self.reason = ""
        self.quarantined = False
        self.keep_until = inf


def begin_loading(broker: Broker) -> None:
    """Jobs of an earlier run are restored from now on. They may need any outcome, so none is deleted (R192)."""
    broker.job_registry.is_loading = broker.job_registry.kept.archive.is_frozen = True


def end_loading(broker: Broker, now: float) -> None:
    """All jobs of the earlier run are restored."""
    broker.job_registry.is_loading = broker.job_registry.kept.archive.is_frozen = False
    broker.job_registry.loadings += 1
    broker.job_registry.groups.loaded(now)


def restore(broker: Broker, kept: StoredJob, now: float, recipient: Any) -> Job:
    """Restore a job of an earlier run. `recipient` receives the effects of workers that have not reconnected."""
    service = broker.worker_registry.names.restore_service(kept.service)
    owner = broker.owners.of_stored(broker.principals.named(kept.owner), kept.caller[1])
    job = Job(kept.id, service, ABSENT, (), kept.options, kept.created, owner)
    job.number, job.caller_dialect = kept.number, kept.caller[0]
    job.key, job.digest, job.retry_of = kept.key, kept.digest, kept.retry_of
    if kept.extras is not None:
        broker.job_registry.with_extras.add(job, kept.extras)
    broker.job_registry.kept.note_new(job)
    job.spent, job.deaths, job.history = kept.spent, kept.deaths, kept.history
    broker.job_registry.kept.leave_quarantine(job)
    broker.job_registry.groups.enter(job)
    if kept.outcome is not None:
        _restore_ended(broker, job, kept, now)
        return job
    enter_job(broker.job_registry, job)
    count_job(job, WAITING, 1)
    broker.counters.restored += 1
    start_at = _start_at(kept, now)
    if kept.token is not None:
        _restore_running(broker, job, kept, kept.token, now, recipient)
    elif job.extras is not None and job.extras.after and not job.extras.is_ready:
        broker.dependencies.restore(job, start_at, now)
    else:
        job.delayed_since = kept.delayed_since
        broker.delays.restore(job, start_at, now)
    return job


def _start_at(kept: StoredJob, now: float) -> float:
    """Return the end of the job's delay, at most its whole delay from now. Stored times depend on the wall clock: one
    that was set back since would turn seconds into days (R25). A delay that a worker chose may itself take days."""
    since = kept.created if kept.delayed_since is None else kept.delayed_since
    start_at = kept.start_at or (0.0 if kept.spent else kept.created + kept.options.delay)
    return min(start_at, now + max(0.0, start_at - since))


def _restore_ended(broker: Broker, job: Job, kept: StoredJob, now: float) -> None:
    assert kept.outcome is not None
    job.reason, job.quarantined = kept.reason, kept.quarantined
    job.ended = None if kept.ended is None else min(kept.ended, now)
    job.result = ABSENT
    if not kept.quarantined:
        job.payload = b""
    longest = broker.job_registry.kept.keep_until(job, now)
    keep_until = longest if longest == FOREVER else min(kept.keep_until, longest)
    broker.job_registry.kept.restore_ended(job, kept.outcome, keep_until)
    broker.job_registry.groups.ended(job, now)
    if not job.outlives_end:  # it ended just before the broker did
        broker.job_registry.kept.expire(job, now)


def _restore_running(broker: Broker, job: Job, kept: StoredJob, token: Token, now: float, recipient: Any) -> None:
    """Restore a running job. A worker that can name its attempt has some time to deliver; else the attempt is lost at
    once. With `is_elsewhere`, the caller of `restore` waits for the other broker."""
    worker_registry = broker.worker_registry
    timeout = inf if kept.is_elsewhere else broker.policy.worker_resume_timeout
    profile = WorkerProfile(detach_timeout=timeout, can_resume=kept.can_resume)
    worker = Worker(worker_registry.next_id(), recipient, None, kept.worker, profile, now, job.owner)
    if kept.worker_id is not None:
        worker.formerly = (kept.worker_dialect, kept.worker_id)
    worker_registry.enter(worker, ())
    move_worker(worker, IDLE)
    given = min(kept.given, now)
    # A result that was made in time may wait for this broker: it is down for longer than the rest of the run time, or
    # the wall clock was set forward.
    due = max(given + job.options.job_timeout, now + broker.policy.worker_resume_timeout)
    attempt = Attempt(job, kept.attempt, token, worker, given, due)
    attempt.mark_sent()
    job.attempt = attempt
    move_job(job, RUNNING)
    worker.running[token] = attempt
    result = broker.job_registry.early.take(token, job.service.name)
    if result is not None:
        broker.succeed(attempt, result, now)
        broker.leave(worker, now, "result delivered")
    elif kept.is_elsewhere:
        broker.availability.detach(worker, now)
    elif kept.can_resume:
        broker.attempts.restore_running(attempt)
        broker.availability.detach(worker, now)
    else:
        broker.leave(worker, now, "the broker died while it ran")  # possibly because of this job
