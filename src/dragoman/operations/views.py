"""Views of jobs and workers, as operations return them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from dragoman.core.archive import FOREVER
from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.core.job_keys import holds_key
from dragoman.core.model import ABSENT, Job, Payload, Worker
from dragoman.core.recipients import Recipient, dialect_of
from dragoman.core.states import DONE, ENDED
from dragoman.operations.schemas import (
    AttemptView,
    CallerView,
    FailureView,
    HeldJobView,
    JobView,
    WorkerView,
)


class Moments:
    """Converts wall clock seconds to datetimes, to the millisecond. Caches the last one: many jobs share a time."""

    __slots__ = ("_last", "_millisecond")

    def __init__(self) -> None:
        self._millisecond = 0
        self._last = datetime.fromtimestamp(0.0, UTC)

    def at(self, wall: float) -> datetime:
        millisecond = int(wall * 1_000.0 + 0.5)
        if millisecond != self._millisecond:
            self._last = datetime.fromtimestamp(millisecond / 1_000.0, UTC)
            self._millisecond = millisecond
        return self._last


_moments: Final = Moments()


def moment(wall: float) -> datetime:
    return _moments.at(wall)


def _moment_or_none(time: float | None, offset: float) -> datetime | None:
    return None if time is None else moment(time + offset)


def job_view(job: Job, offset: float, result: Payload | None = None, failure: Failure | None = None) -> JobView:
    """Return the view of a job, with `result` and `failure` if they are given. `offset`: seconds that the wall clock is
    ahead of the clock of jobs."""
    attempts = [
        AttemptView(
            number=each.number,
            worker=each.worker,
            outcome=each.outcome.value,
            reason=each.reason,
            started=_moment_or_none(each.started, offset),
            ended=_moment_or_none(each.ended, offset),
            dialect=each.dialect or None,
            worker_id=each.worker_id,
        )
        for each in job.history or ()
    ]
    attempt = job.attempt
    if attempt is not None:
        started = moment(attempt.given + offset)
        worker = attempt.worker
        dialect = dialect_of(worker.recipient) if worker.origin is not None else None
        dialect, id = worker.formerly or (dialect, worker.id)
        attempts.append(
            AttemptView(
                number=attempt.number, worker=worker.name, started=started, dialect=dialect or None, worker_id=id
            )
        )
    view = JobView(
        id=job.id.hex(),
        service=job.service.name,
        state=job.state._value_,  # in Python 3.11 `value` costs ten times as much, and most views are acknowledgements
        outcome=job.outcome.value if job.outcome is not None else None,
        reason=job.reason,
        background=job.options.durable,
        quarantined=job.quarantined,
        priority=job.options.priority,
        attempts=attempts,
        max_attempts=job.options.attempts,
        created=moment(job.created + offset),
        not_before=moment(job.start_at + offset) if job.start_at > 0.0 and job.state is not ENDED else None,
        kept_until=moment(job.keep_until + offset) if job.is_archived and job.keep_until != FOREVER else None,
        key=job.key,
        tenant=job.tenant or None,
        retry_of=job.retry_of.hex() if job.retry_of is not None else None,
        retried_as=job.retried_as.hex() if job.retried_as is not None else None,
    )
    extras = job.extras
    if extras is not None:
        view.parent = extras.parent.hex() if extras.parent is not None else None
        view.traceparent = extras.traceparent or None
    if job.key is not None:
        view.unique = job.options.unique._value_
        view.holds_key = holds_key(job)
    if job.options.keep is not None:
        view.keep = "forever" if job.options.keep == inf else job.options.keep
    if job.conversation is not None and job.conversation.is_kept:
        view.recorded = "messages"
    elif job.state is ENDED:
        view.recorded = "milestones"
    extras = job.extras
    if extras is not None and extras.group is not None:
        view.group = extras.group.hex()
    if extras is not None and extras.after:
        view.after = [each.hex() for each in extras.after]
        view.after_failure = "run" if extras.runs_after_failure else "cancel"
        view.input = extras.input._value_
    if attempts:
        view.started = attempts[0].started
        view.waited = _waited(job)
    if job.ended is not None:
        view.ended = moment(job.ended + offset)
    if job.caller_dialect:
        view.caller = CallerView(dialect=job.caller_dialect, address=job.owner.address)
    if job.options.job_timeout != inf:
        view.job_timeout = job.options.job_timeout
    if job.deadline != inf:
        view.deadline = moment(job.deadline + offset)
    if job.state is not ENDED or job.quarantined:
        view.size = len(job.payload) if job.payload is not ABSENT else None
    elif job.outcome is DONE and job.result is not ABSENT:
        view.result_size = len(job.result)
    if result is not None and result is not ABSENT:
        show_result(view, result, failure)
    return view


def _waited(job: Job) -> float | None:
    """Return the seconds from queueing to the first attempt; None for a job that was queued again since (R135)."""
    first = job.history[0].started if job.history else job.attempt.given if job.attempt is not None else None
    return round(first - job.arrival, 3) if first is not None and first >= job.arrival else None


def outline(job: Job, offset: float) -> JobView:
    """Return the view of a job for a principal that may see its state and outcome, and no text, address or parent of
    its caller (R147)."""
    view = replace(job_view(job, offset), key=None, unique=None, holds_key=None, parent=None, traceparent=None)
    if view.caller is not None:
        view.caller = CallerView(dialect=view.caller.dialect, address="")
    return view


def show_result(view: JobView, result: Payload, failure: Failure | None) -> None:
    """Add the result if the job is done, else the failure if there is one."""
    if view.outcome != "done":
        view.error = failure_view(failure)
        return
    view.result, view.result_base64 = text_or_base64(result)


def text_or_base64(result: Payload) -> tuple[str | None, str | None]:
    """Return bytes as text, or as base64 if they are no text; the other one is None."""
    try:
        return bytes(result).decode(), None
    except UnicodeDecodeError:
        return None, b64encode(result).decode()


def failure_view(failure: Failure | None) -> FailureView | None:
    if failure is None:
        return None
    return FailureView(
        type=failure.type, message=failure.message, detail=failure.traceback, permanent=failure.is_permanent
    )


def worker_view(worker: Worker, now: float, offset: float, listeners: Mapping[Recipient, str]) -> WorkerView:
    """Return the view of a worker. `listeners`: URLs of listeners by their broker side."""
    return WorkerView(
        id=worker.id,
        name=worker.name,
        dialect=dialect_of(worker.recipient),
        state=worker.state.value,
        services=[service.name for service in worker.services],
        capacity=worker.profile.capacity,
        running=[attempt.job.id.hex() for attempt in worker.running.values()],
        stuck=len(worker.stuck),
        comes_back=worker.profile.comes_back,
        silent=round(max(0.0, now - worker.seen), 3),
        lease=worker.profile.lease if worker.profile.lease != inf else None,
        listener=listeners.get(worker.recipient, ""),
        address=worker.origin or "",
        since=moment(worker.since + offset),
        done=worker.done,
        undone=worker.undone,
        pace=worker_pace(worker),
        holds=[
            HeldJobView(
                job=attempt.job.id.hex(),
                service=attempt.job.service.name,
                attempt=attempt.number,
                since=moment(attempt.given + offset),
                due=moment(attempt.over_at + offset) if attempt.over_at != inf else None,
            )
            for attempt in worker.running.values()
        ],
    )


def worker_pace(worker: Worker) -> float | None:
    """Return the recent run time as a multiple of the median of its service. The only worker of a service has none:
    the median is its own."""
    if len(worker.services) != 1 or not worker.done or worker.services[0].workers < 2:
        return None
    median = worker.services[0].ran.median()
    return round(worker.mean_run / median, 2) if median else None
