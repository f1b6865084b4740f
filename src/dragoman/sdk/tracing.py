"""Traces: an integration may follow jobs from their submit on. Without one, jobs carry the trace of their parent."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.dialects.sides import JobExtras

if TYPE_CHECKING:
    from collections.abc import Callable


class SubmitSpan(Protocol):
    """One submit, from its begin to the outcome of a call, or to the acknowledgement of a background job."""

    @property
    def traceparent(self) -> str:
        """W3C trace context that the job carries; empty: none."""

    def end(self, job_id: str, error: BaseException | None) -> None:
        """End it. May be called from any thread."""


class Tracer(Protocol):
    """Follows submits of this process."""

    def submit(self, service: str, is_background: bool, traceparent: str, jobs: int = 1) -> SubmitSpan:
        """Begin a submit. `traceparent`: the trace of the job whose handler runs here; empty: there is none. `jobs`:
        their number, if it is that of a batch."""


class Tracing:
    """The tracer of this process, if there is one."""

    __slots__ = ("tracer",)

    def __init__(self) -> None:
        self.tracer: Tracer | None = None


tracing = Tracing()


class TracedFuture(Protocol):
    def add_done_callback(self, call: Callable[[Any], object], /) -> object: ...


def follow_call(tracer: Tracer, job: TracedFuture, service: str, id: bytes, extras: JobExtras | None) -> JobExtras:
    """Follow a call until its future is done. Returns the extras with the trace of its submit."""
    span = tracer.submit(service, False, extras.traceparent if extras is not None else "")
    job.add_done_callback(lambda done: span.end(id.hex(), _error_of(done)))
    return traced(extras, span)


def traced(extras: JobExtras | None, span: SubmitSpan) -> JobExtras:
    """Return the extras with the trace of a submit; without one, that of the parent stays."""
    given = extras or JobExtras()
    return JobExtras(given.parent, span.traceparent or given.traceparent)


def _error_of(done: Any) -> BaseException | None:
    if done.cancelled():
        return CancelledError()
    error: BaseException | None = done.exception()
    return error
