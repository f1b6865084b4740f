"""Runs jobs in threads of the worker's process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from queue import SimpleQueue

from dragoman.sdk.context import Context
from dragoman.sdk.current_job import begin_job
from dragoman.sdk.handlers import Handler, HandlerFailed
from dragoman.sdk.job_runner import RunningJob
from dragoman.sdk.loop_mailbox import LoopMailbox

log = logging.getLogger("dragoman.worker")


class ThreadPool:
    """Implements Pool with a fixed number of threads. A thread cannot be stopped by force: a cancelled job continues
    until its handler checks `ctx.cancelled` or returns."""

    def __init__(self, services: Mapping[str, Handler], count: int, without_parts: str = "") -> None:
        self._services = services
        self._count = count
        self._without_parts = without_parts
        self._jobs: SimpleQueue[RunningJob | None] = SimpleQueue()

    async def start(self) -> None:
        self._mailbox = LoopMailbox(asyncio.get_running_loop())
        for number in range(self._count):
            # Daemon threads: a worker that stops at once does not wait for them.
            threading.Thread(target=self._work, name=f"job-{number + 1}", daemon=True).start()

    def begin(self, job: RunningJob) -> None:
        self._jobs.put(job)

    def has_ended(self, job: RunningJob) -> bool:
        self._mailbox.run_posted()
        return job.is_over

    def cancel(self, job: RunningJob) -> None:
        """Do nothing: a running handler checks `ctx.cancelled`; a waiting job is not started."""

    def kill(self, job: RunningJob) -> None:
        log.warning("%s was cancelled and still runs: a thread cannot be stopped by force", job.label)

    async def close(self) -> None:
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        post, services = self._mailbox.post, self._services
        while (job := self._jobs.get()) is not None:
            if job.is_cancelled:
                post(job.lost, "cancelled before it started")
                continue
            service = services[job.service]
            context = self._context(service, job) if service.wants_context else None
            begin_job(job.assignment.job_id, job.assignment.traceparent)
            try:
                result = service.perform(job.payload, context)
            except HandlerFailed as problem:
                post(job.fail, problem.failure)
            else:
                post(job.finish, result)
            finally:
                begin_job("", "")

    def _context(self, service: Handler, job: RunningJob) -> Context:
        return context_here(service, job, self._mailbox, self._without_parts)


def context_here(service: Handler, job: RunningJob, mailbox: LoopMailbox, without_parts: str) -> Context:
    """Return the context of a handler that runs in the worker's own process."""
    return Context(
        service.name,
        job.assignment,
        service.codec,
        lambda payload, is_part: mailbox.post(job.report, (payload, is_part)),
        lambda: job.is_cancelled,
        without_parts,
    )
