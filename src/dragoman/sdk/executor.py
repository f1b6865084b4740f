"""A `concurrent.futures.Executor` whose work is done by the workers of a service."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from dragoman.sdk.futures import JobFuture
from dragoman.sdk.option_types import CallOptions

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


class Submitter(Protocol):
    """The client of an executor."""

    def submit_for_executor(
        self, service: str, payload: Any, *, codec: str | None = None, **options: Unpack[CallOptions]
    ) -> JobFuture[Any]: ...


class ServiceExecutor(concurrent.futures.Executor):
    """Made by `Client.executor`. What runs is `fn`; with `None` for it, the service itself is the function.

    Functions travel only if that is asked for by name, with `codec="pickle"`, and only to workers that run what they
    are sent: those of `dragoman worker dragoman.sdk.pickled_calls:run`. As with ProcessPoolExecutor, a function must be
    one that the other side can import.

        with client.executor("python", codec="pickle") as pool:
            sizes = list(pool.map(measure, paths))

        with client.executor("resize") as pool:
            small = list(pool.map(None, images))          # the service does what it does, one payload each

    Everything that takes an Executor takes this: `loop.run_in_executor`, `concurrent.futures.wait`, `as_completed`. An
    error of the function comes as JobFailed, with its type, message and traceback as text. If its type is a builtin
    exception, such as KeyError, it is one of these as well, and `except KeyError` catches it.
    """

    def __init__(
        self, client: Submitter, service: str, *, codec: str | None = None, **options: Unpack[CallOptions]
    ) -> None:
        """`options` are those of `Client.submit`."""
        self._client = client
        self._service = service
        self._codec = codec
        self._options = options
        self._runs_functions = codec == "pickle"
        self._lock = threading.RLock()  # the collector may end jobs while we hold it
        self._is_shut_down = False
        self._under_way: dict[concurrent.futures.Future[Any], None] = {}

    @overload
    def submit(
        self, fn: Callable[Arguments, Returned], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> JobFuture[Returned]: ...

    @overload
    def submit(self, fn: None, payload: Any, /) -> JobFuture[Any]: ...

    def submit(self, fn: Callable[..., Any] | None, /, *args: Any, **kwargs: Any) -> JobFuture[Any]:
        """Raises TypeError if `fn` cannot be sent, RuntimeError after `shutdown`."""
        payload = self._payload(fn, args, kwargs)
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            job = self._client.submit_for_executor(self._service, payload, codec=self._codec, **self._options)
            self._under_way[job] = None
        job.add_done_callback(self._forget)
        return job

    @overload
    def map(
        self, fn: Callable[..., Returned], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Returned]: ...

    @overload
    def map(
        self, fn: None, payloads: Iterable[Any], /, *, timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]: ...

    def map(self, fn: Callable[..., Any] | None, *iterables: Iterable[Any], **options: Any) -> Iterator[Any]:
        """As of every Executor; each call is a job, whatever `chunksize` says."""
        return super().map(fn, *iterables, **options)  # type: ignore[arg-type]  # what it does with fn is to submit it

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more. `cancel_futures`: cancel what has not ended; `wait`: until all has ended."""
        with self._lock:
            self._is_shut_down = True
            under_way = list(self._under_way)
        if cancel_futures:
            for job in under_way:
                job.cancel()
        if wait:
            concurrent.futures.wait(under_way)

    def _payload(self, fn: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if fn is None:
            if len(args) != 1 or kwargs:
                raise TypeError(f"a job of {self._service} has one payload: submit(None, payload)")
            return args[0]
        if not self._runs_functions:
            raise TypeError(
                f"the service {self._service!r} is itself the function: say None for fn. To send functions to workers "
                'that run them, ask for it: client.executor(service, codec="pickle")'
            )
        return fn, args, kwargs

    def _forget(self, job: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._under_way.pop(job, None)
