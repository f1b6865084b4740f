"""Routes of the operations: background jobs, services, workers and schedules over HTTP.

A route comes from the operation's row. Fields of its request are in the path, in the query (GET, DELETE) or in a JSON
body (POST, PUT). Some operations have handlers of their own: `enqueue` accepts a payload as its body and may wait,
`enqueue many` accepts packed jobs, `group results` has results in JSON, `result` and `payload` return bytes, `job`
and `find job` may have to hide them, ladders may be pictures, and `health` is for supervisors, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import asdict, fields
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.failure import unpack_failure
from dragoman.core.model import Payload
from dragoman.http.call_headers import CACHE_SIZE, LONGEST_CACHED, PARENT_HEADER, TRACE_HEADER
from dragoman.http.context import AppContext
from dragoman.http.headers import Header
from dragoman.http.health import health
from dragoman.http.ladder_response import SVG, ladder_response
from dragoman.http.operation_call import call_for_result, call_operation
from dragoman.http.outcomes import STATUSES as OUTCOMES
from dragoman.http.outcomes import outcome_response
from dragoman.http.own_results import shows_group, shows_result
from dragoman.http.payload_response import CONTENT_RANGE, RANGE, hidden_payload, payload_response, without_content
from dragoman.http.preferences import key_of, parent_of, preferred_wait
from dragoman.http.problems import STATUSES, HttpError, problem
from dragoman.http.request_parsing import JSON, body_of, in_body, in_path, in_query, is_json, without
from dragoman.http.route import BYTES, TEXT, Route
from dragoman.operations.group_results import is_failure
from dragoman.operations.group_schemas import EnqueueManyRequest
from dragoman.operations.http_requests import target_of
from dragoman.operations.operation import Operation
from dragoman.operations.schemas import EmptyRequest, EnqueueRequest, JobView, Key, ResultRequest
from dragoman.operations.table import (
    ENQUEUE,
    ENQUEUE_MANY,
    FIND_JOB,
    GROUP_RESULTS,
    HEALTH,
    JOB,
    LADDER,
    PAYLOAD,
    RESULT,
    WORKER_LADDER,
)
from dragoman.operations.views import failure_view, show_result, text_or_base64

EnqueueManyQuery = without(EnqueueManyRequest, "EnqueueManyQuery", "jobs")
EnqueueQuery = without(EnqueueRequest, "EnqueueQuery", "payload", "payload_base64", open=["service"])

BODY_PROBLEMS = (400, 413, 415)  # of every route that reads JSON
TARGET_TOO_LONG = 414  # `after` in a query may name many jobs
NEXT_PAGE = " If there are more, `after` is the parameter of the next page, and the Link header is its address."
APPLIED = Header("Preference-Applied", str, "`wait=30`: the preferred wait that was applied.")
LINK = Header("Link", str, '`<…>; rel="next"`: the next page, if there are more.')


def operation_routes(rows: Iterable[Operation[Any, Any]]) -> list[Route]:
    """Return the routes of these operations, in their order."""
    return [SPECIAL_ROUTES.get(row.name) or route_of(row) for row in rows]


def route_of(row: Operation[Any, Any]) -> Route:
    """Return the route of an operation whose request and view are JSON."""
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
        query=reader.fields_type if not row.has_body else None,
        bodies=(reader.fields_type,) if row.has_body else (),
        problems=_statuses(row),
        answer_headers=_headers(row),
    )


class RequestReader:
    """Parses the request of one operation. `fields_type`: the type of its fields outside the path, or None."""

    def __init__(self, row: Operation[Any, Any]) -> None:
        self._row = row
        self._has_body = row.has_body
        self.path_types = {each.name: each.type for each in fields(row.request) if each.name in row.path_fields}
        self.fields_type: type[Any] | None = _without_path(row) if row.other_fields else None

    async def read(self, context: AppContext, request: Request) -> Any:
        named = {name: in_path(request, name, kind) for name, kind in self.path_types.items()}
        if self.fields_type is None:
            return self._row.request(**named)
        if self._has_body:
            parsed = await in_body(context, request, self.fields_type)
        else:
            parsed = in_query(request, self.fields_type)
        return self._row.request(**named, **asdict(parsed)) if named else parsed


async def _handle(row: Operation[Any, Any], reader: RequestReader, context: AppContext, request: Request) -> Response:
    operation_request = await reader.read(context, request)
    view = await call_operation(context, request, row.name, operation_request)
    headers = {}
    if row.location:
        headers["Location"] = row.location.format_map(asdict(view))
    if row.pages and view.after is not None:
        headers["Link"] = (
            f'<{target_of(row, msgspec.structs.replace(operation_request, after=view.after))}>; rel="next"'
        )
    return json_response(view, row.status, headers)


def json_response(view: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(view), status, headers, media_type=JSON)


def _without_path(row: Operation[Any, Any]) -> type[Any]:
    """Return the type of the fields outside the path."""
    if not row.path_fields:
        return row.request
    camel = _camel(row.name)
    return without(row.request, f"{camel[0].upper()}{camel[1:]}{'Body' if row.has_body else 'Query'}", *row.path_fields)


def _statuses(row: Operation[Any, Any]) -> tuple[int, ...]:
    """Return the statuses of the operation's errors."""
    found = {STATUSES[kind][0] for kind in row.all_errors}
    return tuple(sorted(found | set(BODY_PROBLEMS if row.has_body else ())))


