"""A worker process: keeps the conversation with a broker going while jobs run elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shlex
import signal
from collections.abc import Awaitable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.dialects.sides import NOTHING_SAID, Assignment
from dragoman.sdk.child import Child, die_with_parent
from dragoman.sdk.errors import BrokerUnavailable, JobError, JobFailed, last_line
from dragoman.sdk.link import Link, open_link
from dragoman.sdk.peoples import Target
from dragoman.streams.dial import BackOff

log = logging.getLogger("dragoman.worker")

CONNECT_TIMEOUT = 5.0
PARTING = 1.0  # how long the broker may take to hang up when we have


class Handler(Protocol):
    """Whoever does the jobs."""

    async def handle(self, payload: Frame) -> bytes:
        """The result. Raises JobError."""

    def stop(self) -> None:
        """Drop what is under way, at once."""


class FunctionHandler:
    """Jobs go to a function in warm child processes, as many at a time as there are children."""

    def __init__(self, target: str, concurrency: int) -> None:
        self._children = [Child(target) for _ in range(concurrency)]
        self._free = list(self._children)
        self._threads = ThreadPoolExecutor(concurrency, "child")

    def start(self) -> None:
        """Raises CannotLoad."""
        self._children[0].start()  # if one cannot be had, none can
        for _ in self._threads.map(Child.start, self._children[1:]):
            pass

    async def handle(self, payload: Frame) -> bytes:
        child = self._free.pop()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, child.run, payload)
        finally:
            self._free.append(child)

    def stop(self) -> None:
        for child in self._children:
            child.stop()
        self._threads.shutdown(wait=False)


class ProgramHandler:
    """Every job starts a program: payload on stdin, result from stdout, any exit code but 0 is a failure."""

    def __init__(self, command: str) -> None:
        self._words = shlex.split(command)
        self._processes: set[asyncio.subprocess.Process] = set()

    async def handle(self, payload: Frame) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # the terminal's Ctrl-C is for us
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            raise JobFailed(f"cannot run {self._words[0]}: {error.strerror or error}") from error
        self._processes.add(process)
        try:
            result, complaint = await process.communicate(bytes(payload))
        finally:
            self._processes.discard(process)
        if process.returncode:
            said = complaint.decode("utf-8", "replace").strip()
            raise JobFailed(f"{self._words[0]} ended with exit code {process.returncode}: {said or 'it said nothing'}")
        return result

    def stop(self) -> None:
        for process in list(self._processes):
            if process.returncode is None:
                with suppress(ProcessLookupError):  # it has ended, and the loop has not told us yet
                    os.killpg(process.pid, signal.SIGKILL)


class WorkerProcess:
    """Implements the worker's port of its dialect on a real connection, and on the next when that is lost."""

    def __init__(self, target: Target, handler: Handler, concurrency: int = 1) -> None:
        self._target = target
        self._handler = handler
        self._side = target.people.worker_side(target.options, self, target.services, concurrency)
        self._loop = asyncio.get_running_loop()
        self._back_off = BackOff(random.uniform, cap=5.0)
        self._link: Link | None = None
        self._jobs: dict[Hashable, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._stop_at_once = asyncio.Event()
        self._lost = asyncio.Event()

    # ---------------------------------------------------------------- the port

    def send(self, frames: Sequence[Frame]) -> None:
        if self._link is not None:
            self._link.send(frames)

    def run(self, ticket: Hashable, payload: Frame, assignment: Assignment = NOTHING_SAID) -> None:
        self._jobs[ticket] = self._loop.create_task(self._work(ticket, payload))

    def recall(self, ticket: Hashable, reason: str) -> None:
        log.info("nobody waits for a job any more: %s", reason)

    def reconnect(self, reason: str) -> None:
        log.warning("reconnecting: %s", reason)
        self._hang_up()

    def leave(self, reason: str) -> None:
        log.info("leaving: %s", reason)
        self.stop()

    # ---------------------------------------------------------------- the life of a worker

    async def live(self) -> int:
        """Serve until told to stop; then finish what is in hand, and leave. Returns the exit code."""
        while not self._is_done:
            try:
                await self._connect()
            except BrokerUnavailable as problem:
                if self._stop.is_set() and self._side.is_busy:
                    log.error("the broker is gone, and what it was owed with it: %s", problem)
                    break
                await self._rest(str(problem))
                continue
            await self._serve()
            await self._part()
            if self._jobs and not self._side.is_busy:
                # Taken on a connection that is gone, on a wire where that ends them: nobody waits for them any more,
                # but we are not free before they end.
                await first(self._finish_jobs(), self._stop.wait())
            if not self._is_done:
                await self._rest("the connection is gone")
        await self._drop_jobs()
        return 0

    def stop(self) -> None:
        """Once: finish what is in hand, the conversation going on. Twice: do not wait for it."""
        if self._stop.is_set():
            self._stop_at_once.set()
        else:
            log.info("stopping%s", " once the work in hand is done" if self._side.is_busy else "")
            self._stop.set()
            self._side.stop()

    @property
    def _is_done(self) -> bool:
        return self._stop_at_once.is_set() or (self._stop.is_set() and not self._side.is_busy)

    async def _rest(self, problem: str) -> None:
        delay = self._back_off.next()
        log.warning("%s; trying again in %.1f s", problem, delay)
        told = self._stop_at_once if self._stop.is_set() else self._stop
        await first(told.wait(), asyncio.sleep(delay))

    async def _connect(self) -> None:
        """Raises BrokerUnavailable. If we are told to stop meanwhile, nobody hears READY from us."""
        self._lost.clear()
        place = self._target.place
        carrier = self._target.people.worker_carrier(place)
        opening = asyncio.ensure_future(open_link(place, carrier, self._heard, self._ended, CONNECT_TIMEOUT))
        await first(opening, self._stop_at_once.wait() if self._side.is_busy else self._stop.wait())
        if not opening.done():
            return
        self._link = opening.result()
        if self._is_done or self._lost.is_set():
            return
        log.info("connected to %s", place)
        self._side.opened(self._loop.time())

    async def _serve(self) -> None:
        """One connection's life: tick until it is lost or we are done."""
        while not self._is_done and not self._lost.is_set():
            now = self._loop.time()
            waiting = max(0.001, self._side.tick(now) - now)
            if not self._stop.is_set():
                await first(self._stop.wait(), self._lost.wait(), asyncio.sleep(waiting))
            else:
                await first(self._stop_at_once.wait(), self._lost.wait(), asyncio.sleep(min(0.02, waiting)))

    async def _part(self) -> None:
        """Hang up, with a good ear: what the broker sent us before it noticed may be a job."""
        link = self._link
        while link is not None and link.backlog and not self._lost.is_set() and not self._stop_at_once.is_set():
            await first(self._lost.wait(), self._stop_at_once.wait(), asyncio.sleep(0.01))
        if link is not None and not self._lost.is_set():
            link.finish()
            await first(self._lost.wait(), self._stop_at_once.wait(), asyncio.sleep(PARTING))
        self._hang_up()

    def _heard(self, message: Message | TooLarge) -> None:
        if self._link is not None or not self._lost.is_set():
            self._back_off.reset()  # only a broker that speaks to us is worth coming back to at once
            self._side.hear(message, self._loop.time())

    def _ended(self, problem: str) -> None:
        if not self._lost.is_set():
            if not self._is_done:
                log.warning("the connection to %s ended: %s", self._target.place, problem)
            self._hang_up()

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._side.lost()
        self._lost.set()

    # ---------------------------------------------------------------- jobs

    async def _work(self, ticket: Hashable, payload: Frame) -> None:
        try:
            result = await self._handler.handle(payload)
        except JobError as problem:
            log.error("job failed: %s", problem)
            del self._jobs[ticket]
            self._side.failed(ticket, last_line(problem), self._loop.time())
        else:
            del self._jobs[ticket]
            self._side.finished(ticket, result, self._loop.time())

    async def _finish_jobs(self) -> None:
        if self._jobs:
            await asyncio.wait(list(self._jobs.values()))

    async def _drop_jobs(self) -> None:
        """Nothing of them outlives the loop."""
        if self._jobs and self._stop_at_once.is_set():  # else others may be at work with the same handler
            self._handler.stop()
            await asyncio.wait(list(self._jobs.values()), timeout=1.0)
            for job in list(self._jobs.values()):
                job.cancel()


async def first(*ways: Awaitable[object]) -> None:
    """Wait for whichever comes first, and drop the others."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
