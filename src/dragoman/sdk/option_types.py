"""Types of the options of clients and jobs, for type checkers.

The codec of a client decides the type of its results: `Client(url)` is a `Client[bytes]`, a client with another codec a
`Client[Any]`. The same holds for its jobs. In annotations, a bare `Client`, `AsyncClient`, `JobFuture` or
`AsyncJobFuture` means bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from os import PathLike

    from typing_extensions import TypeVar

    from dragoman.sdk.credentials import Tls
    from dragoman.sdk.job_names import JobNames

    Result = TypeVar("Result", default=bytes)
else:  # the default needs Python 3.13 at run time; only type checkers use it
    from typing import TypeVar

    Result = TypeVar("Result")


class CredentialOptions(TypedDict, total=False):
    """Options by which a client or a worker proves its identity; see `Client`."""

    key: str | PathLike[str] | None
    server_key: str | None
    token: str | None
    token_file: str | PathLike[str] | None
    tls: Tls | bool | None


class ClientOptions(CredentialOptions, total=False):
    """Options of a new client besides URL and codec; see `Client`."""

    connect_timeout: float
    connections: int
    wait_for_broker: bool


class CallOptions(TypedDict, total=False):
    """Options of a job; see `Client.call`."""

    timeout: float | None
    priority: int | None
    attempts: int | None
    job_timeout: float | None
    queue_timeout: float | None
    wait_for_worker: bool
    tenant: str | None


class EnqueueOptions(TypedDict, total=False):
    """Options of a background job; see `Client.enqueue`. `group`: id of a new group, for `NewJob`."""

    delay: float
    not_before: datetime | None
    priority: int
    attempts: int
    timeout: float | None
    key: str | None
    unique: Literal["waiting", "unfinished", "kept"]
    keep: float | Literal["forever"] | None
    retry_first: float | None
    retry_cap: float | None
    retry_jitter: float | None
    tenant: str | None
    parent: str | None
    traceparent: str | None
    after: JobNames
    after_failure: Literal["cancel", "run"]
    input: Literal["payload", "result", "results"]
    parameters: Sequence[str]
    group: str | None


class MapOptions(CallOptions, total=False):
    """Options of many jobs; see `Client.map`."""

    window: int | None
