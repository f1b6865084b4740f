"""`dragoman.task`: a decorator that makes a function callable through the broker, with its own signature."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload

from dragoman.sdk.codecs import JSON_SEPARATOR, Codec
from dragoman.sdk.context import Context, local_context
from dragoman.tasks.arguments import TaskSignature
from dragoman.tasks.clients import current_async_client, current_client
from dragoman.tasks.formats import FormatName, format_of
from dragoman.tasks.handles import JobHandle, awaited
from dragoman.tasks.options import TaskOptions, call_options, check, enqueue_options
from dragoman.tasks.retries import NO_RULES, ExceptionTypes, RetryRules, rules_of

if TYPE_CHECKING:
    from dragoman.sdk.futures import JobFuture
    from dragoman.sdk.handlers import Handler

P = ParamSpec("P")
Rest = ParamSpec("Rest")
R = TypeVar("R")
First = TypeVar("First")
Result = TypeVar("Result")


class Task(Generic[P, R]):
    """A function that runs here when it is called, and in a worker by its methods.

    `call` waits for the result. `submit` returns a future. `enqueue` makes a background job and returns its handle.
    `map` calls it for many values. The methods with `a` in front are awaited. All raise TypeError for arguments that do
    not fit the function's parameters.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        format: FormatName = "json",
        options: TaskOptions | None = None,
        retries: RetryRules = NO_RULES,
    ) -> None:
        """Raises TypeError and ValueError."""
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name  # of the service
        self.format = format
        self.options: TaskOptions = options or {}
        self.retries = retries
        self._signature = TaskSignature(name, function, format_of(format))
        self._codec = self._make_codec()

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here."""
        return cast(R, self._run(args, kwargs))

    def with_options(self, **options: Unpack[TaskOptions]) -> Self:
        """Return this task with other options for its jobs: `resize.with_options(attempts=5).enqueue(image)`."""
        check(options)
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed.options = {**self.options, **options}
        return changed

    def check_arguments(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Raise TypeError if a call with these arguments would, or if they cannot be encoded."""
        self._signature.encode(args, kwargs)

    # ---------------------------------------------------------------- calls

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it in a worker and wait for the result. Raises JobError and BrokerUnavailable."""
        payload = self._signature.encode(args, kwargs)
        return cast(R, current_client().call(self.name, payload, codec=self._codec, **call_options(self.options)))

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobFuture[R]:
        """Run it in a worker. Returns a future."""
        payload = self._signature.encode(args, kwargs)
        return cast(
            "JobFuture[R]",
            current_client().submit(self.name, payload, codec=self._codec, **call_options(self.options)),
        )

    def map(
        self: Callable[Concatenate[First, Rest], Result],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> Iterator[Result]:
        """Run it in workers, once for each value, and yield the results in order. The other arguments are the same for
        all values."""
        return cast("Task[Any, Result]", self)._map(values, args, kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Make a background job. It is on disk when this returns, and survives restarts of broker and workers."""
        client = current_client()
        payload = self._signature.encode(args, kwargs)
        id = client.enqueue(self.name, payload, codec="bytes", **enqueue_options(self.options))
        return JobHandle(id, self._codec.decode, client)

    def handle(self, id: str) -> JobHandle[R]:
        """Return the handle of a background job of this task by its id."""
        return JobHandle(id, self._codec.decode)

    def find(self, key: str) -> JobHandle[R]:
        """Return the handle of the latest background job of this task with this idempotency key. Raises NoSuchJob."""
        client = current_client()
        return JobHandle(client.find_job(self.name, key).id, self._codec.decode, client)

    # ---------------------------------------------------------------- awaited calls

    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it in a worker and await the result; see `call`. If this is cancelled, so is the job."""
        return await self.asubmit(*args, **kwargs)

    def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Run it in a worker. Returns a future of the running event loop."""
        payload = self._signature.encode(args, kwargs)
        return self._submit_here(payload)

    def amap(
        self: Callable[Concatenate[First, Rest], Result],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> AsyncIterator[Result]:
        """Run it in workers, once for each value, and yield the results in order; see `map`."""
        return cast("Task[Any, Result]", self)._amap(values, args, kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Make a background job; see `enqueue`."""
        client = current_async_client()
        payload = self._signature.encode(args, kwargs)
        id = await awaited(client, "enqueue", self.name, payload, codec="bytes", **enqueue_options(self.options))
        return JobHandle(id, self._codec.decode, client)

    async def afind(self, key: str) -> JobHandle[R]:
        """Return the handle of a background job by its idempotency key; see `find`."""
        client = current_async_client()
        found = await awaited(client, "find_job", self.name, key)
        return JobHandle(found.id, self._codec.decode, client)

    # ---------------------------------------------------------------- worker

    def task_handler(self, service: str) -> Handler:
        """Return the handler of a worker that offers this task as a service with this name."""
        from dragoman.sdk.handlers import Handler

        signature = self._signature
        codec = Codec(self.format, signature.encode_result, signature.decode, signature.decode)
        is_async = inspect.iscoroutinefunction(self.function)
        return Handler(service, self._perform, codec, "context", is_async, self)

    def _perform(self, arguments: tuple[list[Any], dict[str, Any]], context: Context | None = None) -> Any:
        args, kwargs = arguments
        if self._signature.wants_context:
            args = [context, *args]
        return self.retries.call(self.function, args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._signature.wants_context:
            return self.function(local_context(self.name), *args, **kwargs)
        return self.function(*args, **kwargs)

    def _submit_here(self, payload: bytes) -> asyncio.Future[Any]:
        client = current_async_client()
        job = client.submit(self.name, payload, codec=self._codec, **call_options(self.options))
        return job if isinstance(job, asyncio.Future) else asyncio.wrap_future(job)

    def _map(self, values: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[R]:
        payloads = self._payloads(values, args, kwargs)
        found = current_client().map(self.name, payloads, codec=self._codec, **call_options(self.options))
        return cast("Iterator[R]", found)

    async def _amap(self, values: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncIterator[R]:
        from dragoman.sdk.async_client import AsyncClient

        client, payloads = current_async_client(), self._payloads(values, args, kwargs)
        if isinstance(client, AsyncClient):
            async for each in client.map(self.name, payloads, codec=self._codec, **call_options(self.options)):
                yield cast(R, each)
            return
        found, end = client.map(self.name, payloads, codec=self._codec, **call_options(self.options)), object()
        while (result := await asyncio.to_thread(next, found, end)) is not end:
            yield cast(R, result)

    def _payloads(self, values: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[bytes]:
        return (self._signature.encode((value, *args), kwargs) for value in values)

    def _make_codec(self) -> Codec:
        """Return the codec of callers: arguments are encoded already, and the result has the type of the function."""
        decode = self._signature.decode_result
        separator = JSON_SEPARATOR if self.format == "json" else b""
        return Codec(self.format, bytes, decode, decode, separator)


class AsyncTask(Task[P, R]):
    """A task whose function is a coroutine function: when it is called here, it is awaited."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
        """Run the function here; await it."""
        return cast("Coroutine[Any, Any, R]", self._run(args, kwargs))

    def map(  # type: ignore[override]
        self: Callable[Concatenate[First, Rest], Coroutine[Any, Any, Result]],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> Iterator[Result]:
        return cast("Task[Any, Result]", self)._map(values, args, kwargs)

    def amap(  # type: ignore[override]
        self: Callable[Concatenate[First, Rest], Coroutine[Any, Any, Result]],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> AsyncIterator[Result]:
        return cast("Task[Any, Result]", self)._amap(values, args, kwargs)


class TaskDecorator(Protocol):
    """Makes a task of a function."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...


@overload
def task(function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(
    *,
    name: str = ...,
    format: FormatName = ...,
    retry_on: ExceptionTypes = ...,
    never_retry_on: ExceptionTypes = ...,
    **options: Unpack[TaskOptions],
) -> TaskDecorator: ...


def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    format: FormatName = "json",
    retry_on: ExceptionTypes = (),
    never_retry_on: ExceptionTypes = (),
    **options: Unpack[TaskOptions],
) -> Any:
    """Make a task of a function. `name`: its service, by default the name of the function.

        @task
        def add(a: int, b: int) -> int:
            return a + b

        @task(name="images.resize", attempts=5, job_timeout=30)
        def resize(ctx: Context, image: Image, width: int = 640) -> Image: ...

    Arguments and results are encoded as JSON by default; their types may be those of msgspec: builtin types,
    dataclasses, msgspec structs, datetimes, UUIDs, enums, and models of pydantic. A first parameter of the type
    `Context` gets the job's context. `options` are the defaults of all its jobs. `retry_on`: exceptions after which the
    job is retried while attempts remain; after all others it is not. `never_retry_on`: exceptions after which it is not
    retried. Raises TypeError and ValueError.
    """
    check(options)
    retries = rules_of(retry_on, never_retry_on)

    def make(function: Callable[..., Any]) -> Task[Any, Any]:
        kind = AsyncTask if inspect.iscoroutinefunction(function) else Task
        chosen = name or getattr(function, "__name__", "")
        if not chosen:
            raise TypeError(f"{function!r} has no __name__; give the task a name: @task(name='NAME')")
        return kind(function, chosen, format, options, retries)

    return make if function is None else make(function)
