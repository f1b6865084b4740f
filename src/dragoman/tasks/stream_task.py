"""Tasks whose functions yield: callers receive the values as they arrive, or as a list."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from dragoman.sdk.codecs import Codec
from dragoman.sdk.context import Context
from dragoman.tasks.arguments import Arguments
from dragoman.tasks.clients import current_async_client, current_client
from dragoman.tasks.formats import format_of
from dragoman.tasks.retries import call_with_rules
from dragoman.tasks.streams import StreamCodecs, async_values_of, emit_all, emit_all_async, values_of
from dragoman.tasks.task import Task

if TYPE_CHECKING:
    from dragoman.sdk.futures import JobFuture

P = ParamSpec("P")
Rest = ParamSpec("Rest")
R = TypeVar("R")
First = TypeVar("First")
Result = TypeVar("Result")


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
        return values_of(current_client(), self.name, payload, self._codecs.of_one, self._call_options)

    def astream(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        """Run it in a worker, and yield its values as they arrive; see `stream`."""
        payload = self._signature.encode(args, kwargs)
        client = current_async_client()
        return async_values_of(client, self.name, payload, self._codecs.of_one, self._call_options)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobFuture[list[R]]:
        payload = self._signature.encode(args, kwargs)
        found = current_client().submit_whole(self.name, payload, codec=self._codec, **self._call_options)
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
    def _wants_context(self) -> bool:
        return True  # it emits the values

    @property
    def _is_async(self) -> bool:
        return inspect.isasyncgenfunction(self.function)

    def _make_codec(self) -> Codec:
        signature = self._signature
        self._codecs = StreamCodecs(self.name, signature.returned, format_of(self.format), signature.decode)
        return self._codecs.of_all

    def _worker_codec(self) -> Codec:
        return self._codecs.of_worker

    def _perform(self, arguments: Arguments, context: Context | None = None) -> Any:
        assert context is not None, "handlers of such tasks have a context"
        args, kwargs, rules = arguments
        return call_with_rules(rules or self.retries, self._emit, (context, args, kwargs), {})

    def _emit(self, context: Context, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        found = self.function(*([context, *args] if self._signature.wants_context else args), **kwargs)
        return emit_all_async(context, found) if self._is_async else emit_all(context, found)

    def _submit_here(self, payload: bytes) -> asyncio.Future[Any]:
        client = current_async_client()
        job: Any = client.submit_whole(self.name, payload, codec=self._codec, **self._call_options)
        found: asyncio.Future[Any] = job if isinstance(job, asyncio.Future) else asyncio.wrap_future(job)
        return found


class AsyncStreamTask(StreamTask[P, R]):
    """A task whose function is an asynchronous generator function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:  # type: ignore[override]
        """Run the function here; iterate with `async for`."""
        return cast("AsyncIterator[R]", self._run(args, kwargs))
