"""Tasks that come after jobs and take their results: `summarize.after(pages).enqueue(title)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack

from dragoman.sdk.new_jobs import NewJob
from dragoman.tasks.arguments import TaskSignature
from dragoman.tasks.handles import JobHandle
from dragoman.tasks.options import TaskOptions, check, enqueue_options
from dragoman.tasks.prepared import PreparedJob
from dragoman.tasks.sources import Source

P = ParamSpec("P")
R = TypeVar("R")


class FollowingTask(Generic[P, R]):
    """A task whose first arguments are the results of jobs and groups. The methods take the other arguments."""

    def __init__(
        self,
        signature: TaskSignature,
        decode: Callable[[bytes], R],
        options: TaskOptions,
        sources: tuple[Source[Any], ...],
    ) -> None:
        """Raises TypeError."""
        if not sources:
            raise TypeError(f"{signature.name}.after() needs the jobs or groups whose results it takes")
        if options.get("after"):
            raise TypeError(f"{signature.name} has the option `after` already; name all jobs in one place")
        signature.check_results(len(sources))
        self._signature = signature
        self._decode = decode
        self._options = options
        self._sources = sources

    def with_options(self, **options: Unpack[TaskOptions]) -> Self:
        """Return it with other options for its jobs."""
        check(options)
        merged: TaskOptions = {**self._options, **options}
        return type(self)(self._signature, self._decode, merged, self._sources)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedJob[R]:
        """Return a job that is not enqueued yet."""
        payload = self._signature.encode_rest(len(self._sources), args, kwargs)
        options = {**enqueue_options(self._options), "parameters": self._signature.names}
        job = NewJob(
            self._signature.name, payload, codec="bytes", **{**options, "after": self._sources, "input": "results"}
        )
        return PreparedJob(job, self._decode, self._sources)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Make a background job, together with those before it that are not enqueued yet."""
        return self.prepare(*args, **kwargs).enqueue()

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Make a background job; see `enqueue`."""
        return await self.prepare(*args, **kwargs).aenqueue()
