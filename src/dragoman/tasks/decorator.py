"""`dragoman.task`: a decorator that makes a task of a function."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from dragoman.sdk.context import Context
from dragoman.sdk.parts import Parts
from dragoman.sdk.service_limits import limits_of
from dragoman.tasks.formats import FormatName
from dragoman.tasks.function_types import ReturnsAny, TakesAnything, TakesAnythingReturnsAny, TakesContextReturnsAny
from dragoman.tasks.options import TaskOptions, check
from dragoman.tasks.retries import ExceptionTypes, rules_of
from dragoman.tasks.stream_task import AsyncStreamTask, StreamTask
from dragoman.tasks.task import AsyncTask, Task

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """Makes a task of a function. The overloads are those of `task`."""

    @overload
    def __call__(self, function: TakesAnythingReturnsAny[P], /) -> Task[P, Any]: ...

    @overload
    def __call__(self, function: TakesContextReturnsAny[P], /) -> Task[P, Any]: ...

    @overload
    def __call__(self, function: ReturnsAny[P], /) -> Task[P, Any]: ...

    @overload
    def __call__(self, function: TakesAnything[P, Iterator[R]], /) -> StreamTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Iterator[R]], /) -> StreamTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Iterator[R]], /) -> StreamTask[P, R]: ...

    @overload
    def __call__(self, function: TakesAnything[P, AsyncIterator[R]], /) -> AsyncStreamTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], AsyncIterator[R]], /) -> AsyncStreamTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, AsyncIterator[R]], /) -> AsyncStreamTask[P, R]: ...

    @overload
    def __call__(self, function: TakesAnything[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: TakesAnything[P, R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(function: TakesAnythingReturnsAny[P], /) -> Task[P, Any]: ...


@overload
def task(function: TakesContextReturnsAny[P], /) -> Task[P, Any]: ...


@overload
def task(function: ReturnsAny[P], /) -> Task[P, Any]: ...


@overload
def task(function: TakesAnything[P, Iterator[R]], /) -> StreamTask[P, R]: ...


@overload
def task(function: Callable[Concatenate[Context, P], Iterator[R]], /) -> StreamTask[P, R]: ...


@overload
def task(function: Callable[P, Iterator[R]], /) -> StreamTask[P, R]: ...


@overload
def task(function: TakesAnything[P, AsyncIterator[R]], /) -> AsyncStreamTask[P, R]: ...


@overload
def task(function: Callable[Concatenate[Context, P], AsyncIterator[R]], /) -> AsyncStreamTask[P, R]: ...


@overload
def task(function: Callable[P, AsyncIterator[R]], /) -> AsyncStreamTask[P, R]: ...


@overload
def task(function: TakesAnything[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...


@overload
def task(function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...


@overload
def task(function: TakesAnything[P, R], /) -> Task[P, R]: ...


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
        chosen: object = name or getattr(function, "__name__", "")
        if not isinstance(chosen, str):
            raise TypeError(f"name={chosen!r}: must be a string")
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
