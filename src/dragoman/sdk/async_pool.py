"""Async handlers: all on one event loop, in a thread of its own, so that one which blocks keeps no heartbeat."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress

from dragoman.sdk.event_loop import new_loop
from dragoman.sdk.handlers import Handler, HandlerFailed
from dragoman.sdk.job_runner import RunningJob
from dragoman.sdk.loop_mailbox import LoopMailbox
from dragoman.sdk.thread_pool import context_here

PARTING = 1.0  # so long those that are cancelled at the end may take to notice


class AsyncPool:
    """Implements Hands. Two loops and two postboxes: theirs is where jobs run, ours is where we are told of them."""

    def __init__(self, services: Mapping[str, Handler], mute: str = "") -> None:
        self._services = services
        self._mute = mute

    async def start(self) -> None:
        self._ours = LoopMailbox(asyncio.get_running_loop())
        self._loop = new_loop()
        self._theirs = LoopMailbox(self._loop)
        self._thread = threading.Thread(target=self._live, name="async-jobs", daemon=True)
        self._thread.start()

    def begin(self, job: RunningJob) -> None:
        self._theirs.post(self._begin, job)

    def cancel(self, job: RunningJob) -> None:
        """The handler sees it in `ctx.cancelled`."""

    def kill(self, job: RunningJob) -> None:
        self._theirs.post(self._kill, job)

    async def close(self) -> None:
        self._theirs.post(lambda loop: loop.stop(), self._loop)
        self._thread.join(PARTING)

    # ---------------------------------------------------------------- in the other thread

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                with suppress(TimeoutError):
                    self._loop.run_until_complete(asyncio.wait_for(_gone(left), PARTING))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _begin(self, job: RunningJob) -> None:
        if job.is_cancelled:
            self._ours.post(job.lost, "it was cancelled before it began")
        else:
            job.performer = self._loop.create_task(self._work(job))

    def _kill(self, job: RunningJob) -> None:
        if isinstance(job.performer, asyncio.Task):
            job.performer.cancel()

    async def _work(self, job: RunningJob) -> None:
        service = self._services[job.service]
        context = context_here(service, job, self._ours, self._mute) if service.wants_context else None
        try:
            result = await service.perform_async(job.payload, context)
        except HandlerFailed as problem:
            self._ours.post(job.fail, problem.failure)
        except asyncio.CancelledError:
            self._ours.post(job.lost, "its task was cancelled by somebody else")
        else:
            self._ours.post(job.finish, result)


async def _gone(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
