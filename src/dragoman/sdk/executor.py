"""A `concurrent.futures.Executor` that runs calls on the workers of a service."""

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
    """An executor, created by `Client.executor`. It runs `fn`; if `fn` is None, it calls the service itself.

    Functions are sent only with `codec="pickle"`, and only workers that run received functions accept them: those
    started by `dragoman worker dragoman.sdk.pickled_calls:run`. As with ProcessPoolExecutor, the worker must be able to
    import the function.

        with client.executor("python", codec="pickle") as pool:
            sizes = list(pool.map(measure, paths))

        with client.executor("resize") as pool:
            small = list(pool.map(None, images))          # calls the service once for each payload

    It works wherever an Executor does: `loop.run_in_executor`, `concurrent.futures.wait`, `as_completed`. An error of
    the function is raised as JobFailed, with type, message and traceback as text. If its type is a builtin exception,
    such as KeyError, `except KeyError` catches it, too.
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
        self._lock = threading.RLock()  # reentrant: the garbage collector may end jobs while it is held
        self._is_shut_down = False
        self._pending: dict[concurrent.futures.Future[Any], None] = {}

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
            self._pending[job] = None
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
        """Map as every Executor does. Each call is one job; `chunksize` is ignored."""
        return super().map(fn, *iterables, **options)  # type: ignore[arg-type]  # it only passes fn to `submit`

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more jobs. `cancel_futures`: cancel running jobs. `wait`: wait until all jobs have ended."""
        with self._lock:
            self._is_shut_down = True
            pending = list(self._pending)
        if cancel_futures:
            for job in pending:
                job.cancel()
        if wait:
            concurrent.futures.wait(pending)

    def _payload(self, fn: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if fn is None:
            if len(args) != 1 or kwargs:
                raise TypeError(f"a job of {self._service} has one payload; use submit(None, payload)")
            return args[0]
        if not self._runs_functions:
            raise TypeError(
                f"this executor sends no functions; pass None for fn to call the service {self._service!r}, or create "
                'the executor with client.executor(service, codec="pickle")'
            )
        return fn, args, kwargs

    def _forget(self, job: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._pending.pop(job, None)
