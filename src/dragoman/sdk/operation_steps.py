"""Operations of clients as generators, so that both clients share one implementation.

A generator yields requests, and seconds to wait. It receives the answer of each request, or the error is thrown into
it, and it returns the return value of the client's method. Request and view classes are imported by the first
operation, because a client that only makes calls does not need them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from dragoman.carriers.carrier import Frame
from dragoman.core.failure import unpack_failure
from dragoman.dialects.sides import JobExtras, Outcome
from dragoman.sdk.codecs import Codec
from dragoman.sdk.current_job import current_extras
from dragoman.sdk.errors import (
    BrokerUnavailable,
    Busy,
    Forbidden,
    JobError,
    JobFailed,
    JobRefused,
    JobTimeout,
    NoSuchGroup,
    NoSuchJob,
    NoSuchService,
    NotFound,
    OperationError,
    PayloadTooLarge,
    error_from,
)
from dragoman.sdk.ids import new_request, new_session
from dragoman.sdk.operation import OperationAnswer, OperationCall
from dragoman.sdk.tracing import traced, tracing

if TYPE_CHECKING:
    from dragoman.operations.bulk_schemas import BulkRequest, BulkView
    from dragoman.operations.operation import Operation, RequestType, ViewType
    from dragoman.operations.schemas import EnqueueRequest, OperationRequest, OutcomeView

T = TypeVar("T")
Steps = Generator[OperationCall | float, Any, T]

LONGEST_WAIT = 30.0  # seconds that one request waits for an outcome; then the client repeats it
SHORTEST_WAIT = 5.0  # seconds that an answer may take, even if the caller does not want to wait
LOADING_TIMEOUT = 60.0  # seconds that a broker may take to load its store
LOADING_DELAY = 0.1  # seconds between two requests while the broker loads its store
PAGE = 1_000  # entries of a list per request
BULK_LEASE = 10.0  # seconds after which an act on many jobs stops if this client does not ask for its progress
BULK_DELAY = 0.1  # seconds between two requests for its progress


# -------------------------------------------------------------------- any operation


def view(
    row: Operation[RequestType, ViewType],
    request: RequestType,
    payload: Frame = b"",
    extras: JobExtras | None = None,
) -> Steps[ViewType]:
    """Perform an operation. Returns its view."""
    answer = yield from perform(row, request, payload, extras=extras)
    return read_view(row.view, answer[0])


def perform(
    row: Operation[RequestType, Any],
    request: RequestType,
    payload: Frame = b"",
    timeout: float | None = None,
    extras: JobExtras | None = None,
) -> Steps[OperationAnswer]:
    """Perform an operation; retry while the broker loads its store. Returns the view as JSON, and the payload."""
    import msgspec

    _refuse_nan(request)
    number = new_request() if getattr(request, "request_id", "") is None else None
    wait = getattr(request, "wait", 0.0)
    operation = OperationCall(row.name, msgspec.json.encode(request), payload, timeout, extras, number, wait)
    deadline = monotonic() + (LOADING_TIMEOUT if timeout is None else timeout)
    try:
        while True:
            try:
                answer: OperationAnswer = yield operation
                return answer
            except OperationError as error:
                if error.kind != "loading":
                    raise error_of(row, error) from None
                if monotonic() >= deadline:
                    raise BrokerUnavailable(error.detail) from None
            yield LOADING_DELAY
    finally:
        if number is not None:
            number.end()


def read_view(kind: type[T], view: bytes) -> T:
    import msgspec

    try:
        return msgspec.json.decode(view, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JobFailed(f"failed: invalid response from the broker: {error}") from error


def all_pages(row: Operation[Any, Any], request: Any) -> Steps[list[Any]]:
    """Fetch a list page by page. Returns its entries, up to the request's limit."""
    pages = Pages(row, request)
    found: list[Any] = []
    while not pages.is_over:
        found += yield from pages.next()
    return found


class Page(list[Any]):
    """Entries of one page. `unanswered`: brokers of the cluster that have not answered in time; `unanswered_shards`:
    shards that none has proved to have."""

    def __init__(self, entries: Iterable[Any], unanswered: list[str], unanswered_shards: list[int]) -> None:
        super().__init__(entries)
        self.unanswered = unanswered
        self.unanswered_shards = unanswered_shards


class Pages:
    """Fetches the pages of a list, up to the limit of the request."""

    def __init__(self, row: Operation[Any, Any], request: Any) -> None:
        self._row = row
        self._request = request
        self._left: int | None = request.limit  # None: the first page has all
        self.is_over = self._left is not None and self._left <= 0

    def next(self) -> Steps[Page]:
        """Fetch the next page. Returns its entries."""
        from msgspec.structs import replace

        left = self._left
        page = yield from view(self._row, replace(self._request, limit=None if left is None else min(left, PAGE)))
        shards = getattr(page, "unanswered_shards", None) or []
        found = Page(getattr(page, self._row.returned), page.unanswered or [], shards)
        self._left = None if left is None else left - len(found)
        self._request = replace(self._request, after=page.after)
        self.is_over = page.after is None or self._left is None or self._left <= 0
        return found


