"""Operations under way, as futures: of threads and of asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Any

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.ids import new_job_id
from dragoman.sdk.operation import OperationAnswer, OperationCall

if TYPE_CHECKING:
    from dragoman.sdk.client_connection import ClientConnection
    from dragoman.sdk.errors import DragomanError


class _OperationState:
    """What the engine knows of a question under way; see conversation.py:Job."""

    def _begin(self, question: OperationCall) -> None:
        self.question: OperationCall | None = question
        self.submit_options = SubmitOptions("", timeout=question.timeout)
        self.payload = question.payload
        self.job_id = new_job_id()
        self.connection: ClientConnection | None = None
        self.is_over = False
        self.entered = 0.0
        self.due = 0.0

    def succeed(self, result: Frame) -> None:
        raise AssertionError("a question is no job")

    def report(self, payload: Frame, is_part: bool, attempt: int) -> None:
        raise AssertionError("a question is no job")


class OperationFuture(_OperationState, concurrent.futures.Future[OperationAnswer]):
    def __init__(self, question: OperationCall) -> None:
        concurrent.futures.Future.__init__(self)
        self._begin(question)

    def tell(self, view: bytes, payload: Frame) -> None:
        if not self.done():
            self.set_result((view, payload))

    def fail(self, error: DragomanError) -> None:
        if not self.done():
            self.set_exception(error)


class AsyncOperationFuture(_OperationState, asyncio.Future[Any]):
    def __init__(self, question: OperationCall) -> None:
        asyncio.Future.__init__(self)
        self._begin(question)

    def tell(self, view: bytes, payload: Frame) -> None:
        if not self.done():
            self.set_result((view, payload))

    def fail(self, error: DragomanError) -> None:
        if not self.done():
            self.set_exception(error)
