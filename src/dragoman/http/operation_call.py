"""A question that came by HTTP, put to the desk."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from typing import Any

from starlette.requests import Request

from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.http.context import AppContext
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.problems import HttpError, problem_response
from dragoman.operations.schemas import ErrorView, View


class ClientDisconnected(Exception):
    """Nobody is there any more to be answered."""


class FutureResponder:
    """The asker for one request: what it is told ends a future."""

    __slots__ = ("owner", "told")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.told: Future[tuple[View, Payload, Failure | None]] = get_running_loop().create_future()

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        if not self.told.done():
            self.told.set_result((view, payload, failure))

    def refuse(self, problem: ErrorView) -> None:
        if not self.told.done():
            self.told.set_exception(HttpError(problem_response(problem)))

    def hang_up(self) -> None:
        if not self.told.done():
            self.told.set_exception(ClientDisconnected())


async def call_operation(
    context: AppContext, request: Request, question: str, form: Any, payload: Payload = b""
) -> Any:
    """The view that the desk answers with. Raises Refused if that is a problem, and HungUp if the caller does not wait
    for it."""
    view, _, _ = await call_for_result(context, request, question, form, payload)
    return view


async def call_for_result(
    context: AppContext, request: Request, question: str, form: Any, payload: Payload = b""
) -> tuple[Any, Payload, Failure | None]:
    """The same, with the result and the failure of the job it is about."""
    hangup: DisconnectSignal | None = request.scope.get("extensions", {}).get(HANGUP)
    if hangup is not None and hangup.is_gone:
        raise ClientDisconnected
    waiter = FutureResponder(context.owner(request.scope))
    pending = context.operations.ask(question, form, payload, waiter, context.now())
    context.runner.request_iteration()
    if hangup is not None:
        hangup.call = waiter.hang_up
    try:
        return await waiter.told
    finally:
        if hangup is not None:
            hangup.call = None
        if pending is not None:
            context.operations.leave(pending, context.now())
