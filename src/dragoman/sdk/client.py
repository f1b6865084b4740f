"""`dragoman.Client`: calls and jobs, from any thread."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.calls import Calls, Maps, OptionValues, Submits
from dragoman.sdk.client_settings import as_sent, client_is_closed
from dragoman.sdk.codecs import Codec
from dragoman.sdk.engine import Engine
from dragoman.sdk.event_loop import new_loop
from dragoman.sdk.futures import ExecutorFuture, JobFuture
from dragoman.sdk.operation import OperationAnswer, OperationCall
from dragoman.sdk.operation_futures import OperationFuture
from dragoman.sdk.operations import ClientOperations
from dragoman.sdk.option_types import CallOptions, ClientOptions, Result
from dragoman.sdk.submit_options import SubmitOptionsCache

if TYPE_CHECKING:
    from dragoman.sdk.executor import ServiceExecutor

Each = TypeVar("Each")

LAST_WORDS = 5.0  # seconds that `close` waits for its thread


class Client(
    Calls[Result, bytes, Any],
    Submits[JobFuture[Result], JobFuture[bytes], JobFuture[Any]],
    Maps[Iterable[Any], Iterator[Result], Iterator[bytes], Iterator[Any]],
    ClientOperations[Result],
):
    """Calls the services of a broker, in any dialect that has callers: the address says which.

        with Client("tcp://127.0.0.1:7400") as client:
            small = client.call("resize", big, timeout=30)

    It connects when it is first used, and again by itself. All methods may be called from any thread: one thread of its
    own does all reading and writing. After a fork the child needs a client of its own.

    Without a URL it is that of the environment (DRAGOMAN_URL), else tcp://127.0.0.1:7400.

    `connect_timeout` is how long a job waits for a connection, and how long one that is under way waits for a lost
    connection to come back, before it ends in BrokerUnavailable. With `wait_for_broker=False`, a first
    attempt to connect that fails is final. `connections`: how many there may be where each carries one call at a time.
    """

    @overload
    def __init__(
        self: Client[bytes], url: str | None = ..., *, codec: Literal["bytes"] = ..., **options: Unpack[ClientOptions]
    ) -> None: ...

    @overload
    def __init__(self: Client[Any], url: str | None = ..., *, codec: str, **options: Unpack[ClientOptions]) -> None: ...

    def __init__(self, url: str | None = None, *, codec: str = "bytes", **options: Unpack[ClientOptions]) -> None:
        """Raises AddressError."""
        self._set_up(url, codec, **options)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: _IoThread | None = None
        self._is_closed = False

    # ---------------------------------------------------------------- jobs

    def _call(self, asked: OptionValues, payload: Any, codec: str | None) -> Any:
        job = self._enter(self.asking.submit_options(*asked), payload, self._chosen(codec))
        try:
            return job.result()
        finally:
            if not job.done():  # we were interrupted
                job.cancel()

    def _map(self, submit_options: SubmitOptions, payloads: Iterable[Any], codec: Codec, window: int) -> Iterator[Any]:
        under_way: deque[JobFuture[Any]] = deque()
        try:
            for payload in payloads:
                under_way.append(self._enter(submit_options, payload, codec))
                while under_way and (len(under_way) >= window or under_way[0].done()):
                    yield _first(under_way)
            while under_way:
                yield _first(under_way)
        finally:
            for job in under_way:
                job.cancel()

    def submit_for_executor(
        self, service: str, payload: Any, *, codec: str | None = None, **options: Unpack[CallOptions]
    ) -> JobFuture[Any]:
        """As `submit`, but parts are joined in front of the result, as by `call`, and a failure whose type is a builtin
        exception is that exception, too."""
        submit_options = self.asking.submit_options(service, is_whole=True, **options)
        return self._enter(submit_options, payload, self._chosen(codec), ExecutorFuture)

    @staticmethod
    def as_completed(futures: Iterable[JobFuture[Each]], timeout: float | None = None) -> Iterator[JobFuture[Each]]:
        """The jobs, each as soon as it has ended. Raises TimeoutError if they have not all ended after `timeout`."""
        return concurrent.futures.as_completed(futures, timeout)  # type: ignore[return-value]

    def executor(self, service: str, *, codec: str | None = None, **options: Unpack[CallOptions]) -> ServiceExecutor:
        """A `concurrent.futures.Executor` whose work is done by the workers of `service`; see ServiceExecutor."""
        from dragoman.sdk.executor import ServiceExecutor

        return ServiceExecutor(self, service, codec=codec, **options)

    # ---------------------------------------------------------------- its life

    @property
    def engine(self) -> Engine:
        thread = self._thread
        return thread.engine if thread is not None else self._start().engine

    def close(self) -> None:
        """Leave the broker. What is under way is withdrawn, and ends in JobCancelled."""
        with self._lock:
            thread, is_first = self._thread, not self._is_closed
            self._is_closed = True
        if is_first and thread is not None and self._process == os.getpid():
            thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._is_closed and self._thread is not None and self._process == os.getpid():
            warnings.warn(f"unclosed client of {self.url}", ResourceWarning, source=self, stacklevel=2)
            self._is_closed = True
            self._thread.stop(wait=False)

    def check_process(self) -> None:
        """Raises RuntimeError in a child: its parent's thread, loop and connection are not there."""
        if self._process != os.getpid():
            raise RuntimeError(
                f"this client was made in process {self._process} and is used in {os.getpid()}: "
                "make a new Client after the fork"
            )

    def check_may_wait(self) -> None:
        """Raises RuntimeError where waiting would be for ever."""
        self.check_process()
        if self._thread is not None and self._thread.is_current():
            raise RuntimeError("a callback of this client cannot wait for one of its jobs: the two share a thread")

    def _enter(
        self, submit_options: SubmitOptions, payload: Any, codec: Codec, kind: type[JobFuture[Any]] = JobFuture
    ) -> JobFuture[Any]:
        if self._process != os.getpid():
            self.check_process()
        encoded = as_sent(codec, payload)
        thread = self._thread or self._start()
        job = kind(self, submit_options, encoded, codec)
        thread.engine.enter(job)
        if self._is_closed:
            thread.engine.refuse_the_rest()
            raise client_is_closed()
        return job

    def _ask(self, question: OperationCall) -> OperationAnswer:
        self.check_may_wait()
        thread = self._thread or self._start()
        asked = OperationFuture(question)
        thread.engine.enter(asked)
        if self._is_closed:
            thread.engine.refuse_the_rest()
            raise client_is_closed()
        try:
            return asked.result()
        finally:
            if not asked.done():  # we were interrupted
                thread.engine.withdraw(asked)

    def _start(self) -> _IoThread:
        with self._lock:
            self._check_open()
            if self._thread is None:
                self._thread = _IoThread(self.asking, self._settings)
                _clients.add(self)
            return self._thread


def _first(under_way: deque[JobFuture[Each]]) -> Each:
    """Its result. Only then is it taken off: whoever is interrupted while he waits has it cancelled, too."""
    result = under_way[0].result()
    under_way.popleft()
    return result


class _IoThread:
    """An event loop in a thread of its own, and the engine on it."""

    def __init__(self, asking: SubmitOptionsCache, settings: dict[str, Any]) -> None:
        self._loop = new_loop()
        self._is_over = False
        self.engine = Engine(asking.target, self._loop, self._wake, **settings)
        self._thread = threading.Thread(target=self._run, name=f"dragoman {asking.target.place}", daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def stop(self, wait: bool = True) -> None:
        self._wake(lambda: self._loop.create_task(self._stop()))
        if wait and not self.is_current():
            self._thread.join(LAST_WORDS)

    def _wake(self, call: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            if not self._is_over:
                raise
            self.engine.refuse_the_rest()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._is_over = True
            self._loop.close()
            self.engine.refuse_the_rest()

    async def _stop(self) -> None:
        await self.engine.close()
        self._loop.stop()


_clients: weakref.WeakSet[Client[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread that wakes up while the interpreter is taken apart may crash it."""
    for client in list(_clients):
        client.close()
