"""Futures of submitted jobs, with id, progress and parts: `JobFuture` for threads, `AsyncJobFuture` for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import JobExtras, SubmitOptions
from dragoman.sdk.builtin_failures import as_builtin
from dragoman.sdk.codecs import Codec
from dragoman.sdk.current_job import current_extras
from dragoman.sdk.errors import DragomanError, JobCancelled, JobFailed
from dragoman.sdk.ids import new_job_id
from dragoman.sdk.operation import OperationCall
from dragoman.sdk.option_types import Result
from dragoman.sdk.submit_options import SubmitOptionsCache
from dragoman.sdk.tracing import TracedFuture, follow_call, tracing

if TYPE_CHECKING:
    from dragoman.sdk.client_connection import ClientConnection
    from dragoman.sdk.engine import Engine

Listener = Callable[[Any], object]
Part = tuple[int, Frame]  # number of the attempt, payload

_ENDED = frozenset((FINISHED, CANCELLED, CANCELLED_AND_NOTIFIED))
_logger = logging.getLogger("dragoman")
_END: Part = (0, b"")  # follows the last part
# One lock for all jobs: few need it. Reentrant, because the garbage collector may close a `map` while it is held.
_lock = threading.RLock()


class AsyncJobClient(Protocol):
    """The parts of a client that its jobs use."""

    @property
    def options_cache(self) -> SubmitOptionsCache: ...

    @property
    def engine(self) -> Engine: ...


class JobClient(AsyncJobClient, Protocol):
    """The parts of a client that jobs of threads use."""

    def check_process(self) -> None:
        """Raise RuntimeError in a forked child."""

    def check_may_wait(self) -> None:
        """Raise RuntimeError if waiting here would never end."""


class _Reports:
    """Progress reports and parts received from a running job."""

    __slots__ = ("attempt", "listeners", "parts", "report")

    def __init__(self) -> None:
        self.attempt = 0
        self.parts: list[Frame] = []  # of this attempt, if parts and result are joined
        self.report: Frame | None = None
        self.listeners: list[Listener] = []


class _JobHandle:
    """State and methods that both kinds of job future share."""

    _options_cache: SubmitOptionsCache
    _received: _Reports | None = None
    operation: OperationCall | None = None  # None: this is a job, not an operation

    def _begin(
        self, submit_options: SubmitOptions, payload: Frame, codec: Codec, options_cache: SubmitOptionsCache
    ) -> None:
        self.submit_options = submit_options
        self.payload = payload
        self.job_id = new_job_id()
        self.extras: JobExtras | None = current_extras()
        if tracing.tracer is not None:
            future: TracedFuture = self  # type: ignore[assignment]
            self.extras = follow_call(tracing.tracer, future, submit_options.service, self.job_id, self.extras)
        self.connection: ClientConnection | None = None
        self.is_over = False
        self.entered = 0.0
        self.due = 0.0
        self._codec = codec
        self._options_cache = options_cache

    @property
    def id(self) -> str:
        """The job's id, 32 hex digits, as in logs and dashboards."""
        self._options_cache.require("id")
        return self.job_id.hex()

    @property
    def progress(self) -> Any:
        """The latest progress report of the running job, or None. Decoded if it is JSON, else bytes."""
        self._options_cache.require("progress")
        return _read(self._received.report) if self._received is not None else None

    @property
    def attempt(self) -> int:
        """Number of the attempt that sent the latest report or part; 0 if none has arrived."""
        return self._received.attempt if self._received is not None else 0

    def on_progress(self, listener: Listener) -> None:
        """Call `listener` with every later progress report."""
        self._options_cache.require("progress")
        self._received_reports().listeners.append(listener)

    def report(self, payload: Frame, is_part: bool, attempt: int) -> None:
        """Receive a progress report or a part. Called by the engine."""
        received = self._received_reports()
        if attempt < received.attempt:
            return
        if attempt > received.attempt:
            received.attempt = attempt
            received.parts.clear()
        if is_part and self.submit_options.is_whole:
            received.parts.append(payload)
            return
        if is_part:
            self._add_part((attempt, payload))
            return
        received.report = payload
        for listener in list(received.listeners):
            try:
                listener(_read(payload))
            except BaseException:  # user code may raise anything
                _logger.exception("exception calling %r", listener)

    def answer(self, view: bytes, payload: Frame) -> None:
        raise AssertionError("a job is not an operation")

    def _add_part(self, part: Part) -> None:
        raise NotImplementedError

    def _received_reports(self) -> _Reports:
        with _lock:
            if self._received is None:
                self._received = _Reports()
            return self._received

    def _result_of(self, last: Frame) -> Any:
        """Decode the result, with its parts in front if they are to be joined. Raises JobFailed."""
        if not self.submit_options.is_whole:
            return self._decoded(last)
        parts = self._received.parts if self._received is not None else None
        return self._decoded(b"".join([*parts, last]) if parts else last, self._codec.decode_whole)

    def _decoded(self, result: Frame, decode: Callable[[Frame], Any] | None = None) -> Any:
        """Raises JobFailed."""
        try:
            return (decode or self._codec.decode)(result)
        except Exception as error:  # a codec raises the exceptions of its library
            cause = f"{type(error).__name__}: {error}"
            reason = f"failed: the result of {self.submit_options.service} is not valid {self._codec.name}: {cause}"
            raise JobFailed(reason, type(error).__name__, str(error)) from error


