"""Starlette, FastAPI and other ASGI applications: one client for the application, and jobs that end with a request.

app.add_middleware(DragomanMiddleware, url="tcp://broker:7400")
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeVar, Unpack

from dragoman.sdk.async_client import AsyncClient
from dragoman.sdk.errors import JobCancelled
from dragoman.sdk.option_types import ClientOptions
from dragoman.tasks.clients import using

Result = TypeVar("Result")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]


class DragomanMiddleware:
    """Lets tasks within a request use one AsyncClient, which is closed when the application ends.

    The client is also `request.scope["dragoman"]`. The arguments are those of AsyncClient.
    """

    def __init__(
        self, app: Application, url: str | Sequence[str] | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        """Raises AddressError and CredentialError."""
        self._app = app
        self._new_client: Callable[[], AsyncClient[bytes]] = lambda: AsyncClient(url, **options)
        self._client: AsyncClient[bytes] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        if self._client is None:
            self._client = self._new_client()
        scope["dragoman"] = self._client
        with using(self._client):
            await self._app(scope, receive, send)

    async def _live(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        async def send_and_close(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown") and self._client is not None:
                client, self._client = self._client, None
                await client.close()
            await send(message)

        await self._app(scope, receive, send_and_close)


async def until_disconnect(request: Any, job: Awaitable[Result]) -> Result:
    """Await a job within a request, and cancel it if the client of the request disconnects first. Raises JobCancelled
    then.

        total = await until_disconnect(request, report.acall(year))

    `request` has the method `receive`, as those of Starlette and FastAPI. Read its body before.
    """
    running = asyncio.ensure_future(job)
    gone = asyncio.ensure_future(_disconnect(request.receive))
    try:
        await asyncio.wait([running, gone], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise JobCancelled("cancelled: the client of the request has disconnected")
        return running.result()
    finally:
        gone.cancel()
        running.cancel()  # does nothing if it has ended


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
