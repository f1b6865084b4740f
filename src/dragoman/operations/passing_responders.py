"""Responders that act for the client of another responder: they pass its response on, or receive a part of it."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import ErrorView, View


class PassingResponder:
    """Passes responses on, for the client of another responder."""

    __slots__ = ("_responder",)

    def __init__(self, responder: Responder) -> None:
        self._responder = responder

    @property
    def owner(self) -> Owner:
        return self._responder.owner

    @property
    def dialect(self) -> str:
        return self._responder.dialect

    @property
    def origin(self) -> str:
        return self._responder.origin

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        self._responder.answer(view, payload, failure)

    def refuse(self, problem: ErrorView) -> None:
        self._responder.refuse(problem)


class PartResponder(PassingResponder):
    """Receives the view or the error of one question, for the client of another responder."""

    __slots__ = ("_done",)

    def __init__(self, responder: Responder, done: Callable[[View | ErrorView], None]) -> None:
        super().__init__(responder)
        self._done = done

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        self._done(view)

    def refuse(self, problem: ErrorView) -> None:
        self._done(problem)
