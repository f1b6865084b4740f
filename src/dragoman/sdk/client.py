"""`dragoman.Client`: calls and jobs for programs that use threads."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.calls import Calls, Maps, OptionValues, Submits
from dragoman.sdk.client_settings import client_is_closed, encode_payload
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

CLOSE_TIMEOUT = 5.0  # seconds that `close` waits for the I/O thread


class Client(
    Calls[Result, bytes, Any],
    Submits[JobFuture[Result], JobFuture[bytes], JobFuture[Any]],
    Maps[Iterable[Any], Iterator[Result], Iterator[bytes], Iterator[Any]],
    ClientOperations[Result],
):
    """Calls services through a broker. The URL selects the dialect; every dialect that has callers works.

        with Client("tcp://127.0.0.1:7400") as client:
            small = client.call("resize", big, timeout=30)

    The client connects when it is first used, and reconnects by itself. All methods may be called from any thread; one
    I/O thread does all reading and writing. After a fork, create a new client in the child process.

    The default URL is the environment variable DRAGOMAN_URL, else tcp://127.0.0.1:7400. Several addresses are those of
    the brokers of one cluster: "tcp://a:7400,b:7400", or a list of URLs. The first one is tried first. When the broker
    is gone, the client goes to another one: calls that were sent raise BrokerUnavailable, all other requests continue.

    `connect_timeout`: seconds that a job waits for a connection before it raises BrokerUnavailable; the same limit
    applies to a sent job after its connection is lost. `wait_for_broker=False`: do not retry if
    the first attempt to connect fails. `connections`: maximum number of connections, in dialects where each carries
    one call at a time.

    A broker may require a proof of identity. `key`: the name of a key that `dragoman keys new` has made, or the path of
    its file; `server_key`: the broker's public key, 64 hex digits or Z85. `token`, or `token_file`, the path of a file
    that has it; both only for HTTP and native addresses, and only where others cannot read it: with TLS, or on this
    machine. `tls`: True, or a `Tls` with files: the address uses TLS. All but `token` may be options of the URL, and
    DRAGOMAN_KEY, DRAGOMAN_SERVER_KEY, DRAGOMAN_TOKEN and DRAGOMAN_TOKEN_FILE are the defaults. If the broker does not
    accept it, jobs raise NotAllowed.
    """

    @overload
    def __init__(
        self: Client[bytes],
        url: str | Sequence[str] | None = ...,
        *,
        codec: Literal["bytes"] = ...,
        **options: Unpack[ClientOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Client[Any], url: str | Sequence[str] | None = ..., *, codec: str, **options: Unpack[ClientOptions]
    ) -> None: ...

    def __init__(
        self, url: str | Sequence[str] | None = None, *, codec: str = "bytes", **options: Unpack[ClientOptions]
    ) -> None:
        """Raises AddressError and CredentialError, which are ValueErrors."""
        self._set_up(url, codec, **options)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: _IoThread | None = None
        self._is_closed = False

    # ---------------------------------------------------------------- jobs

    def _call(self, asked: OptionValues, payload: Any, codec: str | Codec | None) -> Any:
        job = self._enter(self.options_cache.submit_options(*asked), payload, self._chosen(codec))
        try:
            return job.result()
        finally:
            if not job.done():  # an exception, such as KeyboardInterrupt, ended the wait
                job.cancel()
            del job  # as in `JobFuture.result`

    def _map(self, submit_options: SubmitOptions, payloads: Iterable[Any], codec: Codec, window: int) -> Iterator[Any]:
        pending: deque[JobFuture[Any]] = deque()
        try:
            for payload in payloads:
                pending.append(self._enter(submit_options, payload, codec))
                while pending and (len(pending) >= window or pending[0].done()):
                    yield _first(pending)
            while pending:
                yield _first(pending)
        finally:
            while pending:
                pending.popleft().cancel()

    def submit_for_executor(
        self, service: str, payload: Any, *, codec: str | None = None, **options: Unpack[CallOptions]
    ) -> JobFuture[Any]:
        """Submit a job as `submit` does, with two differences: the parts are prepended to the result, as by `call`, and
        a failure whose type is a builtin exception can be caught as that exception."""
        submit_options = self.options_cache.submit_options(service, is_whole=True, **options)
        return self._enter(submit_options, payload, self._chosen(codec), ExecutorFuture)

    @staticmethod
    def as_completed(futures: Iterable[JobFuture[Each]], timeout: float | None = None) -> Iterator[JobFuture[Each]]:
        """Yield each job as soon as it has ended. Raises TimeoutError if not all have ended after `timeout` seconds."""
        return concurrent.futures.as_completed(futures, timeout)  # type: ignore[return-value]

    def executor(self, service: str, *, codec: str | None = None, **options: Unpack[CallOptions]) -> ServiceExecutor:
        """Return a `concurrent.futures.Executor` that runs on the workers of `service`; see ServiceExecutor."""
        from dragoman.sdk.executor import ServiceExecutor

        return ServiceExecutor(self, service, codec=codec, **options)

    # ---------------------------------------------------------------- start and end

    @property
    def engine(self) -> Engine:
        thread = self._thread
        return thread.engine if thread is not None else self._start().engine

    def close(self) -> None:
        """Disconnect. Jobs that have not ended are cancelled and raise JobCancelled."""
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
        """Raise RuntimeError in a forked child: I/O thread, loop and connection exist in the parent only."""
        if self._process != os.getpid():
            raise RuntimeError(
                f"this client was created in process {self._process} and is used in process {os.getpid()}; "
                "create a new Client after the fork"
            )

    def check_may_wait(self) -> None:
        """Raise RuntimeError if waiting here would never end."""
        self.check_process()
        if self._thread is not None and self._thread.is_current():
            raise RuntimeError("a callback of this client cannot wait for one of its jobs: the two share a thread")

    def _enter(
        self, submit_options: SubmitOptions, payload: Any, codec: Codec, kind: type[JobFuture[Any]] = JobFuture
    ) -> JobFuture[Any]:
        if self._process != os.getpid():
            self.check_process()
        encoded = encode_payload(codec, payload)
        thread = self._thread or self._start()
        job = kind(self, submit_options, encoded, codec)
        thread.engine.enter(job)
        if self._is_closed:
            thread.engine.cancel_unsent()
            raise client_is_closed()
        return job

    def _request(self, operation: OperationCall) -> OperationAnswer:
        self.check_may_wait()
        thread = self._thread or self._start()
        asked = OperationFuture(operation)
        thread.engine.enter(asked)
        if self._is_closed:
            thread.engine.cancel_unsent()
            raise client_is_closed()
        try:
            return asked.result()
        finally:
            if not asked.done():  # an exception, such as KeyboardInterrupt, ended the wait
                thread.engine.drop(asked)
            del asked  # as in `JobFuture.result`

    def _start(self) -> _IoThread:
        with self._lock:
            self._check_open()
            if self._thread is None:
                self._thread = _IoThread(self.options_cache, self._settings)
                _clients.add(self)
            return self._thread


def _first(pending: deque[JobFuture[Each]]) -> Each:
    """Return the result of the first job, then remove it. If the wait is interrupted, `_map` still cancels the job."""
    result = pending[0].result()
    pending.popleft()
    return result


class _IoThread:
    """A thread with an event loop and the engine on it."""

    def __init__(self, options_cache: SubmitOptionsCache, settings: dict[str, Any]) -> None:
        self._loop = new_loop()
        self._is_stopped = False
        self.engine = Engine(options_cache.target, self._loop, self._wake, **settings)
        self._thread = threading.Thread(target=self._run, name=f"dragoman {options_cache.target.places}", daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def stop(self, wait: bool = True) -> None:
        self._wake(lambda: self._loop.create_task(self._stop()))
        if wait and not self.is_current():
            self._thread.join(CLOSE_TIMEOUT)

    def _wake(self, call: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            if not self._is_stopped:
                raise
            self.engine.cancel_unsent()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._is_stopped = True
            self._loop.close()
            self.engine.cancel_unsent()

    async def _stop(self) -> None:
        await self.engine.close()
        self._loop.stop()


_clients: weakref.WeakSet[Client[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close all clients at exit, because a thread that wakes up during interpreter shutdown may crash it."""
    for client in list(_clients):
        client.close()
