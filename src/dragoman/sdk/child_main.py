"""Main function of a worker's child process: loads the handlers, then runs one job at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from math import inf
from typing import Any

from dragoman.carriers.carrier import Frame
from dragoman.core.failure import Failure, pack_failure, unpack_failure
from dragoman.dialects.sides import JobInfo
from dragoman.sdk import loading
from dragoman.sdk.context import Context
from dragoman.sdk.current_job import begin_process_job
from dragoman.sdk.event_loop import STOP_SIGNALS
from dragoman.sdk.handlers import MOST_MESSAGE, Handler, HandlerFailed, cut, describe
from dragoman.sdk.loading import HandlerLoadError, ObjectReference
from dragoman.sdk.parent_death import exit_after_parent, exit_with_parent
from dragoman.sdk.pipes import BROKEN, DONE, FAILED, JOB, JOB_HEAD, PART, PROGRESS, READY, ChildPipe
from dragoman.sdk.printable import log_to_stderr


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """A service with a reference to its handler: a function, or a Worker that has it."""

    service: str
    codec: str
    reference: ObjectReference


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """Start-up settings of a child process."""

    handlers: tuple[HandlerSpec, ...]
    max_memory: int = 0  # bytes; 0: no limit
    without_parts: str = ""  # name of the dialect if it does not support parts of a result
    log_level: str = ""  # empty: the handlers' own code configures logging


def run_child(connected: socket.socket, child_settings: ChildSettings) -> None:
    """Run jobs until the parent closes the pipe."""
    _set_up(child_settings)
    pipe = ChildPipe(connected)
    try:
        services = [_load(each) for each in child_settings.handlers]
    except HandlerLoadError as problem:
        pipe.send_message(BROKEN, payload=cut(str(problem), MOST_MESSAGE).encode("utf-8", "replace"))
        return
    memory = MemoryLimit(child_settings.max_memory)
    pipe.send_message(READY)
    try:
        while True:
            kind, job, message = pipe.receive()
            if kind == JOB:  # else CANCEL, for a job whose result was already sent
                pipe.is_cancelled = False
                outcome, answer = _work(pipe, job, services, message, child_settings.without_parts)
                pipe.send_message(outcome, job, answer, memory.is_over())
    except (EOFError, OSError):
        return  # the parent has ended


def _set_up(child_settings: ChildSettings) -> None:
    # Handlers may use multiprocessing, which a daemon process may not.
    multiprocessing.current_process().daemon = False
    if not exit_with_parent():
        exit_after_parent()
    if hasattr(os, "setsid"):
        os.setsid()  # the process group can then be killed, with all processes that a handler has started
    for name in STOP_SIGNALS:  # the parent handles these: it finishes the running jobs
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked since the fork server was started
    if child_settings.log_level:
        log_to_stderr(child_settings.log_level.upper())


def _load(spec: HandlerSpec) -> Handler:
    found: Any = loading.load(spec.reference)
    defined = getattr(found, "services", None)
    if not callable(found) and isinstance(defined, dict):
        if spec.service not in defined:
            raise HandlerLoadError(
                f"{spec.reference} has no service {spec.service!r} in the child process; define the service when its "
                "module is imported"
            )
        service: Handler = defined[spec.service]
        return service
    try:
        return describe(spec.service, found, spec.codec)
    except TypeError as error:
        raise HandlerLoadError(f"{spec.reference}: {error}") from error


def _work(pipe: ChildPipe, job: int, services: list[Handler], message: Frame, without_parts: str) -> tuple[int, Frame]:
    number, attempt, seconds, waited, size, trace_size = JOB_HEAD.unpack_from(message)
    service = services[number]
    end_of_id = JOB_HEAD.size + size
    start = end_of_id + trace_size
    job_id = bytes(message[JOB_HEAD.size : end_of_id]).decode()
    traceparent = bytes(message[end_of_id:start]).decode() if trace_size else ""
    begin_process_job(job_id, traceparent)
    context = reporter = None
    if service.wants_context:
        waited_for = waited if waited >= 0.0 else None
        assignment = JobInfo(service.name, job_id, attempt, seconds or inf, traceparent, waited_for)
        reporter = JobReporter(pipe, job)
        context = Context(
            service.name, assignment, service.codec, reporter.report, reporter.is_cancelled, without_parts
        )
    try:
        return DONE, service.perform(message[start:], context)
    except HandlerFailed as problem:
        return FAILED, pack_failure(problem.failure)
    finally:
        begin_process_job("", "")
        if reporter is not None:
            reporter.end()


class JobReporter:
    """Sends the reports of one job and checks for its cancellation, from any thread, until the job ends.

    A thread that outlives its job must not use the pipe: its reports would be taken for those of the next job, and its
    check for cancellation could read the message of the next job.
    """

    __slots__ = ("_is_over", "_job", "_lock", "_pipe")

    def __init__(self, pipe: ChildPipe, job: int) -> None:
        self._pipe = pipe
        self._job = job
        self._lock = threading.RLock()
        self._is_over = False

    def report(self, payload: Frame, is_part: bool) -> None:
        self._pipe.exit_if_forked()
        with self._lock:
            if not self._is_over:
                self._pipe.send_message(PART if is_part else PROGRESS, self._job, payload)

    def is_cancelled(self) -> bool:
        """Return whether the job is cancelled or has ended."""
        self._pipe.exit_if_forked()
        with self._lock:
            return self._is_over or self._pipe.check_cancelled()

    def end(self) -> None:
        self._pipe.exit_if_forked()
        with self._lock:
            self._is_over = True


def read_failure(payload: Frame) -> Failure:
    """Decode the failure that a child process sends with FAILED."""
    failure = unpack_failure(payload)
    assert failure is not None, "FAILED carries a packed failure"
    return failure


class MemoryLimit:
    """Compares the memory of this process with a limit in bytes; 0 means no limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pages = -1
        if limit:
            try:
                self._pages = os.open("/proc/self/statm", os.O_RDONLY)
            except OSError:
                pass

    def is_over(self) -> bool:
        return bool(self._limit) and self.used() > self._limit

    def used(self) -> int:
        """Return the resident bytes now, or the peak on systems without /proc."""
        if self._pages >= 0:
            return int(os.pread(self._pages, 200, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
