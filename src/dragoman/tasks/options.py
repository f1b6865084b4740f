"""Options of tasks and of their jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, TypedDict

from dragoman.sdk.job_names import JobNames
from dragoman.sdk.option_types import CallOptions


class TaskOptions(TypedDict, total=False):
    """Options of the jobs of a task; those that are not set have the defaults of `Client.call` and `Client.enqueue`.

    `job_timeout` limits one attempt, of calls and of background jobs. `timeout`, `queue_timeout` and `wait_for_worker`
    are about calls, all others from `delay` on about background jobs. `window` is about `map` and `amap`: most jobs of
    one that run at once.
    """

    attempts: int | None
    priority: int | None
    job_timeout: float | None
    timeout: float | None
    queue_timeout: float | None
    wait_for_worker: bool
    tenant: str | None
    window: int | None
    delay: float
    not_before: datetime | None
    key: str | None
    unique: Literal["waiting", "unfinished", "kept"]
    keep: float | Literal["forever"] | None
    retry_first: float | None
    retry_cap: float | None
    retry_jitter: float | None
    after: JobNames
    after_failure: Literal["cancel", "run"]


CALL: Final = frozenset(CallOptions.__annotations__)
BACKGROUND: Final = (
    "attempts",
    "priority",
    "tenant",
    "delay",
    "not_before",
    "key",
    "unique",
    "keep",
    "retry_first",
    "retry_cap",
    "retry_jitter",
    "after",
    "after_failure",
)
ONE_JOB: Final = ("key", "unique", "after", "after_failure")  # of background jobs that are enqueued one by one


def check(options: TaskOptions) -> None:
    """Raise TypeError for the name of an unknown option."""
    unknown = next((each for each in options if each not in TaskOptions.__annotations__), None)
    if unknown is not None:
        raise TypeError(
            f"unknown option {unknown!r} of a task; known options: {', '.join(TaskOptions.__annotations__)}"
        )


def call_options(options: TaskOptions) -> Any:
    """Return the options of `Client.call` and `submit`."""
    return {name: value for name, value in options.items() if name in CALL}


def map_options(options: TaskOptions) -> Any:
    """Return the options of `Client.map`."""
    return {name: value for name, value in options.items() if name in CALL or name == "window"}


def enqueue_options(options: TaskOptions) -> Any:
    """Return the options of `Client.enqueue`."""
    found = {name: value for name, value in options.items() if name in BACKGROUND and value is not None}
    if "job_timeout" in options:
        found["timeout"] = options["job_timeout"]
    return found
