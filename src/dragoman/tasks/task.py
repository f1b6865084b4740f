"""`dragoman.task`: a decorator that makes a function callable through the broker, with its own signature."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload

from dragoman.sdk.codecs import Codec
from dragoman.sdk.context import Context, local_context
from dragoman.sdk.parts import Parts, check_parts
from dragoman.sdk.service_limits import NOTHING_GIVEN, LimitValues, limits_of
from dragoman.tasks.arguments import TaskSignature
from dragoman.tasks.clients import current_async_client, current_client
from dragoman.tasks.formats import FormatName, format_of
from dragoman.tasks.handles import JobHandle, awaited
from dragoman.tasks.options import TaskOptions, call_options, check, enqueue_options
from dragoman.tasks.retries import NO_RULES, ExceptionTypes, RetryRules, rules_of
from dragoman.tasks.streams import StreamCodecs, async_values_of, emit_all, emit_all_async, values_of

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
        parts: Parts = "join",
        limits: LimitValues = NOTHING_GIVEN,
    ) -> None:
        """Raises TypeError and ValueError."""
        check_parts(parts)
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name  # of the service
        self.format = format
        self.options: TaskOptions = options or {}
        self.retries = retries
        self.parts: Parts = parts
        self.limits = limits  # of its service, which a worker declares
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

    # ---------------------------------------------------------------- worker

    def task_handler(self, service: str) -> Handler:
        """Return the handler of a worker that offers this task as a service with this name."""
        from dragoman.sdk.handlers import Handler

        codec = self._worker_codec()
        return Handler(service, self._perform, codec, "context", self._is_async, self, self.parts, self.limits)

    @property
    def _is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def _worker_codec(self) -> Codec:
        signature = self._signature
        separator = format_of(self.format).separator
        return Codec(self.format, signature.encode_result, signature.decode, signature.decode, separator)

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
        return Codec(self.format, bytes, decode, decode)


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


class StreamTask(Task[P, list[R]]):
    """A task whose function yields. Each value is a part of the result: `stream` yields the values as they arrive, and
    the other methods return the list of them."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:  # type: ignore[override]
        """Run the function here."""
        return cast("Iterator[R]", self._run(args, kwargs))

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        """Run it in a worker, and yield its values as they arrive. The job starts with the iteration, and is cancelled
        if the iteration ends early. Raises JobError and BrokerUnavailable in its course."""
        payload = self._signature.encode(args, kwargs)
        return values_of(current_client(), self.name, payload, self._codecs.of_one, call_options(self.options))

    def astream(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        """Run it in a worker, and yield its values as they arrive; see `stream`."""
        payload = self._signature.encode(args, kwargs)
        client, options = current_async_client(), call_options(self.options)
        return async_values_of(client, self.name, payload, self._codecs.of_one, options)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobFuture[list[R]]:
        payload = self._signature.encode(args, kwargs)
        found = current_client().submit_whole(self.name, payload, codec=self._codec, **call_options(self.options))
        return cast("JobFuture[list[R]]", found)

    def map(  # type: ignore[override]
        self: Callable[Concatenate[First, Rest], Iterator[Result] | AsyncIterator[Result]],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> Iterator[list[Result]]:
        return cast("Task[Any, list[Result]]", self)._map(values, args, kwargs)

    def amap(  # type: ignore[override]
        self: Callable[Concatenate[First, Rest], Iterator[Result] | AsyncIterator[Result]],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> AsyncIterator[list[Result]]:
        return cast("Task[Any, list[Result]]", self)._amap(values, args, kwargs)

    @property
    def _is_async(self) -> bool:
        return inspect.isasyncgenfunction(self.function)

    def _make_codec(self) -> Codec:
        signature = self._signature
        self._codecs = StreamCodecs(self.name, signature.returned, format_of(self.format), signature.decode)
        return self._codecs.of_all

    def _worker_codec(self) -> Codec:
        return self._codecs.of_worker

    def _perform(self, arguments: tuple[list[Any], dict[str, Any]], context: Context | None = None) -> Any:
        assert context is not None, "handlers of tasks have a context"
        return self.retries.call(self._emit, (context, *arguments), {})

    def _emit(self, context: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
        found = self.function(*([context, *args] if self._signature.wants_context else args), **kwargs)
        return emit_all_async(context, found) if self._is_async else emit_all(context, found)

    def _submit_here(self, payload: bytes) -> asyncio.Future[Any]:
        client = current_async_client()
        job: Any = client.submit_whole(self.name, payload, codec=self._codec, **call_options(self.options))
        found: asyncio.Future[Any] = job if isinstance(job, asyncio.Future) else asyncio.wrap_future(job)
        return found


class AsyncStreamTask(StreamTask[P, R]):
    """A task whose function is an asynchronous generator function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:  # type: ignore[override]
        """Run the function here; iterate with `async for`."""
        return cast("AsyncIterator[R]", self._run(args, kwargs))


class TaskDecorator(Protocol):
    """Makes a task of a function."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Iterator[R]], /) -> StreamTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Iterator[R]], /) -> StreamTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], AsyncIterator[R]], /) -> AsyncStreamTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, AsyncIterator[R]], /) -> AsyncStreamTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(function: Callable[Concatenate[Context, P], Iterator[R]], /) -> StreamTask[P, R]: ...


@overload
def task(function: Callable[P, Iterator[R]], /) -> StreamTask[P, R]: ...


@overload
def task(function: Callable[Concatenate[Context, P], AsyncIterator[R]], /) -> AsyncStreamTask[P, R]: ...


@overload
def task(function: Callable[P, AsyncIterator[R]], /) -> AsyncStreamTask[P, R]: ...


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
    parts: Parts = ...,
    max_running: int | None = ...,
    max_running_per_tenant: int | None = ...,
    rate: str | None = ...,
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
    parts: Parts = "join",
    max_running: int | None = None,
    max_running_per_tenant: int | None = None,
    rate: str | None = None,
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
    retried. The values of a function that yields are parts of its result: `stream` yields them as they arrive. `parts`:
    callers that do not take parts get a list of all ("join"), or their jobs fail ("require"). `max_running`,
    `max_running_per_tenant` and `rate` limit the task on all workers together, see `Worker.service`. Raises TypeError
    and ValueError.
    """
    check(options)
    retries = rules_of(retry_on, never_retry_on)
    limits = limits_of(max_running, max_running_per_tenant, rate)

    def make(function: Callable[..., Any]) -> Task[Any, Any]:
        kind = _kind_of(function)
        chosen = name or getattr(function, "__name__", "")
        if not chosen:
            raise TypeError(f"{function!r} has no __name__; give the task a name: @task(name='NAME')")
        return kind(function, chosen, format, options, retries, parts, limits)

    return make if function is None else make(function)


def _kind_of(function: Callable[..., Any]) -> type[Task[Any, Any]]:
    if inspect.isasyncgenfunction(function):
        return AsyncStreamTask
    if inspect.isgeneratorfunction(function):
        return StreamTask
    return AsyncTask if inspect.iscoroutinefunction(function) else Task
