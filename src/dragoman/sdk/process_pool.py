"""Runs jobs in child processes, one at a time in each. A handler that crashes ends only its own process, and one that
holds the interpreter lock does not delay heartbeats."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from multiprocessing import connection
from types import ModuleType
from typing import Any

from dragoman.carriers.carrier import Frame, Messages
from dragoman.dialects.sides import Failure
from dragoman.sdk.child_main import ChildSettings, read_failure, run_child
from dragoman.sdk.exit_status import exit_text
from dragoman.sdk.job_runner import RunningJob
from dragoman.sdk.loading import HandlerLoadError
from dragoman.sdk.pipes import (
    BROKEN,
    CANCEL,
    DONE,
    FAILED,
    HEAD,
    JOB,
    JOB_HEAD,
    PART,
    READY,
    SHORT_HEAD,
    PipeReader,
    encode,
)
from dragoman.sdk.proof import TOKEN_VARIABLE
from dragoman.streams.stream import Stream

log = logging.getLogger("dragoman.worker")

START_TIMEOUT = 60.0  # seconds
RETRY_DELAY = 1.0  # seconds until a failed start of a child process is retried
CLOSE_TIMEOUT = 2.0  # seconds to wait for the exit of killed child processes
EXIT_TIMEOUT = 5.0  # seconds that a child process may take to exit after its pipe is closed
PRELOADED_MODULE = ["dragoman.sdk.fork_server_preload"]
MAX_NUMBER = 0xFFFFFFFF  # highest job number in the head of a message


class ProcessPool:
    """Implements Pool. A child process that exits, or has reached max_jobs or max_memory, is replaced. Jobs wait until
    one is free."""

    def __init__(self, child_settings: ChildSettings, count: int, max_jobs: int = 0) -> None:
        self._child_settings = child_settings
        self._numbers = {each.service: number for number, each in enumerate(child_settings.handlers)}
        self._count = count
        self._max_jobs = max_jobs or inf
        is_forking = "forkserver" in multiprocessing.get_all_start_methods()  # else each child is a new interpreter
        self._context: Any = multiprocessing.get_context("forkserver" if is_forking else "spawn")
        if is_forking:
            self._context.set_forkserver_preload(PRELOADED_MODULE)
        self._children: dict[ChildProcess, None] = {}
        self._free: list[ChildProcess] = []
        self._waiting: deque[RunningJob] = deque()
        self._is_started = False
        self._is_closed = False
        self._problem = ""  # error of the last start, if it failed
        self._is_retry_scheduled = False  # a retry of the start is scheduled

    async def start(self) -> None:
        """Wait until the first child process is ready, and start the others. Raises HandlerLoadError."""
        self._loop = asyncio.get_running_loop()
        first = self._add()
        try:
            async with asyncio.timeout(START_TIMEOUT):
                problem = await asyncio.shield(first.ready)  # the time-out must not cancel the future
        except TimeoutError:
            problem = f"the child process did not start within {START_TIMEOUT:g} s"
        if problem:
            await self.close()
            raise HandlerLoadError(problem)
        self._is_started = True
        for _ in range(self._count - 1):
            self._add()

    def begin(self, job: RunningJob) -> None:
        if self._free:
            self._send(self._free.pop(), job)
            return
        self._waiting.append(job)
        if len(self._children) < self._count:
            self._replace()

    def has_ended(self, job: RunningJob) -> bool:
        if isinstance(job.performer, ChildProcess):
            job.performer.read()
        return job.is_over

    def cancel(self, job: RunningJob) -> None:
        if isinstance(job.performer, ChildProcess):
            job.performer.cancel()
        else:
            with suppress(ValueError):
                self._waiting.remove(job)
            job.lost("cancelled before it started")

    def kill(self, job: RunningJob) -> None:
        if isinstance(job.performer, ChildProcess):
            job.performer.kill()

    async def close(self) -> None:
        self._is_closed = True
        exited = [child.exited for child in self._children]
        for child in self._children:
            child.kill()
        if exited:
            await asyncio.wait(exited, timeout=CLOSE_TIMEOUT)
        for child in list(self._children):
            child.close()

    # ---------------------------------------------------------------- children

    def _add(self) -> ChildProcess:
        """Start a child process. Raises HandlerLoadError."""
        child = ChildProcess(self, self._loop, self._context, self._child_settings)
        self._children[child] = None
        return child

    def _replace(self) -> None:
        if self._is_closed or self._is_retry_scheduled or len(self._children) >= self._count:
            return
        try:
            self._add()
        except HandlerLoadError as problem:
            self._start_failed(str(problem))

    def _start_failed(self, problem: str) -> None:
        """Handle a failed start. It is retried; after a second failure the waiting jobs fail, unless another child
        process exists. Failing them at once would free the slots, and this worker would attract all jobs."""
        if self._is_closed or not self._is_started:
            return
        log.error("child process not started: %s", problem)
        is_old, self._problem = bool(self._problem), problem
        self._is_retry_scheduled = True
        self._loop.call_later(RETRY_DELAY, self._try_again)
        if is_old:
            self._fail_waiting()

    def _try_again(self) -> None:
        self._is_retry_scheduled = False
        self._replace()

    def _fail_waiting(self) -> None:
        if not self._children:
            waiting, self._waiting = self._waiting, deque()
            for job in waiting:
                job.fail(Failure("", f"the worker cannot start a child process: {self._problem}"))

    def _send(self, child: ChildProcess, job: RunningJob) -> None:
        child.work(job, self._numbers[job.service])

    # ---------------------------------------------------------------- calls from child processes

    def child_started(self) -> None:
        """Called when a child process is ready for the first time."""
        self._problem = ""

    def child_free(self, child: ChildProcess) -> None:
        if child.is_ending:
            return  # a job sent to it would be lost
        if self._waiting:
            self._send(child, self._waiting.popleft())
        else:
            self._free.append(child)

    def job_ended(self, child: ChildProcess, is_large: bool) -> None:
        """Called when a job has ended. `is_large`: the child process exceeds max_memory."""
        if is_large or child.jobs_done >= self._max_jobs:
            reason = "max_memory" if is_large else f"{child.jobs_done} jobs"
            log.info("child process %d replaced: %s", child.pid, reason)
            child.retire()
            self._remove(child)
            self._replace()
        else:
            self.child_free(child)

    def child_exited(self, child: ChildProcess, problem: str) -> None:
        """Called when the process has exited. `problem`: error if it never became ready."""
        was_ours = child in self._children
        self._remove(child)
        if problem:
            self._start_failed(problem)
        elif was_ours:
            self._replace()

    def _remove(self, child: ChildProcess) -> None:
        self._children.pop(child, None)
        with suppress(ValueError):
            self._free.remove(child)


class ChildProcess:
    """The parent's side of one child process."""

    def __init__(
        self, pool: ProcessPool, loop: asyncio.AbstractEventLoop, context: Any, child_settings: ChildSettings
    ) -> None:
        """Raises HandlerLoadError."""
        self.jobs_done = 0
        self.is_ending = False  # killed, or has exited
        self.ready: asyncio.Future[str] = loop.create_future()  # set when it is ready: "", or an error message
        self.exited: asyncio.Future[None] = loop.create_future()
        self._pool = pool
        self._loop = loop
        self._job: RunningJob | None = None
        self._number = 0  # of that job, or of the last one; messages with another number are dropped
        self._sent = 0  # bytes that were sent to it before the job
        self._kill_timer: asyncio.TimerHandle | None = None  # kills it if it does not exit by itself
        ours, theirs = socket.socketpair()
        self._process = context.Process(target=run_child, args=(theirs, child_settings), daemon=True)
        try:
            with _without_main(), _without_token(), _without_interrupts():
                self._process.start()
        except (OSError, EOFError) as error:
            ours.close()
            raise HandlerLoadError(f"the child process could not be started: {error}") from error
        finally:
            theirs.close()
        self.pid: int = self._process.pid
        ours.setblocking(False)
        self._stream = Stream(loop, ours, PipeReader())
        self._stream.start(self._received, self._ended)
        if os.name == "nt":  # an event loop watches nothing but sockets there
            threading.Thread(target=self._wait_for_exit, name=f"exit of {self.pid}", daemon=True).start()
        else:
            loop.add_reader(self._process.sentinel, self._exited)

    def work(self, job: RunningJob, service: int) -> None:
        self._job = job
        self._number = self._number % MAX_NUMBER + 1
        job.performer = self
        self._sent = self._stream.sent
        info = job.assignment
        id, trace = info.job_id.encode(), info.traceparent.encode()
        seconds = 0.0 if info.timeout == inf else info.timeout
        waited = -1.0 if info.waited is None else info.waited
        order = JOB_HEAD.pack(service, min(info.attempt, 0xFFFF), seconds, waited, len(id), len(trace)) + id + trace
        self._stream.write([HEAD.pack(len(order) + len(job.payload), JOB, 0, self._number) + order, job.payload])

    def read(self) -> None:
        """Handle what it has sent by now."""
        self._stream.read_dry()

    def cancel(self) -> None:
        self._stream.write([encode(CANCEL, self._number)])

    def kill(self) -> None:
        """Kill the process and all processes that its handler has started."""
        self.is_ending = True
        if hasattr(os, "killpg"):  # Windows has no process groups: what the handler has started goes on there
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.kill()  # in case it has not called setsid yet

    def retire(self) -> None:
        """Close the pipe, so that the process exits; kill it if it does not."""
        self._stream.close()
        self._kill_timer = self._loop.call_later(EXIT_TIMEOUT, self.kill)

    def close(self) -> None:
        if os.name != "nt":
            self._loop.remove_reader(self._process.sentinel)
        self._stream.close()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        if not self.exited.done():
            self.exited.set_result(None)

    def _received(self, messages: Messages) -> None:
        for message in messages:
            assert isinstance(message, list)
            head, payload = message
            kind, flag, number = SHORT_HEAD.unpack(head)
            if number:
                self._received_for_job(kind, flag, number, payload)
            elif kind == READY:
                self.ready.set_result("")
                self._pool.child_started()
                self._pool.child_free(self)
            elif kind == BROKEN:
                self.ready.set_result(bytes(payload).decode("utf-8", "replace"))

    def _received_for_job(self, kind: int, flag: int, number: int, payload: Frame) -> None:
        job = self._job
        if job is None or number != self._number:
            log.error("message dropped: child process %d does not hold the job that it names", self.pid)
        elif kind in (DONE, FAILED):
            self._job = None
            self.jobs_done += 1
            # Send the next job before this result is processed, so that the child process is not idle meanwhile.
            self._pool.job_ended(self, bool(flag))
            if kind == DONE:
                job.finish(payload)
            else:
                job.fail(read_failure(payload))
        else:
            job.report((payload, kind == PART))

    def _ended(self, _: str) -> None:
        """Kill the process if it does not exit soon after it has closed its end of the pipe."""
        if self.exited.done():  # it has already exited; its pid may be reused
            return
        self._kill_timer = self._loop.call_later(EXIT_TIMEOUT, self.kill)

    def _wait_for_exit(self) -> None:
        """Wait in a thread of its own."""
        connection.wait([self._process.sentinel])
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._noticed)

    def _noticed(self) -> None:
        if not self.exited.done():  # not closed meanwhile
            self._exited()

    def _exited(self) -> None:
        self.is_ending = True
        self._stream.read_dry()  # it may have sent a result before it exited
        self._process.join()
        code = self._process.exitcode
        self.close()
        job, self._job = self._job, None
        problem = ""
        if not self.ready.done():
            problem = "the child process ended while it imported the handler's module"
            self.ready.set_result(problem)
        else:
            problem = self.ready.result()
        self._pool.child_exited(self, problem)
        if job is not None and self._stream.sent == self._sent and not job.is_cancelled:
            job.performer = None  # never sent: another child process can run it
            self._pool.begin(job)
        elif job is not None:
            job.lost(f"the child process ended with {exit_text(code)} during the job")
        self._process.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block SIGINT for processes that are started here. Ctrl-C would end the fork server with a traceback while it
    loads its modules. A child unblocks it once it has its own handler."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # started with the fork server, it would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_token() -> Iterator[None]:
    """Hide the worker's token from processes that are started here: handlers run in them (R157)."""
    token = os.environ.pop(TOKEN_VARIABLE, None)
    try:
        yield
    finally:
        if token is not None:
            os.environ[TOKEN_VARIABLE] = token


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main script from multiprocessing, which would run it again in every child process before `run_child`.
    `loading.load` runs it only if a handler is defined there."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
