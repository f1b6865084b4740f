"""Sources: jobs and groups whose results other jobs take as arguments, enqueued already or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from dragoman.sdk.new_jobs import NewJob

T_co = TypeVar("T_co", covariant=True)


class Source(Generic[T_co]):
    """A job with a result of type T, or a group with a list of results. `id` is that of the job or group."""

    __slots__ = ("id",)

    def __init__(self, id: str) -> None:
        self.id = id

    def unsent(self) -> Iterable[Source[Any]]:
        """Return the sources that this one comes after, or that are its members, and that are not enqueued yet."""
        return ()

    def new_job(self) -> NewJob | None:
        """Return the job to enqueue. None: it is enqueued already, or it is a group."""
        return None


def new_jobs(last: Iterable[Source[Any]]) -> list[NewJob]:
    """Return all jobs that must be enqueued with these, each once and behind those that it comes after."""
    found: dict[str, NewJob] = {}
    done: set[str] = set()
    path: list[tuple[Source[Any], list[Source[Any]]]] = [(each, list(each.unsent())) for each in reversed(list(last))]
    while path:  # not a recursion: a chain may be long
        source, before = path[-1]
        if before:
            following = before.pop(0)
            if following.id not in done:
                path.append((following, list(following.unsent())))
            continue
        path.pop()
        if source.id not in done:
            done.add(source.id)
            job = source.new_job()
            if job is not None:
                found[job.id] = job
    return list(found.values())