def _read(report: Frame | None) -> Any:
    """Decode a report if it is JSON, as from Dragoman's own workers."""
    if report is None:
        return None
    try:
        return json.loads(report)
    except ValueError:
        return bytes(report)


class JobFuture(_JobHandle, concurrent.futures.Future[Result]):
    """A job submitted by `Client.submit`: a `concurrent.futures.Future` with id, progress and parts.

    Callbacks run in the client's I/O thread. They may submit jobs, but must not block or wait for another job.
    """

    def __init__(self, client: JobClient, submit_options: SubmitOptions, payload: Frame, codec: Codec) -> None:
        concurrent.futures.Future.__init__(self)
        self._begin(submit_options, payload, codec, client.options_cache)
        self._client = client
        self._is_cancel_requested = False
        self._is_cancelled = False
        self._parts: SimpleQueue[Part] | None = None

    def parts(self) -> Iterator[Result]:
        """Iterate over the parts of the result as they arrive. The iteration ends with the job and raises its error, if
        any. The rest of the result is `result()`.

        Parts are kept until they are iterated over; each is returned once. If an attempt is lost and the job is retried
        (`attempts` over 1), the parts start again; unread parts of the earlier attempt are dropped, and `attempt` is
        the number of the attempt that sent the latest part.
        """
        self._options_cache.require("parts")
        return self._iterate_parts()

    def _iterate_parts(self) -> Iterator[Result]:
        parts = self._part_queue()
        self.add_done_callback(lambda _: parts.put(_END))
        while True:
            if parts.empty() and not self.done():
                self._client.check_may_wait()
            attempt, part = parts.get()
            if not attempt:
                parts.put(_END)  # for other threads that iterate over the parts
                self.result()
                return
            if attempt == self.attempt:
                yield self._decoded(part)

    def cancel(self) -> bool:
        """Cancel the job. Returns True if it is cancelled, or if a cancel request is sent to the broker.

        A job that was not sent yet is cancelled at once. For a sent job the broker decides: the future ends as
        cancelled when the broker confirms, or with its outcome if that comes first. Returns False if the job has ended,
        or if it was sent in a dialect that cannot cancel.
        """
        if self.done():
            return self.cancelled()
        self._client.check_process()
        if not self._client.engine.is_sent(self):
            if not self._end_as_cancelled():
                return False
            self._client.engine.drop(self)
            return True
        if not self._options_cache.supports("cancel"):
            return False
        self._is_cancel_requested = True
        self._client.engine.cancel(self)
        return True

    def done(self) -> bool:
        return self._state in _ENDED  # a single read needs no lock

    def result(self, timeout: float | None = None) -> Result:
        if self._state == FINISHED and self._exception is None:  # no lock: `_state` is assigned last
            return self._result  # type: ignore[return-value]  # set before `_state`
        if not self.done():
            self._client.check_may_wait()
        try:
            return super().result(timeout)
        finally:
            del self  # otherwise the exception, its traceback, this frame and the future are a reference cycle

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            self._client.check_may_wait()
        try:
            return super().exception(timeout)
        finally:
            del self

    def succeed(self, result: Frame) -> None:
        """End the job with a result. Called by the engine."""
        try:
            value = self._result_of(result)
        except JobFailed as error:
            self.fail(error)
            return
        self._end(lambda: self.set_result(value))

    def fail(self, error: DragomanError) -> None:
        """End the job with an error. Called by the engine."""
        if self._is_cancel_requested and isinstance(error, JobCancelled):
            self._end(self._end_as_cancelled)
        else:
            self._end(lambda: self.set_exception(error))

    def _end(self, act: Callable[[], object]) -> None:
        """Run `act` in the client's I/O thread, which serves all jobs: a callback that raises SystemExit, which
        `concurrent.futures` does not catch, must not end it."""
        try:
            act()
        except concurrent.futures.InvalidStateError:
            pass  # cancelled at the same moment
        except BaseException:
            _logger.exception("exception calling a callback of %r", self)

    def _end_as_cancelled(self) -> bool:
        if not super().cancel():
            return False
        with _lock:
            is_first, self._is_cancelled = not self._is_cancelled, True
        if is_first:
            self.set_running_or_notify_cancel()  # notifies `wait` and `as_completed`
        return True

    def _add_part(self, part: Part) -> None:
        self._part_queue().put(part)

    def _part_queue(self) -> SimpleQueue[Part]:
        with _lock:
            if self._parts is None:
                self._parts = SimpleQueue()
            return self._parts


