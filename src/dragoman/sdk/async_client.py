"""`dragoman.AsyncClient`: the same as `Client`, awaited, on whatever event loop runs."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.async_operations import AsyncClientOperations
from dragoman.sdk.calls import Calls, Maps, OptionValues, Submits
from dragoman.sdk.client_settings import as_sent
from dragoman.sdk.codecs import Codec
from dragoman.sdk.engine import Engine
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
    """Calls the services of a broker, in any dialect that has callers: the address says which.

        async with AsyncClient("tcp://127.0.0.1:7400") as client:
            small = await client.call("resize", big, timeout=30)

    It belongs to the event loop on which it is first used. Its settings and options are those of `Client`.
    """

    @overload
    def __init__(
        self: AsyncClient[bytes],
        url: str | None = ...,
        *,
        codec: Literal["bytes"] = ...,
        **options: Unpack[ClientOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncClient[Any], url: str | None = ..., *, codec: str, **options: Unpack[ClientOptions]
    ) -> None: ...

    def __init__(self, url: str | None = None, *, codec: str = "bytes", **options: Unpack[ClientOptions]) -> None:
        """Raises AddressError."""
        self._set_up(url, codec, **options)
        self._options = options
        self._for_executors: Client[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        self._process = os.getpid()
        self._is_closed = False

    # ---------------------------------------------------------------- jobs

    async def _call(self, asked: OptionValues, payload: Any, codec: str | None) -> Any:
        return await self._enter(self.asking.submit_options(*asked), payload, self._chosen(codec))

    def _map(
        self, submit_options: SubmitOptions, payloads: Iterable[Any] | AsyncIterable[Any], codec: Codec, window: int
    ) -> AsyncIterator[Any]:
        if isinstance(payloads, AsyncIterable):
            return self._map_as_they_come(submit_options, aiter(payloads), codec, window)
        return self._map_at_hand(submit_options, payloads, codec, window)

    async def _map_at_hand(
        self, submit_options: SubmitOptions, payloads: Iterable[Any], codec: Codec, window: int
    ) -> AsyncIterator[Any]:
        under_way: deque[AsyncJobFuture[Any]] = deque()
        try:
            for payload in payloads:
                under_way.append(self._enter(submit_options, payload, codec))
                while under_way and (len(under_way) >= window or under_way[0].done()):
                    yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        finally:
            _cancel(under_way)

    async def _map_as_they_come(
        self, submit_options: SubmitOptions, payloads: AsyncIterator[Any], codec: Codec, window: int
    ) -> AsyncIterator[Any]:
        """A payload that lets us wait does not keep back the results that are there."""
        under_way: deque[AsyncJobFuture[Any]] = deque()
        coming: asyncio.Future[Any] | None = asyncio.ensure_future(_next(payloads))
        try:
            while under_way or coming is not None:
                ways = [*([coming] if coming is not None else ()), *([under_way[0]] if under_way else ())]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                while under_way and under_way[0].done():
                    yield under_way.popleft().result()
                if coming is not None and coming.done():
                    payload, coming = coming.result(), None
                    if payload is not _END:
                        under_way.append(self._enter(submit_options, payload, codec))
                        while len(under_way) >= window:
                            yield await under_way.popleft()
                        coming = asyncio.ensure_future(_next(payloads))
        finally:
            if coming is not None:
                coming.cancel()
            _cancel(under_way)

    @staticmethod
    async def as_completed(
        jobs: Iterable[AsyncJobFuture[Each]], timeout: float | None = None
    ) -> AsyncIterator[AsyncJobFuture[Each]]:
        """The jobs, each as soon as it has ended. Raises TimeoutError if they have not all ended after `timeout`."""
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
        """A `concurrent.futures.Executor` whose work is done by the workers of `service`, as for
        `loop.run_in_executor`; see ServiceExecutor. Executors belong to threads, so theirs is a client of their own,
        which is closed with this one."""
        from dragoman.sdk.client import Client
        from dragoman.sdk.executor import ServiceExecutor

        self._check_open()
        if self._for_executors is None:
            self._for_executors = Client(self.url, codec=self._codec.name, **self._options)
        return ServiceExecutor(self._for_executors, service, codec=codec, **options)

    # ---------------------------------------------------------------- its life

    @property
    def engine(self) -> Engine:
        return self._engine if self._engine is not None else self._start()

    async def close(self) -> None:
        """Leave the broker. What is under way is withdrawn, and ends in JobCancelled."""
        self._is_closed = True
        if self._engine is not None and self._process == os.getpid():
            await self._engine.close()
        if self._for_executors is not None:
            await asyncio.to_thread(self._for_executors.close)

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
        job: AsyncJobFuture[Any] = AsyncJobFuture(self, submit_options, as_sent(codec, payload), codec)
        engine.enter(job)
        return job

    async def _ask(self, question: OperationCall) -> OperationAnswer:
        engine = self._engine_here()
        asked = AsyncOperationFuture(question)
        engine.enter(asked)
        try:
            answer: OperationAnswer = await asked
            return answer
        finally:
            if asked.cancelled():
                engine.withdraw(asked)

    def _engine_here(self) -> Engine:
        engine = self._engine if self._engine is not None else self._start()
        self._check_open()
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError("this client belongs to another event loop: make a new AsyncClient for this one")
        return engine

    def _start(self) -> Engine:
        self._check_open()
        self._loop = asyncio.get_running_loop()
        self._engine = Engine(self.asking.target, self._loop, self._loop.call_soon, **self._settings)
        return self._engine


_END = object()


async def _next(payloads: AsyncIterator[Any]) -> Any:
    return await anext(payloads, _END)


def _cancel(jobs: Iterable[AsyncJobFuture[Any]]) -> None:
    for job in jobs:
        if not job.cancel() and not job.cancelled():
            job.exception()  # nobody will ask for it
