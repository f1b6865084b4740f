"""A worker process: keeps the conversation with a broker going while jobs run elsewhere, one at a time."""

from __future__ import annotations

import asyncio
import logging
import random
import shlex
import signal
from collections.abc import Awaitable, Callable, Sequence

from dragoman.carriers.zmtp import Frame, Message, TooLarge, Zmtp
from dragoman.dialects.pingpong.options import WorkerOptions
from dragoman.dialects.pingpong.peer import WORKER_SOCKET, WorkerSide
from dragoman.sdk.address import Place
from dragoman.sdk.child import Child
from dragoman.sdk.errors import BrokerUnavailable, JobError, JobFailed
from dragoman.sdk.link import Link, open_link
from dragoman.streams.dial import BackOff

log = logging.getLogger("dragoman.worker")

CONNECT_TIMEOUT = 5.0

Handler = Callable[[Frame], Awaitable[bytes]]


def function_handler(child: Child) -> Handler:
    """Jobs go to a function in a warm child process."""

    async def handle(payload: Frame) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(None, child.run, payload)

    return handle


def program_handler(command: str) -> Handler:
    """Every job starts a program: payload on stdin, result from stdout, any exit code but 0 is a failure."""
    words = shlex.split(command)

    async def handle(payload: Frame) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # the terminal's Ctrl-C is for us
        )
        try:
            result, complaint = await process.communicate(bytes(payload))
        except asyncio.CancelledError:
            process.kill()
            raise
        if process.returncode:
            said = complaint.decode("utf-8", "replace").strip()
            raise JobFailed(f"{words[0]} ended with exit code {process.returncode}: {said or 'it said nothing'}")
        return result

    return handle


class WorkerProcess:
    """Implements the worker's port of its dialect on a real connection."""

    def __init__(self, place: Place, options: WorkerOptions, handler: Handler) -> None:
        self._place = place
        self._handler = handler
        self._side = WorkerSide(options, self)
        self._loop = asyncio.get_running_loop()
        self._back_off = BackOff(random.uniform, cap=5.0)
        self._link: Link | None = None
        self._job: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._lost = asyncio.Event()
        self._was_told_twice = False

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
                delay = self._back_off.next()
                log.warning("%s; trying again in %.1f s", problem, delay)
                await _first(self._stop.wait(), asyncio.sleep(delay))
                continue
            self._back_off.reset()
            log.info("connected to %s", self._place)
            await self._serve()
            if self._job is not None:
                # It was taken on a connection that is gone: nobody waits for it, but we are not free before it ends.
                await _first(self._finish_job(), self._stop.wait())
        await self._say_goodbye()

    async def _connect(self) -> None:
        self._lost.clear()
        carrier = Zmtp(WORKER_SOCKET, dials=True)
        self._link = await open_link(self._place, carrier, self._heard, self._ended, CONNECT_TIMEOUT)
        self._side.opened(self._loop.time())

    async def _serve(self) -> None:
        """One connection's life: tick until it is lost or we are told to stop."""
        while not self._stop.is_set() and not self._lost.is_set():
            due = self._side.tick(self._loop.time())
            waiting = max(0.001, due - self._loop.time())
            await _first(self._stop.wait(), self._lost.wait(), asyncio.sleep(waiting))

    async def _say_goodbye(self) -> None:
        """Finish the job in hand, heartbeats going on; a second signal does not wait for it."""
        while self._side.is_busy and not self._lost.is_set() and not self._was_told_twice:
            due = self._side.tick(self._loop.time())
            await _first(self._finish_job(), self._lost.wait(), asyncio.sleep(min(0.1, due - self._loop.time())))
        self._side.farewell()
        self._hang_up()
        if self._job is not None:
            self._job.cancel()

    def _told_to_stop(self) -> None:
        self._was_told_twice = self._stop.is_set()
        if not self._was_told_twice:
            log.info("stopping%s", " once the job in hand is done" if self._side.is_busy else "")
        self._stop.set()

    def _heard(self, message: Message | TooLarge) -> None:
        if self._link is not None or not self._lost.is_set():
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
            result = await self._handler(payload)
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


def run_worker(place: Place, options: WorkerOptions, handler: Handler) -> None:
    """Blocks until the worker is told to stop, by a signal or by its broker."""

    async def main() -> None:
        await WorkerProcess(place, options, handler).live()

    asyncio.run(main())


def run_function(place: Place, options: WorkerOptions, target: str) -> None:
    """Run MODULE:FUNCTION as a worker. Raises CannotLoad before anything is connected."""
    child = Child(target)
    child.start()
    try:
        run_worker(place, options, function_handler(child))
    finally:
        child.stop()
