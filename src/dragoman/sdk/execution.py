"""Execution options of a worker: processes, threads, concurrency and grace period; creates the pools for them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dragoman.sdk.async_pool import AsyncPool
from dragoman.sdk.child_main import ChildSettings, HandlerSpec
from dragoman.sdk.handlers import Handler
from dragoman.sdk.job_runner import Pool
from dragoman.sdk.loading import ObjectReference
from dragoman.sdk.process_pool import ProcessPool
from dragoman.sdk.thread_pool import ThreadPool

ASYNC_JOBS = 100  # default concurrency of async handlers
MAX_JOBS = 1000
DEFAULT_GRACE = 1.0


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """Options that decide where and how many jobs run. None means not set. Raises ValueError for invalid values."""

    processes: int | None = None
    threads: int | None = None
    concurrency: int | None = None
    max_jobs: int | None = None
    max_memory: int | None = None  # bytes
    cancel_grace: float = DEFAULT_GRACE

    def __post_init__(self) -> None:
        if self.processes is not None and self.threads is not None:
            raise ValueError("processes and threads exclude each other; set one of them")
        for name in ("processes", "threads", "concurrency"):
            number = getattr(self, name)
            if number is not None and not 1 <= number <= MAX_JOBS:
                raise ValueError(f"{name} {number} must be 1 to {MAX_JOBS}")
        for name in ("max_jobs", "max_memory"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} {number} must be at least 1")
            if number is not None and self.threads is not None:
                raise ValueError(f"{name} applies to child processes and cannot be combined with threads")
        if self.max_memory is not None and os.name == "nt":
            raise ValueError(f"max_memory {self.max_memory} cannot be measured on Windows; set max_jobs instead")
        if not 0 <= self.cancel_grace < float("inf"):
            raise ValueError(f"cancel_grace {self.cancel_grace:g} must be a number of seconds, 0 or more")

    def jobs_at_once(self, services: Collection[Handler]) -> int:
        """Return the number of jobs that the broker may send at the same time."""
        if self.concurrency is not None:
            return self.concurrency
        if services and all(each.is_async for each in services):
            return ASYNC_JOBS
        return self.threads or self.processes or cores()

    def child_count(self) -> int:
        return self.processes or self.concurrency or cores()

    def pool(
        self,
        services: Mapping[str, Handler],
        references: Mapping[str, ObjectReference],
        without_parts: str,
        log_level: str,
    ) -> dict[str, Pool]:
        """Create the pools, by service. `references`: handlers of services that run in child processes."""
        found: dict[str, Pool] = {}
        asynchronous = {name: each for name, each in services.items() if each.is_async}
        blocking = {name: each for name, each in services.items() if not each.is_async}
        if asynchronous:
            found |= dict.fromkeys(asynchronous, AsyncPool(asynchronous, without_parts))
        if blocking and self.threads is not None:
            found |= dict.fromkeys(blocking, ThreadPool(blocking, self.threads, without_parts))
        elif blocking:
            handlers = tuple(HandlerSpec(name, each.codec.name, references[name]) for name, each in blocking.items())
            child_settings = ChildSettings(handlers, self.max_memory or 0, without_parts, log_level)
            found |= dict.fromkeys(blocking, ProcessPool(child_settings, self.child_count(), self.max_jobs or 0))
        return found


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
