"""Runs the generators of operation_steps.py: `Performer` blocks, `AsyncPerformer` awaits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from dragoman.sdk import operation_steps
from dragoman.sdk.client_settings import BACKGROUND, encode_payload
from dragoman.sdk.codecs import Codec
from dragoman.sdk.codecs import codec as codec_of
from dragoman.sdk.errors import DragomanError
from dragoman.sdk.ids import new_batch_id
from dragoman.sdk.operation import OperationAnswer, OperationCall
from dragoman.sdk.operation_steps import Page, Pages, Steps
from dragoman.sdk.submit_options import SubmitOptionsCache

if TYPE_CHECKING:
    from dragoman.operations.operation import Operation, RequestType, ViewType

T = TypeVar("T")


class OperationClient:
    """State and helpers of both classes."""

    options_cache: SubmitOptionsCache
    _codec: Codec

    def _encoded(self, payload: Any, codec: str | None) -> bytes:
        return encode_payload(self._codec_of(codec), payload)

    def _packed(self, payloads: Iterable[Any], codec: str | None) -> list[tuple[bytes, bytes, bytes]]:
        """Return jobs without fields of their own, for a batch."""
        chosen = self._codec_of(codec)
        return [(new_batch_id(), b"", encode_payload(chosen, payload)) for payload in payloads]

    def _codec_of(self, codec: str | None) -> Codec:
        return self._codec if codec is None else codec_of(codec)


class Performer(OperationClient):
    """Performs operations and blocks until they are done."""

    def operation(self, row: Operation[RequestType, ViewType], request: RequestType, payload: bytes = b"") -> ViewType:
        """Perform an operation of the table. Raises NotFound, ValueError, JobRefused, BrokerUnavailable."""
        return self._follow(operation_steps.view(row, request, payload))

    def pages(self, row: Operation[RequestType, Any], request: RequestType) -> Iterator[Page]:
        """Yield the entries of a list, page by page, up to the `limit` of the request, which may be any number."""
        pages = Pages(row, request)
        while not pages.is_over:
            yield self._follow(pages.next())

    def _request(self, operation_call: OperationCall) -> OperationAnswer:
        raise NotImplementedError

    def _follow(self, steps: Steps[T]) -> T:
        self.options_cache.require(BACKGROUND)
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._perform_step(step)
                except DragomanError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            returned: T = end.value
            return returned

    def _perform_step(self, step: OperationCall | float) -> OperationAnswer | None:
        if isinstance(step, OperationCall):
            return self._request(step)
        time.sleep(step)
        return None


class AsyncPerformer(OperationClient):
    """Performs operations as coroutines."""

    async def operation(
        self, row: Operation[RequestType, ViewType], request: RequestType, payload: bytes = b""
    ) -> ViewType:
        """Perform an operation of the table. Raises NotFound, ValueError, JobRefused, BrokerUnavailable."""
        return await self._follow(operation_steps.view(row, request, payload))

    async def pages(self, row: Operation[RequestType, Any], request: RequestType) -> AsyncIterator[Page]:
        """Yield the entries of a list, page by page, up to the `limit` of the request, which may be any number."""
        pages = Pages(row, request)
        while not pages.is_over:
            yield await self._follow(pages.next())

    async def _request(self, operation_call: OperationCall) -> OperationAnswer:
        raise NotImplementedError

    async def _follow(self, steps: Steps[T]) -> T:
        self.options_cache.require(BACKGROUND)
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._perform_step(step)
                except DragomanError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            returned: T = end.value
            return returned

    async def _perform_step(self, step: OperationCall | float) -> OperationAnswer | None:
        if isinstance(step, OperationCall):
            return await self._request(step)
        await asyncio.sleep(step)
        return None
