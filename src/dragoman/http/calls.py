"""Calls: the body goes in, the result comes out. The way of each is short: one future, and no task."""

from __future__ import annotations

from asyncio import CancelledError, Future, get_running_loop
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.effects import DeliverOutcome
from dragoman.core.model import Payload
from dragoman.core.states import DONE
from dragoman.http.call_headers import HEADERS
from dragoman.http.context import AppContext
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.operation_call import ClientDisconnected
from dragoman.http.outcomes import outcome_response
from dragoman.http.problems import HttpError, problem, problem_response
from dragoman.http.route import BYTES, Route
from dragoman.operations.handlers import ERROR_KINDS
from dragoman.operations.schemas import ErrorView, ServiceName

if TYPE_CHECKING:
    from starlette.types import Receive


class Result(Response):
    """The bytes that a job ended with. Made for each call, so it is made by hand."""

    def __init__(self, result: Payload, id: bytes) -> None:
        self.status_code = 200
        self.body = result  # type: ignore[assignment]
        self.background = None
        self.raw_headers = [
            (b"content-type", b"application/octet-stream"),
            (b"content-length", b"%d" % len(result)),
            (b"dragoman-job", id),
        ]


async def call(context: AppContext, request: Request) -> Response:
    scope = request.scope
    session = context.session
    plan = session.plans.of(scope)
    payload = await _payload(context, request.receive)
    if plan.key is not None and context.operations.is_loading:
        detail = "jobs of the last run are still being read: keys cannot be looked up yet"
        raise HttpError(problem_response(ErrorView(kind="loading", detail=detail)))
    hangup: DisconnectSignal | None = scope.get("extensions", {}).get(HANGUP)
    if hangup is not None and hangup.is_gone:
        raise ClientDisconnected
    now = context.now()
    answer: Future[DeliverOutcome | None] = get_running_loop().create_future()
    caller = session.call(
        request.path_params["service"],
        payload,
        plan.options,
        answer,
        now,
        deadline=now + plan.patience,
        key=plan.key,
        owner=context.owner(scope),
    )
    if hangup is not None:
        hangup.call = lambda: session.hang_up(caller, context.now())
    try:
        said = await answer
    except CancelledError:  # the server is about to be gone
        session.hang_up(caller, context.now())
        raise
    if said is None:
        raise ClientDisconnected
    return _response(said)


async def _payload(context: AppContext, receive: Receive) -> Payload:
    """The body, which is most often here already and in one piece."""
    message = await receive()
    body: Payload = message.get("body", b"")
    while message.get("more_body", False) and len(body) <= context.max_payload:
        message = await receive()
        body = bytearray(body) if type(body) is bytes else body
        body += message.get("body", b"")
    if message["type"] != "http.request":
        raise ClientDisconnected
    if len(body) > context.max_payload:
        raise HttpError(problem(413, "too-large", "Too large", f"max_payload is {context.max_payload} bytes."))
    return body


def _response(said: DeliverOutcome) -> Response:
    job = said.job
    if said.outcome is DONE and job is not None:
        return Result(said.result, job.id.hex().encode())
    if job is None or said.refusal is not None:
        kind: Any = ERROR_KINDS[said.refusal] if said.refusal is not None else "busy"
        return problem_response(ErrorView(kind=kind, detail=said.reason))
    return outcome_response(job.id.hex(), said.outcome.value, said.reason, said.result, said.failure)


ROUTES = [
    Route(
        "POST",
        "/v1/call/{service}",
        "call",
        "Give a worker this body, and wait for what it makes of it",
        call,
        {200: BYTES},
        "calls",
        path_types={"service": ServiceName},
        bodies=(BYTES,),
        headers=HEADERS,
        problems=(404, 409, 413, 422, 429, 502, 503, 504, 507),
    ),
]
