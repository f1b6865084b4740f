"""Runs an operation for an HTTP request."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.http.context import AppContext
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.problems import HttpError, problem_response
from dragoman.http.request_access import address_of
from dragoman.operations.schemas import ErrorView, View


class ClientDisconnected(Exception):
    """The client has disconnected."""


class FutureResponder:
    """Receives the response of one operation and resolves a future."""

    dialect = "http"

    __slots__ = ("_scope", "owner", "response")

    def __init__(self, owner: Owner, scope: Mapping[str, Any]) -> None:
        self.owner = owner
        self._scope = scope
        self.response: Future[tuple[View, Payload, Failure | None]] = get_running_loop().create_future()

    @property
    def origin(self) -> str:
        return address_of(self._scope)

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        if not self.response.done():
            self.response.set_result((view, payload, failure))

    def refuse(self, problem: ErrorView) -> None:
        if not self.response.done():
            self.response.set_exception(HttpError(problem_response(problem)))

    def disconnect(self) -> None:
        if not self.response.done():
            self.response.set_exception(ClientDisconnected())


async def call_operation(
    context: AppContext, request: Request, operation: str, operation_request: Any, payload: Payload = b""
) -> Any:
    """Run an operation and return its view. Raises HttpError for an error, and ClientDisconnected if the client has
    disconnected."""
    view, _, _ = await call_for_result(context, request, operation, operation_request, payload)
    return view


async def call_for_result(
    context: AppContext, request: Request, operation: str, operation_request: Any, payload: Payload = b""
) -> tuple[Any, Payload, Failure | None]:
    """Run an operation and return its view, with the result and the failure of its job."""
    signal: DisconnectSignal | None = request.scope.get("extensions", {}).get(HANGUP)
    if signal is not None and signal.is_gone:
        raise ClientDisconnected
    responder = FutureResponder(context.owner(request.scope), request.scope)
    pending = context.operations.ask(operation, operation_request, payload, responder, context.now())
    context.runner.connections.request_iteration()
    if signal is not None:
        signal.call = responder.disconnect
    try:
        return await responder.response
    finally:
        if signal is not None:
            signal.call = None
        if pending is not None:
            context.operations.leave(pending, context.now())
        # An error has a traceback, that has this frame, and the responder has the error: a reference cycle.
        del responder, pending
