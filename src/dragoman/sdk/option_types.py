"""What type checkers are told of clients and jobs.

A client's codec says what its results are: `Client(url)` is a `Client[bytes]`, one with another codec a `Client[Any]`;
their jobs likewise. In an annotation, each of them and `JobFuture` and `AsyncJobFuture` without more mean bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

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
    wait_for_broker: bool


class CallOptions(TypedDict, total=False):
    """What may be said of a job; explained at `Client.call`."""

    timeout: float | None
    priority: int | None
    attempts: int | None
    job_timeout: float | None
    queue_timeout: float | None
    wait_for_worker: bool


class MapOptions(CallOptions, total=False):
    """What may be said of many; explained at `Client.map`."""

    window: int | None
