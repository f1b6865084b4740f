"""Handles of background jobs and groups: their ids and operations, with the types of their results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from dragoman.sdk.errors import JobFailed
from dragoman.tasks.clients import current_async_client, current_client
from dragoman.tasks.sources import Source

if TYPE_CHECKING:
    from dragoman.operations.group_schemas import GroupView
    from dragoman.operations.schemas import JobView
    from dragoman.sdk.client import Client
    from dragoman.tasks.clients import AnyClient

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Handle(Source[R_co]):
    """The client of a handle."""

    __slots__ = ("_client",)

    def __init__(self, id: str, client: AnyClient | None) -> None:
        super().__init__(id)
        self._client = client  # None: the current one

    def _blocking(self) -> Client[Any]:
        return cast("Client[Any]", self._client) if self._client is not None else current_client()

    async def _awaited(self, name: str, **options: Any) -> Any:
        client = self._client if self._client is not None else current_async_client()
        return await awaited(client, name, self.id, **options)


class JobHandle(Handle[R_co]):
    """A background job. It can be made again from its id: `task.handle(id)`.

    The methods with `a` in front are awaited. They raise NoSuchJob if the outcome is not kept any more.
    """

    __slots__ = ("_decode",)

    def __init__(self, id: str, decode: Callable[[bytes], R_co], client: AnyClient | None = None) -> None:
        super().__init__(id, client)
        self._decode = decode

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}>"

    def result(self, timeout: float | None = None) -> R_co:
        """Wait for the job to end and return its result. Raises JobError, such as JobFailed, and JobTimeout if it has
        not ended after `timeout` seconds."""
        return self._decoded(self._blocking().result(self.id, timeout=timeout, codec="bytes"))

    def job(self) -> JobView:
        """Return the state of the job, with its attempts."""
        return self._blocking().job(self.id)

    def why(self) -> str:
        """Return one sentence that explains why the job is not running, or how it ended."""
        return self._blocking().why(self.id)

    def cancel(self) -> bool:
        """Cancel the job. Returns False if it has already ended."""
        return self._blocking().cancel(self.id)

    def progress(self) -> Any:
        """Return the last progress report, such as {"done": 3, "total": 10}; None if there is none."""
        return _report(self.job())

    async def aresult(self, timeout: float | None = None) -> R_co:
        """Await the result of the job; see `result`."""
        return self._decoded(await self._awaited("result", timeout=timeout, codec="bytes"))

    async def ajob(self) -> JobView:
        found: JobView = await self._awaited("job")
        return found

    async def awhy(self) -> str:
        found: str = await self._awaited("why")
        return found

    async def acancel(self) -> bool:
        found: bool = await self._awaited("cancel")
        return found

    async def aprogress(self) -> Any:
        return _report(await self.ajob())

    def _decoded(self, result: bytes) -> R_co:
        """Raises JobFailed."""
        return decoded(result, self._decode, f"job {self.id}")


class GroupHandle(Handle[list[R]]):
    """A group of background jobs. It can be made again from its id: `task.group_handle(id)`.

    The methods with `a` in front are awaited. They raise NoSuchGroup if the group is not kept any more.
    """

    __slots__ = ("_decode", "jobs")

    def __init__(
        self,
        id: str,
        decode: Callable[[bytes], R],
        jobs: Sequence[JobHandle[R]] = (),
        client: AnyClient | None = None,
    ) -> None:
        """`decode`: decodes the result of a member that is not among `jobs`."""
        super().__init__(id, client)
        self.jobs = tuple(jobs)  # handles of its members, in order; empty if it was made from an id
        self._decode = decode

    def __repr__(self) -> str:
        return f"<GroupHandle {self.id}>"

    @overload
    def result(self, timeout: float | None = None, *, errors: Literal["raise"] = "raise") -> list[R]: ...

    @overload
    def result(self, timeout: float | None = None, *, errors: Literal["return"]) -> list[R | Exception]: ...

    def result(self, timeout: float | None = None, *, errors: Literal["raise", "return"] = "raise") -> Any:
        """Wait until all jobs have ended, and return their results in order. If some are not done, raise the JobError
        of the first; with `errors="return"`, exceptions are in their places. Raises JobTimeout if not all have ended
        after `timeout` seconds."""
        found = self._blocking().group_results(self.id, timeout, errors=errors, codec="bytes")
        return self._decoded(found, errors)

    def group(self) -> GroupView:
        """Return the numbers of its jobs by outcome."""
        return self._blocking().group(self.id)

    def progress(self) -> str:
        """Return its progress in words: `412 of 5,000, 3 failed`."""
        return self.group().says

    def cancel(self) -> GroupView:
        """Cancel all jobs that have not ended."""
        return self._blocking().cancel_group(self.id)

    @overload
    async def aresult(self, timeout: float | None = None, *, errors: Literal["raise"] = "raise") -> list[R]: ...

    @overload
    async def aresult(self, timeout: float | None = None, *, errors: Literal["return"]) -> list[R | Exception]: ...

    async def aresult(self, timeout: float | None = None, *, errors: Literal["raise", "return"] = "raise") -> Any:
        """Await the results; see `result`."""
        found = await self._awaited("group_results", timeout=timeout, errors=errors, codec="bytes")
        return self._decoded(found, errors)

    async def agroup(self) -> GroupView:
        found: GroupView = await self._awaited("group")
        return found

    async def aprogress(self) -> str:
        return (await self.agroup()).says

    async def acancel(self) -> GroupView:
        found: GroupView = await self._awaited("cancel_group")
        return found

    def _decoded(self, found: list[Any], errors: str) -> list[Any]:
        results: list[Any] = []
        for place, each in enumerate(found):
            if not isinstance(each, Exception):
                whose = f"job {self.jobs[place].id}" if self.jobs else f"job {place + 1} of group {self.id}"
                decode = self.jobs[place]._decode if self.jobs else self._decode
                try:
                    results.append(decoded(each, decode, whose))
                except JobFailed as error:
                    if errors == "raise":
                        raise
                    results.append(error)
            else:
                results.append(each)
        return results


def decoded(result: bytes, decode: Callable[[bytes], R], whose: str) -> R:
    """Raises JobFailed if the result does not have the type of its task."""
    try:
        return decode(result)
    except Exception as error:  # of the format's library, or of a type of the user
        cause = f"{type(error).__name__}: {error}"
        reason = f"failed: the result of {whose} does not have the type of its task: {cause}"
        raise JobFailed(reason, type(error).__name__, str(error)) from error


async def awaited(client: AnyClient, name: str, *args: Any, **options: Any) -> Any:
    """Await an operation of a client. One of a Client blocks a thread meanwhile."""
    from dragoman.sdk.async_client import AsyncClient

    method = getattr(client, name)
    if isinstance(client, AsyncClient):
        return await method(*args, **options)
    return await asyncio.to_thread(method, *args, **options)


def _report(view: JobView) -> Any:
    shown = view.progress
    if shown is None or shown.text is None:
        return None
    try:
        return json.loads(shown.text)
    except json.JSONDecodeError:
        return shown.text
