"""Futures of operation requests, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Any

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.errors import DragomanError, WrongDialect
from dragoman.sdk.ids import new_job_id
from dragoman.sdk.operation import OperationAnswer, OperationCall

if TYPE_CHECKING:
    from dragoman.sdk.client_connection import ClientConnection


class _OperationState:
    """An operation request as the engine sees it; see client_connection.py:PendingItem."""

    def _begin(self, operation: OperationCall) -> None:
        self.operation: OperationCall | None = operation
        self.submit_options = SubmitOptions("", timeout=operation.timeout)
        self.payload = operation.payload
        self.extras = operation.extras
        self.job_id = new_job_id()
        self.connection: ClientConnection | None = None
        self.is_over = False
        self.entered = 0.0
        self.due = 0.0

    def succeed(self, result: Frame) -> None:
        raise AssertionError("an operation is not a job")

    def report(self, payload: Frame, is_part: bool, attempt: int) -> None:
        raise AssertionError("an operation is not a job")


def _operation_error(error: DragomanError) -> DragomanError:
    """Return the error of an operation: advice about a wrong port names only addresses that have operations."""
    return WrongDialect(error.operation_sentence) if isinstance(error, WrongDialect) else error


class OperationFuture(_OperationState, concurrent.futures.Future[OperationAnswer]):
    def __init__(self, operation: OperationCall) -> None:
        concurrent.futures.Future.__init__(self)
        self._begin(operation)

    def answer(self, view: bytes, payload: Frame) -> None:
        if not self.done():
            self.set_result((view, payload))

    def fail(self, error: DragomanError) -> None:
        if not self.done():
            self.set_exception(_operation_error(error))


class AsyncOperationFuture(_OperationState, asyncio.Future[Any]):
    def __init__(self, operation: OperationCall) -> None:
        asyncio.Future.__init__(self)
        self._begin(operation)

    def answer(self, view: bytes, payload: Frame) -> None:
        if not self.done():
            self.set_result((view, payload))

    def fail(self, error: DragomanError) -> None:
        if not self.done():
            self.set_exception(_operation_error(error))
