"""Runs async handlers on one event loop in a separate thread, so that a blocking handler does not delay heartbeats."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress

from dragoman.sdk.current_job import begin_job
from dragoman.sdk.event_loop import new_loop
from dragoman.sdk.handlers import Handler, HandlerFailed
from dragoman.sdk.job_runner import RunningJob
from dragoman.sdk.loop_mailbox import LoopMailbox
from dragoman.sdk.thread_pool import context_here

CLOSE_TIMEOUT = 1.0  # seconds that tasks may take to end after they are cancelled by `close`


class AsyncPool:
    """Implements Pool. Each of the two event loops has a mailbox: jobs run on `_loop`, the worker on the other one."""

    def __init__(self, services: Mapping[str, Handler], without_parts: str = "") -> None:
        self._services = services
        self._without_parts = without_parts

    async def start(self) -> None:
        self._worker_mailbox = LoopMailbox(asyncio.get_running_loop())
        self._loop = new_loop()
        self._job_mailbox = LoopMailbox(self._loop)
        self._thread = threading.Thread(target=self._run_loop, name="async-jobs", daemon=True)
        self._thread.start()

    def begin(self, job: RunningJob) -> None:
        self._job_mailbox.post(self._begin, job)

    def has_ended(self, job: RunningJob) -> bool:
        self._worker_mailbox.run_posted()
        return job.is_over

    def cancel(self, job: RunningJob) -> None:
        """Do nothing: the handler checks `ctx.cancelled`."""

    def kill(self, job: RunningJob) -> None:
        self._job_mailbox.post(self._kill, job)

    async def close(self) -> None:
        self._job_mailbox.post(lambda loop: loop.stop(), self._loop)
        self._thread.join(CLOSE_TIMEOUT)

    # ---------------------------------------------------------------- in the other thread

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                with suppress(TimeoutError):
                    self._loop.run_until_complete(asyncio.wait_for(_all_ended(left), CLOSE_TIMEOUT))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _begin(self, job: RunningJob) -> None:
        if job.is_cancelled:
            self._worker_mailbox.post(job.lost, "cancelled before it started")
        else:
            job.performer = self._loop.create_task(self._work(job))

    def _kill(self, job: RunningJob) -> None:
        if isinstance(job.performer, asyncio.Task):
            job.performer.cancel()

    async def _work(self, job: RunningJob) -> None:
        service = self._services[job.service]
        context = (
            context_here(service, job, self._worker_mailbox, self._without_parts) if service.wants_context else None
        )
        begin_job(job.assignment.job_id, job.assignment.traceparent)  # in the context of this task
        try:
            result = await service.perform_async(job.payload, context)
        except HandlerFailed as problem:
            self._worker_mailbox.post(job.fail, problem.failure)
        except asyncio.CancelledError:
            self._worker_mailbox.post(job.lost, "the task of the handler was cancelled, but not by the worker")
        else:
            self._worker_mailbox.post(job.finish, result)


async def _all_ended(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