def _headers(row: Operation[Any, Any]) -> dict[int, tuple[Header, ...]]:
    headers = [*([_location(row)] if row.location else []), *([LINK] if row.pages else [])]
    return {row.status: tuple(headers)} if headers else {}


def _location(row: Operation[Any, Any]) -> Header:
    return Header("Location", str, f"Address of the {row.group.removesuffix('s')}: `{row.location}`.")


def _camel(name: str) -> str:
    """Convert `delete schedule` to `stopRecurring`."""
    first, *others = name.replace("_", " ").split(" ")
    return first + "".join(each.title() for each in others)


# ---------------------------------------------------------------- operations with their own handlers


def ladder_route(row: Operation[Any, Any]) -> Route:
    """Return the route of a ladder, whose response is JSON, a picture or text."""
    route = route_of(row)
    return replace(route, handler=partial(_ladder, row, RequestReader(row)), answers={200: (row.view, SVG, TEXT)})


async def _ladder(row: Operation[Any, Any], reader: RequestReader, context: AppContext, request: Request) -> Response:
    operation_request = await reader.read(context, request)
    view = await call_operation(context, request, row.name, operation_request)
    if operation_request.format == "json":
        return json_response(view)
    return ladder_response(view, operation_request.format)


async def enqueue(context: AppContext, request: Request) -> Response:
    enqueue_request, payload = await _enqueue_request(context, request)
    enqueue_request.key = key_of(request, enqueue_request.key)
    enqueue_request.parent = parent_of(request, enqueue_request.parent)
    if enqueue_request.traceparent is None:
        enqueue_request.traceparent = request.headers.get("traceparent")
    view = await call_operation(context, request, "enqueue", enqueue_request, payload)
    headers = {"Location": f"/v1/jobs/{view.id}"}
    if view.state == "ended" and view.outcome is None:  # a repeated request whose job is deleted
        return json_response(view, 200, headers)
    wait = preferred_wait(request)
    if wait is not None:
        headers["Preference-Applied"] = f"wait={wait:g}"
    elif view.state != "ended":  # otherwise an older job with this key, which has ended
        return json_response(view, 202, headers)
    view, result, failure = await call_for_result(
        context, request, "result", ResultRequest(id=view.id, wait=wait or 0.0)
    )
    if view.state != "ended":
        return json_response(view, 202, headers)
    show_result(view, result, failure)
    return json_response(view, 200, headers)


_enqueue_queries: dict[bytes, EnqueueRequest] = {}  # parsed queries; most callers send few different ones


async def _enqueue_request(context: AppContext, request: Request) -> tuple[EnqueueRequest, Payload]:
    """Parse the request of `enqueue`: with the service in the query the body is the payload, otherwise JSON."""
    query: bytes = request.scope["query_string"]
    parsed = _enqueue_queries.get(query)
    if parsed is None and "service" in request.query_params:
        parsed = EnqueueRequest(**asdict(in_query(request, EnqueueQuery)))
        if parsed.key is None and parsed.request_id is None and len(query) <= LONGEST_CACHED:
            if len(_enqueue_queries) >= CACHE_SIZE:
                _enqueue_queries.clear()
            _enqueue_queries[query] = parsed
    if parsed is not None:
        return copy(parsed), await body_of(context, request.receive)
    if not is_json(request):
        detail = f"Send a request as {JSON}, or name the service in the query and send the payload as body."
        raise HttpError(problem(415, "wrong-content-type", "Wrong content type", detail))
    in_query(request, EmptyRequest)
    return await in_body(context, request, EnqueueRequest), b""


async def enqueue_many(context: AppContext, request: Request) -> Response:
    """Enqueue a batch: in JSON, or, with any other content type, packed jobs as body and the other fields as query."""
    payload: Payload = b""
    if is_json(request):
        in_query(request, EmptyRequest)
        batch = await in_body(context, request, EnqueueManyRequest)
    else:
        batch = EnqueueManyRequest(**asdict(in_query(request, EnqueueManyQuery)))
        payload = await body_of(context, request.receive)
    batch.parent = parent_of(request, batch.parent)
    if batch.traceparent is None:
        batch.traceparent = request.headers.get("traceparent")
    return json_response(await call_operation(context, request, ENQUEUE_MANY.name, batch, payload), 202)


