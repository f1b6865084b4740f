"""Dragoman: a job broker that speaks its workers' protocols as they are."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.operations.bulk_schemas import BulkView
    from dragoman.operations.schemas import HealthView, JobView, ScheduleView, ServiceView, WorkerView
    from dragoman.sdk.async_client import AsyncClient
    from dragoman.sdk.client import Client
    from dragoman.sdk.context import Context
    from dragoman.sdk.credentials import Tls
    from dragoman.sdk.errors import (
        BrokerUnavailable,
        Busy,
        DragomanError,
        Forbidden,
        JobCancelled,
        JobError,
        JobFailed,
        JobLost,
        JobRefused,
        JobTimeout,
        NoSuchJob,
        NoSuchService,
        NotAllowed,
        NotFound,
        PayloadTooLarge,
        PermanentFailure,
        Retry,
        Unsupported,
        WrongArguments,
        WrongDialect,
    )
    from dragoman.sdk.futures import AsyncJobFuture, JobFuture
    from dragoman.sdk.hooks import JobHooks, add_hooks
    from dragoman.sdk.worker import Worker
    from dragoman.tasks.clients import using
    from dragoman.tasks.handles import JobHandle
    from dragoman.tasks.task import Task, task
    from dragoman.testing.local import LocalBroker

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncJobFuture",
    "BrokerUnavailable",
    "BulkView",
    "Busy",
    "Client",
    "Context",
    "DragomanError",
    "Forbidden",
    "HealthView",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobFuture",
    "JobHandle",
    "JobHooks",
    "JobLost",
    "JobRefused",
    "JobTimeout",
    "JobView",
    "LocalBroker",
    "NoSuchJob",
    "NoSuchService",
    "NotAllowed",
    "NotFound",
    "PayloadTooLarge",
    "PermanentFailure",
    "Retry",
    "ScheduleView",
    "ServiceView",
    "Task",
    "Tls",
    "Unsupported",
    "Worker",
    "WorkerView",
    "WrongArguments",
    "WrongDialect",
    "add_hooks",
    "task",
    "using",
]

_HOMES = {
    "AsyncClient": "sdk.async_client",
    "AsyncJobFuture": "sdk.futures",
    "BulkView": "operations.bulk_schemas",
    "Client": "sdk.client",
    "Context": "sdk.context",
    "HealthView": "operations.schemas",
    "ScheduleView": "operations.schemas",
    "JobFuture": "sdk.futures",
    "JobHandle": "tasks.handles",
    "JobHooks": "sdk.hooks",
    "add_hooks": "sdk.hooks",
    "JobView": "operations.schemas",
    "ServiceView": "operations.schemas",
    "LocalBroker": "testing.local",
    "Task": "tasks.task",
    "Tls": "sdk.credentials",
    "task": "tasks.task",
    "using": "tasks.clients",
    "Worker": "sdk.worker",
    "WorkerView": "operations.schemas",
}


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that `import dragoman` is fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"dragoman.{_HOMES.get(name, 'sdk.errors')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