# -------------------------------------------------------------------- operations with steps of their own


def enqueue(request: EnqueueRequest, payload: Frame) -> Steps[str]:
    """Enqueue a background job. Returns its id."""
    from dragoman.operations.table import ENQUEUE

    if request.key is None and request.unique != "kept":
        raise ValueError(f"unique={request.unique!r} is about the key of a job, and this one has none: give a key")
    extras = _extras_beside(request)
    if tracing.tracer is None or request.traceparent is not None:
        job = yield from view(ENQUEUE, request, payload, extras)
        return job.id
    span = tracing.tracer.submit(request.service, True, extras.traceparent if extras is not None else "")
    id, problem = "", None
    try:
        job = yield from view(ENQUEUE, request, payload, traced(extras, span))
        id = job.id
        return id
    except BaseException as error:
        problem = error
        raise
    finally:
        span.end(id, problem)


def _extras_beside(request: EnqueueRequest) -> JobExtras | None:
    """Return the extras of this place that the request does not set itself."""
    extras = current_extras()
    if extras is None or (request.parent is None and request.traceparent is None):
        return extras
    return JobExtras(
        extras.parent if request.parent is None else None, extras.traceparent if request.traceparent is None else ""
    )


def result(id: str, timeout: float | None, codec: Codec) -> Steps[Any]:
    """Wait until the job has ended, also over reconnects. Returns its result."""
    from dragoman.operations.schemas import OutcomeView, ResultRequest
    from dragoman.operations.table import RESULT

    deadline = inf if timeout is None else monotonic() + timeout
    while True:
        left = max(0.0, deadline - monotonic())
        request = ResultRequest(id=id, wait=min(left, LONGEST_WAIT))
        answer_timeout = None if timeout is None else max(left, SHORTEST_WAIT)
        view, payload = yield from perform(RESULT, request, timeout=answer_timeout)
        job = read_view(OutcomeView, view)
        if job.state == "ended":
            return _outcome(id, job, payload, codec)
        if monotonic() >= deadline:
            raise JobTimeout(f"timed out: job {id} is still {job.state} after {timeout:g} s")


def payload(id: str) -> Steps[bytes]:
    """Returns the payload of a job, as it was submitted."""
    from dragoman.operations.schemas import JobRef
    from dragoman.operations.table import PAYLOAD

    answer = yield from perform(PAYLOAD, JobRef(id=id))
    return bytes(answer[1])


def cancel(id: str) -> Steps[bool]:
    """Cancel a job. Returns whether it is cancelled now."""
    from dragoman.operations.schemas import JobRef
    from dragoman.operations.table import CANCEL, JOB

    try:
        job = yield from view(CANCEL, JobRef(id=id))
    except JobRefused:  # the job has ended, perhaps by an earlier copy of this request whose answer was lost
        job = yield from view(JOB, JobRef(id=id))
    return job.outcome == "cancelled"


def bulk(row: Operation[Any, BulkView], request: BulkRequest) -> Steps[BulkView]:
    """Act on many jobs, and wait for the end. If this client disappears, the act stops."""
    from dragoman.operations.bulk_schemas import BulkRef
    from dragoman.operations.table import BULK_ACT

    request.id = new_session()  # a repeated request must not begin a second act
    request.lease = BULK_LEASE
    found = yield from view(row, request)
    while not found.over:
        yield BULK_DELAY
        found = yield from view(BULK_ACT, BulkRef(id=found.id))
    return found


def _outcome(id: str, job: OutcomeView, payload: Frame, codec: Codec) -> Any:
    if job.outcome == "done":
        try:
            return codec.decode_whole(payload)
        except Exception as error:  # a codec raises the exceptions of its library
            reason = f"failed: the result of job {id} is not valid {codec.name}: {type(error).__name__}: {error}"
            raise JobFailed(reason, type(error).__name__, str(error)) from error
    assert job.outcome is not None, "an ended job has an outcome"
    raise error_from(Outcome(job.outcome), job.reason, unpack_failure(payload))


# -------------------------------------------------------------------- errors


def error_of(row: Operation[Any, Any], error: OperationError) -> Exception:
    """Convert a broker's error to the exception that a client raises."""
    detail = error.detail
    if error.kind == "not found":
        missing = NotFound if row.pages else _MISSING.get(row.group, NotFound)
        return missing(detail)
    if error.kind == "invalid":
        return ValueError(detail)
    return _REFUSALS.get(error.kind, JobRefused)(f"refused: {detail}")


_MISSING: dict[str, Callable[[str], Exception]] = {
    "jobs": NoSuchJob,
    "groups": NoSuchGroup,
    "services": NoSuchService,
}
_REFUSALS: dict[str, type[JobError]] = {
    "no such service": NoSuchService,
    "busy": Busy,
    "too large": PayloadTooLarge,
    "forbidden": Forbidden,
}


def _refuse_nan(form: OperationRequest) -> None:
    """Raise ValueError for NaN: JSON would carry it as null, which means no limit."""
    for name in form.__struct_fields__:
        value = getattr(form, name)
        if isinstance(value, float) and value != value:
            raise ValueError(f"{name}={value}: must be a number, or None")