GROUP_RESULTS_READER = RequestReader(GROUP_RESULTS)


async def group_results(context: AppContext, request: Request) -> Response:
    operation_request = await GROUP_RESULTS_READER.read(context, request)
    view, bodies, _ = await call_for_result(context, request, GROUP_RESULTS.name, operation_request)
    if not shows_group(context, request, view.id):
        return hidden_payload()
    at = 0
    for each in view.results:
        body = bodies[at : at + each.size]
        at += each.size
        if is_failure(each):
            each.error = failure_view(unpack_failure(body))
        elif each.outcome is not None and not each.deleted:
            each.result, each.result_base64 = text_or_base64(body)
    return json_response(view)


RESULT_READER = RequestReader(RESULT)


async def result(context: AppContext, request: Request) -> Response:
    operation_request = await RESULT_READER.read(context, request)
    view, result, failure = await call_for_result(context, request, "result", operation_request)
    if view.state != "ended":
        return json_response(view, 202)
    if not shows_result(context, request, view):
        return hidden_payload()
    return outcome_response(view.id, view.outcome, view.reason, result, failure)


PAYLOAD_READER = RequestReader(PAYLOAD)


async def payload(context: AppContext, request: Request) -> Response:
    form = await PAYLOAD_READER.read(context, request)
    if not context.shows_payloads:
        return hidden_payload()
    view, payload, _ = await call_for_result(context, request, "payload", form)
    return payload_response(view.id, payload, request.headers.get("range"))


JOB_READER = RequestReader(JOB)


async def job(context: AppContext, request: Request) -> Response:
    view = await call_operation(context, request, "job", await JOB_READER.read(context, request))
    return json_response(view if context.shows_payloads else without_content(view))


FIND_JOB_READER = RequestReader(FIND_JOB)


async def find_job(context: AppContext, request: Request) -> Response:
    view = await call_operation(context, request, FIND_JOB.name, await FIND_JOB_READER.read(context, request))
    return json_response(view if context.shows_payloads else without_content(view))


SPECIAL_ROUTES = {
    LADDER.name: ladder_route(LADDER),
    WORKER_LADDER.name: ladder_route(WORKER_LADDER),
    HEALTH.name: replace(route_of(HEALTH), handler=health),
    ENQUEUE.name: replace(
        route_of(ENQUEUE),
        summary=f"{ENQUEUE.summary} The body is a request in JSON or, if the query names the service, the "
        "payload with any content type; the query then has the other fields. With `Prefer: wait=30` the response is "
        "200 with the outcome, if there is one within 30 seconds, and also if a job with the same key or request id "
        "has ended; its `outcome` is null if it is deleted.",
        handler=enqueue,
        answers={202: JobView, 200: JobView},
        query=EnqueueQuery,
        bodies=(EnqueueRequest, BYTES),
        problems=tuple(sorted({*_statuses(ENQUEUE), TARGET_TOO_LONG})),
        headers=(
            Header("Idempotency-Key", Key, "A second submit with this key and payload returns the first job."),
            Header("Prefer", str, "`wait=30`: wait up to 30 seconds for the outcome."),
            PARENT_HEADER,
            TRACE_HEADER,
        ),
        answer_headers={200: (_location(ENQUEUE), APPLIED), 202: (_location(ENQUEUE), APPLIED)},
    ),
    ENQUEUE_MANY.name: replace(
        route_of(ENQUEUE_MANY),
        summary=f"{ENQUEUE_MANY.summary} The body is a request in JSON. With any other content type it has packed "
        "jobs, and the query has the other fields.",
        handler=enqueue_many,
        query=EnqueueManyQuery,
        bodies=(EnqueueManyRequest, BYTES),
        headers=(PARENT_HEADER, TRACE_HEADER),
        problems=tuple(sorted({*_statuses(ENQUEUE_MANY), TARGET_TOO_LONG})),
    ),
    GROUP_RESULTS.name: replace(route_of(GROUP_RESULTS), handler=group_results),
    JOB.name: replace(route_of(JOB), handler=job),
    FIND_JOB.name: replace(route_of(FIND_JOB), handler=find_job),
    PAYLOAD.name: replace(
        route_of(PAYLOAD),
        handler=payload,
        answers={200: BYTES, 206: BYTES},
        headers=(RANGE,),
        answer_headers={206: (CONTENT_RANGE,)},
        problems=tuple(sorted({*_statuses(PAYLOAD), 416})),
    ),
    RESULT.name: replace(
        route_of(RESULT),
        summary=f"{RESULT.summary} Returns 202 with the job if it has not ended within the wait, and a problem if it "
        "did not succeed: 502 failed or lost (`type` tells which), 504 timed out, 409 cancelled.",
        handler=result,
        answers={200: BYTES, 202: JobView},
        problems=tuple(sorted({*_statuses(RESULT), *(status for status, _ in OUTCOMES.values())})),
    ),
}
