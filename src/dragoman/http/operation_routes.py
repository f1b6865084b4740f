"""Routes of the operations: background jobs, services, workers and schedules over HTTP.

A route comes from the operation's row. Fields of its request are in the path, in the query (GET, DELETE) or in a JSON
body (POST, PUT). Three operations have handlers of their own: `enqueue` takes a payload as its body and may wait,
`result` answers with bytes, and `health` is for supervisors, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import asdict, fields
from starlette.requests import Request
from starlette.responses import Response

from dragoman.http.context import AppContext
from dragoman.http.headers import Header
from dragoman.http.health import health
from dragoman.http.operation_call import call_for_result, call_operation
from dragoman.http.outcomes import TOLD as OUTCOMES
from dragoman.http.outcomes import outcome_response
from dragoman.http.preferences import key_of, preferred_wait
from dragoman.http.problems import TOLD, HttpError, problem
from dragoman.http.request_parsing import JSON, body_of, in_body, in_path, in_query, is_json, without
from dragoman.http.route import BYTES, Route
from dragoman.operations.http_requests import target_of
from dragoman.operations.operation import Operation
from dragoman.operations.schemas import EmptyRequest, EnqueueRequest, JobView, Key, ResultRequest
from dragoman.operations.table import ENQUEUE, HEALTH, RESULT
from dragoman.operations.views import show_result

OrderQuery = without(EnqueueRequest, "OrderQuery", "payload", "payload_base64", open=["service"])

BODY_PROBLEMS = (400, 413, 415)  # of any route that reads JSON
NEXT_PAGE = (
    " Where there are more, `after` is what to ask the next page with, and the Link header is the next page's address."
)
APPLIED = Header("Preference-Applied", str, "`wait=30`: the wait that was preferred.")
LINK = Header("Link", str, '`<…>; rel="next"`: the next page, if there are more.')


def operation_routes(rows: Iterable[Operation[Any, Any]]) -> list[Route]:
    """The routes of these operations, in their order."""
    return [SPECIAL_ROUTES.get(row.name) or route_of(row) for row in rows]


def route_of(row: Operation[Any, Any]) -> Route:
    """The route of an operation whose request and view travel as JSON."""
    reader = RequestReader(row)
    return Route(
        row.method,
        row.path,
        _camel(row.name),
        row.summary + (NEXT_PAGE if row.pages else ""),
        partial(_handle, row, reader),
        {row.status: row.view},
        row.group,
        path_types=reader.path_types,
        query=reader.said if not row.has_body else None,
        bodies=(reader.said,) if row.has_body else (),
        problems=_statuses(row),
        answer_headers=_headers(row),
    )


class RequestReader:
    """Reads the request of one operation. `said`: the type of its fields that are not in the path, if there are any."""

    def __init__(self, row: Operation[Any, Any]) -> None:
        self._row = row
        self._has_body = row.has_body
        self.path_types = {each.name: each.type for each in fields(row.request) if each.name in row.path_fields}
        self.said: type[Any] | None = _without_path(row) if row.other_fields else None

    async def read(self, context: AppContext, request: Request) -> Any:
        named = {name: in_path(request, name, kind) for name, kind in self.path_types.items()}
        if self.said is None:
            return self._row.request(**named)
        if self._has_body:
            said = await in_body(context, request, self.said)
        else:
            said = in_query(request, self.said)
        return self._row.request(**named, **asdict(said)) if named else said


async def _handle(row: Operation[Any, Any], reader: RequestReader, context: AppContext, request: Request) -> Response:
    form = await reader.read(context, request)
    view = await call_operation(context, request, row.name, form)
    headers = {}
    if row.location:
        headers["Location"] = row.location.format_map(asdict(view))
    if row.pages and view.after is not None:
        headers["Link"] = f'<{target_of(row, msgspec.structs.replace(form, after=view.after))}>; rel="next"'
    return json_response(view, row.status, headers)


def json_response(view: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(view), status, headers, media_type=JSON)


def _without_path(row: Operation[Any, Any]) -> type[Any]:
    """The type of what is said besides the path."""
    if not row.path_fields:
        return row.request
    camel = _camel(row.name)
    return without(row.request, f"{camel[0].upper()}{camel[1:]}{'Body' if row.has_body else 'Query'}", *row.path_fields)


def _statuses(row: Operation[Any, Any]) -> tuple[int, ...]:
    """The statuses of its errors."""
    found = {TOLD[kind][0] for kind in row.all_errors}
    return tuple(sorted(found | set(BODY_PROBLEMS if row.has_body else ())))


def _headers(row: Operation[Any, Any]) -> dict[int, tuple[Header, ...]]:
    headers = [*([_location(row)] if row.location else []), *([LINK] if row.pages else [])]
    return {row.status: tuple(headers)} if headers else {}


def _location(row: Operation[Any, Any]) -> Header:
    return Header("Location", str, f"Where the {row.group.removesuffix('s')} is: `{row.location}`.")


def _camel(name: str) -> str:
    """`stopRecurring` for `delete schedule`."""
    first, *others = name.replace("_", " ").split(" ")
    return first + "".join(each.title() for each in others)


# ---------------------------------------------------------------- operations with handlers of their own


async def enqueue(context: AppContext, request: Request) -> Response:
    order, payload = await _order(context, request)
    order.key = key_of(request, order.key)
    view = await call_operation(context, request, "enqueue", order, payload)
    headers = {"Location": f"/v1/jobs/{view.id}"}
    wait = preferred_wait(request)
    if wait is not None:
        headers["Preference-Applied"] = f"wait={wait:g}"
    elif view.state != "ended":  # else it is an older one of the same key, and how it ended is known
        return json_response(view, 202, headers)
    view, result, failure = await call_for_result(
        context, request, "result", ResultRequest(id=view.id, wait=wait or 0.0)
    )
    if view.state != "ended":
        return json_response(view, 202, headers)
    show_result(view, result, failure)
    return json_response(view, 200, headers)


async def _order(context: AppContext, request: Request) -> tuple[EnqueueRequest, bytes]:
    """Whoever names the service in the query sends a payload as it is; else the body is an order."""
    if "service" in request.query_params:
        said = in_query(request, OrderQuery)
        return EnqueueRequest(**asdict(said)), await body_of(context, request)
    if not is_json(request):
        detail = f"Send an order as {JSON}, or name the service in the query and send the payload as it is."
        raise HttpError(problem(415, "wrong-content-type", "Wrong content type", detail))
    in_query(request, EmptyRequest)
    return await in_body(context, request, EnqueueRequest), b""


RESULT_READER = RequestReader(RESULT)


async def result(context: AppContext, request: Request) -> Response:
    form = await RESULT_READER.read(context, request)
    view, result, failure = await call_for_result(context, request, "result", form)
    if view.state != "ended":
        return json_response(view, 202)
    return outcome_response(view.id, view.outcome, view.reason, result, failure)


SPECIAL_ROUTES = {
    HEALTH.name: replace(route_of(HEALTH), handler=health),
    ENQUEUE.name: replace(
        route_of(ENQUEUE),
        summary=f"{ENQUEUE.summary} The body is an order in JSON, or, if the query names the service, the payload as "
        "it is, whatever its content type; the query then says what an order would. With `Prefer: wait=30` the answer "
        "is 200 with the outcome, if there is one within that many seconds; so it is if the job joins one of the same "
        "key that has ended.",
        handler=enqueue,
        answers={202: JobView, 200: JobView},
        query=OrderQuery,
        bodies=(EnqueueRequest, BYTES),
        headers=(
            Header("Idempotency-Key", Key, "A second order with the same key and payload joins the first job."),
            Header("Prefer", str, "`wait=30`: wait so many seconds for the outcome."),
        ),
        answer_headers={200: (_location(ENQUEUE), APPLIED), 202: (_location(ENQUEUE), APPLIED)},
    ),
    RESULT.name: replace(
        route_of(RESULT),
        summary=f"{RESULT.summary} 202 with the job if it has not ended, after so many seconds of waiting; a problem "
        "if it did not end well: 502 failed or lost (`type` tells which), 504 timed out, 409 cancelled.",
        handler=result,
        answers={200: BYTES, 202: JobView},
        problems=tuple(sorted({*_statuses(RESULT), *(status for status, _ in OUTCOMES.values())})),
    ),
}
