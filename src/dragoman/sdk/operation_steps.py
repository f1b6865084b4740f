"""What clients want of a broker, as plans: what to ask, in which order, and what to make of the answers.

A plan is a generator. It yields questions, and seconds to rest; it is sent the answers, or thrown why there is none;
and it returns what its client returns. So both kinds of client do the same, each in its own way. Forms and views are
loaded with the first plan that is followed: whoever only calls needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from datetime import datetime
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import Outcome
from dragoman.sdk.client_settings import JOB_TIMEOUT
from dragoman.sdk.codecs import Codec
from dragoman.sdk.errors import (
    BrokerUnavailable,
    Busy,
    JobFailed,
    JobRefused,
    JobTimeout,
    NoSuchJob,
    NoSuchService,
    NotFound,
    OperationError,
    PayloadTooLarge,
    error_from,
)
from dragoman.sdk.ids import new_session
from dragoman.sdk.operation import OperationAnswer, OperationCall

if TYPE_CHECKING:
    from dragoman.operations.schemas import (
        JobView,
        OperationRequest,
        OutcomeName,
        ScheduleView,
        ServiceView,
        State,
        WorkerView,
    )

T = TypeVar("T")
Steps = Generator[OperationCall | float, Any, T]

LONGEST_WAIT = 30.0  # seconds for which a broker is asked to wait for an outcome; then it is asked again
SHORTEST_WAIT = 1.0  # seconds that an answer may take, even if nobody wants to wait for the outcome
READING = 60.0  # seconds that a broker may take to read its diary
REST = 0.1  # seconds until it is asked again
PAGE = 1_000  # jobs that are listed at once


# -------------------------------------------------------------------- jobs


def enqueue(
    service: str,
    payload: Frame,
    *,
    delay: float = 0.0,
    not_before: datetime | None = None,
    priority: int = 5,
    attempts: int = 3,
    timeout: float | None = JOB_TIMEOUT,
    key: str | None = None,
    retry_first: float | None = None,
    retry_cap: float | None = None,
    retry_jitter: float | None = None,
) -> Steps[str]:
    from dragoman.operations.schemas import EnqueueRequest, JobView

    order = EnqueueRequest(
        service=service,
        delay=delay,
        not_before=not_before,
        priority=priority,
        attempts=attempts,
        timeout=timeout,
        key=key if key is not None else new_session(),  # it may have to be asked again, and must not be two jobs then
        retry_first=retry_first,
        retry_cap=retry_cap,
        retry_jitter=retry_jitter,
    )
    job = yield from _view(JobView, "enqueue", order, payload)
    return job.id


def result(id: str, timeout: float | None, codec: Codec) -> Steps[Any]:
    """Asks until it has ended, over as many connections as it takes."""
    from dragoman.operations.schemas import JobView, ResultRequest

    deadline = inf if timeout is None else monotonic() + timeout
    while True:
        left = max(0.0, deadline - monotonic())
        form = ResultRequest(id=id, wait=min(left, LONGEST_WAIT))
        patience = None if timeout is None else max(left, SHORTEST_WAIT)
        view, payload = yield from _ask("result", form, timeout=patience, missing=NoSuchJob)
        job = _read(JobView, view)
        if job.state == "ended":
            return _outcome(job, payload, codec)
        if monotonic() >= deadline:
            raise JobTimeout(f"timed out: job {id} is still {job.state} after {timeout:g} s")


def job(id: str) -> Steps[JobView]:
    from dragoman.operations.schemas import JobRef, JobView

    return (yield from _view(JobView, "job", JobRef(id=id), missing=NoSuchJob))


def jobs(
    service: str | None = None,
    state: State | None = None,
    outcome: OutcomeName | None = None,
    quarantined: bool | None = None,
    limit: int = 100,
    after: str | None = None,
) -> Steps[list[JobView]]:
    from dragoman.operations.schemas import JobsView, ListJobsRequest

    found: list[JobView] = []
    while len(found) < limit:
        form = ListJobsRequest(
            service=service,
            state=state,
            outcome=outcome,
            quarantined=quarantined,
            limit=min(limit - len(found), PAGE),
            after=after,
        )
        view = yield from _view(JobsView, "jobs", form)
        found += view.jobs
        after = view.after
        if after is None:
            break
    return found


def cancel(id: str) -> Steps[bool]:
    from dragoman.operations.schemas import JobRef, JobView

    try:
        view = yield from _view(JobView, "cancel", JobRef(id=id), missing=NoSuchJob)
    except JobRefused:  # it has ended; perhaps by this very question, whose answer was lost with a connection
        view = yield from _view(JobView, "job", JobRef(id=id), missing=NoSuchJob)
    return view.outcome == "cancelled"


def retry(id: str) -> Steps[str]:
    from dragoman.operations.schemas import JobRef, JobView

    view = yield from _view(JobView, "retry", JobRef(id=id), missing=NoSuchJob)
    return view.id


def why(id: str) -> Steps[str]:
    from dragoman.operations.schemas import JobRef, WhyView

    view = yield from _view(WhyView, "why", JobRef(id=id), missing=NoSuchJob)
    return view.why


def _outcome(job: JobView, payload: Frame, codec: Codec) -> Any:
    if job.outcome == "done":
        try:
            return codec.decode_whole(payload)
        except Exception as error:  # a codec raises what its library raises
            what = f"{type(error).__name__}: {error}"
            told = f"failed: the result of {job.service} cannot be read as {codec.name}: {what}"
            raise JobFailed(told, type(error).__name__, str(error)) from error
    from dragoman.dialects.native.codec import read_failure

    assert job.outcome is not None, "an ended job has an outcome"
    raise error_from(Outcome(job.outcome), job.reason, read_failure(payload))


# -------------------------------------------------------------------- services and workers


def services() -> Steps[list[ServiceView]]:
    from dragoman.operations.schemas import EmptyRequest, ServicesView

    return (yield from _view(ServicesView, "services", EmptyRequest())).services


def workers() -> Steps[list[WorkerView]]:
    from dragoman.operations.schemas import EmptyRequest, WorkersView

    return (yield from _view(WorkersView, "workers", EmptyRequest())).workers


def pause(service: str, by: str | None) -> Steps[ServiceView]:
    from dragoman.operations.schemas import PauseRequest, ServiceView

    form = PauseRequest(name=service) if by is None else PauseRequest(name=service, by=by)
    return (yield from _view(ServiceView, "pause", form, missing=NoSuchService))


def resume(service: str) -> Steps[ServiceView]:
    from dragoman.operations.schemas import ServiceRef, ServiceView

    return (yield from _view(ServiceView, "resume", ServiceRef(name=service), missing=NoSuchService))


def purge(service: str, states: Sequence[Literal["waiting", "delayed", "ended"]]) -> Steps[int]:
    from dragoman.operations.schemas import PurgeRequest, PurgeView

    form = PurgeRequest(name=service, states=tuple(states))
    return (yield from _view(PurgeView, "purge", form, missing=NoSuchService)).purged


def drain(worker: int, now: bool) -> Steps[WorkerView]:
    from dragoman.operations.schemas import DrainRequest, WorkerView

    return (yield from _view(WorkerView, "drain", DrainRequest(id=worker, now=now)))


# -------------------------------------------------------------------- recurring jobs


def recur(
    name: str,
    service: str,
    payload: Frame,
    *,
    cron: str | None = None,
    every: float | None = None,
    timezone: str = "UTC",
    overlap: bool = False,
    paused: bool = False,
    priority: int = 5,
    attempts: int = 3,
    timeout: float | None = JOB_TIMEOUT,
    retry_first: float | None = None,
    retry_cap: float | None = None,
    retry_jitter: float | None = None,
) -> Steps[ScheduleView]:
    from dragoman.operations.schemas import ScheduleRequest, ScheduleView

    form = ScheduleRequest(
        name=name,
        service=service,
        cron=cron,
        every=every,
        timezone=timezone,
        overlap=overlap,
        paused=paused,
        priority=priority,
        attempts=attempts,
        timeout=timeout,
        retry_first=retry_first,
        retry_cap=retry_cap,
        retry_jitter=retry_jitter,
    )
    return (yield from _view(ScheduleView, "recur", form, payload))


def recurring() -> Steps[list[ScheduleView]]:
    from dragoman.operations.schemas import EmptyRequest, SchedulesView

    return (yield from _view(SchedulesView, "recurring", EmptyRequest())).recurring


def recurrence(question: str, name: str) -> Steps[ScheduleView]:
    """Any question about one of them."""
    from dragoman.operations.schemas import ScheduleRef, ScheduleView

    return (yield from _view(ScheduleView, question, ScheduleRef(name=name)))


# -------------------------------------------------------------------- how it is asked


def _view(
    kind: type[T],
    text: str,
    form: OperationRequest,
    payload: Frame = b"",
    missing: Callable[[str], Exception] = NotFound,
) -> Steps[T]:
    view, _ = yield from _ask(text, form, payload, missing=missing)
    return _read(kind, view)


def _ask(
    text: str,
    form: OperationRequest,
    payload: Frame = b"",
    timeout: float | None = None,
    missing: Callable[[str], Exception] = NotFound,
) -> Steps[OperationAnswer]:
    """A broker that is still reading its diary is asked again."""
    import msgspec

    _refuse_nan(form)
    question = OperationCall(text, msgspec.json.encode(form), payload, timeout)
    deadline = monotonic() + (READING if timeout is None else timeout)
    while True:
        try:
            answer: OperationAnswer = yield question
            return answer
        except OperationError as objection:
            if objection.kind != "loading":
                raise _error(objection, missing) from None
            if monotonic() >= deadline:
                raise BrokerUnavailable(objection.detail) from None
        yield REST


def _read(kind: type[T], view: bytes) -> T:
    import msgspec

    return msgspec.json.decode(view, type=kind)


def _error(objection: OperationError, missing: Callable[[str], Exception]) -> Exception:
    detail = objection.detail
    if objection.kind == "not found":
        return missing(detail)
    if objection.kind == "invalid":
        return ValueError(detail)
    return _REFUSALS.get(objection.kind, JobRefused)(f"refused: {detail}")


_REFUSALS: dict[str, type[JobRefused]] = {
    "no such service": NoSuchService,
    "busy": Busy,
    "too large": PayloadTooLarge,
}


def _refuse_nan(form: OperationRequest) -> None:
    """JSON has no NaN: it would be written as null, which means no limit."""
    for name in form.__struct_fields__:
        value = getattr(form, name)
        if isinstance(value, float) and value != value:
            raise ValueError(f"{name}={value}: a number, or None")
