"""Calls: the request body is the payload, the response body the result. Each call needs one future, and no task."""

from __future__ import annotations

from asyncio import CancelledError, Future, get_running_loop
from typing import Any

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
from dragoman.http.problems import HttpError, problem_response
from dragoman.http.request_parsing import body_of
from dragoman.http.route import BYTES, Route
from dragoman.operations.error_kinds import ERROR_KINDS
from dragoman.operations.schemas import ErrorView, ServiceName


class Result(Response):
    """The result of a job. Built by hand, because it is created for each call."""

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
    headers = session.call_headers.of(scope)
    payload = await body_of(context, request.receive)
    if headers.key is not None and context.operations.is_loading:
        detail = "jobs of the last run are still being read, so keys cannot be looked up yet; retry in a second"
        raise HttpError(problem_response(ErrorView(kind="loading", detail=detail)))
    disconnect: DisconnectSignal | None = scope.get("extensions", {}).get(HANGUP)
    if disconnect is not None and disconnect.is_gone:
        raise ClientDisconnected
    now = context.now()
    answer: Future[DeliverOutcome | None] = get_running_loop().create_future()
    caller = session.call(
        request.path_params["service"],
        payload,
        headers.options,
        answer,
        now,
        deadline=now + headers.timeout,
        key=headers.key,
        owner=context.owner(scope),
        extras=headers.extras,
    )
    if disconnect is not None:
        disconnect.call = lambda: session.caller_left(caller, context.now())
    try:
        outcome = await answer
    except CancelledError:  # the server is closing
        session.caller_left(caller, context.now())
        raise
    if outcome is None:
        raise ClientDisconnected
    return _response(outcome)


def _response(outcome: DeliverOutcome) -> Response:
    job = outcome.job
    if outcome.outcome is DONE and job is not None:
        return Result(outcome.result, job.id.hex().encode())
    if job is None or outcome.refusal is not None:
        kind: Any = ERROR_KINDS[outcome.refusal] if outcome.refusal is not None else "busy"
        return problem_response(ErrorView(kind=kind, detail=outcome.reason))
    return outcome_response(job.id.hex(), outcome.outcome.value, outcome.reason, outcome.result, outcome.failure)


ROUTES = [
    Route(
        "POST",
        "/v1/call/{service}",
        "call",
        "Send the body to a worker, and return its result",
        call,
        {200: BYTES},
        "calls",
        path_types={"service": ServiceName},
        bodies=(BYTES,),
        headers=HEADERS,
        problems=(403, 404, 409, 413, 422, 429, 502, 503, 504, 507),
    ),
]
