"""How a worker does its jobs: in how many processes or threads, how many at once, and when it stops one by force."""

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

ASYNC_JOBS = 100  # at once, if nobody has said
MOST_JOBS = 1000
DEFAULT_GRACE = 1.0


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """None: not said. Raises ValueError for what cannot be."""

    processes: int | None = None
    threads: int | None = None
    concurrency: int | None = None
    max_jobs: int | None = None
    max_memory: int | None = None  # bytes
    cancel_grace: float = DEFAULT_GRACE

    def __post_init__(self) -> None:
        if self.processes is not None and self.threads is not None:
            raise ValueError("processes and threads exclude each other: say where jobs run once")
        for name in ("processes", "threads", "concurrency"):
            number = getattr(self, name)
            if number is not None and not 1 <= number <= MOST_JOBS:
                raise ValueError(f"{name} {number} must be 1 to {MOST_JOBS}")
        for name in ("max_jobs", "max_memory"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} {number} must be at least 1")
            if number is not None and self.threads is not None:
                raise ValueError(f"{name} replaces child processes, and with threads there are none")
        if not 0 <= self.cancel_grace < float("inf"):
            raise ValueError(f"cancel_grace {self.cancel_grace:g} is no number of seconds")

    def jobs_at_once(self, services: Collection[Handler]) -> int:
        """How many jobs the broker may give us at the same time."""
        if self.concurrency is not None:
            return self.concurrency
        if services and all(each.is_async for each in services):
            return ASYNC_JOBS
        return self.threads or self.processes or cores()

    def child_count(self) -> int:
        return self.processes or self.concurrency or cores()

    def pool(
        self, services: Mapping[str, Handler], references: Mapping[str, ObjectReference], mute: str, log_level: str
    ) -> dict[str, Pool]:
        """Who does which service. `references` are where children find those that run there."""
        found: dict[str, Pool] = {}
        waits = {name: each for name, each in services.items() if each.is_async}
        blocks = {name: each for name, each in services.items() if not each.is_async}
        if waits:
            found |= dict.fromkeys(waits, AsyncPool(waits, mute))
        if blocks and self.threads is not None:
            found |= dict.fromkeys(blocks, ThreadPool(blocks, self.threads, mute))
        elif blocks:
            offers = tuple(HandlerSpec(name, each.codec.name, references[name]) for name, each in blocks.items())
            child_settings = ChildSettings(offers, self.max_memory or 0, mute, log_level)
            found |= dict.fromkeys(blocks, ProcessPool(child_settings, self.child_count(), self.max_jobs or 0))
        return found


def cores() -> int:
    """Those that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
