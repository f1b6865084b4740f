"""OpenTelemetry: spans for submit, wait and run of jobs, in one trace over clients, broker and workers.

trace_jobs()
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dragoman.sdk.errors import Retry
from dragoman.sdk.hooks import JobHooks, add_hooks, remove_hooks
from dragoman.sdk.tracing import tracing

if TYPE_CHECKING:
    from opentelemetry.context import Context as TraceContext

    from dragoman.sdk.context import Context

NAME = "dragoman"
_propagator = TraceContextTextMapPropagator()


def trace_jobs(tracer_provider: TracerProvider | None = None) -> None:
    """Make spans for the jobs that this process submits and runs from now on. Call it in the module of the tasks, so
    that child processes of the worker do it, too. `tracer_provider`: by default the global one."""
    tracer = trace.get_tracer(NAME, tracer_provider=tracer_provider)
    stop_tracing()
    tracing.tracer = SubmitTracer(tracer)
    _registered.append(RunSpans(tracer))
    add_hooks(_registered[0])


def _extracted(traceparent: str) -> TraceContext:
    return _propagator.extract({"traceparent": traceparent}, contexts.Context())


def stop_tracing() -> None:
    """Make no more spans."""
    tracing.tracer = None
    while _registered:
        remove_hooks(_registered.pop())


_registered: list[RunSpans] = []


class SubmitTracer:
    """Makes the spans of submits."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def submit(self, service: str, is_background: bool, traceparent: str, jobs: int = 1) -> OpenSubmit:
        kind = SpanKind.PRODUCER if is_background else SpanKind.CLIENT
        parent = None  # the current span
        if traceparent and not trace.get_current_span().get_span_context().is_valid:
            parent = _extracted(traceparent)  # a thread of the handler does not inherit the span of the run
        attributes: dict[str, str | int] = {
            "messaging.system": NAME,
            "messaging.operation.type": "send",
            "messaging.destination.name": service,
        }
        if jobs > 1:
            attributes["messaging.batch.message_count"] = jobs
        return OpenSubmit(self._tracer.start_span(f"submit {service}", parent, kind, attributes))


class OpenSubmit:
    """The span of one submit."""

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(self._span))
        return carrier.get("traceparent", "")

    def end(self, job_id: str, error: BaseException | None) -> None:
        if job_id:
            self._span.set_attribute("messaging.message.id", job_id)
        if error is not None:
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end()


class RunSpans(JobHooks):
    """Makes the spans of jobs that run here: the time in the queue, and the handler. Spans that the handler makes, and
    jobs that it submits, are below that of the handler."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._open: dict[int, tuple[Span, object]] = {}  # by identity of the job's context

    def before(self, job: Context) -> None:
        parent = _extracted(job.traceparent)
        attributes: dict[str, str | int] = {
            "messaging.system": NAME,
            "messaging.destination.name": job.service,
            "messaging.message.id": job.job_id,
            "dragoman.attempt": job.attempt,
        }
        if job.waited is not None:
            self._wait(job, job.waited, parent, attributes)
        span = self._tracer.start_span(
            f"run {job.service}",
            parent,
            SpanKind.CONSUMER,
            {**attributes, "messaging.operation.type": "process"},
        )
        token = contexts.attach(trace.set_span_in_context(span, parent))
        self._open[id(job)] = span, token

    def after(self, job: Context) -> None:
        self._end(job)

    def failed(self, job: Context, error: BaseException) -> None:
        self._end(job, error)

    def _wait(self, job: Context, seconds: float, parent: TraceContext, attributes: dict[str, str | int]) -> None:
        """Make the span of the time in the queue, which has passed."""
        now = time.time_ns()
        span = self._tracer.start_span(
            f"wait {job.service}",
            parent,
            attributes={**attributes, "messaging.operation.type": "receive"},
            start_time=now - round(seconds * 1e9),
        )
        span.end(now)

    def _end(self, job: Context, error: BaseException | None = None) -> None:
        found = self._open.pop(id(job), None)
        if found is None:
            return
        span, token = found
        if isinstance(error, Retry):  # the handler's own decision, not an error
            span.add_event("retry", {"dragoman.retry.delay": error.delay, "dragoman.retry.reason": str(error)})
        elif error is not None:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        contexts.detach(token)  # type: ignore[arg-type]
        span.end()
