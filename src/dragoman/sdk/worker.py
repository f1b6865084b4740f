"""A worker process: keeps the conversation with a broker going while jobs run elsewhere, one at a time."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shlex
import signal
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Protocol

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.zmtp import Zmtp
from dragoman.sdk.address import Place
from dragoman.sdk.child import Child, die_with_parent
from dragoman.sdk.errors import BrokerUnavailable, JobError, JobFailed
from dragoman.sdk.link import TRUSTING, Link, open_link
from dragoman.sdk.peoples import People
from dragoman.streams.dial import BackOff

log = logging.getLogger("dragoman.worker")

CONNECT_TIMEOUT = 5.0


class Handler(Protocol):
    """Whoever does the jobs."""

    async def handle(self, payload: Frame) -> bytes:
        """The result. Raises JobError."""

    def stop(self) -> None:
        """Drop what is under way, at once."""


class FunctionHandler:
    """Jobs go to a function in a warm child process."""

    def __init__(self, child: Child) -> None:
        self._child = child

    async def handle(self, payload: Frame) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(None, self._child.run, payload)

    def stop(self) -> None:
        self._child.stop()


class ProgramHandler:
    """Every job starts a program: payload on stdin, result from stdout, any exit code but 0 is a failure."""

    def __init__(self, command: str) -> None:
        self._words = shlex.split(command)
        self._process: asyncio.subprocess.Process | None = None

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
        self._process = process
        result, complaint = await process.communicate(bytes(payload))
        self._process = None
        if process.returncode:
            said = complaint.decode("utf-8", "replace").strip()
            raise JobFailed(f"{self._words[0]} ended with exit code {process.returncode}: {said or 'it said nothing'}")
        return result

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and the loop has not told us yet
                os.killpg(process.pid, signal.SIGKILL)


class WorkerProcess:
    """Implements the worker's port of its dialect on a real connection."""

    def __init__(self, people: People, place: Place, options: object, handler: Handler) -> None:
        self._people = people
        self._place = place
        self._handler = handler
        self._side = people.worker_side(options, self)
        self._loop = asyncio.get_running_loop()
        self._back_off = BackOff(random.uniform, cap=5.0)
        self._link: Link | None = None
        self._job: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._lost = asyncio.Event()
        self._signals = 0

    @property
    def _was_told_twice(self) -> bool:
        return self._signals > 1

    # ---------------------------------------------------------------- the port

    def send(self, frames: Sequence[Frame]) -> None:
        if self._link is not None:
            self._link.send(frames)

    def run(self, payload: Frame) -> None:
        self._job = self._loop.create_task(self._work(payload))

    def reconnect(self, reason: str) -> None:
        log.warning("reconnecting: %s", reason)
        self._hang_up()

    def leave(self, reason: str) -> None:
        log.info("leaving: %s", reason)
        self._stop.set()

    # ---------------------------------------------------------------- the life of a worker

    async def live(self) -> None:
        """Serve until told to stop."""
        for each in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(each, self._told_to_stop)
        while not self._stop.is_set():
            try:
                await self._connect()
            except BrokerUnavailable as problem:
                await self._rest(str(problem))
                continue
            await self._serve()
            if self._job is not None:
                # It was taken on a connection that is gone: nobody waits for it, but we are not free before it ends.
                await _first(self._finish_job(), self._stop.wait())
            if not self._stop.is_set():
                await self._rest("the connection is gone")
        await self._say_goodbye()

    async def _rest(self, problem: str) -> None:
        delay = self._back_off.next()
        log.warning("%s; trying again in %.1f s", problem, delay)
        await _first(self._stop.wait(), asyncio.sleep(delay))

    async def _connect(self) -> None:
        """Raises BrokerUnavailable. If we are told to stop meanwhile, nobody hears READY from us."""
        self._lost.clear()
        carrier = Zmtp(self._people.worker_socket, dials=True, limits=TRUSTING)
        opening = asyncio.ensure_future(open_link(self._place, carrier, self._heard, self._ended, CONNECT_TIMEOUT))
        await _first(opening, self._stop.wait())
        if not opening.done():
            return
        self._link = opening.result()
        if self._stop.is_set() or self._lost.is_set():
            return
        log.info("connected to %s", self._place)
        self._side.opened(self._loop.time())

    async def _serve(self) -> None:
        """One connection's life: tick until it is lost or we are told to stop."""
        while not self._stop.is_set() and not self._lost.is_set():
            due = self._side.tick(self._loop.time())
            waiting = max(0.001, due - self._loop.time())
            await _first(self._stop.wait(), self._lost.wait(), asyncio.sleep(waiting))

    async def _say_goodbye(self) -> None:
        """Finish the job in hand, the conversation going on; a second signal does not wait for it."""
        self._side.stop()
        while self._side.is_busy and not self._lost.is_set() and not self._was_told_twice:
            due = self._side.tick(self._loop.time())
            await _first(self._finish_job(), self._lost.wait(), asyncio.sleep(min(0.1, due - self._loop.time())))
        while self._link is not None and self._link.backlog and not self._was_told_twice:
            await _first(self._lost.wait(), asyncio.sleep(0.01))
        self._hang_up()
        if self._job is not None:
            self._handler.stop()
            await asyncio.wait([self._job], timeout=1.0)  # so that nothing of it outlives the loop
            if self._job is not None:
                self._job.cancel()

    def _told_to_stop(self) -> None:
        self._signals += 1
        if not self._was_told_twice:
            log.info("stopping%s", " once the job in hand is done" if self._side.is_busy else "")
        self._stop.set()

    def _heard(self, message: Message | TooLarge) -> None:
        if self._link is not None or not self._lost.is_set():
            self._back_off.reset()  # only a broker that speaks to us is worth coming back to at once
            self._side.hear(message, self._loop.time())

    def _ended(self, problem: str) -> None:
        if not self._lost.is_set():
            log.warning("the connection to %s ended: %s", self._place, problem)
            self._hang_up()

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._side.lost()
        self._lost.set()

    async def _work(self, payload: Frame) -> None:
        try:
            result = await self._handler.handle(payload)
        except JobError as problem:
            log.error("job failed: %s", problem)
            self._job = None
            self._side.failed(str(problem).strip().splitlines()[-1])
        else:
            self._job = None
            self._side.finished(result, self._loop.time())

    async def _finish_job(self) -> None:
        if self._job is not None:
            await asyncio.wait([self._job])


async def _first(*ways: Awaitable[object]) -> None:
    """Wait for whichever comes first, and drop the others."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def run_worker(people: People, place: Place, options: object, handler: Handler) -> None:
    """Blocks until the worker is told to stop, by a signal or by its broker."""

    async def main() -> None:
        await WorkerProcess(people, place, options, handler).live()

    try:
        asyncio.run(main())
    finally:
        handler.stop()
