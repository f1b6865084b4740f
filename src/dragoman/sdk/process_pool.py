"""Jobs in warm child processes, one at a time in each. A handler that dies takes only its own process with it, and one
that holds the interpreter keeps nobody's heartbeat."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from types import ModuleType
from typing import Any

from dragoman.carriers.carrier import Frame, Messages
from dragoman.dialects.sides import Failure
from dragoman.sdk.child_main import ChildSettings, read_failure, run_child
from dragoman.sdk.job_runner import RunningJob
from dragoman.sdk.loading import HandlerLoadError
from dragoman.sdk.pipes import BROKEN, CANCEL, DONE, FAILED, HEAD, JOB, ORDER, PART, READY, SAID, PipeReader, encode
from dragoman.streams.stream import Stream

log = logging.getLogger("dragoman.worker")

START_TIMEOUT = 60.0
RETRY_REST = 1.0  # when a child could not be started
PARTING = 2.0  # until the ends of killed children have been seen
LAST_WORDS = 5.0  # so long a child whose pipe is closed may take to end
PRELOADED_MODULE = ["dragoman.sdk.fork_server_preload"]
MOST_NUMBER = 0xFFFFFFFF  # of a job, in the head of a message


class ProcessPool:
    """Implements Hands. A child that dies, or has done enough, is replaced; jobs meanwhile wait for another."""

    def __init__(self, child_settings: ChildSettings, count: int, max_jobs: int = 0) -> None:
        self._child_settings = child_settings
        self._numbers = {each.service: number for number, each in enumerate(child_settings.offers)}
        self._count = count
        self._max_jobs = max_jobs or inf
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED_MODULE)
        self._children: dict[ChildProcess, None] = {}
        self._free: list[ChildProcess] = []
        self._waiting: deque[RunningJob] = deque()
        self._is_started = False
        self._is_closed = False
        self._problem = ""  # why no child could be started, the last time
        self._is_resting = False  # until it is tried again

    async def start(self) -> None:
        """One child is there when this is over, the others are on their way. Raises CannotLoad."""
        self._loop = asyncio.get_running_loop()
        first = self._add()
        try:
            async with asyncio.timeout(START_TIMEOUT):
                problem = await asyncio.shield(first.born)  # it is not over because we do not wait any longer
        except TimeoutError:
            problem = f"it did not start within {START_TIMEOUT:g} s"
        if problem:
            await self.close()
            raise HandlerLoadError(problem)
        self._is_started = True
        for _ in range(self._count - 1):
            self._add()

    def begin(self, job: RunningJob) -> None:
        if self._free:
            self._give(self._free.pop(), job)
            return
        self._waiting.append(job)
        if len(self._children) < self._count:
            self._replace()

    def cancel(self, job: RunningJob) -> None:
        if isinstance(job.performer, ChildProcess):
            job.performer.cancel()
        else:
            with suppress(ValueError):
                self._waiting.remove(job)
            job.lost("it was cancelled before it began")

    def kill(self, job: RunningJob) -> None:
        if isinstance(job.performer, ChildProcess):
            job.performer.kill()

    async def close(self) -> None:
        self._is_closed = True
        gone = [child.gone for child in self._children]
        for child in self._children:
            child.kill()
        if gone:
            await asyncio.wait(gone, timeout=PARTING)
        for child in list(self._children):
            child.close()

    # ---------------------------------------------------------------- children

    def _add(self) -> ChildProcess:
        """Raises CannotLoad."""
        child = ChildProcess(self, self._loop, self._context, self._child_settings)
        self._children[child] = None
        return child

    def _replace(self) -> None:
        if self._is_closed or self._is_resting or len(self._children) >= self._count:
            return
        try:
            self._add()
        except HandlerLoadError as problem:
            self._broken(str(problem))

    def _broken(self, problem: str) -> None:
        """No child can be had. That may pass, so those who wait are told only the second time, unless another child is
        there for them. Until then they keep our slots taken: who fails at once is always free, and gets all jobs."""
        if self._is_closed or not self._is_started:
            return
        log.error("a child process cannot be started: %s", problem)
        is_old, self._problem = bool(self._problem), problem
        self._is_resting = True
        self._loop.call_later(RETRY_REST, self._try_again)
        if is_old:
            self._give_up_waiting()

    def _try_again(self) -> None:
        self._is_resting = False
        self._replace()

    def _give_up_waiting(self) -> None:
        if not self._children:
            waiting, self._waiting = self._waiting, deque()
            for job in waiting:
                job.fail(Failure("", f"no child process can be started: {self._problem}"))

    def _give(self, child: ChildProcess, job: RunningJob) -> None:
        child.work(job, self._numbers[job.service])

    # ---------------------------------------------------------------- what a child tells

    def is_well(self) -> None:
        """A child could be started."""
        self._problem = ""

    def is_free(self, child: ChildProcess) -> None:
        if child.is_doomed:
            return  # what it is given now would be lost with it
        if self._waiting:
            self._give(child, self._waiting.popleft())
        else:
            self._free.append(child)

    def has_done(self, child: ChildProcess, is_large: bool) -> None:
        """A job is over; `is_large`: the child is over max_memory."""
        if is_large or child.jobs_done >= self._max_jobs:
            log.info("child %d is replaced: %s", child.pid, "max_memory" if is_large else f"{child.jobs_done} jobs")
            child.retire()
            self._lose(child)
            self._replace()
        else:
            self.is_free(child)

    def is_gone(self, child: ChildProcess, problem: str) -> None:
        """Its process is over; `problem` if it never was of use."""
        was_ours = child in self._children
        self._lose(child)
        if problem:
            self._broken(problem)
        elif was_ours:
            self._replace()

    def _lose(self, child: ChildProcess) -> None:
        self._children.pop(child, None)
        with suppress(ValueError):
            self._free.remove(child)


class ChildProcess:
    """One child process, from its parent's side."""

    def __init__(
        self, family: ProcessPool, loop: asyncio.AbstractEventLoop, context: Any, child_settings: ChildSettings
    ) -> None:
        """Raises CannotLoad."""
        self.jobs_done = 0
        self.is_doomed = False  # it was killed, or has ended
        self.born: asyncio.Future[str] = loop.create_future()  # when it is ready; or why it never will be
        self.gone: asyncio.Future[None] = loop.create_future()
        self._family = family
        self._loop = loop
        self._job: RunningJob | None = None
        self._number = 0  # of that job, or of the last one: what has another number is nobody's answer
        self._sent = 0  # bytes that had left for it before its job did
        self._alarm: asyncio.TimerHandle | None = None  # when it is killed, for it should have gone by itself
        ours, theirs = socket.socketpair()
        self._process = context.Process(target=run_child, args=(theirs, child_settings), daemon=True)
        try:
            with _without_main():
                self._process.start()
        except (OSError, EOFError) as error:
            ours.close()
            raise HandlerLoadError(f"no process can be started: {error}") from error
        finally:
            theirs.close()
        self.pid: int = self._process.pid
        ours.setblocking(False)
        self._stream = Stream(loop, ours, PipeReader())
        self._stream.start(self._heard, self._ended)
        loop.add_reader(self._process.sentinel, self._exited)

    def work(self, job: RunningJob, service: int) -> None:
        self._job = job
        self._number = self._number % MOST_NUMBER + 1
        job.performer = self
        self._sent = self._stream.sent
        said = job.assignment
        id = said.job_id.encode()
        seconds = 0.0 if said.timeout == inf else said.timeout
        order = ORDER.pack(service, min(said.attempt, 0xFFFF), seconds, len(id)) + id
        self._stream.write([HEAD.pack(len(order) + len(job.payload), JOB, 0, self._number) + order, job.payload])

    def cancel(self) -> None:
        self._stream.write([encode(CANCEL, self._number)])

    def kill(self) -> None:
        """It, and what its handler has started."""
        self.is_doomed = True
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.kill()  # if it has not got so far as to lead a group

    def retire(self) -> None:
        """It ends by itself once it finds that we have hung up."""
        self._stream.close()
        self._alarm = self._loop.call_later(LAST_WORDS, self.kill)

    def close(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        self._stream.close()
        if self._alarm is not None:
            self._alarm.cancel()
        if not self.gone.done():
            self.gone.set_result(None)

    def _heard(self, messages: Messages) -> None:
        for message in messages:
            assert isinstance(message, list)
            head, payload = message
            kind, flag, number = SAID.unpack(head)
            if number:
                self._heard_of_job(kind, flag, number, payload)
            elif kind == READY:
                self.born.set_result("")
                self._family.is_well()
                self._family.is_free(self)
            elif kind == BROKEN:
                self.born.set_result(bytes(payload).decode("utf-8", "replace"))

    def _heard_of_job(self, kind: int, flag: int, number: int, payload: Frame) -> None:
        job = self._job
        if job is None or number != self._number:
            log.error("child %d answered for a job that it does not have; the answer was dropped", self.pid)
        elif kind in (DONE, FAILED):
            self._job = None
            self.jobs_done += 1
            # First the next job, then the word of this one: the child has something to do meanwhile.
            self._family.has_done(self, bool(flag))
            if kind == DONE:
                job.finish(payload)
            else:
                job.fail(read_failure(payload))
        else:
            job.report((payload, kind == PART))

    def _ended(self, _: str) -> None:
        """It has closed its end: it is about to go, or of no use any more."""
        if self.gone.done():  # we were told of its end first; its pid may be another's by now
            return
        self._alarm = self._loop.call_later(LAST_WORDS, self.kill)

    def _exited(self) -> None:
        self.is_doomed = True
        self._stream.read_dry()  # it may have answered before it went
        self._process.join()
        code = self._process.exitcode
        self.close()
        job, self._job = self._job, None
        problem = ""
        if not self.born.done():
            problem = "its process ended while the module was imported"
            self.born.set_result(problem)
        else:
            problem = self.born.result()
        self._family.is_gone(self, problem)
        if job is not None and self._stream.sent == self._sent and not job.is_cancelled:
            job.performer = None  # it never left us: another child may have it
            self._family.begin(job)
        elif job is not None:
            job.lost(f"the child process ended with exit code {code} while it worked")
        self._process.close()


@contextmanager
def _without_main() -> Iterator[None]:
    """Multiprocessing runs the main script again in every child, before anything of ours. We do that ourselves, and
    only if a handler is defined there: so it does not get to see it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