class ExecutorFuture(JobFuture[Result]):
    """A job of an executor. A builtin exception, such as KeyError, can be caught as with ProcessPoolExecutor."""

    def fail(self, error: DragomanError) -> None:
        super().fail(as_builtin(error))


class AsyncJobFuture(_JobHandle, asyncio.Future[Result]):
    """A job submitted by `AsyncClient.submit`: an `asyncio.Future` with id, progress and parts.

    When it is cancelled, for example by a time-out of the task that awaits it, it ends at once and a cancel request is
    sent to the broker.
    """

    def __init__(self, client: AsyncJobClient, submit_options: SubmitOptions, payload: Frame, codec: Codec) -> None:
        asyncio.Future.__init__(self)
        self._begin(submit_options, payload, codec, client.options_cache)
        self._client = client
        self._parts: asyncio.Queue[Part] | None = None

    def parts(self) -> AsyncIterator[Result]:
        """Iterate over the parts of the result as they arrive; see `JobFuture.parts`."""
        self._options_cache.require("parts")
        return self._iterate_parts()

    async def _iterate_parts(self) -> AsyncIterator[Result]:
        parts = self._part_queue()
        self.add_done_callback(lambda _: parts.put_nowait(_END))
        while True:
            attempt, part = await parts.get()
            if not attempt:
                parts.put_nowait(_END)
                self.result()
                return
            if attempt == self.attempt:
                yield self._decoded(part)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the job. Returns False if it has already ended."""
        if not super().cancel(msg):
            return False
        self._client.engine.drop(self)
        return True

    def succeed(self, result: Frame) -> None:
        """End the job with a result. Called by the engine."""
        try:
            value = self._result_of(result)
        except JobFailed as error:
            self.fail(error)
            return
        if not self.done():
            self.set_result(value)

    def fail(self, error: DragomanError) -> None:
        """End the job with an error. Called by the engine."""
        if not self.done():
            self.set_exception(error)

    def _add_part(self, part: Part) -> None:
        self._part_queue().put_nowait(part)

    def _part_queue(self) -> asyncio.Queue[Part]:
        if self._parts is None:
            self._parts = asyncio.Queue()
        return self._parts
