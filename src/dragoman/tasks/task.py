"""Tasks: `dragoman.Task` is a function that is callable through the broker, with its own signature."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload

from dragoman.sdk.codecs import Codec
from dragoman.sdk.context import Context, local_context
from dragoman.sdk.new_jobs import NewJob
from dragoman.sdk.parts import Parts, check_parts
from dragoman.sdk.service_limits import NOTHING_GIVEN, LimitValues
from dragoman.tasks.arguments import Arguments, TaskSignature
from dragoman.tasks.clients import current_async_client, current_client
from dragoman.tasks.following import FollowingTask
from dragoman.tasks.formats import FormatName, format_of
from dragoman.tasks.handles import GroupHandle, JobHandle, awaited
from dragoman.tasks.options import ONE_JOB, TaskOptions, call_options, check, enqueue_options, map_options
from dragoman.tasks.prepared import PreparedGroup, PreparedJob
from dragoman.tasks.retries import NO_RULES, ExceptionTypes, RetryRules, call_with_rules, rules_of
from dragoman.tasks.sources import Source

if TYPE_CHECKING:
    from dragoman.sdk.futures import JobFuture
    from dragoman.sdk.handlers import Handler

P = ParamSpec("P")
Rest = ParamSpec("Rest")
R = TypeVar("R")
First = TypeVar("First")
Second = TypeVar("Second")
Third = TypeVar("Third")
Result = TypeVar("Result")

METHODS: Final = {  # of other task queues
    "delay": "enqueue(...)",
    "send": "enqueue(...)",
    "apply_async": "with_options(delay=...).enqueue(...)",
    "send_with_options": "with_options(delay=...).enqueue(...)",
    "AsyncResult": "handle(id)",
}


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
        self._call_options = call_options(self.options)

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    if not TYPE_CHECKING:  # for a type checker, every attribute would exist otherwise

        def __getattr__(self, name: str) -> Any:
            """Name our method for the one of another task queue."""
            advice = f"; use {METHODS[name]}" if name in METHODS else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here."""
        return cast(R, self._run(args, kwargs))

    def __set_name__(self, owner: type, name: str) -> None:
        """Refuse a method, when its class is made: a worker has no object to call it on."""
        if next(iter(inspect.signature(self.function).parameters), "") in ("self", "cls"):
            raise TypeError(
                f"{owner.__qualname__}.{name} is a method, which cannot be a task; make it a function of its module"
            )

    def with_options(
        self,
        *,
        retry_on: ExceptionTypes | None = None,
        never_retry_on: ExceptionTypes | None = None,
        **options: Unpack[TaskOptions],
    ) -> Self:
        """Return this task with other options for its jobs: `resize.with_options(attempts=5).enqueue(image)`.

        `retry_on` and `never_retry_on` are sent with each job, by the names of the exceptions. Raises TypeError.
        """
        check(options)
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed.options = {**self.options, **options}
        changed._call_options = call_options(changed.options)
        if retry_on is not None or never_retry_on is not None:
            now = self.retries
            changed.retries = rules_of(
                now.on if retry_on is None else retry_on, now.never if never_retry_on is None else never_retry_on
            )
            changed._signature = self._signature.with_rules(changed.retries.names())
        return changed

    def check_arguments(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Raise TypeError if a call with these arguments would, or if they cannot be encoded."""
        self._signature.encode(args, kwargs)

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> bytes:
        """Return the payload of a job with these arguments, for schedules:
        `client.set_schedule("nightly", report.name, report.payload("all"), cron="0 3 * * *")`. Raises TypeError."""
        return self._signature.encode(args, kwargs)

    # ---------------------------------------------------------------- calls

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it in a worker and wait for the result. Raises JobError and BrokerUnavailable."""
        payload = self._signature.encode(args, kwargs)
        return cast(R, current_client().call(self.name, payload, codec=self._codec, **self._call_options))

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobFuture[R]:
        """Run it in a worker. Returns a future."""
        payload = self._signature.encode(args, kwargs)
        found = current_client().submit(self.name, payload, codec=self._codec, **self._call_options)
        return cast("JobFuture[R]", found)

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
        if any(isinstance(each, PreparedJob | PreparedGroup) for each in self.options.get("after", ())):
            return self.prepare(*args, **kwargs).enqueue()
        client = current_client()
        payload = self._signature.encode(args, kwargs)
        id = client.enqueue(self.name, payload, codec="bytes", **self._enqueue_options())
        return JobHandle(id, self._codec.decode, client)

    def enqueue_many(
        self: Callable[Concatenate[First, Rest], Result],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> list[JobHandle[Result]]:
        """Make a background job for each value, in one commit; the other arguments are the same for all. More than
        10,000 jobs are several commits, see `Client.enqueue_many`. Returns their handles."""
        return cast("Task[Any, Result]", self)._enqueue_many(values, args, kwargs)

    def handle(self, id: str) -> JobHandle[R]:
        """Return the handle of a background job of this task by its id."""
        return JobHandle(id, self._codec.decode)

    def group_handle(self, id: str) -> GroupHandle[R]:
        """Return the handle of a group of jobs of this task by its id."""
        return GroupHandle(id, self._codec.decode)

    # ---------------------------------------------------------------- jobs that are not enqueued yet

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedJob[R]:
        """Return a job that is not enqueued yet, for `then`, `group`, `chain` and `enqueue_many`."""
        payload = self._signature.encode(args, kwargs)
        job = NewJob(self.name, payload, codec="bytes", **self._enqueue_options())
        before = [each for each in self.options.get("after", ()) if isinstance(each, Source)]
        return PreparedJob(job, self._codec.decode, before)

    def group(
        self: Callable[Concatenate[First, Rest], Result],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> PreparedGroup[Result]:
        """Return a group with a job for each value; the other arguments are the same for all. Its method `enqueue`
        enqueues it in one commit."""
        return cast("Task[Any, Result]", self)._group(values, args, kwargs)

    @overload
    def after(
        self: Callable[Concatenate[First, Rest], Result], first: Source[First], /
    ) -> FollowingTask[Rest, Result]: ...

    @overload
    def after(
        self: Callable[Concatenate[First, Second, Rest], Result], first: Source[First], second: Source[Second], /
    ) -> FollowingTask[Rest, Result]: ...

    @overload
    def after(
        self: Callable[Concatenate[First, Second, Third, Rest], Result],
        first: Source[First],
        second: Source[Second],
        third: Source[Third],
        /,
    ) -> FollowingTask[Rest, Result]: ...

    def after(self, *sources: Source[Any]) -> FollowingTask[Any, Any]:
        """Return this task for jobs that start when these jobs and groups are done. Their results are its first
        arguments, one for each; that of a group is a list. The handles and prepared jobs may be of other tasks.

            report = write_report.after(pages, prices).enqueue("May")
        """
        return FollowingTask(self._signature, self._codec.decode, self.options, sources)

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
        if any(isinstance(each, PreparedJob | PreparedGroup) for each in self.options.get("after", ())):
            return await self.prepare(*args, **kwargs).aenqueue()
        client = current_async_client()
        payload = self._signature.encode(args, kwargs)
        id = await awaited(client, "enqueue", self.name, payload, codec="bytes", **enqueue_options(self.options))
        return JobHandle(id, self._codec.decode, client)

    async def aenqueue_many(
        self: Callable[Concatenate[First, Rest], Result],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> list[JobHandle[Result]]:
        """Make a background job for each value; see `enqueue_many`."""
        return await cast("Task[Any, Result]", self)._aenqueue_many(values, args, kwargs)

    async def afind(self, key: str) -> JobHandle[R]:
        """Return the handle of a background job by its idempotency key; see `find`."""
        client = current_async_client()
        found = await awaited(client, "find_job", self.name, key)
        return JobHandle(found.id, self._codec.decode, client)

    # ---------------------------------------------------------------- worker

    def task_handler(self, service: str) -> Handler:
        """Return the handler of a worker that offers this task as a service with this name."""
        from dragoman.sdk.handlers import Handler

        context = "context" if self._wants_context else ""
        codec = self._worker_codec()
        declares = self._signature.schema
        return Handler(service, self._perform, codec, context, self._is_async, self, self.parts, self.limits, declares)

    @property
    def _wants_context(self) -> bool:
        return self._signature.wants_context

    @property
    def _is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def _worker_codec(self) -> Codec:
        signature = self._signature
        separator = format_of(self.format).separator
        return Codec(self.format, signature.encode_result, signature.decode, signature.decode, separator)

    def _perform(self, arguments: Arguments, context: Context | None = None) -> Any:
        args, kwargs, rules = arguments
        if self._signature.wants_context:
            args = [context, *args]
        if rules is None and self.retries is NO_RULES:
            return self.function(*args, **kwargs)
        return call_with_rules(rules or self.retries, self.function, args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._signature.wants_context:
            return self.function(local_context(self.name), *args, **kwargs)
        return self.function(*args, **kwargs)

    def _submit_here(self, payload: bytes) -> asyncio.Future[Any]:
        client = current_async_client()
        job = client.submit(self.name, payload, codec=self._codec, **self._call_options)
        return job if isinstance(job, asyncio.Future) else asyncio.wrap_future(job)

    def _map(self, values: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[R]:
        payloads = self._payloads(values, args, kwargs)
        found = current_client().map(self.name, payloads, codec=self._codec, **map_options(self.options))
        return cast("Iterator[R]", found)

    async def _amap(self, values: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncIterator[R]:
        from dragoman.sdk.async_client import AsyncClient

        client, payloads = current_async_client(), self._payloads(values, args, kwargs)
        if isinstance(client, AsyncClient):
            async for each in client.map(self.name, payloads, codec=self._codec, **map_options(self.options)):
                yield cast(R, each)
            return
        found, end = client.map(self.name, payloads, codec=self._codec, **map_options(self.options)), object()
        while (result := await asyncio.to_thread(next, found, end)) is not end:
            yield cast(R, result)

    def _enqueue_many(self, values: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[JobHandle[R]]:
        client, options = current_client(), self._many_options()
        ids = client.enqueue_many(self.name, self._payloads(values, args, kwargs), codec="bytes", **options)
        return [JobHandle(id, self._codec.decode, client) for id in ids]

    async def _aenqueue_many(
        self, values: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[JobHandle[R]]:
        client, options = current_async_client(), self._many_options()
        payloads = list(self._payloads(values, args, kwargs))
        ids = await awaited(client, "enqueue_many", self.name, payloads, codec="bytes", **options)
        return [JobHandle(id, self._codec.decode, client) for id in ids]

    def _many_options(self) -> Any:
        options = self._enqueue_options()
        unusable = next((each for each in ONE_JOB if each in options), None)
        if unusable is not None:
            raise TypeError(
                f"the option {unusable!r} is about one job; prepare the jobs, and use dragoman.enqueue_many"
            )
        return options

    def _enqueue_options(self) -> Any:
        return {**enqueue_options(self.options), "parameters": self._signature.names}

    def _group(self, values: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> PreparedGroup[R]:
        return PreparedGroup([self.prepare(value, *args, **kwargs) for value in values])

    def _payloads(self, values: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[bytes]:
        return self._signature.encode_each(values, args, kwargs)

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

    def enqueue_many(  # type: ignore[override]
        self: Callable[Concatenate[First, Rest], Coroutine[Any, Any, Result]],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> list[JobHandle[Result]]:
        return cast("Task[Any, Result]", self)._enqueue_many(values, args, kwargs)

    async def aenqueue_many(  # type: ignore[override]
        self: Callable[Concatenate[First, Rest], Coroutine[Any, Any, Result]],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> list[JobHandle[Result]]:
        return await cast("Task[Any, Result]", self)._aenqueue_many(values, args, kwargs)

    def group(  # type: ignore[override]
        self: Callable[Concatenate[First, Rest], Coroutine[Any, Any, Result]],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> PreparedGroup[Result]:
        return cast("Task[Any, Result]", self)._group(values, args, kwargs)

    @overload  # type: ignore[override]
    def after(
        self: Callable[Concatenate[First, Rest], Coroutine[Any, Any, Result]], first: Source[First], /
    ) -> FollowingTask[Rest, Result]: ...

    @overload
    def after(
        self: Callable[Concatenate[First, Second, Rest], Coroutine[Any, Any, Result]],
        first: Source[First],
        second: Source[Second],
        /,
    ) -> FollowingTask[Rest, Result]: ...

    @overload
    def after(
        self: Callable[Concatenate[First, Second, Third, Rest], Coroutine[Any, Any, Result]],
        first: Source[First],
        second: Source[Second],
        third: Source[Third],
        /,
    ) -> FollowingTask[Rest, Result]: ...

    def after(self, *sources: Source[Any]) -> FollowingTask[Any, Any]:
        return FollowingTask(self._signature, self._codec.decode, self.options, sources)

    def amap(  # type: ignore[override]
        self: Callable[Concatenate[First, Rest], Coroutine[Any, Any, Result]],
        values: Iterable[First],
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> AsyncIterator[Result]:
        return cast("Task[Any, Result]", self)._amap(values, args, kwargs)
