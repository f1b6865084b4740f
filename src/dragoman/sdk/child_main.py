"""A child process: it loads its handlers, and does one job after the other."""

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
from dragoman.sdk.handlers import Handler, HandlerFailed, describe
from dragoman.sdk.loading import HandlerLoadError, ObjectReference
from dragoman.sdk.parent_death import exit_with_parent
from dragoman.sdk.pipes import BROKEN, DONE, FAILED, JOB, ORDER, PART, PROGRESS, READY, ChildPipe
from dragoman.sdk.printable import log_to_stderr


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """A service, and where its handler is: a function, or a Worker that has it."""

    service: str
    codec: str
    reference: ObjectReference


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """What a child must know from the start."""

    offers: tuple[HandlerSpec, ...]
    max_memory: int = 0  # bytes; 0: no limit
    mute: str = ""  # the dialect, if it has no words for reports
    log_level: str = ""  # empty: the handlers' own code sees to that


def run_child(connected: socket.socket, child_settings: ChildSettings) -> None:
    """What a child process does all its life."""
    _settle_down(child_settings)
    pipe = ChildPipe(connected)
    try:
        services = [_load(each) for each in child_settings.offers]
    except HandlerLoadError as problem:
        pipe.say(BROKEN, payload=str(problem).encode("utf-8", "replace"))
        return
    memory = MemoryLimit(child_settings.max_memory)
    pipe.say(READY)
    try:
        while True:
            kind, job, message = pipe.receive()
            if kind == JOB:  # CANCEL: our answer was on its way already
                pipe.is_cancelled = False
                said, answer = _work(pipe, job, services, message, child_settings.mute)
                pipe.say(said, job, answer, memory.is_over())
    except (EOFError, OSError):
        return  # the parent has gone


def _settle_down(child_settings: ChildSettings) -> None:
    # Handlers may have processes of their own, also those of multiprocessing, which a daemon may not.
    multiprocessing.current_process().daemon = False
    exit_with_parent()
    os.setsid()  # so that we can be killed together with all that a handler has started
    for each in (signal.SIGINT, signal.SIGTERM):  # they are for the worker: it finishes what we are at
        signal.signal(each, lambda *_: None)
    if child_settings.log_level:
        log_to_stderr(child_settings.log_level.upper())


def _load(offer: HandlerSpec) -> Handler:
    found: Any = loading.load(offer.reference)
    offered = getattr(found, "services", None)
    if not callable(found) and isinstance(offered, dict):
        if offer.service not in offered:
            raise HandlerLoadError(
                f"{offer.reference} has no service {offer.service!r} here: it must be there once its module is imported"
            )
        service: Handler = offered[offer.service]
        return service
    try:
        return describe(offer.service, found, offer.codec)
    except TypeError as error:
        raise HandlerLoadError(f"{offer.reference}: {error}") from error


def _work(pipe: ChildPipe, job: int, services: list[Handler], message: Frame, mute: str) -> tuple[int, Frame]:
    number, attempt, seconds, size = ORDER.unpack_from(message)
    service = services[number]
    start = ORDER.size + size
    context = turn = None
    if service.wants_context:
        job_id = bytes(message[ORDER.size : start]).decode()
        assignment = JobInfo(service.name, job_id, attempt, seconds or inf)
        turn = JobReporter(pipe, job)
        context = Context(service.name, assignment, service.codec, turn.report, turn.is_cancelled, mute)
    try:
        return DONE, service.perform(message[start:], context)
    except HandlerFailed as problem:
        return FAILED, pack_failure(problem.failure)
    finally:
        if turn is not None:
            turn.end()


class JobReporter:
    """What a handler says and asks through its context, from any thread: as long as its job runs, and no longer. What a
    thread says that it left behind would be taken for the next job's, and where it looks, the next job would come."""

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
                self._pipe.say(PART if is_part else PROGRESS, self._job, payload)

    def is_cancelled(self) -> bool:
        """Also once it is over: nobody waits any more."""
        self._pipe.exit_if_forked()
        with self._lock:
            return self._is_over or self._pipe.look()

    def end(self) -> None:
        self._pipe.exit_if_forked()
        with self._lock:
            self._is_over = True


def read_failure(payload: Frame) -> Failure:
    """The failure that a child sends with FAILED."""
    failure = unpack_failure(payload)
    assert failure is not None, "a child packs its failures"
    return failure


class MemoryLimit:
    """How much of it this process has."""

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
        """Bytes that are resident now; where there is no /proc, the most there ever were."""
        if self._pages >= 0:
            return int(os.pread(self._pages, 200, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
