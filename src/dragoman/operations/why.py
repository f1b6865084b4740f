"""Explains in one sentence why a job is not running, or how it ended."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from dragoman.core.broker import Broker
from dragoman.core.leases import lease_of
from dragoman.core.model import ABSENT, Job, Worker
from dragoman.core.reached_limits import limit_in_the_way
from dragoman.core.rights import Principal
from dragoman.core.starvation import Starvation, starved
from dragoman.core.states import (
    BACKING_OFF,
    BUSY,
    DELAYED,
    DEPENDENT,
    DETACHED,
    DONE,
    DRAINING,
    ENDED,
    LOST,
    RUNNING,
    STARTING,
    STUCK,
    WAITING,
    AttemptRecord,
)
from dragoman.operations.keeping_words import keep_sentence, key_sentence
from dragoman.operations.list_schemas import WhyAboutView, WhyKind, WhyView
from dragoman.operations.seen_links import reason_of, sees_link
from dragoman.operations.service_views import RatesOf
from dragoman.operations.visibility import owns_job, reads_job

MOST_EARLIER: Final = 3  # attempts in `earlier`
MOST_NAMED: Final = 3  # jobs that another one waits for
MOST_COUNTED: Final = 20_000  # waiting jobs that are looked at in order to count those ahead


class Explanation(NamedTuple):
    """The sentence, and its kind for programs."""

    kind: WhyKind
    sentence: str
    worker: Worker | None = None  # the worker that the sentence is about


def why_view(
    job: Job,
    broker: Broker,
    now: float,
    problem: str | None,
    rates: RatesOf,
    is_queue_seen: bool,
    principal: Principal,
) -> WhyView:
    """Return the view. `is_queue_seen`: the principal may know of the queue, so the jobs ahead are counted. It knows
    the key if it may read the job (R147)."""
    kind, sentence, worker = explain(job, broker, now, principal, problem)
    is_reader = reads_job(principal, job)
    view = WhyView(
        id=job.id.hex(),
        why=sentence,
        kind=kind,
        about=WhyAboutView(service=job.service.name, worker=worker.id if worker is not None else None),
        earlier=_earlier_attempts(job, is_last_told=kind in ("retry", "undone")),
        more=" ".join(filter(None, (key_sentence(job) if is_reader else "", keep_sentence(job, now)))),
    )
    if is_queue_seen and job.state is WAITING and job.order != inf:
        view.ahead = job.service.queue.count_before(job, MOST_COUNTED)
        measured = rates(job.service)
        rate = measured.done + measured.undone if measured is not None else 0.0
        if view.ahead is not None and rate > 0.0 and kind in ("all busy", "none free", "next"):
            view.turn_in = round(view.ahead / rate, 1)
    return view


def why(job: Job, broker: Broker, now: float, problem: str | None = None) -> str:
    """Return the sentence for the job's owner. `problem`: the reason why the store cannot write, if it cannot."""
    return explain(job, broker, now, job.owner.principal, problem).sentence


def explain(job: Job, broker: Broker, now: float, principal: Principal, problem: str | None = None) -> Explanation:
    """Return the sentence with its kind. `problem`: the reason why the store cannot write, if it cannot."""
    if job.state is ENDED:
        return Explanation("done" if job.outcome is DONE else "undone", _ended(job, reason_of(job, principal, broker)))
    if job.options.durable and not _is_stored(job, broker):
        waits = f"It waits for the store, which cannot write: {problem}." if problem else "It is being written to disk."
        return Explanation("storing", waits)
    if job.state is RUNNING:
        return _running(job, now)
    if job.state is DEPENDENT:
        return _dependent_reason(job, broker, principal)
    if job.state is DELAYED:
        return _set_aside_reason(problem) if broker.dispatch.set_aside.has(job) else _delay_reason(job, now)
    if broker.dispatch.is_draining:
        return Explanation("shutting down", "It waits: the broker is shutting down and dispatches no jobs.")
    return _waiting_reason(job, broker, now)


def _is_stored(job: Job, broker: Broker) -> bool:
    """True if the store has committed the job, and its attempt if it has one: a worker receives it only then (R108)."""
    is_accepted = broker.job_registry.pending_commits.has_accepted(job)
    return is_accepted and (job.attempt is None or job.attempt.is_sent or job.payload is ABSENT)


def _ended(job: Job, reason: str) -> str:
    if job.outcome is DONE:
        return f"It is done, on attempt {job.spent + 1}." if job.spent else "It is done."
    quarantine = " It is in quarantine: a retry makes a new job from it." if job.quarantined else ""
    if job.retried_as is not None:
        quarantine = f" It was retried as job {job.retried_as.hex()}."
    if job.history and job.history[-1].reason == job.reason:
        reason = _last_attempt(job)
    is_permanent = job.failure is not None and job.failure.is_permanent
    decided = " Its worker has decided that it is not retried." if is_permanent else ""
    return f"It ended {job.outcome}{f': {reason}' if reason else ''}.{decided}{quarantine}"


def _running(job: Job, now: float) -> Explanation:
    attempt = job.attempt
    assert attempt is not None
    worker = attempt.worker
    runs = f"Attempt {_of(job, attempt.number)} has run for {_seconds(now - attempt.given)} on worker {_name(worker)}"
    if worker.state is DETACHED:
        away = f"{runs}, which has been unreachable for {_seconds(now - worker.away_since)}."
        return Explanation("worker unreachable", away, worker)
    lease = lease_of(worker)
    silent = now - worker.seen
    if lease != inf and silent > lease / 4:
        quiet = f"{runs}, which has been silent for {silent:.1f} s (its lease is {lease:g} s)."
        return Explanation("worker silent", quiet, worker)
    return Explanation("running", f"{runs}.", worker)


