"""What type checkers are told of clients and jobs.

A client's codec says what its results are: `Client(url)` is a `Client[bytes]`, one with another codec a `Client[Any]`;
their jobs likewise. In an annotation, each of them and `JobFuture` and `AsyncJobFuture` without more mean bytes.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Result = TypeVar("Result", default=bytes)
else:  # the default, new in Python 3.13, means something to type checkers only
    from typing import TypeVar

    Result = TypeVar("Result")


class ClientOptions(TypedDict, total=False):
    """What may be said to a new client besides its codec; explained at `Client`."""

    connect_timeout: float
    connections: int
    patient: bool


class CallOptions(TypedDict, total=False):
    """What may be said of a job; explained at `Client.call`."""

    timeout: float | None
    priority: int | None
    attempts: int | None
    job_timeout: float | None
    queue_timeout: float | None
    wait: bool


class MapOptions(CallOptions, total=False):
    """What may be said of many; explained at `Client.map`."""

    window: int | None


class RetryOptions(TypedDict, total=False):
    """What may be said of any background job; explained at `Client.enqueue`."""

    priority: int
    attempts: int
    retry_first: float | None
    retry_cap: float | None
    retry_jitter: float | None


class EnqueueOptions(RetryOptions, total=False):
    delay: float
    not_before: datetime | None
    key: str | None


class ScheduleOptions(RetryOptions, total=False):
    """Explained at `Client.recur`."""

    cron: str | None
    every: float | None
    timezone: str
    overlap: bool
    paused: bool


class JobFilter(TypedDict, total=False):
    """Explained at `Client.jobs`."""

    service: str | None
    state: Literal["waiting", "delayed", "running", "ended"] | None
    outcome: Literal["done", "failed", "timed out", "lost", "cancelled", "refused"] | None
    quarantined: bool | None
    limit: int
    after: str | None
