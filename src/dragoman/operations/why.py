"""Explains in one sentence why a job is not running, or how it ended."""

from __future__ import annotations

from math import inf

from dragoman.core.broker import Broker
from dragoman.core.leases import lease_of
from dragoman.core.model import ABSENT, Job, Service, Worker
from dragoman.core.states import (
    BACKING_OFF,
    BUSY,
    DELAYED,
    DETACHED,
    DONE,
    DRAINING,
    ENDED,
    LOST,
    RUNNING,
    STARTING,
    STUCK,
    AttemptRecord,
)


def why(job: Job, broker: Broker, now: float, problem: str | None = None) -> str:
    """The sentence about a job. `problem`: the reason for which the store cannot write, if it cannot."""
    if job.state is ENDED:
        return _how_it_ended(job)
    if job.options.durable and not _is_stored(job, broker):
        return f"It waits for the diary, which cannot write: {problem}." if problem else "It is being written to disk."
    if job.state is RUNNING:
        return _who_runs_it(job, now)
    if job.state is DELAYED:
        return _what_it_waits_out(job, now)
    if broker.is_draining:
        return "It waits: the broker is about to stop, and hands nothing out."
    return _who_is_missing(job, broker, now)


def _is_stored(job: Job, broker: Broker) -> bool:
    """Whether the store has the job, and its attempt if it has one: the worker is sent it only then (R108)."""
    is_accepted = broker.job_registry.pending_commits.has_accepted(job)
    return is_accepted and (job.attempt is None or job.attempt.is_sent or job.payload is ABSENT)


def _how_it_ended(job: Job) -> str:
    if job.outcome is DONE:
        return f"It is done, at attempt {job.spent + 1}." if job.spent else "It is done."
    quarantine = " It is in quarantine: `retry` makes a new job of it." if job.quarantined else ""
    if job.retried_as is not None:
        quarantine = f" It was retried as job {job.retried_as.hex()}."
    reason = _last_ending(job) if job.history and job.history[-1].reason == job.reason else job.reason
    return f"It ended {job.outcome}{f': {reason}' if reason else ''}.{quarantine}"


def _who_runs_it(job: Job, now: float) -> str:
    attempt = job.attempt
    assert attempt is not None
    worker = attempt.worker
    runs = f"Attempt {_of(job, attempt.number)} has run for {_seconds(now - attempt.given)} at worker {_name(worker)}"
    if worker.state is DETACHED:
        return f"{runs}, which has been out of reach for {_seconds(now - worker.away_since)}."
    lease = lease_of(worker)
    silent = now - worker.seen
    if lease != inf and silent > lease / 4:
        return f"{runs}, which has been silent for {silent:.1f} of {lease:g} s."
    return f"{runs}."


def _what_it_waits_out(job: Job, now: float) -> str:
    rest = _seconds(max(0.0, job.start_at - now))
    if job.history:
        return f"Retry in {rest}: {_last_ending(job)}."
    if job.refusals or job.tried:
        return f"It is offered again in {rest}: the workers it was offered to would not take it."
    return f"It may start in {rest}, as it was asked for."


def _who_is_missing(job: Job, broker: Broker, now: float) -> str:
    service = job.service
    if service.paused:
        return f"It waits: service '{service.name}' is paused by {service.paused_by}."
    workers = [each for each in broker.worker_registry.workers.values() if service in each.services]
    if not workers:
        return f"It waits: no worker offers '{service.name}'."
    return f"It waits: {_what_they_do(workers, service, now)}."


def _what_they_do(workers: list[Worker], service: Service, now: float) -> str:
    if all(each.state is BUSY for each in workers):
        oldest = max(now - attempt.given for each in workers for attempt in each.running.values())
        who = f"all {len(workers)} workers are" if len(workers) > 1 else "its only worker is"
        return f"{who} busy, the oldest job for {_seconds(oldest)}"
    words = {
        BUSY: "busy",
        STUCK: "not yet free after a job that was given up",
        BACKING_OFF: "resting because they would not take a job",
        DETACHED: "out of reach",
        DRAINING: "being drained",
        STARTING: "starting",
    }
    counts = [f"{count} {words[state]}" for state in words if (count := sum(each.state is state for each in workers))]
    return f"of {len(workers)} workers none is free ({', '.join(counts)})" if counts else "it is about to be handed out"


def _last_ending(job: Job) -> str:
    assert job.history
    last: AttemptRecord = job.history[-1]
    how = "was lost" if last.outcome is LOST else last.outcome.value
    return f"attempt {_of(job, last.number)} {how} at worker {last.worker}: {last.reason}"


def _of(job: Job, number: int) -> str:
    return f"{number} of {job.options.attempts}" if job.options.attempts is not None else str(number)


def _name(worker: Worker) -> str:
    return f"{worker.id} ({worker.name})" if worker.name else str(worker.id)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