def _set_aside_reason(problem: str | None) -> Explanation:
    reason = f": {problem}" if problem else "; nothing has been committed for some seconds"
    return Explanation("storing", f"It waits until its shard can be written{reason}.")


def _delay_reason(job: Job, now: float) -> Explanation:
    if job.needs:
        return Explanation("declined", _needs(job))
    delay = _seconds(max(0.0, job.start_at - now))
    if job.history:
        return Explanation("retry", f"Retry in {delay}: {_last_attempt(job)}.")
    if job.refusals or job.tried:
        offered = f"It is offered to workers again in {delay}: those that it was offered to declined it."
        return Explanation("declined", offered)
    return Explanation("delayed", f"It may start in {delay}: it was submitted with a delay.")


def _needs(job: Job) -> str:
    """Return the reason of a job that waits for a worker that knows its parameters."""
    extras = job.extras
    assert extras is not None
    names = ", ".join(repr(each) for each in job.needs)
    what = f"the parameter {names}" if len(job.needs) == 1 else f"the parameters {names}"
    return f"Worker {extras.refused_by} does not know {what}; it waits for a newer one."


def _dependent_reason(job: Job, broker: Broker, principal: Principal) -> Explanation:
    entry = broker.dependencies.find(job)
    if entry is None or not entry.unended:
        return Explanation("dependent", "The jobs that it comes after have ended; its input is being read.")
    open_ones = broker.dependencies.unended(entry)
    total = len(entry.predecessors)
    count = f"{len(open_ones)} of {total} jobs" if total > 1 else "one job"
    is_owner = owns_job(principal, job)
    seen = [text for id, text in open_ones if is_owner or sees_link(principal, broker, id)][:MOST_NAMED]
    if not seen:
        return Explanation("dependent", f"It waits for {count}.")
    names = ", ".join(seen) + (", …" if len(open_ones) > len(seen) else "")
    return Explanation("dependent", f"It waits for {count}: {names}.")


def _waiting_reason(job: Job, broker: Broker, now: float) -> Explanation:
    service = job.service
    if service.paused:
        return Explanation("paused", f"It waits: service '{service.name}' is paused by {service.paused_by}.")
    workers = [each for each in broker.worker_registry.workers.values() if service in each.services]
    if not workers:
        return Explanation("no worker", f"It waits: no worker offers '{service.name}'.")
    limit = limit_in_the_way(job, now)
    if limit is not None:
        return Explanation(limit.kind, f"It waits: {limit.sentence}.")
    found = starved([service], broker.worker_registry.workers.values(), broker.job_registry.with_extras)
    if found:
        return Explanation("nested", f"It waits: {_nested(found[0], len(workers))}.")
    kind, summary = _worker_summary(workers, now)
    return Explanation(kind, f"It waits: {summary}.")


def _nested(found: Starvation, workers: int) -> str:
    """Return the reason and the advice for a job that starves. It names no job or service: the principal may not see
    those that keep the slots."""
    whose = f"its {workers} workers" if workers > 1 else "its only worker"
    if found.slots > 1:
        waits = f"the handlers in all {found.slots} slots of {whose} wait for jobs of the same workers"
    else:
        waits = f"the handler in the only slot of {whose} waits for a job of the same worker"
    return f"{waits}; give {whose} more slots, start another one, or let handlers enqueue jobs instead of calling"


def _worker_summary(workers: list[Worker], now: float) -> tuple[WhyKind, str]:
    behind = [each for each in workers if each.is_behind and each.state is BUSY]
    if behind and len(behind) == len(workers):
        unsent = min(each.unsent for each in workers)
        who = f"each of its {len(workers)} workers" if len(workers) > 1 else "its only worker"
        return "all busy", f"{who} is behind: at least {unsent} bytes of other jobs are still to be sent there"
    if all(each.state is BUSY for each in workers) and not behind:
        oldest = max(now - attempt.given for each in workers for attempt in each.running.values())
        who = f"all {len(workers)} workers are" if len(workers) > 1 else "its only worker is"
        return "all busy", f"{who} busy; the oldest job has run for {_seconds(oldest)}"
    names = {
        BUSY: "busy",
        STUCK: "stuck in an attempt that has ended",
        BACKING_OFF: "backing off after declining a job",
        DETACHED: "unreachable",
        DRAINING: "draining",
        STARTING: "starting",
    }
    states = [each.state for each in workers if each not in behind]
    counts = [f"{count} {names[state]}" for state in names if (count := states.count(state))]
    if behind:
        counts.append(f"{len(behind)} behind with reading their jobs")
    if not counts:
        return "next", "it is about to be dispatched"
    who = f"none of {len(workers)} workers is" if len(workers) > 1 else "its only worker is not"
    return "none free", f"{who} free ({', '.join(counts)})"


def _last_attempt(job: Job) -> str:
    assert job.history
    return f"attempt {_end_of(job, job.history[-1])}"


def _earlier_attempts(job: Job, is_last_told: bool) -> str:
    """Return a sentence about each attempt that ended without a result; without the last one if `why` has it."""
    records = [each for each in job.history or () if each.outcome is not DONE]
    told = (records[:-1] if is_last_told else records)[-MOST_EARLIER:]
    return " ".join(f"Attempt {_end_of(job, each)}." for each in told)


def _end_of(job: Job, record: AttemptRecord) -> str:
    how = "was lost" if record.outcome is LOST else record.outcome.value
    return f"{_of(job, record.number)} {how} on worker {record.worker}{f': {record.reason}' if record.reason else ''}"


def _of(job: Job, number: int) -> str:
    return f"{number} of {job.options.attempts}" if job.options.attempts is not None else str(number)


def _name(worker: Worker) -> str:
    return f"{worker.id} ({worker.name})" if worker.name else str(worker.id)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
