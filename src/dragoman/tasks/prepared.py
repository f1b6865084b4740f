"""Prepared jobs and groups: not enqueued yet, so that many of them can be enqueued in one commit."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from dragoman.sdk.ids import new_batch_id
from dragoman.tasks.clients import current_async_client, current_client
from dragoman.tasks.handles import GroupHandle, JobHandle, awaited
from dragoman.tasks.sources import Source, new_jobs

if TYPE_CHECKING:
    from dragoman.sdk.new_jobs import NewJob
    from dragoman.tasks.clients import AnyClient

Rest = ParamSpec("Rest")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
R = TypeVar("R")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)


class PreparedJob(Source[R_co]):
    """A job of a task that is not enqueued yet: `fetch.prepare(url)`.

        fetch.prepare(url).then(parse).then(save, "news").enqueue()

    `enqueue` enqueues it together with all jobs that it comes after, in one commit.
    """

    __slots__ = ("_before", "_decode", "_job")

    def __init__(self, job: NewJob, decode: Callable[[bytes], R_co], before: Iterable[Source[Any]] = ()) -> None:
        super().__init__(job.id)
        self._job = job
        self._decode = decode
        self._before = tuple(before)

    def __repr__(self) -> str:
        return f"<PreparedJob {self.id} of {self._job.service}>"

    @overload
    def then(
        self: PreparedJob[A],
        task: Callable[Concatenate[A, Rest], Coroutine[Any, Any, S]],
        /,
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> PreparedJob[S]: ...

    @overload
    def then(
        self: PreparedJob[A], task: Callable[Concatenate[A, Rest], S], /, *args: Rest.args, **kwargs: Rest.kwargs
    ) -> PreparedJob[S]: ...

    def then(self, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return a job of another task that starts when this one is done. Its first argument is the result of this one;
        the others are given here."""
        return _following(task, self).prepare(*args, **kwargs)

    def enqueue(self) -> JobHandle[R_co]:
        """Enqueue it, and all jobs that it comes after, in one commit. Returns its handle."""
        client = current_client()
        client.enqueue_jobs(new_jobs([self]))
        return self.handle(client)

    async def aenqueue(self) -> JobHandle[R_co]:
        """Enqueue it; see `enqueue`."""
        client = current_async_client()
        await awaited(client, "enqueue_jobs", new_jobs([self]))
        return self.handle(client)

    def handle(self, client: AnyClient | None = None) -> JobHandle[R_co]:
        """Return the handle of the job. It exists when the job is enqueued."""
        return JobHandle(self.id, self._decode, client)

    def in_group(self, group: str) -> None:
        """Make it a member of a group. Raises ValueError if it is one of another."""
        if self._job.options.get("group") is not None:
            raise ValueError(f"{self!r} is in a group already; prepare another job")
        self._job.options["group"] = group

    def unsent(self) -> Iterable[Source[Any]]:
        return self._before

    def new_job(self) -> NewJob:
        return self._job


class PreparedGroup(Source[list[R]]):
    """A group that is not enqueued yet: `fetch.group(urls)`, or `group([fetch.prepare(url), check.prepare(url)])`."""

    __slots__ = ("_jobs",)

    def __init__(self, jobs: Iterable[PreparedJob[R]]) -> None:
        super().__init__(new_batch_id().hex())
        self._jobs = list(jobs)
        if not self._jobs:
            raise ValueError("a group needs at least one job")
        for each in self._jobs:
            each.in_group(self.id)

    def __repr__(self) -> str:
        return f"<PreparedGroup {self.id} of {len(self._jobs)} jobs>"

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def then(
        self,
        task: Callable[Concatenate[list[R], Rest], Coroutine[Any, Any, S]],
        /,
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> PreparedJob[S]: ...

    @overload
    def then(
        self, task: Callable[Concatenate[list[R], Rest], S], /, *args: Rest.args, **kwargs: Rest.kwargs
    ) -> PreparedJob[S]: ...

    def then(self, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return a job of a task that starts when all jobs of the group are done. Its first argument is the list of
        their results; the others are given here."""
        return _following(task, self).prepare(*args, **kwargs)

    def enqueue(self) -> GroupHandle[R]:
        """Enqueue its jobs, and all jobs that they come after, in one commit. Returns the handle of the group."""
        client = current_client()
        client.enqueue_jobs(new_jobs([self]))
        return self.handle(client)

    async def aenqueue(self) -> GroupHandle[R]:
        """Enqueue its jobs; see `enqueue`."""
        client = current_async_client()
        await awaited(client, "enqueue_jobs", new_jobs([self]))
        return self.handle(client)

    def handle(self, client: AnyClient | None = None) -> GroupHandle[R]:
        """Return the handle of the group. It exists when the group is enqueued."""
        jobs = [each.handle(client) for each in self._jobs]
        return GroupHandle(self.id, self._jobs[0]._decode, jobs, client)

    def unsent(self) -> Iterable[Source[Any]]:
        return self._jobs


def group(jobs: Iterable[PreparedJob[R]]) -> PreparedGroup[R]:
    """Return a group of prepared jobs, which may be of different tasks.

    pages = group([fetch.prepare("https://example.org"), fetch.prepare("https://example.com")]).enqueue()
    print(pages.progress())
    print(pages.result())
    """
    return PreparedGroup(jobs)


class Step(Protocol[A_contra, R_co]):
    """A task that needs one argument."""

    def prepare(self, first: A_contra, /) -> PreparedJob[R_co]: ...


@overload
def chain(first: PreparedJob[A], second: Step[A, B], /) -> PreparedJob[B]: ...


@overload
def chain(first: PreparedJob[A], second: Step[A, B], third: Step[B, C], /) -> PreparedJob[C]: ...


@overload
def chain(first: PreparedJob[A], second: Step[A, B], third: Step[B, C], fourth: Step[C, D], /) -> PreparedJob[D]: ...


@overload
def chain(
    first: PreparedJob[A], second: Step[A, B], third: Step[B, C], fourth: Step[C, D], fifth: Step[D, E], /
) -> PreparedJob[E]: ...


def chain(first: PreparedJob[Any], *tasks: Any) -> PreparedJob[Any]:
    """Return the last job of a chain: each task gets the result of the one before it as its argument.

        chain(fetch.prepare(url), parse, summarize).enqueue()

    The same as `first.then(second).then(third)`, which can pass more arguments, and has no limit of length.
    """
    last = first
    for each in tasks:
        last = last.then(each)
    return last


def enqueue_many(jobs: Iterable[PreparedJob[R]]) -> list[JobHandle[R]]:
    """Enqueue prepared jobs, and all jobs that they come after, in one commit. Returns their handles."""
    client, found = current_client(), list(jobs)
    client.enqueue_jobs(new_jobs(found))
    return [each.handle(client) for each in found]


async def aenqueue_many(jobs: Iterable[PreparedJob[R]]) -> list[JobHandle[R]]:
    """Enqueue prepared jobs; see `enqueue_many`."""
    client, found = current_async_client(), list(jobs)
    await awaited(client, "enqueue_jobs", new_jobs(found))
    return [each.handle(client) for each in found]


class Followable(Protocol):
    """A task, as a source uses it."""

    def after(self, *sources: Source[Any]) -> Any: ...


def _following(task: Any, source: Source[Any]) -> Any:
    if not hasattr(task, "after"):
        raise TypeError(f"{task!r} is no task; write @task above the function")
    return cast(Followable, task).after(source)
