"""Options of background jobs, from the fields of a request."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from dragoman.core.infinity import inf
from dragoman.core.options import JobOptions
from dragoman.operations.schemas import EnqueueRequest, OperationError
from dragoman.operations.validation import duration


def options_of(order: EnqueueRequest, now: float, ahead: Callable[[], float], max_delay: float) -> JobOptions:
    """Options for the job of a request. `ahead`: seconds by which the wall clock leads `now`. Raises OperationError."""
    delay = order.delay
    if order.not_before is not None:
        if order.not_before.tzinfo is None:
            raise OperationError("invalid", "not_before: write a zone behind it, such as Z or +02:00")
        delay = max(delay, order.not_before.timestamp() - ahead() - now)
    if delay > max_delay:
        raise OperationError("invalid", f"it would start in more than {duration(max_delay)} (max_delay)")
    return job_options_for(
        delay, order.priority, order.attempts, order.timeout, order.retry_first, order.retry_cap, order.retry_jitter
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
) -> JobOptions:
    """Options of a background job, which waits for a worker without a limit. Equal options are one object."""
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
    )
