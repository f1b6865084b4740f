"""Operations under way, as futures: of threads and of asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Any

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import Wishes
from dragoman.sdk.ids import new_job_id
from dragoman.sdk.operation import Answer, Question

if TYPE_CHECKING:
    from dragoman.sdk.client_connection import Conversation
    from dragoman.sdk.errors import DragomanError


class _Asked:
    """What the engine knows of a question under way; see conversation.py:Job."""

    def _begin(self, question: Question) -> None:
        self.question: Question | None = question
        self.wishes = Wishes("", timeout=question.timeout)
        self.payload = question.payload
        self.job_id = new_job_id()
        self.conversation: Conversation | None = None
        self.is_over = False
        self.entered = 0.0
        self.due = 0.0

    def succeed(self, result: Frame) -> None:
        raise AssertionError("a question is no job")

    def report(self, payload: Frame, is_part: bool, attempt: int) -> None:
        raise AssertionError("a question is no job")


class Asked(_Asked, concurrent.futures.Future[Answer]):
    def __init__(self, question: Question) -> None:
        concurrent.futures.Future.__init__(self)
        self._begin(question)

    def tell(self, view: bytes, payload: Frame) -> None:
        if not self.done():
            self.set_result((view, payload))

    def fail(self, error: DragomanError) -> None:
        if not self.done():
            self.set_exception(error)


class AsyncAsked(_Asked, asyncio.Future[Any]):
    def __init__(self, question: Question) -> None:
        asyncio.Future.__init__(self)
        self._begin(question)

    def tell(self, view: bytes, payload: Frame) -> None:
        if not self.done():
            self.set_result((view, payload))

    def fail(self, error: DragomanError) -> None:
        if not self.done():
            self.set_exception(error)
