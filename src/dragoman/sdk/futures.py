"""Jobs as futures: of threads (`JobFuture`) and of asyncio (`AsyncJobFuture`), with an id, progress and parts."""

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
from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.builtin_failures import as_builtin
from dragoman.sdk.codecs import Codec
from dragoman.sdk.errors import DragomanError, JobCancelled, JobFailed
from dragoman.sdk.ids import new_job_id
from dragoman.sdk.operation import OperationCall
from dragoman.sdk.option_types import Result
from dragoman.sdk.submit_options import SubmitOptionsCache

if TYPE_CHECKING:
    from dragoman.sdk.client_connection import ClientConnection
    from dragoman.sdk.engine import Engine

Listener = Callable[[Any], object]
Part = tuple[int, Frame]  # an attempt's number, and what came

_ENDED = frozenset((FINISHED, CANCELLED, CANCELLED_AND_NOTIFIED))
_logger = logging.getLogger("dragoman")
_END: Part = (0, b"")  # stands behind the last part
_rare = threading.RLock()  # for what few jobs ever need; the collector may close a `map` while we hold it


class AsyncJobClient(Protocol):
    """The client of a job, as the job sees it."""

    @property
    def asking(self) -> SubmitOptionsCache: ...

    @property
    def engine(self) -> Engine: ...


class JobClient(AsyncJobClient, Protocol):
    """The same, where threads wait for the job."""

    def check_process(self) -> None:
        """Raises RuntimeError in a process that was forked since."""

    def check_may_wait(self) -> None:
        """Raises RuntimeError where waiting would be for ever."""


class _Reports:
    """What a job has said of itself while it ran."""

    __slots__ = ("attempt", "listeners", "parts", "report")

    def __init__(self) -> None:
        self.attempt = 0
        self.parts: list[Frame] = []  # of this attempt, for a result that is wanted whole
        self.report: Frame | None = None
        self.listeners: list[Listener] = []


class _JobHandle:
    """What both kinds of job are besides futures."""

    _asking: SubmitOptionsCache
    _told: _Reports | None = None
    question: OperationCall | None = None  # it is a job

    def _begin(self, submit_options: SubmitOptions, payload: Frame, codec: Codec, asking: SubmitOptionsCache) -> None:
        self.submit_options = submit_options
        self.payload = payload
        self.job_id = new_job_id()
        self.connection: ClientConnection | None = None
        self.is_over = False
        self.entered = 0.0
        self.due = 0.0
        self._codec = codec
        self._asking = asking

    @property
    def id(self) -> str:
        """The job's id, 32 hex digits: what logs and dashboards call it."""
        self._asking.needs("id")
        return self.job_id.hex()

    @property
    def progress(self) -> Any:
        """The latest report of the running job, or None. Read as JSON if it is JSON, else bytes."""
        self._asking.needs("progress")
        return _read(self._told.report) if self._told is not None else None

    @property
    def attempt(self) -> int:
        """Which attempt the latest report or part was of; 0 as long as none has come."""
        return self._told.attempt if self._told is not None else 0

    def on_progress(self, listener: Listener) -> None:
        """Call `listener` with every report from now on."""
        self._asking.needs("progress")
        self._telling().listeners.append(listener)

    def report(self, payload: Frame, is_part: bool, attempt: int) -> None:
        """For the engine: the running job has said something."""
        told = self._telling()
        if attempt < told.attempt:
            return
        if attempt > told.attempt:
            told.attempt = attempt
            told.parts.clear()
        if is_part and self.submit_options.is_whole:
            told.parts.append(payload)
            return
        if is_part:
            self._keep((attempt, payload))
            return
        told.report = payload
        for listener in list(told.listeners):
            try:
                listener(_read(payload))
            except BaseException:  # it is the user's, and raises what it likes
                _logger.exception("exception calling %r", listener)

    def tell(self, view: bytes, payload: Frame) -> None:
        raise AssertionError("a job is no question")

    def _keep(self, part: Part) -> None:
        raise NotImplementedError

    def _telling(self) -> _Reports:
        with _rare:
            if self._told is None:
                self._told = _Reports()
            return self._told

    def _result_of(self, rest: Frame) -> Any:
        """What came last, with what came ahead of it if the result is wanted whole. Raises JobFailed."""
        if not self.submit_options.is_whole:
            return self._decoded(rest)
        parts = self._told.parts if self._told is not None else None
        return self._decoded(b"".join([*parts, rest]) if parts else rest, self._codec.decode_whole)

    def _decoded(self, result: Frame, decode: Callable[[Frame], Any] | None = None) -> Any:
        """Raises JobFailed."""
        try:
            return (decode or self._codec.decode)(result)
        except Exception as error:  # a codec raises what its library raises
            what = f"{type(error).__name__}: {error}"
            told = f"failed: the result of {self.submit_options.service} cannot be read as {self._codec.name}: {what}"
            raise JobFailed(told, type(error).__name__, str(error)) from error


def _read(report: Frame | None) -> Any:
    """Dragoman's own workers report in JSON."""
    if report is None:
        return None
    try:
        return json.loads(report)
    except ValueError:
        return bytes(report)


