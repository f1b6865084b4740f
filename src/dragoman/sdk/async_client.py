"""`dragoman.AsyncClient`: calls and jobs for asyncio programs."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.async_operations import AsyncClientOperations
from dragoman.sdk.calls import Calls, Maps, OptionValues, Submits
from dragoman.sdk.client_settings import encode_payload
from dragoman.sdk.codecs import Codec
from dragoman.sdk.credentials import hidden
from dragoman.sdk.engine import Engine
from dragoman.sdk.event_loop import check_watches_sockets
from dragoman.sdk.futures import AsyncJobFuture
from dragoman.sdk.operation import OperationAnswer, OperationCall
from dragoman.sdk.operation_futures import AsyncOperationFuture
from dragoman.sdk.option_types import CallOptions, ClientOptions, Result

if TYPE_CHECKING:
    from dragoman.sdk.client import Client
    from dragoman.sdk.executor import ServiceExecutor

Each = TypeVar("Each")
Awaited = Coroutine[Any, Any, Each]


class AsyncClient(
    Calls[Awaited[Result], Awaited[bytes], Awaited[Any]],
    Submits[AsyncJobFuture[Result], AsyncJobFuture[bytes], AsyncJobFuture[Any]],
    Maps[Iterable[Any] | AsyncIterable[Any], AsyncIterator[Result], AsyncIterator[bytes], AsyncIterator[Any]],
    AsyncClientOperations[Result],
):
    """Calls services through a broker. The URL selects the dialect; every dialect that has callers works.

        async with AsyncClient("tcp://127.0.0.1:7400") as client:
            small = await client.call("resize", big, timeout=30)

    The client belongs to the event loop on which it is first used. Its settings and options are those of `Client`.
    """

    @overload
    def __init__(
        self: AsyncClient[bytes],
        url: str | Sequence[str] | None = ...,
        *,
        codec: Literal["bytes"] = ...,
        **options: Unpack[ClientOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncClient[Any], url: str | Sequence[str] | None = ..., *, codec: str, **options: Unpack[ClientOptions]
    ) -> None: ...

    def __init__(
        self, url: str | Sequence[str] | None = None, *, codec: str = "bytes", **options: Unpack[ClientOptions]
    ) -> None:
        """Raises AddressError and CredentialError, which are ValueErrors."""
        self._set_up(url, codec, **options)
        self._options = options
        self._options["token"] = hidden(options.get("token"))
        self._executor_client: Client[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        self._process = os.getpid()
        self._is_closed = False

    # ---------------------------------------------------------------- jobs

    async def _call(self, asked: OptionValues, payload: Any, codec: str | Codec | None) -> Any:
        return await self._enter(self.options_cache.submit_options(*asked), payload, self._chosen(codec))

    def _map(
        self, submit_options: SubmitOptions, payloads: Iterable[Any] | AsyncIterable[Any], codec: Codec, window: int
    ) -> AsyncIterator[Any]:
        if isinstance(payloads, AsyncIterable):
            return self._map_async_iterable(submit_options, aiter(payloads), codec, window)
        return self._map_iterable(submit_options, payloads, codec, window)

    async def _map_iterable(
        self, submit_options: SubmitOptions, payloads: Iterable[Any], codec: Codec, window: int
    ) -> AsyncIterator[Any]:
        pending: deque[AsyncJobFuture[Any]] = deque()
        try:
            for payload in payloads:
                pending.append(self._enter(submit_options, payload, codec))
                while pending and (len(pending) >= window or pending[0].done()):
                    yield await pending.popleft()
            while pending:
                yield await pending.popleft()
        finally:
            _cancel(pending)

    async def _map_async_iterable(
        self, submit_options: SubmitOptions, payloads: AsyncIterator[Any], codec: Codec, window: int
    ) -> AsyncIterator[Any]:
        """Yield available results even while the next payload is awaited."""
        pending: deque[AsyncJobFuture[Any]] = deque()
        next_payload: asyncio.Future[Any] | None = asyncio.ensure_future(_next(payloads))
        try:
            while pending or next_payload is not None:
                awaited = [*([next_payload] if next_payload is not None else ()), *([pending[0]] if pending else ())]
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                while pending and pending[0].done():
                    yield pending.popleft().result()
                if next_payload is not None and next_payload.done():
                    payload, next_payload = next_payload.result(), None
                    if payload is not _END:
                        pending.append(self._enter(submit_options, payload, codec))
                        while len(pending) >= window:
                            yield await pending.popleft()
                        next_payload = asyncio.ensure_future(_next(payloads))
        finally:
            if next_payload is not None:
                next_payload.cancel()
            _cancel(pending)

    @staticmethod
    async def as_completed(
        jobs: Iterable[AsyncJobFuture[Each]], timeout: float | None = None
    ) -> AsyncIterator[AsyncJobFuture[Each]]:
        """Yield each job as soon as it has ended. Raises TimeoutError if not all have ended after `timeout` seconds."""
        ended: asyncio.Queue[AsyncJobFuture[Each]] = asyncio.Queue()
        waited_for = set(jobs)
        for job in waited_for:
            job.add_done_callback(ended.put_nowait)
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        for _ in waited_for:
            async with asyncio.timeout_at(deadline):
                job = await ended.get()
            yield job

    def executor(self, service: str, *, codec: str | None = None, **options: Unpack[CallOptions]) -> ServiceExecutor:
        """Return a `concurrent.futures.Executor` that runs on the workers of `service`, for `loop.run_in_executor`; see
        ServiceExecutor. It uses threads, so it has a `Client` of its own, which is closed with this client."""
        from dragoman.sdk.client import Client
        from dragoman.sdk.executor import ServiceExecutor

        self._check_open()
        if self._executor_client is None:
            self._executor_client = Client(self.url, codec=self._codec.name, **self._options)
        return ServiceExecutor(self._executor_client, service, codec=codec, **options)

    # ---------------------------------------------------------------- start and end

    @property
    def engine(self) -> Engine:
        return self._engine if self._engine is not None else self._start()

    async def close(self) -> None:
        """Disconnect. Jobs that have not ended are cancelled and raise JobCancelled."""
        self._is_closed = True
        if self._engine is not None and self._process == os.getpid():
            await self._engine.close()
        if self._executor_client is not None:
            await asyncio.to_thread(self._executor_client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if not self._is_closed and self._engine is not None and self._process == os.getpid():
            warnings.warn(f"unclosed client of {self.url}", ResourceWarning, source=self, stacklevel=2)

    def _enter(self, submit_options: SubmitOptions, payload: Any, codec: Codec) -> AsyncJobFuture[Any]:
        engine = self._engine_here()
        job: AsyncJobFuture[Any] = AsyncJobFuture(self, submit_options, encode_payload(codec, payload), codec)
        engine.enter(job)
        return job

    async def _request(self, operation: OperationCall) -> OperationAnswer:
        engine = self._engine_here()
        asked = AsyncOperationFuture(operation)
        engine.enter(asked)
        try:
            answer: OperationAnswer = await asked
            return answer
        finally:
            if asked.cancelled():
                engine.drop(asked)

    def _engine_here(self) -> Engine:
        engine = self._engine if self._engine is not None else self._start()
        self._check_open()
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError("this client belongs to another event loop; create a new AsyncClient for this loop")
        return engine

    def _start(self) -> Engine:
        self._check_open()
        self._loop = asyncio.get_running_loop()
        check_watches_sockets(self._loop)
        self._engine = Engine(self.options_cache.target, self._loop, self._loop.call_soon, **self._settings)
        return self._engine


_END = object()


async def _next(payloads: AsyncIterator[Any]) -> Any:
    return await anext(payloads, _END)


def _cancel(jobs: Iterable[AsyncJobFuture[Any]]) -> None:
    for job in jobs:
        if not job.cancel() and not job.cancelled():
            job.exception()  # retrieved, so that asyncio does not log it
