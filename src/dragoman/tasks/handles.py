"""Handles of background jobs: `JobHandle` has the id of a job and its operations, with the type of its result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from dragoman.sdk.errors import JobFailed
from dragoman.tasks.clients import current_async_client, current_client

if TYPE_CHECKING:
    from dragoman.operations.schemas import JobView
    from dragoman.sdk.client import Client
    from dragoman.tasks.clients import AnyClient

R = TypeVar("R")


class JobHandle(Generic[R]):
    """A background job. It can be made again from its id: `task.handle(id)`.

    The methods with `a` in front are awaited. They raise NoSuchJob if the outcome is not kept any more.
    """

    __slots__ = ("_client", "_decode", "id")

    def __init__(self, id: str, decode: Callable[[bytes], R], client: AnyClient | None = None) -> None:
        self.id = id
        self._decode = decode
        self._client = client  # None: the current one

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}>"

    def result(self, timeout: float | None = None) -> R:
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

    async def aresult(self, timeout: float | None = None) -> R:
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

    def _decoded(self, result: bytes) -> R:
        """Raises JobFailed."""
        try:
            return self._decode(result)
        except Exception as error:  # of the format's library, or of a type of the user
            cause = f"{type(error).__name__}: {error}"
            reason = f"failed: the result of job {self.id} does not have the type of its task: {cause}"
            raise JobFailed(reason, type(error).__name__, str(error)) from error

    def _blocking(self) -> Client[Any]:
        return cast("Client[Any]", self._client) if self._client is not None else current_client()

    async def _awaited(self, name: str, **options: Any) -> Any:
        client = self._client if self._client is not None else current_async_client()
        return await awaited(client, name, self.id, **options)


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