class JobFuture(_JobHandle, concurrent.futures.Future[Result]):
    """A job under way, as `Client.submit` gives it: a `concurrent.futures.Future`, and more.

    Callbacks run in the client's own thread. They may submit, but must neither block nor wait for another job.
    """

    def __init__(self, client: JobClient, submit_options: SubmitOptions, payload: Frame, codec: Codec) -> None:
        concurrent.futures.Future.__init__(self)
        self._begin(submit_options, payload, codec, client.asking)
        self._client = client
        self._is_asked = False  # to be cancelled
        self._is_cancelled = False
        self._parts: SimpleQueue[Part] | None = None

    def parts(self) -> Iterator[Result]:
        """The parts of the result that come ahead of the rest, as they come. It ends with the job, and raises its error
        if it has one; what remains of the result is `result()`.

        Parts are kept until they are asked for, and each is given once. If an attempt is lost and the job is done again
        (`attempts` over 1), the parts begin anew; those of the former attempt that were not taken yet are dropped, and
        `attempt` tells of which attempt the last one was.
        """
        self._asking.needs("parts")
        return self._parts_as_they_come()

    def _parts_as_they_come(self) -> Iterator[Result]:
        parts = self._kept()
        self.add_done_callback(lambda _: parts.put(_END))
        while True:
            if parts.empty() and not self.done():
                self._client.check_may_wait()
            attempt, part = parts.get()
            if not attempt:
                parts.put(_END)  # for whoever else waits here
                self.result()
                return
            if attempt == self.attempt:
                yield self._decoded(part)

    def cancel(self) -> bool:
        """Whether it is cancelled, or the broker was asked to cancel it.

        A job that was not sent yet is cancelled at once. About one that was sent the broker decides: the future ends as
        cancelled when the broker says so, or with its outcome if that was first. False: it is over already, or it was
        sent over a wire that has no word for this.
        """
        if self.done():
            return self.cancelled()
        self._client.check_process()
        if not self._client.engine.is_sent(self):
            if not self._end_as_cancelled():
                return False
            self._client.engine.withdraw(self)
            return True
        if not self._asking.has("cancel"):
            return False
        self._is_asked = True
        self._client.engine.cancel(self)
        return True

    def done(self) -> bool:
        return self._state in _ENDED  # a single read, which needs no lock

    def result(self, timeout: float | None = None) -> Result:
        if self._state == FINISHED and self._exception is None:  # it is the last that is set: no lock either
            return self._result  # type: ignore[return-value]  # there is one by now
        if not self.done():
            self._client.check_may_wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            self._client.check_may_wait()
        return super().exception(timeout)

    def succeed(self, result: Frame) -> None:
        """For the engine: this is how it ended."""
        try:
            value = self._result_of(result)
        except JobFailed as error:
            self.fail(error)
            return
        self._end(lambda: self.set_result(value))

    def fail(self, error: DragomanError) -> None:
        """For the engine: this is how it ended."""
        if self._is_asked and isinstance(error, JobCancelled):
            self._end(self._end_as_cancelled)
        else:
            self._end(lambda: self.set_exception(error))

    def _end(self, act: Callable[[], object]) -> None:
        """In the client's own thread, of which all other jobs live, too: a callback that raises SystemExit, which
        `concurrent.futures` lets pass, must not end it."""
        try:
            act()
        except concurrent.futures.InvalidStateError:
            pass  # it was cancelled at the same moment
        except BaseException:
            _logger.exception("exception calling a callback of %r", self)

    def _end_as_cancelled(self) -> bool:
        if not super().cancel():
            return False
        with _rare:
            is_first, self._is_cancelled = not self._is_cancelled, True
        if is_first:
            self.set_running_or_notify_cancel()  # so that `wait` and `as_completed` know
        return True

    def _keep(self, part: Part) -> None:
        self._kept().put(part)

    def _kept(self) -> SimpleQueue[Part]:
        with _rare:
            if self._parts is None:
                self._parts = SimpleQueue()
            return self._parts


class ExecutorFuture(JobFuture[Result]):
    """A job of an executor: `except KeyError` works as if its function had run in a process of ours."""

    def fail(self, error: DragomanError) -> None:
        super().fail(as_builtin(error))


class AsyncJobFuture(_JobHandle, asyncio.Future[Result]):
    """A job under way, as `AsyncClient.submit` gives it: an `asyncio.Future`, and more.

    Cancelled, also because the task that awaits it is cancelled or out of time, it ends at once and the broker is told.
    """

    def __init__(self, client: AsyncJobClient, submit_options: SubmitOptions, payload: Frame, codec: Codec) -> None:
        asyncio.Future.__init__(self)
        self._begin(submit_options, payload, codec, client.asking)
        self._client = client
        self._parts: asyncio.Queue[Part] | None = None

    def parts(self) -> AsyncIterator[Result]:
        """The parts of the result that come ahead of the rest, as they come; see `JobFuture.parts`."""
        self._asking.needs("parts")
        return self._parts_as_they_come()

    async def _parts_as_they_come(self) -> AsyncIterator[Result]:
        parts = self._kept()
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
        """Whether it is cancelled by this."""
        if not super().cancel(msg):
            return False
        self._client.engine.withdraw(self)
        return True

    def succeed(self, result: Frame) -> None:
        """For the engine: this is how it ended."""
        try:
            value = self._result_of(result)
        except JobFailed as error:
            self.fail(error)
            return
        if not self.done():
            self.set_result(value)

    def fail(self, error: DragomanError) -> None:
        """For the engine: this is how it ended."""
        if not self.done():
            self.set_exception(error)

    def _keep(self, part: Part) -> None:
        self._kept().put_nowait(part)

    def _kept(self) -> asyncio.Queue[Part]:
        if self._parts is None:
            self._parts = asyncio.Queue()
        return self._parts
