"""Dragoman: a job broker that speaks its workers' protocols as they are."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.core.results_payload import unpack_results
    from dragoman.operations.bulk_schemas import BulkView
    from dragoman.operations.group_schemas import GroupView
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
        NoSuchGroup,
        NoSuchJob,
        NoSuchService,
        NotAllowed,
        NotFound,
        PartlyEnqueued,
        PayloadTooLarge,
        PermanentFailure,
        Retry,
        Unsupported,
        WrongArguments,
        WrongDialect,
    )
    from dragoman.sdk.futures import AsyncJobFuture, JobFuture
    from dragoman.sdk.hooks import JobHooks, add_hooks
    from dragoman.sdk.new_jobs import NewJob
    from dragoman.sdk.worker import Worker
    from dragoman.tasks.clients import using
    from dragoman.tasks.decorator import task
    from dragoman.tasks.handles import GroupHandle, JobHandle
    from dragoman.tasks.prepared import PreparedGroup, PreparedJob, aenqueue_many, chain, enqueue_many, group
    from dragoman.tasks.task import AsyncTask, Task
    from dragoman.testing.local import LocalBroker

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncJobFuture",
    "AsyncTask",
    "BrokerUnavailable",
    "BulkView",
    "Busy",
    "Client",
    "Context",
    "DragomanError",
    "Forbidden",
    "GroupHandle",
    "GroupView",
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
    "NewJob",
    "NoSuchGroup",
    "NoSuchJob",
    "NoSuchService",
    "NotAllowed",
    "NotFound",
    "PartlyEnqueued",
    "PayloadTooLarge",
    "PermanentFailure",
    "PreparedGroup",
    "PreparedJob",
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
    "aenqueue_many",
    "chain",
    "enqueue_many",
    "group",
    "task",
    "unpack_results",
    "using",
]

_HOMES = {
    "AsyncClient": "sdk.async_client",
    "AsyncJobFuture": "sdk.futures",
    "AsyncTask": "tasks.task",
    "BulkView": "operations.bulk_schemas",
    "Client": "sdk.client",
    "Context": "sdk.context",
    "HealthView": "operations.schemas",
    "ScheduleView": "operations.schemas",
    "JobFuture": "sdk.futures",
    "JobHandle": "tasks.handles",
    "JobHooks": "sdk.hooks",
    "add_hooks": "sdk.hooks",
    "GroupHandle": "tasks.handles",
    "GroupView": "operations.group_schemas",
    "JobView": "operations.schemas",
    "NewJob": "sdk.new_jobs",
    "PreparedGroup": "tasks.prepared",
    "PreparedJob": "tasks.prepared",
    "aenqueue_many": "tasks.prepared",
    "chain": "tasks.prepared",
    "enqueue_many": "tasks.prepared",
    "group": "tasks.prepared",
    "unpack_results": "core.results_payload",
    "ServiceView": "operations.schemas",
    "LocalBroker": "testing.local",
    "Task": "tasks.task",
    "Tls": "sdk.credentials",
    "task": "tasks.decorator",
    "using": "tasks.clients",
    "Worker": "sdk.worker",
    "WorkerView": "operations.schemas",
}


if not TYPE_CHECKING:  # for a type checker, every name would exist otherwise

    def __getattr__(name: str) -> Any:
        """Load public names on first use, so that `import dragoman` is fast."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"dragoman.{_HOMES.get(name, 'sdk.errors')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
