"""Options of background jobs, from the fields of a request."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from dragoman.core.infinity import inf
from dragoman.core.job_extras import JobExtras, given_extras
from dragoman.core.model import JobId
from dragoman.core.options import JobOptions
from dragoman.core.states import Unique
from dragoman.core.tenants import tenant_problem
from dragoman.operations.schemas import EnqueueRequest, OperationError, ScheduleRequest
from dragoman.operations.validation import duration


def options_of(request: EnqueueRequest, now: float, ahead: Callable[[], float], max_delay: float) -> JobOptions:
    """Return the options of a job. `ahead` returns the lead of the wall clock over `now`. Raises OperationError."""
    delay = request.delay
    if request.not_before is not None:
        if request.not_before.tzinfo is None:
            raise OperationError("invalid", "not_before has no time zone; append one, such as Z or +02:00")
        delay = max(delay, request.not_before.timestamp() - ahead() - now)
    if delay > max_delay:
        raise OperationError(
            "invalid",
            f"the job would start in {duration(delay)}; at most {duration(max_delay)} are allowed (max_delay)",
        )
    return delayed_options(request, delay)


def extras_of(request: EnqueueRequest) -> JobExtras | None:
    """Return the extras of a job; None if the request has none. Raises OperationError for a field that needs a key."""
    if request.key is None and request.unique != "kept":
        raise OperationError("invalid", "unique is about the key of a job, and this one has none: give a key")
    parent, tenant = request.parent, tenant_of(request)
    if parent is None and request.traceparent is None and not tenant:
        return None
    id = JobId(bytes.fromhex(parent)) if parent is not None else None
    return given_extras(id, request.traceparent, tenant)


def tenant_of(request: EnqueueRequest | ScheduleRequest) -> str:
    """Return the tenant of a job; empty if the request has none. Raises OperationError."""
    tenant = request.tenant
    if tenant is None:
        return ""
    problem = tenant_problem(tenant)
    if problem is not None:
        raise OperationError("invalid", problem)
    return tenant


def delayed_options(request: EnqueueRequest | ScheduleRequest, delay: float = 0.0) -> JobOptions:
    """Return the options in a request, for a job or for a run of a schedule."""
    return job_options_for(
        delay,
        request.priority,
        request.attempts,
        request.timeout,
        request.retry_first,
        request.retry_cap,
        request.retry_jitter,
        request.unique if isinstance(request, EnqueueRequest) else "kept",
        inf if request.keep == "forever" else request.keep,
        request.parameters if isinstance(request, EnqueueRequest) else (),
    )


@lru_cache(maxsize=1024)
def job_options_for(
    delay: float,
    priority: int,
    attempts: int,
    timeout: float | None,
    retry_first: float | None,
    retry_cap: float | None,
    retry_jitter: float | None,
    unique: str,
    keep: float | None,
    parameters: tuple[str, ...] = (),
) -> JobOptions:
    """Return the options of a background job, which waits for a worker without limit. Equal options are one object."""
    return JobOptions(
        job_timeout=inf if timeout is None else timeout,
        attempts=attempts,
        priority=priority,
        delay=max(0.0, delay),
        waits=True,
        durable=True,
        retry_first=retry_first,
        retry_cap=retry_cap,
        retry_jitter=retry_jitter,
        unique=Unique(unique),
        keep=keep,
        parameters=parameters,
    )
